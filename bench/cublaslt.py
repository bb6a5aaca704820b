# Owns the peer "cublasLt best": the fastest algorithm of cuBLASLt's heuristic list for a matmul of the suite.
"""cuBLASLt by ctypes, out of the library that PyTorch has loaded. Numbers are those of cublasLt.h."""
import ctypes

FP32, FP16, BF16, FP8_E4M3, FP8_E5M2 = 0, 2, 14, 28, 29
TYPES = {"fp32": FP32, "fp16": FP16, "bf16": BF16, "fp8_e4m3": FP8_E4M3, "fp8_e5m2": FP8_E5M2}
COMPUTE_FP32, COMPUTE_TF32 = 68, 77
TRANSPOSE_A, EPILOGUE, BIAS_POINTER, AUX_POINTER, AUX_LEADING = 3, 7, 8, 11, 12
BATCH_COUNT, BATCH_STRIDE = 5, 6
MAX_WORKSPACE = 1
WORKSPACE_BYTES = 64 << 20
ALGORITHMS = 8

# The suite's steps that one cuBLASLt call can do; its GELU is the tanh form, cheaper than the one that is asked for.
EPILOGUES = {(): 1, ("residual",): 1, ("bias",): 4, ("bias", "relu"): 6, ("bias", "gelu"): 36,
             ("bias", "save", "gelu"): 164, ("gelu_bwd", "column_sum"): 208}


class Heuristic(ctypes.Structure):
    _fields_ = [("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
                ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


def library():
    """The one that is mapped into this process."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libcublasLt.so" in line}
    if not paths:
        raise RuntimeError("libcublasLt is not loaded")
    return ctypes.CDLL(paths.pop())


def expect(status, what):
    if status != 0:
        raise RuntimeError(f"{what}: cuBLAS status {status}")


def supports(row):
    return (row["op"] == "matmul" and row["type"] in TYPES and not row.get("prologue")
            and tuple(row.get("epilogue", [])) in EPILOGUES)


class Matmul:
    """One row as one call. cuBLASLt counts columns first, so it computes the transposed product of swapped operands."""

    def __init__(self, torch, row, random):
        self.lt, self.torch = library(), torch
        (m, n, k), batch = row["mnk"], row.get("batch", 1)
        steps = row.get("epilogue", [])
        type, result = TYPES[row["type"]], TYPES[row.get("result", row["type"])]
        self.handle = self.create("cublasLtCreate")
        compute = COMPUTE_TF32 if row.get("tf32") else COMPUTE_FP32
        self.call = self.create("cublasLtMatmulDescCreate", ctypes.c_int(compute), ctypes.c_int(FP32))
        self.a, self.b = random(batch, m, k), random(batch, n * k)
        self.d = torch.empty(batch * m * n, dtype=getattr(torch, {FP32: "float32", FP16: "float16"}.get(result, "bfloat16")),
                             device="cuda")
        self.c = self.like(self.d) if "residual" in steps else self.d
        self.beta = ctypes.c_float(1.0 if "residual" in steps else 0.0)
        self.alpha = ctypes.c_float(1.0)
        transposed = row.get("b") == "nk"
        if transposed:
            self.set_call(TRANSPOSE_A, ctypes.c_int32(1))
        self.set_call(EPILOGUE, ctypes.c_uint32(EPILOGUES[tuple(steps)]))
        if "bias" in steps or "column_sum" in steps:
            self.vector = self.like(self.d[:n])
            self.set_call(BIAS_POINTER, ctypes.c_void_p(self.vector.data_ptr()))
        if "save" in steps or "gelu_bwd" in steps:
            self.aux = self.like(self.d)
            self.set_call(AUX_POINTER, ctypes.c_void_p(self.aux.data_ptr()))
            self.set_call(AUX_LEADING, ctypes.c_int64(n))
        self.layout_b = self.layout(type, k, n, batch) if transposed else self.layout(type, n, k, batch)
        self.layout_a = self.layout(type, k, m, batch)
        self.layout_d = self.layout(result, n, m, batch)
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
        self.found = self.heuristics()
        self.best = self.found[0]

    def create(self, function, *arguments):
        made = ctypes.c_void_p()
        expect(getattr(self.lt, function)(ctypes.byref(made), *arguments), function)
        return made

    def like(self, tensor):
        return self.torch.empty(tensor.shape, device="cuda").uniform_(-1, 1).to(tensor.dtype)

    def set_call(self, attribute, value):
        expect(self.lt.cublasLtMatmulDescSetAttribute(self.call, ctypes.c_int(attribute), ctypes.byref(value),
                                                      ctypes.c_size_t(ctypes.sizeof(value))), "attribute of a matmul")

    def layout(self, type, rows, columns, batch):
        made = self.create("cublasLtMatrixLayoutCreate", ctypes.c_int(type), ctypes.c_uint64(rows), ctypes.c_uint64(columns),
                           ctypes.c_int64(rows))
        if batch > 1:
            for attribute, value in ((BATCH_COUNT, ctypes.c_int32(batch)), (BATCH_STRIDE, ctypes.c_int64(rows * columns))):
                expect(self.lt.cublasLtMatrixLayoutSetAttribute(made, ctypes.c_int(attribute), ctypes.byref(value),
                                                                ctypes.c_size_t(ctypes.sizeof(value))), "batch of a matrix")
        return made

    def heuristics(self):
        preference = self.create("cublasLtMatmulPreferenceCreate")
        limit = ctypes.c_uint64(WORKSPACE_BYTES)
        expect(self.lt.cublasLtMatmulPreferenceSetAttribute(preference, ctypes.c_int(MAX_WORKSPACE), ctypes.byref(limit),
                                                            ctypes.c_size_t(8)), "workspace limit")
        found, count = (Heuristic * ALGORITHMS)(), ctypes.c_int()
        expect(self.lt.cublasLtMatmulAlgoGetHeuristic(self.handle, self.call, self.layout_b, self.layout_a, self.layout_d,
                                                      self.layout_d, preference, ctypes.c_int(ALGORITHMS), found,
                                                      ctypes.byref(count)), "heuristics")
        usable = [each for each in found[:count.value] if each.state == 0]
        if not usable:
            raise RuntimeError("cuBLASLt knows no algorithm for this")
        return usable

    def run(self):
        pointer = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
        expect(self.lt.cublasLtMatmul(self.handle, self.call, ctypes.byref(self.alpha), pointer(self.b), self.layout_b,
                                      pointer(self.a), self.layout_a, ctypes.byref(self.beta), pointer(self.c), self.layout_d,
                                      pointer(self.d), self.layout_d, ctypes.byref(self.best.algorithm),
                                      pointer(self.workspace), ctypes.c_size_t(WORKSPACE_BYTES),
                                      ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)), "matmul")

    def choose(self, time):
        """Keeps the algorithm that `time` of a run finds fastest; one that cannot run is passed over."""
        times = {}
        for number, self.best in enumerate(self.found):
            try:
                times[number] = time(self.run)
            except RuntimeError:
                continue
        if not times:
            raise RuntimeError("no algorithm of cuBLASLt's list runs")
        self.best = self.found[min(times, key=times.get)]

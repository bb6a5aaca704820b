"""Owns the convenient call of an executable: outputs are made here, and host arrays travel to a GPU and back."""

import sys
from collections import namedtuple

from ._fusor import DataType, DeviceMemory, Error, Memory, synchronize

_NUMPY_NAMES = {
    DataType.f64: "float64", DataType.f32: "float32", DataType.f16: "float16", DataType.i64: "int64",
    DataType.i32: "int32", DataType.i8: "int8", DataType.u8: "uint8", DataType.b8: "bool",
}  # fmt: skip
_FOREIGN_NAMES = {
    DataType.bf16: "bfloat16", DataType.f8_e4m3: "float8_e4m3fn", DataType.f8_e5m2: "float8_e5m2",
    DataType.f8_e8m0: "float8_e8m0fnu",
}  # fmt: skip


# Several elements share a byte: arrays of these are the tensor's bytes, of one dim.
_PACKED = (DataType.f4_e2m1, DataType.i4, DataType.b1)


def numpy_dtype(type):
    """NumPy's dtype of an element type. bf16 and fp8 are those of ml_dtypes, or where that is missing unsigned
    integers of as many bits; of types whose elements share bytes it is that of a byte."""
    import numpy

    if type in _PACKED:
        return numpy.dtype("uint8")

    if type in _NUMPY_NAMES:
        return numpy.dtype(_NUMPY_NAMES[type])
    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, _FOREIGN_NAMES[type]))
    except ImportError:
        return numpy.dtype("uint16" if type == DataType.bf16 else "uint8")


def _span(tensor):
    return 1 + sum((d - 1) * s for d, s in zip(tensor.dims, tensor.strides))


def empty(tensor):
    """A NumPy array with the tensor's type, dims and strides, or with its bytes where elements share them."""
    import numpy

    if tensor.type in _PACKED:
        return numpy.zeros(tensor.bytes, "uint8")

    dtype = numpy_dtype(tensor.type)
    flat = numpy.empty(_span(tensor), dtype)
    strides = [s * dtype.itemsize for s in tensor.strides]
    return numpy.lib.stride_tricks.as_strided(flat, tensor.dims, strides)


def _like_torch(tensor, device):
    torch = sys.modules["torch"]
    if tensor.type in _PACKED:
        return torch.zeros(tensor.bytes, dtype=torch.uint8, device=device)
    name = {**_NUMPY_NAMES, **_FOREIGN_NAMES}[tensor.type]
    return torch.empty_strided(tensor.dims, tensor.strides, dtype=getattr(torch, name), device=device)


def _like_cupy(tensor):
    cupy = sys.modules["cupy"]
    if tensor.type in _PACKED:
        return cupy.zeros(tensor.bytes, "uint8")
    dtype = numpy_dtype(tensor.type)
    flat = cupy.empty(_span(tensor), dtype)
    strides = [s * dtype.itemsize for s in tensor.strides]
    return cupy.ndarray(tensor.dims, dtype, flat.data, strides)


def _library(arrays):
    for array in arrays:
        library = type(array).__module__.partition(".")[0]
        if library in ("torch", "cupy"):
            return library, array
    return "numpy", None


def _sides(self):
    """The executable's inputs and outputs, in the order of `slots`; kept with it."""
    try:
        return self._inputs_and_outputs
    except AttributeError:
        written = {tensor.name for tensor in self.plan.graph.outputs}
        inputs = [tensor for tensor in self.slots if tensor.name not in written]
        outputs = [tensor for tensor in self.slots if tensor.name in written]
        self._inputs_and_outputs = inputs, outputs
        return inputs, outputs


def _results(self, outputs, arrays):
    """One array, or a tuple of several whose fields are the outputs' names."""
    if len(outputs) == 1:
        return arrays[outputs[0].name]
    try:
        kind = self._results_kind
    except AttributeError:
        kind = self._results_kind = namedtuple("Outputs", [tensor.name for tensor in outputs], rename=True)
    return kind(*(arrays[tensor.name] for tensor in outputs))


def _named(self, args, named):
    """Inputs by name, from positions (the order of `slots` without outputs), one dict, or names."""
    inputs, outputs = _sides(self)
    if len(args) == 1 and isinstance(args[0], dict):
        found = {getattr(key, "name", key): array for key, array in args[0].items()}
    else:
        if len(args) > len(inputs):
            known = ", ".join(tensor.name for tensor in inputs)
            raise Error(f"run: got {len(args)} inputs, the plan of '{self.plan.graph.name}' has {len(inputs)}: {known}")
        found = {tensor.name: array for tensor, array in zip(inputs, args)}
    for name, array in named.items():
        if name in found:
            raise Error(f"run: tensor '{name}' is given twice")
        found[name] = array
    return found, outputs


def call(self, *args, stream=None, workspace=None, **named):
    """Runs and returns the outputs, which are made here: one array, or a named tuple in the order of `slots`, which is
    that of the ops, not that of output().

    Inputs come by position (the order of `slots`), by name, or as one dict. Outputs are arrays of the inputs'
    library: PyTorch, CuPy, else NumPy; arrays given for outputs are written instead. On a GPU, NumPy arrays are
    copied there and back and the call waits: for a first try and for tests. run() never copies nor allocates."""
    arrays, outputs = _named(self, args, named)
    library, like = _library(arrays.values())
    if library == "numpy" and not self.plan.device.is_cpu:
        return _call_from_host(self, arrays, outputs, stream, workspace)
    for tensor in outputs:
        if tensor.name in arrays:
            continue
        if library == "torch":
            arrays[tensor.name] = _like_torch(tensor, like.device)
        else:
            arrays[tensor.name] = _like_cupy(tensor) if library == "cupy" else empty(tensor)
    self.run(arrays, stream=stream, workspace=workspace)
    return _results(self, outputs, arrays)


def _placed(tensor, array):
    """The array as the tensor lies in memory: its bytes, one behind the other."""
    import numpy

    host = numpy.asarray(array)
    place = empty(tensor)
    dims = place.shape if tensor.type in _PACKED else tuple(tensor.dims)
    if host.shape != dims or host.dtype.itemsize != place.dtype.itemsize:
        raise Error(f"run: tensor '{tensor.name}' is {_words(tensor)}; got {host.dtype} {list(host.shape)}")
    place[...] = host.view(place.dtype)
    return _flat(tensor, place)


def _flat(tensor, place):
    import numpy

    if tensor.type in _PACKED:
        return place
    return numpy.lib.stride_tricks.as_strided(place, (_span(tensor),), (place.dtype.itemsize,))


def _words(tensor):
    return f"{tensor.type.name} {list(tensor.dims)}"


def _call_from_host(self, arrays, outputs, stream, workspace):
    device = self.plan.device
    made = {tensor.name for tensor in outputs}
    known = {tensor.name for tensor in self.slots}
    for name in arrays:
        if name not in known:
            raise Error(f"run: the plan of '{self.plan.graph.name}' binds no tensor '{name}'")
    mirrors = {}
    for tensor in self.slots:
        if tensor.name not in made and tensor.name not in arrays:
            raise Error(f"run: tensor '{tensor.name}' has no array")
        if tensor.memory == Memory.host:
            mirrors[tensor.name] = arrays[tensor.name]
            continue
        mirrors[tensor.name] = memory = DeviceMemory(device, tensor.bytes)
        if tensor.name not in made:
            memory.copy_from(_placed(tensor, arrays[tensor.name]))
    pointers = {name: getattr(mirror, "pointer", mirror) for name, mirror in mirrors.items()}
    self.run(pointers, stream=stream, workspace=workspace)
    synchronize(device, stream)
    places = {}
    for tensor in outputs:
        place = arrays.get(tensor.name)
        places[tensor.name] = empty(tensor) if place is None else place
        mirrors[tensor.name].copy_to(_flat(tensor, places[tensor.name]))
    return _results(self, outputs, places)

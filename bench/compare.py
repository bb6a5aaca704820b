#!/usr/bin/env python3
# Owns the comparison with the peers: fusor and PyTorch's libraries on the same cases, in one job, taking turns.
"""
usage: bench/compare.py [CASES...] [--fusor build/fusor] [--rounds 5] [--runs 20] [--compile] [--output compare]
       bench/compare.py --table compare.json

CASES are ids, what ids begin with, groups, files of cases, or names of such in bench/cases (networks, networks_unseen,
networks_fresh, networks_other, networks_timm, networks_seed_941, sweeps, attention); where none is named, the suite: all of
bench/cases but those eight. Writes OUTPUT.json (every block of every round) after each case, and OUTPUT.md (the table) at the end. --table
makes the table of such a file again, and needs neither a GPU nor PyTorch.

fusor runs in a process of its own (`fusor bench --serve`), PyTorch in this one; only one of them is ever busy. A round is one
block of RUNS runs of fusor, then one of each peer. Both sides read --flush MiB before each run, so that no cache helps and no
dirty line hinders, and time with two events around the run; a run's launches hide behind the reading. A side's time is the
median over the rounds of its blocks' medians. All inputs are uniform in [-1, 1].
"""
import argparse
import glob
import json
import math
import os
import statistics
import subprocess
import sys

import cublaslt
from attention_peers import AttentionPeers, first_line

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Per group of cases: the geometric mean of fusor's speed to the best peer's that is wanted, and the least of any case.
BARS = {
    "plain-matmul": (1.00, 0.96),
    "fused-matmul": (1.10, 1.00),
    "decode": (1.10, 1.00),
    "attention-forward": (1.05, 0.95),
    "attention-scores": (1.30, 1.00),
    "attention-fp8": (1.00, 0.90),
    "attention-backward": (0.95, 0.85),
    "attention-decode": (1.10, 1.00),
    "conv-fprop": (1.05, 0.92),
    "conv-dgrad-wgrad": (1.00, 0.85),
    "hard-conv": (2.0, 1.2),
    "sweep-matmul": (1.00, 0.85),
    "sweep-1x1": (1.00, 0.85),
    "sweep-3x3": (1.00, 0.85),
    "sweep-batch": (1.00, 0.85),
    "exact-fp32": (0.95, 0.90),
    "networks: fitted half": (1.30, 0.80),
    "networks: judged half": (1.25, 0.80),
    **{"net-" + kind: (1.05, 0.80) for kind in ("1x1", "1x1-bwd", "window", "window-bwd", "grouped", "grouped-bwd", "depthwise",
                                                "depthwise-bwd", "linear")},
}


# ---- cases ----

# Files that are read where they are named only: hundreds of layers that the suite does not name.
BY_NAME = ("networks", "networks_unseen", "networks_fresh", "networks_other", "networks_timm", "networks_seed_941", "sweeps",
           "attention", "quantised")


def file_of(word):
    """The file that a word names, or None."""
    if word.endswith(".json"):
        return word
    named = os.path.join(ROOT, "bench", "cases", word + ".json")
    return named if os.path.exists(named) else None


def suite():
    stem = lambda file: os.path.splitext(os.path.basename(file))[0]
    return [file for file in sorted(glob.glob(os.path.join(ROOT, "bench", "cases", "*.json"))) if stem(file) not in BY_NAME]


def read_cases(words):
    files = [file for file in map(file_of, words) if file]
    words = [word for word in words if not file_of(word)]
    files = files or suite()
    rows = []
    for file in files:
        with open(file) as stream:
            rows += json.load(stream)["cases"]
    meant = lambda row, word: word in (row["id"], row["group"]) or row["id"].startswith(word + "-")
    for word in words:
        if not any(meant(row, word) for row in rows):
            sys.exit(f"compare: there is no case or group '{word}' in {', '.join(map(os.path.basename, files))}; "
                     f"{', '.join(BY_NAME)} are read where they are named")
    return files, [row for row in rows if not words or any(meant(row, word) for word in words)]


# ---- fusor's side ----

class Fusor:
    """`fusor bench --serve`: one line in, one line out."""

    def __init__(self, command, files, flush, verify):
        line = [command, "bench", "--serve", "--flush", str(flush), *files]
        self.process = subprocess.Popen(line + ([] if verify else ["--no-verify"]), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)

    def block(self, case, runs):
        self.process.stdin.write(f"{case} {runs}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"compare: fusor ended at case {case} with exit code {self.process.wait()}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---- the peers' side ----

class Peers:
    """The same case by PyTorch: its libraries' fused calls where there are any, op by op, and compiled."""

    TYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64",
             "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}

    def __init__(self, flush, compiles):
        import torch
        self.torch = torch
        self.functional = torch.nn.functional
        self.compiles = compiles
        self.buffer = torch.zeros(flush * 2**20 // 4, device="cuda")
        self.begin = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)
        torch.backends.cudnn.benchmark = True

    def describe(self):
        torch = self.torch
        return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
                "cudnn": torch.backends.cudnn.version()}

    def of(self, row, errors):
        """Name -> function that runs the case once. A library that fails is left out and told in `errors`."""
        self.torch.backends.cuda.matmul.allow_tf32 = row.get("tf32", False)
        self.torch.backends.cudnn.allow_tf32 = row.get("tf32", False)
        self.type = getattr(self.torch, self.TYPES[row["type"]])
        self.result = getattr(self.torch, self.TYPES[row.get("result", row["type"])])
        if row["op"] in self.ROWS:
            return self.rows(row)
        if row["op"].startswith("attention"):
            return AttentionPeers(self.torch, self.random, self.type, self.compiles).of(row, errors)
        peers = self.matmuls(row) if "matmul" in row["op"] else self.convolutions(row)
        if cublaslt.supports(row):
            try:
                matmul = cublaslt.Matmul(self.torch, row, self.random)
                matmul.choose(lambda run: self.block(run, 5))
                peers["cublasLt best"] = matmul.run
            except (RuntimeError, OSError) as error:
                errors["cublasLt best"] = str(error)
        return peers

    def block(self, run, runs):
        """The median seconds of `runs` runs."""
        for _ in range(3):
            run()
        times = []
        for _ in range(runs):
            self.buffer.sum()
            self.begin.record()
            run()
            self.end.record()
            self.end.synchronize()
            times.append(self.begin.elapsed_time(self.end) * 1e-3)
        return statistics.median(times)

    def random(self, *dims, type=None):
        torch = self.torch
        type = type or self.type
        if type == torch.int8:
            return torch.randint(-4, 5, dims, dtype=type, device="cuda")
        return torch.empty(dims, device="cuda").uniform_(-1, 1).to(type)

    # Steps after the contraction, as the suite names them. `channel` is the axis of bias and scale.
    def steps(self, row, dims, channel, layout):
        torch, functional = self.torch, self.functional
        along = [1] * len(dims)
        along[channel] = dims[channel]
        others = [axis for axis in range(len(dims)) if axis != channel % len(dims)]
        vectors = {step: self.random(*along) for step in ("bias", "scale") if step in row.get("epilogue", [])}
        like = {step: layout(self.random(*dims, type=self.result)) for step in ("residual", "gelu_bwd")
                if step in row.get("epilogue", [])}
        alpha = 0.5

        def apply(y):
            extra = []
            for step in row.get("epilogue", []):
                if step == "bias":
                    y = y + vectors[step]
                elif step == "scale":
                    y = y * vectors[step]
                elif step == "alpha":
                    y = y * alpha
                elif step == "residual":
                    y = y + like[step]
                elif step == "gelu_bwd":
                    y = torch.ops.aten.gelu_backward(y, like[step])
                elif step == "save":
                    extra.append(y)
                elif step == "column_sum":
                    extra.append(y.sum(others, dtype=torch.float32))
                elif step == "amax":
                    extra.append(y.abs().amax())
                else:
                    y = {"relu": torch.relu, "gelu": functional.gelu, "swish": functional.silu}[step](y)
            return y, *extra
        return apply, vectors

    def finished(self, eager, row, library=None):
        """What every case has: op by op, and compiled where that is asked for and there is something to fuse."""
        peers = dict(library or {})
        peers["eager"] = eager
        fused = row.get("epilogue") or row.get("prologue") or row["op"] == "gated_matmul"
        if self.compiles and fused:
            self.torch._dynamo.reset()
            peers["compile"] = self.torch.compile(eager, mode=self.compiles, dynamic=False)
        return peers

    def matmuls(self, row):
        torch, functional = self.torch, self.functional
        (m, n, k), batch = row["mnk"], row.get("batch", 1)
        lead = (batch,) if batch > 1 else ()
        dequantize = "dequantize" in row.get("prologue", [])

        def weights():
            type = torch.int8 if dequantize else None
            if row.get("b") == "nk":
                return self.random(*lead, n, k, type=type).mT
            return self.random(*lead, k, n, type=type)

        a, b = self.random(*lead, m, k), weights()
        apply, vectors = self.steps(row, [*lead, m, n], -1, lambda tensor: tensor)
        if row["op"] == "gated_matmul":
            up = weights()
            return self.finished(lambda: functional.silu(a @ b) * (a @ up), row)
        if dequantize:
            scale = self.random(1, n)
            return self.finished(lambda: apply(a @ (b.to(self.type) * scale)), row)
        if row["type"].startswith("fp8"):
            one = torch.ones((), device="cuda")
            return self.finished(
                lambda: apply(torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=self.result)), row)
        epilogue = row.get("epilogue", [])
        if not epilogue:
            out = torch.empty(*lead, m, n, dtype=self.result, device="cuda")
            return {"cublas": lambda: torch.matmul(a, b, out=out)}
        library = {}
        if epilogue == ["bias"]:
            library["cublasLt"] = lambda: torch.addmm(vectors["bias"].view(-1), a, b)
        if epilogue in (["bias", "relu"], ["bias", "gelu"]):  # its GELU is the tanh form: cheaper than what is asked
            library["cublasLt"] = lambda: torch._addmm_activation(vectors["bias"].view(-1), a, b,
                                                                  use_gelu="gelu" in epilogue)
        if epilogue == ["residual"]:
            residual = self.random(m, n)
            library["cublasLt"] = lambda: torch.addmm(residual, a, b)
        return self.finished(lambda: apply(a @ b), row, library)

    # The same formulas as tools/bench/rows_cases.cpp, in fp32 between the tensors.
    ROWS = ("softmax", "softmax_bwd", "layer_norm", "layer_norm_bwd", "rms_norm", "rms_norm_bwd", "residual_norm_quantize",
            "cross_entropy", "group_norm", "batch_norm", "batch_norm_bwd", "max_pool", "max_pool_bwd")

    def rows(self, row):
        torch, functional, type = self.torch, self.functional, self.type
        dims, axes, op = row["x"], row.get("axes", [len(row["x"]) - 1]), row["op"]
        others = [axis for axis in range(len(dims)) if axis not in axes]
        last = axes == [len(dims) - 1]
        columns = [dims[axis] if axis in axes else 1 for axis in range(len(dims))]
        per_row = [1 if axis in axes else dims[axis] for axis in range(len(dims))]
        x = self.random(*dims)
        library = {}
        if op == "softmax":
            eager = lambda: torch.softmax(x, axes[0])
        elif op == "softmax_bwd":
            y, dy = torch.softmax(x, axes[0]), self.random(*dims)
            eager = lambda: torch.ops.aten._softmax_backward_data(dy, y, axes[0], type)
        elif op == "group_norm":
            if row.get("layout") == "nhwc":
                x = x.to(memory_format=torch.channels_last)
            gamma, beta = self.random(dims[1]), self.random(dims[1])
            eager = lambda: functional.silu(functional.group_norm(x, row["groups"], gamma, beta, 1e-5))
        elif op in ("batch_norm", "batch_norm_bwd"):
            dy = self.random(*dims)
            if row.get("layout") == "nhwc":
                x, dy = (tensor.to(memory_format=torch.channels_last) for tensor in (x, dy))
            gamma, beta, mean, variance = (torch.rand(dims[1], device="cuda") + 0.5 for _ in range(4))
            eager = lambda: torch.ops.aten.native_batch_norm(x, gamma, beta, mean, variance, True, 0.1, 1e-5)
            y, own_mean, scale = eager()
            passed = torch.relu(y)
            if op == "batch_norm_bwd":
                through = lambda: torch.ops.aten.threshold_backward(dy, passed, 0)
                eager = lambda: torch.ops.aten.native_batch_norm_backward(
                    through(), x, gamma, mean, variance, own_mean, scale, True, 1e-5, [True, True, True])
            try:  # cuDNN's takes scale and bias of x's type only, unless that is fp16
                weights = gamma.to(type), beta.to(type), mean.to(type), variance.to(type)
                cudnn = lambda: torch.ops.aten.cudnn_batch_norm(x, *weights, True, 0.1, 1e-5)
                _, cudnn_mean, cudnn_scale, reserve = cudnn()
                library["cudnn"] = cudnn if op == "batch_norm" else lambda: torch.ops.aten.cudnn_batch_norm_backward(
                    x, through(), weights[0], weights[2], weights[3], cudnn_mean, cudnn_scale, 1e-5, reserve)
                library["cudnn"]()
            except RuntimeError:
                library.pop("cudnn", None)
        elif op in ("max_pool", "max_pool_bwd"):
            if row.get("layout", "nhwc") == "nhwc":
                x = x.to(memory_format=torch.channels_last)
            eager = self.pool(row, x)
        elif op == "layer_norm" and last:
            gamma, beta = self.random(dims[-1]), self.random(dims[-1])
            eager = lambda: torch.ops.aten.native_layer_norm(x, dims[-1:], gamma, beta, 1e-5)
        elif op == "layer_norm":
            gamma, beta = self.random(*columns), self.random(*columns)

            def eager():
                wide = x.float()
                variance, mean = torch.var_mean(wide, axes, correction=0, keepdim=True)
                scale = torch.rsqrt(variance + 1e-5)
                return ((wide - mean) * scale * gamma + beta).to(type), mean, scale
        elif op == "layer_norm_bwd":
            gamma, beta, dy = self.random(dims[-1]), self.random(dims[-1]), self.random(*dims)
            _, mean, scale = torch.ops.aten.native_layer_norm(x, dims[-1:], gamma, beta, 1e-5)
            eager = lambda: torch.ops.aten.native_layer_norm_backward(dy, x, dims[-1:], mean, scale, gamma, beta,
                                                                      [True, True, True])
        elif op == "rms_norm":
            gamma = self.random(dims[-1])
            eager = lambda: functional.rms_norm(x, dims[-1:], gamma, 1e-5)
        elif op == "rms_norm_bwd":
            gamma, dy, scale = self.random(*columns), self.random(*dims), torch.rand(per_row, device="cuda") + 0.5

            def eager():
                normal, wide = x.float() * scale, dy.float() * gamma
                along = (wide * normal).mean(axes, keepdim=True)
                return ((wide - normal * along) * scale).to(type), (dy.float() * normal).sum(others)
            fused = getattr(torch.ops.aten, "_fused_rms_norm_backward", None)
            if fused:
                weight = gamma.view(-1)
                library["fused"] = lambda: fused(dy, x, dims[-1:], scale, weight, [True, True])
        elif op == "cross_entropy":
            label = torch.randint(0, dims[1], (dims[0],), device="cuda")
            eager = lambda: functional.cross_entropy(x, label, reduction="none")
        else:
            gamma, residual = self.random(*columns), self.random(*dims)

            def eager():
                h = x.float() + residual.float()
                y = h * torch.rsqrt(h.square().mean(axes, keepdim=True) + 1e-5) * gamma
                step = y.abs().amax(axes, keepdim=True) / 448
                return h.to(type), (y / step).to(torch.float8_e4m3fn), step
        peers = {**library, "eager": eager}
        if self.compiles:
            torch._dynamo.reset()
            peers["compile"] = torch.compile(eager, mode=self.compiles, dynamic=False)
        return peers

    def pool(self, row, x):
        """PyTorch's own kernel: no library that it calls has one."""
        torch, functional = self.torch, self.functional
        window = (row["window"], row["stride"], row["padding"])
        if row["op"] == "max_pool":
            return lambda: functional.max_pool2d(x, *window, return_indices=row.get("index", False))
        y, index = functional.max_pool2d(x, *window, return_indices=True)
        dy, back = torch.randn_like(y), torch.ops.aten.max_pool2d_with_indices_backward
        return lambda: back(dy, x, *window, [1, 1], False, index)

    def convolutions(self, row):
        torch, functional = self.torch, self.functional
        spatial = len(row["x"]) - 2
        ones = [1] * spatial
        stride, dilation = row.get("stride", ones), row.get("dilation", ones)
        pre = row.get("pre_padding", row.get("padding", [0] * spatial))
        post = row.get("post_padding", row.get("padding", [0] * spatial))
        groups = row["x"][1] // row["w"][1]
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        last = row.get("layout", "nhwc") == "nhwc" and len(row["x"]) in formats

        def layout(tensor):
            return tensor.to(memory_format=formats[tensor.dim()]) if last else tensor

        x, w = layout(self.random(*row["x"])), layout(self.random(*row["w"]))
        conv = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[spatial]

        def fprop(bias=None):
            if pre == post:
                return conv(x, w, bias, stride, pre, dilation, groups)
            sides = [side for pair in zip(reversed(pre), reversed(post)) for side in pair]
            return conv(functional.pad(x, sides), w, bias, stride, 0, dilation, groups)

        y_dims = list(fprop().shape)
        if row["op"] != "conv_fprop":
            dy = layout(self.random(*y_dims))
            mask = [row["op"] == "conv_dgrad", row["op"] == "conv_wgrad", False]
            backward = torch.ops.aten.convolution_backward
            return {"cudnn": lambda: backward(dy, x, w, None, stride, pre, dilation, False, [0] * spatial, groups, mask)}
        if not row.get("epilogue"):
            return {"cudnn": fprop}
        apply, vectors = self.steps(row, y_dims, 1, layout)
        library = {}
        if row["epilogue"][-2:] == ["bias", "relu"] and len(vectors) + 1 == len(row["epilogue"]) and pre == post:
            # A scale is folded into the filters beforehand, as one does for inference.
            filters = w * vectors["scale"].view(-1, *[1] * (spatial + 1)) if "scale" in vectors else w
            bias = vectors["bias"].view(-1)
            library["cudnn fused"] = lambda: torch.cudnn_convolution_relu(x, filters, bias, stride, pre, dilation, groups)
        if row["epilogue"][0] == "bias":
            others, _ = self.steps({**row, "epilogue": row["epilogue"][1:]}, y_dims, 1, layout)
            library["cudnn + bias"] = lambda: others(fprop(vectors["bias"].view(-1)))
        return self.finished(lambda: apply(fprop()), row, library)


# ---- the comparison ----

def compare_case(row, fusor, peers, options):
    """Blocks in turn. What fails on one side is told, and the other side is measured still."""
    result = {"id": row["id"], "group": row["group"], "about": row.get("about", ""), "fusor": [], "peers": {}, "errors": {}}
    try:
        functions = peers.of(row, result["errors"])
    except Exception as error:  # whatever PyTorch says of a case that it cannot do
        functions, result["errors"]["peers"] = {}, first_line(error)
    first = fusor.block(row["id"], 5)  # loads, compiles and checks; not counted
    result["first"] = first
    for _ in range(options.rounds):
        if "error" not in first:
            result["fusor"].append(fusor.block(row["id"], options.runs).get("seconds", math.nan))
        for name, run in list(functions.items()):
            try:
                result["peers"].setdefault(name, []).append(peers.block(run, options.runs))
            except Exception as error:  # a compiler may raise anything
                del functions[name]
                result["peers"].pop(name, None)
                result["errors"][name] = first_line(error)
    if "error" in first:
        result["errors"]["fusor"] = first["error"]
    result["gpu"] = clocks()
    return result


def clocks():
    query = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader", "-i", "0"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


# ---- the table ----

def best_peer(result):
    medians = {name: statistics.median(times) for name, times in result["peers"].items() if times}
    name = min(medians, key=medians.get, default=None)
    return name, medians


def ratio_of(result):
    """fusor's speed to the best peer's, or None where one of them is missing or fusor's result is wrong."""
    name, medians = best_peer(result)
    if name is None or not result["fusor"] or not result["first"].get("passed", True):
        return None
    return medians[name] / statistics.median(result["fusor"])


def case_line(result):
    name, medians = best_peer(result)
    first = result.get("first", {})
    ratio = ratio_of(result)
    micro = lambda seconds: f"{seconds * 1e6:.2f}"
    cells = [result["id"]]
    if result["fusor"]:
        ours = statistics.median(result["fusor"])
        scale = first["seconds"] / ours
        cells += [micro(ours), f"{first['tflops'] * scale:.1f}", f"{first['tb_per_s'] * scale:.2f}",
                  f"{first['floor_seconds'] / ours:.2f}"]
    else:
        cells += [result["errors"].get("fusor", "not measured"), "", "", ""]
    cells += [name or result["errors"].get("peers", "none"), micro(medians[name]) if name else ""]
    cells += [f"{ratio:.3f}" if ratio else ""]
    cells += [", ".join(f"{peer} {micro(seconds)}" for peer, seconds in medians.items() if peer != name)]
    cells += ["" if first.get("passed", True) else "WRONG"]
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def group_line(group, results):
    ratios = {result["id"]: ratio_of(result) for result in results}
    measured = {case: ratio for case, ratio in ratios.items() if ratio}
    bar = BARS.get(group)
    wanted = f"{bar[0]:.2f} / {bar[1]:.2f}" if bar else ""
    if not measured:
        return f"| {group} | 0 of {len(ratios)} | | | | {wanted} | |"
    mean = math.exp(statistics.fmean(map(math.log, measured.values())))
    worst = min(measured, key=measured.get)
    verdict = ""
    if bar:
        verdict = "met" if mean >= bar[0] and measured[worst] >= bar[1] and len(measured) == len(ratios) else "missed"
    return (f"| {group} | {len(measured)} of {len(ratios)} | {mean:.3f} | {measured[worst]:.3f} | {worst} | {wanted} | "
            f"{verdict} |")


def halves(cases):
    """Cases of networks by the half to which their network belongs."""
    found = {}
    for result in cases:
        network, _, half = result["about"].partition(", ")
        if half.endswith(" half"):
            found.setdefault("networks: " + half, []).append(result)
    return dict(sorted(found.items()))


def table(document):
    about = document["about"]
    lines = ["# fusor and its peers", "",
             ", ".join(f"{key} {value}" for key, value in about.items()) + ".",
             "Ratios are of speed, fusor to the best peer: above 1 fusor is faster.", "",
             "| group | cases | geometric mean | least | of | bars | |", "|---|---|---|---|---|---|---|"]
    groups = {}
    for result in document["cases"]:
        groups.setdefault(result["group"], []).append(result)
    lines += [group_line(group, results) for group, results in groups.items()]
    lines += [group_line(half, results) for half, results in halves(document["cases"]).items()]
    for group, results in groups.items():
        lines += ["", f"## {group}", "",
                  "| case | fusor us | TFLOP/s | TB/s | of floor | best peer | us | ratio | others, us | |",
                  "|---|---|---|---|---|---|---|---|---|---|"]
        lines += [case_line(result) for result in results]
    return "\n".join(lines) + "\n"


def write(path, text):
    with open(path + ".part", "w") as stream:
        stream.write(text)
    os.replace(path + ".part", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASES")
    parser.add_argument("--fusor", default=os.path.join(ROOT, "build", "fusor"), metavar="COMMAND")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=20, help="of each block")
    parser.add_argument("--flush", type=int, default=512, metavar="MIB")
    parser.add_argument("--compile", nargs="?", const="max-autotune-no-cudagraphs", metavar="MODE",
                        help="torch.compile too, for cases with something to fuse (minutes)")
    parser.add_argument("--no-verify", action="store_true", help="do not check fusor's results")
    parser.add_argument("--output", default="compare", metavar="PATH", help="without extension")
    parser.add_argument("--table", metavar="FILE", help="only make the table of this JSON file")
    options = parser.parse_args()
    if options.table:
        with open(options.table) as stream:
            sys.stdout.write(table(json.load(stream)))
        return
    files, rows = read_cases(options.cases)
    peers = Peers(options.flush, options.compile)
    fusor = Fusor(options.fusor, files, options.flush, not options.no_verify)
    about = {**peers.describe(), "rounds": options.rounds, "runs": options.runs, "flush MiB": options.flush}
    document = {"about": about, "cases": []}
    for number, row in enumerate(rows):
        result = compare_case(row, fusor, peers, options)
        document["cases"].append(result)
        write(options.output + ".json", json.dumps(document, indent=1) + "\n")
        peers.torch.cuda.empty_cache()
        print(f"{number + 1}/{len(rows)} {case_line(result)}", flush=True)
    fusor.close()
    write(options.output + ".md", table(document))
    print(f"written: {options.output}.json, {options.output}.md")


if __name__ == "__main__":
    main()

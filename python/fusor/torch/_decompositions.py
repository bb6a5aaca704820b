"""Owns which ops of ATen are taken apart before graphs are made, and which stay because a graph has them as one."""

import contextlib
import functools

import torch
from torch._decomp import core_aten_decompositions
from torch._decomp.decompositions import upsample_compute_output_size
from torch._prims_common import suggest_memory_format

from ._aten import CONVERTERS, overload
from ._random import DECOMPOSITIONS as random_ops

aten = torch.ops.aten
# What is worth a converter of its own, though the table would take it apart into what also has converters.
APART = (
    "addcmul", "addcdiv", "_unsafe_view", "new_full", "split.Tensor", "unbind.int", "clamp_min.Tensor",
    "clamp_max.Tensor", "masked_fill.Scalar", "masked_fill.Tensor", "_unsafe_index.Tensor",
)  # fmt: skip
# Without a converter, but faster whole than in the pieces of the table.
WHOLE = ("_scaled_dot_product_attention_math",)


def _dropout_of_pytorch(x, p, train):
    """Dropout whose only random op reads no tensor, so that it is no cut between graphs."""
    if not train or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    mask = torch.rand(x.shape, dtype=torch.float32, device=x.device) > p
    return (mask * x) * (1.0 / (1.0 - p)), mask


@functools.cache
def table(draws_seeds=True):
    """The decompositions: PyTorch's core ones without those that a converter is for. Random ops are made of the
    numbers of a seed, or stay PyTorch's."""
    found = dict(core_aten_decompositions())
    for kept in CONVERTERS:
        if kept not in {overload(name) for name in APART}:
            found.pop(kept, None)
    for name in WHOLE:
        found.pop(overload(name), None)
    found[aten.native_dropout.default] = _dropout_of_pytorch
    if draws_seeds:
        found.update({overload(name): made for name, made in random_ops.items() if overload(name) is not None})
    return found


# PyTorch takes these apart before any table is asked: their gradients would be sums at indices.
_EARLY = [
    name + which
    for name in ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d")
    for which in ("", ".vec")
]


def _by_size(found):
    """Interpolation by a size or by factors as the op that takes a size: PyTorch's own function for it takes no
    symbols."""
    sized = found.overloadpacket.default

    def interpolate(x, output_size, *rest):
        *corners, factors = rest
        size = upsample_compute_output_size(x.size(), output_size, factors)
        return sized(x, size, *corners, *(factors or [None] * len(size)))

    return interpolate


def _backward_of_bilinear(dy, output_size, input_size, *rest):
    """Dims and strides of the gradient, which PyTorch's own function gives for numbers alone."""
    place = suggest_memory_format(dy)
    return torch.empty(input_size, dtype=dy.dtype, device=dy.device, memory_format=place)


def _kernels():
    """What traces see as kernels: (overload, key, kernel), the kernel None where there is to be none."""
    for name in _EARLY:
        found = overload(name)
        for key in (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd):
            if found is not None and key in found.py_kernels:
                yield found, key, _by_size(found) if found._overloadname == "vec" else None
    yield overload("upsample_bilinear2d_backward"), torch._C.DispatchKey.Meta, _backward_of_bilinear


@contextlib.contextmanager
def whole():
    """While a model is traced, interpolation stays one op."""
    kept = []
    for found, key, kernel in list(_kernels()):
        kept.append((found, key, found.py_kernels.get(key)))
        _set_kernel(found, key, kernel)
    try:
        yield
    finally:
        for each in kept:
            _set_kernel(*each)


def _set_kernel(found, key, kernel):
    found.py_kernels.pop(key, None)
    if kernel is not None:
        found.py_kernels[key] = kernel
    found._dispatch_cache.clear()

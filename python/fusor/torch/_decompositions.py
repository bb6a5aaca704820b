"""Owns which ops of ATen are taken apart before graphs are made, and which stay because a graph has them as one."""

import contextlib
import functools

import torch
from torch._decomp import core_aten_decompositions

from ._aten import CONVERTERS, overload

aten = torch.ops.aten
# What is worth a converter of its own, though the table would take it apart into what also has converters.
APART = (
    "addcmul", "addcdiv", "_unsafe_view", "new_full", "split.Tensor", "unbind.int", "clamp_min.Tensor",
    "clamp_max.Tensor", "masked_fill.Scalar", "masked_fill.Tensor", "_unsafe_index.Tensor",
)  # fmt: skip
# Without a converter, but faster whole than in the pieces of the table.
WHOLE = ("embedding_dense_backward", "_scaled_dot_product_attention_math")


def native_dropout(x, p, train):
    """Dropout whose only random op reads no tensor, so that it is no cut between graphs."""
    if not train or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    mask = torch.rand(x.shape, dtype=torch.float32, device=x.device) > p
    return (mask * x) * (1.0 / (1.0 - p)), mask




@functools.cache
def table():
    """The decompositions: PyTorch's core ones without those that a converter is for."""
    found = dict(core_aten_decompositions())
    for kept in CONVERTERS:
        if kept not in {overload(name) for name in APART}:
            found.pop(kept, None)
    for name in WHOLE:
        found.pop(overload(name), None)
    found[aten.native_dropout.default] = native_dropout
    return found


# PyTorch takes these apart before any table is asked: their gradients would be sums at indices.
_EARLY = [
    name + which
    for name in ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d")
    for which in ("", ".vec")
]


@contextlib.contextmanager
def whole():
    """While a model is traced, interpolation stays one op."""
    kept = []
    for found in filter(None, map(overload, _EARLY)):
        for key in (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd):
            if key in found.py_kernels:
                kept.append((found, key, found.py_kernels.pop(key)))
        found._dispatch_cache.clear()
    try:
        yield
    finally:
        for found, key, kernel in kept:
            found.py_kernels[key] = kernel
            found._dispatch_cache.clear()

"""Owns the conversion of what is found by its size: the place of the largest, the first few, all of them in order.

A graph sorts nothing: an element's rank is how many others come before it, which compares all with all. Many elements
are PyTorch's. NaN is larger than any number, and of equal elements the first comes first.
"""

import math

from ._table import Results, converts, refuse_if
from .pairs import apart, places, refuse_many

_REALS = ("f64", "f32", "f16", "bf16")


def _is_real(x):
    return x.type.name in _REALS


def _nan(c, x):
    return c.g.cmp_neq(x, x)


def _first(c, x, axis, mode):
    """The place of the largest or smallest element along an axis, the first of equals, where a NaN is first of all."""
    found = c.g.cmp_eq(x, c.g.reduce(x, mode, [axis]))
    if _is_real(x):
        found = c.g.logical_or(found, _nan(c, x))
    at = c.g.binary_select(places(c, len(x.dims), axis, x.dims[axis]), x.dims[axis], found)
    return c.g.reduce(at, "min", [axis], type="int32")


def _largest_place(c, x, dim, mode):
    shape = x.dims
    if dim is None:
        x, dim = c.reshaped(x, [math.prod(shape)]), 0
    at = _first(c, x, dim % len(x.dims), mode)
    return c.reshaped(c.g.identity(at, type="int64"), c.dims)


@converts("argmax")
def argmax(c, x, dim=None, keepdim=False):
    return _largest_place(c, x, dim, "max")


@converts("argmin")
def argmin(c, x, dim=None, keepdim=False):
    return _largest_place(c, x, dim, "min")


def _largest(c, x, dim, mode):
    axis = dim % len(x.dims)
    dims = c.fake[0].shape
    refuse_if(x.type.name == "b8", "the order of bool")
    return Results([
        lambda: c.reshaped(c.g.reduce(x, mode, [axis], type=c.type), dims),
        lambda: c.reshaped(c.g.identity(_first(c, x, axis, mode), type="int64"), dims),
    ])  # fmt: skip


@converts("max.dim")
def max_along(c, x, dim, keepdim=False):
    return _largest(c, x, dim, "max")


@converts("min.dim")
def min_along(c, x, dim, keepdim=False):
    return _largest(c, x, dim, "min")


def _ranks(c, x, axis, descending):
    """For each element how many come before it."""
    count = x.dims[axis]
    one, other = apart(c, x, axis + 1), apart(c, x, axis)
    at = places(c, len(x.dims) + 1, axis, count), places(c, len(x.dims) + 1, axis + 1, count)
    low, high = (one, other) if descending else (other, one)
    above, equal = c.g.cmp_gt(high, low), c.g.cmp_eq(high, low)
    if _is_real(x):
        above = c.g.logical_or(above, c.g.logical_and(_nan(c, high), c.g.logical_not(_nan(c, low))))
        equal = c.g.logical_or(equal, c.g.logical_and(_nan(c, high), _nan(c, low)))
    before = c.g.logical_or(above, c.g.logical_and(equal, c.g.cmp_lt(at[1], at[0])))
    ranks = c.g.reduce(c.g.identity(before, type="int32"), "add", [axis + 1], type="int32")
    return c.reshaped(ranks, x.dims)


def _in_order(c, x, axis, count, descending):
    """The first elements along an axis and their places."""
    refuse_if(x.type.name not in (*_REALS, "i32"), f"the order of {x.type.name}")
    extent = x.dims[axis]
    terms = math.prod(x.dims) * (extent + count)
    refuse_many(c, c.fake[0], terms, f"the order of {extent} elements in {math.prod(x.dims) // extent} rows")
    dims = [count if i == axis else n for i, n in enumerate(x.dims)]
    shapes = [fake.shape for fake in c.fake]
    rank = len(dims) + 1
    ranks = _ranks(c, x, axis, descending)
    is_here = c.g.cmp_eq(apart(c, ranks, axis), places(c, rank, axis, count))

    def found(values, type):
        zero = 0.0 if _is_real(values) else 0
        y = c.g.reduce(c.g.binary_select(values, zero, is_here), "add", [axis + 1], type=type)
        return c.reshaped(y, dims)

    def at():
        return c.g.identity(found(places(c, rank, axis + 1, extent), "int32"), type="int64")

    return Results([
        lambda: c.reshaped(found(apart(c, x, axis), c.type), shapes[0]), lambda: c.reshaped(at(), shapes[1]),
    ])  # fmt: skip


@converts("topk")
def topk(c, x, k, dim=-1, largest=True, sorted=True):
    return _in_order(c, x, dim % len(x.dims), int(k), largest)


@converts("sort")
def sort(c, x, dim=-1, descending=False):
    axis = dim % len(x.dims)
    return _in_order(c, x, axis, x.dims[axis], descending)


@converts("sort.stable")
def stable_sort(c, x, *, stable=None, dim=-1, descending=False):
    return sort(c, x, dim, descending)

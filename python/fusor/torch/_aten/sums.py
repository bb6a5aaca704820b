"""Owns the conversion of what is added at indices: gradients of embeddings and of indexing, index_add, scatter_add.

A graph has no op that adds where indices meet. Where a result has few places, each compares every index with its own,
in a fixed order: that is a reduction, or a product with a matrix of ones and zeros. Many places are PyTorch's.
"""

import contextlib
import math

from ._table import SHORT, converts, refuse_if
from .gathers import flat_index

_MOST = {"cuda": 1 << 27, "cpu": 1 << 16}  # comparisons, each of them with a term
_MOST_IN_PRODUCTS = 1 << 24  # comparisons, each of them an element of a matrix
_FEW = 1 << 25  # comparisons that take less time than the product
_planned_for = []


@contextlib.contextmanager
def planned_for(device):
    """While graphs are made for a device ("cuda", "cpu") that their tensors are not on."""
    _planned_for.append(device)
    try:
        yield
    finally:
        _planned_for.pop()


def _sums(c, source, index, axis, extent):
    """The sums [.., extent, ..] of the elements of source [.., n, ..] at the places along the axis that the index says,
    whose dims broadcast with source's."""
    refuse_if(not c.is_real, "sums of whole numbers at indices")
    device = _planned_for[-1] if _planned_for else c.fake.device.type
    pairs, terms = extent * math.prod(index.dims), extent * math.prod(source.dims)
    is_matrix = len(source.dims) == 2 and axis == 0 and index.dims[1] == 1 and c.fake.dtype in SHORT
    if device != "cpu" and is_matrix and terms > _FEW and pairs <= _MOST_IN_PRODUCTS:
        return _product(c, source, index, extent)
    count = source.dims[axis]
    refuse_if(terms > _MOST[device], f"{count} indices of {extent} places are too many to compare all with all")
    split = lambda x: c.reshaped(x, [*x.dims[:axis], 1, *x.dims[axis:]])  # noqa: E731
    source, index = split(source), split(index)
    places = c.index([extent if i == axis else 1 for i in range(len(source.dims))], axis)
    terms = c.g.binary_select(source, 0.0, c.g.cmp_eq(index, places))
    dims = [extent if i == axis else n for i, n in enumerate(source.dims) if i != axis + 1]
    return c.reshaped(c.g.reduce(terms, "add", [axis + 1], type=c.type), dims)


def _product(c, source, index, extent):
    places = c.index([extent, 1], 0)
    is_here = c.g.cmp_eq(c.reshaped(index, [1, source.dims[0]]), places)
    return c.g.matmul(c.g.identity(is_here, type=source.type), source, type=c.type)


@converts("embedding_dense_backward")
def embedding_backward(c, dy, indices, num_weights, padding_idx=-1, scale_grad_by_freq=False):
    refuse_if(scale_grad_by_freq, "gradients are divided by how often a word is there")
    count, width = math.prod(indices.dims), c.dims[1]
    indices = c.reshaped(indices, [count, 1])
    if padding_idx >= 0:  # its row is no place
        indices = c.g.binary_select(-1, indices, c.g.cmp_eq(indices, padding_idx))
    return _sums(c, c.reshaped(dy, [count, width]), indices, 0, num_weights)


@converts("index_put")
def index_put(c, x, indices, values, accumulate=False):
    refuse_if(not accumulate, "of equal indices the last one wins")
    dims, shape, axis, flat, extent = flat_index(c, x, indices)
    front, behind = dims[:axis], dims[axis + sum(each is not None for each in indices) :]
    wanted = [*front, *shape, *behind]
    if list(values.dims) != wanted:
        values = c.g.identity(values, dims=wanted, type=values.type)
    count = math.prod(shape)
    index = c.reshaped(flat, [count if i == len(front) else 1 for i in range(len(front) + 1 + len(behind))])
    sums = _sums(c, c.reshaped(values, [*front, count, *behind]), index, axis, extent)
    return c.g.add(x, c.reshaped(sums, dims), type=c.type)


@converts("index_add")
def index_add(c, x, dim, index, source, *, alpha=1):
    refuse_if(alpha != 1, "a factor")
    axis = dim % len(x.dims)
    index = c.reshaped(index, [math.prod(index.dims) if i == axis else 1 for i in range(len(x.dims))])
    return c.g.add(x, _sums(c, source, index, axis, x.dims[axis]), type=c.type)


@converts("scatter_add")
def scatter_add(c, x, dim, index, source):
    axis = dim % len(x.dims)
    sizes = [n for i, n in enumerate(x.dims) if i != axis]
    for each in (index, source):
        refuse_if([n for i, n in enumerate(each.dims) if i != axis] != sizes, "a part of the other axes")
    refuse_if(list(index.dims) != list(source.dims), "a part of the elements")
    return c.g.add(x, _sums(c, source, index, axis, x.dims[axis]), type=c.type)

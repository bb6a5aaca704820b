"""Owns the conversion of what is added or written at indices: gradients of embeddings and of indexing, index_add,
scatter_add, scatter; and of cumulative sums.

A graph has no op that adds where indices meet, nor one that adds on along an axis. Where a result has few places, each
compares every index with its own, in a fixed order: that is a reduction, or a product with a matrix of ones and zeros.
Many places are PyTorch's.
"""

import math

from ._table import SHORT, converts, refuse_if
from .gathers import flat_index
from .pairs import apart, device_of, places, refuse_many

_MOST_IN_PRODUCTS = 1 << 24  # comparisons, each of them an element of a matrix
_FEW = 1 << 25  # comparisons that take less time than the product
_BLOCK = 64  # elements of a cumulative sum that are added in one step


def _meets(c, source, index, axis, extent):
    """Whether an index of the elements of a source [.., n, ..] names a place: [.., extent, n, ..]."""
    count, rank = source.dims[axis], len(source.dims) + 1
    refuse_many(c, c.fake, extent * math.prod(source.dims), f"{count} indices of {extent} places")
    return c.g.cmp_eq(apart(c, index, axis), places(c, rank, axis, extent))


def _sums(c, source, index, axis, extent):
    """The sums [.., extent, ..] of the elements of source [.., n, ..] at the places along the axis that the index says,
    whose dims broadcast with source's."""
    refuse_if(not c.is_real, "sums of whole numbers at indices")
    pairs, terms = extent * math.prod(index.dims), extent * math.prod(source.dims)
    is_matrix = len(source.dims) == 2 and axis == 0 and index.dims[1] == 1 and c.fake.dtype in SHORT
    if device_of(c, c.fake) != "cpu" and is_matrix and terms > _FEW and pairs <= _MOST_IN_PRODUCTS:
        return _product(c, source, index, extent)
    dims = [extent if i == axis else n for i, n in enumerate(source.dims)]
    meets = _meets(c, source, index, axis, extent)
    terms = c.g.binary_select(apart(c, source, axis), 0.0, meets)
    return c.reshaped(c.g.reduce(terms, "add", [axis + 1], type=c.type), dims)


def _product(c, source, index, extent):
    is_here = c.g.cmp_eq(c.reshaped(index, [1, source.dims[0]]), places(c, 2, 0, extent))
    return c.g.matmul(c.g.identity(is_here, type=source.type), source, type=c.type)


def _written(c, x, source, index, axis):
    """x where no index names a place, else what the last one writes there: a number, or elements of index's dims."""
    extent, count = x.dims[axis], index.dims[axis]
    dims = [extent if i == axis else n for i, n in enumerate(index.dims)]
    meets = _meets(c, index, index, axis, extent)
    last = c.g.binary_select(places(c, len(dims) + 1, axis + 1, count), -1, meets)
    last = c.reshaped(c.g.reduce(last, "max", [axis + 1], type="int32"), dims)
    if not isinstance(source, (int, float)):
        source = c.g.gather(source, last, axis=axis)
    return c.g.binary_select(source, x, c.g.cmp_ge(last, 0), type=c.type)


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
    refuse_if(not c.is_real, "whole numbers at indices")
    dims, shape, axis, flat, extent = flat_index(c, x, indices)
    front, behind = dims[:axis], dims[axis + sum(each is not None for each in indices) :]
    wanted = [*front, *shape, *behind]
    if list(values.dims) != wanted:
        values = c.g.identity(values, dims=wanted, type=values.type)
    count = math.prod(shape)
    index = c.reshaped(flat, [count if i == len(front) else 1 for i in range(len(front) + 1 + len(behind))])
    values = c.reshaped(values, [*front, count, *behind])
    if accumulate:
        return c.g.add(x, c.reshaped(_sums(c, values, index, axis, extent), dims), type=c.type)
    x = c.reshaped(x, [*front, extent, *behind])
    return c.reshaped(_written(c, x, values, index, axis), dims)


@converts("index_add")
def index_add(c, x, dim, index, source, *, alpha=1):
    refuse_if(alpha != 1, "a factor")
    axis = dim % len(x.dims)
    index = c.reshaped(index, [math.prod(index.dims) if i == axis else 1 for i in range(len(x.dims))])
    return c.g.add(x, _sums(c, source, index, axis, x.dims[axis]), type=c.type)


def _check_places(x, index, axis):
    sizes = [[n for i, n in enumerate(each.dims) if i != axis] for each in (x, index)]
    refuse_if(sizes[0] != sizes[1], "a part of the other axes")


@converts("scatter_add")
def scatter_add(c, x, dim, index, source):
    axis = dim % len(x.dims)
    _check_places(x, index, axis)
    refuse_if(list(index.dims) != list(source.dims), "a part of the elements")
    return c.g.add(x, _sums(c, source, index, axis, x.dims[axis]), type=c.type)


@converts("scatter.src", "scatter.value")
def scatter(c, x, dim, index, source):
    axis = dim % len(x.dims)
    refuse_if(not c.is_real, "whole numbers at indices")
    _check_places(x, index, axis)
    if not isinstance(source, (int, float)):
        refuse_if(list(index.dims) != list(source.dims), "a part of the elements")
    return _written(c, x, source, index, axis)


@converts("cumsum")
def cumsum(c, x, dim, dtype=None):
    axis = dim % len(x.dims)
    terms = math.prod(x.dims) * (min(x.dims[axis], _BLOCK) + x.dims[axis] // _BLOCK)
    refuse_many(c, c.fake, terms, f"cumulative sums of {x.dims[axis]}")
    return c.g.identity(_cumulative(c, c.typed(x, c.fake.dtype), axis), type=c.type)


def _cumulative(c, x, axis):
    """In blocks, where there are many elements: what a block adds up, behind what those before it do."""
    count = x.dims[axis]
    if count <= _BLOCK:
        at = places(c, len(x.dims) + 1, axis, count), places(c, len(x.dims) + 1, axis + 1, count)
        return _total(c, c.g.binary_select(apart(c, x, axis), 0, c.g.cmp_le(at[1], at[0])), axis + 1)
    blocks = -(-count // _BLOCK)
    front, behind = x.dims[:axis], x.dims[axis + 1 :]
    if blocks * _BLOCK > count:
        rest = c.g.identity(c.g.constant(0, x.type), dims=[*front, blocks * _BLOCK - count, *behind], type=x.type)
        x = c.g.concatenate([x, rest], axis)
    x = c.reshaped(x, [*front, blocks, _BLOCK, *behind])
    inside = _cumulative(c, x, axis + 1)
    totals = _total(c, x, axis + 1)
    before = c.g.sub(_cumulative(c, totals, axis), totals)
    sums = c.g.add(inside, c.reshaped(before, [*front, blocks, 1, *behind]))
    sums = c.reshaped(sums, [*front, blocks * _BLOCK, *behind])
    return c.g.slice(sums, [0] * len(sums.dims), [*front, count, *behind])


def _total(c, x, axis):
    whole = {} if c.is_real else {"compute": "int64", "type": "int64"}
    y = c.g.reduce(x, "add", [axis], **whole)
    return c.reshaped(y, [n for i, n in enumerate(y.dims) if i != axis])

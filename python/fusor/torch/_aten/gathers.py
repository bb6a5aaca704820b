"""Owns the conversion of what is read at indices: embeddings, selections, indexing, rolls."""

import math

import torch

from ._table import converts, refuse_if


def _taken(c, x, index, axis):
    """Slices of x along an axis at a vector of indices."""
    shape = [1] * len(x.dims)
    shape[axis] = index.dims[0]
    return c.g.gather(x, c.reshaped(index, shape), axis=axis)


def _vector(c, index):
    return c.reshaped(index, [math.prod(index.dims)])


def _from_front(c, index, extent):
    """Indices that count from the back, from the front."""
    return c.g.binary_select(c.g.add(index, extent), index, c.g.cmp_lt(index, 0))


@converts("embedding")
def embedding(c, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return c.reshaped(_taken(c, weight, _vector(c, indices), 0), c.dims)


@converts("index_select")
def index_select(c, x, dim, index):
    return c.reshaped(_taken(c, x, _vector(c, index), dim % len(x.dims)), c.dims)


@converts("gather")
def gather(c, x, dim, index, sparse_grad=False):
    dim %= len(x.dims)
    limits = [extent if axis == dim else n for axis, (extent, n) in enumerate(zip(x.dims, index.dims))]
    if limits != list(x.dims):  # PyTorch reads the front of x along the other axes
        x = c.g.slice(x, [0] * len(limits), limits)
    return c.g.gather(x, index, axis=dim)


def flat_index(c, x, indices):
    """Indices at neighbouring axes of x, which broadcast together, as one index: x's dims, those of the indices, the
    first of the axes, the index and the extent of the axes as one."""
    at = [i for i, each in enumerate(indices) if each is not None]
    fakes = [node.meta["val"] for node in c.node.args[1] if node is not None]
    refuse_if(any(f.dtype not in (torch.int32, torch.int64) for f in fakes), "a choice by a mask has unknown dims")
    refuse_if(at != list(range(at[0], at[-1] + 1)), "indices at axes that are not neighbours")
    dims = list(x.dims)
    extents = dims[at[0] : at[-1] + 1]
    shape = list(torch.broadcast_shapes(*[f.shape for f in fakes])) or [1]
    flat = None
    for extent, each in zip(extents, [indices[i] for i in at]):
        each = _from_front(c, each, extent)
        flat = each if flat is None else c.g.add(c.g.mul(flat, extent), each)
    if list(flat.dims) != shape:
        flat = c.g.identity(flat, dims=shape, type=flat.type)
    return dims, shape, at[0], flat, math.prod(extents)


@converts("index.Tensor", "_unsafe_index.Tensor")
def index(c, x, indices):
    """The axes that are indexed become one, with one index."""
    dims, _, axis, flat, extent = flat_index(c, x, indices)
    behind = dims[axis + sum(each is not None for each in indices) :]
    x = c.reshaped(x, [*dims[:axis], extent, *behind])
    return c.reshaped(_taken(c, x, _vector(c, flat), axis), c.dims)


@converts("flip")
def flip(c, x, dims):
    for axis in dims:
        axis %= len(x.dims)
        line = [x.dims[axis]]
        x = _taken(c, x, c.g.sub(x.dims[axis] - 1, c.index(line, 0)), axis)
    return x


@converts("roll")
def roll(c, x, shifts, dims=()):
    from .views import part

    flat = not dims
    shape = list(x.dims)
    if flat:
        x, dims = c.reshaped(x, [math.prod(shape)]), [0]
    for shift, axis in zip(shifts, dims):
        axis %= len(x.dims)
        shift %= x.dims[axis]
        if shift:
            cut = x.dims[axis] - shift
            x = c.g.concatenate([part(c, x, axis, cut, None), part(c, x, axis, 0, cut)], axis)
    return c.reshaped(x, shape)

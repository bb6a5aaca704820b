"""Owns the conversion of what is made of nothing, or of dims alone: constants, ranges, triangles."""

import torch

from ._table import converts, refuse_if, type_of


@converts("new_full", ignores=(0,), floating=True)
@converts("full", floating=True)
def full(c, *args, **named):
    """full(size, value) and new_full(x, size, value)."""
    value = named.get("fill_value", args[-1])
    return c.filled(value)


@converts("full_like", ignores=(0,), floating=True)
def full_like(c, x, value, **named):
    return c.filled(value)


@converts("zeros", floating=True)
def zeros(c, *args, **named):
    return c.filled(0)


@converts("zeros_like", "new_zeros", ignores=(0,), floating=True)
def zeros_like(c, *args, **named):
    return c.filled(0)


@converts("ones", floating=True)
def ones(c, *args, **named):
    return c.filled(1)


@converts("ones_like", "new_ones", ignores=(0,), floating=True)
def ones_like(c, *args, **named):
    return c.filled(1)


@converts("scalar_tensor", floating=True)
def scalar_tensor(c, value, **named):
    return c.filled(value)


@converts("fill.Scalar", ignores=(0,), floating=True)
def fill(c, x, value):
    return c.filled(value)


@converts("arange", "arange.start", "arange.start_step", floating=True)
def arange(c, *args, **named):
    """arange(end), arange(start, end) and arange(start, end, step)."""
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else named.get("step", 1))
    refuse_if(not c.is_real and any(isinstance(x, float) for x in (start, step)), "a range of reals as integers")
    type = type_of(c.fake.dtype)
    index = c.g.identity(c.index(c.dims, 0), type=type if not c.is_real or c.fake.dtype == torch.float64 else "fp32")
    if step != 1:
        index = c.g.mul(index, step)
    if start != 0:
        index = c.g.add(index, start)
    return c.g.identity(index, type=type)


def _triangle(c, x, keeps):
    rows, columns = len(c.dims) - 2, len(c.dims) - 1
    size = [1] * rows + c.dims[-2:]
    distance = c.g.sub(c.index(size, columns), c.index(size, rows))
    zero = 0.0 if c.is_real else 0
    if c.fake.dtype == torch.bool:
        return c.g.logical_and(x, keeps(distance), type=c.type)
    return c.g.binary_select(x, zero, keeps(distance), type=c.type)


@converts("tril")
def tril(c, x, diagonal=0):
    return _triangle(c, x, lambda distance: c.g.cmp_le(distance, diagonal))


@converts("triu")
def triu(c, x, diagonal=0):
    return _triangle(c, x, lambda distance: c.g.cmp_ge(distance, diagonal))

"""Owns the conversion of reductions, softmax and losses."""

import torch

from ._table import Filled, converts, refuse_if, type_of


def axes_of(c, x, dim):
    """Axes that `dim` names, of a tensor of the builder; all of them where it names none."""
    rank = len(x.dims)
    if dim is None or dim == []:
        return list(range(rank))
    return [axis % rank for axis in (dim if isinstance(dim, (list, tuple)) else [dim])]


def reduced(c, x, mode, dim, fake, type=None, **named):
    """x reduced over axes, with the dims of `fake`."""
    y = c.g.reduce(x, mode, axes_of(c, x, dim), type=type, **named)
    return c.reshaped(y, fake.shape)


@converts("sum", "sum.dim_IntList")
def sum(c, x, dim=None, keepdim=False, dtype=None):
    refuse_if(not c.is_real and c.operand(0).dtype.is_floating_point, "a sum of reals as integers")
    whole = {} if c.is_real else {"compute": "int64"}
    return reduced(c, x, "add", dim, c.fake, c.type, **whole)


@converts("mean", "mean.dim")
def mean(c, x, dim=None, keepdim=False, dtype=None):
    return reduced(c, x, "avg", dim, c.fake, c.type)


@converts("amax", "max")
def amax(c, x, dim=None, keepdim=False):
    refuse_if(c.fake.dtype == torch.bool, "the maximum of bool")
    return reduced(c, x, "max", dim, c.fake, c.type)


@converts("amin", "min")
def amin(c, x, dim=None, keepdim=False):
    refuse_if(c.fake.dtype == torch.bool, "the minimum of bool")
    return reduced(c, x, "min", dim, c.fake, c.type)


@converts("prod", "prod.dim_int")
def prod(c, x, dim=None, keepdim=False, dtype=None):
    refuse_if(not c.is_real, "a product of integers")
    return reduced(c, x, "mul", dim, c.fake, c.type)


@converts("any", "any.dim", "any.dims")
def any(c, x, dim=None, keepdim=False):
    return reduced(c, c.g.cmp_neq(x, 0, type="int32"), "max", dim, c.fake, c.type)


@converts("all", "all.dim", "all.dims")
def all(c, x, dim=None, keepdim=False):
    return reduced(c, c.g.cmp_neq(x, 0, type="int32"), "min", dim, c.fake, c.type)


@converts("linalg_vector_norm")
def vector_norm(c, x, ord=2, dim=None, keepdim=False, dtype=None):
    modes = {1: "norm1", 2: "norm2", float("inf"): "amax"}
    refuse_if(ord not in modes, f"a norm of order {ord}")
    return reduced(c, x, modes[ord], dim, c.fake, c.type)


def _moments(c, x, dim, correction):
    """The mean and the variance along axes, which are kept."""
    axes = axes_of(c, x, dim)
    count = 1
    for axis in axes:
        count *= x.dims[axis]
    correction = 1 if correction is None else correction
    refuse_if(count <= correction, "the variance of too few elements")
    mean = c.g.reduce(x, "avg", axes)
    centred = c.g.sub(x, mean)
    squares = c.g.reduce(c.g.mul(centred, centred), "avg", axes)
    return mean, squares if correction == 0 else c.g.mul(squares, count / (count - correction))


@converts("var.correction")
def var(c, x, dim=None, correction=None, keepdim=False):
    _, variance = _moments(c, x, dim, correction)
    return c.reshaped(variance, c.fake.shape)


@converts("var_mean.correction")
def var_mean(c, x, dim=None, correction=None, keepdim=False):
    mean, variance = _moments(c, x, dim, correction)
    mean = c.reshaped(mean, c.fake[1].shape) if c.wants(1) else None
    return [c.reshaped(variance, c.fake[0].shape) if c.wants(0) else None, mean]


# --- softmax ---------------------------------------------------------------------------------------------


@converts("_softmax")
def softmax(c, x, dim, half_to_float=False):
    return c.g.softmax(x, axis=dim % len(x.dims), type=type_of(c.fake.dtype)).y


# No score of a finite row is below it: rows that see nothing have exponentials of zero, and no NaN.
_LEAST = -3.4028234663852886e38


@converts("_safe_softmax")
def safe_softmax(c, x, dim, dtype=None):
    """A softmax whose rows of nothing but -inf are zeros, in the form that attention's kernels know."""
    g, axis = c.g, dim % len(x.dims)
    powers = g.exp(x - g.max(g.reduce(x, "max", [axis]), _LEAST))
    total = g.reduce(powers, "add", [axis])
    return g.div(powers, g.binary_select(total, 1.0, g.cmp_neq(total, 0.0)), type=type_of(c.fake.dtype))


@converts("_log_softmax")
def log_softmax(c, x, dim, half_to_float=False):
    return c.g.softmax(x, axis=dim % len(x.dims), log=True, type=type_of(c.fake.dtype)).y


@converts("_softmax_backward_data")
def softmax_backward(c, dy, y, dim, dtype):
    return c.g.softmax_bwd(dy, y, axis=dim % len(y.dims), type=type_of(c.fake.dtype)).dx


@converts("_log_softmax_backward_data")
def log_softmax_backward(c, dy, y, dim, dtype):
    return c.g.softmax_bwd(dy, y, axis=dim % len(y.dims), log=True, type=type_of(c.fake.dtype)).dx


# --- losses ----------------------------------------------------------------------------------------------

NONE, MEAN, SUM = 0, 1, 2


def _labels(c, target, rank):
    """Labels [N] with an axis for classes, at 1."""
    return c.reshaped(target, [target.dims[0], 1, *target.dims[1:]] if rank > 1 else [1])


@converts("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(c, x, target, weight, reduction, ignore_index):
    refuse_if(weight is not None, "nll_loss with weights of classes")
    rank = len(x.dims)
    labels = _labels(c, target, rank)
    counted = c.g.cmp_neq(labels, ignore_index)
    picked = c.g.gather(x, labels, axis=1 if rank > 1 else 0)
    loss = c.g.binary_select(c.g.neg(picked), 0.0, counted)
    axes = list(range(rank))
    if (c.wants(1) and reduction != NONE) or reduction == MEAN:
        count = c.g.reduce(c.g.identity(counted, type="fp32"), "add", axes)
    total = c.reshaped(count, [1]) if c.wants(1) and reduction != NONE else None
    if reduction == NONE:
        return [c.reshaped(loss, c.fake[0].shape), Filled(c.fake[1])]
    loss = c.g.reduce(loss, "add", axes)
    if reduction == MEAN:
        loss = c.g.div(loss, count)
    return [c.reshaped(loss, [1]), total]


@converts("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(c, dy, x, target, weight, reduction, ignore_index, total_weight):
    refuse_if(weight is not None, "nll_loss with weights of classes")
    rank = len(x.dims)
    labels = _labels(c, target, rank)
    if reduction == MEAN:
        dy = c.g.div(dy, total_weight)
    dy = c.reshaped(dy, [1] * rank) if reduction != NONE else _labels(c, dy, rank)
    kinds = [1] * rank
    axis = 1 if rank > 1 else 0
    kinds[axis] = x.dims[axis]
    hit = c.g.logical_and(c.g.cmp_eq(c.index(kinds, axis), labels), c.g.cmp_neq(labels, ignore_index))
    return c.g.binary_select(c.g.neg(dy), 0.0, hit, type=c.type)

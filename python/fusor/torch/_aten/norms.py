"""Owns the conversion of norms and their gradients."""

import torch

from ._table import Filled, converts, refuse_if


def _vector(c, vector, rank):
    """A vector [C] as [1, C, 1, ...]; None stays None."""
    return None if vector is None else c.reshaped(vector, [1, vector.dims[0]] + [1] * (rank - 2))


def _flat(c, place, result):
    """A result in the dims of its fake tensor; None where nobody reads it, Filled where it is empty."""
    fake = c.fake[place]
    if fake is None or not c.wants(place):
        return None
    return Filled(fake) if fake.numel() == 0 else c.reshaped(result, fake.shape)


def _sums(c, dy, axes, dims):
    return c.reshaped(c.g.reduce(dy, "add", axes), dims)


# --- layer norm, rms norm --------------------------------------------------------------------------------


def _last_axes(x, shape):
    return list(range(len(x.dims) - len(shape), len(x.dims)))


@converts("native_layer_norm")
def layer_norm(c, x, shape, weight, bias, eps):
    norm = {"norm": "layer_norm", "axes": _last_axes(x, shape), "epsilon": eps}
    r = c.g.norm_fwd(x, scale=weight, bias=bias, type=c.type, **norm)
    return [r.y, _flat(c, 1, r.mean), _flat(c, 2, r.inv_std)]


@converts("native_layer_norm_backward")
def layer_norm_backward(c, dy, x, shape, mean, rstd, weight, bias, mask):
    return _axes_norm_backward(c, "layer_norm", dy, x, shape, {"mean": mean, "inv_std": rstd}, weight, mask)


def _axes_norm_backward(c, norm, dy, x, shape, statistics, weight, mask):
    axes = _last_axes(x, shape)
    named = {**statistics, "norm": norm, "axes": axes, "type": c.type}
    r = c.g.norm_bwd(dy, x, scale=weight, **named)
    rows = [axis for axis in range(len(x.dims)) if axis not in axes]
    dweight = r.dscale if mask[1] and weight is not None else None
    dbias = None
    if len(mask) > 2 and mask[2] and c.wants(2):
        dbias = r.dbias if weight is not None else _sums(c, dy, rows, shape)
    return [r.dx if mask[0] else None, dweight, dbias]


@converts("_fused_rms_norm")
def rms_norm(c, x, shape, weight, eps):
    eps = torch.finfo(c.operand(0).dtype).eps if eps is None else eps
    r = c.g.norm_fwd(x, scale=weight, norm="rms_norm", axes=_last_axes(x, shape), epsilon=eps, type=c.type)
    return [r.y, _flat(c, 1, r.inv_std)]


@converts("_fused_rms_norm_backward")
def rms_norm_backward(c, dy, x, shape, rstd, weight, mask):
    # Of two results, a gradient of a bias is none.
    return _axes_norm_backward(c, "rms_norm", dy, x, shape, {"inv_std": rstd}, weight, [*mask, False])[:2]


# --- group norm ------------------------------------------------------------------------------------------


@converts("native_group_norm")
def group_norm(c, x, weight, bias, n, channels, area, groups, eps):
    rank = len(x.dims)
    refuse_if(rank < 3, "a group norm without spatial dims")
    scale, shift = _vector(c, weight, rank), _vector(c, bias, rank)
    r = c.g.norm_fwd(x, scale=scale, bias=shift, norm="group_norm", groups=groups, epsilon=eps, type=c.type)
    return [r.y, _flat(c, 1, r.mean), _flat(c, 2, r.inv_std)]


@converts("native_group_norm_backward")
def group_norm_backward(c, dy, x, mean, rstd, weight, n, channels, area, groups, mask):
    rank = len(x.dims)
    refuse_if(rank < 3, "a group norm without spatial dims")
    refuse_if(weight is None and (mask[1] or mask[2]), "gradients of a scale that is not there")
    statistics = [c.reshaped(s, [n, groups] + [1] * (rank - 2)) for s in (mean, rstd)]
    scale = _vector(c, weight, rank)
    named = {"mean": statistics[0], "inv_std": statistics[1], "norm": "group_norm", "groups": groups}
    named["type"] = c.type
    return _vector_gradients(c, c.g.norm_bwd(dy, x, scale=scale, **named), mask)


def _vector_gradients(c, r, mask):
    dscale = _flat(c, 1, r.dscale) if mask[1] else None
    dbias = _flat(c, 2, r.dbias) if mask[2] else None
    return [r.dx if mask[0] else None, dscale, dbias]


# --- batch norm ------------------------------------------------------------------------------------------


def _inference(c, x, weight, bias, mean, var, eps):
    rank = len(x.dims)
    refuse_if(rank < 2, "a batch norm of one axis")
    scale, shift, mean, var = (_vector(c, v, rank) for v in (weight, bias, mean, var))
    running = {"prev_running_mean": mean, "prev_running_var": var}
    named = {"norm": "batch_norm", "phase": "inference", "epsilon": eps, "type": c.type}
    return c.g.norm_fwd(x, scale=scale, bias=shift, **running, **named)


@converts("_native_batch_norm_legit_no_training")
def batch_norm_inference(c, x, weight, bias, mean, var, momentum, eps):
    y = _inference(c, x, weight, bias, mean, var, eps)
    return [getattr(y, "y", y), Filled(c.fake[1]), Filled(c.fake[2])]


def _training(c, x, weight, bias, mean, var, momentum, eps):
    rank = len(x.dims)
    refuse_if(rank < 2, "a batch norm of one axis")
    scale, shift, mean, var = (_vector(c, v, rank) for v in (weight, bias, mean, var))
    running = {} if mean is None else {"prev_running_mean": mean, "prev_running_var": var, "momentum": momentum}
    return c.g.norm_fwd(x, scale=scale, bias=shift, norm="batch_norm", epsilon=eps, type=c.type, **running)


@converts("_native_batch_norm_legit_functional")
def batch_norm(c, x, weight, bias, mean, var, training, momentum, eps):
    if not training:
        y = _inference(c, x, weight, bias, mean, var, eps)
        return [getattr(y, "y", y), Filled(c.fake[1]), Filled(c.fake[2]), mean, var]
    r = _training(c, x, weight, bias, mean, var, momentum, eps)
    results = [r.y, r.mean, r.inv_std, r.next_running_mean, r.next_running_var]
    return [r.y] + [_flat(c, place, result) for place, result in enumerate(results) if place > 0]


@converts("_batch_norm_with_update_functional")
def batch_norm_with_update(c, x, weight, bias, mean, var, momentum, eps):
    r = _training(c, x, weight, bias, mean, var, momentum, eps)
    results = [r.y, r.mean, r.inv_std, None, r.next_running_mean, r.next_running_var]
    flat = [_flat(c, place, result) if place != 3 else Filled(c.fake[3]) for place, result in enumerate(results)]
    return [r.y, *flat[1:]]


@converts("_native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(c, x, weight, bias, training, momentum, eps):
    r = _training(c, x, weight, bias, None, None, momentum, eps)
    return [r.y, _flat(c, 1, r.mean), _flat(c, 2, r.inv_std)]


def _unread_statistics(node):
    """In training the running statistics, in inference those of the batch, which are empty."""
    return (3, 4) if node.args[7] else (5, 6)


@converts("native_batch_norm_backward", ignores=_unread_statistics)
def batch_norm_backward(c, dy, x, weight, running_mean, running_var, mean, rstd, train, eps, mask):
    rank = len(x.dims)
    refuse_if(weight is None and (mask[1] or mask[2]), "gradients of a scale that is not there")
    if not train:
        mean = running_mean
        rstd = c.g.rsqrt(c.g.add(running_var, float(eps)))
    named = {"mean": _vector(c, mean, rank), "inv_std": _vector(c, rstd, rank), "norm": "batch_norm"}
    phase, named["type"] = "training" if train else "inference", c.type
    return _vector_gradients(c, c.g.norm_bwd(dy, x, scale=_vector(c, weight, rank), phase=phase, **named), mask)


@converts("batch_norm_backward", ignores=lambda node: (*_unread_statistics(node), 10))
def batch_norm_backward_with_reserve(c, *args):
    return batch_norm_backward(c, *args[:10])


@converts("cudnn_batch_norm_backward", ignores=(3, 4, 8))
def cudnn_batch_norm_backward(c, x, dy, weight, running_mean, running_var, mean, rstd, eps, reserve):
    args = (dy, x, weight, running_mean, running_var, mean, rstd, True, eps, [True] * 3)
    return batch_norm_backward(c, *args)

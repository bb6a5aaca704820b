"""Owns the conversion of scaled dot-product attention: every backend's op of PyTorch and its gradients."""

import math

import torch

from .. import _attention
from ._table import Filled, Repeated, converts, converts_function, refuse_if
from .masks import bounds_of, unread
from .random import stream_of


def _scores(c, q, k, bias, scale, is_causal):
    """Attributes and the mask of attention, as both passes have them. A bias may hide all keys of a row, whose result
    is 0 where attention has a mask: a bound that hides nothing is one."""
    left, right = bounds_of(c.node) or (-1, -1)
    if bias is not None and left < 0 and right < 0:
        right = q.dims[2] + k.dims[2]
    named = {} if bias is None else {"bias": c.narrow(bias)}
    return {
        **named, "attn_scale": 1 / math.sqrt(q.dims[3]) if scale is None else float(scale), "left_bound": left,
        "right_bound": 0 if is_causal else right,
    }  # fmt: skip


def _dropout(c, dropout, seed, stream):
    """Attributes and operands of dropout. PyTorch's own ops of attention draw their numbers themselves."""
    refuse_if(dropout > 0 and seed is None, "its dropout is made of PyTorch's random numbers")
    return {"dropout_probability": dropout, "seed": seed, "offset": stream_of(c, stream)} if dropout > 0 else {}


def _statistics(c, stats, fake):
    """The logarithms of sums [b, h, s, 1] in the dims of their fake tensor, which may be longer than s."""
    if fake.numel() == 0:
        return Filled(fake)
    if not c.wants(1):
        return None
    b, h, s, _ = stats.dims
    if fake.numel() == b * h * s:
        return c.reshaped(stats, fake.shape)
    refuse_if(fake.dim() != 3 or fake.shape[2] < s, f"log-sum-exp of dims {list(fake.shape)}")
    rest = c.filled(0.0, [b, h, fake.shape[2] - s], torch.float32)
    return c.g.concatenate([c.reshaped(stats, [b, h, s]), rest], 2)


def _shared(c, x):
    """Keys or values before their heads were repeated; any other lazy tensor made."""
    if isinstance(x, Repeated):
        return x.source if x.axis == 1 else x.made(c.g)
    return c.whole(x)


def _forward(c, q, k, v, bias, dropout, is_causal, scale, seed=None, stream=0):
    drops = _dropout(c, dropout, seed, stream)
    q, k, v = c.whole(q), _shared(c, k), _shared(c, v)
    refuse_if(len(q.dims) != 4, f"attention of {len(q.dims)} axes")
    r = c.g.sdpa_fwd(q, k, v, type=c.type, **_scores(c, q, k, bias, scale, is_causal), **drops)
    first = [r.o, _statistics(c, r.stats, c.fake[1])]
    return first + [Filled(fake) for fake in c.fake[2:]]


@converts("_scaled_dot_product_flash_attention", ignores=unread(), lazy=True)
def flash(c, q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    return _forward(c, q, k, v, None, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_flash_attention_for_cpu", ignores=unread(), lazy=True)
def flash_for_cpu(c, q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    return _forward(c, q, k, v, attn_mask, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_efficient_attention", ignores=unread(), lazy=True)
def efficient(c, q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    return _forward(c, q, k, v, attn_bias, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_cudnn_attention", ignores=unread(), lazy=True)
def cudnn(c, q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, return_debug_mask=False, *,
          scale=None):  # fmt: skip
    return _forward(c, q, k, v, attn_bias, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_fused_attention_overrideable", ignores=unread(), lazy=True)
def overrideable(c, q, k, v, attn_bias=None, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    return _forward(c, q, k, v, attn_bias, dropout_p, is_causal, scale)


@converts_function(_attention.FORWARD, ignores=unread(), lazy=True)
def own(c, seed, stream, q, k, v, attn_mask, dropout_p, is_causal, scale=None):
    return _forward(c, q, k, v, attn_mask, dropout_p, is_causal, scale, seed, stream)


def _backward(c, dy, q, k, v, o, lse, bias, dropout, is_causal, scale, wants_dbias=False, seed=None, stream=0):
    """Gradients of queries, keys, values and, where it is wanted, the bias: a sum over what the bias repeats along."""
    drops = _dropout(c, dropout, seed, stream)
    dy, q, k, v, o, lse = (c.whole(x) for x in (dy, q, k, v, o, lse))
    refuse_if(len(q.dims) != 4, f"attention of {len(q.dims)} axes")
    b, h, s, _ = q.dims
    if math.prod(lse.dims) != b * h * s:
        lse = c.g.slice(lse, [0, 0, 0], [b, h, s])
    lse = c.reshaped(lse, [b, h, s, 1])
    bias = c.whole(bias) if wants_dbias else bias  # as it was repeated, its gradient has the dims of this one
    if bias is not None:  # rows without a key have no gradients: all their probabilities are 0
        lse = c.g.binary_select(math.inf, lse, c.g.cmp_eq(lse, -math.inf))
    r = c.g.sdpa_bwd(q, k, v, o, dy, lse, type=c.type, **_scores(c, q, k, bias, scale, is_causal), **drops)
    return [r.dq, r.dk, r.dv] + ([_rounded(c, r.dbias, c.fake[3])] if wants_dbias else [])


def _rounded(c, x, fake):
    """A total in fp32 as its fake tensor's type, where results are rounded."""
    return x if c.type is None else c.typed(x, fake.dtype)


@converts("_scaled_dot_product_flash_attention_backward", ignores=unread(6, 7, 8, 9, 12, 13), lazy=True)
def flash_backward(c, dy, q, k, v, o, lse, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, seed, offset, *,
                   scale=None):  # fmt: skip
    return _backward(c, dy, q, k, v, o, lse, None, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_flash_attention_for_cpu_backward", ignores=unread(), lazy=True)
def flash_for_cpu_backward(c, dy, q, k, v, o, lse, dropout_p, is_causal, *, attn_mask=None, scale=None):
    return _backward(c, dy, q, k, v, o, lse, attn_mask, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_efficient_attention_backward", ignores=unread(7, 8), lazy=True)
def efficient_backward(c, dy, q, k, v, bias, o, lse, seed, offset, dropout_p, mask, is_causal=False, *, scale=None):
    wants = bias is not None and mask[3]
    grads = _backward(c, dy, q, k, v, o, lse, bias, dropout_p, is_causal, scale, wants)
    return grads if wants else [*grads, None]


@converts("_scaled_dot_product_cudnn_attention_backward", ignores=unread(6, 7, 9, 10, 11, 12), lazy=True)
def cudnn_backward(c, dy, q, k, v, o, lse, seed, offset, bias, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, *,
                   scale=None):  # fmt: skip
    return _backward(c, dy, q, k, v, o, lse, bias, dropout_p, is_causal, scale)


@converts_function(_attention.BACKWARD, ignores=unread(), lazy=True)
def own_backward(c, seed, stream, dy, q, k, v, o, lse, attn_mask, dropout_p, is_causal, scale=None, mask_learns=False):
    given = (dy, q, k, v, o, lse, attn_mask, dropout_p, is_causal, scale, mask_learns)
    gradients = _backward(c, *given, seed=seed, stream=stream)
    return gradients if mask_learns else [*gradients, Filled(c.fake[3])]

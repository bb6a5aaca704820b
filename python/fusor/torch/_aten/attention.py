"""Owns the conversion of scaled dot-product attention: every backend's op of PyTorch and its gradients."""

import math

import torch

from ._table import Filled, converts, refuse_if


def _scores(c, q, scale, is_causal):
    """Attributes of attention, as both passes have them."""
    size = q.dims[3]
    attributes = {"attn_scale": 1 / math.sqrt(size) if scale is None else float(scale)}
    return {**attributes, "right_bound": 0} if is_causal else attributes


def _check(q, dropout):
    refuse_if(dropout > 0, "dropout of attention is random")
    refuse_if(len(q.dims) != 4, f"attention of {len(q.dims)} axes")


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


def _forward(c, q, k, v, bias, dropout, is_causal, scale):
    _check(q, dropout)
    named = {} if bias is None else {"bias": bias}
    r = c.g.sdpa_fwd(q, k, v, **named, **_scores(c, q, scale, is_causal))
    first = [r.o, _statistics(c, r.stats, c.fake[1])]
    return first + [Filled(fake) for fake in c.fake[2:]]


@converts("_scaled_dot_product_flash_attention")
def flash(c, q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    return _forward(c, q, k, v, None, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_flash_attention_for_cpu")
def flash_for_cpu(c, q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    return _forward(c, q, k, v, attn_mask, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_efficient_attention")
def efficient(c, q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    return _forward(c, q, k, v, attn_bias, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_cudnn_attention")
def cudnn(c, q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, return_debug_mask=False, *,
          scale=None):  # fmt: skip
    return _forward(c, q, k, v, attn_bias, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_fused_attention_overrideable")
def overrideable(c, q, k, v, attn_bias=None, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    return _forward(c, q, k, v, attn_bias, dropout_p, is_causal, scale)


def _backward(c, dy, q, k, v, o, lse, bias, dropout, is_causal, scale, wants_dbias=False):
    _check(q, dropout)
    b, h, s, _ = q.dims
    if math.prod(lse.dims) != b * h * s:
        lse = c.g.slice(lse, [0, 0, 0], [b, h, s])
    lse = c.reshaped(lse, [b, h, s, 1])
    named = {} if bias is None else {"bias": bias}
    r = c.g.sdpa_bwd(q, k, v, o, dy, lse, **named, **_scores(c, q, scale, is_causal))
    return [r.dq, r.dk, r.dv] + ([r.dbias] if wants_dbias else [])


@converts("_scaled_dot_product_flash_attention_backward", ignores=(6, 7, 8, 9, 12, 13))
def flash_backward(c, dy, q, k, v, o, lse, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, seed, offset, *,
                   scale=None):  # fmt: skip
    return _backward(c, dy, q, k, v, o, lse, None, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_for_cpu_backward(c, dy, q, k, v, o, lse, dropout_p, is_causal, *, attn_mask=None, scale=None):
    return _backward(c, dy, q, k, v, o, lse, attn_mask, dropout_p, is_causal, scale)


@converts("_scaled_dot_product_efficient_attention_backward", ignores=(7, 8))
def efficient_backward(c, dy, q, k, v, bias, o, lse, seed, offset, dropout_p, mask, is_causal=False, *, scale=None):
    wants = bias is not None and mask[3]
    grads = _backward(c, dy, q, k, v, o, lse, bias, dropout_p, is_causal, scale, wants)
    return grads if wants else [*grads, None]


@converts("_scaled_dot_product_cudnn_attention_backward", ignores=(6, 7, 9, 10, 11, 12))
def cudnn_backward(c, dy, q, k, v, o, lse, seed, offset, bias, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, *,
                   scale=None):  # fmt: skip
    return _backward(c, dy, q, k, v, o, lse, bias, dropout_p, is_causal, scale)

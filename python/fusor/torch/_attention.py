"""Owns attention that PyTorch would take apart before any backend sees it: with a mask it becomes products in fp32 and
a softmax, also where the mask is a bias that is learnt, and with dropout an op whose random numbers no other op makes
again."""

import math

import torch
import torch.nn.functional as functional
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ._random import BERNOULLI, define, of_stream, seed_and_stream

# What a graph of torch.compile calls.
NAMES = {functional.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention}
_TYPES = (torch.float16, torch.bfloat16, torch.float32)


def keep_attention(module, with_dropout):
    """Lets calls of attention in a module of torch.compile's stay one op where they have a mask, or dropout."""
    for each in module.modules():
        if isinstance(each, torch.fx.GraphModule):
            for node in each.graph.nodes:
                if node.op == "call_function" and node.target in NAMES:
                    node.target = attention if with_dropout else masked_attention
            each.recompile()


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """scaled_dot_product_attention; with dropout or a mask that has gradients as the op of this file."""
    q, k, v, attn_mask = _cast(q, k, v, attn_mask)
    if not _drops(q, k, v, attn_mask, dropout_p):
        return masked_attention(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    k, v = _repeated(q, k, v, enable_gqa)
    mask = _in_rows(_added(q, attn_mask))
    return FORWARD(*seed_and_stream(q.device), q, k, v, mask, dropout_p, is_causal, scale)[0]


def masked_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """scaled_dot_product_attention, whose dropout is PyTorch's; with a mask that has gradients as the op of this file.
    With another mask it is the op that PyTorch has for CPUs, on tensors of CUDA as well: it alone takes masks of any
    strides, and a converter stands for it on either."""
    q, k, v, attn_mask = _cast(q, k, v, attn_mask)
    if _learns(q, k, v, attn_mask, dropout_p):
        k, v = _repeated(q, k, v, enable_gqa)
        return FORWARD(None, 0, q, k, v, _in_rows(attn_mask), 0.0, is_causal, scale)[0]
    if not _stays(q, k, v, attn_mask, dropout_p):
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )
    k, v = _repeated(q, k, v, enable_gqa)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, dropout_p, is_causal, attn_mask=_added(q, attn_mask), scale=scale
    )[0]


def _cast(*given):
    """Tensors as autocast has them in attention."""
    kind = given[0].device.type
    if not torch.is_autocast_enabled(kind):
        return given
    is_cast = lambda x: x is not None and x.dtype.is_floating_point and x.dtype != torch.float64  # noqa: E731
    return [x.to(torch.get_autocast_dtype(kind)) if is_cast(x) else x for x in given]


def _drops(q, k, v, mask, dropout):
    return 0 < dropout < 1 and not _is_mapped(q, k, v, mask) and _fits(q, k, v, mask)


def _learns(q, k, v, mask, dropout):
    return _has_gradient(mask) and dropout == 0 and not _is_mapped(q, k, v, mask) and _fits(q, k, v, mask)


def _stays(q, k, v, mask, dropout):
    is_given = mask is not None and not _has_gradient(mask) and not _is_mapped(q, k, v, mask)
    return is_given and dropout == 0 and q.device.type == "cuda" and _fits(q, k, v, mask)


def _has_gradient(mask):
    return mask is not None and mask.requires_grad


def _is_mapped(*given):
    return any(x is not None and torch._C._functorch.is_functorch_wrapped_tensor(x) for x in given)


def _fits(q, k, v, mask):
    return (
        q.dtype in _TYPES and q.dtype == k.dtype == v.dtype and (mask is None or mask.dtype in (torch.bool, q.dtype))
        and q.dim() == k.dim() == v.dim() == 4 and all(statically_known_true(q.shape[3] == x.shape[3]) for x in (k, v))
    )  # fmt: skip


def _repeated(q, k, v, enable_gqa):
    """Keys and values with as many heads as queries have."""
    return [x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v)] if enable_gqa else (k, v)


def _added(q, mask):
    """A mask as numbers that are added to scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros((), dtype=q.dtype, device=q.device).masked_fill(~mask, float("-inf"))


def _in_rows(mask):
    """A mask with keys beside each other in memory, which both passes read for every query: a table's heads are, where
    they were looked up by distance."""
    if mask is None or mask.dim() == 0 or not statically_known_true(mask.stride(-1) > 1):
        return mask
    repeats = any(statically_known_true(stride == 0) for stride in mask.stride())  # a copy would be larger
    return mask if repeats else mask.contiguous()


# --- attention as an op ------------------------------------------------------------------------------------


def _probabilities(q, k, mask, is_causal, scale):
    """Scores and the logarithms of their sums, in fp32: what PyTorch runs where no graph does."""
    scores = q.float() @ k.float().transpose(-1, -2) * (1 / math.sqrt(q.shape[3]) if scale is None else scale)
    if mask is not None:
        scores = scores + mask
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores, scores.logsumexp(-1)


def _weights(seed, stream, scores, sums, dropout):
    """Probabilities of rows (zeros where a row sees nothing), and what dropout multiplies them by."""
    sums = sums.masked_fill(sums == float("-inf"), float("inf"))
    kept = 1.0 if seed is None else BERNOULLI(seed, stream, scores.shape, 1 - dropout) / (1 - dropout)
    return torch.exp(scores - sums[..., None]), kept


def _laid_out(x, like):
    """x [b, h, s, d] in the type of another tensor, with heads beside each other in memory."""
    return x.to(like.dtype).transpose(1, 2).contiguous().transpose(1, 2)


def _run(seed, stream, q, k, v, mask, dropout, is_causal, scale=None):
    scores, sums = _probabilities(q, k, mask, is_causal, scale)
    p, kept = _weights(seed, stream, scores, sums, dropout)
    return _laid_out((p * kept) @ v.float(), q), sums


def _run_backward(seed, stream, dy, q, k, v, o, sums, mask, dropout, is_causal, scale=None, mask_learns=False):
    scores, _ = _probabilities(q, k, mask, is_causal, scale)
    p, kept = _weights(seed, stream, scores, sums, dropout)
    dy, scale = dy.float(), 1 / math.sqrt(q.shape[3]) if scale is None else scale
    ds = p * (dy @ v.float().transpose(-1, -2) * kept - (dy * o.float()).sum(-1, keepdim=True))
    dq, dk = ds @ k.float() * scale, ds.transpose(-1, -2) @ q.float() * scale
    dv = (p * kept).transpose(-1, -2) @ dy
    dmask = ds.sum_to_size(mask.shape).to(mask.dtype) if mask_learns else q.new_empty(0)
    return _laid_out(dq, q), _laid_out(dk, k), _laid_out(dv, v), dmask


def _empty(like):
    b, h, s, d = like.shape
    return like.new_empty(b, s, h, d).transpose(1, 2)


def _fake(seed, stream, q, k, v, mask, dropout, is_causal, scale=None):
    return _empty(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake_backward(seed, stream, dy, q, k, v, o, sums, mask, dropout, is_causal, scale=None, mask_learns=False):
    return *map(_empty, (q, k, v)), mask.new_empty(mask.shape) if mask_learns else q.new_empty(0)


# Without a seed there is no dropout. The last gradient is the mask's, empty where nobody learns it.
_ENDS = "Tensor? attn_mask, float dropout_p, bool is_causal, float? scale=None"
FORWARD = of_stream(define(
    "attention", f"(Tensor? seed, int stream, Tensor q, Tensor k, Tensor v, {_ENDS}) -> (Tensor, Tensor)", _run, _fake,
))  # fmt: skip
BACKWARD = of_stream(define(
    "attention_backward", "(Tensor? seed, int stream, Tensor dy, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, "
    f"{_ENDS}, bool mask_learns=False) -> (Tensor, Tensor, Tensor, Tensor)", _run_backward, _fake_backward,
))  # fmt: skip


def _save(ctx, inputs, output):  # PyTorch passes these by name
    seed, stream, q, k, v, mask, *rest = inputs
    ctx.save_for_backward(seed, q, k, v, *output, mask)
    ctx.stream, ctx.rest = stream, rest


def _gradients(ctx, dy, _):
    seed, *saved = ctx.saved_tensors
    mask_learns = ctx.needs_input_grad[5]
    *gradients, dmask = BACKWARD(seed, ctx.stream, dy, *saved, *ctx.rest, mask_learns)
    return None, None, *gradients, dmask if mask_learns else None, None, None, None


torch.library.register_autograd("fusor::attention", _gradients, setup_context=_save)

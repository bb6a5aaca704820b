"""Owns attention with a mask, which PyTorch may take apart before any backend sees it: products in fp32 and a softmax."""

import torch
import torch.nn.functional as functional
from torch.fx.experimental.symbolic_shapes import statically_known_true

# What a graph of torch.compile calls.
_NAMES = {functional.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention}
_TYPES = (torch.float16, torch.bfloat16, torch.float32)


def keep_masked_attention(module):
    """Lets calls of attention in a module of torch.compile's stay one op where they have a mask."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in _NAMES:
            node.target = attention
    module.recompile()


def _stays(q, k, v, mask, dropout):
    return (
        mask is not None and not mask.requires_grad and dropout == 0 and q.device.type == "cuda"
        and q.dtype in _TYPES and q.dtype == k.dtype == v.dtype and mask.dtype in (torch.bool, q.dtype)
        and q.dim() == k.dim() == v.dim() == 4 and all(statically_known_true(q.shape[3] == x.shape[3]) for x in (k, v))
    )  # fmt: skip


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """scaled_dot_product_attention; on tensors of CUDA as the op that PyTorch has for CPUs: it alone takes masks of any
    strides, and a converter stands for it on either."""
    if not _stays(q, k, v, attn_mask, dropout_p):
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros((), dtype=q.dtype, device=q.device).masked_fill(~attn_mask, float("-inf"))
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )[0]

# Owns the models that models.py runs: networks with random weights, nothing of which is downloaded.
"""CASES by name. Each makes its module when asked: a library that is missing costs only its own models."""
import dataclasses
from typing import Callable

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Case:
    """`make` gives a module that takes what `inputs(batch)` gives (reals become the run's type) and returns a tensor or
    a tuple. `is_image`: channels last. `trains`: the batch of a training step, 0 for none."""

    make: Callable
    inputs: Callable
    batches: tuple = (1, 32)
    is_image: bool = False
    trains: int = 0


# --- torchvision -----------------------------------------------------------------------------------------


def vision(name, trains=0, size=224):
    def make():
        import torchvision

        return getattr(torchvision.models, name)(weights=None)

    return Case(make, lambda batch: (torch.randn(batch, 3, size, size),), (1, 32), True, trains)


# --- transformers ----------------------------------------------------------------------------------------


class Only(nn.Module):
    """A model of the library transformers that returns its first result alone."""

    def __init__(self, model, **named):
        super().__init__()
        self.model, self.named = model, named

    def forward(self, *inputs):
        return self.model(*inputs, **self.named, use_cache=False, return_dict=False)[0]


class Encoder(Only):
    def forward(self, *inputs):
        return self.model(*inputs, **self.named, return_dict=False)[0]


def words(length, size=30000):
    return lambda batch: (torch.randint(0, size, (batch, length)),)


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=4, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    return Encoder(BertModel(config, add_pooling_layer=False))


def gpt2():
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_layer=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return Only(GPT2Model(config))


def llama():
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=2, num_attention_heads=32,
                         num_key_value_heads=8, vocab_size=32000)  # fmt: skip
    return Only(LlamaModel(config))


def t5():
    from transformers import T5Config, T5EncoderModel

    config = T5Config(d_model=768, d_ff=2048, d_kv=64, num_heads=12, num_layers=4, dropout_rate=0,
                      feed_forward_proj="gated-gelu")  # fmt: skip
    return Encoder(T5EncoderModel(config))


# --- written by hand -------------------------------------------------------------------------------------


class DiT(nn.Module):
    """A diffusion transformer's block: shifts, scales and gates made of a condition."""

    def __init__(self, width=1152, heads=16):
        super().__init__()
        self.heads = heads
        self.na = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.nb = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.condition = nn.Linear(width, 6 * width)

    def attend(self, x):
        b, s, c = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, c))

    def forward(self, x, condition):
        six = self.condition(F.silu(condition)).unsqueeze(1).chunk(6, 2)
        shift_a, scale_a, gate_a, shift_b, scale_b, gate_b = six
        x = x + gate_a * self.attend(self.na(x) * (1 + scale_a) + shift_a)
        y = self.nb(x) * (1 + scale_b) + shift_b
        return x + gate_b * self.down(F.gelu(self.up(y), approximate="tanh"))


class DiffusionResidual(nn.Module):
    """A ResNet block of Stable Diffusion's U-Net, with a time embedding."""

    def __init__(self, channels, out, embedding=1280):
        super().__init__()
        self.na, self.nb = nn.GroupNorm(32, channels), nn.GroupNorm(32, out)
        self.a, self.b = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(embedding, out)
        self.shortcut = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x, time):
        y = self.a(F.silu(self.na(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.b(F.silu(self.nb(y)))


class Attention(nn.Module):
    def __init__(self, width, heads, context=None):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(context or width, width, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x, context=None):
        context = x if context is None else context
        q, k, v = self.split(self.q(x)), self.split(self.k(context)), self.split(self.v(context))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class DiffusionAttention(nn.Module):
    """An attention block of Stable Diffusion's U-Net: over pixels, over 77 tokens, a GEGLU."""

    def __init__(self, width=640, heads=10, context=768):
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.enter, self.leave = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.self, self.cross = Attention(width, heads), Attention(width, heads, context)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x, context):
        b, c, h, w = x.shape
        y = self.enter(self.norm(x)).permute(0, 2, 3, 1).reshape(b, h * w, c)
        y = y + self.self(self.norms[0](y))
        y = y + self.cross(self.norms[1](y), context)
        value, gate = self.up(self.norms[2](y)).chunk(2, 2)
        y = y + self.down(value * F.gelu(gate))
        return x + self.leave(y.reshape(b, h, w, c).permute(0, 3, 1, 2))


class Llama(nn.Module):
    """A decoder layer by hand: RMS norms, rotary embeddings, grouped queries, SwiGLU."""

    def __init__(self, width=2048, heads=32, shared=8, inner=5632):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.wa, self.wb = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, shared * self.size, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    @staticmethod
    def norm(x, weight):
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def turned(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        y = self.norm(x, self.wa)
        q = self.turned(self.q(y).view(b, s, self.heads, -1).transpose(1, 2), cos, sin)
        k = self.turned(self.k(y).view(b, s, self.shared, -1).transpose(1, 2), cos, sin)
        v = self.v(y).view(b, s, self.shared, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        y = self.norm(x, self.wb)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def turns(length, size):
    """Cosines and sines of rotary embeddings [length, size]."""
    angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, size, 2)[None] / size)
    angle = torch.cat([angle, angle], 1)
    return angle.cos(), angle.sin()


CASES = {
    "resnet50": vision("resnet50", trains=32),
    "mobilenet_v3_large": vision("mobilenet_v3_large", trains=32),
    "efficientnet_b0": vision("efficientnet_b0", trains=32),
    "convnext_tiny": vision("convnext_tiny", trains=32),
    "vit_b_16": vision("vit_b_16", trains=32),
    "swin_t": vision("swin_t", trains=32),
    "densenet121": vision("densenet121", trains=32),
    "regnet_y_3_2gf": vision("regnet_y_3_2gf", trains=32),
    "bert": Case(bert, words(128), (1, 32), trains=8),
    "gpt2": Case(gpt2, words(1024), (1, 8), trains=8),
    "llama": Case(llama, words(1024), (1, 8), trains=8),
    "t5": Case(t5, words(512), (1, 8), trains=8),
    "llama_layer": Case(Llama, lambda b: (torch.randn(b, 1024, 2048), *turns(1024, 64)), (1, 8), trains=4),
    "dit": Case(DiT, lambda b: (torch.randn(b, 256, 1152), torch.randn(b, 1152)), (1, 32), trains=32),
    "sd_resnet": Case(lambda: DiffusionResidual(320, 640),
                      lambda b: (torch.randn(b, 320, 64, 64), torch.randn(b, 1280)), (2, 8), True, trains=8),
    "sd_attention": Case(DiffusionAttention,
                         lambda b: (torch.randn(b, 640, 32, 32), torch.randn(b, 77, 768)), (2, 8), True, trains=8),
}  # fmt: skip


def made(case, device, dtype, trains=False):
    """The case's module, in the run's type and layout. Nothing in it is random: results are compared."""
    torch.manual_seed(0)
    module = case.make().to(device=device, dtype=dtype).train(trains)
    for each in module.modules():
        if "Dropout" in type(each).__name__ or "StochasticDepth" in type(each).__name__:
            each.p = 0.0
    for weight in module.parameters():  # heads that begin at zero would hide all that is in front of them
        if weight.dim() > 1 and not weight.any():
            torch.nn.init.normal_(weight, std=0.02)
    return module.to(memory_format=torch.channels_last) if case.is_image else module


def inputs(case, batch, device, dtype):
    """Inputs of one run."""
    torch.manual_seed(1)
    found = []
    for x in case.inputs(batch):
        x = x.to(device=device, dtype=dtype) if x.is_floating_point() else x.to(device)
        is_image = case.is_image and x.dim() == 4
        found.append(x.contiguous(memory_format=torch.channels_last) if is_image else x)
    return found



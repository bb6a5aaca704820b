"""Tests of fusor as a backend of torch.compile where attention has a bias that is learnt, on the CPU or a GPU. Skips
itself where there is no PyTorch."""
import functools
import json
import math
import unittest
from unittest import mock

from compile_case import DEVICE, Compile, compiled, integers, randn  # ends here where there is no PyTorch

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import fusor.torch
from fusor.torch import Report

TYPES = (torch.float32, torch.float16, torch.bfloat16)
B, H, S, T, D = 2, 3, 9, 11, 8
SHAPES = (
    (B, H, S, T), (1, H, S, T), (B, 1, S, T), (1, 1, S, T), (B, H, 1, T), (1, H, S, 1), (B, 1, 1, T), (1, H, 1, 1),
    (H, S, T), (1, S, T), (S, T), (1, T), (S, 1), (T,), (1,),
)  # fmt: skip


class Relative(nn.Module):
    """Layers of attention that share a bias by the distance of queries and keys, as T5 has it."""

    def __init__(self, width=24, heads=3, layers=2, places=4):
        super().__init__()
        self.heads, self.places = heads, places
        self.table = nn.Embedding(2 * places + 1, heads)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        b, s, c = x.shape
        at = torch.arange(s, device=x.device)
        distance = (at[:, None] - at[None]).clamp(-self.places, self.places) + self.places
        bias = self.table(distance).permute(2, 0, 1)[None]
        for qkv, out in zip(self.qkv, self.out):
            q, k, v = qkv(x).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            x = x + out(F.scaled_dot_product_attention(q, k, v, bias).transpose(1, 2).reshape(b, s, c))
        return x


def operands(dtype=torch.float32, heads=H):
    return [randn(B, h, n, D).to(dtype).requires_grad_() for h, n in ((H, S), (heads, T), (heads, T))]


def learnt(*dims, dtype=torch.float32):
    return randn(*dims).to(dtype).requires_grad_()


class Bias(Compile):
    def run_of(self, function, **options):
        torch._dynamo.reset()
        self.report = Report()
        return compiled(function, self.report, **options)

    def kinds(self):
        return [op.kind for graph in self.report for part in graph.parts for op in part.graph.ops]

    def stays(self, forward=1, backward=1):
        """Attention is so many ops of graphs, and PyTorch runs nothing."""
        self.assertEqual([entry for graph in self.report for entry in graph.outside], [])
        kinds = self.kinds()
        self.assertEqual((kinds.count("sdpa_fwd"), kinds.count("sdpa_bwd")), (forward, backward), kinds)

    def compare(self, function, *inputs, what="", **options):
        """Results and gradients of all inputs; PyTorch's are in fp32."""
        got, exact = self.run_of(function, **options)(*inputs), [x.detach().float().requires_grad_() for x in inputs]
        with sdpa_kernel(SDPBackend.MATH):  # others refuse biases that lie otherwise
            want = function(*exact)
        weights = randn(*got.shape).to(got.dtype)
        self.close(got, want.to(got.dtype), what)
        gradients = torch.autograd.grad((got * weights).sum(), inputs)
        for at, (x, g, w) in enumerate(zip(inputs, gradients, torch.autograd.grad((want * weights).sum(), exact))):
            self.assertEqual((g.shape, g.dtype), (x.shape, x.dtype), what)
            self.close_gradient(g, w.to(g.dtype), f"operand {at} {what}", None)

    def in_pytorch(self):
        """Nothing is converted: PyTorch runs every op."""
        return mock.patch.dict("fusor.torch._convert.CONVERTERS", clear=True)

    def test_bias_of_every_shape(self):
        for dtype in TYPES:
            for shape in SHAPES:
                self.compare(F.scaled_dot_product_attention, *operands(dtype), learnt(*shape, dtype=dtype),
                             what=f"{dtype} {shape}")  # fmt: skip
                self.stays()

    def test_bias_of_every_shape_that_pytorch_runs(self):
        with self.in_pytorch():
            for dtype in TYPES:
                for shape in SHAPES:
                    self.compare(F.scaled_dot_product_attention, *operands(dtype), learnt(*shape, dtype=dtype),
                                 what=f"{dtype} {shape}")  # fmt: skip
                    ops = [entry.op for graph in self.report for entry in graph.outside]
                    self.assertIn("fusor.attention_backward", ops)

    def test_scale_and_strides_of_a_bias(self):
        attend = functools.partial(F.scaled_dot_product_attention, scale=0.3)
        self.compare(lambda q, k, v, m: attend(q, k, v, m.permute(2, 0, 1)), *operands(), learnt(S, T, H))
        self.stays()
        self.compare(lambda q, k, v, m: attend(q, k, v, m.expand(B, H, S, T)), *operands(), learnt(H, 1, T))
        self.stays()

    def test_keys_of_a_bias_lie_beside_each_other(self):
        """One copy serves all layers, forward and backward."""
        self.report = self.model(Relative(), randn(B, S, 24).requires_grad_())
        for graph, kind in zip(self.report, ("sdpa_fwd", "sdpa_bwd")):
            (part,) = graph.parts
            written = json.loads(part.graph.to_json())
            tensors = {tensor["name"]: tensor for tensor in written["tensors"]}
            read = [tensors[name] for op in written["ops"] if op["op"] == kind for name in op["inputs"] if name]
            biases = [tensor for tensor in read if tensor["dims"][-1] == S]
            self.assertEqual([bias["strides"][-2:] for bias in biases], 2 * [[S, 1]])
            self.assertEqual(len({bias["name"] for bias in biases}), 1)

    def test_heads_that_are_shared(self):
        attend = functools.partial(F.scaled_dot_product_attention, enable_gqa=True)
        for shape in ((1, H, S, T), (B, 1, S, T), (S, T)):
            self.compare(attend, *operands(heads=1), learnt(*shape), what=shape)
            self.stays()

    def test_rows_that_see_nothing_are_zeros_and_have_no_gradients(self):
        for in_pytorch in (False, True):
            for dtype in TYPES:
                q, k, v = operands(dtype)
                bias = randn(1, H, S, T).to(dtype)
                bias[:, :, 4] = -math.inf
                bias[:, 1, :, 3:] = -math.inf
                bias.requires_grad_()
                with mock.patch.dict("fusor.torch._convert.CONVERTERS", clear=in_pytorch):
                    y = self.run_of(F.scaled_dot_product_attention)(q, k, v, bias)
                    gradients = torch.autograd.grad(y.square().sum(), (q, k, v, bias))
                exact = [x.detach().float().requires_grad_() for x in (q, k, v, bias)]
                scores = exact[0] @ exact[1].transpose(-1, -2) / math.sqrt(D) + exact[3]
                is_hidden = (exact[3] == -math.inf).all(-1, keepdim=True)
                want = scores.masked_fill(is_hidden, 0).softmax(-1).masked_fill(is_hidden, 0) @ exact[2]
                self.close(y, want.to(dtype))
                self.assertEqual(y[:, :, 4].abs().max().item(), 0)
                for x, got, right in zip("qkvm", gradients, torch.autograd.grad(want.square().sum(), exact)):
                    self.close_gradient(got, right.to(dtype), x, None)
                self.assertEqual(gradients[3][:, :, 4].abs().max().item(), 0)
                self.assertEqual(gradients[3][:, 1, :, 3:].abs().max().item(), 0)

    def test_layers_share_a_bias(self):
        for dtype in (torch.float32, torch.bfloat16):
            for options in ({}, {"random": "pytorch"}, {"rounding": "stored"}):
                torch._dynamo.reset()
                self.report = self.model(Relative().to(dtype), randn(B, S, 24).to(dtype).requires_grad_(), **options)
                self.stays(2, 2)
        with self.in_pytorch():
            torch._dynamo.reset()
            compiled_, twin, x = Relative().to(DEVICE), Relative().to(DEVICE), randn(B, S, 24)
            twin.load_state_dict(compiled_.state_dict())
            self.run_of(compiled_)(x).square().sum().backward()
            twin(x).square().sum().backward()
            self.close_gradient(compiled_.table.weight.grad, twin.table.weight.grad, "table", None)

    def test_a_bias_and_a_mask_of_padding(self):
        seen = torch.arange(T, device=DEVICE)[None] < torch.tensor([[5], [T]], device=DEVICE)

        def attend(q, k, v, bias):
            return F.scaled_dot_product_attention(q, k, v, bias.masked_fill(~seen[:, None, None], -math.inf))

        self.compare(attend, *operands(), learnt(1, H, S, T))
        self.stays()

    def test_a_bias_alone_is_learnt(self):
        q, k, v = (x.detach() for x in operands())
        self.compare(lambda bias: F.scaled_dot_product_attention(q, k, v, bias), learnt(1, H, S, T))
        self.stays()

    def test_without_gradients(self):
        """A parameter is learnt elsewhere, say."""
        q, k, v = operands()
        bias, before = learnt(H, S, T), F.scaled_dot_product_attention
        for result in ((bias,), (bias * 2,)):
            with torch.no_grad():
                got = self.run_of(lambda *x: before(*x, *result))(q, k, v)  # noqa: B023
                self.close(got, before(q, k, v, *result))
            self.stays(1, 0)

    def test_dropout_is_that_of_gradients(self):
        from fusor.torch import _random

        def attend(seed, q, k, v, bias):
            scores = q.float() @ k.float().transpose(-1, -2) / math.sqrt(D) + bias
            kept = _random.BERNOULLI(seed, 0, scores.shape, 0.6) / 0.6
            return (scores.softmax(-1) * kept @ v.float()).to(q.dtype)

        for in_pytorch in (False, True):
            for dtype in TYPES:
                for shape in ((1, H, S, T), (B, 1, 1, T), (S, T)):
                    inputs = (*operands(dtype), learnt(*shape, dtype=dtype))
                    torch.manual_seed(7)
                    with mock.patch.dict("fusor.torch._convert.CONVERTERS", clear=in_pytorch):
                        run = self.run_of(functools.partial(F.scaled_dot_product_attention, dropout_p=0.4))
                        got = run(*inputs)
                        gradients = torch.autograd.grad(got.square().sum(), inputs)
                    torch.manual_seed(7)
                    want = attend(_random.SEED(got.device), *inputs)
                    self.close(got, want, shape)
                    for x, g, w in zip("qkvm", gradients, torch.autograd.grad(want.square().sum(), inputs)):
                        self.close_gradient(g, w, f"{x} {dtype} {shape}", None)
                    if not in_pytorch:
                        self.stays()

    def test_dropout_keeps_its_rate(self):
        q, v = torch.zeros(2, 2, 64, 64, device=DEVICE), torch.eye(64, device=DEVICE).expand(2, 2, 64, 64)
        bias = torch.zeros(64, 64, device=DEVICE).requires_grad_()
        y = self.run_of(functools.partial(F.scaled_dot_product_attention, dropout_p=0.3))(q, q, v, bias)
        kept = y != 0  # results are the probabilities
        self.assertLess(abs(kept.float().mean().item() - 0.7), 5 * math.sqrt(0.21 / y.numel()))
        self.close(y[kept], torch.full_like(y[kept], 1 / 64 / 0.7))
        self.stays(1, 0)

    def test_random_numbers_of_pytorch(self):
        """A bias without dropout stays, as no number is drawn."""
        self.compare(F.scaled_dot_product_attention, *operands(), learnt(1, H, S, T), random="pytorch")
        self.stays()
        inputs = (*operands(), learnt(S, T))
        run = self.run_of(functools.partial(F.scaled_dot_product_attention, dropout_p=0.5), random="pytorch")
        torch.autograd.grad(run(*inputs).sum(), inputs)
        self.assertNotIn("sdpa_bwd", self.kinds())

    def test_autocast_rounds_a_bias(self):
        q, k, v = operands()
        bias = learnt(1, H, S, T)
        results = []
        for function in (self.run_of(F.scaled_dot_product_attention), F.scaled_dot_product_attention):
            with torch.autocast(DEVICE, torch.bfloat16):
                y = function(q, k, v, bias)
            results.append([y, *torch.autograd.grad(y.float().square().sum(), (q, k, v, bias))])
        self.stays()
        for got, want in zip(*results):
            self.assertEqual(got.dtype, want.dtype)
            self.close_gradient(got.bfloat16(), want.bfloat16(), "operand", None)

    def test_masks_of_truth_have_no_gradients(self):
        q, k, v = operands()
        mask = integers(2, B, 1, S, T) > 0
        mask[..., 0] = True
        y = self.run_of(functools.partial(F.scaled_dot_product_attention, dropout_p=0.2))(q, k, v, mask)
        torch.autograd.grad(y.sum(), (q, k, v))
        self.stays()
        (part,) = self.report[1].parts
        self.assertNotIn("dbias", part.graph.to_json())

    def test_mapped_functions(self):
        inputs = [x.detach()[:, None] for x in operands()]
        bias = learnt(B, 1, S, T)
        run = lambda *x: torch.vmap(F.scaled_dot_product_attention)(*x)  # noqa: E731
        with sdpa_kernel(SDPBackend.MATH):  # others of CUDA refuse such biases
            got, want = self.run_of(run)(*inputs, bias), run(*inputs, bias)
        self.close(got, want)
        self.close(*(torch.autograd.grad(y.square().sum(), bias)[0] for y in (got, want)))

    def test_dims_that_change(self):
        model, twin = Relative().to(DEVICE), Relative().to(DEVICE)
        twin.load_state_dict(model.state_dict())
        self.report = Report()
        run = torch.compile(model, backend=lambda *given: fusor.torch.backend(*given, report=self.report))
        for _ in range(2):
            for b, s in ((2, 9), (3, 9), (3, 12), (2, 5)):
                x = randn(b, s, 24)
                for each in (model, twin):
                    each.zero_grad()
                run(x).square().sum().backward()
                twin(x).square().sum().backward()
                for (name, p), other in zip(model.named_parameters(), twin.parameters()):
                    self.close_gradient(p.grad, other.grad, name, None)
        self.assertEqual([entry for graph in self.report for entry in graph.outside], [])

    def test_trace_shows_attention(self):
        self.report = fusor.torch.trace(Relative(), torch.randn(B, S, 24), backward=True)
        self.stays(2, 2)
        self.assertEqual([len(graph.parts) for graph in self.report], [1, 1])


if __name__ == "__main__":
    unittest.main()

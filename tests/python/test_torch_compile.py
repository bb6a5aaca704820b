"""Tests of fusor as a backend of torch.compile, on the CPU or a GPU: ops and layers. Skips itself where there is no PyTorch."""
import math
import unittest

from compile_case import DEVICE, Compile, compiled, integers, randn  # ends here where there is no PyTorch

import torch
import torch.nn.functional as F
from torch import nn

import fusor.torch
from fusor.torch import Report


class Ops(Compile):
    def test_arithmetic(self):
        x, y, row, n = randn(5, 7), randn(5, 7) + 3, randn(7), integers(9, 5, 7)
        self.each({
            "add": lambda x, y, row, n: x + row * 2,
            "alpha": lambda x, y, row, n: torch.add(x, y, alpha=0.5),
            "sub": lambda x, y, row, n: torch.sub(x, y, alpha=3),
            "rsub": lambda x, y, row, n: 2 - x,
            "div": lambda x, y, row, n: x / y,
            "floor": lambda x, y, row, n: torch.div(x, y, rounding_mode="floor"),
            "trunc": lambda x, y, row, n: torch.div(x * 9, y, rounding_mode="trunc"),
            "remainder": lambda x, y, row, n: torch.remainder(x, 0.7),
            "fmod": lambda x, y, row, n: torch.fmod(x, 0.7),
            "pow": lambda x, y, row, n: y.abs() ** 1.7 + x**3 + x**2,
            "pows": lambda x, y, row, n: 2.0**x,
            "addcmul": lambda x, y, row, n: torch.addcmul(x, y, row, value=0.3),
            "addcdiv": lambda x, y, row, n: torch.addcdiv(x, y, y + 9, value=0.3),
            "lerp": lambda x, y, row, n: torch.lerp(x, y, 0.3),
            "clamp": lambda x, y, row, n: x.clamp(-0.5, 0.5),
            "clamp one": lambda x, y, row, n: x.clamp(min=0.1) + y.clamp(max=2.9),
            "maximum": lambda x, y, row, n: torch.maximum(x, row) - torch.minimum(x, row),
            "mixed": lambda x, y, row, n: n * 0.5 + x,
            "whole": lambda x, y, row, n: n * 3 - n,
            "true division": lambda x, y, row, n: n / 4,
            "mean of bool": lambda x, y, row, n: (x > 0) * row,
            "sign": lambda x, y, row, n: torch.sign(x),
        }, x, y, row, n)  # fmt: skip

    def test_functions(self):
        x = randn(6, 5)
        names = ["neg", "abs", "exp", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "relu", "floor", "ceil",
                 "trunc", "square", "exp2", "expm1", "isnan", "isinf"]  # fmt: skip
        self.each({name: lambda x, f=getattr(torch, name): f(x) for name in names}, x)
        positive = ["log", "sqrt", "rsqrt", "reciprocal", "log2", "log10", "log1p"]
        self.each({name: lambda x, f=getattr(torch, name): f(x) for name in positive}, x.abs() + 0.1)

    def test_small_numbers_keep_their_digits(self):
        x = randn(64) * 1e-5
        y = compiled(lambda x: (torch.expm1(x), torch.log1p(x)))(x)
        for got, want in zip(y, (torch.expm1(x), torch.log1p(x))):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=0)

    def test_activations(self):
        x = randn(6, 50) * 4
        self.each({
            "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "elu": F.elu,
            "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "hardtanh": F.hardtanh, "relu6": F.relu6, "selu": F.selu,
            "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish, "softplus": F.softplus, "mish": F.mish,
            "celu": lambda x: F.celu(x, 0.7), "logsigmoid": F.logsigmoid, "glu": F.glu, "softsign": F.softsign,
        }, x)  # fmt: skip

    def test_gradients_of_activations(self):
        functions = [F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu, F.elu, F.leaky_relu, F.hardtanh, F.relu6,
                     F.hardsigmoid, F.hardswish, F.softplus, F.mish, torch.tanh, torch.sigmoid, F.relu,
                     F.logsigmoid, torch.sqrt]  # fmt: skip
        x = randn(3, 40) * 4
        x = torch.where(x.abs() < 0.01, 0.5, x).requires_grad_()

        def all_of(x):
            return sum((f(x.abs() if f is torch.sqrt else x) * (i + 1)).sum() for i, f in enumerate(functions))

        report = Report()
        (got,) = torch.autograd.grad(compiled(all_of, report)(x), x)
        (want,) = torch.autograd.grad(all_of(x), x)
        self.close(got / 100, want / 100)
        self.assertEqual([entry for graph in report for entry in graph.outside], [])

    def test_comparisons_and_choices(self):
        x, y, n = randn(4, 9), randn(9), integers(3, 4, 9)
        self.each({
            "compare": lambda x, y, n: (x > y) & (x < 1) | (n == 2),
            "more": lambda x, y, n: ((x >= y) ^ (n != 1), (x <= 0).logical_not(), ~(x > 0)),
            "where": lambda x, y, n: torch.where(x > 0, x, y),
            "where number": lambda x, y, n: torch.where(x > 0, 1.5, y),
            "fill": lambda x, y, n: x.masked_fill(n == 1, float("-inf")),
            "logic": lambda x, y, n: torch.logical_and(n, x > 0),
            "tril": lambda x, y, n: x.tril(1) + x.triu(-1),
            "cast": lambda x, y, n: ((x * 3).to(torch.int64), n.float(), (x > 0).to(torch.int32), n.bool()),
        }, x, y, n)  # fmt: skip

    def test_types(self):
        x, h = randn(4, 8), randn(4, 8, dtype=torch.bfloat16)
        self.each({
            "promotion": lambda x, h: (x + h, h + 1, h * 0.1, h + torch.ones(4, 8, dtype=torch.float16, device=DEVICE)),
            "scalar tensor": lambda x, h: h * x.sum(),
            "cast": lambda x, h: (x.bfloat16(), h.float(), x.half()),
            "double": lambda x, h: x.double() * 2,
        }, x, h)  # fmt: skip

    def test_views(self):
        x = randn(2, 6, 4)
        self.each({
            "view": lambda x: x.view(12, 4) + 1,
            "flatten": lambda x: x.flatten(1) * 2,
            "permute": lambda x: x.permute(2, 0, 1) + 1,
            "reshape": lambda x: x.transpose(1, 2).reshape(2, 24) + 1,
            "expand": lambda x: x[:, :1].expand(2, 6, 4) + x,
            "slice": lambda x: x[:, 1:5:2] * 2,
            "select": lambda x: x[:, -1] * 2,
            "split": lambda x: [a + i for i, a in enumerate(x.split(4, dim=1))],
            "chunk": lambda x: [a + i for i, a in enumerate(x.chunk(3, dim=1))],
            "unbind": lambda x: [a + i for i, a in enumerate(x.unbind(0))],
            "cat": lambda x: torch.cat([x, x[:, :2] * 2, x], 1),
            "stack": lambda x: torch.stack([x, x * 2], 1),
            "repeat": lambda x: x.repeat(2, 1, 3) * 2,
            "repeat_interleave": lambda x: x.repeat_interleave(2, dim=1) * 2,
            "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=0.5),
            "roll": lambda x: torch.roll(x, (1, -2), (1, 2)) * 2,
            "flip": lambda x: x.flip(1) * 2,
            "squeeze": lambda x: x[:1].squeeze(0).unsqueeze(1) * 2,
            "pixel_shuffle": lambda x: F.pixel_shuffle(x.view(1, 12, 2, 2), 2) * 2,
            "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :2] * 9, 1, 3, 5),
            "select_scatter": lambda x: torch.select_scatter(x, x[:, 0] * 9, 1, 2),
        }, x)  # fmt: skip

    def test_creation(self):
        x = randn(3, 5)
        self.each({
            "full": lambda x: torch.full((3, 5), 2.5, device=DEVICE) * x,
            "zeros": lambda x: torch.cat([x, torch.zeros(2, 5, device=DEVICE)]),
            "ones_like": lambda x: torch.ones_like(x) + x,
            "arange": lambda x: x + torch.arange(5, device=DEVICE),
            "arange steps": lambda x: x + torch.arange(1, 11, 2, device=DEVICE, dtype=torch.float32),
            "whole": lambda x: (x > 0).long() * torch.arange(5, device=DEVICE),
        }, x)  # fmt: skip

    def test_reductions(self):
        x, n = randn(3, 4, 5), integers(9, 3, 4, 5)
        self.each({
            "sum": lambda x, n: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), n.sum(), (x > 0).sum(1)),
            "mean": lambda x, n: (x.mean(), x.mean(-1, keepdim=True)),
            "max": lambda x, n: (x.amax(1), x.amin((0, 1)), x.max(), n.amax(0)),
            "any": lambda x, n: ((x > 0).any(1), (x > 0).all(), (n > 0).all(2, keepdim=True)),
            "prod": lambda x, n: x.prod(1),
            "var": lambda x, n: (x.var(), x.var(1, unbiased=False), x.std(2)),
            "var_mean": lambda x, n: torch.var_mean(x, 1),
            "norm": lambda x, n: (torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm(x, 1, dim=2)),
            "softmax": lambda x, n: (x.softmax(-1), x.log_softmax(1), x.logsumexp(0)),
        }, x, n)  # fmt: skip

    def test_products(self):
        a, b, s, t, v = randn(5, 7), randn(7, 3), randn(2, 5, 7), randn(2, 7, 4), randn(3)
        self.each({
            "mm": lambda a, b, s, t, v: a @ b,
            "addmm": lambda a, b, s, t, v: torch.addmm(v, a, b, beta=0.5, alpha=2),
            "bmm": lambda a, b, s, t, v: s @ t,
            "baddbmm": lambda a, b, s, t, v: torch.baddbmm(t[:, :5], s, t, alpha=0.5),
            "linear": lambda a, b, s, t, v: F.linear(s, b.t(), v),
            "einsum": lambda a, b, s, t, v: torch.einsum("bik,bkj->bji", s, t),
            "mv": lambda a, b, s, t, v: b @ v + torch.dot(v, v),
        }, a, b, s, t, v)  # fmt: skip

    def test_gathers(self):
        x, table, at = randn(4, 6, 3), randn(10, 5), integers(4, 2, 3)
        self.each({
            "embedding": lambda x, table, at: F.embedding(at, table),
            "index_select": lambda x, table, at: x.index_select(1, at.flatten()),
            "index": lambda x, table, at: x[at] + 1,
            "index in the middle": lambda x, table, at: x[:, at],
            "two indices": lambda x, table, at: x[at, at + 1],
            "from the back": lambda x, table, at: x[:, -at - 1],
            "gather": lambda x, table, at: torch.gather(x, 1, at[:, :, None].expand(2, 3, 3)),
        }, x, table, at)  # fmt: skip

    def test_windows(self):
        for place in (torch.contiguous_format, torch.channels_last):
            x = randn(2, 3, 9, 11, place=place)
            self.each({
                "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
                "indices": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
                "ceil_mode": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
                "avg_pool": lambda x: (F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
                "adaptive": lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x[..., :10], (3, 5))),
                "nearest": lambda x: F.interpolate(x, scale_factor=2),
                "bilinear": lambda x: F.interpolate(x, (13, 8), mode="bilinear"),
                "corners": lambda x: F.interpolate(x, (13, 8), mode="bilinear", align_corners=True),
            }, x)  # fmt: skip

    def test_losses(self):
        x, labels = randn(6, 10).requires_grad_(), integers(10, 6)
        labels[2] = -100
        for reduction in ("mean", "sum", "none"):
            report = Report()
            loss = compiled(lambda x, n: F.cross_entropy(x, n, reduction=reduction), report)(x, labels)
            want = F.cross_entropy(x, labels, reduction=reduction)
            self.close(loss, want, reduction)
            (got,) = torch.autograd.grad(loss.sum(), x)
            self.close(got, torch.autograd.grad(want.sum(), x)[0], reduction)
            self.assertEqual([entry for graph in report for entry in graph.outside], [])


class Convolution(nn.Module):
    def __init__(self, kind, *args, **named):
        super().__init__()
        self.conv = kind(*args, **named)

    def forward(self, x):
        return self.conv(x)


class Layers(Compile):
    def test_convolutions(self):
        image = torch.channels_last
        for layer, x in (
            (nn.Conv2d(4, 6, 3, padding=1), randn(2, 4, 9, 7)),
            (nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False), randn(2, 4, 9, 7, place=image)),
            (nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=6), randn(2, 6, 9, 7)),
            (nn.Conv2d(4, 6, 1, groups=2), randn(2, 4, 5, 5, place=image)),
            (nn.Conv1d(4, 6, 3, padding=1), randn(2, 4, 9)),
            (nn.Conv3d(2, 4, 3, padding=1), randn(1, 2, 5, 4, 6)),
            (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), randn(2, 4, 5, 5)),
            (nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), randn(2, 4, 5, 5)),
        ):
            with self.subTest(layer=str(layer)):
                torch._dynamo.reset()
                self.model(layer, x.requires_grad_())

    def test_norms(self):
        for layer, x in (
            (nn.LayerNorm(7), randn(3, 5, 7)),
            (nn.LayerNorm((5, 7), elementwise_affine=False), randn(3, 5, 7)),
            (nn.LayerNorm(7, bias=False), randn(3, 5, 7)),
            (nn.RMSNorm(7), randn(3, 5, 7)),
            (nn.GroupNorm(2, 6), randn(3, 6, 4, 5)),
            (nn.GroupNorm(3, 6), randn(3, 6, 4, 5, place=torch.channels_last)),
            (nn.BatchNorm2d(5), randn(4, 5, 3, 3)),
            (nn.BatchNorm2d(5), randn(4, 5, 3, 3, place=torch.channels_last)),
            (nn.BatchNorm2d(5).eval(), randn(4, 5, 3, 3)),
            (nn.BatchNorm1d(5), randn(6, 5)),
            (nn.InstanceNorm2d(5, affine=True), randn(4, 5, 3, 3)),
        ):
            with self.subTest(layer=str(layer)):
                torch._dynamo.reset()
                for parameter in layer.parameters():
                    nn.init.normal_(parameter)
                self.model(layer, x.requires_grad_())

    def test_pools_have_gradients(self):
        for layer in (nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d((3, 2)),
                      nn.AdaptiveAvgPool2d(1), nn.Upsample(scale_factor=2),
                      nn.Upsample(size=(9, 11), mode="bilinear")):  # fmt: skip
            for place in (torch.contiguous_format, torch.channels_last):
                # PyTorch 2.11's kernel for channels last on CUDA leaves the padding of an average's gradient out.
                is_average = isinstance(layer, nn.AvgPool2d) and layer.padding > 0
                if is_average and DEVICE == "cuda" and place == torch.channels_last:
                    continue
                with self.subTest(layer=str(layer)):
                    torch._dynamo.reset()
                    self.model(layer, randn(2, 3, 6, 8, place=place).requires_grad_())

    def test_attention(self):
        class Attention(nn.Module):
            def __init__(self, **named):
                super().__init__()
                self.named = named

            def forward(self, q, k, v):
                return F.scaled_dot_product_attention(q, k, v, **self.named)

        mask = torch.randn(1, 1, 6, 6, device=DEVICE)
        for named in ({}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": mask}, {"attn_mask": mask > 0}):
            with self.subTest(named=list(named)):
                q, k, v = (randn(2, 6, 3, 8).transpose(1, 2).requires_grad_() for _ in range(3))
                self.model(Attention(**named), q, k, v)


    def test_shared_heads(self):
        def attend(q, k, v):
            k, v = (x[:, :, None].expand(2, 2, 3, 6, 8).reshape(2, 6, 6, 8) for x in (k, v))
            return F.scaled_dot_product_attention(q, k, v) + F.scaled_dot_product_attention(
                q, k[:, ::3], v[:, ::3], enable_gqa=True)  # fmt: skip

        report = Report()
        q, k, v = randn(2, 6, 6, 8), randn(2, 2, 6, 8), randn(2, 2, 6, 8)
        self.close(compiled(attend, report)(q, k, v), attend(q, k, v))
        self.assertEqual([entry for graph in report for entry in graph.outside], [])

    def test_gradients_of_slices_are_concatenations(self):
        def function(x):
            a, b, c = x[0], x[1], x[2]
            return (x[:, ::2] * x[:, 1::2]).sum() + (a * 2 + b.exp() * c).sum() + (x[:, 1:3] * x[:, 4:]).sum() + x[:, :2].sin().sum()

        x, report = randn(3, 6, 4).requires_grad_(), Report()
        (got,) = torch.autograd.grad(compiled(function, report)(x), x)
        self.close(got, torch.autograd.grad(function(x), x)[0])
        self.assertEqual([entry for graph in report for entry in graph.outside], [])
        a = randn(3, 4).requires_grad_()
        loss = lambda a: (a[0] * 2 + a[1].exp() * a[2]).sum()  # noqa: E731
        report = Report()
        (got,) = torch.autograd.grad(compiled(loss, report)(a), a)
        self.close(got, torch.autograd.grad(loss(a), a)[0])
        kinds = [op.kind for op in report[1].parts[0].graph.ops]
        self.assertEqual((kinds.count("concatenate"), kinds.count("add")), (1, 0), kinds)

    def test_masks_that_are_constants_become_bounds(self):
        """Where a mask has passed through ops that no kernel makes of coordinates, its numbers are looked at."""

        def attend(q, window):
            at = torch.cumsum(torch.ones(9, device=DEVICE, dtype=torch.int64), 0)
            distance = at[:, None] - at[None]
            seen = (distance >= 0) & (distance < window)
            mask = torch.where(seen, 0.0, float("-inf")).expand(2, 1, 9, 9)
            return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

        for window, bound in ((100, "-1"), (3, "3")):
            report = Report()
            q = randn(2, 3, 9, 8)
            self.close(compiled(lambda q: attend(q, window), report)(q), attend(q, window))  # noqa: B023
            (part,) = report[0].parts
            self.assertEqual(report[0].outside, [])
            self.assertEqual(len(part.graph.inputs), 1)
            self.assertRegex(part.graph.to_json(), f'"left_bound": ?{bound}' if window < 9 else '"right_bound": ?0')

    def test_casts_are_toward_zero(self):
        x = torch.tensor([1.6, 2.7, -3.2, 0.3], device=DEVICE)
        self.each({
            "copy": lambda x: torch.zeros(4, dtype=torch.int64, device=DEVICE).copy_(x),
            "part": lambda x: torch.slice_scatter(torch.ones(6, dtype=torch.int32, device=DEVICE), x, 0, 1, 5),
            "to": lambda x: x.to(torch.int32) + 1,
        }, x)  # fmt: skip

    def test_whole_numbers_are_exact_in_powers_and_logarithms_of_2(self):
        for n in (torch.arange(-140, 128, device=DEVICE).float(), torch.arange(-500, 500, device=DEVICE).double()):
            torch._dynamo.reset()
            power, again = compiled(lambda n: (torch.exp2(n), torch.log2(torch.exp2(n))))(n)
            self.assertTrue(torch.equal(power, torch.ldexp(torch.ones_like(n), n)))
            self.assertTrue(torch.equal(again, n))

    def test_an_int64_without_dims_is_as_short_as_what_it_is_combined_with(self):
        x = torch.arange(4, dtype=torch.int32, device=DEVICE)
        for number in (5, 2**31 + 5, -(2**31) - 7, 2**33 + 1, -(2**40)):
            torch._dynamo.reset()
            n = torch.tensor(number, device=DEVICE)
            self.each({"add": lambda x, n: x + n, "mul": lambda x, n: n * x, "max": lambda x, n: torch.maximum(x, n)}, x, n)

    def test_edges_of_functions(self):
        x = torch.tensor([1e-9, -1e-9, 0.2283236, -3.0, 7.0, -7.5], device=DEVICE)
        whole = torch.tensor([7, -7, 2**31 - 3, -5, 0, 6], dtype=torch.int32, device=DEVICE)
        at = torch.tensor([6.0, 0.0, 3.0, -3.0, 1.0, float("inf")], device=DEVICE)
        self.each({
            "remainder": lambda x, n, at: (torch.remainder(x, 1.0), torch.remainder(x, -2.5), torch.remainder(x, x % 2 + 1)),
            "of integers": lambda x, n, at: (torch.remainder(n, 4), torch.remainder(n, -4), n % (2**31 - 2)),
            "quotients": lambda x, n, at: (n // 4, n // -4, torch.div(n, 3, rounding_mode="trunc"), n.long() // 5, n // 1),
            "floor": lambda x, n, at: (torch.div(at, x, rounding_mode="floor"), 1.0 // at, at // 0.1, at // 0.0, x // at),
            "powers": lambda x, n, at: torch.exp2(at) - 2.0**at,
            "log1p": lambda x, n, at: torch.log1p(at.abs()),
            "elu": lambda x, n, at: torch.ops.aten.elu(x, 1.5, 2.0, 0.5),
            "half": lambda x, n, at: x.half() == 0.2283236,
        }, x, whole, at)  # fmt: skip
        for name in ("relu6", "hardtanh", "hardsigmoid"):
            gradients = []
            for function in (compiled(getattr(F, name)), getattr(F, name)):
                torch._dynamo.reset()
                given = at[:5].clone().requires_grad_()
                gradients.append(torch.autograd.grad(function(given).sum(), given)[0])
            self.close(*gradients, name)

    def test_rows_that_a_mask_hides_are_zeros_and_have_no_gradients(self):
        mask = torch.ones(3, 4, dtype=torch.bool, device=DEVICE)
        mask[1] = False
        results = []
        for function in (compiled(F.scaled_dot_product_attention), F.scaled_dot_product_attention):
            torch.manual_seed(5)
            q, k, v = randn(1, 2, 3, 8).requires_grad_(), randn(1, 2, 4, 8).requires_grad_(), randn(1, 2, 4, 8)
            y = function(q, k, v, attn_mask=mask)
            results.append([y, *torch.autograd.grad((y * torch.arange(8.0, device=DEVICE)).sum(), (q, k))])
        for got, want in zip(*results):
            self.assertFalse(got.isnan().any())
            self.close(got, want.nan_to_num(0.0))

    def test_masks_that_pytorch_would_take_apart_stay(self):
        from unittest import mock

        def attend(q, k, m):
            return F.scaled_dot_product_attention(q, k, k, attn_mask=m)

        with mock.patch("fusor.torch._attention._stays", lambda *args: True):
            for m in (integers(2, 2, 1, 9, 11) == 0, randn(1, 3, 1, 11), randn(9, 11)):
                torch._dynamo.reset()
                report = Report()
                q, k = randn(2, 3, 9, 8).requires_grad_(), randn(2, 3, 11, 8)
                got, want = compiled(attend, report)(q, k, m), attend(q, k, m)
                self.close(got, want)
                self.close(*(torch.autograd.grad(y.sum(), q)[0] for y in (got, want)))
                self.assertIn("sdpa_fwd", [op.kind for op in report[0].parts[0].graph.ops])

    def test_sums_at_indices(self):
        x, n, wide = randn(20, 6), integers(20, 3, 7), randn(4, 5, 6, 3)
        j, k, m, source = integers(10, 7, 1) - 5, integers(6, 2), integers(6, 20, 4), randn(20, 4)
        cases = {
            "embedding": lambda x, wide: F.embedding(n, x),
            "padding": lambda x, wide: F.embedding(n, x, padding_idx=3),
            "index": lambda x, wide: x[n - 10],
            "indices": lambda x, wide: wide[:, j, k],
            "index_select": lambda x, wide: x.index_select(1, k),
            "gather": lambda x, wide: x.gather(1, m),
            "scatter_add": lambda x, wide: x.scatter_add(1, m, source),
            "index_add": lambda x, wide: x.index_add(0, n[0], x[:7]),
            "index_put": lambda x, wide: x.index_put((n,), x[0] * 2, accumulate=True),
        }
        for name, case in cases.items():
            for dtype in (torch.float32, torch.bfloat16):
                torch._dynamo.reset()
                source = source.to(dtype)
                given = [each.to(dtype).requires_grad_() for each in (x, wide)]
                report = Report()
                got, want = compiled(case, report)(*given), case(*given)
                self.close(got, want, name)
                weights = randn(*want.shape).to(dtype)
                gradients = [torch.autograd.grad((y * weights).sum(), given, allow_unused=True) for y in (got, want)]
                for a, b in zip(*gradients):
                    self.close(a, b, name) if a is not None else self.assertIsNone(b)
                self.assertEqual([graph.outside for graph in report], [[], []], name)

    def test_embeddings_of_many_words_have_gradients_of_pytorch(self):
        from unittest import mock

        words, report = integers(300, 70), Report()
        table = randn(300, 4).requires_grad_()
        with mock.patch.dict("fusor.torch._aten.pairs.MOST", {DEVICE: 80000}):
            got, want = (f(words, table) for f in (compiled(F.embedding, report), F.embedding))
            self.close(*(torch.autograd.grad((y * y).sum(), table)[0] for y in (got, want)))
        (entry,) = report[1].outside
        self.assertEqual((entry.op, entry.reason), ("aten.embedding_dense_backward",
                         "70 indices of 300 places: 84000 comparisons, more than 80000"))  # fmt: skip

    def test_many_sums_of_16_bits_are_a_product(self):
        from fusor.torch._aten import planned_for

        words, places = integers(300, 200), torch.arange(300, device=DEVICE)
        table = randn(300, 600, dtype=torch.bfloat16).requires_grad_()
        report = Report()
        with planned_for("cuda"):
            (got,) = torch.autograd.grad(compiled(F.embedding, report)(words, table).sum(), table)
        self.close(got, (words == places[:, None]).sum(1, keepdim=True).expand(300, 600).to(got.dtype))
        self.assertEqual([op.kind for op in report[1].parts[0].graph.ops].count("matmul"), 1)

    def test_caches_that_are_empty_at_first(self):
        """Concatenations with them, as generators of text make."""
        report, x = Report(), randn(2, 3)
        f = lambda x: torch.cat([torch.tensor([], device=DEVICE), x * 2], -2).sin()  # noqa: E731
        self.close(compiled(f, report)(x), f(x))
        self.assertEqual([entry.op for entry in report[0].outside], ["aten.lift_fresh_copy"])
        self.assertEqual(len(report[0].parts), 1)
        self.close(compiled(lambda x: x[:0].sum() + x)(x), x)

    def test_writes_at_indices(self):
        x, n = randn(20, 6), torch.tensor([3, -1, 7], device=DEVICE)
        m = torch.randperm(6, device=DEVICE)[:4].expand(20, 4)
        self.each({
            "scatter": lambda x: x.scatter(1, m, x[:, :4] * 2),
            "number": lambda x: x.scatter(1, m, 0.5),
            "index_put": lambda x: x.index_put((n,), x[4:7] * 2),
            "row": lambda x: x.index_put((n,), x[0] * 2),
        }, x)  # fmt: skip

    def test_what_is_found_by_its_size(self):
        x, whole = randn(3, 9, 4), integers(5, 3, 9).int()
        odd = torch.tensor([[1.0, math.nan, 3.0, -math.inf, math.nan, math.inf, 3.0, -0.0]], device=DEVICE)
        self.each({
            "argmax": lambda x, n, odd: (x.argmax(1), x.argmax(), n.argmax(1), odd.argmax(1), odd.argmax()),
            "argmin": lambda x, n, odd: (x.argmin(-1, keepdim=True), n.argmin(1), odd.argmin(1)),
            "max": lambda x, n, odd: (*x.max(1), *x.min(0, keepdim=True), *n.max(1), *odd.max(1), *odd.min(1)),
            "topk": lambda x, n, odd: (*x.topk(3, 1), *x.topk(2, 2, largest=False), *x.topk(9, 1), *odd.topk(5)[:1]),
            "sort": lambda x, n, odd: (*x.sort(1), *x.sort(0, descending=True), x.argsort(2)),
            "stable": lambda x, n, odd: (*n.sort(stable=True), *n.sort(stable=True, dim=0, descending=True)),
            "odd": lambda x, n, odd: (*odd.sort(stable=True), *odd.sort(stable=True, descending=True)),
            "types": lambda x, n, odd: (*x.bfloat16().topk(2, 1), *x.double().topk(2, 1)),
        }, x, whole, odd)  # fmt: skip
        for f in (lambda x: x.topk(3, 1)[0], lambda x: x.sort(1)[0] * 2, lambda x: x.max(1)[0]):
            torch._dynamo.reset()
            given, report = randn(3, 9, 4).requires_grad_(), Report()
            weights = randn(*f(given).shape)
            pair = compiled(f, report)(given), f(given)
            self.close(*(torch.autograd.grad((y * weights).sum(), given)[0] for y in pair))
            self.assertEqual([graph.outside for graph in report], [[], []])

    def test_cumulative_sums(self):
        from fusor.torch._aten import planned_for

        x, n = randn(3, 9), integers(5, 3, 9)
        self.each({
            "real": lambda x, n: (x.cumsum(0), x.cumsum(-1), x.bfloat16().cumsum(1), x.cumsum(1, dtype=torch.float64)),
            "whole": lambda x, n: (n.cumsum(1), (n > 2).cumsum(1), n.int().cumsum(0), (n * 2**40).cumsum(1)),
        }, x, n)  # fmt: skip
        with planned_for("cuda"):
            for dims, axis in (((5000, 2), 0), ((2, 300, 2), 1), ((3, 128), 1)):
                torch._dynamo.reset()
                x = integers(9, *dims).float()
                self.each({"long": lambda x: (x.cumsum(axis), (x > 4).cumsum(axis))}, x)  # noqa: B023
        report, x = Report(), randn(4, 7).requires_grad_()
        weights = randn(4, 7)
        f = lambda x: x.cumsum(1)  # noqa: E731
        self.close(*(torch.autograd.grad((y * weights).sum(), x)[0] for y in (compiled(f, report)(x), f(x))))

    def test_long_orders_are_pytorchs(self):
        from unittest import mock

        x, report = randn(4, 30), Report()
        with mock.patch.dict("fusor.torch._aten.pairs.MOST", {DEVICE: 1000}):
            run = compiled(lambda x: (x.topk(3), x.cumsum(1)), report)
            for got, want in zip(torch.utils._pytree.tree_leaves(run(x)), (*x.topk(3), x.cumsum(1))):
                self.close(got, want)
        reasons = {entry.op: entry.reason for entry in report[0].outside}
        self.assertEqual(reasons, {
            "aten.topk": "the order of 30 elements in 4 rows: 3960 comparisons, more than 1000",
            "aten.cumsum": "cumulative sums of 30: 3600 comparisons, more than 1000",
        })  # fmt: skip

    def test_rows_of_a_safe_softmax_that_see_nothing_are_zeros(self):
        x = randn(2, 5, 7)
        x[0, 3] = -float("inf")
        self.each({"safe": lambda x: torch.ops.aten._safe_softmax(x, -1)}, x)

    def test_other_constants_are_read(self):
        def function(x):
            regions = x.new_zeros(4, 6)
            regions[:2], regions[2:, :3] = 1, 2
            alike = regions.view(-1, 1) == regions.view(1, -1)
            return x * regions + alike.float()[:4, :6].masked_fill(regions > 1, -100.0)

        report = Report()
        x = randn(4, 6)
        torch.use_deterministic_algorithms(True)  # memory that nobody wrote is NaN
        self.addCleanup(torch.use_deterministic_algorithms, False)
        self.close(compiled(function, report)(x), function(x))
        self.assertEqual([len(graph.parts) for graph in report], [1])
        self.assertLess(len(report[0].parts[0].graph.ops), 12)


if __name__ == "__main__":
    unittest.main()

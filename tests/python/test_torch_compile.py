"""Tests of fusor as a backend of torch.compile, on the CPU or a GPU. Skips itself where there is no PyTorch."""

import sys
import unittest

import fusor

try:
    import torch
    import torch.nn.functional as F

    import fusor.torch
    from fusor.torch import Report
    from torch._dynamo.backends.common import aot_autograd  # noqa: F401
except ImportError:
    print("skipped: there is no PyTorch")
    sys.exit(77)

from torch import nn

ON_GPU = torch.cuda.is_available() and not fusor.DeviceInfo.current().is_cpu
DEVICE = "cuda" if ON_GPU else "cpu"
torch.backends.cudnn.allow_tf32 = False  # what is compared with is not rounded
TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 4e-2, torch.float16: 5e-3, torch.float64: 1e-6}


def randn(*dims, dtype=torch.float32, place=torch.contiguous_format):
    x = torch.randn(*dims, device=DEVICE)
    return x.to(dtype).contiguous(memory_format=place)


def integers(high, *dims):
    return torch.randint(0, high, dims, device=DEVICE)


def compiled(function, report=None, **options):
    """The function behind the backend; what is outside of graphs is in the report."""
    import functools

    from fusor.torch import backend

    return torch.compile(function, backend=functools.partial(backend, report=report, options=options), dynamic=False)


class Compile(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()

    def close(self, got, want, what="", tolerance=None):
        self.assertEqual(got.dtype, want.dtype, what)
        self.assertEqual(got.shape, want.shape, what)
        if not want.dtype.is_floating_point:
            self.assertTrue(torch.equal(got, want), f"{what}: {got} is not {want}")
            return
        limit = tolerance or TOLERANCE[want.dtype]
        torch.testing.assert_close(got, want, rtol=limit, atol=limit, msg=lambda text: f"{what}: {text}",
                                   equal_nan=True)  # fmt: skip

    def each(self, cases, *inputs, outside=()):
        """Cases by name, functions of the inputs: compiled as one function, each compared with PyTorch. Only `outside`
        may be ops that PyTorch runs."""
        report = Report()

        def all_of(*inputs):
            return [case(*inputs) for case in cases.values()]

        with torch.no_grad():
            results = compiled(all_of, report)(*inputs)
            for name, result, case in zip(cases, results, cases.values()):
                want = case(*inputs)
                pairs = zip(result, want) if isinstance(want, (tuple, list)) else [(result, want)]
                for got, right in pairs:
                    self.close(got, right, name)
                    if DEVICE == "cpu":  # on CUDA PyTorch's own traces say other strides than its kernels give
                        self.assertEqual(got.stride(), right.stride(), name)
        found = {entry.op: entry.reason for graph in report for entry in graph.outside}
        self.assertEqual(sorted(found), sorted(outside), found)

    def model(self, model, *inputs, backward=True, tolerance=None, outside=(), **options):
        """A module behind the backend: results, gradients and buffers as PyTorch's."""
        import copy

        model = model.to(DEVICE)
        model.zero_grad()
        twin = copy.deepcopy(model)
        theirs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        report = Report()
        got, want = compiled(model, report, **options)(*inputs), twin(*theirs)
        self.close(got, want, "result", tolerance)
        if backward:
            weights = torch.randn_like(want)
            (got * weights).sum().backward()
            (want * weights).sum().backward()
            pairs = [*zip(inputs, theirs), *zip(model.parameters(), twin.parameters())]
            names = [f"input {i}" for i in range(len(inputs))] + [name for name, _ in model.named_parameters()]
            for name, (a, b) in zip(names, pairs):
                self.assertEqual(a.grad is None, b.grad is None, name)
                if a.grad is not None:
                    self.close_gradient(a.grad, b.grad, name, tolerance)
        for (name, a), b in zip(model.named_buffers(), twin.buffers()):
            self.close(a, b, name, tolerance)
        found = {entry.op: entry.reason for graph in report for entry in graph.outside}
        self.assertEqual(sorted(found), sorted(outside), found)
        return report

    def close_gradient(self, got, want, name, tolerance):
        """Gradients are sums, whose error is one of their largest element's size."""
        scale = max(1.0, want.abs().max().item())
        self.close(got / scale, want / scale, f"gradient of {name}", tolerance)


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

    def test_edges_of_functions(self):
        x = torch.tensor([1e-9, -1e-9, 0.2283236, -3.0, 7.0, -7.5], device=DEVICE)
        whole = torch.tensor([7, -7, 2**31 - 3, -5, 0, 6], dtype=torch.int32, device=DEVICE)
        at = torch.tensor([6.0, 0.0, 3.0, -3.0, 1.0, float("inf")], device=DEVICE)
        self.each({
            "remainder": lambda x, n, at: (torch.remainder(x, 1.0), torch.remainder(x, -2.5), torch.remainder(x, x % 2 + 1)),
            "of integers": lambda x, n, at: (torch.remainder(n, 4), torch.remainder(n, -4), n % (2**31 - 2)),
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

        with mock.patch("fusor.torch._masked._stays", lambda *args: True):
            for m in (integers(2, 2, 1, 9, 11) == 0, randn(1, 3, 1, 11), randn(9, 11)):
                torch._dynamo.reset()
                report = Report()
                q, k = randn(2, 3, 9, 8).requires_grad_(), randn(2, 3, 11, 8)
                got, want = compiled(attend, report)(q, k, m), attend(q, k, m)
                self.close(got, want)
                self.close(*(torch.autograd.grad(y.sum(), q)[0] for y in (got, want)))
                self.assertIn("sdpa_fwd", [op.kind for op in report[0].parts[0].graph.ops])

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


class Residual(nn.Module):
    """A block of ResNet: convolutions, batch norm, a shortcut."""

    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(c), nn.BatchNorm2d(c)

    def forward(self, x):
        return F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))


class Transformer(nn.Module):
    """A block of a ViT, of GPT-2 (causal) or of BERT (norms behind)."""

    def __init__(self, width=24, heads=3, causal=False, norm_first=True):
        super().__init__()
        self.heads, self.causal, self.norm_first = heads, causal, norm_first
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.na, self.nb = nn.LayerNorm(width), nn.LayerNorm(width)

    def attend(self, x):
        b, s, c = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, s, c))

    def forward(self, x):
        if self.norm_first:
            x = x + self.attend(self.na(x))
            return x + self.down(F.gelu(self.up(self.nb(x)), approximate="tanh"))
        x = self.na(x + self.attend(x))
        return self.nb(x + self.down(F.gelu(self.up(x))))


class ConvNeXt(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(c, c, 7, padding=3, groups=c), nn.LayerNorm(c)
        self.up, self.down, self.scale = nn.Linear(c, 4 * c), nn.Linear(4 * c, c), nn.Parameter(torch.ones(c))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class MobileNet(nn.Module):
    """An inverted residual with squeeze and excitation."""

    def __init__(self, c):
        super().__init__()
        self.up, self.depthwise = nn.Conv2d(c, 3 * c, 1), nn.Conv2d(3 * c, 3 * c, 3, padding=1, groups=3 * c)
        self.squeeze, self.excite, self.down = (
            nn.Conv2d(3 * c, c, 1), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(3 * c, c, 1))  # fmt: skip
        self.norm = nn.BatchNorm2d(3 * c)

    def forward(self, x):
        y = F.hardswish(self.norm(self.depthwise(F.hardswish(self.up(x)))))
        y = y * F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        return x + self.down(y)


class UNet(nn.Module):
    """A level of a U-Net: group norm, SiLU, down, up, a concatenation."""

    def __init__(self, c):
        super().__init__()
        self.norm, self.down = nn.GroupNorm(2, c), nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.up, self.out = nn.Conv2d(2 * c, c, 3, padding=1), nn.Conv2d(2 * c, c, 3, padding=1)

    def forward(self, x):
        y = self.down(F.silu(self.norm(x)))
        return self.out(torch.cat([x, self.up(F.interpolate(y, scale_factor=2))], 1))


class Models(Compile):
    def test_residual_block_with_running_statistics(self):
        for place in (torch.contiguous_format, torch.channels_last):
            model = Residual(6).to(memory_format=place)
            report = self.model(model, randn(2, 6, 8, 8, place=place).requires_grad_())
            self.assertEqual([len(graph.parts) for graph in report], [1, 1])

    def test_residual_block_in_inference(self):
        with torch.no_grad():
            self.model(Residual(6).eval(), randn(2, 6, 8, 8), backward=False)

    def test_transformers(self):
        for named in ({}, {"causal": True}, {"norm_first": False}):
            with self.subTest(**named):
                report = self.model(Transformer(**named), randn(2, 10, 24).requires_grad_())
                self.assertEqual([len(graph.parts) for graph in report], [1, 1])

    def test_convolutional_blocks(self):
        for model in (ConvNeXt(6), MobileNet(4), UNet(4)):
            for place in (torch.contiguous_format, torch.channels_last):
                with self.subTest(model=type(model).__name__, place=str(place)):
                    c = 6 if isinstance(model, ConvNeXt) else 4
                    x = randn(2, c, 8, 8, place=place).requires_grad_()
                    self.model(model.to(memory_format=place), x)

    def test_bf16(self):
        self.model(Transformer().bfloat16(), randn(2, 10, 24, dtype=torch.bfloat16).requires_grad_())
        self.model(Residual(8).bfloat16(), randn(2, 8, 8, 8, dtype=torch.bfloat16).requires_grad_())

    def test_autocast(self):
        model = Transformer()

        class Cast(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, x):
                with torch.autocast(DEVICE, torch.bfloat16):
                    return self.model(x)

        self.model(Cast(), randn(2, 10, 24).requires_grad_(), tolerance=4e-2)

    def test_a_training_step(self):
        """Three steps of SGD go the same way."""
        import copy

        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                              nn.Linear(8 * 36, 5)).to(DEVICE)  # fmt: skip
        twin = copy.deepcopy(model)
        for net, run in ((model, compiled(model)), (twin, twin)):
            torch.manual_seed(1)
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for _ in range(3):
                optimizer.zero_grad()
                F.cross_entropy(run(randn(4, 3, 6, 6)), integers(5, 4)).backward()
                optimizer.step()
        for (name, a), b in zip(model.state_dict().items(), twin.state_dict().values()):
            self.close(a, b, name, 1e-3)


class Rest(Compile):
    def test_what_nobody_converts_runs_eagerly(self):
        report = Report()
        x = randn(4, 9)
        function = lambda x: torch.relu(torch.cumsum(x * 2, 1) + torch.sort(x + 1, 1).values)  # noqa: E731
        self.close(compiled(function, report)(x), function(x))
        (graph,) = report
        self.assertEqual({entry.op for entry in graph.outside}, {"aten.cumsum", "aten.sort"})
        self.assertEqual(len(graph.parts), 2)
        self.assertIn("no converter", str(report))

    def test_a_node_that_fails_among_others_runs_eagerly(self):
        from fusor.torch import _aten

        sin = torch.ops.aten.sin.default
        kept = _aten.CONVERTERS[sin]

        def converted(c, x):
            if ":" in x.name:  # a result of another op, not an input as where the node is tried alone
                raise ValueError("not here")
            return kept(c, x)

        _aten.CONVERTERS[sin] = converted
        try:
            report, x = Report(), randn(4)
            self.close(compiled(lambda x: (x * 2).sin() + (x * 3).cos(), report)(x), (x * 2).sin() + (x * 3).cos())
        finally:
            _aten.CONVERTERS[sin] = kept
        self.assertEqual([(entry.op, entry.count) for entry in report[0].outside], [("aten.sin", 1)])
        self.assertIn("not here", str(report))

    def test_chains_of_eager_ops_make_no_cycles(self):
        def function(x):
            a = torch.cumsum(x + 1, 0)
            b = x * 2
            return torch.cumsum(a * b, 0) + a.exp() * b

        x = randn(5, 3)
        self.close(compiled(function)(x), function(x))

    def test_results_that_are_inputs_and_views(self):
        function = lambda x, y: (x, x.t(), x[1:], y + 1, (y + 1).t(), x.expand(3, 4, 5), y.view(-1))  # noqa: E731
        x, y = randn(4, 5), randn(3, 2)
        got, want = compiled(function)(x, y), function(x, y)
        for a, b in zip(got, want):
            self.close(a, b)
            self.assertEqual(a.stride(), b.stride())
        self.assertEqual(got[1].data_ptr(), x.data_ptr())
        self.assertEqual(got[2].data_ptr(), x[1:].data_ptr())

    def test_a_result_that_is_there_twice(self):
        function = lambda x: (x * 2, x * 2, (x * 2).clone(), x.clone())  # noqa: E731
        x = randn(4)
        for a, b in zip(compiled(function)(x), function(x)):
            self.close(a, b)

    def test_inputs_that_are_written(self):
        def function(x, y):
            x.add_(1)
            y[1:] = x[:2] * 2
            return x * y

        ours, theirs = (randn(3, 4), randn(3, 4)), []
        theirs = [x.clone() for x in ours]
        self.close(compiled(function)(*ours), function(*theirs))
        for a, b in zip(ours, theirs):
            self.close(a, b)

    def test_places_other_than_planned(self):
        """Addresses that are not multiples of 16 bytes, strides with gaps."""
        function = lambda x: x.relu() + 1  # noqa: E731
        run = compiled(function)
        wide = randn(65)
        for x in (wide[1:], wide[:64], wide[::2], randn(8, 9)[:, :8], randn(3, 1).expand(3, 5)):
            self.close(run(x), function(x))

    def test_dropout_is_random_and_keeps_the_mean(self):
        x = torch.ones(40, 50, device=DEVICE, requires_grad=True)
        report = Report()
        run = compiled(lambda x: F.dropout(x * 2, 0.25) * 3, report)
        y = run(x)
        y.sum().backward()
        kept = y != 0
        self.assertGreater(kept.float().mean().item(), 0.68)
        self.assertLess(kept.float().mean().item(), 0.82)
        self.close(y[kept], torch.full_like(y[kept], 8.0))
        self.close(x.grad, torch.where(kept, 8.0, 0.0))
        self.assertFalse(torch.equal(run(x), y))
        self.assertEqual([len(graph.parts) for graph in report], [1, 1])

    def test_dims_that_change(self):
        run = torch.compile(lambda x: x * 2 + 1, backend="fusor", dynamic=True)
        with self.assertLogs("fusor.torch", "WARNING") as logged:
            for n in (3, 5):
                x = randn(n, 4)
                self.close(run(x), x * 2 + 1)
        self.assertIn("dynamic=False", logged.output[0])

    def test_options(self):
        x = randn(8, 8)
        run = torch.compile(lambda x: x @ x, backend="fusor", options={"precision": "strict"})
        self.close(run(x), x @ x)
        x = randn(8, 8, dtype=torch.bfloat16)
        for rounding in ("stored", "always"):
            run = compiled(lambda x: (x * 1.01 + 0.3).relu(), rounding=rounding)  # noqa: B023
            self.close(run(x), (x * 1.01 + 0.3).relu())
        with self.assertRaisesRegex(Exception, "no option 'speed'.*precision"):
            torch.compile(lambda x: x @ x, backend="fusor", options={"speed": 2})(x)

    def test_explain_and_trace(self):
        model = Transformer().to(DEVICE)
        x = randn(2, 10, 24)
        for report in (fusor.torch.explain(model, x, backward=True), fusor.torch.trace(model, x, backward=True)):
            self.assertEqual([graph.kind for graph in report], ["forward", "backward"])
            self.assertEqual([len(graph.parts) for graph in report], [1, 1])
        graph = report[0].parts[0].graph
        self.assertGreater(fusor.candidates(graph, "H200")[0].seconds, 0)
        self.assertIsNone(report[0].parts[0].plan)

    def test_unused_and_constant_results(self):
        def function(x):
            return torch.ones(3, device=DEVICE), torch.arange(4, device=DEVICE), x.sum() * 0 + 1

        for a, b in zip(compiled(function)(randn(2, 2)), function(randn(2, 2))):
            self.close(a, b)

    def test_doubles(self):
        x = randn(5, 6).double()
        self.close(compiled(lambda x: (x @ x.t()).softmax(1))(x), (x @ x.t()).softmax(1))


if __name__ == "__main__":
    unittest.main()

"""Tests of fusor as a backend of torch.compile, on the CPU or a GPU: models, and what surrounds graphs. Skips itself where
there is no PyTorch."""
import unittest

from compile_case import DEVICE, Compile, compiled, integers, randn  # ends here where there is no PyTorch

import torch
import torch.nn.functional as F
from torch import nn

import fusor.torch
from fusor.torch import Report


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
        function = lambda x: torch.relu(torch.logcumsumexp(x * 2, 1) + torch.cummax(x + 1, 1).values)  # noqa: E731
        self.close(compiled(function, report)(x), function(x))
        (graph,) = report
        self.assertEqual({entry.op for entry in graph.outside}, {"aten.logcumsumexp", "aten.cummax"})
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
            a = torch.logcumsumexp(x + 1, 0)
            b = x * 2
            return torch.logcumsumexp(a * b, 0) + a.exp() * b

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

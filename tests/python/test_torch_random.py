"""Tests of fusor as a backend of torch.compile where models draw random numbers, on the CPU or a GPU. Skips itself
where there is no PyTorch."""
import math
import unittest
from unittest import mock

from compile_case import DEVICE, Compile, compiled, integers, randn  # ends here where there is no PyTorch

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import fusor.torch
from fusor.torch import Report

TYPES = (torch.float32, torch.float16, torch.bfloat16)


class Bert(nn.Module):
    """Words, places and two layers, with dropout wherever BERT has it."""

    def __init__(self, width=24, heads=3, layers=2, rate=0.1):
        super().__init__()
        self.heads, self.rate = heads, rate
        self.words, self.places = nn.Embedding(50, width), nn.Parameter(randn(16, width))
        self.norm = nn.LayerNorm(width)
        linear = lambda rows, columns: nn.ModuleList(nn.Linear(rows, columns) for _ in range(layers))  # noqa: E731
        self.qkv, self.out = linear(width, 3 * width), linear(width, width)
        self.up, self.down = linear(width, 4 * width), linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))

    def drop(self, x):
        return F.dropout(x, self.rate, self.training)

    def attend(self, x, at, mask):
        b, s, c = x.shape
        q, k, v = self.qkv[at](x).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        rate = self.rate if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate)
        return self.drop(self.out[at](y.transpose(1, 2).reshape(b, s, c)))

    def forward(self, words, mask=None):
        x = self.drop(self.norm(self.words(words) + self.places[: words.shape[1]]))
        for at in range(len(self.qkv)):
            x = self.norms[2 * at](x + self.attend(x, at, mask))
            x = self.norms[2 * at + 1](x + self.drop(self.down[at](F.gelu(self.up[at](x)))))
        return x


class Random(Compile):
    def run_of(self, function, **options):
        self.report = Report()
        return compiled(function, self.report, **options)

    def parts(self):
        return [(graph.kind, len(graph.parts)) for graph in self.report]

    def kinds(self):
        return [op.kind for graph in self.report for part in graph.parts for op in part.graph.ops]

    def outside(self):
        return sorted({entry.op for graph in self.report for entry in graph.outside})

    def rate(self, got, want, count, what=""):
        """A rate of events within five deviations."""
        self.assertLess(abs(got - want), 5 * math.sqrt(want * (1 - want) / count) + 1e-9, what)

    def seeded(self, run, *inputs, seed=7):
        torch.manual_seed(seed)
        return run(*inputs)

    def test_dropout_keeps_its_rate_and_scales_what_it_keeps(self):
        for dtype in TYPES:
            for p in (0.1, 0.5, 0.75):
                torch._dynamo.reset()
                x = torch.full((200, 300), 2.0, dtype=dtype, device=DEVICE)
                y = self.run_of(lambda x: F.dropout(x, p) * 1)(x)  # noqa: B023
                kept = y != 0
                self.rate(kept.float().mean().item(), 1 - p, x.numel(), f"{dtype} {p}")
                for axis in (0, 1):  # no row or column is drawn by fewer numbers than it has
                    self.assertLess(kept.float().mean(axis).sub(1 - p).abs().max().item(), 0.25)
                self.close(y[kept], x[kept] / (1 - p))
                self.assertEqual((self.outside(), len(self.report[0].parts)), ([], 1))

    def test_gradients_of_dropout_have_its_mask(self):
        for dtype in TYPES:
            torch._dynamo.reset()
            x = (randn(64, 48).abs() + 1).to(dtype).requires_grad_()
            y = self.run_of(lambda x: F.dropout(F.dropout(x * 2, 0.25).sin().abs() + 1, 0.5))(x)
            (dy,) = torch.autograd.grad(y.sum(), x)
            inner = (dy != 0)[y != 0]
            self.assertEqual((dy != 0)[y == 0].sum().item(), 0)
            self.rate(inner.float().mean().item(), 0.75, inner.numel())
            self.assertEqual(self.parts(), [("forward", 1), ("backward", 1)])
            self.assertNotIn("bool8", [each.type.name for each in self.report[1].parts[0].graph.inputs])

    def test_a_graph_draws_one_seed_and_its_ops_are_independent(self):
        draws = []

        def draw(*args, **named):
            draws.append(args)
            return randint(*args, **named)

        randint = torch.randint
        run = self.run_of(lambda x: [F.dropout(x, 0.5) for _ in range(6)] + [torch.rand_like(x) for _ in range(2)])
        x = torch.ones(100, 80, device=DEVICE)
        with mock.patch("torch.randint", draw):
            masks = [y.gt(0.5).float() for y in run(x)]
            self.assertEqual(len(draws), 1)
            run(x)
            self.assertEqual(len(draws), 2)
        for i, a in enumerate(masks):
            for b in masks[:i]:
                self.rate((a == b).float().mean().item(), 0.5, x.numel())

    def test_calls_differ_and_a_seed_repeats_them(self):
        x = randn(40, 50)
        run = self.run_of(lambda x: (F.dropout(x, 0.3), torch.rand_like(x), torch.randn(7, 3, device=DEVICE)))
        first, second, again, other = self.seeded(run, x), run(x), self.seeded(run, x), self.seeded(run, x, seed=8)
        for a, b, c, d in zip(first, second, again, other):
            self.assertTrue(torch.equal(a, c))
            self.assertFalse(torch.equal(a, b) or torch.equal(a, d))
        state = torch.get_rng_state() if DEVICE == "cpu" else torch.cuda.get_rng_state()
        kept = run(x)
        (torch.set_rng_state if DEVICE == "cpu" else torch.cuda.set_rng_state)(state)
        for a, b in zip(kept, run(x)):
            self.assertTrue(torch.equal(a, b))

    def test_graphs_and_pytorch_make_the_same_numbers(self):
        """So that a forward and a backward pass may each run in either."""
        from fusor.torch import _random

        x = randn(5, 7, 3)
        for dtype in TYPES:
            torch._dynamo.reset()
            named = {"dtype": dtype, "device": DEVICE}
            run = self.run_of(lambda x: (torch.rand(5, 7, 3, **named), x.bernoulli(0.3), torch.randn(5, 7, 3, **named)))
            even, some, normal = self.seeded(run, x)
            self.assertEqual((self.outside(), len(self.report[0].parts)), ([], 1))
            torch.manual_seed(7)
            seed = _random.SEED(x.device)
            self.assertTrue(torch.equal(even, _random.UNIFORM(seed, 0, x.shape, dtype)))
            self.assertTrue(torch.equal(some.bool(), _random.BERNOULLI(seed, 1, x.shape, 0.3)))
            self.close(normal, _random.NORMAL(seed, 2, x.shape, dtype))

    def test_distributions(self):
        cases = {
            "rand": (lambda x: torch.rand(300, 200, device=DEVICE), 0.5, 1 / math.sqrt(12)),
            "rand_like": (torch.rand_like, 0.5, 1 / math.sqrt(12)),
            "randn": (lambda x: torch.randn(300, 200, device=DEVICE), 0, 1),
            "randn_like": (torch.randn_like, 0, 1),
            "bernoulli": (lambda x: torch.bernoulli(torch.full_like(x, 0.2)), 0.2, 0.4),
            "bernoulli_": (lambda x: torch.empty_like(x).bernoulli_(0.8), 0.8, 0.4),
            "of a tensor": (lambda x: torch.empty_like(x).bernoulli_(torch.full_like(x, 0.5)), 0.5, 0.5),
            "uniform_": (lambda x: torch.empty_like(x).uniform_(-3, 1), -1, 4 / math.sqrt(12)),
            "normal_": (lambda x: torch.empty_like(x).normal_(2, 3), 2, 3),
            "normal": (lambda x: torch.normal(torch.full_like(x, 4), 2), 4, 2),
            "deviations": (lambda x: torch.normal(1, torch.full_like(x, 2)), 1, 2),
            "exponential_": (lambda x: torch.empty_like(x).exponential_(2), 0.5, 0.5),
        }
        x = randn(300, 200)
        results = self.run_of(lambda x: [make(x) for make, _, _ in cases.values()])(x)
        self.assertEqual((self.outside(), len(self.report[0].parts)), ([], 1))
        for (name, (_, mean, deviation)), y in zip(cases.items(), results):
            self.assertEqual((y.shape, y.dtype, y.stride()), (x.shape, x.dtype, x.stride()), name)
            self.assertLess(abs(y.mean().item() - mean), 5 * deviation / math.sqrt(x.numel()), name)
            self.assertLess(abs(y.std().item() / deviation - 1), 0.03, name)

    def test_even_numbers_are_below_1_in_every_type(self):
        for dtype in TYPES:
            torch._dynamo.reset()
            y = self.run_of(lambda: torch.rand(400, 500, dtype=dtype, device=DEVICE) * 1)()  # noqa: B023
            self.assertTrue(((0 <= y) & (y < 1)).all())
            self.assertGreater(y.max().item(), 0.99)

    def test_layouts_stay(self):
        x = randn(2, 6, 4, 5, place=torch.channels_last)
        for y in self.run_of(lambda x: (F.dropout(x, 0.5), torch.rand_like(x), F.dropout2d(x, 0.5)))(x):
            self.assertEqual((y.shape, y.stride()), (x.shape, x.stride()))
        gone = y == 0
        self.assertTrue(torch.equal(gone.all((2, 3)), gone.any((2, 3))))  # whole channels
        self.assertEqual(self.outside(), [])

    def test_no_dropout_draws_nothing(self):
        x = randn(8, 9)
        run = self.run_of(lambda x: (F.dropout(x, 0.5, False) * 2, F.dropout(x, 0.0) * 2, F.dropout(x, 1.0) + 1))
        with mock.patch("torch.randint", side_effect=AssertionError):
            a, b, c = run(x)
        self.assertTrue(torch.equal(a, x * 2) and torch.equal(b, x * 2) and torch.equal(c, torch.ones_like(x)))

    def test_training_of_bert_is_one_part(self):
        model, words = Bert().to(DEVICE), integers(50, 4, 9)
        run = self.run_of(model)
        y = self.seeded(run, words)
        y.square().sum().backward()
        self.assertEqual(self.parts(), [("forward", 1), ("backward", 1)])
        self.assertEqual(self.outside(), [])
        kinds = self.kinds()
        self.assertEqual((kinds.count("sdpa_fwd"), kinds.count("sdpa_bwd"), kinds.count("rng_bernoulli")), (2, 2, 10))
        self.assertTrue(torch.equal(self.seeded(run, words), y))
        model.eval()
        self.close(run(words), model(words))

    def test_gradients_are_those_of_the_function_that_was_drawn(self):
        """Along a direction, by differences: the same seed gives the same function again."""
        for mask in (None, integers(2, 4, 1, 9, 9) == 0):
            torch._dynamo.reset()
            model, words = Bert(rate=0.3).to(DEVICE), integers(50, 4, 9)
            run = self.run_of(model)
            weights = randn(4, 9, 24)
            loss = lambda: (self.seeded(run, words, mask).double() * weights).sum()  # noqa: B023,E731
            loss().backward()
            step = [randn(*p.shape) * 2e-3 for p in model.parameters()]
            want = sum((p.grad.double() * d).sum() for p, d in zip(model.parameters(), step)).item()
            found = []
            for sign in (1, -2):
                with torch.no_grad():
                    for p, d in zip(model.parameters(), step):
                        p += sign * d
                found.append(loss().item())
            self.assertLess(abs((found[0] - found[1]) / 2 - want), 0.02 * abs(want) + 0.02)

    def attention(self, seed, q, k, v, mask, p, is_causal, scale=None):
        """With the mask of dropout as a tensor."""
        from fusor.torch import _random

        scores = q.float() @ k.float().transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        if is_causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], device=DEVICE).triu(1) > 0, float("-inf"))
        kept = _random.BERNOULLI(seed, 0, scores.shape, 1 - p)
        return (scores.softmax(-1).nan_to_num(0.0) * kept / (1 - p) @ v.float()).to(q.dtype)

    def test_dropout_of_attention_is_that_of_its_gradients(self):
        from fusor.torch import _random

        masks = {"none": None, "bool": integers(3, 2, 1, 9, 11) > 0, "causal": None, "added": randn(9, 11)}
        masks["bool"][1, 0, 4] = False
        for name, mask in masks.items():
            for dtype in TYPES:
                torch._dynamo.reset()
                added = mask.to(dtype) if name == "added" else mask
                named = {"is_causal": name == "causal", "scale": None if name == "none" else 0.3}
                q, k, v = (randn(2, 3, n, 8).to(dtype).requires_grad_() for n in (9, 11, 11))
                run = self.run_of(lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.4, **named))  # noqa: B023
                got = self.seeded(run, q, k, v, added)
                torch.manual_seed(7)
                want = self.attention(_random.SEED(q.device), q, k, v, added, 0.4, **named)
                self.close(got, want, name)
                weights = randn(2, 3, 9, 8).to(dtype)
                gradients = [torch.autograd.grad((y * weights).sum(), (q, k, v)) for y in (got, want)]
                for x, *pair in zip("qkv", *gradients):
                    self.close(*pair, f"{name}: d{x}")
                self.assertEqual(self.parts(), [("forward", 1), ("backward", 1)])
                self.assertEqual(self.outside(), [])
                kinds = self.kinds()
                self.assertEqual((kinds.count("sdpa_fwd"), kinds.count("sdpa_bwd")), (1, 1), kinds)

    def test_heads_that_are_shared_drop_each_their_own(self):
        q, k = randn(2, 6, 9, 8).requires_grad_(), randn(2, 2, 9, 8).requires_grad_()
        attend = lambda q, k: F.scaled_dot_product_attention(q, k, k, dropout_p=0.4, enable_gqa=True)  # noqa: E731
        results = []
        for in_pytorch in (False, True):
            torch._dynamo.reset()
            with mock.patch.dict("fusor.torch._convert.CONVERTERS", clear=in_pytorch):
                y = self.seeded(self.run_of(attend), q, k)
                results.append([y, *torch.autograd.grad(y.square().sum(), (q, k))])
        self.assertEqual(self.report[0].parts, [])
        for got, want in zip(*results):
            self.close(got, want)

    def test_what_one_pass_runs_in_pytorch_has_the_other_pass_numbers(self):
        """Where a part of one of them has no plan, say."""
        from fusor.torch import _convert, _random

        model, words = Bert(layers=1).to(DEVICE), integers(50, 2, 9)
        results = []
        for kinds in ((), ("forward",), ("backward",)):
            torch._dynamo.reset()
            model.zero_grad()
            refusal = lambda node, device: _convert.refusal(node, device)  # noqa: E731
            compile_ = fusor.torch._backend.Compiler.compile

            def some(self, kind, module, examples):
                chosen = (lambda *given: "not here") if kind in kinds else refusal  # noqa: B023
                with mock.patch("fusor.torch._backend.refusal", chosen):
                    return compile_(self, kind, module, examples)  # noqa: B023

            with mock.patch("fusor.torch._backend.Compiler.compile", some):
                y = self.seeded(self.run_of(model), words)
                y.square().sum().backward()
            self.assertEqual([graph.kind for graph in self.report if graph.parts == []], list(kinds))
            results.append([y, *(p.grad for p in model.parameters())])
        for other in results[1:]:
            for got, want in zip(other, results[0]):
                self.close_gradient(got, want, "parameter", 1e-3)

    def test_mapped_functions_have_numbers_of_their_own(self):
        def each(x):
            return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5) + F.dropout(x, 0.5)

        x = randn(1, 3, 4, 5, 6).expand(2, 3, 4, 5, 6)
        a, b = self.run_of(lambda x: torch.vmap(each, randomness="different")(x))(x)
        self.assertFalse(torch.equal(a, b))

    def test_autocast_has_attention_in_16_bits(self):
        q, mask = randn(2, 3, 9, 8), randn(9, 9)
        for p in (0.3, 0.0):
            torch._dynamo.reset()
            attend = lambda q, mask: F.scaled_dot_product_attention(q, q, q, mask, dropout_p=p)  # noqa: B023,E731
            stays = mock.patch("fusor.torch._attention._stays", lambda *args: p == 0)  # noqa: B023
            with torch.autocast(DEVICE, torch.bfloat16), stays:
                got, want = self.run_of(attend)(q, mask), attend(q, mask)
            self.assertEqual((got.dtype, self.outside()), (want.dtype, []))
            if p == 0:
                self.close(got, want)

    def test_dims_that_change(self):
        model = Bert(layers=1).to(DEVICE)
        self.report = Report()
        run = torch.compile(model, backend=lambda *given: fusor.torch.backend(*given, report=self.report))
        first = {}
        for turn in range(2):
            for b, n in ((2, 9), (3, 9), (3, 12), (2, 5)):
                words = torch.arange(b * n, device=DEVICE).view(b, n) % 50
                model.zero_grad()
                y = self.seeded(run, words)
                y.square().sum().backward()
                result = [y.detach(), *(p.grad.clone() for p in model.parameters())]
                for got, want in zip(result, first.setdefault((b, n), result)):
                    self.close_gradient(got, want, "parameter", 1e-4)
        self.assertEqual(self.outside(), [])
        self.assertTrue(all(len(graph.parts) == 1 for graph in self.report))

    def test_sizes_that_pytorch_runs_at_first_have_the_same_numbers(self):
        run = torch.compile(lambda x: F.dropout(x * 2, 0.5) + 1, backend="fusor", dynamic=True)
        for n in range(2, 14):
            x = randn(n, 6)
            self.assertTrue(torch.equal(self.seeded(run, x), self.seeded(run, x)), n)

    def test_layers_that_are_computed_again_for_gradients_drop_the_same(self):
        weights = randn(24, 24).requires_grad_()

        def layer(x):
            x = (x @ weights)[:, None]
            return F.dropout(torch.relu(F.scaled_dot_product_attention(x, x, x, dropout_p=0.2)[:, 0]), 0.5)

        def plain(x):
            return layer(layer(x)).sum(0)

        def again(x):
            return checkpoint(layer, checkpoint(layer, x, use_reentrant=False), use_reentrant=False).sum(0)

        x = randn(3, 7, 24).requires_grad_()
        results = []
        for function in (plain, again):
            torch._dynamo.reset()
            y = self.seeded(self.run_of(function), x)
            results.append([y, *torch.autograd.grad((y * y).sum(), (x, weights))])
        for got, want in zip(*results):
            self.close_gradient(got, want, "operand", None)
        kinds = self.kinds()
        self.assertEqual((kinds.count("sdpa_fwd"), kinds.count("sdpa_bwd")), (4, 2), kinds)

    def test_random_numbers_of_pytorch(self):
        """Which are eager's, in the order of a function's ops."""
        x = randn(40, 50)
        function = lambda x: (torch.rand_like(x) + 1, torch.randn(5, device=DEVICE) * 2)  # noqa: E731
        run = self.run_of(function, random="pytorch")
        for got, want in zip(self.seeded(run, x), self.seeded(function, x)):
            self.close(got, want)
        self.assertEqual(self.outside(), ["aten.rand_like", "aten.randn"])
        self.assertIn("random", self.report[0].outside[0].reason)
        attend = lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)  # noqa: E731
        x, run = x[None, None], self.run_of(attend, random="pytorch")
        self.assertFalse(torch.equal(run(x), run(x)))
        self.assertNotEqual(self.outside(), [])
        with self.assertRaisesRegex(Exception, "random is 'fusor' or 'pytorch', not 'eager'"):
            torch.compile(lambda x: x * 2, backend="fusor", options={"random": "eager"})(x)

    def test_what_a_graph_draws_no_numbers_for_pytorch_draws(self):
        x = randn(4, 6).double()
        run = self.run_of(lambda x: (torch.rand_like(x) + x, torch.randperm(4, device=DEVICE) * 2, F.dropout(x, 0.5)))
        a, order, y = run(x)
        self.assertEqual(sorted(order.tolist()), [0, 2, 4, 6])
        self.assertTrue(((y == 0) | (y == x * 2)).all())
        self.assertEqual(self.outside(), ["aten.rand_like", "aten.randperm"])
        self.assertTrue(all("random" in entry.reason for entry in self.report[0].outside))

    def test_trace_shows_attention_with_dropout(self):
        report = fusor.torch.trace(Bert(layers=1), integers(50, 2, 9), backward=True)
        self.assertEqual([len(graph.parts) for graph in report], [1, 1])
        self.assertIn("sdpa_fwd", [op.kind for op in report[0].parts[0].graph.ops])


if __name__ == "__main__":
    unittest.main()

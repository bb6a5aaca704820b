"""Tests of fusor as a backend of torch.compile where dims change from call to call, on the CPU or a GPU. Skips itself where
there is no PyTorch."""
import copy
import functools
import gc
import threading
import unittest
import weakref
from unittest import mock

from compile_case import DEVICE, Compile, integers, randn  # ends here where there is no PyTorch

import torch
import torch.nn.functional as F
from torch import nn

import fusor.torch
from fusor.torch import Report


class Decoder(nn.Module):
    """Words, learnt positions, one block of causal attention, as GPT-2 has them."""

    def __init__(self, width=24, heads=3, longest=32):
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(50, width), nn.Embedding(longest, width)
        self.register_buffer("mask", torch.ones(longest, longest, dtype=torch.bool).tril())
        self.qkv, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, words):
        b, s = words.shape
        x = self.words(words) + self.places(torch.arange(s, device=words.device))
        q, k, v = self.qkv(self.norm(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / (k.shape[-1] ** 0.5)
        scores = scores.masked_fill(~self.mask[:s, :s], float("-inf"))
        return x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, -1))


class Pixels(nn.Module):
    """Convolutions, a norm, pooling, a pyramid's way back up."""

    def __init__(self, c=4):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, c, 3, padding=1), nn.BatchNorm2d(c)
        self.down, self.last, self.head = nn.Conv2d(c, c, 3, 2, 1), nn.Conv2d(2 * c, c, 1), nn.Linear(c, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        y = F.max_pool2d(self.down(x), 3, 1, 1)
        y = F.interpolate(y, size=x.shape[2:], mode="nearest") + F.interpolate(y, scale_factor=2, mode="bilinear")
        return self.head(self.last(torch.cat([x, y], 1)).mean((2, 3)))


class Sizes(Compile):
    def compiled(self, function, dynamic=None, **options):
        self.report = Report()
        chosen = functools.partial(fusor.torch.backend, report=self.report, options=options)
        return torch.compile(function, backend=chosen, dynamic=dynamic)

    def all_inside(self, *outside):
        """Everything that was compiled is on fusor, but for numbers that PyTorch computes on the host of a GPU."""
        entries = [entry for graph in self.report for entry in graph.outside]
        found = {entry.op: entry.reason for entry in entries if entry.reason != "it is on cpu, its graph on cuda"}
        self.assertEqual(sorted(found), sorted(outside), found)

    def same(self, function, inputs, dynamic=None, graphs=None):
        """A function of each of the inputs, twice over, beside PyTorch's."""
        run = self.compiled(function, dynamic)
        with torch.no_grad():
            for given in [*inputs, *inputs]:
                got, want = run(*given), function(*given)
                for a, b in zip(*map(torch.utils._pytree.tree_leaves, (got, want))):
                    self.close(a, b, str([tuple(x.shape) for x in given if isinstance(x, torch.Tensor)]))
        self.all_inside()
        if graphs is not None:
            self.assertEqual([graph.kind for graph in self.report], ["inference"] * graphs, str(self.report))

    def step(self, model, inputs, dynamic=None, outside=()):
        """Training steps on each of the inputs, beside PyTorch's."""
        model = model.to(DEVICE)
        twin = copy.deepcopy(model)
        run = self.compiled(model, dynamic)
        for x in [*inputs, *inputs]:
            results = []
            for f, m in ((run, model), (twin, twin)):
                m.zero_grad()
                y = f(x)
                torch.manual_seed(1)
                (y * torch.randn(y.shape).to(DEVICE)).sum().backward()
                results.append(y)
            self.close(*results, "result")
            for (name, a), b in zip(model.named_parameters(), twin.parameters()):
                self.close_gradient(a.grad, b.grad, name, None)
            for (name, a), b in zip(model.named_buffers(), twin.buffers()):
                self.close(a, b, name)
        self.all_inside(*outside)

    def test_lengths_that_change_stay_on_fusor(self):
        model = Decoder().to(DEVICE).eval()
        self.same(model, [(integers(50, 2, n),) for n in (7, 12, 9)], graphs=4)
        sizes = [{}] + [{"words.size()[1]": n} for n in (12, 9, 7)]
        self.assertEqual([graph.sizes for graph in self.report], sizes)
        self.assertIn("inference for words.size()[1] = 9: 1 part", str(self.report))

    def test_dynamic_and_marked_dims(self):
        model = Decoder().to(DEVICE).eval()
        self.same(model, [(integers(50, b, n),) for b, n in ((2, 7), (3, 12), (3, 7))], dynamic=True, graphs=3)
        torch._dynamo.reset()
        words = [integers(50, 2, n) for n in (6, 11)]
        for each in words:
            torch._dynamo.mark_dynamic(each, 1)
        self.same(model, [(each,) for each in words], dynamic=False, graphs=2)

    def test_dims_of_0_and_1(self):
        def function(x):
            return F.gelu(x + 1) @ x.transpose(0, 1), torch.cat([x, torch.arange(5, device=x.device).expand(2, 5) * 1.0])

        for dynamic in (None, True):
            torch._dynamo.reset()
            self.report = Report()
            run = self.compiled(function, dynamic)
            for n in (4, 6, 1, 0, 3):
                x = randn(n, 5)
                for got, want in zip(run(x), function(x)):
                    self.close(got, want, str(n))
        run = self.compiled(function)
        for n in (4, 1, 0, 1):
            x = randn(n, 5)
            torch._dynamo.decorators.mark_unbacked(x, 0)
            for got, want in zip(run(x), function(x)):
                self.close(got, want, str(n))
        self.assertEqual([len(graph.sizes) for graph in self.report], [1, 1, 1])

    def test_training_with_batches_that_change(self):
        self.step(Decoder(), [integers(50, b, 9) for b in (4, 3, 2)])
        # PyTorch says whether its first graph serves the first size again, or the one with a symbol does.
        self.assertIn([graph.kind for graph in self.report].count("backward"), (3, 4))

    def test_training_with_lengths_that_change(self):
        for dynamic in (None, True):
            torch._dynamo.reset()
            words = [integers(50, b, n) for b, n in ((2, 9), (2, 5), (3, 5))]
            self.step(Decoder(), words, dynamic)

    def test_images_that_change(self):
        images = [randn(2, 3, h, w) for h, w in ((8, 8), (12, 8), (10, 14))]
        self.step(Pixels(), images)
        torch._dynamo.reset()
        self.same(Pixels().to(DEVICE).eval(), [(x,) for x in images])

    def test_sizes_in_arguments_of_ops(self):
        def function(x, y):
            b, n, c = x.shape
            rows = torch.arange(n, device=x.device)
            causal = torch.full((n, n), float("-inf"), device=x.device).triu(1)
            return (
                x.view(b * n, c)[: n // 2] * n, x.new_zeros(b, n + 1)[:, 1:] + rows * 0.5, causal.softmax(-1) + rows[:, None],
                x.flatten(1).unflatten(1, (n, c)) / (n**0.5), y.expand(b, n, c) + x, x[:, -1] * b, x[:, n // 3 :].mean(1),
                F.pad(x, (0, 0, n - 1, 2)), torch.cat([x, y.expand(b, 2, c)], 1), x.transpose(1, 2).reshape(b, -1) + 1,
                torch.linspace(0, 1, n, device=x.device) + 1, x.repeat(1, 2, 1) * 2, x.sum() / x.numel(),
                x.split([1, n - 1], 1)[1] + 1,
            )  # fmt: skip

        self.same(function, [(randn(b, n, 4), randn(1, 1, 4)) for b, n in ((2, 6), (3, 6), (3, 7), (4, 9))])

    def test_sizes_that_are_results(self):
        def function(x):
            return x.shape[0], x * 2, x.shape[0] * x.shape[1] + 1, None, x.shape[1] / 2

        run = self.compiled(function, dynamic=True)
        for n in (3, 5):
            x = randn(n, 4)
            got = run(x)
            self.assertEqual((got[0], got[2], got[3], got[4]), (n, n * 4 + 1, None, 2.0))
            self.assertTrue(all(type(each) is not torch.SymInt for each in got))
            self.close(got[1], x * 2)
        self.all_inside()

    def test_numbers_that_are_arguments(self):
        def function(x, n, unused):
            return x[:, :n] * n, unused + 1

        run = self.compiled(function, dynamic=True)
        x = randn(3, 9)
        for n, unused in ((4, 5), (6, 7), (6, 8), (6, 9)):
            got = run(x, n, unused)
            self.close(got[0], x[:, :n] * n)
            self.assertEqual(got[1], unused + 1)
        self.all_inside()
        self.assertLessEqual(len(self.report), 3)  # what only passes through makes no graphs

    def test_strides_that_change(self):
        def function(x):
            return x.t() + x.sum(1), F.relu(x) @ x.t()

        wide = randn(8, 40)
        self.same(function, [(wide[:, :n],) for n in (8, 12, 20)] + [(randn(8, n),) for n in (8, 12)], dynamic=True)

    def test_lists_of_tensors_that_change(self):
        self.same(lambda *xs: [torch.cat(xs, 0) + 1, sum(x.sum(0) for x in xs)],
                  [(randn(a, 3), randn(b, 3)) for a, b in ((2, 5), (4, 5), (4, 9), (7, 7))])  # fmt: skip

    def test_as_many_sizes_are_kept_as_was_asked_for(self):
        run = self.compiled(lambda x: F.gelu(x) @ x.t(), dynamic=True, shapes=2)
        for n in (3, 4, 3, 5, 3, 4):
            x = randn(n, 6)
            self.close(run(x), F.gelu(x) @ x.t())
        self.assertEqual([list(graph.sizes.values()) for graph in self.report], [[n, 6] for n in (3, 4, 5, 4)])
        with self.assertRaisesRegex(Exception, "shapes is a number of at least 1, not 0"):
            torch.compile(lambda x: x * 2, backend="fusor", options={"shapes": 0})(x)

    def test_sizes_that_come_once_are_not_compiled_behind_the_first_few(self):
        def function(x):
            return F.gelu(x) @ x.t(), x.shape[0]

        run = self.compiled(function, dynamic=True)

        def compiled(n):
            """How many graphs were compiled for a call."""
            before = len(self.report)
            x = randn(n, 6)
            got, want = run(x), function(x)
            self.close(got[0], want[0])
            self.assertEqual(got[1], n)
            return len(self.report) - before

        self.assertEqual([compiled(n) for n in range(2, 13)], [1] * 8 + [0] * 3)
        self.assertEqual([compiled(n) for n in (11, 3, 11, 12)], [1, 0, 0, 1])

    def test_no_size_is_traced_again(self):
        traces = []

        def backend(module, examples):
            traces.append(module)
            return fusor.torch.backend(module, examples)

        model = Decoder().to(DEVICE)
        run = torch.compile(model, backend=backend)
        for b, n in ((2, 9), (3, 9), (3, 12), (5, 7), (2, 9), (8, 31), (4, 2)):
            run(integers(50, b, n)).sum().backward()
        self.assertLessEqual(len(traces), 3)  # as it is, with one symbol, with two

    def test_interpolation_by_factors(self):
        for mode, named in (("nearest", {}), ("bilinear", {"align_corners": False}), ("bilinear", {"align_corners": True})):
            torch._dynamo.reset()

            def function(x):
                y = F.interpolate(x, scale_factor=2.0, mode=mode, **named)  # noqa: B023
                return y + F.interpolate(x, scale_factor=(2, 2), mode=mode, **named)  # noqa: B023

            run = self.compiled(function, dynamic=True)
            for h, w in ((5, 6), (7, 4)):
                x = randn(2, 3, h, w).requires_grad_()
                got, want = run(x), function(x)
                self.close(got, want)
                self.close(*(torch.autograd.grad((y * y).sum(), x)[0] for y in (got, want)))
            self.all_inside()

    def test_numbers_that_are_no_sizes_make_no_new_graphs(self):
        def function(x, n, step):
            row = torch.arange(3, device=x.device)
            return (x * step + n).relu() / (2 * step + 1), (x > n) & (x != step), step + 1, row * n, row == n, n > row

        run = self.compiled(function, dynamic=True)
        for n, step in ((3, 5), (4, 7), (2**40, -3)):
            x = (randn(4, 3) * 9).requires_grad_()
            got, want = run(x, n, step), function(x, n, step)
            self.close(*(torch.autograd.grad(y[0].sum(), x)[0] for y in (got, want)))
            for a, b in zip(got, want):
                self.close(a, b) if isinstance(a, torch.Tensor) else self.assertEqual(a, b)
        self.all_inside()
        self.assertEqual([len(graph.parts) for graph in self.report], [1, 1])

    def test_reals_that_change(self):
        def function(x, scale):
            return x * scale + x.shape[0] ** 0.5, x.sum() * (scale * 2)

        for specialize in (False, True):
            torch._dynamo.reset()
            with torch._dynamo.config.patch(specialize_float=specialize):
                run = self.compiled(function, dynamic=True)
                for n, scale in ((3, 1.5), (4, 2.5), (4, 3.5)):
                    x = randn(n, 4)
                    for got, want in zip(run(x, scale), function(x, scale)):
                        self.close(got, want)
            self.all_inside()

    def test_tensors_of_one_number_on_the_host_are_numbers_of_a_run(self):
        def is_number(value, device):
            return isinstance(value, torch.SymInt) or (value.dim() == 0 and value.device.type == "cpu")

        def function(x, scale, shift):
            return (x * scale).softmax(-1) + shift, torch.where(x > scale, x, 0.0).sum(0), scale * 2

        with mock.patch("fusor.torch._convert.is_number_of_run", is_number), \
             mock.patch("fusor.torch._part.is_number_of_run", is_number):  # fmt: skip
            run = self.compiled(function)
            for number in (0.5, -1.25):
                given = randn(3, 4), torch.tensor(number), torch.tensor(number > 0)
                for got, want in zip(run(*given), function(*given)):
                    self.close(got, want)
        kinds = [each.memory.name for each in self.report[0].parts[0].graph.inputs]
        self.assertEqual(sorted(kinds), ["device", "host", "host"])

    def test_autocast(self):
        model = Decoder().to(DEVICE)
        run = self.compiled(lambda words: model(words), dynamic=True)
        for n in (5, 8):
            words = integers(50, 2, n)
            with torch.autocast(DEVICE, torch.bfloat16):
                got, want = run(words), model(words)
            self.close(got, want, tolerance=4e-2)

    def test_pieces_that_only_some_read(self):
        def function(x):
            a, b, c = x.split([1, 2, x.shape[1] - 3], 1)
            rows = x.unbind(0)
            return c * 2, torch.logcumsumexp(a + 1, 0) * a, rows[1] + 1

        run = self.compiled(function)
        for n in (5, 7):
            x = randn(3, n)
            for got, want in zip(run(x), function(x)):
                self.close(got, want)
        self.all_inside("aten.logcumsumexp")

    def test_what_is_not_kept_is_freed(self):
        from fusor.torch._recent import Recent

        kept, made = Recent(2), []
        for key in (1, 2, 1, 3):
            value = kept.get(key, lambda: torch.empty(key))
            made.append(weakref.ref(value))
        del value
        gc.collect()
        self.assertEqual([each() is None for each in made], [False, True, False, False])

    def test_a_value_is_made_once_by_many_threads(self):
        from fusor.torch._recent import Recent

        kept, made, gate = Recent(4), [], threading.Barrier(8)

        def work(key):
            gate.wait()
            kept.get(key, lambda: made.append(key) or key)

        threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(sorted(made), [0, 1])
        with self.assertRaises(ZeroDivisionError):
            kept.get(9, lambda: 1 // 0)
        self.assertEqual(kept.get(9, lambda: 7), 7)

    def test_threads_that_bring_sizes_of_their_own(self):
        def function(x):
            return (F.gelu(x) @ x.t()).softmax(-1)

        run = self.compiled(function, dynamic=True)
        run(randn(2, 6))
        failed = []

        def work(sizes):
            try:
                for n in sizes:
                    x = randn(n, 6)
                    self.close(run(x), function(x))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=([3 + (i + j) % 5 for j in range(15)],)) for i in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(failed, [])
        self.assertEqual(sorted(graph.sizes["x.size()[0]"] for graph in self.report), [2, 3, 4, 5, 6, 7])

    def test_sizes_that_depend_on_data_run_in_pytorch(self):
        def function(x, w):
            found = (x > 0).nonzero()[:, 0]
            return F.gelu(x @ w), x[found] * 2, found.shape[0]

        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            for dynamic in (False, True):
                torch._dynamo.reset()
                run = self.compiled(function, dynamic)
                for n in (5, 8):
                    x, w = randn(n, 6), randn(6, 4)
                    got, want = run(x, w), function(x, w)
                    self.assertEqual(got[2], want[2])
                    for a, b in zip(got[:2], want[:2]):
                        self.close(a, b)
                for graph in self.report:
                    self.assertEqual(len(graph.parts), 1)
                    reasons = {entry.op: entry.reason for entry in graph.outside}
                    self.assertEqual(reasons["aten.nonzero"], "a dim or a number depends on data")

    def test_numbers_that_depend_on_data_run_in_pytorch(self):
        def function(x):
            n = x.sum().item()
            return F.relu(x) * n, x.tanh() @ x.t()

        with torch._dynamo.config.patch(capture_scalar_outputs=True):
            run = self.compiled(function, dynamic=True)
            for n in (3, 5):
                x = randn(n, 4)
                for got, want in zip(run(x), function(x)):
                    self.close(got, want)
        self.assertTrue(all(graph.parts for graph in self.report))

    def test_a_new_size_under_inference_mode_serves_training_too(self):
        model = nn.Linear(6, 3).to(DEVICE)
        run = self.compiled(lambda x: model(x) + torch.arange(x.shape[0], device=x.device).cumsum(0)[:, None], dynamic=True)
        for n in (4, 5):
            x = randn(n, 6)
            with torch.inference_mode():
                first = run(x)
            second = run(x)
            second.sum().backward()
            self.close(first, second.detach())
        self.all_inside()

    def test_constants_of_a_size_are_made_once_for_it(self):
        def function(x):
            n = x.shape[1]
            regions = x.new_zeros(n, n)
            regions[: n // 2], regions[n // 2 :, :3] = 1, 2
            return x * torch.cumsum(regions, 0)[0] + regions.sum()

        self.same(function, [(randn(2, n),) for n in (6, 9, 8)], dynamic=True, graphs=3)

    def test_constants_of_a_size_are_not_saved_for_gradients(self):
        def function(x):
            n = x.shape[1]
            weights = torch.ones(n, device=x.device).cumsum(0)
            visible = weights[None, :] <= torch.arange(1, n + 1, device=x.device)[:, None]
            return ((x.transpose(0, 1) @ x).masked_fill(~visible, -9.0) * weights).softmax(-1)

        run = self.compiled(function, dynamic=True)
        for n in (5, 7):
            x = randn(3, n).requires_grad_()
            weights = randn(n, n)
            got, want = run(x), function(x)
            self.close(got, want)
            self.close(*(torch.autograd.grad((y * weights).sum(), x)[0] for y in (got, want)))
        self.all_inside()
        self.assertEqual([len(graph.parts) for graph in self.report], [1] * 4)

    def test_explain_takes_dims_that_change(self):
        model = Decoder().to(DEVICE)
        words = integers(50, 2, 9)
        report = fusor.torch.explain(model, words, backward=True, dynamic=True)
        self.assertEqual([graph.kind for graph in report], ["forward", "backward"])
        self.assertEqual(list(report[0].sizes.values()), [2, 9])
        self.assertEqual(fusor.torch.explain(model, integers(50, 2, 9))[0].sizes, {})


if __name__ == "__main__":
    unittest.main()

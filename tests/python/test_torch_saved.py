"""Tests of what graphs of fusor save for gradients, and what their backward graphs make again, on the CPU or a GPU.
Skips itself where there is no PyTorch."""
import math
import unittest
from contextlib import contextmanager

from compile_case import Compile, randn  # ends here where there is no PyTorch

import torch
import torch.nn.functional as F
from torch import nn


class Hidden(nn.Module):
    """Two linear layers, with a function between them."""

    def __init__(self, function, width=16):
        super().__init__()
        self.function = function
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        return self.down(self.function(self.up(x)))


class Normed(nn.Module):
    """A convolution, a norm and a function between two convolutions."""

    def __init__(self, norm, function=F.silu, channels=8):
        super().__init__()
        self.function, self.norm = function, norm
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.last = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return self.last(self.function(self.norm(self.first(x))))


def gelu_of_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Saved(Compile):
    def kinds(self, report):
        """What the ops of forward and backward graphs are, and how many results the former have of which size."""
        graphs = {graph.kind: graph.parts[0].graph for graph in report}
        kinds = {kind: [op.kind for op in graph.ops] for kind, graph in graphs.items()}
        return kinds, [math.prod(tensor.dims) for tensor in graphs["forward"].outputs]

    @contextmanager
    def of(self, module, *inputs, **options):
        """Checks gradients, and gives the kinds of ops and the sizes of results."""
        yield self.kinds(self.model(module, *inputs, **options))

    def test_a_pointwise_value_of_a_saved_one_is_made_again(self):
        with self.of(Hidden(gelu_of_tanh), randn(10, 16).requires_grad_()) as (kinds, sizes):
            self.assertIn("tanh", kinds["backward"])
            self.assertEqual(sizes.count(10 * 48), 2)  # what the gelu is taken of, and what the product reads

    def test_what_a_norm_gives_is_made_again_of_its_statistics(self):
        plain = [nn.GroupNorm(8, 8, affine=False), nn.BatchNorm2d(8, affine=False)]
        for norm in [nn.BatchNorm2d(8), nn.GroupNorm(2, 8), *plain]:
            for affine in [False, True] if norm.weight is not None else [False]:
                if affine:
                    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
                with self.of(Normed(norm), randn(3, 8, 5, 7).requires_grad_()) as (kinds, sizes):
                    self.assertEqual(sizes.count(3 * 8 * 5 * 7), 3, norm)  # result, what is normed, the swish

    def test_what_a_layer_norm_gives_is_made_again(self):
        for shape in [(16,), (4, 16)]:
            norm = nn.LayerNorm(shape)
            nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
            module = nn.Sequential(nn.Linear(16, 16), norm, nn.SiLU(), nn.Linear(16, 16))
            with self.of(module, randn(30, 4, 16).requires_grad_()) as (kinds, sizes):
                self.assertEqual(sizes.count(30 * 4 * 16), 3, shape)

    def test_a_layer_norm_of_one_axis(self):
        class Row(nn.Module):
            def forward(self, x):
                return F.silu(F.layer_norm(x.exp(), x.shape)).sin()

        self.model(Row(), randn(40).requires_grad_())

    def test_operands_of_products_stay_saved(self):
        with self.of(Hidden(F.relu), randn(10, 16).requires_grad_()) as (kinds, sizes):
            self.assertEqual(sizes.count(10 * 48), 1)

    def test_values_of_two_saved_ones_stay_saved(self):
        class Gated(Hidden):
            def forward(self, x):
                return self.down(torch.sigmoid(torch.sin(self.up(x)) * torch.cos(self.up(2 * x))))

        with self.of(Gated(None), randn(10, 16).requires_grad_()):
            pass

    def test_norms_whose_results_products_read_keep_them(self):
        with self.of(Normed(nn.BatchNorm2d(8), lambda y: y), randn(3, 8, 5, 7).requires_grad_()) as (kinds, sizes):
            self.assertEqual(sizes.count(3 * 8 * 5 * 7), 3)

    def test_short_types_give_the_same_gradients(self):
        for dtype in (torch.float16, torch.bfloat16):
            for module in (Hidden(gelu_of_tanh), nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.SiLU())):
                self.model(module.to(dtype), randn(10, 16, dtype=dtype).requires_grad_())

    def test_several_readers_share_what_is_made_again(self):
        class Twice(Hidden):
            def forward(self, x):
                y = self.up(x)
                t = torch.tanh(y.exp().sin())
                return self.down(t * y + torch.exp(t) * t.cos())

        self.model(Twice(None), randn(10, 16).requires_grad_())

    def test_copies_of_saved_values_are_read_where_these_are(self):
        class Copied(Hidden):
            def forward(self, x):
                y = torch.softmax(self.up(x), 1)
                return self.down(y) + y.clone()[:, :16] @ y.clone()[:16, :16].exp()

        with self.of(Copied(None), randn(20, 16).requires_grad_()) as (kinds, sizes):
            self.assertEqual(sizes.count(20 * 48), 1)

    def test_copies_in_another_order_stay(self):
        class Normed(nn.Module):
            def forward(self, x):
                return F.group_norm(x, 2).sin()

        image = randn(2, 8, 6, 10, place=torch.channels_last).requires_grad_()
        self.model(Normed(), image)

    def test_results_of_the_function_itself_stay(self):
        class Both(Hidden):
            def forward(self, x):
                y = torch.tanh(self.up(x))
                return torch.cat([self.down(y * y.exp()), y], 1)

        self.model(Both(None), randn(10, 16).requires_grad_())


if __name__ == "__main__":
    unittest.main()

"""Tests of compiled functions in CUDA graphs. Skips itself where there is no PyTorch or no GPU."""
import gc
import sys
import unittest

from compile_case import DEVICE, ON_GPU, Compile, compiled, randn  # ends here where there is no PyTorch

import torch
from torch import nn

import fusor

if not ON_GPU:
    print("skipped: there is no GPU")
    sys.exit(77)


def captured(function, *inputs):
    """A CUDA graph of one call, and what it writes."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        function(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        results = function(*inputs)
    return graph, results


def network():
    return nn.Sequential(nn.Conv2d(8, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.SiLU(), nn.Conv2d(64, 8, 1)).to(DEVICE)


def softmax_plan():
    """A plan that was loaded and run, whose kernel no other test has."""
    g = fusor.GraphBuilder("softmax")
    g.output(g.softmax(g.input("x", (33, 77), "fp32")).y, "y")
    plan = fusor.load(fusor.build(g.finish()))
    plan(randn(33, 77))
    return plan


class Captures(Compile):
    def replayed(self, graph, results, want):
        results.zero_()
        graph.replay()
        torch.cuda.synchronize()
        self.close(results, want)

    def test_a_graph_outlives_the_function_that_it_captured(self):
        model, x = network(), randn(2, 8, 32, 32)
        want = model(x).detach()
        graph, results = captured(compiled(model), x)
        torch._dynamo.reset()
        gc.collect()
        self.replayed(graph, results, want)

    def test_a_plan_that_goes_during_a_capture_does_not_spoil_it(self):
        model, x = network(), randn(2, 8, 32, 32)
        want, function = model(x).detach(), compiled(model)
        plans = [softmax_plan()]

        def forget_and_run(x):
            if torch.cuda.is_current_stream_capturing():
                plans.clear()
                gc.collect()
            return function(x)

        graph, results = captured(forget_and_run, x)
        self.assertEqual(plans, [])
        self.replayed(graph, results, want)

    def test_norms_whose_blocks_meet_are_captured(self):
        model, x = nn.GroupNorm(32, 640).to(DEVICE), randn(2, 640, 64, 64, place=torch.channels_last)
        want = model(x).detach()
        graph, results = captured(compiled(lambda x: torch.relu(model(torch.tanh(x)))), x)
        self.replayed(graph, results, torch.relu(model(torch.tanh(x))).detach())

    def test_every_replay_draws_numbers_of_its_own(self):
        x = torch.ones(200, 300, device=DEVICE)
        graph, y = captured(compiled(lambda x: torch.nn.functional.dropout(x, 0.25) * 3), x)
        found = []
        for seed in (5, 5, None):
            if seed is not None:
                torch.cuda.manual_seed(seed)
            graph.replay()
            torch.cuda.synchronize()
            found.append(y.clone())
            self.assertLess(abs((y != 0).float().mean().item() - 0.75), 0.02)
        self.assertTrue(torch.equal(found[0], found[1]))
        self.assertFalse(torch.equal(found[1], found[2]))


if __name__ == "__main__":
    unittest.main()

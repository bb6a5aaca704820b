"""Tuning: every candidate of a graph is timed here, and the fastest is kept as a plan."""

import fusor
import numpy as np

g = fusor.GraphBuilder("tuned matmul")
x, w = g.input("x", (96, 256)), g.input("w", (256, 128))
g.output(g.relu(x @ w), "y")
graph = g.finish()
arrays = np.ones((96, 256), np.float32), np.full((256, 128), 0.5, np.float32), np.empty((96, 128), np.float32)

device, best = "cpu", None  # on a GPU: arrays of PyTorch or CuPy
for candidate in fusor.candidates(graph, device, max_candidates=4):
    plan = fusor.build(graph, device, candidate)
    seconds = fusor.load(plan).profile(*arrays, runs=5).seconds
    print(f"{plan.fusions[0].config}: {seconds * 1e6:.1f} us, estimated {plan.seconds * 1e6:.1f} us")
    if best is None or seconds < best[0]:
        best = seconds, plan

fusor.load(best[1]).run(*arrays)
assert (arrays[-1] == 128).all()

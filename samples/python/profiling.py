"""Profiling: where the time of a run goes, beside what was estimated and what the device could do at most."""

import fusor
import numpy as np

g = fusor.GraphBuilder("mlp")
x, w1, w2 = g.input("x", (256, 256)), g.input("w1", (256, 512)), g.input("w2", (512, 64))
g.output(g.relu(x @ w1) @ w2, "y")
exe = fusor.load(fusor.build(g.finish(), "cpu"))  # on a GPU: arrays of PyTorch or CuPy

arrays = [np.ones(tensor.dims, np.float32) for tensor in exe.slots]
profile = exe.profile(*arrays, runs=5)
print(profile)
slowest = max(profile.fusions, key=lambda fusion: fusion.seconds)
print(f"slowest: {' + '.join(slowest.ops)}, {slowest.fraction_of_limit:.0%} of the limit by {slowest.bound}")
assert len(profile.fusions) == 2 and profile.seconds > 0

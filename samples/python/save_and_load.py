"""Plans as files: planned once, loaded by another program, which compiles nothing that is in the cache."""

import os
import tempfile

import fusor
import numpy as np

g = fusor.GraphBuilder("saved")
x, scale = g.input("x", (4, 8)), g.scalar("scale")
g.output(g.tanh(x * scale), "y")

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "saved.plan.json")
    fusor.build(g.finish()).save(path)
    exe = fusor.load(path)

x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
np.testing.assert_allclose(exe(x, 2.0), np.tanh(2 * x), rtol=1e-5, atol=1e-6)
print(f"loaded: {exe.plan!r}, remarks {exe.plan.remarks}")

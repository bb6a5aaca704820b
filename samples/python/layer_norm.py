"""Layer norm by hand: mean and variance of rows, then scale and shift."""

import fusor
import numpy as np

random = np.random.default_rng(0)
x = random.standard_normal((64, 512), np.float32)
scale, shift = random.standard_normal((2, 512), np.float32)

g = fusor.GraphBuilder("layer norm")
tx, ts, tb = (g.input(name, a.shape, a.dtype) for name, a in [("x", x), ("scale", scale), ("shift", shift)])
centred = tx - g.reduce(tx, "avg", [-1])
variance = g.reduce(centred * centred, "avg", [-1])
g.output(centred * g.rsqrt(variance + 1e-5) * ts + tb, "y")
exe = fusor.load(fusor.build(g.finish()))

y = exe(x, scale, shift)
want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift
np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
print(f"layer norm on {exe.plan.device.name}: fusions: {len(exe.plan.fusions)}, error {abs(y - want).max():.1e}")

"""Softmax of rows, written out as its four steps: fusor fuses them."""

import fusor
import numpy as np

x = np.random.default_rng(0).standard_normal((64, 1000), np.float32)

g = fusor.GraphBuilder("softmax")
tx = g.input("x", x.shape, x.dtype)
e = g.exp(tx - g.reduce(tx, "max", [-1]))
g.output(e / g.reduce(e, "add", [-1]), "y")
exe = fusor.load(fusor.build(g.finish()))

y = exe(x)
want = np.exp(x - x.max(-1, keepdims=True))
want /= want.sum(-1, keepdims=True)
np.testing.assert_allclose(y, want, rtol=1e-5)
print(f"softmax on {exe.plan.device.name}: fusions: {len(exe.plan.fusions)}, rows sum to {y.sum(-1).mean():.6f}")

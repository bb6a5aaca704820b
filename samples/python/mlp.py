"""A multi-layer perceptron, gelu(x @ w1 + b1) @ w2 + b2, compared with NumPy."""

import math

import fusor
import numpy as np

random = np.random.default_rng(0)
x = random.standard_normal((32, 64), np.float32)
w1, b1 = random.standard_normal((64, 128), np.float32) / 8, random.standard_normal(128, np.float32)
w2, b2 = random.standard_normal((128, 10), np.float32) / 8, random.standard_normal(10, np.float32)

g = fusor.GraphBuilder("mlp")
tensors = [g.input(name, a.shape, a.dtype) for name, a in dict(x=x, w1=w1, b1=b1, w2=w2, b2=b2).items()]
tx, tw1, tb1, tw2, tb2 = tensors
g.output(g.gelu(tx @ tw1 + tb1) @ tw2 + tb2, "y")
exe = fusor.load(fusor.build(g.finish()))  # for the current GPU, or the CPU

y = exe(x, w1, b1, w2, b2)
h = x @ w1 + b1
want = h * (1 + np.vectorize(math.erf)(h / math.sqrt(2))) / 2 @ w2 + b2
np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
print(f"mlp on {exe.plan.device.name}: fusions: {len(exe.plan.fusions)}, largest error {abs(y - want).max():.1e}")

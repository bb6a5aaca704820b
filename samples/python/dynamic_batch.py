"""Dynamic batch: plans by batch, made when a batch first comes along; kernels are shared where the choice is the same."""

import functools

import fusor
import numpy as np

w = np.random.default_rng(0).standard_normal((32, 8), np.float32)


@functools.cache
def layer(batch):
    g = fusor.GraphBuilder(f"layer of {batch}")
    g.output(g.relu(g.input("x", (batch, 32)) @ g.input("w", w.shape)), "y")
    return fusor.load(fusor.build(g.finish()))


for batch in (1, 24, 7, 24, 1):
    x = np.random.default_rng(batch).standard_normal((batch, 32), np.float32)
    np.testing.assert_allclose(layer(batch)(x, w), np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)
print(f"{layer.cache_info().misses} plans, {fusor.cache_stats().compilations} kernels compiled")

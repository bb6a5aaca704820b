"""Attention by hand: scores, a causal mask, softmax and the product with v. On a GPU that is one fusion."""

import fusor
import numpy as np

batch, heads, length, features = 1, 2, 64, 32
q, k, v = np.random.default_rng(0).standard_normal((3, batch, heads, length, features)).astype(np.float16)

g = fusor.GraphBuilder("attention by hand")
tq, tk, tv = (g.input(name, q.shape, "fp16") for name in "qkv")
s = tq @ g.transpose(tk, (0, 1, 3, 2)) * features**-0.5
s = g.binary_select(s, float("-inf"), g.gen_index(s, -2) >= g.gen_index(s, -1))
e = g.exp(s - g.reduce(s, "max", -1))
g.output(e / g.reduce(e, "add", -1) @ tv, "o")
graph = g.finish()
print(fusor.explain(graph, "H200"))
o = fusor.load(fusor.build(graph, "cpu"))(q, k, v)  # on a GPU: arrays of PyTorch or CuPy

q, k, v = (x.astype(np.float32) for x in (q, k, v))
want = np.where(np.tri(length, dtype=bool), q @ k.swapaxes(-1, -2) * features**-0.5, -np.inf)
want = np.exp(want - want.max(-1, keepdims=True))
want = want / want.sum(-1, keepdims=True) @ v
np.testing.assert_allclose(o, want, rtol=2e-3, atol=2e-3)
print(f"attention: error {abs(o - want).max():.1e}")

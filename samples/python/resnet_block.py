"""A ResNet basic block: two 3 x 3 convolutions with scale and bias, the input added, ReLU."""

import fusor
import numpy as np


def conv(x, w):  # the same in NumPy, NCHW, padding 1
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwrs,kcrs->nkhw", windows, w, optimize=True)


random = np.random.default_rng(0)
x = random.standard_normal((2, 16, 14, 14), np.float32)
w = random.standard_normal((2, 16, 16, 3, 3), np.float32) / 12
s, b = random.standard_normal((2, 2, 1, 16, 1, 1), np.float32)

g = fusor.GraphBuilder("basic block")
tx = g.input("x", x.shape)
h = tx
for i in range(2):
    tw, ts, tb = (g.input(f"{n}{i}", a[i].shape) for n, a in [("w", w), ("s", s), ("b", b)])
    h = g.conv_fprop(h, tw, padding=(1, 1)) * ts + tb
    h = g.relu(h if i == 0 else h + tx)
exe = fusor.load(fusor.build(g.finish(h)))
y = exe(x, w[0], s[0], b[0], w[1], s[1], b[1])
want = np.maximum(conv(np.maximum(conv(x, w[0]) * s[0] + b[0], 0), w[1]) * s[1] + b[1] + x, 0)
np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
print(f"basic block on {exe.plan.device.name}: fusions: {len(exe.plan.fusions)}, error {abs(y - want).max():.1e}")

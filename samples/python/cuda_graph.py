"""Capture into a CUDA graph: a run launches and does nothing else, so that any capture takes it.

Without PyTorch and a GPU there is nothing to capture, and the sample says so (exit code 77)."""

import sys

import fusor

try:
    import torch
except ImportError:
    torch = None
if torch is None or fusor.DeviceInfo.current().is_cpu:
    print("skipped: this takes PyTorch and a GPU")
    sys.exit(77)

g = fusor.GraphBuilder("captured")
x = g.input("x", (256, 256))
g.output(g.relu(x @ x), "y")
exe = fusor.load(fusor.build(g.finish()))
x, y = torch.full((256, 256), 1 / 16, device="cuda"), torch.empty(256, 256, device="cuda")
workspace = torch.empty(exe.workspace_bytes, dtype=torch.uint8, device="cuda")

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    exe.run(x, y, workspace=workspace, stream=torch.cuda.current_stream())
for _ in range(10):
    graph.replay()
torch.cuda.synchronize()
assert (y == 1).all(), y
print("10 launches of a captured run: right")

"""Graphs of deep-learning operations, fused and compiled at run time.

    g = fusor.GraphBuilder("first")
    x = g.input("x", (64, 128), "fp32")
    w = g.input("w", (128, 32), "fp32")
    y = g.output(g.relu(x @ w), "y")
    exe = fusor.load(fusor.build(g.finish()))   # for the current GPU, or the CPU
    exe.run(x_array, w_array, y_array)          # NumPy, PyTorch, CuPy, JAX: no copies

Names are those of C++ (<fusor.h>). Errors are fusor.Error with a kind; an engine's refusal is data.
fusor.torch runs plans as ops of PyTorch.
"""

from . import _call, _ops
from ._fusor import *  # noqa: F403
from ._fusor import Error, Executable, GraphBuilder

__version__ = "0.1.0"

_ops.add_methods(GraphBuilder)
Executable.__call__ = _call.call

__all__ = [name for name in dir() if not name.startswith("_")]

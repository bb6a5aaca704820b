"""fusor in PyTorch: plans as ops, and a backend of torch.compile.

    op = fusor.torch.Op(plan)                              # y = op(x, w): one plan, with or without gradients
    model = torch.compile(model, backend="fusor")          # any model: graphs are made of its ops
    print(fusor.torch.explain(model, x))                   # which, and what PyTorch still runs
"""

import importlib
import importlib.metadata
import sys

from ._op import Op, dims_of, dtype

# What needs torch.compile's machinery, which takes a second to import: imported where it is first used.
_LATER = {
    "backend": "_backend", "explain": "_explain", "trace": "_explain", "Options": "_backend", "Report": "_report",
    "GraphReport": "_report", "PartReport": "_report", "Outside": "_report",
}  # fmt: skip

__all__ = ["Op", "dims_of", "dtype", *_LATER]


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)


def __dir__():
    return __all__


def _register():
    """Makes the backend's name known. PyTorch finds it by the package's entry point, once it looks for backends: where
    it has looked already, or there is none (a copy that nobody installed), the name is registered here."""
    if "torch._dynamo" not in sys.modules:
        points = importlib.metadata.entry_points(group="torch_dynamo_backends")
        if any(point.name == "fusor" for point in points):
            return
    from torch._dynamo.backends import registry

    if "fusor" not in registry.list_backends():
        registry.register_backend(compiler_fn=__getattr__("backend"), name="fusor")


_register()

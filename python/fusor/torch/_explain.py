"""Owns what people ask about a model: which graphs it becomes, with or without running it."""

import contextlib
import functools

import torch
from torch._functorch.aot_autograd import aot_function
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from ._aten import planned_for
from ._attention import NAMES, attention, masked_attention
from ._backend import Compiler, backend, partitioned
from ._decompositions import whole
from ._report import Report


def explain(model, *inputs, backward=False, options=None, dynamic=False, **named):
    """Compiles and runs the model once and returns a Report: which graphs it became, their parts, what PyTorch runs
    and why. With `backward` gradients of the sum of all results are computed, too; `dynamic` is torch.compile's."""
    report = Report()
    compiled = torch.compile(model, backend=functools.partial(backend, options=options, report=report), dynamic=dynamic)
    results = compiled(*inputs, **named)
    if backward:
        _total(results).backward()
    return report


def _total(results):
    """The sum of all real results that have gradients."""
    leaves = torch.utils._pytree.tree_leaves(results)
    return sum(x.float().sum() for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad)


def trace(model, *inputs, backward=False, options=None):
    """The Report of a module's graphs without running or building anything: tensors get no memory, so that it works
    for models of any size. Graphs are those of the CPU's ops, which are planned for any device."""
    report = Report()
    compiler = Compiler(options, report, builds=False)
    later = []  # backward graphs, which PyTorch would ask for when gradients run

    def split(joint, examples, **named):
        forward, gradients = partitioned(joint, examples, **named)
        later.append(gradients)
        return forward, gradients

    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    attends = _Attention(compiler.options.draws_seeds)
    with FakeTensorMode(), whole(), _tracing(), attends, planned_for("cuda"):
        state = {name: _fake(tensor, backward) for name, tensor in state.items()}
        inputs = [_fake(x, backward) if isinstance(x, torch.Tensor) else x for x in inputs]
        compiled = aot_function(
            lambda state, *inputs: torch.func.functional_call(model, state, tuple(inputs)),
            **{**compiler.stages(), "partition_fn": split},
        )
        with torch.set_grad_enabled(backward):
            compiled(state, *inputs)
        for module in later:
            compiler.compile("backward", module, ())
    return report


class _Attention(TorchFunctionMode):
    """Has attention stay one op where torch.compile's graphs keep it."""

    def __init__(self, with_dropout):
        super().__init__()
        self._attention = attention if with_dropout else masked_attention

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return (self._attention if function in NAMES else function)(*args, **(kwargs or {}))


@contextlib.contextmanager
def _tracing():
    """Tells models that they are compiled: some look at numbers else, which fake tensors have none of."""
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = False


def _fake(tensor, keeps_grad):
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return made.requires_grad_(keeps_grad and tensor.requires_grad)

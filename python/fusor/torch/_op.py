"""Runs plans as ops of PyTorch: on the current stream, without a copy or a synchronisation, with autograd.

    forward = fusor.torch.Op(plan)                        # y = forward(x, w)
    layer = fusor.torch.Op(plan, backward=backward_plan)  # and gradients

A backward plan is one of a graph whose inputs are named as tensors of the forward graph (what is to be saved) or
"d" and the name of a forward output (its gradient), and whose outputs are "d" and the name of a forward input.
Inside torch.compile an Op is one opaque op; under CUDA graph capture it records its launches. PyTorch allocates
outputs and workspaces, so that its caching allocator's rules hold for them.
"""

import itertools

import torch as _torch

from .. import _fusor
from .._call import _FOREIGN_NAMES, _NUMPY_NAMES, _PACKED
from .._fusor import DataType, Error, Memory

_numbers = itertools.count()
_is_compiling = getattr(_torch.compiler, "is_compiling", lambda: False)  # of PyTorch 2.3


def dtype(type):
    """PyTorch's dtype of an element type, or of a byte where elements share them."""
    if DataType(type) in _PACKED:
        return _torch.uint8
    return getattr(_torch, {**_NUMPY_NAMES, **_FOREIGN_NAMES}[DataType(type)])


def _place(tensor):
    """Dims, strides and dtype of the array that holds a tensor."""
    if tensor.type in _PACKED:
        return (tensor.bytes,), (1,), _torch.uint8
    return tuple(tensor.dims), tuple(tensor.strides), dtype(tensor.type)


def dims_of(graph):
    """Dims of every tensor that a run binds, by name."""
    return {t.name: tuple(t.dims) for t in [*graph.inputs, *graph.outputs]}


class _Side:
    """One plan, loaded: how lists of tensors become a run of it."""

    def __init__(self, plan):
        self.executable = plan if isinstance(plan, _fusor.Executable) else _fusor.load(plan)
        slots = self.executable.slots
        written = {t.name for t in self.executable.plan.graph.outputs}
        self.slots = slots
        self.inputs = [t for t in slots if t.name not in written]
        self.outputs = [t for t in slots if t.name in written]
        self.input_names = [t.name for t in self.inputs]
        self.output_names = [t.name for t in self.outputs]
        place = {name: i for i, name in enumerate(self.input_names + self.output_names)}
        self.order = [place[t.name] for t in slots]
        self.made = [_place(t) for t in self.outputs]
        self.arranged = [None if t.memory == Memory.host else _place(t) for t in self.inputs]
        self.workspace_bytes = self.executable.workspace_bytes
        self.on_gpu = not self.executable.plan.device.is_cpu

    def device(self, inputs):
        for tensor in inputs:
            if isinstance(tensor, _torch.Tensor) and (tensor.is_cuda or not self.on_gpu):
                return tensor.device
        return _torch.device("cuda" if self.on_gpu else "cpu")

    def empty(self, device):
        return [_torch.empty_strided(dims, strides, dtype=kind, device=device) for dims, strides, kind in self.made]

    def run(self, inputs):
        """The outputs of a run on the current stream of the inputs' device."""
        device = self.device(inputs)
        outputs = self.empty(device)
        both = [*inputs, *outputs]
        arrays = [both[i] for i in self.order]
        workspace = stream = None
        if self.workspace_bytes:
            # 256 bytes more than are needed: the host's allocator aligns to 64.
            room = _torch.empty(self.workspace_bytes + 256, dtype=_torch.uint8, device=device)
            workspace = room.data_ptr() + (-room.data_ptr()) % 256
        if self.on_gpu:
            with _torch.cuda.device(device):
                stream = _torch.cuda.current_stream(device).cuda_stream
                self.executable.run(*arrays, workspace=workspace, stream=stream)
        else:
            self.executable.run(*arrays, workspace=workspace)
        return outputs

    def arrange(self, tensors):
        """Tensors in the place and type that the plan wants: copied only where they are not (gradients arrive as
        autograd made them: expanded, transposed)."""
        arranged = []
        for tensor, wanted in zip(tensors, self.arranged):
            if wanted is not None:
                dims, strides, kind = wanted
                if tensor.dtype != kind or not _same_place(tensor, dims, strides):
                    copy = _torch.empty_strided(dims, strides, dtype=kind, device=tensor.device)
                    tensor = copy.copy_(tensor)
            arranged.append(tensor)
        return arranged


def _same_place(tensor, dims, strides):
    return tuple(tensor.shape) == dims and all(
        d == 1 or s == t for d, s, t in zip(dims, tensor.stride(), strides)
    )


class Op:
    """A plan as an op of PyTorch: call it with the graph's inputs in order (Op.inputs), or by name.

    Returns one tensor, or a tuple in the order of Op.outputs. Inputs must have the plan's type, dims and strides
    (fusor.Error says which does not); gradients are arranged. Raises Error where the backward plan names tensors
    that the forward graph does not have."""

    def __init__(self, plan, backward=None, name=None):
        self._forward = _Side(plan)
        self._backward = _Side(backward) if backward is not None else None
        self.inputs = self._forward.input_names
        self.outputs = self._forward.output_names
        self._sources = self._match() if self._backward else []
        self._name = name or f"op{next(_numbers)}"
        # Registered now: torch.compile traces calls, and what it traces must not register ops.
        self._custom = self._registered() if hasattr(_torch.library, "custom_op") else None

    @property
    def executable(self):
        return self._forward.executable

    def _match(self):
        """Where each input of the backward plan comes from: ("saved", position among inputs then outputs) or
        ("gradient", position among outputs)."""
        known = [*self.inputs, *self.outputs]
        sources = []
        for name in self._backward.input_names:
            if name in known:
                sources.append(("saved", known.index(name)))
            elif name.startswith("d") and name[1:] in self.outputs:
                sources.append(("gradient", self.outputs.index(name[1:])))
            else:
                raise Error(
                    f"backward: its input '{name}' is no tensor of the forward graph ({', '.join(known)}) and no "
                    f"gradient of its outputs ({', '.join('d' + o for o in self.outputs)})"
                )
        for name in self._backward.output_names:
            if not (name.startswith("d") and name[1:] in self.inputs):
                raise Error(f"backward: its output '{name}' is not 'd' and one of {', '.join(self.inputs)}")
        return sources

    def __call__(self, *args, **named):
        inputs = self._ordered(args, named)
        if _is_compiling():
            results = self._custom(list(inputs))
        elif self._backward and _torch.is_grad_enabled() and any(_wants_grad(x) for x in inputs):
            results = _Function.apply(self, *inputs)
        else:
            results = self._forward.run(inputs)
        return results[0] if len(results) == 1 else tuple(results)

    def _ordered(self, args, named):
        if not named and len(args) == len(self.inputs):
            return args
        if len(args) > len(self.inputs):
            raise Error(f"expected the inputs {', '.join(self.inputs)}; got {len(args)}")
        found = {**dict(zip(self.inputs, args)), **named}
        for name in found:
            if name not in self.inputs:
                raise Error(f"there is no input '{name}'; the inputs are {', '.join(self.inputs)}")
        for name in self.inputs:
            if name not in found:
                raise Error(f"the input '{name}' is missing; the inputs are {', '.join(self.inputs)}")
        return tuple(found[name] for name in self.inputs)

    def _run_backward(self, given):
        return self._backward.run(self._backward.arrange(given))

    def _gradients(self, saved, gradients, wanted, run):
        """Gradients of the inputs; None where the backward plan has none or nobody wants it."""
        given = []
        for kind, at in self._sources:
            if kind == "saved":
                given.append(saved[at])
                continue
            gradient = gradients[at]
            if gradient is None:
                dims, strides, type = self._forward.made[at]
                device = self._forward.device([x for x in saved if x is not None])
                gradient = _torch.empty_strided(dims, strides, dtype=type, device=device).zero_()
            given.append(gradient)
        by_name = dict(zip(self._backward.output_names, run(given)))
        return [by_name.get("d" + name) if want else None for name, want in zip(self.inputs, wanted)]

    def _saved(self, inputs, outputs):
        """What the backward plan reads of inputs and outputs, by position; the rest is None."""
        wanted = {at for kind, at in self._sources if kind == "saved"}
        return [x if i in wanted else None for i, x in enumerate([*inputs, *outputs])]

    def _registered(self):
        """The same as an op that torch.compile sees from outside only."""
        forward, op = self._forward, self

        def run(inputs):
            return op._forward.run(inputs)

        custom = _torch.library.custom_op(
            f"fusor::{self._name}", run, mutates_args=(), schema="(Tensor[] inputs) -> Tensor[]"
        )
        custom.register_fake(lambda inputs: forward.empty(forward.device(inputs)))
        if self._backward:

            def set_up(ctx, inputs, output):  # PyTorch passes these by name
                ctx.saved = op._saved(inputs[0], output)

            run_backward = self._register_backward()

            def backward(ctx, gradients):
                return op._gradients(ctx.saved, gradients, [True] * len(op.inputs), run_backward)

            custom.register_autograd(backward, setup_context=set_up)
        return getattr(_torch.ops.fusor, self._name).default

    def _register_backward(self):
        """The backward plan as an op: torch.compile traces backward with tensors that have no memory."""
        name, side = f"{self._name}_backward", self._backward
        custom = _torch.library.custom_op(
            f"fusor::{name}", self._run_backward, mutates_args=(), schema="(Tensor[] given) -> Tensor[]"
        )
        custom.register_fake(lambda given: side.empty(given[0].device))
        return getattr(_torch.ops.fusor, name).default


def _wants_grad(x):
    return isinstance(x, _torch.Tensor) and x.requires_grad


class _Function(_torch.autograd.Function):
    """Eager autograd around the two plans of an Op."""

    @staticmethod
    def forward(context, op, *inputs):
        outputs = op._forward.run(inputs)
        saved = op._saved(inputs, outputs)
        context.op = op
        context.save_for_backward(*[x if isinstance(x, _torch.Tensor) else None for x in saved])
        context.numbers = [None if isinstance(x, _torch.Tensor) else x for x in saved]
        return tuple(outputs)

    @staticmethod
    @_torch.autograd.function.once_differentiable
    def backward(context, *gradients):
        saved = [x if x is not None else n for x, n in zip(context.saved_tensors, context.numbers)]
        op = context.op
        return (None, *op._gradients(saved, gradients, context.needs_input_grad[1:], op._run_backward))

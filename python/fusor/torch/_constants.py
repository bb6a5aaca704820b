"""Owns what a graph computes of nothing but constants: once, when it is compiled, where a graph of fusor would have to
write it to memory in every run.

Ranges, comparisons of them and other pointwise ops stay as they are: kernels make them of coordinates, and attention
sees the masks in them. What has passed through any other op (a cumulative sum, a written slice) is folded.
"""

import itertools
import math
import operator

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import CheckpointPolicy

from ._aten import is_pointwise
from ._convert import is_floating, reads
from ._random import is_random
from ._symbols import depends_on_call, is_number

MOST_BYTES = 64 << 20  # of one constant


def fold(module):
    """Replaces constants that are expensive to make by tensors of the module, in its graph, whose code is not written
    anew."""
    graph = module.graph
    constant, costly = _constants(module)
    values = {}
    for node in list(graph.nodes):
        readers = [user for user in node.users if user not in costly and user.op != "output"]
        if node not in costly or not readers or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        with _disable_current_modes(), torch.no_grad():
            value = _narrowed(_value(module, node, values, constant))
        if value.untyped_storage().nbytes() <= MOST_BYTES:
            _replace(module, node, value, readers)
    graph.eliminate_dead_code()


def _constants(module):
    """All nodes that read no input, and those of them that are costly."""
    constant, costly = set(), set()
    for node in module.graph.nodes:
        if node.op == "get_attr" and isinstance(_attribute(module, node), torch.Tensor):
            constant.add(node)
        if node.op != "call_function" or not _is_pure(node) or depends_on_call(node):
            continue
        if all(each in constant for each in reads(node)):
            constant.add(node)
            is_cheap = is_pointwise(node) or is_floating(node)
            if not is_cheap or any(each in costly for each in reads(node)):
                costly.add(node)
    return constant, costly


def made_again(module):
    """Has a backward graph make again what depends on sizes alone: what a forward graph saves is folded in neither."""
    found = set()
    for node in module.graph.nodes:
        is_constant = node.op == "get_attr" or (node.op == "call_function" and _is_pure(node))
        if is_constant and all(each in found or is_number(each) for each in node.all_input_nodes):
            found.add(node)
            if depends_on_call(node):
                node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE


def _is_pure(node):
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in ("aten", "prims"):
        return False
    schema = node.target._schema
    return not is_random(node) and "empty" not in schema.name and not schema.is_mutable


def _attribute(module, node):
    return operator.attrgetter(node.target)(module)


def _value(module, node, values, constant):
    """What a constant node gives, computed by PyTorch. Operands that a converter does not read are read here where they
    are constants, too: zeros that parts are written into, for instance."""
    if node not in values:
        if node.op == "get_attr":
            values[node] = _attribute(module, node)
        else:
            take = lambda arg: torch.fx.node.map_arg(  # noqa: E731
                arg, lambda each: _value(module, each, values, constant) if each in constant else _unread(each)
            )
            values[node] = node.target(*map(take, node.args), **{key: take(arg) for key, arg in node.kwargs.items()})
    return values[node]


def _unread(node):
    """In the place of an operand of which only dims and type count."""
    fake = node.meta["val"]
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)


def without_numbers(module):
    """Gives a module fake tensors in place of folded ones: such as run it with fake tensors."""
    for node in module.graph.nodes:
        if "constant" in node.meta:
            module._buffers[node.target] = node.meta["val"]


def _narrowed(value):
    """The same tensor with one element in memory along axes on which it repeats."""
    narrow = value
    if value.numel() == 0:
        return value
    for axis, extent in enumerate(value.shape):
        first = narrow.narrow(axis, 0, 1)
        if extent > 1 and torch.equal(first.expand_as(narrow), narrow):
            narrow = first
    return narrow.contiguous().expand_as(value) if math.prod(value.shape) else value


def _replace(module, node, value, readers):
    name = next(name for name in map("_folded{}".format, itertools.count()) if not hasattr(module, name))
    module.register_buffer(name, value)
    with module.graph.inserting_before(node):
        made = module.graph.get_attr(name)
    made.meta = {"val": node.meta["val"].fake_mode.from_tensor(value, static_shapes=True), "constant": value}
    for reader in readers:
        reader.replace_input_with(node, made)

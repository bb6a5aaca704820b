"""Owns how nodes of an ATen graph become one graph of fusor: a single node, to see whether it can, or a part."""

import logging
import operator

import torch

from .._fusor import Error, GraphBuilder
from ._aten import (
    BROADCASTS, CONVERTERS, FLOATING, LAZY, Call, Filled, Pieces, Refused, Repeated, Wide, dims_of,
    ignored_operands, is_pointwise, overload, type_of,
)  # fmt: skip
from ._random import is_random
from ._symbols import depends_on_call

log = logging.getLogger("fusor.torch")


def strides_of(fake):
    """Strides in elements, of which a graph wants at least 1 where they do not repeat an element."""
    return [max(stride, 1) if extent == 1 else stride for extent, stride in zip(fake.shape, fake.stride())] or [1]


def is_number_of_run(value, device):
    """Whether a graph for a device is given a node's value as a number: it is one, or a tensor of one on the host."""
    is_on_host = isinstance(value, torch.Tensor) and value.dim() == 0 and value.device.type == "cpu"
    return isinstance(value, torch.SymInt) or (is_on_host and device != "cpu")


def is_floating(node):
    """Whether the node is converted wherever it is read: a view, a constant, one of several results."""
    return node.op == "call_function" and (node.target in FLOATING or node.target is operator.getitem)


def reads(node):
    """The nodes whose results the node's converter reads, each once."""
    unread = ignored_operands(node)
    kept = [arg for place, arg in [*enumerate(node.args), *node.kwargs.items()] if place not in unread]
    found = []
    torch.fx.node.map_arg(kept, lambda each: found.append(each))
    return list(dict.fromkeys(found))


class NotConverted(Exception):
    """A node that has become no part of a graph, though alone it could have."""

    def __init__(self, node, why):
        super().__init__(f"{type(why).__name__}: {why}")
        self.node = node


class Converted:
    """A graph of fusor and where its ends are: `inputs` are nodes, one for each input of the graph in order;
    `results` has for each node that was asked for the name of an output, or a Filled; `fakes` its fake tensor."""

    def __init__(self, graph, inputs, results, fakes):
        self.graph = graph
        self.inputs = inputs
        self.results = results
        self.fakes = fakes


class Conversion:
    """One graph that is being made of nodes, for tensors on `device` ("cpu", "cuda"). `outside(node)` tells which nodes
    are inputs of it, `rounds(node)` whether a result of 16 bits is rounded inside of it, too."""

    def __init__(self, name, precision, device, outside, rounds=lambda node: True):
        self._device = device
        self._rounds = rounds
        self._g = GraphBuilder(name, precision=precision)
        self._outside = outside
        self._values = {}
        self._inputs = {}  # by node
        self._ends = set()  # tensors that no output may be made of: inputs and outputs

    def value(self, node):
        """The tensor (or Wide, Repeated, Pieces, a list of results) of a node: made where it is not there yet."""
        if node not in self._values:
            self._values[node] = self._input(node) if self._outside(node) else self._made(node)
        return self._values[node]

    def tensor(self, node):
        """The same with what is repeated as a tensor, which is made once."""
        value = self.value(node)
        if isinstance(value, (Wide, Repeated, Pieces)):
            value = self._values[node] = value.made(self._g)
        return value

    def _narrow(self, node):
        value = self.value(node)
        return value.source if isinstance(value, Wide) else self.tensor(node)

    def _input(self, node):
        fake = node.meta["val"]
        if _is_empty(fake):
            return None  # which only concatenations take
        if is_number_of_run(fake, self._device):
            tensor = self._g.scalar(node.name, "int64" if isinstance(fake, torch.SymInt) else type_of(fake.dtype))
        else:
            tensor = self._g.input(node.name, dims_of(fake), type_of(fake.dtype), strides=strides_of(fake))
        self._inputs[node] = tensor
        self._ends.add(tensor)
        return tensor

    def _made(self, node):
        if node.target is operator.getitem:
            source, place = node.args
            return self.value(source)[place]
        unread, target = ignored_operands(node), node.target
        take = self.value if target in LAZY else self._narrow if _broadcasts(node) else self.tensor
        args = [None if i in unread else torch.fx.node.map_arg(arg, take) for i, arg in enumerate(node.args)]
        named = {key: torch.fx.node.map_arg(arg, take) for key, arg in node.kwargs.items() if key not in unread}
        result, fake = CONVERTERS[target](Call(self._g, node, self._rounds(node)), *args, **named), node.meta["val"]
        if isinstance(fake, torch.Tensor) and list(getattr(result, "dims", dims_of(fake))) != dims_of(fake):
            return Wide(getattr(result, "source", result), dims_of(fake))
        return result

    def _wanted(self, nodes):
        """Everything that the nodes are made of: a graph has no op whose result nobody reads."""
        wanted, stack = set(), list(nodes)
        while stack:
            node = stack.pop()
            if node not in wanted and not self._outside(node):
                wanted.add(node)
                stack += reads(node)
        return wanted

    def output(self, node):
        """Makes the node's result an output of the graph, in the place of its fake tensor."""
        value, fake = self.tensor(node), node.meta["val"]
        if isinstance(value, Filled):
            return value
        if value is None:
            raise Refused(f"{node.name} is a result that is not computed")
        if value in self._ends:
            value = self._g.identity(value, type=type_of(fake.dtype))
        strides = None if is_floating(node) and node.target is not operator.getitem else strides_of(fake)
        tensor = self._g.output(value, node.name, type=type_of(fake.dtype), strides=strides)
        self._ends.add(value)
        return tensor.name

    def _named(self, make, node):
        try:
            return make(node)
        except Exception as why:
            raise NotConverted(node, why) from why

    def finish(self, nodes, order=()):
        """The graph whose outputs are the nodes' results. Ops of `order` are made in that order."""
        wanted = self._wanted(nodes)
        for node in order:
            if node in wanted:
                self._named(self.value, node)
        results = [self._named(self.output, node) for node in nodes]
        return Converted(self._g.finish(), list(self._inputs), results, [node.meta["val"] for node in nodes])


def _broadcasts(node):
    return node.target in BROADCASTS or is_pointwise(node)


def readers(node):
    """The nodes that read a result, behind views of it."""
    found = []
    for user in node.users:
        found += readers(user) if is_floating(user) else [user]
    return found


def may_be_stored(node):
    """Whether a result may be stored inside of a graph. One that a single pointwise op reads stays in registers, as a
    rule."""
    users = readers(node)
    return len(users) != 1 or not is_pointwise(users[0])


def refusal(node, device):
    """Why a node cannot be part of a graph on a device ("cpu", "cuda"); None where it can."""
    if node.op != "call_function":
        return f"{node.op} is no op"
    if depends_on_call(node):
        return "a dim or a number depends on data"
    if node.target not in CONVERTERS:
        return "its random numbers are PyTorch's" if is_random(node) else "there is no converter"
    try:
        _check(node, device)
        _try(node, device)
    except (Refused, Error) as refused:
        return str(refused)
    except Exception as unexpected:  # a converter that does not know this form of an op must not end a program
        log.debug("converting %s", node.format_node(), exc_info=True)
        return f"{type(unexpected).__name__}: {unexpected}"
    return None


def _check(node, device):
    results = node.meta.get("val")
    fakes = results if isinstance(results, (list, tuple)) else [results]
    operands = [each.meta.get("val") for each in reads(node)]
    for fake in [*fakes, *(each for each in operands if not is_number_of_run(each, device))]:
        if isinstance(fake, torch.Tensor) and fake.device.type != device:
            raise Refused(f"it is on {fake.device.type}, its graph on {device}")
    if isinstance(results, torch.Tensor) and results.numel() == 0:
        raise Refused("its result is empty")
    if node.target is not overload("cat") and any(_is_empty(each) for each in operands):
        raise Refused("an operand is empty")


def _is_empty(fake):
    return isinstance(fake, torch.Tensor) and fake.numel() == 0


def _try(node, device):
    """Converts the node alone and validates the graph."""
    picks = [user for user in node.users if user.target is operator.getitem]
    conversion = Conversion(node.name, "exact", device, lambda each: each is not node and each not in picks)
    results, fakes = conversion.value(node), node.meta["val"]
    if isinstance(fakes, torch.Tensor):
        conversion.finish([node])
        return
    if len(results) != len(fakes):
        raise Refused(f"{len(results)} results of {len(fakes)}")
    wanted = [pick for pick in picks if not isinstance(results[pick.args[1]], Filled)]
    if wanted:
        conversion.finish(wanted)

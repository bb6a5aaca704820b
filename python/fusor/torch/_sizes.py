"""Owns graphs whose dims change from call to call: which numbers of a call their symbols stand for, and the graph that
such a graph is for one set of numbers."""

import math
import operator
import re

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from ._symbols import KINDS, SYMBOLIC, expression_of, has_symbols, takes_number

aten = torch.ops.aten
# Ops that only check numbers: where these are known and fit, nothing is left of them.
_CHECKS = ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")


class _Tensor:
    """A fake tensor of which extents and strides may be expressions."""

    def __init__(self, fake):
        self.fake = fake
        self.size, self.stride = tuple(map(expression_of, fake.shape)), tuple(map(expression_of, fake.stride()))
        self.dtype, self.device = fake.dtype, fake.device


def _described(value):
    """A node's value as it is for any numbers: nothing in it depends on PyTorch's environment of symbols any more."""
    if isinstance(value, (list, tuple)):
        return [_described(each) for each in value]
    if type(value) is FakeTensor and value.layout == torch.strided:
        return _Tensor(value)
    return _Number(value) if isinstance(value, SYMBOLIC) else value


class _Number:
    """A number that may be an expression."""

    def __init__(self, given):
        self.given, self.expression, self.kind = given, expression_of(given), KINDS[type(given)]


def _symbols(described):
    if isinstance(described, list):
        return set().union(*map(_symbols, described))
    if isinstance(described, _Tensor):
        found = (*described.size, *described.stride)
    else:
        found = (described.expression,) if isinstance(described, _Number) else ()
    return set().union(*(each.free_symbols for each in found if isinstance(each, sympy.Basic)))


class _Unknown(Exception):
    """A number that depends on data."""


class _Known:
    """Values of nodes for one set of numbers. Fake tensors that are alike are one."""

    def __init__(self, numbers, mode):
        self._numbers = {symbol: sympy.sympify(number) for symbol, number in numbers.items()}
        self._mode = mode
        self._found, self._fakes = {}, {}

    def number(self, expression, kind=int):
        if not isinstance(expression, sympy.Basic):
            return expression
        if expression not in self._found:
            result = expression.xreplace(self._numbers)
            self._found[expression] = None if result.free_symbols else kind(result)
        if self._found[expression] is None:
            raise _Unknown
        return self._found[expression]

    def value(self, described):
        if isinstance(described, list):
            return [self.value(each) for each in described]
        try:
            if isinstance(described, _Number):
                return self.number(described.expression, described.kind)
            return self._fake(described) if isinstance(described, _Tensor) else described
        except _Unknown:
            return described.given if isinstance(described, _Number) else described.fake

    def _fake(self, tensor):
        size, stride = (tuple(map(self.number, each)) for each in (tensor.size, tensor.stride))
        key = (size, stride, tensor.dtype, tensor.device)
        if key not in self._fakes:
            made = torch.empty_strided(size, stride, dtype=tensor.dtype, device="meta")
            self._fakes[key] = FakeTensor(self._mode, made, tensor.device)
        return self._fakes[key]


class Sizes:
    """The numbers that a graph depends on and where a call has them."""

    def __init__(self, module):
        self._module = module
        self._described = {node: _described(node.meta.get("val")) for node in module.graph.nodes}
        self._mode = FakeTensorMode()
        wanted = self._wanted()
        self._places = {symbol: place for symbol, place in self._sources().items() if symbol in wanted}
        self._names = [_name(module, symbol) for symbol in self._places]
        self.key = _reader(list(self._places.values()))

    @classmethod
    def of(cls, module):
        """None where a module depends on no numbers of a call."""
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        if not any(has_symbols(node.meta.get("val")) for node in inputs):
            return None
        found = cls(module)
        return found if found._places else None

    def _wanted(self):
        """Symbols of everything that is computed. Numbers change nothing of which only other numbers and results are
        made, or that graphs are given by each run."""
        found, passing = set(), set()
        for node, described in reversed(self._described.items()):
            is_number = node.op == "output" or isinstance(described, _Number)
            if is_number and all(user in passing or takes_number(user, node) for user in node.users):
                passing.add(node)
            else:
                found |= _symbols(described)
        return found

    def _sources(self):
        """By symbol its place among a call's arguments: (position, None) where it is a number itself, else (position,
        function of the tensor)."""
        numbers, dims = {}, {}
        inputs = [node for node in self._module.graph.nodes if node.op == "placeholder"]
        for position, node in enumerate(inputs):
            described = self._described[node]
            if isinstance(described, _Number):
                numbers.setdefault(described.expression, (position, None))
            if isinstance(described, _Tensor):
                for axis, extent in enumerate(described.size):
                    dims.setdefault(extent, (position, lambda tensor, axis=axis: tensor.size(axis)))
                for axis, stride in enumerate(described.stride):
                    dims.setdefault(stride, (position, lambda tensor, axis=axis: tensor.stride(axis)))
        return {each: place for each, place in {**dims, **numbers}.items() if isinstance(each, sympy.Symbol)}

    def specialised(self, numbers):
        """The module for one set of numbers, in the order of keys, and the numbers by name."""
        known = _Known(dict(zip(self._places, numbers)), self._mode)
        graph, there = torch.fx.Graph(), {}
        for node, described in self._described.items():
            value = known.value(described)
            if isinstance(value, (bool, int, float)):
                there[node] = value
                if node.op != "placeholder":
                    continue
                graph.node_copy(node)
            elif not _is_fulfilled(node, there):
                copy = graph.node_copy(node, there.__getitem__)
                copy.meta["val"] = value
                there[node] = copy
        return _Specialised(self._module, graph), dict(zip(self._names, numbers))


class _Specialised(torch.nn.Module):
    """A graph and the attributes that it reads; it has no code, which would be written for nothing."""

    def __init__(self, root, graph):
        super().__init__()
        self.graph = graph
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                name = node.target.partition(".")[0]
                setattr(self, name, getattr(root, name))


def _is_fulfilled(node, there):
    """Whether a node checks nothing but numbers, which are known and fit."""
    if getattr(node.target, "namespace", None) != "aten" or node.target._schema.name[6:] not in _CHECKS:
        return False
    number = there[node.args[0]] if isinstance(node.args[0], torch.fx.Node) else node.args[0]
    if isinstance(number, torch.fx.Node):
        return False
    least, most = (node.kwargs.get(each) for each in ("min", "max"))
    if node.target is aten._assert_scalar.default:
        return bool(number)
    return (0 if least is None else least) <= number <= (math.inf if most is None else most)


def _reader(places):
    """A function from a call's arguments to the numbers at these places, a tuple."""
    positions = [position for position, read in places]
    if any(read for _, read in places):
        return lambda given: tuple([given[at] if read is None else read(given[at]) for at, read in places])
    return operator.itemgetter(*positions) if len(positions) > 1 else lambda given: (given[positions[0]],)


def _name(module, symbol):
    """A symbol as people know it: "x.size()[1]"."""
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            sources = getattr(value.node.shape_env, "var_to_sources", {}).get(symbol)
            if sources:
                name = sources[0].name  # a method in older PyTorch
                return re.sub(r"L\['(\w+)'\]", r"\1", name() if callable(name) else name)
    return str(symbol)

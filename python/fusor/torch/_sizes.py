"""Owns graphs whose dims change from call to call: which numbers of a call their symbols stand for, and the graph that
such a graph is for one set of numbers. Symbols are only read here, never compared, which would add guards."""

import functools
import logging
import math
import operator
import re

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from ._aten import is_pointwise
from ._recent import Recent

aten = torch.ops.aten
log = logging.getLogger("fusor.torch")
KINDS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
SYMBOLIC = tuple(KINDS)
# Ops that only check numbers: where these are known and fit, nothing is left of them.
_CHECKS = ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")


def has_symbols(value):
    """Whether a node's value (a fake tensor, a number, several of them) depends on numbers that only a call knows."""
    if isinstance(value, (list, tuple)):
        return any(map(has_symbols, value))
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) and has_symbols(n) for n in (*value.shape, *_strides(value)))
    return isinstance(value, SYMBOLIC) and not isinstance(_expression(value), (bool, int, float))


def depends_on_call(node):
    """Whether a node's dims or numbers, or those of an operand, are known in a call only. Operands that a graph takes as
    numbers of its runs do not count."""
    operands = [each for each in node.all_input_nodes if not takes_number(node, each)]
    return any(has_symbols(each.meta.get("val")) for each in (node, *operands))


def takes_number(node, operand):
    """Whether an operand is a whole number where a pointwise op may have a tensor, or compares with it: a graph is given
    it by each run."""
    if not isinstance(operand.meta.get("val"), torch.SymInt) or not is_pointwise(node):
        return False
    compares = node.target._overloadname == "Scalar" and node.meta["val"].dtype == torch.bool
    fitting = ("Tensor", "number") if compares else ("Tensor",)
    places = zip(node.target._schema.arguments, node.args)
    as_tensor = sum(given is operand and str(place.type) in fitting for place, given in places)
    return as_tensor == sum(given is operand for given in torch.utils._pytree.arg_tree_leaves(*node.args, **node.kwargs))


def is_arithmetic(node):
    """Whether a node is arithmetic of numbers that only a call knows, which is no op on tensors."""
    return all(map(is_number, (node, *node.all_input_nodes)))


def is_number(node):
    """Whether a node is a number that only a call knows."""
    return isinstance(node.meta.get("val"), SYMBOLIC)


def _strides(fake):
    return fake.stride() if fake.layout == torch.strided else ()


def _expression(given):
    """What a number of PyTorch stands for: a number of Python, or an expression of symbols."""
    if not isinstance(given, SYMBOLIC):
        return given
    expression = given.node.expr
    return expression if expression.free_symbols else KINDS[type(given)](expression)


class _Tensor:
    """A fake tensor of which extents and strides may be expressions."""

    def __init__(self, fake):
        self.fake = fake
        self.size, self.stride = tuple(map(_expression, fake.shape)), tuple(map(_expression, fake.stride()))
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
        self.given, self.expression, self.kind = given, _expression(given), KINDS[type(given)]


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


class Sized:
    """For each set of sizes the function that make(sizes) gives, `most` of which are kept; `call` is one of a list of
    arguments. Behind the first few sets of sizes, one that comes for the first time is left to the function that
    otherwise() gives: where no call is like another (a cache that grows by a word), making would take longer than it
    ever saves."""

    AT_ONCE = 8

    def __init__(self, sizes, make, otherwise, most):
        self._make, self._otherwise = make, functools.cache(otherwise)
        self._kept, self._met, self._made = Recent(most), Recent(most), 0
        self._last = (None, None)

        def call(arguments):
            numbers, function = self._last
            key = sizes.key(arguments)
            return (function if key == numbers else self._function(key))(arguments)

        call._boxed_call = True
        self.call = call

    def _function(self, key):
        if key not in self._kept and self._is_passing(key):
            return self._otherwise()
        function = self._kept.get(key, lambda: _untraced(self._make, key))
        self._last = (key, function)
        return function

    def _is_passing(self, key):
        """Whether sizes came for the first time, behind the first few."""
        if self._made < self.AT_ONCE:
            self._made += 1
            return False
        came_before = key in self._met
        self._met.get(key, lambda: True)
        if not came_before:
            log.info("sizes %s: PyTorch runs them; they are compiled when they come again", key)
        return not came_before


def _untraced(make, key):
    """Makes what belongs to no call: modes of the call that asks for it are not those of the calls to come."""
    with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
        return make(key)

"""Owns the numbers of PyTorch that stand for symbols: sizes that change from call to call, numbers that depend on data.
Symbols are only read here, never compared, which would add guards."""

import torch

from ._aten import is_pointwise

KINDS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
SYMBOLIC = tuple(KINDS)


def has_symbols(value):
    """Whether a node's value (a fake tensor, a number, several of them) depends on numbers that only a call knows."""
    if isinstance(value, (list, tuple)):
        return any(map(has_symbols, value))
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) and has_symbols(n) for n in (*value.shape, *_strides(value)))
    return isinstance(value, SYMBOLIC) and not isinstance(expression_of(value), (bool, int, float))


def depends_on_call(node):
    """Whether a node's dims or numbers, or those of an operand, are known in a call only. Operands that a graph takes
    as numbers of its runs do not count."""
    operands = [each for each in node.all_input_nodes if not takes_number(node, each)]
    return any(has_symbols(each.meta.get("val")) for each in (node, *operands))


def takes_number(node, operand):
    """Whether an operand is a whole number where a pointwise op may have a tensor, or compares with it: a graph is
    given it by each run."""
    if not isinstance(operand.meta.get("val"), torch.SymInt) or not is_pointwise(node):
        return False
    compares = node.target._overloadname == "Scalar" and node.meta["val"].dtype == torch.bool
    fitting = ("Tensor", "number") if compares else ("Tensor",)
    places = zip(node.target._schema.arguments, node.args)
    as_tensor = sum(given is operand and str(place.type) in fitting for place, given in places)
    everywhere = torch.utils._pytree.arg_tree_leaves(*node.args, **node.kwargs)
    return as_tensor == sum(given is operand for given in everywhere)


def is_arithmetic(node):
    """Whether a node is arithmetic of numbers that only a call knows, which is no op on tensors."""
    return all(map(is_number, (node, *node.all_input_nodes)))


def is_number(node):
    """Whether a node is a number that only a call knows."""
    return isinstance(node.meta.get("val"), SYMBOLIC)


def _strides(fake):
    return fake.stride() if fake.layout == torch.strided else ()


def expression_of(given):
    """What a number of PyTorch stands for: a number of Python, or an expression of symbols."""
    if not isinstance(given, SYMBOLIC):
        return given
    expression = given.node.expr
    return expression if expression.free_symbols else KINDS[type(given)](expression)

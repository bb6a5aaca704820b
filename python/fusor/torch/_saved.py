"""Owns which values a backward graph makes again of others that it reads, in place of reading them from memory.

PyTorch's partitioner saves, of GPT-2's gelu for instance, both what it is taken of and the tanh within; in front of a
swish both what a norm reads and what it gives. Kernels of fusor compute such values where they are needed: the forward
graph need not write them, and the backward graph reads one tensor less.
"""

import operator

import torch

from ._aten import is_pointwise
from ._convert import is_floating

MOST_OPS = 32  # of a value that is made again
SMALL = 16  # a tensor with so many times fewer elements counts for nothing

_aten = torch.ops.aten
_SUMS = (_aten.sum.dim_IntList, _aten.sum.default)
_ALIASES = (_aten.detach.default, _aten.alias.default)
_COPIES = (_aten.clone.default, *_ALIASES)
_NORMS = (
    _aten.native_layer_norm.default, _aten.native_group_norm.default, _aten._native_batch_norm_legit_functional.default,
    _aten._batch_norm_with_update_functional.default,
)  # fmt: skip


def made_again_of_saved(forward, backward, results):
    """Takes such values out of what a forward graph saves (its outputs behind `results`), and has the backward graph
    make them of what it reads besides. A value is made again that

    - is a copy, or is written for the backward graph alone: in both graphs, only pointwise ops and sums read it;
    - comes from one saved tensor of its size, beside small ones and inputs, by pointwise ops, views, and norms whose
      statistics are saved. Such small inputs are saved in its place."""
    output = next(node for node in forward.graph.nodes if node.op == "output")
    read = {node.name: node for node in backward.graph.nodes if node.op == "placeholder"}
    chains = {}
    for node in output.args[0][results:]:
        if node.op == "call_function" and node.name in read and node not in output.args[0][:results]:
            chain = _chain(node, read)
            if chain is not None and (_copies(chain) or _is_of_backward(node, read)):
                chains[node] = chain
    if chains:
        added = _Writer(backward.graph, read, chains).write()
        output.args = ([each for node in output.args[0] for each in added.get(node, [node])],)
        forward.recompile()
        backward.recompile()


# --- what can be made again --------------------------------------------------------------------------------


def _is_tensor(node):
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _chain(value, read):
    """The ops that make a value of what the backward graph reads (by name), in order; None where they are too many, or
    read too much."""
    chain, large = {}, set()
    others = read.keys() - {value.name}

    def visit(node):
        if node in chain:
            return True
        if node.op == "placeholder" or _saved_name(node, others) is not None:
            if _is_tensor(node) and _elements(node) * SMALL > _elements(value):
                large.add(node)
            return True
        sources = _sources(node)
        if sources is None or len(chain) > MOST_OPS or not all(map(visit, sources)):
            return False
        chain[node] = None
        return True

    if not visit(value) or len(chain) > MOST_OPS or len(large) != 1:
        return None
    return list(chain) if _copies(chain) or _bytes(large.pop()) <= _bytes(value) else None


def _saved_name(node, read):
    """The name by which a backward graph reads a value, or None."""
    if node.name in read:
        return node.name
    names = (_saved_name(user, read) for user in node.users if user.target in _ALIASES)
    return next(filter(None, names), None)


def _sources(node):
    """What a node is made of, or None where it is not made again."""
    if _is_normed(node):
        return [node.args[0].args[0], *_statistics(node), *filter(None, _affine(node.args[0]))]
    if node.op == "call_function" and node.target is not operator.getitem and (is_pointwise(node) or is_floating(node)):
        return node.all_input_nodes
    return None


def _elements(node):
    return node.meta["val"].numel()


def _bytes(node):
    return _elements(node) * node.meta["val"].element_size()


def _copies(chain):
    """Whether nothing is computed, and nothing laid out anew: then a kernel of any kind reads the source in the value's
    place."""

    def keeps_place(node):
        if node.target in _COPIES:
            return node.meta["val"].stride() == node.args[0].meta["val"].stride()
        return is_floating(node) and node.target is not operator.getitem and node.all_input_nodes

    return all(map(keeps_place, chain))


def _is_of_backward(node, read):
    """Whether in both graphs only pointwise ops and sums read a value."""
    return all(is_pointwise(each) or each.target in _SUMS for reader in (node, read[node.name])
               for each in _readers(reader))  # fmt: skip


def _readers(node):
    """The ops that read a value, through views or not; outputs of a graph are none."""
    for user in node.users:
        if is_floating(user):
            yield from _readers(user)
        elif user.op != "output":
            yield user


# --- norms -------------------------------------------------------------------------------------------------


def _is_normed(node):
    """Whether a node is what a norm gives, which has statistics in fp32 or more."""
    if node.target is not operator.getitem or node.args[1] != 0 or node.args[0].target not in _NORMS:
        return False
    statistics = _statistics(node)
    return len(statistics) == 2 and all(
        each.meta["val"].element_size() >= 4 and _elements(each) > 0 for each in statistics
    )


def _statistics(node):
    """The mean and the reciprocal deviation of a norm of which a node is the first result."""
    found = {user.args[1]: user for user in node.args[0].users if user.target is operator.getitem}
    return [found[place] for place in (1, 2) if place in found]


def _affine(norm):
    """The scale and the bias of a norm, or None."""
    return norm.args[2:4] if norm.target is _aten.native_layer_norm.default else norm.args[1:3]


# --- writing the backward graph ------------------------------------------------------------------------------


class _Writer:
    """Writes the ops of chains in front of those that read their values in a backward graph."""

    def __init__(self, graph, read, chains):
        self._graph = graph
        self._chains = chains
        self._values = {read[value.name]: value for value in chains}
        self._there = {}  # nodes of the backward graph by those of the forward one
        self._read = {name: node for name, node in read.items() if node not in self._values}

    def write(self):
        """Returns for each value the inputs of the forward graph that are saved in its place."""
        added = {value: self._inputs(value, placeholder) for placeholder, value in self._values.items()}
        for node in list(self._graph.nodes):
            for each in node.all_input_nodes:
                if each in self._values:
                    with self._graph.inserting_before(node):
                        node.replace_input_with(each, self._made(self._values[each]))
        for placeholder in self._values:
            self._graph.erase_node(placeholder)
        return added

    def _inputs(self, value, placeholder):
        """Inputs that a value is made of and nothing has read so far: read in front of its placeholder from now on."""
        sources = (each for node in self._chains[value] for each in _sources(node))
        found = [each for each in dict.fromkeys(sources) if each.op == "placeholder" and each.name not in self._read]
        for each in found:
            with self._graph.inserting_before(placeholder):
                self._read[each.name] = self._graph.node_copy(each)
        return found

    def _made(self, node):
        name = _saved_name(node, self._read)
        if name is not None:
            return self._read[name]
        if node not in self._there:
            is_norm = node.target is operator.getitem
            self._there[node] = self._normed(node) if is_norm else self._graph.node_copy(node, self._made)
        return self._there[node]

    def _normed(self, node):
        """(x - mean) * inv_std * scale + bias, as the norm computes it, in the type of its statistics."""
        norm = node.args[0]
        x, (mean, inv_std) = self._made(norm.args[0]), map(self._made, _statistics(node))
        dims = list(node.meta["val"].shape)
        shape, rest = dims, [1] * (len(dims) - 2)
        if norm.target is _aten.native_layer_norm.default:
            statistics, affine = mean.meta["val"].shape, norm.args[1]
        else:  # of channels, which are the second axis
            statistics, affine = [1, dims[1], *rest], [dims[1], *rest]
        if norm.target is _aten.native_group_norm.default:
            groups = norm.args[6]
            shape, statistics = [dims[0], groups, dims[1] // groups, *dims[2:]], [dims[0], groups, 1, *rest]
        apart = self._call(_aten.sub.Tensor, self._viewed(x, shape), self._viewed(mean, statistics))
        y = self._viewed(self._call(_aten.mul.Tensor, apart, self._viewed(inv_std, statistics)), dims)
        for target, vector in zip((_aten.mul.Tensor, _aten.add.Tensor), _affine(norm)):
            if vector is not None:
                y = self._call(target, y, self._viewed(self._made(vector), affine))
        return self._call(_aten._to_copy.default, y, dtype=node.meta["val"].dtype)

    def _viewed(self, node, shape):
        shape = list(shape)
        return node if list(node.meta["val"].shape) == shape else self._call(_aten.reshape.default, node, shape)

    def _call(self, target, *args, **named):
        made = self._graph.call_function(target, args, named)
        made.meta["val"] = target(*torch.fx.node.map_arg(args, lambda each: each.meta["val"]), **named)
        return made

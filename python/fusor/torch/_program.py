"""Owns the program that takes an ATen graph's place: parts and the eager ops between them, in the order of levels."""

import operator

import torch

from ._partition import EAGER, PART, RESULT, SOURCE, VIEW

_captured = set()  # calls that went into CUDA graphs


class Program:
    """Writes a graph of PyTorch with modules in place of a partition's parts: `made` has by level a module and the
    nodes that it is given; it returns the results that are the part's outputs. `call` is the function of a list."""

    def __init__(self, root, partition, made):
        self._partition = partition
        self._made = made
        self._new = torch.fx.Graph()
        self._there = {}  # nodes of the new graph by those of the old one
        self.call = self._written(root)

    def _written(self, root):
        kind, level = self._partition.kind, self._partition.level
        nodes = list(self._partition.graph.nodes)
        for node in nodes:
            if kind[node] == SOURCE:
                self._copy(node)
        eager = [node for node in nodes if kind[node] == EAGER]
        for at in range(-1, max(level.values(), default=-1) + 1):
            if at in self._partition.parts:
                self._call(at)
            for node in eager:
                if level[node] == at:
                    self._copy(node)
        self._copy(nodes[-1])
        for at, (part, _) in self._made.items():
            root.add_module(f"part{at}", part)
        call = boxed(root, self._new)
        on_gpu = any(part.device.type == "cuda" for part, _ in self._made.values())
        return kept_by_captures(call) if on_gpu else call

    def _copy(self, node):
        self._there[node] = self._new.node_copy(node, self._outside)

    def _outside(self, node):
        """The node's result in the new graph; views are made where they are first read."""
        if node not in self._there:
            assert self._partition.kind[node] == VIEW, f"{node} is read before it is there"
            self._copy(node)
        return self._there[node]

    def _call(self, at):
        given = tuple(self._outside(node) for node in self._made[at][1])
        called = self._new.create_node("call_module", f"part{at}", given, {})
        for position, node in enumerate(self._partition.parts[at].outputs):
            assert self._partition.kind[node] in (PART, RESULT)
            self._there[node] = self._new.call_function(operator.getitem, (called, position))


def kept_by_captures(call):
    """The call, which is kept where it goes into a CUDA graph: the graph runs its kernels and reads its constants when
    torch.compile may have forgotten it, and nobody says when the graph itself goes."""

    def run(arguments):
        if torch.cuda.is_current_stream_capturing():
            _captured.add(call)
        return call(arguments)

    run._boxed_call = True
    return run


def boxed(root, graph):
    """A graph as a function of one list, which it empties: tensors go as soon as nobody reads them."""
    codegen = getattr(torch.fx.graph, "_BoxedCodeGen", None)
    if codegen is None:
        from torch._functorch.aot_autograd import make_boxed_func

        return make_boxed_func(torch.fx.GraphModule(root, graph).forward)
    graph.set_codegen(codegen())
    module = torch.fx.GraphModule(root, graph)

    def run(arguments):
        return module.forward(arguments)

    run._boxed_call = True
    return run

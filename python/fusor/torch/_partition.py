"""Owns which nodes of an ATen graph become parts, each one graph of fusor, and what runs between them.

Nodes get levels: one that can be converted has the level of what it reads, or one more where an eager op stands in
between. All nodes of a level are one part, so that parts wait for each other in one order, without cycles. Views and
constants belong to no level: each reader makes its own, inside a graph as index arithmetic, outside as a view.
"""

import operator

from ._convert import is_floating, reads
from ._random import is_seed
from ._symbols import is_arithmetic

SOURCE, PART, RESULT, EAGER, VIEW, OUTPUT = "source", "part", "result", "eager", "view", "output"


class Part:
    """Nodes of one level. `outputs`: those of their results that are read elsewhere."""

    def __init__(self, level):
        self.level = level
        self.nodes = []
        self.outputs = []


class Partition:
    """Parts by level; by node its kind, its level (an eager op runs behind the part of its level) and, of what is
    eager, why. `refusal(node)` tells why a node cannot be converted, or None."""

    def __init__(self, graph, refusal):
        self.graph = graph
        self.kind, self.level, self.reasons, self.parts = {}, {}, {}, {}
        self._bases = ({}, {})  # of views, as eager ops and as graphs read them
        for node in graph.nodes:
            self._place(node, refusal)
        self._find_outputs()

    def _place(self, node, refusal):
        kind = self.kind[node] = self._kind(node, refusal)
        if kind in (SOURCE, VIEW):
            return
        if node.target is operator.getitem:
            self.level[node] = self.level[node.args[0]]
            return
        self.level[node] = self._level(node)
        if kind == PART:
            self.parts.setdefault(self.level[node], Part(self.level[node])).nodes.append(node)

    def _kind(self, node, refusal):
        if node.op in ("placeholder", "get_attr"):
            return SOURCE
        if node.op == "output":
            return OUTPUT
        if node.target is operator.getitem:
            return {PART: RESULT, VIEW: VIEW}.get(self.kind[node.args[0]], EAGER)
        why = refusal(node)
        if why is not None:
            if not is_arithmetic(node) and not is_seed(node):
                self.reasons[node] = why
            return EAGER
        return VIEW if is_floating(node) else PART

    def _level(self, node):
        is_part = self.kind[node] == PART
        level = 0 if is_part else -1
        for base in self.read_by(node):
            behind = 1 if is_part and self.kind[base] == EAGER else 0
            level = max(level, self.level.get(base, -1) + behind)
        return level

    def read_by(self, node):
        """What a node reads, behind views: results of ops and sources."""
        inside = self.kind[node] == PART
        sources = reads(node) if inside else node.all_input_nodes
        return [base for source in sources for base in self.bases(source, inside)]

    def bases(self, node, inside):
        """What a view shows; any other node is its own base."""
        if self.kind[node] != VIEW:
            return [node]
        known = self._bases[inside]
        if node not in known:
            sources = reads(node) if inside else node.all_input_nodes
            known[node] = [base for source in sources for base in self.bases(source, inside)]
        return known[node]

    def _find_outputs(self):
        wanted = {level: {} for level in self.parts}
        for node in self.graph.nodes:
            if self.kind[node] not in (PART, EAGER, OUTPUT):
                continue
            for base in self.read_by(node):
                is_elsewhere = self.kind[node] != PART or self.level.get(base) != self.level[node]
                if self.kind[base] in (PART, RESULT) and is_elsewhere:
                    wanted[self.level[base]][base] = True
        for level, part in self.parts.items():
            part.outputs = list(wanted[level])

    def is_outside(self, node, part):
        """Whether a part that reads the node is given it from outside."""
        kind = self.kind[node]
        return kind in (SOURCE, EAGER) or (kind in (PART, RESULT) and self.level[node] != part.level)

"""Owns what is said about a compiled model: its graphs, their parts, and what runs outside of them and why."""

import collections
import dataclasses


@dataclasses.dataclass
class PartReport:
    """One graph of fusor. `ops` counts the ops of ATen that it replaces by name; `graph` is a fusor.Graph; `plan` a
    fusor.Plan, None where nothing was built; `seconds` is the time that building took."""

    graph: object
    ops: dict
    plan: object = None
    seconds: float = 0.0


@dataclasses.dataclass
class Outside:
    """Ops of one name that PyTorch runs, how many, and why."""

    op: str
    reason: str
    count: int


@dataclasses.dataclass
class GraphReport:
    """One graph of PyTorch's: `kind` is "inference", "forward" or "backward"; `sizes` are, where dims change from call
    to call, those that it was made for, by name."""

    kind: str
    parts: list = dataclasses.field(default_factory=list)
    outside: list = dataclasses.field(default_factory=list)
    sizes: dict = dataclasses.field(default_factory=dict)

    def __str__(self):
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        where = f" for {sizes}" if sizes else ""
        lines = [f"{self.kind}{where}: {len(self.parts)} part{'' if len(self.parts) == 1 else 's'}"]
        for part in self.parts:
            lines.append(f"  graph of {len(part.graph.ops)} ops for {sum(part.ops.values())} of PyTorch's")
        for each in self.outside:
            lines.append(f"  outside: {each.count} x {each.op}: {each.reason}")
        return "\n".join(lines)


class Report(list):
    """The graphs of one model, each a GraphReport, in the order in which they were compiled."""

    def __str__(self):
        return "\n".join(map(str, self)) if self else "nothing was compiled"


def name_of(node):
    """An op as people write it: "aten.mm", "getitem", "my_op"."""
    target = node.target
    if hasattr(target, "overloadpacket"):
        which = target._overloadname
        return str(target.overloadpacket) + ("" if which == "default" else f".{which}")
    return getattr(target, "__name__", str(target))


def counted(nodes):
    return dict(collections.Counter(name_of(node) for node in nodes))


def outside(reasons):
    """Outside entries from reasons by node."""
    counts = collections.Counter((name_of(node), why) for node, why in reasons.items())
    return [Outside(op, why, count) for (op, why), count in counts.most_common()]

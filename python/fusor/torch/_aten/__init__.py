"""Owns the conversion of ATen's ops to ops of a graph: a table of converters, in a file for each family.

A converter is given a Call, then the node's arguments, tensors of the builder in the place of nodes. It returns one
tensor or a list of them, as the node does; None and Filled stand for results that a graph does not compute.
"""

from . import (  # noqa: F401
    attention, creation, gathers, norms, orders, pointwise, products, random, reductions, sums, views, windows,
)  # fmt: skip
from ._table import (
    BROADCASTS, CONVERTERS, FLOATING, LAZY, Call, Filled, Pieces, Refused, Repeated, Wide, dims_of,
    ignored_operands, is_pointwise, overload, type_of,
)  # fmt: skip
from .pairs import planned_for
from .windows import without_indices

__all__ = [
    "BROADCASTS", "CONVERTERS", "FLOATING", "LAZY", "Call", "Filled", "Pieces", "Refused", "Repeated", "Wide",
    "dims_of", "ignored_operands", "is_pointwise", "overload", "planned_for", "type_of", "without_indices",
]  # fmt: skip

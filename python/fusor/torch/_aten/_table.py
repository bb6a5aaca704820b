"""Owns the table of converters, from ATen's overloads to calls of a GraphBuilder, and what a converter is given."""

import torch

from ..._fusor import DataType

TYPES = {
    torch.float64: DataType.f64, torch.float32: DataType.f32, torch.float16: DataType.f16,
    torch.bfloat16: DataType.bf16, torch.int64: DataType.i64, torch.int32: DataType.i32, torch.int8: DataType.i8,
    torch.uint8: DataType.u8, torch.bool: DataType.b8,
}  # fmt: skip
SHORT = (torch.float16, torch.bfloat16)

CONVERTERS = {}  # by overload
BROADCASTS = set()  # overloads whose converters take operands as they were before they were repeated
LAZY = set()  # overloads whose converters take Wide and Repeated themselves
FLOATING = set()  # overloads whose results are views, or are made of nothing: converted wherever they are read
IGNORED = {}  # by overload: which operands the converter does not read, as converts() is told


class Refused(Exception):
    """Why a node is not converted: a sentence for people."""


class Filled:
    """A result that nobody computes: as many zeros as `fake` has elements, or a number."""

    def __init__(self, fake):
        self.fake = fake


class Wide:
    """A tensor that is repeated along axes of extent 1, to `dims`: not yet as an op, as most readers need none."""

    def __init__(self, source, dims):
        self.source, self.dims = source, dims

    def made(self, g):
        same = None if self.source.type.name == "f32" else self.source.type
        return g.identity(self.source, dims=self.dims, type=same)


class Pieces:
    """Zeros but for pieces along an axis: (start, end, tensor) of each, which do not overlap. Gradients of slices are
    sums of such tensors."""

    def __init__(self, dims, axis, pieces, type):
        self.dims, self.axis, self.type = list(dims), axis, type
        self.pieces = sorted(pieces, key=lambda piece: piece[0])

    def joined(self, other):
        """The sum of two whose pieces do not overlap; None where they do."""
        both = Pieces(self.dims, self.axis, [*self.pieces, *other.pieces], self.type)
        overlap = any(a[1] > b[0] for a, b in zip(both.pieces, both.pieces[1:]))
        is_alike = (self.dims, self.axis, self.type) == (other.dims, other.axis, other.type)
        return both if is_alike and not overlap else None

    def made(self, g):
        found, at = [], 0
        for start, end, tensor in [*self.pieces, (self.dims[self.axis], None, None)]:
            if start > at:
                dims = [*self.dims[: self.axis], start - at, *self.dims[self.axis + 1 :]]
                found.append(g.identity(g.constant(0, self.type), dims=dims, type=self.type))
            if tensor is not None:
                found.append(tensor if tensor.type == self.type else g.identity(tensor, type=self.type))
                at = end
        return found[0] if len(found) == 1 else g.concatenate(found, self.axis)


class Results:
    """Several results, each made by a function when it is first read: a graph has none that nobody reads."""

    def __init__(self, makers):
        self._makers, self._made = list(makers), {}

    def __len__(self):
        return len(self._makers)

    def __getitem__(self, place):
        if place not in self._made:
            self._made[place] = self._makers[place]()
        return self._made[place]


class Repeated:
    """A tensor each of whose entries along an axis is there `times` times, one behind the other: shared heads."""

    def __init__(self, source, axis, times):
        self.source, self.axis, self.times = source, axis, times
        self.dims = list(source.dims)
        self.dims[axis] *= times

    def made(self, g):
        dims, at = list(self.source.dims), self.axis + 1
        split = g.reshape(self.source, [*dims[:at], 1, *dims[at:]])
        return g.reshape(Wide(split, [*dims[:at], self.times, *dims[at:]]).made(g), self.dims)


def overload(name):
    """The overload of aten that "add.Tensor" names, or of prims ("prims.name"); None where this PyTorch has none."""
    packet, _, which = name.partition(".")
    if packet == "prims":
        return getattr(getattr(torch.ops.prims, which, None), "default", None)
    found = getattr(torch.ops.aten, packet, None)
    return None if found is None else getattr(found, which or "default", None)


def converts(*names, floating=False, ignores=(), broadcasts=False, lazy=False):
    """Registers a function as the converter of these overloads of aten ("mm" stands for "mm.default"), which is
    given None for the operands at the positions that it ignores: a tuple, or a function that gives one for a node.
    What `broadcasts` is given tensors in front of their repetition; what is `lazy` gets Wide and Repeated."""

    def register(function):
        for name in names:
            found = overload(name)
            if found is not None:
                CONVERTERS[found] = function
                IGNORED[found] = ignores
                for is_of, kind in ((floating, FLOATING), (broadcasts, BROADCASTS), (lazy, LAZY)):
                    if is_of:
                        kind.add(found)
        return function

    return register


def converts_function(target, ignores=(), lazy=False):
    """The same for a function of Python that stands in a graph in the place of an op, or for an op of fusor's own."""

    def register(function):
        CONVERTERS[target] = function
        IGNORED[target] = ignores
        if lazy:
            LAZY.add(target)
        return function

    return register


def ignored_operands(node):
    """Positions and keywords of the node's operands that its converter does not read."""
    ignored = IGNORED.get(node.target, ())
    return ignored(node) if callable(ignored) else ignored


def is_pointwise(node):
    converter = CONVERTERS.get(node.target)
    return converter is not None and converter.__module__.endswith(".pointwise")


WRAPS = (torch.int8, torch.uint8)  # PyTorch's wrap around, a graph's saturate
_REALS = (DataType.f64, DataType.f32, DataType.f16, DataType.bf16)


def refuse_if(condition, why):
    if condition:
        raise Refused(why)


def type_of(dtype):
    """The element type of a dtype, or Refused."""
    refuse_if(dtype not in TYPES, f"{str(dtype).removeprefix('torch.')} is no type of fusor")
    return TYPES[dtype]


def dims_of(fake):
    """Dims of a tensor as a graph has them: [1] where PyTorch has none."""
    return [int(extent) for extent in fake.shape] or [1]


def all_of(number, count):
    """A list of `count` numbers from what ATen takes for one: a number or a list of one or of all."""
    numbers = list(number) if isinstance(number, (list, tuple)) else [number]
    return numbers * count if len(numbers) == 1 else numbers


class Call:
    """One node that is being converted: the builder `g`, the node's results and operands as fake tensors, and the
    type that its result (of several the first) is rounded to (None: it stays in its compute type)."""

    def __init__(self, g, node, rounds):
        self.g = g
        self.node = node
        self.fake = node.meta["val"]
        self.type = self._type(rounds)

    def _type(self, rounds):
        first = self.fake[0] if isinstance(self.fake, (list, tuple)) else self.fake
        if not isinstance(first, torch.Tensor):
            return None
        type = type_of(first.dtype)
        return type if rounds or first.dtype not in (*SHORT, torch.float32) else None

    def wants(self, place):
        """Whether anybody reads that one of several results."""
        return any(user.args[1] == place for user in self.node.users)

    @property
    def dims(self):
        return dims_of(self.fake)

    @property
    def is_real(self):
        """Whether the result is a floating-point number."""
        return self.fake.dtype.is_floating_point

    def operand(self, position):
        """The fake tensor of an operand by position; None where it is none."""
        args = self.node.args
        given = args[position] if position < len(args) else None
        return given.meta["val"] if isinstance(given, torch.fx.Node) else None

    def operands(self):
        """The fake tensors of all operands."""
        fakes = [node.meta.get("val") for node in self.node.all_input_nodes]
        return [fake for fake in fakes if isinstance(fake, torch.Tensor)]

    def narrow(self, x):
        """A lazy operand as a pointwise op takes it: in front of its repetition."""
        return x.source if isinstance(x, Wide) else self.whole(x)

    def whole(self, x):
        """A lazy operand as a tensor."""
        return x.made(self.g) if isinstance(x, (Wide, Repeated, Pieces)) else x

    def typed(self, x, dtype):
        """x as another dtype, where it is not of it yet: reals become integers toward zero."""
        type = type_of(dtype)
        if x.type == type:
            return x
        refuse_if(dtype in WRAPS, "a cast to 8-bit integers, which wraps around")
        if x.type in _REALS and not dtype.is_floating_point and dtype != torch.bool:
            x = self.g.binary_select(self.g.ceil(x), self.g.floor(x), self.g.cmp_lt(x, 0.0))
        return self.g.identity(x, type=type)

    def reshaped(self, x, dims):
        dims = [int(extent) for extent in dims] or [1]
        return x if list(x.dims) == dims else self.g.reshape(x, dims)

    def filled(self, value, dims=None, dtype=None):
        """A number repeated over dims, those of the result where none are said."""
        type = type_of(dtype or self.fake.dtype)
        return self.g.identity(self.g.constant(value, type), dims=dims or self.dims, type=type)

    def index(self, dims, axis):
        """The coordinate along an axis of a tensor of `dims`."""
        return self.g.gen_index(self.g.constant(0, "int32"), axis=axis, dims=dims)

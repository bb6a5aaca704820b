"""Owns the conversion of views: other dims, other orders, parts of a tensor, repetitions."""

import builtins
import itertools
import math

from ._table import Pieces, Repeated, Results, Wide, converts, refuse_if, type_of


@converts("view", "_unsafe_view", "reshape", "_reshape_alias", "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims",
          "flatten.using_ints", "unflatten.int", floating=True, lazy=True)  # fmt: skip
def reshape(c, x, *args, **named):
    if not isinstance(x, (Wide, Repeated)):
        return c.reshaped(c.whole(x), c.dims)
    if list(x.dims) == c.dims:
        return x
    return _shared_matrix(c, x) or _joined(c.g, x, c.dims) or c.reshaped(c.whole(x), c.dims)


def _shared_matrix(c, x):
    """One matrix that repeats along all leading axes, whatever these become; None for any other view."""
    if not isinstance(x, Wide) or list(x.dims[-2:]) != c.dims[-2:] or list(x.source.dims[-2:]) != c.dims[-2:]:
        return None
    is_one = math.prod(x.source.dims[:-2]) == 1
    return Wide(c.reshaped(x.source, x.source.dims[-2:]), c.dims) if is_one else None


def _joined(g, x, dims):
    """[.., h, n, ..] of [.., h, 1, ..] as [.., h * n, ..]: Repeated; None for any other view."""
    if not isinstance(x, Wide) or len(x.source.dims) != len(x.dims) or len(dims) != len(x.dims) - 1:
        return None
    at = [i for i, (a, b) in enumerate(zip(x.source.dims, x.dims)) if a != b]
    if len(at) != 1 or at[0] == 0:
        return None
    i = at[0]
    if list(dims) != [*x.dims[: i - 1], x.dims[i - 1] * x.dims[i], *x.dims[i + 1 :]]:
        return None
    narrow = g.reshape(x.source, [*x.source.dims[:i], *x.source.dims[i + 1 :]])
    return Repeated(narrow, i - 1, x.dims[i])


@converts("detach", "alias", "lift_fresh", floating=True)
def same(c, x, *args):
    return x


def _is_whole(a, size, stride, offset):
    """Whether a size and strides are all elements of a fake tensor's memory in its order, in other dims at most."""
    if offset not in (None, a.storage_offset()) or a.numel() != math.prod(size):
        return False
    if tuple(a.shape) == tuple(size):
        return all(n == 1 or s == t for n, s, t in zip(size, a.stride(), stride))
    packed = [math.prod(size[i + 1 :]) for i in range(len(size))]
    return a.is_contiguous() and all(n == 1 or s == t for n, s, t in zip(size, packed, stride))


@converts("as_strided", floating=True)
def as_strided(c, x, size, stride, storage_offset=None):
    is_whole = _is_whole(c.operand(0), size, stride, storage_offset)
    refuse_if(not is_whole, "a view by strides of memory, which a graph's values have none of")
    return c.reshaped(x, c.dims)


@converts("as_strided_scatter", ignores=(0,))
def as_strided_scatter(c, x, source, size, stride, storage_offset=None):
    """What writes all of x, in the order of its elements."""
    is_whole = _is_whole(c.fake, size, stride, storage_offset)
    refuse_if(not is_whole, "a view by strides of memory, which a graph's values have none of")
    return c.reshaped(source, c.dims)


@converts("copy", ignores=(0,))
def copy(c, x, source, non_blocking=False):
    refuse_if(c.operand(1).device != c.fake.device, "a copy between devices")
    return c.g.identity(c.typed(source, c.fake.dtype), dims=c.dims, type=type_of(c.fake.dtype))


@converts("permute", floating=True)
def permute(c, x, order):
    rank = len(x.dims)
    order = [axis % rank for axis in order]
    return x if not order else c.g.transpose(x, order)


@converts("t", floating=True)
def t(c, x):
    return x if len(x.dims) < 2 else c.g.transpose(x, [1, 0])


@converts("transpose.int", floating=True)
def transpose(c, x, a, b):
    order = list(range(len(x.dims)))
    order[a], order[b] = order[b], order[a]
    return c.g.transpose(x, order)


@converts("expand", broadcasts=True, floating=True)
def expand(c, x, *args, **named):
    """The tensor itself: dims other than the node's say that it is repeated."""
    return x


@converts("slice.Tensor", floating=True)
def slice(c, x, dim=0, start=None, end=None, step=1):
    return part(c, x, dim, start, end, step)


def part(c, x, axis, start, end, step=1):
    """x[start:end:step] along one axis, as Python means it."""
    dims = list(x.dims)
    axis %= len(dims)
    first, last, _ = _bounds(start, end, dims[axis])
    if (first, last, step) == (0, dims[axis], 1):
        return x
    starts, limits, steps = [0] * len(dims), list(dims), [1] * len(dims)
    starts[axis], limits[axis], steps[axis] = first, last, step
    return c.g.slice(x, starts, limits, steps)


def _bounds(start, end, extent):
    return builtins.slice(start, end).indices(extent)


@converts("select.int", floating=True)
def select(c, x, dim, index):
    dims = list(x.dims)
    dim %= len(dims)
    index %= dims[dim]
    return c.reshaped(part(c, x, dim, index, index + 1), c.dims)


def _pieces(c, x, sizes, axis, finish=lambda piece: piece):
    ends = list(itertools.accumulate(sizes))
    return Results(
        lambda size=size, end=end: finish(part(c, x, axis, end - size, end)) for size, end in zip(sizes, ends)
    )


@converts("split.Tensor", "split_with_sizes", "unsafe_split.Tensor", "chunk", floating=True)
def split(c, x, size, dim=0):
    refuse_if(any(0 in piece.shape for piece in c.fake), "an empty piece")
    return _pieces(c, x, [piece.shape[dim] for piece in c.fake], dim)


@converts("unbind.int", floating=True)
def unbind(c, x, dim=0):
    return _pieces(c, x, [1] * len(c.fake), dim, lambda piece: c.reshaped(piece, c.fake[0].shape))


@converts("cat")
def cat(c, tensors, dim=0):
    fakes = [node.meta["val"] for node in c.node.args[0]]
    kept = [c.typed(x, c.fake.dtype) for x, fake in zip(tensors, fakes) if fake.numel() > 0]
    return kept[0] if len(kept) == 1 else c.g.concatenate(kept, dim % len(c.dims))


@converts("repeat")
def repeat(c, x, repeats):
    """Each axis becomes (how often, extent), of which the first repeats."""
    lead = len(repeats) - len(x.dims)
    extents = [1] * lead + list(x.dims)
    split_dims = [n for extent in extents for n in (1, extent)]
    wide = [n for often, extent in zip(repeats, extents) for n in (often, extent)]
    kept = [i for i in range(0, len(wide), 2) if wide[i] > 1]  # only these need an axis of their own
    keep = [i for i in range(len(wide)) if i % 2 or i in kept]
    x = c.g.reshape(x, [split_dims[i] for i in keep])
    x = c.g.identity(x, dims=[wide[i] for i in keep], type=c.type)
    return c.reshaped(x, c.dims)


@converts("constant_pad_nd")
def pad(c, x, padding, value=0):
    refuse_if(any(n < 0 for n in padding), "padding that cuts off")
    x = c.typed(x, c.fake.dtype)
    for i in range(0, len(padding), 2):
        axis = len(x.dims) - 1 - i // 2
        x = padded(c, x, axis, padding[i], padding[i + 1], value)
    return x


def padded(c, x, axis, before, behind, value=0):
    """x between `before` and `behind` equal numbers along an axis."""
    pieces = [x]
    for extent, at_front in ((before, True), (behind, False)):
        if extent:
            dims = [*x.dims[:axis], extent, *x.dims[axis + 1 :]]
            piece = c.filled(value, dims, c.fake.dtype)
            pieces = [piece, *pieces] if at_front else [*pieces, piece]
    return x if len(pieces) == 1 else c.g.concatenate(pieces, axis)


def _is_zero(node):
    """Whether a node gives zeros, and why: its op says so."""
    name = getattr(getattr(node, "target", None), "_schema", None)
    name = "" if name is None else name.name.removeprefix("aten::")
    is_full = name in ("full", "full_like", "new_full") and node.args[-1] == 0
    return is_full or name in ("zeros", "zeros_like", "new_zeros")


def _zeros(node):
    """The operand that slices are written into is not read where it is zero."""
    return (0,) if _is_zero(node.args[0]) else ()


@converts("slice_scatter", ignores=_zeros)
def slice_scatter(c, x, source, dim=0, start=None, end=None, step=1):
    dim %= len(c.dims)
    first, last, _ = _bounds(start, end, c.dims[dim])
    if step != 1:
        return _every(c, x, source, dim, first, step)
    if x is None:
        return Pieces(c.dims, dim, [(first, last, source)], type_of(c.fake.dtype))
    pieces = [part(c, x, dim, 0, first)] if first > 0 else []
    pieces.append(source)
    if last < c.dims[dim]:
        pieces.append(part(c, x, dim, last, None))
    pieces = [c.typed(piece, c.fake.dtype) for piece in pieces]
    return pieces[0] if len(pieces) == 1 else c.g.concatenate(pieces, dim)


def _every(c, x, source, dim, first, step):
    """Zeros with the source at every `step`-th place: an axis of its own for the steps."""
    extent = c.dims[dim]
    is_even = extent % step == 0 and first < step and source.dims[dim] == extent // step
    refuse_if(x is not None or not is_even, "a slice with steps is written")
    before, behind = c.dims[:dim], c.dims[dim + 1 :]
    source = c.reshaped(source, [*before, extent // step, 1, *behind])
    dims = [*before, extent // step, step, *behind]
    spread = Pieces(dims, dim + 1, [(first, first + 1, source)], type_of(c.fake.dtype))
    return c.reshaped(c.whole(spread), c.dims)


@converts("select_scatter", ignores=_zeros)
def select_scatter(c, x, source, dim, index):
    dims = list(c.dims)
    dim %= len(dims)
    dims[dim] = 1
    index %= c.dims[dim]
    return slice_scatter(c, x, c.reshaped(source, dims), dim, index, index + 1)

"""Owns what a mask says whose numbers are known: attention with bounds skips what they hide, and reads no mask."""

import torch
from torch.utils._python_dispatch import _disable_current_modes

NAMES = ("attn_mask", "attn_bias")  # of the operand in ATen's schemas


def place_of(node):
    """Where an op of attention has its mask: a position, a keyword, or None without a mask."""
    if any(node.kwargs.get(name) is not None for name in NAMES):
        return next(name for name in NAMES if node.kwargs.get(name) is not None)
    names = [argument.name for argument in node.target._schema.arguments]
    found = [i for i, name in enumerate(names) if name in NAMES and i < len(node.args) and node.args[i] is not None]
    return found[0] if found else None


def bounds_of(node):
    """The bounds that an op's mask is, (left, right) as band_of() has them; None where it is no such constant."""
    place = place_of(node)
    mask = None if place is None else node.kwargs[place] if isinstance(place, str) else node.args[place]
    if mask is None or "constant" not in mask.meta:
        return None
    if "band" not in mask.meta:
        with _disable_current_modes():
            mask.meta["band"] = band_of(mask.meta["constant"])
    return mask.meta["band"]


def unread(*places):
    """Operands that a converter ignores: those at the positions, and a mask that bounds stand for."""

    def of(node):
        return places if bounds_of(node) is None else (*places, place_of(node))

    return of


def band_of(mask):
    """Of an additive mask [..., queries, keys] the bounds of the keys that a query sees, as (left, right): -1 for none,
    right 0 for no later key, left n for n keys up to its own. None where it is another mask."""
    if mask.dim() < 2 or any(mask.stride(axis) != 0 for axis in range(mask.dim() - 2) if mask.shape[axis] > 1):
        return None
    mask = mask[(0,) * (mask.dim() - 2)].float()
    seen, hidden = mask == 0, mask <= torch.finfo(torch.float16).min
    if not torch.all(seen | hidden) or not seen.any(1).all():
        return None
    rows, columns = (torch.arange(n, device=mask.device) for n in mask.shape)
    distance = rows[:, None] - columns[None]
    right = 0 if not seen[distance < 0].any() else -1
    farthest = int(distance[seen].max())
    left = -1 if farthest == mask.shape[0] - 1 else farthest + 1
    wanted = torch.ones_like(seen)
    if right == 0:
        wanted &= distance >= 0
    if left > 0:
        wanted &= distance < left
    return (left, right) if torch.equal(wanted, seen) else None

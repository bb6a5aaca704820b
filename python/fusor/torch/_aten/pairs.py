"""Owns comparisons of all with all, which stand for what a graph has no op for: how many of them are few."""

import contextlib

from ._table import refuse_if

MOST = {"cuda": 1 << 27, "cpu": 1 << 16}
_planned_for = []


@contextlib.contextmanager
def planned_for(device):
    """While graphs are made for a device ("cuda", "cpu") that their tensors are not on."""
    _planned_for.append(device)
    try:
        yield
    finally:
        _planned_for.pop()


def device_of(c, fake):
    """The device that a node's graph is for."""
    return _planned_for[-1] if _planned_for else fake.device.type


def refuse_many(c, fake, count, what):
    most = MOST[device_of(c, fake)]
    refuse_if(count > most, f"{what}: {count} comparisons, more than {most}")


def apart(c, x, axis):
    """x with one more axis, of extent 1, in front of that axis."""
    return c.reshaped(x, [*x.dims[:axis], 1, *x.dims[axis:]])


def places(c, rank, axis, extent):
    """0, 1, 2 ... along one of `rank` axes."""
    return c.index([extent if i == axis else 1 for i in range(rank)], axis)

"""Owns the conversion of random numbers, which are Philox's here and in a graph."""

import torch

from .._random import BERNOULLI, NORMAL, UNIFORM
from ._table import converts_function

_LARGEST = {torch.float16: 1 - 2.0**-11, torch.bfloat16: 1 - 2.0**-8}  # below 1


def stream_of(c, stream):
    """A graph's offset of a stream."""
    return c.g.constant(stream, "int64")


@converts_function(BERNOULLI)
def bernoulli(c, seed, stream, size, probability):
    return c.g.rng(c.dims, seed, stream_of(c, stream), distribution="bernoulli", probability=probability)


@converts_function(UNIFORM)
def uniform(c, seed, stream, size, dtype):
    numbers = c.g.rng(c.dims, seed, stream_of(c, stream))
    return c.g.min(numbers, _LARGEST[dtype], type=c.type) if dtype in _LARGEST else numbers


@converts_function(NORMAL)
def normal(c, seed, stream, size, dtype):
    return c.g.rng(c.dims, seed, stream_of(c, stream), distribution="normal", type=c.type)

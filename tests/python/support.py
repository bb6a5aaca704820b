"""Owns what several tests of the package need."""

import functools

import fusor
import numpy


@functools.cache
def linear(rows=4, inner=8, columns=16, device="cpu"):
    """relu(x @ w + b) in fp32, loaded."""
    g = fusor.GraphBuilder("linear")
    x = g.input("x", (rows, inner), "fp32")
    w = g.input("w", (inner, columns), "fp32")
    b = g.input("b", (columns,), "fp32")
    g.output(g.relu(x @ w + b), "y")
    return fusor.load(fusor.build(g.finish(), device))


def linear_arrays(rows=4, inner=8, columns=16):
    """Inputs for linear(), and what it should give."""
    random = numpy.random.default_rng(0)
    x = random.standard_normal((rows, inner), numpy.float32)
    w = random.standard_normal((inner, columns), numpy.float32)
    b = random.standard_normal(columns, numpy.float32)
    return x, w, b, numpy.maximum(x @ w + b, 0)


def runs(graph, *arrays, device="cpu"):
    """The outputs of one run of the graph."""
    return fusor.load(fusor.build(graph, device))(*arrays)

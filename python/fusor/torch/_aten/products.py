"""Owns the conversion of matmuls and convolutions."""

from ._table import Wide, all_of, converts, refuse_if


def _matrix(c, x):
    """An operand of a matmul, whose leading axes broadcast there, too."""
    if isinstance(x, Wide) and list(x.source.dims[-2:]) == list(x.dims[-2:]):
        return x.source
    return c.whole(x)


def _product(c, a, b, **named):
    refuse_if(not c.is_real, "a matmul of integers")
    return c.g.matmul(_matrix(c, a), _matrix(c, b), **named)


@converts("mm", "bmm", lazy=True)
def mm(c, a, b):
    return _product(c, a, b, type=c.type)


def _without_bias(node):
    return (0,) if node.kwargs.get("beta", 1) == 0 else ()


@converts("addmm", "baddbmm", ignores=_without_bias, lazy=True)
def addmm(c, bias, a, b, *, beta=1, alpha=1):
    bias = None if beta == 0 else c.narrow(bias)
    y = _product(c, a, b, type=c.type if beta == 0 and alpha == 1 else None)
    if alpha != 1:
        y = c.g.mul(y, float(alpha), type=c.type if beta == 0 else None)
    if beta == 0:
        return y
    return c.g.add(y, bias if beta == 1 else c.g.mul(bias, float(beta)), type=c.type)


@converts("dot", "mv")
def mv(c, a, b):
    refuse_if(not c.is_real, "a matmul of integers")
    axis = len(a.dims) - 1
    return c.reshaped(c.g.reduce(c.g.mul(a, b), "add", [axis], type=c.type), c.fake.shape)


def _options(x, stride, padding, dilation, groups):
    """Attributes of a convolution, an entry for each spatial dim."""
    spatial = len(x.dims) - 2
    lists = {"stride": stride, "padding": padding, "dilation": dilation}
    return {**{key: all_of(value, spatial) for key, value in lists.items()}, "groups": groups}


def _check(c, x, output_padding=()):
    refuse_if(not all(fake.dtype.is_floating_point for fake in c.operands()), "a convolution of integers")
    refuse_if(not 3 <= len(x.dims) <= 5, f"a convolution of {len(x.dims) - 2} spatial dims")


@converts("convolution")
def convolution(c, x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    _check(c, x)
    options = _options(x, stride, padding, dilation, groups)
    type = c.type if bias is None else None
    if transposed:
        y = c.g.conv_dgrad(x, w, c.dims, type=type, **options)
    else:
        y = c.g.conv_fprop(x, w, type=type, **options)
    return y if bias is None else c.g.add(y, _by_channel(c, bias, len(x.dims)), type=c.type)


def _by_channel(c, vector, rank):
    """A vector [C] as [1, C, 1, ...]."""
    return c.reshaped(vector, [1, vector.dims[0]] + [1] * (rank - 2))


@converts("convolution_backward")
def convolution_backward(c, dy, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
    _check(c, x)
    options = _options(x, stride, padding, dilation, groups)
    dx = dw = db = None
    if mask[0] and c.wants(0):
        to = [] if transposed else [list(x.dims)]
        dx = (c.g.conv_fprop if transposed else c.g.conv_dgrad)(dy, w, *to, type=c.type, **options)
    if mask[1] and c.wants(1):
        a, b = (x, dy) if transposed else (dy, x)
        dw = c.g.conv_wgrad(a, b, list(w.dims), **options)
    if mask[2] and c.wants(2):
        axes = [axis for axis in range(len(dy.dims)) if axis != 1]
        db = c.reshaped(c.g.reduce(dy, "add", axes), [dy.dims[1]])
    return [dx, dw, db]

"""Owns the conversion of pooling and interpolation, and their gradients."""

import torch

from ._table import all_of, converts, converts_function, refuse_if

aten = torch.ops.aten


def _window(c, x, kernel, stride, padding, out, ceil_mode=False):
    """Attributes of pooling over the spatial dims of x. What PyTorch's ceil_mode adds is padding behind."""
    spatial = len(x.dims) - 2
    refuse_if(spatial < 1, "pooling without a batch axis")
    kernel = all_of(kernel, spatial)
    stride = all_of(stride, spatial) if stride else kernel
    before = all_of(padding, spatial)
    behind = []
    for i in range(spatial):
        wanted = (out[2 + i] - 1) * stride[i] + kernel[i] - x.dims[2 + i] - before[i]
        behind.append(max(wanted, before[i] if not ceil_mode else 0))
    return {"window": kernel, "stride": stride, "pre_padding": before, "post_padding": behind}


# --- pooling ---------------------------------------------------------------------------------------------


@converts("max_pool2d_with_indices")
def max_pool(c, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    refuse_if(len(x.dims) != 4, "pooling without a batch axis")
    refuse_if(any(n != 1 for n in all_of(dilation, 2)), "pooling with dilation")
    window = _window(c, x, kernel, stride, padding, c.fake[0].shape, ceil_mode)
    r = c.g.resample_fwd(x, mode="maxpool", **window)
    return [r.y, _place(c, x, r.index, window) if c.wants(1) else None]


def _place(c, x, index, window):
    """PyTorch's index, the place in the image, of an index within each window."""
    dims = list(index.dims)
    columns = window["window"][1]
    row = c.g.div(index, columns)
    column = c.g.sub(index, c.g.mul(row, columns))
    coordinates = []
    for axis, inside in ((2, row), (3, column)):
        at = c.g.mul(c.index([1] * axis + [dims[axis]] + [1] * (3 - axis), axis), window["stride"][axis - 2])
        coordinates.append(c.g.add(c.g.sub(at, window["pre_padding"][axis - 2]), inside))
    return c.g.add(c.g.mul(coordinates[0], x.dims[3]), coordinates[1], type="int64")


def max_pool2d_backward(dy, x, kernel, stride, padding, dilation, ceil_mode):
    """The gradient of max_pool2d without the indices that PyTorch's op reads, and a forward graph writes for it."""
    indices = aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)[1]
    return aten.max_pool2d_with_indices_backward(dy, x, kernel, stride, padding, dilation, ceil_mode, indices)


@converts_function(max_pool2d_backward)
@converts("max_pool2d_with_indices_backward", ignores=(7,))
def max_pool_backward(c, dy, x, kernel, stride, padding, dilation, ceil_mode, indices=None):
    """The maxima are found again from x."""
    refuse_if(len(x.dims) != 4, "pooling without a batch axis")
    refuse_if(any(n != 1 for n in all_of(dilation, 2)), "pooling with dilation")
    window = _window(c, x, kernel, stride, padding, dy.dims, ceil_mode)
    return c.g.resample_bwd(dy, x=x, mode="maxpool", **window)


def without_indices(graph):
    """Gradients of max_pool2d in a joint graph as ones that read no indices."""
    for node in graph.nodes:
        if node.target is aten.max_pool2d_with_indices_backward.default:
            node.target, node.args = max_pool2d_backward, node.args[:7]


def _average(x, out, kernel, stride, padding, ceil_mode, counts_padding, divisor):
    refuse_if(divisor is not None, "pooling with a divisor of its own")
    refuse_if(len(x.dims) not in (4, 5), "pooling without a batch axis")
    window = _window(None, x, kernel, stride, padding, out, ceil_mode)
    pads = zip(window["pre_padding"], window["post_padding"])
    refuse_if(ceil_mode and counts_padding and any(a != b for a, b in pads), "averages of windows that are cut off")
    return {"mode": f"avgpool_{'in' if counts_padding else 'ex'}clude_padding", **window}


@converts("avg_pool2d", "avg_pool3d")
def avg_pool(c, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    args = (kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
    r = c.g.resample_fwd(x, **_average(x, c.fake.shape, *args))
    return getattr(r, "y", r)


@converts("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(c, dy, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
    args = (kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return c.g.resample_bwd(dy, x_dims=list(x.dims), **_average(x, dy.dims, *args))


def _even(x, out):
    """The window that divides x into `out` equal parts, or Refused."""
    parts = [extent // n for extent, n in zip(x[2:], out[2:])]
    refuse_if(any(p * n != extent for p, n, extent in zip(parts, out[2:], x[2:])), "pooling to uneven windows")
    return {"mode": "avgpool_include_padding", "window": parts, "stride": parts}


@converts("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(c, x, size):
    refuse_if(len(x.dims) not in (4, 5), "pooling without a batch axis")
    if all(n == 1 for n in c.dims[2:]):
        return c.g.reduce(x, "avg", list(range(2, len(x.dims))), type=c.type)
    r = c.g.resample_fwd(x, **_even(x.dims, c.dims))
    return getattr(r, "y", r)


@converts("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(c, dy, x):
    refuse_if(len(x.dims) not in (4, 5), "pooling without a batch axis")
    return c.g.resample_bwd(dy, x_dims=list(x.dims), **_even(x.dims, dy.dims))


# --- interpolation ---------------------------------------------------------------------------------------


def _ratios(given, source, target):
    """Refused where a scale was said that is not the ratio of extents: PyTorch then goes in other steps."""
    for scale, a, b in zip(given, source, target):
        refuse_if(scale is not None and abs(scale * a - b) > 1e-6, f"a scale of {scale} from {a} to {b}")


def _up(c, x, mode, scales, **named):
    _ratios(scales, x.dims[2:], c.dims[2:])
    r = c.g.resample_fwd(x, mode=mode, output_size=c.dims[2:], **named)
    return getattr(r, "y", r)


def _down(c, dy, size, mode, scales, **named):
    _ratios(scales, size[2:], dy.dims[2:])
    return c.g.resample_bwd(dy, x_dims=list(size), mode=mode, output_size=list(dy.dims[2:]), **named)


@converts("upsample_nearest2d", "upsample_nearest1d", "upsample_nearest3d")
def nearest(c, x, size, *scales):
    return _up(c, x, "nearest", scales)


@converts("upsample_nearest2d_backward", "upsample_nearest1d_backward", "upsample_nearest3d_backward")
def nearest_backward(c, dy, out, size, *scales):
    return _down(c, dy, size, "nearest", scales)


@converts("upsample_bilinear2d")
def bilinear(c, x, size, align_corners, *scales):
    return _up(c, x, "bilinear", scales, align_corners=bool(align_corners))


@converts("upsample_bilinear2d_backward")
def bilinear_backward(c, dy, out, size, align_corners, *scales):
    return _down(c, dy, size, "bilinear", scales, align_corners=bool(align_corners))

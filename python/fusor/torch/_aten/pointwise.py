"""Owns the conversion of pointwise ops: arithmetic, functions, activations and their gradients, comparisons, casts."""

import math

import torch

from ..._fusor import Tensor
from ._table import WRAPS, Pieces, Refused, converts, overload, refuse_if, type_of


def pointwise(c, mode, *operands, **attributes):
    """One pointwise op with PyTorch's promotion: integers that give real numbers are made real first."""
    refuse_if(c.fake.dtype in WRAPS, "8-bit integers wrap around in PyTorch and saturate here")
    if c.is_real:
        operands = [_real(c, x) for x in operands]
    if c.fake.dtype == torch.int32:
        operands = [_short(c, x) for x in operands]
    return getattr(c.g, mode)(*operands, type=c.type, **attributes)


def _short(c, x):
    """An int64 without dims beside int32 is one, too: what does not fit wraps around."""
    if not isinstance(x, Tensor) or x.type.name != "i64" or math.prod(x.dims) > 1:
        return x
    rest = c.g.mod(x, 2**32)
    rest = c.g.binary_select(c.g.sub(rest, 2**32), rest, c.g.cmp_ge(rest, 2**31))
    rest = c.g.binary_select(c.g.add(rest, 2**32), rest, c.g.cmp_lt(rest, -(2**31)))
    return c.g.identity(rest, type="int32")


def _real(c, x):
    if not isinstance(x, Tensor):
        return float(x)
    whole = ("i64", "i32", "i8", "u8", "b8")
    wide = c.fake.dtype == torch.float64
    return c.g.identity(x, type="fp64" if wide else "fp32") if x.type.name in whole else x


def _number(c, x):
    """x as arithmetic takes it: bool is a number."""
    return int(x) if isinstance(x, bool) else x


# --- arithmetic ------------------------------------------------------------------------------------------


@converts("add.Tensor", "add.Scalar", lazy=True)
def add(c, a, b, alpha=1):
    if isinstance(a, Pieces) and isinstance(b, Pieces) and alpha == 1 and a.joined(b):
        return a.joined(b)
    a, b = c.narrow(a), c.narrow(b)
    return pointwise(c, "add", a, _scaled(c, b, alpha))


@converts("sub.Tensor", "sub.Scalar")
def sub(c, a, b, alpha=1):
    return pointwise(c, "sub", a, _scaled(c, b, alpha))


@converts("rsub.Tensor", "rsub.Scalar")
def rsub(c, a, b, alpha=1):
    return pointwise(c, "sub", b, _scaled(c, a, alpha))


def _scaled(c, x, alpha):
    x = _number(c, x)
    if alpha == 1:
        return x
    return c.g.mul(x, alpha) if isinstance(x, Tensor) else x * alpha


@converts("mul.Tensor", "mul.Scalar")
def mul(c, a, b):
    if c.fake.dtype == torch.bool:
        return c.g.logical_and(a, b, type=c.type)
    return pointwise(c, "mul", a, _number(c, b))


@converts("div.Tensor", "div.Scalar")
def div(c, a, b):
    return pointwise(c, "div", a, b)


@converts("div.Tensor_mode", "div.Scalar_mode")
def div_mode(c, a, b, rounding_mode=None):
    if rounding_mode is None:
        return div(c, a, b)
    if not c.is_real:
        return _integer_division(c, a, b, rounding_mode)
    a, b = _real(c, a), _real(c, b)
    return _trunc(c, c.g.div(a, b)) if rounding_mode == "trunc" else _floor_division(c, a, b)


def _floor_division(c, a, b):
    """As PyTorch does: what divides evenly is divided, so that 1 / 0.1, which rounds to 10, gives 9. Infinities have no
    remainder, by 0 is a plain division."""
    if not isinstance(b, Tensor) and b == 0:
        return c.g.div(a, b, type=c.type)
    rest = c.g.mod(a, b)
    turns = _has_other_sign(c, rest, b)
    quotient = c.g.sub(c.g.div(c.g.sub(a, rest), b), c.g.identity(turns, type="fp32"))
    below = c.g.floor(quotient)
    whole = c.g.add(below, c.g.identity(c.g.cmp_gt(c.g.sub(quotient, below), 0.5), type="fp32"))
    if not isinstance(b, Tensor):
        return c.g.identity(whole, type=c.type)
    return c.g.binary_select(c.g.div(a, b), whole, c.g.cmp_eq(b, 0.0), type=c.type)


def _integer_division(c, a, b, rounding_mode):
    refuse_if(isinstance(b, Tensor) or b == 0, "division of integers by what may be 0, an error in PyTorch")
    refuse_if(c.fake.dtype not in (torch.int32, torch.int64), "division of short integers")
    quotient = c.g.div(a, int(b))
    if rounding_mode == "floor":
        quotient = c.g.sub(quotient, c.g.identity(_has_other_sign(c, c.g.mod(a, int(b)), b), type=quotient.type))
    return c.g.identity(quotient, type=c.type)


def _has_other_sign(c, rest, b):
    """Whether a remainder that is not 0 has another sign than what was divided by."""
    is_below = c.g.cmp_lt(b, 0, type="int32") if isinstance(b, Tensor) else int(b < 0)
    return c.g.logical_and(c.g.cmp_neq(rest, 0), c.g.cmp_neq(c.g.cmp_lt(rest, 0, type="int32"), is_below))


@converts("trunc")
def trunc(c, x):
    refuse_if(not c.is_real, "trunc of integers")
    return _trunc(c, x)


def _trunc(c, x):
    return c.g.binary_select(c.g.ceil(x), c.g.floor(x), c.g.cmp_lt(x, 0.0), type=c.type)


@converts("remainder.Tensor", "remainder.Scalar")
def remainder(c, a, b):
    if c.is_real:
        a, b = _real(c, a), _real(c, b)
    rest = c.g.mod(a, b)
    turns = _has_other_sign(c, rest, b)
    return pointwise(c, "binary_select", c.g.add(rest, b), rest, turns)


@converts("fmod.Tensor", "fmod.Scalar")
def fmod(c, a, b):
    return pointwise(c, "mod", a, b)


@converts("pow.Tensor_Scalar")
def pow_scalar(c, x, exponent):
    refuse_if(not c.is_real, "a power of integers")
    x = _real(c, x)
    if exponent == 2:
        return pointwise(c, "mul", x, x)
    if exponent == 3:
        return pointwise(c, "mul", c.g.mul(x, x), x)
    if exponent == 0.5:
        return pointwise(c, "sqrt", x)
    if exponent == -0.5:
        return pointwise(c, "rsqrt", x)
    if exponent == 1:
        return pointwise(c, "identity", x)
    return pointwise(c, "pow", x, exponent)


@converts("pow.Tensor_Tensor", "pow.Scalar")
def power(c, a, b):
    refuse_if(not c.is_real, "a power of integers")
    return pointwise(c, "pow", a, b)


@converts("square")
def square(c, x):
    return pointwise(c, "mul", x, x)


@converts("addcmul")
def addcmul(c, x, a, b, value=1):
    return pointwise(c, "add", x, _scaled(c, c.g.mul(a, b), value))


@converts("addcdiv")
def addcdiv(c, x, a, b, value=1):
    refuse_if(not c.is_real, "addcdiv of integers")
    return pointwise(c, "add", x, _scaled(c, c.g.div(_real(c, a), _real(c, b)), value))


@converts("lerp.Scalar", "lerp.Tensor")
def lerp(c, a, b, weight):
    return pointwise(c, "add", a, c.g.mul(c.g.sub(b, a), weight))


@converts("maximum")
def maximum(c, a, b):
    refuse_if(c.fake.dtype == torch.bool, "the maximum of bool")
    return pointwise(c, "max", a, b)


@converts("minimum")
def minimum(c, a, b):
    refuse_if(c.fake.dtype == torch.bool, "the minimum of bool")
    return pointwise(c, "min", a, b)


@converts("clamp", "clamp.Tensor")
def clamp(c, x, min=None, max=None):
    if c.is_real:
        x = _real(c, x)
    if min is not None and max is not None:
        return pointwise(c, "min", c.g.max(x, min), max)
    if min is not None:
        return pointwise(c, "max", x, min)
    return pointwise(c, "min", x, max)


@converts("clamp_min", "clamp_min.Tensor")
def clamp_min(c, x, min):
    return pointwise(c, "max", x, min)


@converts("clamp_max", "clamp_max.Tensor")
def clamp_max(c, x, max):
    return pointwise(c, "min", x, max)


# --- functions -------------------------------------------------------------------------------------------


def _functions(**modes):
    for name, mode in modes.items():

        def convert(c, x, _mode=mode):
            return pointwise(c, _mode, x)

        converts(name)(convert)


_functions(
    neg="neg", abs="abs", exp="exp", log="log", sqrt="sqrt", rsqrt="rsqrt", reciprocal="reciprocal", sin="sin",
    cos="cos", tan="tan", tanh="tanh", sigmoid="sigmoid", erf="erf", relu="relu",
)  # fmt: skip


@converts("floor", "ceil")
def rounded(c, x):
    refuse_if(not c.is_real, "rounding of integers")
    return pointwise(c, c.node.target._schema.name.split("::")[1], x)


@converts("log2")
def log2(c, x):
    """Powers of 2 give whole numbers."""
    x = _real(c, x)
    y = c.g.mul(c.g.log(x), 1 / math.log(2))
    whole = c.g.floor(c.g.add(y, 0.5))
    return c.g.binary_select(whole, y, c.g.cmp_eq(c.g.pow(2.0, whole), x), type=c.type)


@converts("log10")
def log10(c, x):
    return pointwise(c, "mul", c.g.log(_real(c, x)), 1 / math.log(10))


@converts("exp2")
def exp2(c, x):
    return pointwise(c, "pow", 2.0, x)


@converts("expm1")
def expm1(c, x):
    """elu is expm1 below 0; above, expm1(x) = -expm1(-x) * exp(x)."""
    x = _real(c, x)
    above = c.g.neg(c.g.mul(c.g.elu(c.g.neg(x)), c.g.exp(x)))
    return c.g.binary_select(above, c.g.elu(x), c.g.cmp_gt(x, 0.0), type=c.type)


@converts("log1p")
def log1p(c, x):
    """log(1 + x) * x / ((1 + x) - 1), whose errors of 1 + x cancel."""
    x = _real(c, x)
    u = c.g.add(x, 1.0)
    exact = c.g.mul(c.g.log(u), c.g.div(x, c.g.sub(u, 1.0)))
    is_itself = c.g.logical_or(c.g.cmp_eq(u, 1.0), c.g.cmp_eq(u, math.inf))
    return c.g.binary_select(x, exact, is_itself, type=c.type)


@converts("sign", "sgn")
def sign(c, x):
    refuse_if(c.fake.dtype == torch.bool, "the sign of bool")
    above, below = c.g.cmp_gt(x, 0, type="int32"), c.g.cmp_lt(x, 0, type="int32")
    return c.g.sub(above, below, type=type_of(c.fake.dtype))


# --- activations -----------------------------------------------------------------------------------------


@converts("gelu")
def gelu(c, x, approximate="none"):
    return pointwise(c, "gelu" if approximate == "none" else "gelu_tanh", x)


@converts("gelu_backward")
def gelu_backward(c, dy, x, approximate="none"):
    return pointwise(c, "gelu_bwd" if approximate == "none" else "gelu_tanh_bwd", dy, x)


@converts("silu")
def silu(c, x):
    return pointwise(c, "swish", x)


@converts("silu_backward")
def silu_backward(c, dy, x):
    return pointwise(c, "swish_bwd", dy, x)


@converts("leaky_relu")
def leaky_relu(c, x, negative_slope=0.01):
    return pointwise(c, "relu", x, lower_clip_slope=float(negative_slope))


@converts("leaky_relu_backward")
def leaky_relu_backward(c, dy, x, negative_slope, self_is_result):
    return pointwise(c, "relu_bwd", dy, x, lower_clip_slope=float(negative_slope))


@converts("elu")
def elu(c, x, alpha=1, scale=1, input_scale=1):
    if scale == 1 and input_scale == 1:
        return pointwise(c, "elu", x, elu_alpha=float(alpha))
    y = c.g.elu(x if input_scale == 1 else c.g.mul(x, float(input_scale)), elu_alpha=float(alpha))
    if input_scale != 1:
        y = c.g.binary_select(x, y, c.g.cmp_gt(x, 0.0))
    return pointwise(c, "mul", y, float(scale))


@converts("hardtanh")
def hardtanh(c, x, min_val=-1, max_val=1):
    return clamp(c, x, min_val, max_val)


@converts("hardtanh_backward")
def hardtanh_backward(c, dy, x, min_val, max_val):
    return _inside(c, dy, x, min_val, max_val)


def _inside(c, dy, x, low, high):
    """dy where x is between two numbers and neither of them."""
    is_inside = c.g.logical_and(c.g.cmp_gt(x, float(low)), c.g.cmp_lt(x, float(high)))
    return pointwise(c, "binary_select", dy, 0.0, is_inside)


def _gate(c, x):
    """relu6(x + 3) / 6."""
    return c.g.mul(c.g.relu(c.g.add(x, 3.0), upper_clip=6.0), 1 / 6)


@converts("hardsigmoid")
def hardsigmoid(c, x):
    return pointwise(c, "identity", _gate(c, x))


@converts("hardsigmoid_backward")
def hardsigmoid_backward(c, dy, x):
    return _inside(c, c.g.mul(dy, 1 / 6), x, -3.0, 3.0)


@converts("hardswish")
def hardswish(c, x):
    return pointwise(c, "mul", x, _gate(c, x))


@converts("hardswish_backward")
def hardswish_backward(c, dy, x):
    inside = c.g.add(c.g.mul(x, 1 / 3), 0.5)
    slope = c.g.binary_select(inside, c.g.cmp_ge(x, 3.0, type="fp32"), c.g.cmp_lt(c.g.abs(x), 3.0))
    return pointwise(c, "mul", dy, slope)


@converts("softplus")
def softplus(c, x, beta=1, threshold=20):
    refuse_if(beta == 0, "softplus with beta 0")
    soft = c.g.softplus(x, softplus_beta=float(beta))
    return c.g.binary_select(x, soft, c.g.cmp_gt(c.g.mul(x, float(beta)), float(threshold)), type=c.type)


@converts("softplus_backward")
def softplus_backward(c, dy, x, beta, threshold):
    refuse_if(beta == 0, "softplus with beta 0")
    soft = c.g.softplus_bwd(dy, x, softplus_beta=float(beta))
    return c.g.binary_select(dy, soft, c.g.cmp_gt(c.g.mul(x, float(beta)), float(threshold)), type=c.type)


@converts("mish")
def mish(c, x):
    return pointwise(c, "mul", x, c.g.tanh(c.g.softplus(x)))


@converts("tanh_backward")
def tanh_backward(c, dy, y):
    return pointwise(c, "mul", dy, c.g.sub(1.0, c.g.mul(y, y)))


@converts("sigmoid_backward")
def sigmoid_backward(c, dy, y):
    return pointwise(c, "mul", dy, c.g.mul(y, c.g.sub(1.0, y)))


@converts("threshold_backward")
def threshold_backward(c, dy, x, threshold):
    return pointwise(c, "relu_bwd", dy, x, lower_clip=float(threshold))


# --- comparisons, logic, choices -------------------------------------------------------------------------


def _rounded(c, b):
    """A number as PyTorch compares it with a tensor of reals: rounded to the tensor's dtype."""
    dtype = c.operand(0).dtype
    if not dtype.is_floating_point:
        return b
    if isinstance(b, Tensor):
        return c.g.identity(b, type=type_of(dtype)) if b.type.name == "i64" and math.prod(b.dims) == 1 else b
    return torch.tensor(b, dtype=dtype).item()


def _comparisons(**modes):
    for name, mode in modes.items():

        def convert(c, a, b, _mode=mode):
            return getattr(c.g, _mode)(a, _rounded(c, _number(c, b)), type=c.type)

        converts(f"{name}.Tensor", f"{name}.Scalar")(convert)


_comparisons(eq="cmp_eq", ne="cmp_neq", gt="cmp_gt", ge="cmp_ge", lt="cmp_lt", le="cmp_le")


@converts("logical_and")
def logical_and(c, a, b):
    return c.g.logical_and(a, b, type=c.type)


@converts("logical_or")
def logical_or(c, a, b):
    return c.g.logical_or(a, b, type=c.type)


@converts("logical_not")
def logical_not(c, x):
    return c.g.logical_not(x, type=c.type)


@converts("logical_xor")
def logical_xor(c, a, b):
    return c.g.cmp_neq(c.g.logical_not(a), c.g.logical_not(b), type=c.type)


def _bitwise(c, mode, *operands):
    refuse_if(c.fake.dtype != torch.bool, "bits of integers")
    return getattr(c.g, mode)(*[_number(c, x) for x in operands], type=c.type)


@converts("bitwise_and.Tensor", "bitwise_and.Scalar", "__and__.Tensor", "__and__.Scalar")
def bitwise_and(c, a, b):
    return _bitwise(c, "logical_and", a, b)


@converts("bitwise_or.Tensor", "bitwise_or.Scalar", "__or__.Tensor", "__or__.Scalar")
def bitwise_or(c, a, b):
    return _bitwise(c, "logical_or", a, b)


@converts("bitwise_xor.Tensor", "__xor__.Tensor")
def bitwise_xor(c, a, b):
    return _bitwise(c, "cmp_neq", a, b)


@converts("bitwise_not")
def bitwise_not(c, x):
    return _bitwise(c, "logical_not", x)


@converts("isnan")
def isnan(c, x):
    return c.g.cmp_neq(x, x, type=c.type)


@converts("isinf")
def isinf(c, x):
    return c.g.cmp_eq(c.g.abs(x), math.inf, type=c.type)


def _literal(node, place):
    """The number that an operand of a real op is, if it is a constant without dims: one that is a tensor is stored
    where several kernels read it. Else None."""
    made, result = node.args[place], node.meta["val"]
    if not isinstance(made, torch.fx.Node) or made.target not in (overload("scalar_tensor"), overload("full")):
        return None
    fake, value = made.meta["val"], made.args[-1]
    is_alike = fake.dim() == 0 and fake.dtype == result.dtype and result.dtype.is_floating_point
    return float(value) if is_alike and isinstance(value, (int, float)) else None


def _literals(node):
    return [place for place in range(1, len(node.args)) if _literal(node, place) is not None]


@converts("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar", ignores=_literals)
def where(c, condition, a, b):
    refuse_if(c.fake.dtype in WRAPS, "8-bit integers")
    a, b = (_literal(c.node, place) if x is None else _number(c, x) for place, x in ((1, a), (2, b)))
    if c.is_real:
        a, b = _real(c, a), _real(c, b)
    return c.g.binary_select(a, b, condition, type=c.type)


@converts("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(c, x, mask, value):
    return where(c, mask, value, x)


@converts("copysign.Tensor")
def copysign(c, a, b):
    raise Refused("copysign knows the sign of zero")


# --- casts -----------------------------------------------------------------------------------------------


@converts("_to_copy", "to.dtype", "clone", "detach_copy", "contiguous", "lift_fresh_copy")
def to_copy(c, x, *args, **named):
    """A cast where the dtype is another one, else nothing: a graph's values have no place."""
    before = c.operand(0)
    refuse_if(before.device != c.fake.device, f"a copy from {before.device.type} to {c.fake.device.type}")
    return x if before.dtype == c.fake.dtype else c.typed(x, c.fake.dtype)


@converts("prims.convert_element_type")
def convert_element_type(c, x, dtype):
    return to_copy(c, x)

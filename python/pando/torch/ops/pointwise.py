"""Element by element: arithmetic, comparisons, functions of one and two numbers."""

from __future__ import annotations

import math

from .._value import Value
from ._table import arithmetic, comparison, op, wide

for name in ("abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "log", "log1p", "neg", "sin", "sqrt", "tanh"):
    arithmetic(name)(lambda c, x, func=name: x if func in ("ceil", "floor") and not x.is_float else x.unary(func))


@arithmetic("sign", "sgn")
def sign(c, x):
    return x if x.dtype == "bool" else x.unary("sign")


@arithmetic("round")
def round_(c, x):
    return x.unary("round") if x.is_float else x


@arithmetic("round.decimals")
def round_decimals(c, x, *, decimals):
    if not x.is_float:
        return x
    scale = 10.0 ** abs(decimals)
    return (x * scale).unary("round") / scale if decimals >= 0 else (x / scale).unary("round") * scale


@arithmetic("trunc", "fix")
def trunc(c, x):
    return x.lt(0).select(x.unary("ceil"), x.unary("floor")) if x.is_float else x


@arithmetic("frac")
def frac(c, x):
    return x - trunc(c, x)


@arithmetic("reciprocal")
def reciprocal(c, x):
    return 1.0 / x


@arithmetic("rsqrt")
def rsqrt(c, x):
    return 1.0 / x.sqrt()


@arithmetic("square")
def square(c, x):
    return x * x


@arithmetic("exp2")
def exp2(c, x):
    return 2.0**x


@arithmetic("log2")
def log2(c, x):
    return x.log() * (1 / math.log(2))


@arithmetic("log10")
def log10(c, x):
    return x.log() * (1 / math.log(10))


@arithmetic("erfc")
def erfc(c, x):
    return 1.0 - x.unary("erf")


@arithmetic("tan")
def tan(c, x):
    return x.unary("sin") / x.unary("cos")


@arithmetic("atan")
def atan(c, x):
    return c.g.binary("atan2", x, 1.0)


def _cosine_of(x: Value) -> Value:
    """The cosine of the angle whose sine is x."""
    return ((1.0 - x) * (1.0 + x)).sqrt()


@arithmetic("asin")
def asin(c, x):
    return c.g.binary("atan2", x, _cosine_of(x))


@arithmetic("acos")
def acos(c, x):
    return c.g.binary("atan2", _cosine_of(x), x)


@arithmetic("sinh")
def sinh(c, x):
    # Near zero the difference of exponentials would lose every digit.
    small = x.unary("expm1")
    near = (small + small / (small + 1.0)) * 0.5
    far = (x.exp() - (-x).exp()) * 0.5
    return x.abs().lt(1.0).select(near, far)


@arithmetic("cosh")
def cosh(c, x):
    return (x.exp() + (-x).exp()) * 0.5


@arithmetic("asinh")
def asinh(c, x):
    size = x.abs()
    square = size * size
    near = (size + square / (1.0 + (square + 1.0).sqrt())).unary("log1p")
    far = size.log() + math.log(2)
    return x.unary("sign") * size.lt(1e9).select(near, far)


@arithmetic("acosh")
def acosh(c, x):
    return (x + ((x - 1.0) * (x + 1.0)).sqrt()).log()


@arithmetic("atanh")
def atanh(c, x):
    return (x.unary("log1p") - (-x).unary("log1p")) * 0.5


@arithmetic("erfinv")
def erfinv(c, x):
    """Giles's single-precision polynomials (2010), then one step of Newton's method."""
    w = -((1.0 - x) * (1.0 + x)).log()
    near, far = w - 2.5, w.maximum(5.0).sqrt() - 3.0
    below = _polynomial(
        near,
        (
            2.81022636e-08,
            3.43273939e-07,
            -3.5233877e-06,
            -4.39150654e-06,
            0.00021858087,
            -0.00125372503,
            -0.00417768164,
            0.246640727,
            1.50140941,
        ),
    )
    above = _polynomial(
        far,
        (
            -0.000200214257,
            0.000100950558,
            0.00134934322,
            -0.00367342844,
            0.00573950773,
            -0.0076224613,
            0.00943887047,
            1.00167406,
            2.83297682,
        ),
    )
    guess = w.lt(5.0).select(below, above) * x
    slope = (-(guess * guess)).exp() * (2 / math.sqrt(math.pi))
    better = guess - (guess.unary("erf") - x) / slope
    return x.abs().lt(1.0).select(better, x.unary("sign") * math.inf)


def _polynomial(x: Value, coefficients) -> Value:
    """Horner's rule, from the highest power."""
    result = x * 0.0 + coefficients[0]
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


@arithmetic("add.Tensor", "add.Scalar")
def add(c, x, y, alpha=1):
    return x + y if alpha == 1 else x + y * alpha


@arithmetic("sub.Tensor", "sub.Scalar")
def sub(c, x, y, alpha=1):
    return x - y if alpha == 1 else x - y * alpha


@arithmetic("rsub.Tensor", "rsub.Scalar")
def rsub(c, x, y, alpha=1):
    return y - (x if alpha == 1 else x * alpha)


@arithmetic("mul.Tensor", "mul.Scalar")
def mul(c, x, y):
    return x * y


@arithmetic("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(c, x, y):
    return x / y


@arithmetic("div.Tensor_mode", "div.Scalar_mode")
def div_mode(c, x, y, *, rounding_mode=None):
    if rounding_mode is None:
        return x / y
    if rounding_mode == "floor":
        return floor_divide(c, x, y)
    return trunc(c, x / y)


@arithmetic("floor_divide", "floor_divide.Scalar")
def floor_divide(c, x, y):
    y = c.g.full(x.dtype, (), y) if not isinstance(y, Value) else y
    left = x % y
    if not x.is_float:
        one_less = left.ne(0) & left.lt(0).ne(y.lt(0))
        return x / y - one_less.to(x.dtype)
    # A quotient that rounds up to a whole number must not count as it: the remainder decides.
    quotient = (x - left) / y
    quotient = quotient - (left.ne(0) & left.lt(0).ne(y.lt(0))).to(x.dtype)
    whole = quotient.unary("floor")
    nearest = whole + (quotient - whole).gt(0.5).to(x.dtype)
    return y.eq(0).select(x / y, nearest)


@arithmetic("fmod.Tensor", "fmod.Scalar")
def fmod(c, x, y):
    return x % y


@arithmetic("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(c, x, y):
    """With the sign of the divisor."""
    if not isinstance(x, Value):
        x = c.g.full(y.dtype, (), x)
    y = c.g.full(x.dtype, (), y) if not isinstance(y, Value) else y
    left = x % y
    return (left.ne(0) & left.lt(0).ne(y.lt(0))).select(left + y, left)


@arithmetic("pow.Tensor_Scalar")
def pow_scalar(c, x, exponent):
    if exponent == 0:
        return c.g.full(x.dtype, x.shape, 1)
    if float(exponent).is_integer() and 1 <= exponent <= 4:
        half = x * x if exponent > 1 else x
        return {1: half, 2: half, 3: half * x if exponent == 3 else half, 4: half * half if exponent == 4 else half}[
            int(exponent)
        ]
    if x.is_float and exponent in (0.5, -0.5, -1, -2):
        base = x.sqrt() if abs(exponent) == 0.5 else x * x if exponent == -2 else x
        return base if exponent > 0 else 1.0 / base
    return x**exponent


@arithmetic("pow.Tensor_Tensor", "pow.Scalar", "float_power.Tensor_Tensor")
def pow_(c, x, exponent):
    return x**exponent


@arithmetic("atan2")
def atan2(c, y, x):
    return c.g.binary("atan2", y, x)


@arithmetic("maximum")
def maximum(c, x, y):
    return x.maximum(y)


@arithmetic("minimum")
def minimum(c, x, y):
    return x.minimum(y)


@arithmetic("fmax")
def fmax(c, x, y):
    """Of a number and NaN, the number."""
    larger = x.maximum(y)
    return x.ne(x).select(y, y.ne(y).select(x, larger)) if x.is_float else larger


@arithmetic("fmin")
def fmin(c, x, y):
    smaller = x.minimum(y)
    return x.ne(x).select(y, y.ne(y).select(x, smaller)) if x.is_float else smaller


@arithmetic("hypot")
def hypot(c, x, y):
    large, small = x.abs().maximum(y.abs()), x.abs().minimum(y.abs())
    ratio = small / large.eq(0).select(1.0, large)
    return large * (1.0 + ratio * ratio).sqrt()


@arithmetic("logaddexp")
def logaddexp(c, x, y):
    larger = x.maximum(y)
    same = x.eq(y)
    return same.select(x + math.log(2), larger + (-(x - y).abs()).exp().unary("log1p"))


@arithmetic("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other")
def xlogy(c, x, y):
    x = c.g.full(c.out.dtype, (), x) if not isinstance(x, Value) else x
    log = y.log() if isinstance(y, Value) else c.g.full(c.out.dtype, (), math.log(y) if y > 0 else -math.inf)
    return x.eq(0).select(0.0, x * log)


@arithmetic("addcmul")
def addcmul(c, x, a, b, *, value=1):
    product = a * b
    return x + (product if value == 1 else product * value)


@arithmetic("addcdiv")
def addcdiv(c, x, a, b, *, value=1):
    quotient = a / b
    return x + (quotient if value == 1 else quotient * value)


@arithmetic("lerp.Scalar", "lerp.Tensor")
def lerp(c, x, y, weight):
    if not isinstance(weight, Value):
        return x + (y - x) * weight if abs(weight) < 0.5 else y - (y - x) * (1 - weight)
    return weight.abs().lt(0.5).select(x + (y - x) * weight, y - (y - x) * (1.0 - weight))


@arithmetic("clamp", "clamp.Tensor", "clip")
def clamp(c, x, low=None, high=None):
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


@arithmetic("clamp_min", "clamp_min.Tensor")
def clamp_min(c, x, low):
    return x.maximum(low)


@arithmetic("clamp_max", "clamp_max.Tensor")
def clamp_max(c, x, high):
    return x.minimum(high)


for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    comparison(f"{name}.Tensor", f"{name}.Scalar")(lambda c, x, y, func=name: c.g.binary(func, x, y))


@comparison("isnan")
def isnan(c, x):
    return x.ne(x) if x.is_float else c.full(0)


@comparison("isinf")
def isinf(c, x):
    return x.abs().eq(math.inf) if x.is_float else c.full(0)


@comparison("isfinite")
def isfinite(c, x):
    return x.abs().lt(math.inf) if x.is_float else c.full(1)


@comparison("isposinf")
def isposinf(c, x):
    return x.eq(math.inf) if x.is_float else c.full(0)


@comparison("isneginf")
def isneginf(c, x):
    return x.eq(-math.inf) if x.is_float else c.full(0)


@comparison("signbit")
def signbit(c, x):
    if not x.is_float:
        return x.lt(0)
    return x.lt(0) | (x.eq(0) & (1.0 / x).lt(0))


@arithmetic("copysign.Tensor", "copysign.Scalar")
def copysign(c, x, y):
    y = c.g.full(x.dtype, x.shape, y) if not isinstance(y, Value) else y
    size = x.abs()
    return signbit(c, y).select(-size, size)


@arithmetic("heaviside")
def heaviside(c, x, at_zero):
    return x.eq(0).select(at_zero, x.gt(0).to(x.dtype))


@op("logical_not")
def logical_not(c, x):
    return x.logical_not()


for name in ("and", "or", "xor"):
    op(f"logical_{name}")(lambda c, x, y, func=name: c.g.binary(func, x.to("bool"), y.to("bool")))
    arithmetic(f"bitwise_{name}.Tensor", f"bitwise_{name}.Scalar", f"bitwise_{name}.Scalar_Tensor")(
        lambda c, x, y, func=name: c.g.binary(func, x, y)
    )


@op("bitwise_not")
def bitwise_not(c, x):
    return x.unary("not")


@arithmetic("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "__lshift__.Scalar", "__lshift__.Tensor")
def shift_left(c, x, y):
    return c.g.binary("shl", x, y)


@arithmetic("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "__rshift__.Scalar", "__rshift__.Tensor")
def shift_right(c, x, y):
    return c.g.binary("shr", x, y)


@op("where.self")
def where(c, condition, x, y):
    return condition.to("bool").select(x.to(c.out.dtype), y.to(c.out.dtype)).broadcast(c.out.shape)


@op("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(c, x, mask, number):
    filler = number.to(x.dtype) if isinstance(number, Value) else c.g.scalar(x.dtype, number)
    return mask.to("bool").select(filler, x).broadcast(c.out.shape)


@op("_to_copy", "copy", "type_as")
def convert(c, x, *others, **_):
    """`copy` has the values to take second."""
    source = others[0] if others and isinstance(others[0], Value) and c.func._opname == "copy" else x
    return source.to(c.out.dtype).broadcast(c.out.shape)


@op("clone", "alias_copy", "detach_copy")
def clone(c, x, **_):
    return x


@wide("nan_to_num")
def nan_to_num(c, x, nan=None, posinf=None, neginf=None):
    if not x.is_float:
        return x
    largest = {"f32": 3.4028234663852886e38, "f16": 65504.0, "bf16": 3.3895313892515355e38}[c.out.dtype]
    x = x.ne(x).select(0.0 if nan is None else nan, x)
    x = x.eq(math.inf).select(largest if posinf is None else posinf, x)
    return x.eq(-math.inf).select(-largest if neginf is None else neginf, x)

"""Random numbers, from the seed that a program carries from run to run."""

from __future__ import annotations

import math

from .._value import Value
from ._table import op


def uniform01(c, shape=None) -> Value:
    """f32 in [0, 1)."""
    return c.capture.random("uniform", "f32", c.out.shape if shape is None else shape)


def _positive(c) -> Value:
    """f32 in (0, 1]: fit for a logarithm."""
    return 1.0 - uniform01(c)


@op("rand", "rand_like", "rand.generator")
def rand(c, *_, **__):
    return uniform01(c).to(c.out.dtype)


@op("randn", "randn_like", "randn.generator")
def randn(c, *_, **__):
    return c.capture.random("normal", "f32", c.out.shape).to(c.out.dtype)


@op("uniform")
def uniform(c, x, low=0.0, high=1.0, *, generator=None):
    return (uniform01(c) * (high - low) + low).to(c.out.dtype)


@op("normal_functional", "normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor", "normal.float_float")
def normal(c, *args, generator=None, **_):
    functional = c.func._opname == "normal_functional"
    mean, std = (list(args[1:3] if functional else args[:2]) + [0.0, 1.0][len(args) - (1 if functional else 0) :])[:2]
    draws = c.capture.random("normal", "f32", c.out.shape)
    mean, std = (value.to("f32") if isinstance(value, Value) else float(value) for value in (mean, std))
    return (draws * std + mean).to(c.out.dtype)


@op("exponential")
def exponential(c, x, rate=1.0, *, generator=None):
    return (-_positive(c).log() / rate).to(c.out.dtype)


@op("log_normal")
def log_normal(c, x, mean=1.0, std=2.0, *, generator=None):
    return (c.capture.random("normal", "f32", c.out.shape) * std + mean).exp().to(c.out.dtype)


@op("cauchy")
def cauchy(c, x, median=0.0, sigma=1.0, *, generator=None):
    angle = (uniform01(c) - 0.5) * math.pi
    return (angle.unary("sin") / angle.unary("cos") * sigma + median).to(c.out.dtype)


@op("geometric")
def geometric(c, x, p, *, generator=None):
    return ((_positive(c).log() / math.log1p(-p)).unary("floor") + 1.0).to(c.out.dtype)


@op("bernoulli", "bernoulli.p", "bernoulli.Tensor")
def bernoulli(c, x, p=None, *, generator=None):
    p = x if p is None else p
    p = p.to("f32") if isinstance(p, Value) else float(p)
    return uniform01(c).lt(p).to(c.out.dtype)


@op("native_dropout")
def native_dropout(c, x, p, train=None):
    if train is False or p == 0:
        return [x, c.g.full("bool", x.shape, 1)]
    kept = uniform01(c).ge(p)
    scale = 1 / (1 - p) if p < 1 else 0.0
    return [kept.select(x * scale, 0), kept]


@op("randint", "randint.low", "randint.generator", "randint.low_generator", "randint_like", "randint_like.low_dtype")
def randint(c, *args, **_):
    numbers = [value for value in args if isinstance(value, int)]
    low, high = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
    return _integers(c, low, high)


def _integers(c, low: int, high: int) -> Value:
    if high - low <= 1 << 31:
        bits = c.capture.random("uniform", "u32", c.out.shape)
        return ((bits % (high - low)).to("i64") + low).to(c.out.dtype)
    bits = c.capture.random("uniform", "u64", c.out.shape)
    return ((bits % (high - low)).to("i64") + low).to(c.out.dtype)


@op("random", "random.to", "random.from")
def random_(c, x, *bounds, generator=None):
    """All integers that the type holds exactly, unless told."""
    most = {
        "f32": 1 << 24,
        "f16": 1 << 11,
        "bf16": 1 << 8,
        "bool": 2,
        "u8": 1 << 8,
        "i8": 1 << 7,
        "i16": 1 << 15,
        "i32": 1 << 31,
        "i64": (1 << 63) - 1,
    }[c.out.dtype]
    bounds = [bound for bound in bounds if bound is not None]
    low, high = (
        (0, most)
        if not bounds
        else (0, bounds[0]) if c.func._overloadname == "to" else (bounds[0], bounds[1] if len(bounds) > 1 else most)
    )
    return _integers(c, low, high)


@op("randperm", "randperm.generator")
def randperm(c, count, *_, **__):
    keys = c.capture.random("uniform", "u32", (count,))
    at = c.g.iota("i64", (count,), 0)
    return c.g.ops("sort axis=0 descending=false stable=true", [keys, at])[1].to(c.out.dtype)


@op("multinomial")
def multinomial(c, x, count, replacement=False, *, generator=None):
    """With replacement by the inverse of the distribution function; without by the race of exponentials."""
    weights = x.to("f32")
    if replacement or count == 1:
        ends = weights.scan("sum", x.rank - 1)
        total = ends.slice(x.rank - 1, x.shape[-1] - 1, x.shape[-1])
        draws = uniform01(c, (*x.shape[:-1], count)) * total
        below = ends.unsqueeze(x.rank - 1).le(draws.unsqueeze(x.rank))
        return below.to("i64").sum([x.rank]).minimum(x.shape[-1] - 1)
    times = -(1.0 - uniform01(c, x.shape)).log() / weights
    at = c.g.iota("i64", x.shape, x.rank - 1)
    order = c.g.ops(f"sort axis={x.rank - 1} descending=false stable=true", [times, at])[1]
    return order.slice(x.rank - 1, 0, count)

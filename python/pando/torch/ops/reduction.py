"""Sums and their like over axes, and running ones."""

from __future__ import annotations

import math

from .._value import Value
from ._table import arithmetic, axes_of, axis_of, op, wide, wide_type


@op("sum", "sum.dim_IntList")
def sum_(c, x, axes=None, keepdim=False, *, dtype=None):
    return x.to(wide_type(c.out.dtype)).sum(axes_of(axes, x.rank), keepdim).to(c.out.dtype)


@op("mean", "mean.dim")
def mean(c, x, axes=None, keepdim=False, *, dtype=None):
    return x.to(wide_type(c.out.dtype)).mean(axes_of(axes, x.rank), keepdim).to(c.out.dtype)


@op("nansum")
def nansum(c, x, axes=None, keepdim=False, *, dtype=None):
    x = x.ne(x).select(0, x) if x.is_float else x
    return sum_(c, x, axes, keepdim)


@op("prod", "prod.dim_int")
def prod(c, x, axis=None, keepdim=False, *, dtype=None):
    return x.to(wide_type(c.out.dtype)).reduce("prod", axes_of(axis, x.rank), keepdim).to(c.out.dtype)


@op("amax", "max")
def amax(c, x, axes=(), keepdim=False):
    return x.reduce("max", axes_of(axes, x.rank), keepdim)


@op("amin", "min")
def amin(c, x, axes=(), keepdim=False):
    return x.reduce("min", axes_of(axes, x.rank), keepdim)


@op("aminmax")
def aminmax(c, x, *, dim=None, keepdim=False):
    return [amin(c, x, dim, keepdim), amax(c, x, dim, keepdim)]


@op("all", "all.dim", "all.dims")
def all_(c, x, axes=None, keepdim=False):
    return x.to("bool").reduce("and", axes_of(axes, x.rank), keepdim).to(c.out.dtype)


@op("any", "any.dim", "any.dims")
def any_(c, x, axes=None, keepdim=False):
    return x.to("bool").reduce("or", axes_of(axes, x.rank), keepdim).to(c.out.dtype)


@op("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(c, x, axes=None):
    return x.to("bool").to("i64").sum(axes_of(axes, x.rank))


@wide("logsumexp")
def logsumexp(c, x, axes, keepdim=False):
    axes = axes_of(axes, x.rank)
    x = x.to("f32")
    largest = x.reduce("max", axes, keep=True)
    # Differences of infinities would be NaN.
    largest = largest.abs().eq(math.inf).select(0.0, largest)
    total = ((x - largest).exp().sum(axes, keep=True)).log() + largest
    return total.reshape(c.out.shape)


def _variance(x: Value, axes: list[int], correction) -> tuple[Value, Value]:
    """Variance and mean, reduced axes kept."""
    mean = x.mean(axes, keep=True)
    centred = x - mean
    count = math.prod(x.shape[axis] for axis in axes) if axes else 1
    left = count - correction
    return (centred * centred).sum(axes, keep=True) / (left if left > 0 else 0.0), mean


def _correction(args, correction) -> float:
    """`unbiased` is an old name for a correction of 1."""
    if args:
        return float(args[0])
    return 1.0 if correction is None else float(correction)


@wide(
    "var",
    "var.dim",
    "var.correction",
    "var_mean",
    "var_mean.dim",
    "var_mean.correction",
    "std",
    "std.dim",
    "std.correction",
    "std_mean",
    "std_mean.dim",
    "std_mean.correction",
)
def variance(c, x, *args, correction=None, keepdim=False, unbiased=True):
    args = list(args)
    axes = None
    if args and not isinstance(args[0], bool):
        axes = args.pop(0)
    if args and len(args) > 1:
        keepdim = args.pop()
    axes = axes_of(axes, x.rank)
    spread, mean = _variance(x, axes, _correction(args, correction if unbiased else 0))
    results = [spread.sqrt() if c.func._opname.startswith("std") else spread, mean]
    return [value.reshape(spec.shape) for value, spec in zip(results, c.outs)]


@wide("linalg_vector_norm")
def vector_norm(c, x, order=2, axes=None, keepdim=False, *, dtype=None):
    x = x.to(wide_type(c.out.dtype))
    axes = axes_of(axes, x.rank)
    if order == 2:
        return (x * x).sum(axes, keepdim).sqrt()
    size = x.abs()
    if order in (math.inf, -math.inf):
        return size.reduce("max" if order > 0 else "min", axes, keepdim)
    if order == 0:
        return size.ne(0).to(size.dtype).sum(axes, keepdim)
    if order == 1:
        return size.sum(axes, keepdim)
    return (size**order).sum(axes, keepdim) ** (1 / order)


@op("cumsum")
def cumsum(c, x, axis, *, dtype=None):
    x = x.to(wide_type(c.out.dtype))
    return (x.scan("sum", axis) if x.rank else x).to(c.out.dtype)


@op("cumprod")
def cumprod(c, x, axis, *, dtype=None):
    x = x.to(wide_type(c.out.dtype))
    return (x.scan("prod", axis) if x.rank else x).to(c.out.dtype)


@op("cummax", "cummin")
def cummax(c, x, axis):
    """The last position of what is largest so far."""
    if x.rank == 0:
        return [x, c.g.full("i64", (), 0)]
    func = c.func._opname[3:]
    values = x.scan(func, axis)
    at = c.g.iota("i64", x.shape, axis_of(axis, x.rank))
    return [values, x.eq(values).select(at, 0).scan("max", axis)]


@wide("logcumsumexp")
def logcumsumexp(c, x, axis):
    largest = x.reduce("max", [axis], keep=True)
    return (x - largest).exp().scan("sum", axis).log() + largest


@op("argmax", "argmin")
def argmax(c, x, axis=None, keepdim=False):
    func = c.func._opname[3:]
    rank = x.rank
    if axis is None or rank == 0:
        flat = x.reshape(-1)
        return first_index(flat, 0, flat.reduce(func, [0], keep=True)).reshape(c.out.shape)
    axis = axis_of(axis, rank)
    return first_index(x, axis, x.reduce(func, [axis], keep=True)).reshape(c.out.shape)


def first_index(x: Value, axis: int, value: Value) -> Value:
    """Where along an axis `value` (or NaN, if it is NaN) is found first."""
    found = x.eq(value) | (x.ne(x) & value.ne(value)) if x.is_float else x.eq(value)
    at = x.emitter.iota("i64", x.shape, axis)
    return found.select(at, x.shape[axis]).reduce("min", [axis])


@op("max.dim", "min.dim")
def max_dim(c, x, axis, keepdim=False):
    func = c.func._opname
    if x.rank == 0:
        return [x, c.g.full("i64", (), 0)]
    axis = axis_of(axis, x.rank)
    # Gathered, so that the gradient goes to one of equal elements.
    at = first_index(x, axis, x.reduce(func, [axis], keep=True)).unsqueeze(axis)
    from .indexing import gather_along

    values = gather_along(x, axis, at)
    return [values.reshape(c.out.shape), at.reshape(c.out.shape)]


@arithmetic("dist")
def dist(c, x, y, order=2):
    return vector_norm(c, x - y, order)

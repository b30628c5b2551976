"""Tensors made of nothing but sizes and numbers."""

from __future__ import annotations

import numpy as np

from .._value import Value
from ._table import op


@op(
    "zeros",
    "zeros_like",
    "new_zeros",
    "zero",
    "empty.memory_format",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
    "empty_permuted",
)
def zeros(c, *_, **__):
    return c.full(0)


@op("ones", "ones_like", "new_ones")
def ones(c, *_, **__):
    return c.full(1)


@op("full", "full_like")
def full(c, _, number, *__, **___):
    return _filled(c, number)


@op("new_full")
def new_full(c, _, size, number, **__):
    return _filled(c, number)


@op("fill.Scalar", "fill.Tensor")
def fill(c, _, number):
    return _filled(c, number)


@op("scalar_tensor")
def scalar_tensor(c, number, **_):
    return _filled(c, number)


def _filled(c, number) -> Value:
    if isinstance(number, Value):
        return number.to(c.out.dtype).broadcast(c.out.shape, [])
    return c.full(number)


@op("arange", "arange.start", "arange.start_step", "range", "range.step")
def arange(c, *args, step=1, **_):
    start = args[0] if len(args) > 1 else 0
    step = args[2] if len(args) > 2 else step
    count = c.g.iota("f32" if c.out.dtype in ("f16", "bf16") else c.out.dtype, c.out.shape, 0)
    return (count * step + start).to(c.out.dtype)


@op("linspace", "logspace")
def linspace(c, start, end, steps, base=10.0, **_):
    points = _linspace(float(start), float(end), steps)
    points = points if c.func._opname == "linspace" else float(base) ** points
    integers = c.out.dtype[0] in "iu"
    return c.g.constant(np.trunc(points).astype(np.int64) if integers else points.astype(np.float32)).to(c.out.dtype)


def _linspace(start, end, steps):
    """From both ends to the middle, each product and sum rounded once, as torch does for f32."""
    ends = np.float32(start), np.float32(end)
    step = np.float64((ends[1] - ends[0]) / np.float32(max(steps - 1, 1)))
    at = np.arange(steps)
    points = np.where(at < steps // 2, ends[0] + step * at, ends[1] - step * at[::-1])
    return points.astype(np.float32) if steps > 1 else np.full(steps, ends[0])


@op("eye", "eye.m")
def eye(c, *_, **__):
    rows, columns = (c.g.iota("i32", c.out.shape, axis) for axis in range(2))
    return rows.eq(columns).to(c.out.dtype)


@op("tril", "triu")
def triangle(c, x, diagonal=0):
    rows, columns = (c.g.iota("i32", x.shape, axis) for axis in (x.rank - 2, x.rank - 1))
    distance = columns - rows
    kept = distance.le(diagonal) if c.func._opname == "tril" else distance.ge(diagonal)
    return kept.select(x, 0)


@op("tril_indices", "triu_indices")
def triangle_indices(c, rows, columns, offset=0, **_):
    find = np.tril_indices if c.func._opname == "tril_indices" else np.triu_indices
    return c.g.constant(np.stack(find(rows, offset, columns)).astype(np.int64)).to(c.out.dtype)

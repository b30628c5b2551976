"""Products of matrices and vectors."""

from __future__ import annotations

import math

import numpy as np

from .._value import Value, broadcast_shapes
from ._table import axis_of, op, wide, wide_type


def like(*positions: int):
    """Arguments at the later positions get the type of the one at the first, as PopTorch does with weights: torch
    itself refuses to multiply 16-bit by 32-bit floats."""
    first, others = positions[0], positions[1:]

    def before(args):
        args = list(args)
        for position in others:
            if position < len(args) and args[position] is not None and args[position].dtype != args[first].dtype:
                args[position] = args[position].to(args[first].dtype)
        return tuple(args)

    return before


@op("mm", "bmm", before=like(0, 1))
def mm(c, x, y):
    return x.matmul(y)


@op("addmm", "baddbmm", before=like(1, 2, 0))
def addmm(c, bias, x, y, *, beta=1, alpha=1):
    return _added(c, bias, x.matmul(y), beta, alpha)


@op("addbmm", before=like(1, 2, 0))
def addbmm(c, bias, x, y, *, beta=1, alpha=1):
    product = x.dot(y, [], [(0, 0), (2, 1)])
    return _added(c, bias, product, beta, alpha)


@op("addmv", before=like(1, 2, 0))
def addmv(c, bias, x, y, *, beta=1, alpha=1):
    return _added(c, bias, x.dot(y, [], [(1, 0)]), beta, alpha)


@op("addr", before=like(1, 2, 0))
def addr(c, bias, x, y, *, beta=1, alpha=1):
    return _added(c, bias, x.unsqueeze(1) * y.unsqueeze(0), beta, alpha)


def _added(c, bias: Value, product: Value, beta, alpha) -> Value:
    # What is multiplied by 0 is ignored, NaN or not.
    if alpha == 0:
        product = product.emitter.full(product.dtype, product.shape, 0)
    elif alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (bias if beta == 1 else bias * beta).to(product.dtype)


@op("mv", before=like(0, 1))
def mv(c, x, y):
    return x.dot(y, [], [(1, 0)])


@op("dot", "vdot", before=like(0, 1))
def dot(c, x, y):
    return x.dot(y, [], [(0, 0)])


@op("linear", before=like(0, 1, 2))
def linear(c, x, weight, bias=None):
    result = x.dot(weight, [], [(x.rank - 1, weight.rank - 1)])
    return result if bias is None else result + bias


@op("_trilinear")
def trilinear(c, a, b, d, expand1, expand2, expand3, sumdim, unroll=1):
    operands = []
    for value, expanded in ((a, expand1), (b, expand2), (d, expand3)):
        for axis in expanded:
            value = value.unsqueeze(axis)
        operands.append(value.to(wide_type(c.out.dtype)))
    first, second, third = operands
    return (first * second * third).sum(sumdim).to(c.out.dtype)


@wide("_cdist_forward")
def cdist(c, x, y, order, _mode=None):
    a, b = x.unsqueeze(x.rank - 1), y.unsqueeze(y.rank - 2)
    return _norm_last(a - b, order)


@wide("_pdist_forward")
def pdist(c, x, order=2):
    rows, columns = np.triu_indices(x.shape[0], 1)
    a, b = (x.gather(c.g.constant(at.astype(np.int64)), 0) for at in (rows, columns))
    return _norm_last(a - b, order)


@wide("_euclidean_dist")
def euclidean_dist(c, x, y):
    return cdist(c, x, y, 2.0)


def _norm_last(x: Value, order) -> Value:
    axes, size = [x.rank - 1], x.abs()
    if order == 2:
        return (x * x).sum(axes).sqrt()
    if order == math.inf:
        return size.reduce("max", axes)
    if order == 0:
        return size.ne(0).to(x.dtype).sum(axes)
    return size.sum(axes) if order == 1 else (size**order).sum(axes) ** (1 / order)


@op("linalg_cross", "cross")
def cross(c, x, y, *, dim=-1):
    shape = broadcast_shapes(x.shape, y.shape)
    x, y = x.to(c.out.dtype).broadcast(shape), y.to(c.out.dtype).broadcast(shape)
    axis = axis_of(dim, len(shape))

    def turned(value, by):
        return c.g.concat([value.slice(axis, by, 3), value.slice(axis, 0, by)], axis)

    return turned(x, 1) * turned(y, 2) - turned(x, 2) * turned(y, 1)


@op("trace")
def trace(c, x):
    rows, columns = (c.g.iota("i32", x.shape, axis) for axis in range(2))
    return rows.eq(columns).select(x, 0).to(c.out.dtype).sum([0, 1])

"""Orders."""

from __future__ import annotations

from .._value import Value
from ._table import axis_of, op
from .indexing import gather_along


def sorted_with_index(x: Value, axis: int, descending: bool) -> tuple[Value, Value]:
    """Stable. Values are gathered by the index, which is how gradients find their way back."""
    order = "true" if descending else "false"
    at = x.emitter.iota("i64", x.shape, axis)
    values, index = x.emitter.ops(f"sort axis={axis} descending={order} stable=true", [x, at])
    return (gather_along(x, axis, index) if x.is_float else values), index


@op("sort", "sort.stable", "msort")
def sort(c, x, axis=-1, descending=False, *, stable=None, dim=None):
    axis = dim if dim is not None else axis
    axis = 0 if c.func._opname == "msort" else axis
    if x.rank == 0:
        return [x, c.g.full("i64", (), 0)][: len(c.outs)]
    return list(sorted_with_index(x, axis_of(axis, x.rank), descending))[: len(c.outs)]


@op("argsort", "argsort.stable")
def argsort(c, x, axis=-1, descending=False, *, stable=None, dim=None):
    return c.g.full("i64", (), 0) if x.rank == 0 else sorted_with_index(x, axis_of(axis, x.rank), descending)[1]


@op("topk")
def topk(c, x, count, axis=-1, largest=True, sorted=True):
    if x.rank == 0:
        return [x, c.g.full("i64", (), 0)]
    axis = axis_of(axis, x.rank)
    at = c.g.iota("i64", x.shape, axis)
    order = "true" if largest else "false"
    _, index = c.g.ops(f"sort axis={axis} descending={order} stable=true", [x, at])
    index = index.slice(axis, 0, count)
    return [gather_along(x, axis, index), index]


@op("kthvalue")
def kthvalue(c, x, k, axis=-1, keepdim=False):
    return _at_rank(c, x, axis, k - 1)


@op("median.dim")
def median_dim(c, x, axis, keepdim=False):
    return _at_rank(c, x, axis, (x.shape[axis_of(axis, x.rank)] - 1) // 2 if x.rank else 0)


@op("median")
def median(c, x):
    flat = x.reshape(-1)
    return sorted_with_index(flat, 0, False)[0].pick(0, (flat.size - 1) // 2)


def _at_rank(c, x: Value, axis: int, rank: int) -> list[Value]:
    if x.rank == 0:
        return [x, c.g.full("i64", (), 0)]
    axis = axis_of(axis, x.rank)
    values, index = sorted_with_index(x, axis, False)
    return [value.pick(axis, rank).reshape(c.out.shape) for value in (values, index)]

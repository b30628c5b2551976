"""Elements at computed places: gathering, scattering, embeddings, counting."""

from __future__ import annotations

import math

from .._value import FLOATS, Value, broadcast_shapes
from ._table import arithmetic, axis_of, comparison, op


def gather_along(x: Value, axis: int, index: Value) -> Value:
    """Element `index` along an axis, at each position of `index`, which has x's rank."""
    if x.rank == 0:
        return x.reshape(1).gather(index.reshape(-1), 0).reshape(index.shape)
    if x.rank == 1:
        return x.gather(index, 0)
    return x.reshape(-1).gather(_flat_positions(x, axis, index), 0)


def _flat_positions(x: Value, axis: int, index: Value) -> Value:
    """Of elements whose place along `axis` is the index and along other axes that of the index itself."""
    total = None
    for other in range(x.rank):
        stride = math.prod(x.shape[other + 1 :])
        at = index.to("i64") if other == axis else index.emitter.iota("i64", index.shape, other)
        at = at if stride == 1 else at * stride
        total = at if total is None else total + at
    return total


def scatter_along(x: Value, axis: int, index: Value, updates: Value, combine: str | None) -> Value:
    """The opposite of `gather_along`: updates go where it takes elements from."""
    if index.size == 0:
        return x
    if x.rank == 0:
        return scatter_along(x.reshape(1), 0, index.reshape(1), updates.reshape(1), combine).reshape(())
    flat = _flat_positions(x, axis, index).reshape(-1)
    return x.reshape(-1).scatter(flat, updates.reshape(-1), 0, combine).reshape(x.shape)


def _rows_of(c, index: Value, axis: int, updates_shape, x: Value) -> Value | None:
    """The vector that an index repeats along all other axes, if it does, and covers all of them."""
    if index.rank < 2:
        return index if x.rank == 1 else None
    fake = c.args[2]  # as in gather(x, axis, index)
    others = [other for other in range(index.rank) if other != axis]
    repeats = all(fake.stride(other) == 0 or index.shape[other] == 1 for other in others)
    covers = all(index.shape[other] == x.shape[other] == updates_shape[other] for other in others)
    if not (repeats and covers):
        return None
    for other in reversed(others):
        index = index.pick(other, 0)
    return index


@op("gather")
def gather(c, x, axis, index, *, sparse_grad=False):
    axis = axis_of(axis, x.rank)
    rows = _rows_of(c, index, axis, index.shape, x)
    return gather_along(x, axis, index) if rows is None else x.gather(rows, axis)


@op("index_select")
def index_select(c, x, axis, index):
    if x.rank == 0:
        return x
    return x.gather(index.reshape(-1), axis_of(axis, x.rank))


@op("take")
def take(c, x, index):
    return x.reshape(-1).gather(_not_negative(index, x.size), 0)


def _not_negative(index: Value, size: int) -> Value:
    return index.lt(0).select(index + size, index)


@op("embedding")
def embedding(c, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    rows = weight.gather(indices, 0)
    if padding_idx >= 0 and c.capture.training:
        is_padding = indices.eq(padding_idx).unsqueeze(indices.rank).broadcast(rows.shape)
        rows = is_padding.select(c.capture.detached(rows), rows)
    return rows


@op("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    c,
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=0,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=-1,
):
    """Modes: sum, mean, max. Bags are runs of indices that begin at the offsets."""
    count, bags = indices.shape[0], c.out.shape[0]
    offsets = offsets.slice(0, 0, bags).to("i64")
    at = c.g.iota("i64", (count, bags), 0)
    bag = at.ge(offsets.broadcast((count, bags))).to("i64").sum([1]) - 1
    rows = weight.gather(indices, 0)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    kept = None if padding_idx < 0 else indices.ne(padding_idx)
    neutral = -math.inf if mode == 2 else 0
    if kept is not None:
        rows = kept.unsqueeze(1).select(rows, neutral)
    start = c.g.full(weight.dtype, (bags, weight.shape[1]), neutral)
    result = start.scatter(bag, rows, 0, "max" if mode == 2 else "sum")
    ones = c.g.full("f32", (count,), 1) if kept is None else kept.to("f32")
    counts = c.g.full("f32", (bags,), 0).scatter(bag, ones, 0, "sum")
    if mode == 1:
        result = result / counts.maximum(1.0).to(result.dtype).unsqueeze(1)
    if mode == 2:
        result = counts.eq(0).unsqueeze(1).select(0, result)
    return [result, *([None] * (len(c.outs) - 1))]


def _indexed(x: Value, indices) -> tuple[Value, Value, int, list[int]]:
    """x with the indexed axes merged into one, the index along it, that axis, and x's axes in their new order."""
    at = [axis for axis, index in enumerate(indices) if index is not None]
    tensors = [indices[axis] for axis in at]
    if any(tensor.dtype == "bool" for tensor in tensors):
        raise NotImplementedError("the number of elements that a mask picks is not known; use torch.where")
    shape = broadcast_shapes(*(tensor.shape for tensor in tensors))
    adjacent = at == list(range(at[0], at[-1] + 1))
    first = at[0] if adjacent else 0
    others = [axis for axis in range(x.rank) if axis not in at]
    order = [*others[:first], *at, *others[first:]]
    moved = x.permute(order)
    merged = moved.reshape(*moved.shape[:first], -1, *moved.shape[first + len(at) :])
    total = None
    for axis, tensor in zip(at, tensors):
        size = x.shape[axis]
        place = _not_negative(tensor.to("i64"), size).broadcast(shape)
        total = place if total is None else total * size + place
    return merged, total, first, order


@op("index.Tensor", "_unsafe_index.Tensor")
def index_(c, x, indices):
    if all(index is None for index in indices):
        return x
    merged, index, axis, _ = _indexed(x, indices)
    return merged.gather(index, axis)


@op("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(c, x, indices, values, accumulate=False, unsafe=False):
    masks = [index for index in indices if index is not None]
    if len(masks) == 1 and masks[0].dtype == "bool" and indices[0] is not None:
        return _put_masked(x, masks[0], values, accumulate)
    merged, index, axis, order = _indexed(x, indices)
    rows = (*merged.shape[:axis], *index.shape, *merged.shape[axis + 1 :])
    updates = values.to(x.dtype).broadcast(rows)
    updates = updates.reshape(*merged.shape[:axis], -1, *merged.shape[axis + 1 :])
    result = merged.scatter(index.reshape(-1), updates, axis, "sum" if accumulate else None)
    inverse = [order.index(axis) for axis in range(x.rank)]
    return result.reshape(tuple(x.shape[axis] for axis in order)).permute(inverse)


def _put_masked(x: Value, mask: Value, values: Value, accumulate: bool) -> Value:
    """`x[mask] = number`."""
    if values.size != 1 and values.rank > x.rank - mask.rank:
        raise NotImplementedError("as many values as a mask picks are not known; use torch.where or masked_scatter")
    mask = mask.reshape(*mask.shape, *([1] * (x.rank - mask.rank))).broadcast(x.shape)
    values = values.to(x.dtype).reshape(values.shape if values.size != 1 else ())
    return mask.select(x + values if accumulate else values, x)


@op("masked_scatter")
def masked_scatter(c, x, mask, source):
    mask = mask.to("bool").broadcast(x.shape)
    at = mask.reshape(-1).to("i64").scan("sum", 0) - 1
    values = source.reshape(-1).gather(at.maximum(0), 0).reshape(x.shape)
    return mask.select(values.to(x.dtype), x)


def _source(c, x: Value, index: Value, source) -> Value:
    """The elements to scatter: those of a tensor that have an index, or a number."""
    if not isinstance(source, Value):
        return c.g.full(x.dtype, index.shape, source)
    for axis, size in enumerate(index.shape):
        source = source.slice(axis, 0, size)
    return source.to(x.dtype)


@op("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_add")
def scatter(c, x, axis, index, source, *, reduce=None):
    combine = {None: None, "add": "sum", "multiply": "prod"}[reduce]
    combine = "sum" if c.func._opname == "scatter_add" else combine
    return _scatter(c, x, axis_of(axis, x.rank), index, _source(c, x, index, source), combine)


def _scatter(c, x: Value, axis: int, index: Value, updates: Value, combine: str | None) -> Value:
    rows = _rows_of(c, index, axis, updates.shape, x)
    if rows is not None and index.size:
        return x.scatter(rows, updates, axis, combine)
    return scatter_along(x, axis, index, updates, combine)


_REDUCTIONS = {"sum": "sum", "mean": "sum", "prod": "prod", "amax": "max", "amin": "min"}


@op("scatter_reduce.two")
def scatter_reduce(c, x, axis, index, source, reduce, *, include_self=True):
    axis = axis_of(axis, x.rank)
    updates = _source(c, x, index, source)

    def put(onto: Value, what: Value, combine: str) -> Value:
        return _scatter(c, onto, axis, index, what, combine)

    return _reduced(x, updates, reduce, include_self, put)


@op("index_reduce")
def index_reduce(c, x, axis, index, source, reduce, *, include_self=True):
    reduce = {"sum": "sum", "mean": "mean", "prod": "prod", "amax": "amax", "amin": "amin"}[reduce]

    def put(onto: Value, what: Value, combine: str) -> Value:
        return onto.scatter(index, what, axis, combine)

    return _reduced(x, source.to(x.dtype), reduce, include_self, put)


def _reduced(x: Value, updates: Value, reduce: str, include_self: bool, put) -> Value:
    """What is put somewhere is combined there; `include_self` says whether with what x has."""
    combine = _REDUCTIONS[reduce]
    g = x.emitter
    counts = None
    if reduce == "mean" or not include_self:
        counts = put(g.full("i32", x.shape, 0), g.full("i32", updates.shape, 1), "sum")
    start = x if include_self else counts.gt(0).select(_neutral(x, combine), x)
    result = put(start, updates, combine)
    if reduce != "mean":
        return result
    counts = (counts + 1 if include_self else counts).maximum(1).to(x.dtype)
    if x.dtype in FLOATS:
        return result / counts
    left = result % counts
    return result / counts - (left.ne(0) & left.lt(0)).to(x.dtype)


def _neutral(x: Value, combine: str) -> Value:
    number = {"sum": 0, "prod": 1}.get(combine)
    if number is None:
        number = -math.inf if combine == "max" else math.inf
        if x.dtype not in FLOATS:
            bits = int(x.dtype[1:])
            signed = x.dtype[0] == "i"
            low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
            number = low if combine == "max" else high
    return x.emitter.full(x.dtype, x.shape, number)


@op("index_add")
def index_add(c, x, axis, index, source, *, alpha=1):
    source = source.to(x.dtype)
    source = source if alpha == 1 else source * alpha
    if x.rank == 0:
        return x + source.reshape(())
    return x.scatter(index.reshape(-1), source, axis, "sum")


@op("index_copy")
def index_copy(c, x, axis, index, source):
    if x.rank == 0:
        return source.reshape(())
    return x.scatter(index.reshape(-1), source.to(x.dtype), axis)


@op("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(c, x, axis, index, number):
    number = number.to(x.dtype) if isinstance(number, Value) else c.g.scalar(x.dtype, number)
    if x.rank == 0:
        return number.reshape(())
    axis = axis_of(axis, x.rank)
    index = _not_negative(index.reshape(-1), x.shape[axis])
    shape = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
    return x.scatter(index, number.broadcast(shape, []), axis)


@op("select_scatter")
def select_scatter(c, x, source, axis, index):
    from .._views import picked

    axis = axis_of(axis, x.rank)
    return picked(axis, index % x.shape[axis]).inverse(x, source.to(x.dtype))


@op("slice_scatter")
def slice_scatter(c, x, source, axis=0, start=None, end=None, step=1):
    from .._views import sliced

    axis = axis_of(axis, x.rank)
    begin, stop, step = slice(start, end, step).indices(x.shape[axis])
    return sliced(axis, begin, max(begin, stop), step).inverse(x, source.to(x.dtype))


@op("diagonal_scatter")
def diagonal_scatter(c, x, source, offset=0, dim1=0, dim2=1):
    from .._views import by_strides

    fake = c.args[0]
    return by_strides(fake, fake.diagonal(offset, dim1, dim2)).inverse(x, source.to(x.dtype))


@comparison("bucketize.Tensor", "bucketize.Scalar")
def bucketize(c, x, bounds, *, out_int32=False, right=False):
    x = x if isinstance(x, Value) else c.g.scalar(bounds.dtype, x)
    return _halving(c, bounds, x, right)


@op("searchsorted.Tensor")
def searchsorted(c, bounds, x, *, out_int32=False, right=False, side=None, sorter=None):
    right = right or side == "right"
    bounds = bounds if sorter is None else gather_along(bounds, bounds.rank - 1, sorter)
    common = bounds.dtype if bounds.is_float or not x.is_float else x.dtype
    bounds, x = bounds.to(common), x.to(common)
    if bounds.rank == 1:
        return _halving(c, bounds, x, right)
    edges, wide = bounds.unsqueeze(bounds.rank - 1), x.unsqueeze(x.rank)
    below = edges.le(wide) if right else edges.lt(wide)
    return below.to(c.out.dtype).sum([below.rank - 1])


def _halving(c, bounds, x, right):
    """Torch's search, which halves an interval: bounds that are not sorted give what it gives, too."""
    count = bounds.shape[0]
    first = c.g.full("i32", x.shape, 0)
    end = c.g.full("i32", x.shape, count)
    for _ in range(count.bit_length()):
        middle = (first + end) / 2
        at_middle = bounds.gather(middle.minimum(count - 1), 0)
        goes_right = (at_middle.gt(x) if right else at_middle.ge(x)).logical_not() & first.lt(end)
        end = goes_right.select(end, first.lt(end).select(middle, end))
        first = goes_right.select(middle + 1, first)
    return first.to(c.out.dtype)


@arithmetic("histc")
def histc(c, x, bins=100, min=0, max=0):
    if min == max:
        raise NotImplementedError("give min and max")
    flat = x.reshape(-1)
    at = ((flat - min) * (bins / (max - min))).unary("floor").minimum(bins - 1).to("i64")
    inside = (flat.ge(min) & flat.le(max)).to("f32")
    return c.g.full("f32", (bins,), 0).scatter(at, inside, 0, "sum")

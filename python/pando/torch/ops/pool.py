"""Pools: windows that slide over the last axes."""

from __future__ import annotations

import math

import numpy as np

from .._value import HALVES, Value, ints, pairs
from ._table import op
from .convolution import spread


def _windows(c, x: Value, func: str, kernel, stride, padding, dilation=1) -> Value:
    """A reduction over windows; those that begin inside but end outside (ceil_mode) see neutral elements there."""
    rank = len(c.out.shape) - (2 if x.rank == len(spread(kernel, 1)) + 2 else 1)
    lead = x.rank - rank
    kernel, padding, dilation = (spread(v, rank) for v in (kernel, padding, dilation))
    stride = spread(stride, rank) if stride else kernel
    edges = []
    for axis in range(rank):
        span = dilation[axis] * (kernel[axis] - 1) + 1
        needed = (c.out.shape[lead + axis] - 1) * stride[axis] + span
        edges.append((padding[axis], needed - x.shape[lead + axis] - padding[axis]))
    ones, none = [1] * lead, [(0, 0)] * lead
    return c.g.op(
        f"reduce_window func={func} window={ints(ones + kernel)} strides={ints(ones + stride)}"
        f" padding={pairs(none + edges)} dilation={ints(ones + dilation)}",
        [x],
    )


@op(
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_pool1d_with_indices",
    "_max_pool1d_cpu_forward",
)
def max_pool(c, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    rank = _spatial_rank(c)
    kernel = spread(kernel, rank)
    return [_windows(c, x, "max", kernel, stride, padding, dilation), None][: len(c.outs)]


def _spatial_rank(c) -> int:
    return int(next(digit for digit in c.func._opname if digit.isdigit()))


@op("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(c, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    rank = _spatial_rank(c)
    kernel, padding = spread(kernel, rank), spread(padding, rank)
    stride = spread(stride, rank) if stride else kernel
    dtype = x.dtype
    x = x.to("f32") if dtype in HALVES else x
    total = _windows(c, x, "sum", kernel, stride, padding)
    if divisor_override:
        return (total / divisor_override).to(dtype)
    sizes = x.shape[-rank:]
    counts = [
        _counted(size, out, k, s, p, count_include_pad)
        for size, out, k, s, p in zip(sizes, c.out.shape[-rank:], kernel, stride, padding)
    ]
    return (total / _outer(c, counts, dtype)).to(dtype)


def _counted(size: int, windows: int, kernel: int, stride: int, padding: int, padded: bool) -> np.ndarray:
    """How many positions along an axis count in each window."""
    first = np.arange(windows) * stride - padding
    end = np.minimum(first + kernel, size + padding)
    return np.minimum(end, size) - np.maximum(first, 0) if not padded else end - first


def _outer(c, counts: list[np.ndarray], dtype: str):
    """The product over axes: one number if all windows are alike."""
    if all((count == count[0]).all() for count in counts if len(count)):
        return float(math.prod(int(count[0]) for count in counts if len(count)))
    product = counts[0]
    for count in counts[1:]:
        product = product[..., None] * count
    return c.g.constant(product.astype(np.float32))


@op("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def adaptive_avg_pool(c, x, size):
    rank = _spatial_rank(c)
    dtype = x.dtype
    x = x.to("f32") if dtype in HALVES else x
    axes = range(x.rank - rank, x.rank)
    targets = c.out.shape[-rank:]
    if all(target == 1 for target in targets):
        return x.mean(axes, keep=True).to(dtype)
    if all(x.shape[axis] % target == 0 for axis, target in zip(axes, targets)):
        kernel = [x.shape[axis] // target for axis, target in zip(axes, targets)]
        return (_windows(c, x, "sum", kernel, kernel, 0) / math.prod(kernel)).to(dtype)
    for axis, target in zip(axes, targets):
        weights = np.zeros((x.shape[axis], target), dtype=np.float32)
        for position, (begin, end) in enumerate(_parts(x.shape[axis], target)):
            weights[begin:end, position] = 1 / (end - begin)
        x = along(x, axis, weights)
    return x.to(dtype)


def along(x: Value, axis: int, weights: np.ndarray) -> Value:
    """A product with a matrix along an axis."""
    moved = x.swap(axis, x.rank - 1)
    product = moved.dot(x.emitter.constant(weights), [], [(x.rank - 1, 0)])
    return product.swap(axis, x.rank - 1)


def _parts(size: int, target: int) -> list[tuple[int, int]]:
    return [(at * size // target, -(-(at + 1) * size // target)) for at in range(target)]


@op("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(c, x, size):
    rank = _spatial_rank(c)
    for axis, target in zip(range(x.rank - rank, x.rank), c.out.shape[-rank:]):
        parts = _parts(x.shape[axis], target)
        longest = max(end - begin for begin, end in parts)
        # Windows differ in length by one at most; the shorter ones see their last element twice.
        at = [[min(begin + step, end - 1) for step in range(longest)] for begin, end in parts]
        x = x.gather(c.g.constant(np.array(at, dtype=np.int64)), axis).reduce("max", [axis + 1])
    return [x, None][: len(c.outs)]

"""Copies of elements to other places: joining, padding, turning. Views are in `_views.py`."""

from __future__ import annotations

import math

import numpy as np

from ._table import axis_of, op


@op("cat", "concat")
def cat(c, parts, axis=0):
    # An empty vector joins anything.
    parts = [part.to(c.out.dtype) for part in parts if part.shape != (0,)] or [parts[0].to(c.out.dtype)]
    return c.g.concat(parts, axis_of(axis, parts[0].rank))


@op("stack")
def stack(c, parts, axis=0):
    axis %= parts[0].rank + 1
    return c.g.concat([part.to(c.out.dtype).unsqueeze(axis) for part in parts], axis)


@op("_unsafe_view", "view_copy", "reshape_copy", "_reshape_copy", "squeeze_copy", "unsqueeze_copy", "squeeze_copy.dim")
def reshape(c, x, *_, **__):
    return x.reshape(c.out.shape)


@op("permute_copy")
def permute_copy(c, x, perm):
    return x.permute([axis_of(axis, x.rank) for axis in perm])


@op("expand_copy")
def expand_copy(c, x, *_, **__):
    return x.broadcast(c.out.shape)


@op("repeat")
def repeat(c, x, counts):
    """Each axis as (count, size), merged."""
    shape = (1,) * (len(counts) - x.rank) + x.shape
    apart = [size for pair in zip(counts, shape) for size in pair]
    return x.reshape(shape).broadcast(apart, range(1, len(apart), 2)).reshape(c.out.shape)


@op("flip")
def flip(c, x, axes):
    return x.reverse(sorted({axis_of(axis, x.rank) for axis in axes})) if x.rank else x


@op("roll")
def roll(c, x, shifts, axes=()):
    shifts = [shifts] if isinstance(shifts, int) else shifts
    if not axes:
        return roll(c, x.reshape(-1), shifts, [0]).reshape(x.shape)
    for shift, axis in zip(shifts, axes):
        size = x.shape[axis]
        cut = -shift % size if size else 0
        if cut:
            x = c.g.concat([x.slice(axis, cut, size), x.slice(axis, 0, cut)], axis_of(axis, x.rank))
    return x


@op("constant_pad_nd")
def constant_pad(c, x, amounts, number=0):
    """Amounts are (before, after) from the last axis on."""
    low, high = [0] * x.rank, [0] * x.rank
    for position in range(len(amounts) // 2):
        axis = x.rank - 1 - position
        low[axis], high[axis] = amounts[2 * position : 2 * position + 2]
    return x.pad(low, high, number)


def _padded(c, x, amounts, index):
    """Takes elements of the last axes at `index(size, before, after)`."""
    for position in range(len(amounts) // 2):
        axis = x.rank - 1 - position
        before, after = amounts[2 * position : 2 * position + 2]
        at = index(x.shape[axis], before, after)
        x = x.gather(c.g.constant(np.asarray(at, dtype=np.int64)), axis)
    return x


@op("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(c, x, amounts):
    def index(size, before, after):
        at = np.abs(np.arange(-before, size + after))
        return (size - 1) - np.abs((size - 1) - at)

    return _padded(c, x, amounts, index)


@op("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(c, x, amounts):
    return _padded(c, x, amounts, lambda size, before, after: np.clip(np.arange(-before, size + after), 0, size - 1))


@op("pixel_shuffle")
def pixel_shuffle(c, x, factor):
    *batch, channels, height, width = x.shape
    count = len(batch)
    x = x.reshape(*batch, channels // factor**2, factor, factor, height, width)
    perm = [*range(count), count, count + 3, count + 1, count + 4, count + 2]
    return x.permute(perm).reshape(c.out.shape)


@op("pixel_unshuffle")
def pixel_unshuffle(c, x, factor):
    *batch, channels, height, width = x.shape
    count = len(batch)
    x = x.reshape(*batch, channels, height // factor, factor, width // factor, factor)
    perm = [*range(count), count, count + 2, count + 4, count + 1, count + 3]
    return x.permute(perm).reshape(c.out.shape)


@op("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(c, x, groups):
    shape = x.shape
    x = x.reshape(shape[0], groups, shape[1] // groups, *shape[2:])
    return x.swap(1, 2).reshape(shape)


@op("im2col")
def im2col(c, x, kernel, dilation, padding, stride):
    """Patches as columns: (N, C, H, W) to (N, C · kernel, positions)."""
    batched = x if x.rank == 4 else x.unsqueeze(0)
    batched = batched.pad([0, 0, *padding], [0, 0, *padding])
    rows, columns = (
        _window_indices(size, k, d, s) for size, k, d, s in zip(batched.shape[2:], kernel, dilation, stride)
    )
    patches = batched.gather(c.g.constant(rows), 2)  # N C kh oh W
    patches = patches.gather(c.g.constant(columns), 4)  # N C kh oh kw ow
    return patches.permute([0, 1, 2, 4, 3, 5]).reshape(c.out.shape)


@op("col2im")
def col2im(c, x, size, kernel, dilation, padding, stride):
    """The sum of patches where they were: the adjoint of `im2col`."""
    batched = x if x.rank == 3 else x.unsqueeze(0)
    padded = [n + 2 * p for n, p in zip(size, padding)]
    rows, columns = (_window_indices(n, k, d, s) for n, k, d, s in zip(padded, kernel, dilation, stride))
    channels = batched.shape[1] // math.prod(kernel)
    shape = (batched.shape[0], channels, kernel[0], kernel[1], rows.shape[1], columns.shape[1])
    patches = batched.reshape(shape).permute([0, 1, 2, 4, 3, 5])
    at = rows[:, :, None, None] * padded[1] + columns[None, None]
    flat = c.g.full(x.dtype, (shape[0], channels, padded[0] * padded[1]), 0)
    summed = flat.scatter(c.g.constant(at.reshape(-1)), patches.reshape(shape[0], channels, -1), 2, "sum")
    image = summed.reshape(shape[0], channels, *padded)
    image = image.pad([0, 0] + [-p for p in padding], [0, 0] + [-p for p in padding])
    return image.reshape(c.out.shape)


def _window_indices(size: int, kernel: int, dilation: int, stride: int) -> np.ndarray:
    """(kernel, positions)"""
    positions = (size - dilation * (kernel - 1) - 1) // stride + 1
    return (np.arange(kernel)[:, None] * dilation + np.arange(positions)[None] * stride).astype(np.int64)


@op("diag_embed")
def diag_embed(c, x, offset=0, axis1=-2, axis2=-1):
    shape = c.out.shape
    rank = len(shape)
    axis1, axis2 = axis1 % rank, axis2 % rank
    length = x.shape[-1]
    low, high = max(0, -offset), max(0, offset)
    rows = x.broadcast((*x.shape[:-1], length, length), [*range(x.rank - 1), x.rank - 1])
    a, b = (c.g.iota("i32", rows.shape, axis) for axis in (x.rank - 1, x.rank))
    square = a.eq(b).select(rows, 0)
    zeros = [0] * (x.rank - 1)
    square = square.pad([*zeros, low, high], [*zeros, high, low])
    order = [axis for axis in range(rank) if axis not in (axis1, axis2)]
    perm = [0] * rank
    for position, axis in enumerate([*order, axis1, axis2]):
        perm[axis] = position
    return square.permute(perm)


def fill_diagonal(c, x, number, wrap=False):
    if wrap and x.shape[0] > x.shape[-1]:
        raise NotImplementedError("wrap=True")
    first = c.g.iota("i32", x.shape, 0)
    on_diagonal = None
    for axis in range(1, x.rank):
        same = first.eq(c.g.iota("i32", x.shape, axis))
        on_diagonal = same if on_diagonal is None else on_diagonal & same
    return on_diagonal.select(number, x)

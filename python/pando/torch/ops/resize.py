"""Images at other sizes. Axes are independent: a gather for the nearest pixel, a product with a matrix of weights for
the rest."""

from __future__ import annotations


import numpy as np

from .._value import HALVES, Value
from ._table import op
from .pool import along


def _scale(size: int, target: int, align: bool, factor) -> float:
    """Source pixels for each target pixel."""
    if align:
        return (size - 1) / (target - 1) if target > 1 else 0.0
    return 1 / factor if factor else size / target


def _factors(c, args, rank: int) -> list:
    """Those that the caller gave, by axis; None without."""
    if c.func._overloadname == "vec":
        given = args[-1]
        return list(given) if given else [None] * rank
    given = list(args[-rank:])
    return [factor if isinstance(factor, float) else None for factor in given] if len(given) == rank else [None] * rank


@op(
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_nearest1d.vec",
    "upsample_nearest2d.vec",
    "upsample_nearest3d.vec",
)
def nearest(c, x, size, *args):
    rank = x.rank - 2
    middle = 0.5 if "exact" in c.func._opname else 0.0
    for axis, factor in zip(range(2, x.rank), _factors(c, args, rank)):
        old, new = x.shape[axis], c.out.shape[axis]
        if new % old == 0 and not factor:
            x = _repeated(x, axis, new // old)
            continue
        scale = np.float32(_scale(old, new, False, factor))
        at = np.floor((np.arange(new, dtype=np.float32) + np.float32(middle)) * scale)
        x = x.gather(c.g.constant(np.minimum(at, old - 1).astype(np.int64)), axis)
    return x


def _repeated(x: Value, axis: int, count: int) -> Value:
    if count == 1:
        return x
    shape = (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
    axes = [*range(axis + 1), *range(axis + 2, len(shape))]
    return x.broadcast(shape, axes).reshape(*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :])


@op(
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "upsample_linear1d.vec",
    "upsample_bilinear2d.vec",
    "upsample_trilinear3d.vec",
    "upsample_bicubic2d.vec",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
    "_upsample_bilinear2d_aa.vec",
    "_upsample_bicubic2d_aa.vec",
)
def smooth(c, x, size, align, *args):
    dtype = x.dtype
    x = x.to("f32") if dtype in HALVES else x
    cubic, blurs = "bicubic" in c.func._opname, c.func._opname.endswith("_aa")
    for axis, factor in zip(range(2, x.rank), _factors(c, args, x.rank - 2)):
        old, new = x.shape[axis], c.out.shape[axis]
        scale = _scale(old, new, align, factor)
        weights = _blurred(old, new, scale, cubic) if blurs else _weights(old, new, scale, align, cubic)
        if old != new or not np.array_equal(weights, np.eye(old)):
            x = along(x, axis, weights.astype(np.float32))
    return x.to(dtype)


def _weights(old: int, new: int, scale: float, align: bool, cubic: bool) -> np.ndarray:
    """[old, new]; pixels beyond the edge are the edge's."""
    at = np.arange(new) * scale if align else (np.arange(new) + 0.5) * scale - 0.5
    if not cubic:
        at = np.maximum(at, 0)
    first = np.floor(at).astype(np.int64)
    weights = np.zeros((old, new))
    for offset in range(-1, 3) if cubic else range(2):
        distance = np.abs(at - (first + offset))
        weight = _cubic(distance, -0.75) if cubic else np.maximum(1 - distance, 0)
        np.add.at(weights, (np.clip(first + offset, 0, old - 1), np.arange(new)), weight)
    return weights


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys's kernel (1981)."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _blurred(old: int, new: int, scale: float, cubic: bool) -> np.ndarray:
    """Antialiased: the kernel is as wide as a target pixel where that is wider."""
    width = max(scale, 1.0)
    centre = (np.arange(new) + 0.5) * scale
    support = (2.0 if cubic else 1.0) * width
    weights = np.zeros((old, new))
    for position in range(new):
        begin = max(int(centre[position] - support + 0.5), 0)
        end = min(int(centre[position] + support + 0.5), old)
        distance = np.abs((np.arange(begin, end) + 0.5 - centre[position]) / width)
        weight = _cubic(distance, -0.5) if cubic else np.maximum(1 - distance, 0)
        weights[begin:end, position] = weight / weight.sum()
    return weights

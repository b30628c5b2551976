"""Operations on point clouds: farthest-point sampling and nearest neighbours."""

import math

import torch


def fps(src, ptr, ratio=0.5, random_start=False):
    """Indices of points that lie far from each other: of each cloud `src[ptr[i] : ptr[i + 1]]` the share `ratio`."""
    assert 0 < ratio <= 1, f"ratio must be above 0 and at most 1, not {ratio}"
    assert len(ptr) >= 2, "ptr needs the start and the end of at least one cloud"
    points = src.reshape(src.shape[0], -1)
    chosen = []
    for start, end in zip(ptr[:-1], ptr[1:]):
        chosen.append(_fps(points[int(start) : int(end)], ratio, random_start) + int(start))
    return torch.cat(chosen)


def _fps(points, ratio, random_start):
    count = math.ceil(points.shape[0] * ratio)
    first = int(torch.randint(points.shape[0], ())) if random_start else 0
    index = torch.full((1,), first, dtype=torch.int64)
    indices, distance = [index], None
    for _ in range(count - 1):
        to_new = (points - points.index_select(0, index)).square().sum(1)
        distance = to_new if distance is None else torch.minimum(distance, to_new)
        index = distance.argmax(0, keepdim=True)
        indices.append(index)
    return torch.cat(indices)


def nearest(x, y, batch_x=None, batch_y=None):
    """For each row of `x` the nearest row of `y`; with batches (a number or list a row) of the same batch only."""
    x, y = (t.reshape(t.shape[0], -1) for t in (x, y))
    distance = (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(-1)
    if batch_x is not None or batch_y is not None:
        assert batch_x is not None and batch_y is not None, "nearest needs the batches of both or of none"
        rows, columns = (b if isinstance(b, torch.Tensor) else torch.tensor(b) for b in (batch_x, batch_y))
        distance = torch.where(rows.unsqueeze(1) == columns.unsqueeze(0), distance, math.inf)
    return distance.argmin(1)

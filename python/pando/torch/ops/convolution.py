"""Convolutions. Images are [N, C, spatial...]."""

from __future__ import annotations

from .._value import HALVES, Value, ints, pairs
from ._table import op
from .linalg import like


def spread(values, rank: int) -> list[int]:
    """One number stands for all axes."""
    values = [values] if isinstance(values, int) else list(values)
    return values * rank if len(values) == 1 else values


@op("convolution", "_convolution", before=like(0, 1, 2))
def convolution(c, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *_):
    rank = weight.rank - 2
    batched = x if x.rank == rank + 2 else x.unsqueeze(0)
    stride, padding, dilation, extra = (spread(v, rank) for v in (stride, padding, dilation, output_padding))
    sums = " dtype=f32" if x.dtype in HALVES else ""
    if transposed:
        # The gradient of a convolution: a dense one over the input with gaps, by the turned kernel.
        spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
        edges = [(span - p, span - p + e) for span, p, e in zip(spans, padding, extra)]
        how = f"input_dilation={ints(stride)} padding={pairs(edges)} kernel_dilation={ints(dilation)}"
        weight = _turned(weight, groups)
    else:
        edges = [(p, p) for p in padding]
        how = f"strides={ints(stride)} padding={pairs(edges)} kernel_dilation={ints(dilation)}"
    result = c.g.op(f"conv {how} groups={groups}{sums}", [batched, weight])
    if bias is not None:
        result = result + bias.to(result.dtype).reshape(-1, *([1] * rank))
    return result.to(c.out.dtype).reshape(c.out.shape)


def _turned(weight: Value, groups: int) -> Value:
    """[C, O / groups, ...] to [O, C / groups, ...], reversed in space."""
    inputs, outputs, *space = weight.shape
    weight = weight.reshape(groups, inputs // groups, outputs, *space).swap(1, 2)
    weight = weight.reshape(groups * outputs, inputs // groups, *space)
    return weight.reverse(range(2, weight.rank))

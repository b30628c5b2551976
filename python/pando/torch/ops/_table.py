"""The table of handlers: what each operator of ATen means, on values. A handler gets the call and the operator's
arguments with values for tensors, and returns a value for every result, of exactly the type that torch says; None
for a result that it does not compute."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.utils._pytree as pytree
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from .._types import graph_type
from .._value import HALVES, Value

aten = torch.ops.aten

HANDLERS: dict = {}


class Handler:
    """`before` changes arguments, fake tensors and values alike, before torch is asked about the result."""

    def __init__(self, function: Callable, prepare: Callable | None, before: Callable | None):
        self.function, self.prepare, self.before = function, prepare, before

    def __call__(self, call, *args, **kwargs):
        if self.before is not None:
            args = self.before(args)
        if self.prepare is None:
            return self.function(call, *args, **kwargs)
        args, kwargs = self.prepare(call, args, kwargs)
        result = self.function(call, *args, **kwargs)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        return [value if value is None else value.to(spec.dtype) for value, spec in zip(results, call.outs)]


def operators(names: tuple[str, ...]):
    """`add.Tensor`, or `relu` for the overload without a name. Versions of torch differ: names may be missing."""
    for name in names:
        packet, _, overload = name.partition(".")
        found = getattr(getattr(aten, packet, None), overload or "default", None)
        if found is not None:
            yield found


def register(names, prepare=None, before=None):
    def add(function):
        for found in operators(names):
            HANDLERS[found] = Handler(function, prepare, before)
        return function

    return add


def op(*names: str, before: Callable | None = None):
    """A handler that sees its operands as they are."""
    return register(names, before=before)


def wide_type(dtype: str) -> str:
    return "f32" if dtype in HALVES else dtype


def converted(tree, dtype: str):
    return pytree.tree_map_only(Value, lambda value: value.to(dtype), tree)


def _to_result(call, args, kwargs):
    return converted((args, kwargs), wide_type(call.out.dtype))


def _to_common(call, args, kwargs):
    leaves = pytree.tree_leaves((call.args, call.kwargs))
    operands = [leaf for leaf in leaves if isinstance(leaf, (torch.Tensor, bool, int, float))]
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    common = elementwise_dtypes(*operands, type_promotion_kind=kind)[1]
    return converted((args, kwargs), wide_type(graph_type(common)))


def _to_wide(call, args, kwargs):
    return pytree.tree_map_only(Value, Value.wide, (args, kwargs))


def arithmetic(*names: str):
    """Operands are converted to the result's type, 16-bit floats to f32; the result is converted back."""
    return register(names, _to_result)


def comparison(*names: str):
    """Operands are converted to the type that they have in common."""
    return register(names, _to_common)


def wide(*names: str, before: Callable | None = None):
    """16-bit floats are computed in f32; the result is converted."""
    return register(names, _to_wide, before)


def axis_of(axis: int, rank: int) -> int:
    return axis % rank if rank else 0


def axes_of(axes, rank: int) -> list[int]:
    """None, a number or numbers, negative ones from the end; none are all."""
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        return list(range(rank))
    axes = [axes] if isinstance(axes, int) else axes
    return [axis_of(axis, rank) for axis in axes] if rank else []

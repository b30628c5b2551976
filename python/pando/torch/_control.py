"""Loops and conditions of a captured program, whose bodies are Python functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.utils._pytree as pytree

from .._pando import Error
from ._mode import Capture
from ._types import TORCH_TYPES
from ._value import Value


def for_loop(capture: Capture, count: int, body: Callable, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """`count` times `inputs = body(*inputs)`. Shapes and types stay as they are. Other tensors that the body uses
    are those of outside; changes to them in place are refused."""
    g = capture.emitter
    carried = [capture.value(tensor) for tensor in inputs]
    frame = g.begin("loop")
    try:
        frame.counter = g.param("step", "i32", ())
        results = _body(capture, body, carried, inputs)
        _check_types(results, carried)
        outer = g.end(results, hand_on=True)
    except BaseException:
        g.abandon()
        raise
    ends = g.ops(f"repeat count={count} body=@{frame.name}", [*carried, *outer])[: len(carried)]
    needs_grad = torch.is_grad_enabled()
    return [capture.wrap(value, tensor.dtype, needs_grad, "loop") for value, tensor in zip(ends, inputs)]


def cond(
    capture: Capture,
    condition: torch.Tensor,
    then_body: Callable,
    then_inputs: Sequence[torch.Tensor],
    else_body: Callable,
    else_inputs: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """The results of one body or the other, by a bool of one element."""
    g = capture.emitter
    inputs = [*then_inputs, *else_inputs]
    carried = [capture.value(tensor) for tensor in inputs]
    first = len(then_inputs)
    bodies = [(then_body, slice(0, first)), (else_body, slice(first, None))]
    # Both take the same outer values, which the first time finds.
    outer: list[Value] = []
    for body, part in bodies:
        g.begin("branch")
        try:
            _body(capture, body, carried, inputs, part)
        finally:
            outer += [value for value, _ in g.frame.lifted.values() if all(value is not one for one in outer)]
            g.abandon()
    names, types = [], []
    for body, part in bodies:
        frame = g.begin("branch")
        try:
            results = _body(capture, body, carried, inputs, part, outer)
            types.append([value.type for value in results])
            dtypes = [value.dtype for value in results]
            g.end(results)
        except BaseException:
            g.abandon()
            raise
        names.append(frame.name)
    if types[0] != types[1]:
        raise Error(f"the bodies of a condition give {types[0]} and {types[1]}; both must give the same")
    flag = capture.value(condition).to("bool").reshape(())
    values = g.ops(f"if then=@{names[0]} else=@{names[1]}", [flag, *carried, *outer])
    return [
        capture.wrap(value, TORCH_TYPES[dtype], torch.is_grad_enabled(), "cond") for value, dtype in zip(values, dtypes)
    ]


def _body(
    capture: Capture,
    body: Callable,
    carried: Sequence[Value],
    inputs,
    part: slice = slice(None),
    outer: Sequence[Value] = (),
) -> list[Value]:
    """Runs a body on parameters of the function that has begun; it sees those of `part`."""
    g = capture.emitter
    params = [g.param(f"carried.{at}", value.dtype, value.shape) for at, value in enumerate(carried)]
    g.lift(outer)
    fakes = [capture.wrap(value, tensor.dtype, True, None) for value, tensor in zip(params, inputs)]
    results = pytree.tree_leaves(body(*fakes[part]))
    return [capture.value(result) for result in results]


def _check_types(results: Sequence[Value], carried: Sequence[Value]) -> None:
    if len(results) != len(carried):
        raise Error(f"the body of a loop returns {len(results)} tensors for {len(carried)} inputs")
    for position, (new, old) in enumerate(zip(results, carried)):
        if new.type != old.type:
            raise Error(f"the body of a loop turns input {position}, {old.type}, into {new.type}; it must stay")

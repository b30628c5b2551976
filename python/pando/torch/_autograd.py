"""Functions of `torch.autograd.Function` while a program is captured.

In training the user's `backward` becomes a function of the graph, captured on fake tensors right after `forward`: its
parameters are the gradients of the results, and what it saved. The results are then values through which the graph's
own gradients do not pass, and `gradients` walks from custom function to custom function, last to first. Functions that
torch itself defines have the gradients of their forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.autograd.function import _SingleLevelFunction

from .. import _pando
from .._pando import Error
from ._value import FLOATS, Emitter, Value


@dataclass
class CustomGradient:
    """A call of a function with a backward pass of its own."""

    #: Operands that the backward pass gives a gradient for.
    operands: list[Value]
    #: Floats among the results.
    results: list[Value]
    #: The graph's function: takes their gradients and `saved`, gives those of the operands.
    function: str
    saved: list[Value]


class Context:
    """What `forward` and `backward` are given: takes everything, keeps what `save_for_backward` is given."""

    def __init__(self, needs_input_grad: Sequence[bool]):
        self.needs_input_grad = tuple(needs_input_grad)
        self.saved_tensors: tuple = ()
        self._dirty: tuple = ()

    def save_for_backward(self, *tensors) -> None:
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *tensors) -> None:
        self._dirty = tensors

    def mark_non_differentiable(self, *_) -> None: ...
    def set_materialize_grads(self, _) -> None: ...


@contextmanager
def custom_functions(capture):
    """`apply` runs `forward` like any other function, and captures `backward`."""
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls, *args, **kwargs):
        return _applied(capture, cls, args, kwargs)

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield
    finally:
        torch.autograd.Function.apply = original


def _applied(capture, function, args, kwargs):
    needs = [isinstance(arg, torch.Tensor) and capture.needs_grad(arg) for arg in args]
    # Values now: the function may write to its arguments.
    operands = [capture.tracked(arg).read() if need else None for arg, need in zip(args, needs)]
    context = Context(needs)
    if function.setup_context is not _SingleLevelFunction.setup_context:
        result = function.forward(*args, **kwargs)
        function.setup_context(context, args, result)
    else:
        result = function.forward(context, *args, **kwargs)
    own = not function.__module__.startswith("torch.")
    if not (capture.training and own and any(needs)) or any(
        need and value is None for need, value in zip(needs, operands)
    ):
        return result
    return _with_backward(capture, function, context, operands, result)


def _with_backward(capture, function, context: Context, operands, result):
    """The results as values of their own, and the backward pass as a function of the graph."""
    if len(capture.emitter.frames) > 1:
        raise Error(f"{function.__name__} has a backward pass of its own, and is called in the body of a loop or condition")
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    floats = [one for one in results if isinstance(one, torch.Tensor) and one.is_floating_point()]
    values = [capture.value(one) for one in floats]
    emitter = capture.emitter
    frame = emitter.begin("backward")
    try:
        gradients = _backward(capture, function, context, results)
        wanted = [(at, g) for at, g in enumerate(gradients) if g is not None and operands[at] is not None]
        emitted = [_like(emitter, capture.value(g), operands[at], function) for at, g in wanted]
        saved = emitter.end(emitted)
    except BaseException:
        emitter.abandon()
        raise
    apart = emitter.apart("custom_function", values, stops=True)
    capture.custom_gradients.append(CustomGradient([operands[at] for at, _ in wanted], apart, frame.name, saved))
    replaced = {}
    for one, value in zip(floats, apart):
        if any(one is dirty for dirty in context._dirty):
            capture.write(one, value)
            replaced[id(one)] = one
        else:
            replaced[id(one)] = capture.wrap(value, one.dtype, name=None)
    renewed = [replaced.get(id(one), one) for one in results]
    return type(result)(renewed) if isinstance(result, (tuple, list)) else renewed[0]


def _backward(capture, function, context, results) -> list:
    """Calls `backward` with a parameter for each result's gradient."""
    given = []
    for at, one in enumerate(results):
        if not isinstance(one, torch.Tensor) or not one.is_floating_point():
            given.append(None)
            continue
        value = capture.value(one)
        param = capture.emitter.param(f"gradient.{at}", value.dtype, value.shape)
        given.append(capture.wrap_input(param, one.dtype))
    with torch.no_grad():
        gradients = function.backward(context, *given)
    gradients = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
    expected = len(context.needs_input_grad)
    if len(gradients) < expected or any(one is not None for one in gradients[expected:]):
        raise Error(f"{function.__name__}.backward returns {len(gradients)} gradients for {expected} arguments")
    return gradients[:expected]


def _like(emitter: Emitter, gradient: Value, operand: Value, function) -> Value:
    if gradient.shape != operand.shape:
        raise Error(
            f"{function.__name__}.backward returns a gradient of shape {list(gradient.shape)} for an argument of shape"
            f" {list(operand.shape)}"
        )
    return gradient.to(operand.dtype)


def gradients(
    emitter: Emitter,
    custom: Sequence[CustomGradient],
    outputs: Sequence[Value],
    seeds: Sequence[Value],
    wrt: Sequence[Value],
) -> list[Value | None]:
    """The gradients of Σ⟨seed, output⟩ with respect to `wrt`; None where nothing flows."""
    ends, given = [value.id for value in outputs], [value.id for value in seeds]
    for call in reversed(custom):
        found = _pando.gradients(emitter.native, ends, given, [value.id for value in call.results])
        if all(gradient is None for gradient in found) or not call.operands:
            continue
        known = [
            emitter.full(value.dtype, value.shape, 0) if gradient is None else emitter.value(gradient)
            for value, gradient in zip(call.results, found)
        ]
        shares = emitter.ops(f"call @{call.function}", [*known, *call.saved])
        for operand, share in zip(call.operands, shares):
            if operand.dtype in FLOATS:
                ends.append(operand.id)
                given.append(share.id)
    found = _pando.gradients(emitter.native, ends, given, [value.id for value in wrt])
    return [None if gradient is None else emitter.value(gradient) for gradient in found]

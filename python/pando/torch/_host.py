"""Functions of the host in the middle of a program: the graph ends there, and another one goes on with what they
return. They run for real, in every call of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .. import _pando
from .._pando import Error
from ._types import graph_type
from ._value import Emitter, Frame, Value


@dataclass
class HostCall:
    """A call of a Python function on tensors of the program."""

    function: Callable
    #: The arguments, with a mark in the place of tensors.
    leaves: list
    spec: pytree.TreeSpec
    arguments: list[Value]
    #: Parameters of the part of the graph that follows.
    results: list[Value]
    #: The types of the tensors that the function gets.
    dtypes: list[torch.dtype]
    #: What the function has to return, tensor by tensor.
    types: list[tuple[torch.dtype, tuple[int, ...]]]

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Calls the function; what it returns must have the types and sizes that it had in the sample."""
        given = [tensor.to(dtype) for tensor, dtype in zip(tensors, self.dtypes)]
        results = pytree.tree_leaves(_result(self, given))
        found = [(one.dtype, tuple(one.shape)) if isinstance(one, torch.Tensor) else (type(one), ()) for one in results]
        if found != self.types:
            shown = [", ".join(f"{kind}{list(shape)}" for kind, shape in each) for each in (found, self.types)]
            raise Error(f"a function of the host returns {shown[0]}; when the model was compiled it was {shown[1]}")
        return results


@dataclass
class FinishedPart:
    """A module between host calls. Values stand for themselves: a parameter is a result of an earlier part or host
    call, or a parameter of the whole."""

    module: _pando.Module
    params: list[Value]
    results: list[Value]


def call_host(capture, function: Callable, args, kwargs):
    """The results of `function(*args, **kwargs)` as tensors of the program. The function runs once on made-up elements
    (between 0 and 1, integers 0), which tells the sizes of its results: they must not depend on elements."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    arguments = [capture.value(tensor) for tensor in tensors]
    rest = [_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    call = HostCall(function, rest, spec, arguments, [], [tensor.dtype for tensor in tensors], [])
    with outside(capture):
        samples = [_sample(tensor) for tensor in tensors]
        structure = _result(call, samples)
    results, result_spec = pytree.tree_flatten(structure)
    if not all(isinstance(one, torch.Tensor) for one in results):
        raise Error("a function of the host must return tensors, or tuples, lists or dicts of them")
    capture.emitter.cut(arguments)
    number = len(capture.host_calls)
    for at, one in enumerate(results):
        value = capture.emitter.param(f"host.{number}.{at}", graph_type(one.dtype), tuple(one.shape))
        call.results.append(value)
        call.types.append((one.dtype, tuple(one.shape)))
    capture.host_calls.append(call)
    wrapped = [capture.wrap(value, dtype, needs_grad=False, name=None) for value, (dtype, _) in zip(call.results, call.types)]
    return pytree.tree_unflatten(wrapped, result_spec)


_TENSOR = object()


@contextmanager
def outside(capture):
    """Python that runs inside computes with real tensors."""
    capture.is_outside = True
    try:
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            yield
    finally:
        capture.is_outside = False


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    shape = tuple(tensor.shape)
    if not tensor.is_floating_point():
        return torch.zeros(shape, dtype=tensor.dtype)
    return torch.from_numpy(np.random.default_rng(0).random(shape, np.float32)).to(tensor.dtype)


def _result(call: HostCall, tensors: Sequence[torch.Tensor]):
    given = iter(tensors)
    leaves = [next(given) if leaf is _TENSOR else leaf for leaf in call.leaves]
    args, kwargs = pytree.tree_unflatten(leaves, call.spec)
    with torch.no_grad():
        return call.function(*args, **kwargs)


def finish_parts(
    emitter: Emitter, calls: Sequence[HostCall], state: Sequence[Value], results: Sequence[Value]
) -> list[FinishedPart]:
    """Closes all parts: each gives what host calls take of it and what later parts use. `state` are the parameters of
    the whole that every part can read by itself; they come first among a part's parameters."""
    last = [emitter._id(value) for value in results]
    is_state = {(id(value.frame), value.id) for value in state}
    frames = [*(part.frame for part in emitter.parts), emitter.frame]
    natives = [*(part.native for part in emitter.parts), emitter.native]
    parts = []
    for native, frame in zip(natives, frames):
        params = [(value, value) for value in frame.declared] + list(frame.lifted.values())
        params.sort(key=lambda pair: (id(pair[0].frame), pair[0].id) not in is_state)
        gives = list(results) if frame is emitter.frame else _results_of(frame, frames, calls, is_state)
        ends = last if frame is emitter.frame else [value.id for value in gives]
        module = native.finish(ends, [inner.id for _, inner in params])
        parts.append(FinishedPart(module, [outer for outer, _ in params], gives))
    return parts


def _results_of(frame: Frame, frames: Sequence[Frame], calls: Sequence[HostCall], is_state) -> list[Value]:
    """Values of a part that others use, each once. Its parameters are known without it, but for state, which a host
    call gets from the part."""
    declared = {value.id for value in frame.declared}
    used = [outer for other in frames for outer, _ in other.lifted.values() if outer.id not in declared]
    for call in calls:
        used += [one for one in call.arguments if one.id not in declared or (id(one.frame), one.id) in is_state]
    return list({value.id: value for value in used if value.frame is frame}.values())

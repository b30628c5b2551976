"""Captures a module or a function: what it computes as a graph, with the state that it reads and writes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributions
import torch.utils._pytree as pytree

from .. import _pando
from .._pando import Error
from ._alias import Tracked
from ._autograd import CustomGradient, custom_functions, gradients
from ._functions import FunctionMode
from ._host import FinishedPart, HostCall, finish_parts
from ._mode import Capture, symbol
from ._types import graph_type
from ._value import Emitter, Value

_active: list[Capture] = []


def current() -> Capture | None:
    """The capture under way in this thread's program, or None when nothing is being captured.

    An operator of one's own gets the graph's values of its tensors with `capture.value(tensor)`, computes with them
    (see `Value`; `capture.emitter` makes new ones), and hands back tensors with `capture.wrap(value, dtype)`.
    `capture.write(tensor, value)` changes one in place. `capture.region` may be set to anything, and is noted for
    all values that follow; `capture.path` is the list of names around.
    """
    return _active[-1] if _active else None


@dataclass
class State:
    """A parameter or buffer, or the seed of random numbers."""

    #: The qualified name; `seed` for the seed.
    name: str
    #: "parameter", "buffer" or "seed".
    kind: str
    #: The module's own tensor; None for the seed.
    tensor: torch.Tensor | None
    #: The parameter of the graph.
    value: Value
    #: What the program leaves there, if it writes to it.
    written: Value | None
    #: Whether training changes it.
    needs_grad: bool
    #: Other names of the same tensor.
    aliases: list[str] = field(default_factory=list)


@dataclass
class Input:
    """A tensor among the arguments."""

    #: Such as `input`, or `input.mask` and `input.1` inside of a dictionary or a list.
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    value: Value
    #: What the program leaves there, if it changes it in place.
    written: Value | None


@dataclass
class Output:
    """A tensor among the results."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    value: Value
    #: Whether it depends on something that needs a gradient.
    needs_grad: bool


@dataclass
class Captured:
    """A program as a graph that is still open: `emitter` takes what training adds. `finish` closes it."""

    emitter: Emitter
    #: Everything that the program may read, in the order of the module; all are parameters of the graph.
    state: list[State]
    inputs: list[Input]
    #: The leaves of the result; what is no tensor is itself (None, numbers, text).
    outputs: list[Output | Any]
    #: How they are nested: `torch.utils._pytree.tree_unflatten(leaves, output_spec)`.
    output_spec: pytree.TreeSpec
    #: How the arguments were nested.
    input_spec: pytree.TreeSpec
    #: `capture.region` when a value was made, by the value's name in the graph.
    regions: dict[str, Any]
    #: Free for those who add operators; for instance which tensors are losses.
    marks: dict[str, Any]
    #: Calls of functions with a backward pass of their own, in order.
    custom_gradients: list[CustomGradient] = field(default_factory=list)
    #: Functions of the host that run between the parts of the graph, in order.
    host_calls: list[HostCall] = field(default_factory=list)

    @property
    def written_state(self) -> list[State]:
        return [state for state in self.state if state.written is not None]

    @property
    def tensors(self) -> list[Output]:
        """The outputs that are tensors."""
        return [output for output in self.outputs if isinstance(output, Output)]

    def gradients(
        self, outputs: Sequence[Value], seeds: Sequence[Value], wrt: Sequence[Value]
    ) -> list[Value | None]:
        """The gradients of Σ⟨seed, output⟩ with respect to `wrt`; None where nothing flows."""
        return gradients(self.emitter, self.custom_gradients, outputs, seeds, wrt)

    def finish(self, results: Sequence[Value], params: Sequence[Value]) -> _pando.Module:
        """Closes the graph: a module whose `main` takes `params` and gives `results`."""
        if self.host_calls:
            raise Error("the program calls the host in the middle; only finish_parts can close it")
        return self.emitter.native.finish([value.id for value in results], [value.id for value in params])

    def finish_parts(self, results: Sequence[Value]) -> list[FinishedPart]:
        """Closes a graph that host calls divide; the last part gives `results`."""
        return finish_parts(self.emitter, self.host_calls, [state.value for state in self.state], results)


@torch.inference_mode(False)
def capture(
    function: torch.nn.Module | Callable,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    training: bool,
    prepare: Callable[[Capture], None] | None = None,
    names: Sequence[str] | None = None,
) -> Captured:
    """Runs a module's (or any function's) Python once on fake tensors and returns what it computes.

    Tensors among the arguments, nested in any way that `torch.utils._pytree` knows, are inputs; everything else is
    fixed as it is. Parameters and buffers are state, by their qualified names. Other tensors that the program uses
    are constants. `training` says whether gradients will be taken. `prepare` is called with the capture before the
    program runs; `names` are the names of the leaves of `(args, kwargs)`.

    Raises `pando.Error` if operators are not supported (all are named), or if the program asks for a value.
    """
    capture = Capture(training)
    leaves, input_spec = pytree.tree_flatten((tuple(args), dict(kwargs or {})))
    state = _declare_state(capture, function)
    names = names or input_names(function, args, kwargs or {})
    inputs, fakes = [], []
    for name, leaf in zip(names, leaves):
        if not isinstance(leaf, torch.Tensor):
            fakes.append(leaf)
            continue
        declared, fake = _declare_input(capture, name, leaf)
        inputs.append(declared)
        fakes.append(fake)
    if prepare is not None:
        prepare(capture)
    fake_args, fake_kwargs = pytree.tree_unflatten(fakes, input_spec)
    results = _run(capture, function, fake_args, fake_kwargs)
    capture.advance_seed()
    capture.check_problems()
    results, output_spec = pytree.tree_flatten(results)
    outputs = [_output(capture, leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in results]
    capture.check_problems()
    for one in state:
        one.written = _written(capture.seed if one.kind == "seed" else capture.tracked(one.tensor), one.value)
    fakes = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
    for one, fake in zip(inputs, fakes):
        one.written = _written(capture.tracked(fake), one.value)
    return Captured(
        capture.emitter, state, inputs, outputs, output_spec, input_spec, capture.regions, capture.marks,
        capture.custom_gradients, capture.host_calls,
    )


def _run(capture: Capture, function: Callable, args, kwargs):
    _active.append(capture)
    paths = _paths(function)
    outer: list[list[str]] = []

    def enter(module, *_):
        # A module's path replaces that of the module around it; one that has none leaves it.
        outer.append(capture.path)
        if module in paths:
            capture.path = paths[module].split(".")

    def leave(module, *_):
        capture.path = outer.pop()

    hooks = [
        torch.nn.modules.module.register_module_forward_pre_hook(enter),
        torch.nn.modules.module.register_module_forward_hook(leave, always_call=True),
    ]
    distributions = torch.distributions.Distribution
    validates = distributions._validate_args
    # Checks of values, which are not known.
    distributions.set_default_validate_args(False)
    try:
        with torch.enable_grad(), custom_functions(capture), FunctionMode(capture), capture:
            return function(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
        _active.pop()
        distributions.set_default_validate_args(validates)
        capture.release()


def _paths(function) -> dict[torch.nn.Module, str]:
    if not isinstance(function, torch.nn.Module):
        return {}
    return {module: name for name, module in function.named_modules() if name}


def _declare_state(capture: Capture, function) -> list[State]:
    found: dict[int, State] = {}
    owner = function if isinstance(function, torch.nn.Module) else getattr(function, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        named = [("parameter", owner.named_parameters), ("buffer", owner.named_buffers)]
        for kind, items in named:
            for name, tensor in items(remove_duplicate=False):
                if id(tensor) in found:
                    found[id(tensor)].aliases.append(name)
                else:
                    found[id(tensor)] = _declare(capture, name, kind, tensor)
    seed = capture.seed.read()
    return [*found.values(), State("seed", "seed", None, seed, None, False)]


def _declare(capture: Capture, name: str, kind: str, tensor: torch.Tensor) -> State:
    value = capture.emitter.param(capture.unique(symbol(name)), graph_type(tensor.dtype), tensor.shape)
    needs_grad = kind == "parameter" and tensor.requires_grad
    capture.register(tensor, value, needs_grad)
    return State(name, kind, tensor, value, None, needs_grad)


def _declare_input(capture: Capture, name: str, tensor: torch.Tensor) -> tuple[Input, torch.Tensor]:
    shape = tuple(tensor.shape)
    value = capture.emitter.param(capture.unique(symbol(name) or "input"), graph_type(tensor.dtype), shape)
    fake = capture.wrap_input(value, tensor.dtype)
    return Input(name, tensor.dtype, shape, value, None), fake


def input_names(function, args, kwargs) -> list[str]:
    """The leaves' names: of the parameters of `forward` or the function, and keys and numbers inside of them."""
    call = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = [name for name in inspect.signature(call).parameters]
    except (TypeError, ValueError):
        parameters = []
    names = []
    for path, _ in pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))[0]:
        keys = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path[1:]]
        if keys and path[0].idx == 0:
            position = int(keys[0])
            keys[0] = parameters[position] if position < len(parameters) else f"input.{position}"
        names.append(".".join(keys))
    return names


def _output(capture: Capture, tensor: torch.Tensor) -> Output:
    tracked = capture.tracked(tensor)
    return Output(tensor.dtype, tuple(tensor.shape), capture.value(tensor), tracked.needs_grad)


def _written(tracked: Tracked, before: Value) -> Value | None:
    value = tracked.read()
    return None if value is before else value

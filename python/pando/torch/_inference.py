"""Modules that run on Pando."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

from .. import _pando
from ._capture import Output, State, capture
from ._types import from_native, graph_type, location, memory, store


class Inference:
    """A module whose calls are computed by Pando; `inference` makes it.

    It is captured and compiled for the shapes of a call, and again for others. Every call sees the module's weights
    as they are, but for changes that torch does not count, as those through `tensor.data`: call `refresh` after them.
    What the program writes to buffers and inputs is written back.
    """

    def __init__(self, module, threads: int | None, matmul_precision: str):
        self.module, self._threads, self._precision = module, threads, matmul_precision
        self._programs: dict = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        program = self._program(args, kwargs, leaves, spec)
        return program.run(tensors)

    def refresh(self) -> None:
        """Takes over all weights from the module."""
        for program in self._programs.values():
            program.refresh(all=True)

    def _program(self, args, kwargs, leaves, spec) -> Program:
        mode = getattr(self.module, "training", None)
        key = (mode, spec, *(key_of(leaf) for leaf in leaves))
        if key not in self._programs:
            self._programs[key] = Program(self.module, args, kwargs, self._threads, self._precision)
        return self._programs[key]


def inference(
    module: torch.nn.Module | Callable, *, threads: int | None = None, matmul_precision: str = "highest"
) -> Inference:
    """The same module (or function), computed by Pando: `pando.torch.inference(model)(*inputs)`."""
    return Inference(module, threads, matmul_precision)


def key_of(leaf: Any):
    return (leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else (type(leaf), leaf)


class Program:
    """A module compiled for inputs of given shapes, with a copy of its state."""

    def __init__(self, module, args, kwargs, threads: int | None, precision: str):
        captured = capture(module, args, kwargs, training=False)
        self.state, self.inputs = captured.state, captured.inputs
        self.outputs, self.output_spec = captured.outputs, captured.output_spec
        self.changed = [one for one in self.inputs if one.written is not None]
        outputs = [*(one.value for one in captured.tensors), *(one.written for one in self.changed)]
        written = captured.written_state
        compiled = captured.finish(
            [*(one.written for one in written), *outputs], [one.value for one in [*self.state, *self.inputs]]
        )
        program = (
            "run",
            compiled,
            [one.name for one in self.state],
            [one.name for one in written],
            [f"input.{at}" for at in range(len(self.inputs))],
            [f"output.{at}" for at in range(len(outputs))],
        )
        tensors = [initial(one) for one in self.state]
        arrays = [memory(tensor) for tensor in tensors]
        places = [
            (one.name, location(array, graph_type(tensor.dtype)))
            for one, array, tensor in zip(self.state, arrays, tensors)
        ]
        self.session = _pando.Session([program], places, [], threads, precision)
        self.seen = [version(one.tensor) for one in self.state]

    def run(self, tensors: list[torch.Tensor]) -> Any:
        self.refresh()
        arrays = [memory(tensor) for tensor in tensors]
        locations = [location(array, graph_type(tensor.dtype)) for array, tensor in zip(arrays, tensors)]
        results = iter(self.session.run("run", locations))
        leaves = [from_native(next(results), one.dtype) if isinstance(one, Output) else one for one in self.outputs]
        for one, tensor in zip(self.inputs, tensors):
            if one.written is not None:
                store(next(results), tensor)
        for one in self.state:
            if one.written is not None and one.tensor is not None:
                store(self.session.state(one.name), one.tensor)
        return pytree.tree_unflatten(leaves, self.output_spec)

    def refresh(self, all: bool = False) -> None:
        """Takes over state that has changed in the module."""
        for at, one in enumerate(self.state):
            now = version(one.tensor)
            if one.tensor is not None and (all or now != self.seen[at]):
                array = memory(one.tensor)
                self.session.set_state(one.name, location(array, graph_type(one.tensor.dtype)))
                self.seen[at] = now


def version(tensor: torch.Tensor | None):
    """Differs after operators have changed a tensor in place, or its memory is another."""
    return None if tensor is None else (tensor._version, tensor.data_ptr())


def initial(state: State) -> torch.Tensor:
    """What state holds before the first run: the seed is torch's."""
    if state.tensor is not None:
        return state.tensor
    return torch.tensor([torch.initial_seed() & 0xFFFFFFFF, 0], dtype=torch.int64).to(torch.uint32)

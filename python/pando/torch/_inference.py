"""Modules that run on Pando."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

from ._capture import Captured, Output, capture
from ._types import from_native, graph_type, location, memory, store


class Inference:
    """A module whose calls are computed by Pando; `inference` makes it.

    It is captured and compiled for the shapes of a call, and again for others. Weights are read where they are at
    every call; what the program writes to buffers and inputs is written back.
    """

    def __init__(self, module, threads: int | None, matmul_precision: str):
        self.module, self._threads, self._precision = module, threads, matmul_precision
        self._programs: dict = {}
        self._seed = torch.tensor([torch.initial_seed() & 0xFFFFFFFF, 0], dtype=torch.int64).to(torch.uint32)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        program = self._program(args, kwargs, leaves, spec)
        return program.run(tensors, self._seed)

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
    """A module compiled for inputs of given shapes."""

    def __init__(self, module, args, kwargs, threads: int | None, precision: str):
        captured = capture(module, args, kwargs, training=False)
        self.state, self.inputs = captured.state, captured.inputs
        self.outputs, self.output_spec = captured.outputs, captured.output_spec
        writes = [one for one in [*self.state, *self.inputs] if one.written is not None]
        self.written = writes
        results = [*(one.value for one in captured.tensors), *(one.written for one in writes)]
        params = [one.value for one in [*self.state, *self.inputs]]
        self.compiled = captured.finish(results, params).compile(threads, precision)

    def run(self, tensors: list[torch.Tensor], seed: torch.Tensor) -> Any:
        state = [seed if one.tensor is None else one.tensor for one in self.state]
        operands = [*state, *tensors]
        arrays = [memory(tensor) for tensor in operands]
        locations = [location(array, graph_type(tensor.dtype)) for array, tensor in zip(arrays, operands)]
        results = iter(self.compiled.run(locations))
        leaves = [from_native(next(results), one.dtype) if isinstance(one, Output) else one for one in self.outputs]
        targets = {id(one): tensor for one, tensor in zip([*self.state, *self.inputs], operands)}
        for one in self.written:
            store(next(results), targets[id(one)])
        return pytree.tree_unflatten(leaves, self.output_spec)

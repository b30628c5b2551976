"""What is on the device: programs and the state they share, in a native session.

State is tensors by name, apart from the user's module. A program reads and writes some of it, takes inputs and
gives outputs.
"""

from dataclasses import dataclass

import numpy as np
import torch

from pando import _pando
from pando.torch._types import from_native, graph_type, location, memory


@dataclass
class Program:
    """A module whose parameters are state and inputs, and whose results are state and outputs."""

    module: object
    reads: list
    writes: list
    inputs: list  # names
    outputs: list  # types of the outputs

    def renamed(self, names):
        """The same program over other state."""
        new = lambda name: names.get(name, name)  # noqa: E731
        return Program(self.module, [*map(new, self.reads)], [*map(new, self.writes)], self.inputs, self.outputs)


@dataclass(frozen=True)
class Uniform:
    """State that begins with one value everywhere; it takes no memory of the host's."""

    value: float
    dtype: torch.dtype
    shape: tuple


class Device:
    """Programs by name over state by name."""

    def __init__(self, programs, state, threads=None, precision="highest"):
        self.programs = programs
        self._types = {name: tensor.dtype for name, tensor in state.items()}
        described = [
            (name, p.module, p.reads, p.writes, _unique(p.inputs), [f"output.{i}" for i in range(len(p.outputs))])
            for name, p in programs.items()
        ]
        uniform = [
            (name, graph_type(one.dtype), one.shape, one.value) for name, one in state.items() if isinstance(one, Uniform)
        ]
        arrays = {name: memory(one) for name, one in state.items() if not isinstance(one, Uniform)}
        places = [(name, location(array, graph_type(state[name].dtype))) for name, array in arrays.items()]
        self._session = _pando.Session(described, places, uniform, threads, precision)

    def run(self, name, inputs=()):
        """Runs a program; its outputs."""
        arrays = [memory(tensor) for tensor in inputs]
        places = [location(array, graph_type(tensor.dtype)) for array, tensor in zip(arrays, inputs)]
        results = self._session.run(name, places)
        return [from_native(result, dtype) for result, dtype in zip(results, self.programs[name].outputs)]

    def has(self, name):
        """Is there state of that name?"""
        return name in self._types

    def names(self):
        """The names of all state."""
        return list(self._types)

    def read(self, name):
        """A copy of a tensor of the state."""
        return from_native(self._session.state(name), self._types[name])

    def write(self, name, tensor):
        """Replaces a tensor of the state."""
        array = memory(tensor)
        self._session.set_state(name, location(array, graph_type(tensor.dtype)))


    def lend(self, name, tensor):
        """The state is the tensor's memory from now on, elements included, until `take_back`."""
        array = memory(tensor)
        self._session.lend(name, location(array, graph_type(tensor.dtype)))

    def take_back(self, name):
        """The state has memory of its own again."""
        self._session.take_back(name)


def _unique(names):
    return [f"{i}.{name}" for i, name in enumerate(names)]


def copy_into(target, source):
    """Overwrites a host tensor's elements, whatever its layout, without an operator of PyTorch."""
    plain = target.detach()
    if plain.dtype is torch.bfloat16:
        plain, source = plain.view(torch.int16), source.view(torch.int16)
    np.copyto(plain.numpy(), source.detach().numpy(), casting="unsafe")

"""What is on the device: programs and the state they share, in a native session.

State is tensors by name, apart from the user's module. A program reads and writes some of it, takes inputs and
gives outputs.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from pando import _pando
from pando.torch._types import from_native, graph_type, location, memory

from ._errors import createPoptorchError


@dataclass
class Program:
    """A module whose parameters are state and inputs, and whose results are state and outputs.

    With `steps` before it, its inputs are `takes`: positions among the inputs of the call and what the steps give.
    """

    module: object
    reads: list
    writes: list
    inputs: list  # names
    outputs: list  # types of the outputs
    steps: list = field(default_factory=list)
    takes: list = field(default_factory=list)

    def renamed(self, names):
        """The same program over other state."""
        new = lambda name: names.get(name, name)  # noqa: E731
        steps = [replace(step, program=step.program.renamed(names)) for step in self.steps]
        return replace(self, reads=[*map(new, self.reads)], writes=[*map(new, self.writes)], steps=steps)

    def __getstate__(self):
        if self.steps:
            raise TypeError("a program that calls the host cannot be saved")
        return {**self.__dict__, "module": self.module.text()}

    def __setstate__(self, values):
        self.__dict__.update(values, module=_pando.Module.parse(values["module"]))


@dataclass
class Step:
    """A part of the graph before a call of the host, and the call. Both take tensors by their positions among the
    inputs of the whole and what earlier steps have given."""

    program: Program
    takes: list
    call: object  # a HostCall
    arguments: list


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
        programs = {name: one for whole, p in programs.items() for name, one in _parts(whole, p)}
        self._outputs = {name: one.outputs for name, one in programs.items()}
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
        program = self.programs[name]
        if not program.steps:
            return self._run(name, inputs)
        known = list(inputs)
        for number, step in enumerate(program.steps):
            if step.program.outputs:
                known += self._run(_step_name(name, number), [known[i] for i in step.takes])
            try:
                known += step.call.run([known[i] for i in step.arguments])
            except _pando.Error as error:
                raise createPoptorchError(str(error)) from error
        return self._run(name, [known[i] for i in program.takes])

    def _run(self, name, inputs):
        arrays = [memory(tensor) for tensor in inputs]
        places = [location(array, graph_type(tensor.dtype)) for array, tensor in zip(arrays, inputs)]
        results = self._session.run(name, places)
        return [from_native(result, dtype) for result, dtype in zip(results, self._outputs[name])]

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


def _parts(name, program):
    """The program and those before its calls of the host, with the names that the session has for them."""
    yield name, program
    for number, step in enumerate(program.steps):
        if step.program.outputs:
            yield _step_name(name, number), step.program


def _step_name(name, number):
    return f"{name}~{number}"


def _unique(names):
    return [f"{i}.{name}" for i, name in enumerate(names)]


def copy_into(target, source):
    """Overwrites a host tensor's elements, whatever its layout, without an operator of PyTorch."""
    plain = target.detach()
    if plain.dtype is torch.bfloat16:
        plain, source = plain.view(torch.int16), source.view(torch.int16)
    np.copyto(plain.numpy(), source.detach().numpy(), casting="unsafe")

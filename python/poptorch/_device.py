"""Programs and the state they share: what is on the device.

State is tensors by name, apart from the user's module. A program reads and writes some of it, takes inputs and
gives outputs.
"""

import numpy as np
import torch

from pando.torch._types import from_native, graph_type, location, memory


class Program:
    """A compiled module with the names of the state it reads and writes."""

    def __init__(self, module, reads, writes, outputs, threads=None, precision="highest"):
        self._compiled = module.compile(threads, precision)
        self.reads, self.writes, self._outputs = reads, writes, outputs
        self.text = module.text

    def run(self, state, inputs, rename=None):
        """Outputs as tensors; written state is replaced in `state`. `rename` maps names of state to other ones."""
        rename = rename or {}
        operands = [state[rename.get(name, name)] for name in self.reads] + list(inputs)
        arrays = [memory(tensor) for tensor in operands]
        locations = [location(array, graph_type(tensor.dtype)) for array, tensor in zip(arrays, operands)]
        results = self._compiled.run(locations)
        for name, result in zip(self.writes, results):
            name = rename.get(name, name)
            state[name] = from_native(result, state[name].dtype)
        return [from_native(result, dtype) for result, dtype in zip(results[len(self.writes) :], self._outputs)]


class Device:
    """Programs over one state."""

    def __init__(self):
        self.state = {}
        self.programs = {}

    def run(self, name, inputs=(), rename=None):
        """Runs a program."""
        return self.programs[name].run(self.state, inputs, rename)

    def read(self, name):
        """A tensor of the state, to look at."""
        return self.state[name]

    def write(self, name, tensor):
        """Replaces a tensor of the state by a copy."""
        self.state[name] = copied(tensor)


def copied(tensor):
    """A copy that shares nothing: contiguous, of the device's type."""
    array = np.array(memory(tensor), copy=True, order="C")
    result = torch.from_numpy(array)
    return result.view(torch.bfloat16) if tensor.dtype is torch.bfloat16 else result


def copy_into(target, source):
    """Overwrites a host tensor's elements, whatever its layout, without an operator of PyTorch."""
    plain = target.detach()
    if plain.dtype is torch.bfloat16:
        plain, source = plain.view(torch.int16), source.view(torch.int16)
    np.copyto(plain.numpy(), source.detach().numpy(), casting="unsafe")

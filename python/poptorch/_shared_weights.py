"""Weights whose memory host and device share as long as nobody looks at the host's.

The device trains them where they lie, so the host's copy would change without being asked for. Whoever might notice
ends the sharing: any use of the tensors (`_host_model.py` sees it), a copy of the weights to the host. What the host had
before the first step, which `copyWeightsToDevice` brings back, waits in a temporary file.
"""

import tempfile

import numpy as np
import torch

from pando.torch._types import GRAPH_TYPES, memory

from ._host_model import HostParameter, plain_view

# The owners of memory that only one tensor has: that tensor, and whoever asks.
_ALONE = 2


class SharedWeights:
    """What one executor's device shares with the user's module."""

    def __init__(self, device):
        self._device = device
        self._tensors = {}  # by name; also keeps the memory alive
        self._file = None

    def __bool__(self):
        return bool(self._tensors)

    def has(self, name, tensor):
        """Is this the tensor whose memory is the device's?"""
        return self._tensors.get(name) is tensor

    def lend(self, name, tensor):
        """Makes the tensor's memory the device's, elements included, if nobody else can see it. Says whether it did."""
        if not _is_alone(tensor):
            return False
        self._device.lend(name, plain_view(tensor))
        self._tensors[name] = tensor
        return True

    def remember(self):
        """Keeps what the host has now, before the device changes it. Says whether there was room."""
        if self._file is not None:
            return True
        try:
            self._file = tempfile.TemporaryFile(prefix="poptorch-weights-")
            for array in self._arrays():
                self._file.write(memoryview(array).cast("B"))
            self._file.flush()
        except OSError:
            self._forget()
            return False
        return True

    def restore(self):
        """Brings back what the host had."""
        if self._file is not None:
            self._file.seek(0)
            for array in self._arrays():
                self._file.readinto(memoryview(array).cast("B"))
        self._forget()

    def end(self):
        """The device takes copies; the host's tensors have the newest elements."""
        for name in self._tensors:
            self._device.take_back(name)
        self._tensors = {}
        self._forget()

    def _arrays(self):
        return [memory(plain_view(tensor)).reshape(-1).view(np.uint8) for tensor in self._tensors.values()]

    def _forget(self):
        if self._file is not None:
            self._file.close()
        self._file = None


def _is_alone(tensor):
    """Would every use of this memory be seen? It is a watched tensor's, whole, and of nobody else."""
    if type(tensor) is not HostParameter or tensor.dtype not in GRAPH_TYPES or tensor.dtype is torch.float64:
        return False
    with torch._C.DisableTorchFunctionSubclass():
        storage = tensor.untyped_storage()
        whole = tensor.is_contiguous() and storage.nbytes() == tensor.nbytes > 0
        plain = tensor.device.type == "cpu" and tensor.data_ptr() % 8 == 0 and not storage.is_shared()
        return whole and plain and torch._C._storage_Use_Count(storage._cdata) == _ALONE

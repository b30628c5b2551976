"""A ring of slots in memory shared by two processes: one writes samples, the other reads them in place.

A slot is empty (0) or full (1); only the writer fills and only the reader empties, each in ring order, so a flag
per slot is all the synchronisation there is. What a full slot holds is its kind.
"""

import mmap
import os
import tempfile
import time

import numpy as np
import torch

DATA, MESSAGE, END, ERROR = range(4)
_ALIGNMENT = 64
_HEADER = 5  # int64 numbers of the controls below
EPOCHS, RESET, EXIT = range(3)


class RingBuffer:
    """`layout`: (dtype, shape) of each tensor of a slot. The writer makes the file, the reader opens it."""

    def __init__(self, layout, size, path=None, folder=None, sleep_ms=0.1):
        self.size, self._sleep = size, sleep_ms / 1000
        self._layout = layout
        offsets, slot_bytes = _offsets(layout)
        head = 8 * (_HEADER + 3 * size)
        head += -head % _ALIGNMENT
        self._map, self.path = _open(head + slot_bytes * size, path, folder)
        numbers = np.frombuffer(self._map, np.int64, _HEADER + 3 * size)
        self.controls = numbers[:_HEADER]
        self.indices_mem, self.kinds, self.rows = numbers[_HEADER:].reshape(3, size)
        self.slots = [
            [_view(self._map, dtype, shape, head + slot * slot_bytes + offset)
             for (dtype, shape), offset in zip(layout, offsets)]
            for slot in range(size)
        ]

    def pause(self):
        """Waits a moment for the other process."""
        time.sleep(self._sleep)

    def fits(self, tensors):
        """How many rows of each slot tensor the tensors fill (0 = whole tensors); None if they do not fit."""
        if len(tensors) != len(self._layout) or any(t.dtype != d for t, (d, _) in zip(tensors, self._layout)):
            return None
        shapes = [tuple(tensor.shape) for tensor in tensors]
        if shapes == [shape for _, shape in self._layout]:
            return 0
        rows = {shape[0] if shape else 0 for shape in shapes}
        inner = all(s and full and s[1:] == full[1:] and s[0] < full[0] for s, (_, full) in zip(shapes, self._layout))
        return rows.pop() if inner and len(rows) == 1 and 0 not in rows else None

    def write(self, slot, tensors, rows):
        """Copies the tensors into an empty slot."""
        for target, tensor in zip(self.slots[slot], tensors):
            (target[:rows] if rows else target).copy_(tensor)
        self.rows[slot] = rows

    def read(self, slot):
        """The tensors of a full slot, valid until it is emptied."""
        rows = int(self.rows[slot])
        return [tensor[:rows] if rows else tensor for tensor in self.slots[slot]]

    def unlink(self):
        """Takes the file's name away; the memory stays as long as it is mapped."""
        if os.path.exists(self.path):
            os.unlink(self.path)


def _offsets(layout):
    offsets, end = [], 0
    for dtype, shape in layout:
        offsets.append(end)
        size = torch.Size(shape).numel() * dtype.itemsize
        end += size + -size % _ALIGNMENT
    return offsets, max(end, _ALIGNMENT)


def _open(size, path, folder):
    if path is None:
        descriptor, path = tempfile.mkstemp(prefix="poptorch_", dir=folder)
        os.truncate(descriptor, size)
    else:
        descriptor = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, size), path
    finally:
        os.close(descriptor)


def _view(memory, dtype, shape, offset):
    count = torch.Size(shape).numel()
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=offset).reshape(shape)

"""The process that loads data ahead of the program: reads the dataset, fills a ring buffer.

Messages to the reader go through a pipe: the layout of the ring first, then whatever does not fit a slot. The
reader steers through the ring's controls: how many epochs it has begun, a reset, the exit.
"""

import multiprocessing
import os
import pickle
import signal
import tempfile
import traceback

import torch

from ._arguments import flatten, rebuild
from ._ring_buffer import DATA, END, EPOCHS, ERROR, EXIT, MESSAGE, RESET, RingBuffer
from ._samplers import concatenate


class Exit(Exception):
    """The reader is gone or wants no more."""


class Restart(Exception):
    """The reader has begun another epoch before the end of this one."""


def placeholders(structure):
    """The structure without its tensors."""
    return rebuild(structure, (None for _ in flatten(structure)))


def main(connection, pickled, settings):
    """The process's main function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    torch.set_num_threads(1)
    # This process has no threads yet, so its loader's processes may be forked, which is by far the fastest.
    multiprocessing.set_start_method("fork", force=True)
    try:
        dataset = pickle.loads(pickled) if isinstance(pickled, bytes) else pickled
        worker = _Worker(connection, dataset, settings)
    except Exception:
        traceback.print_exc()
        connection.send(("failed", traceback.format_exc()))
        return
    try:
        worker.run()
    except (Exit, BrokenPipeError):
        pass
    finally:
        worker.iterator = None  # ends the loader's own processes


class _Worker:
    def __init__(self, connection, dataset, settings):
        self._connection = connection
        self._dataset = dataset
        self._settings = settings
        self._parent = settings["parent"]
        self.iterator = iter(self._source())
        self._first = next(self.iterator)
        self._epoch = 0
        self._slot = 0
        self._ring = self._make_ring(self._first)
        self._put(self._first)

    def _source(self):
        size = self._settings["rebatched_size"]
        if size is None:
            return self._dataset
        return _rebatched(self._dataset, size, self._settings["drop_last"])

    def _make_ring(self, first):
        leaves = list(flatten(first))
        tensors = all(isinstance(leaf, torch.Tensor) for leaf in leaves)
        layout = [(leaf.dtype, tuple(leaf.shape)) for leaf in leaves] if tensors else []
        settings = self._settings
        ring = RingBuffer(layout, settings["buffer_size"], None, _folder(settings["file_system"]), settings["sleep"])
        structure = placeholders(first) if tensors else None
        self._connection.send(("ready", layout, structure, ring.path))
        self._structure = structure
        return ring

    def run(self):
        while True:
            try:
                self._fill_epoch()
            except Restart:
                self._restart()

    def _fill_epoch(self):
        self._wait(self._may_fill)
        try:
            for item in self.iterator:
                self._put(item)
        except (Exit, Restart):
            raise
        except Exception:
            traceback.print_exc()
            self._mark(ERROR, traceback.format_exc())
            self._wait(lambda: False)
        self._mark(END)
        self._epoch += 1
        # A new iterator starts the loader's processes: only when the epoch will be wanted.
        self._wait(self._may_fill)
        self.iterator = iter(self._source())

    def _may_fill(self):
        early = self._settings["early_preload"] if self._epoch == 0 else self._settings["load_indefinitely"]
        return early or self._ring.controls[EPOCHS] > self._epoch

    def _restart(self):
        ring = self._ring
        ring.indices_mem[:] = 0
        self._slot = 0
        self.iterator = iter(self._source())
        self._epoch = int(ring.controls[EPOCHS]) - 1
        ring.controls[RESET] = 0

    def _wait(self, condition):
        """Until the condition holds; raises when the reader wants something else."""
        ring, turns = self._ring, 0
        while True:
            if ring.controls[EXIT]:
                raise Exit
            if ring.controls[RESET]:
                raise Restart
            if condition():
                return
            turns += 1
            if turns % 256 == 0 and self._orphaned():
                raise Exit
            ring.pause()

    def _orphaned(self):
        try:
            os.kill(self._parent, 0)
        except OSError:
            return True
        return False

    def _empty(self):
        return self._ring.indices_mem[self._slot] == 0

    def _put(self, item):
        leaves = list(flatten(item))
        same = self._structure is not None and all(isinstance(leaf, torch.Tensor) for leaf in leaves)
        rows = self._ring.fits(leaves) if same else None
        if rows is None:
            self._mark(MESSAGE, item)
            return
        self._wait(self._empty)
        self._ring.write(self._slot, leaves, rows)
        self._publish(DATA)

    def _mark(self, kind, message=None):
        self._wait(self._empty)
        if message is not None:
            self._connection.send_bytes(pickle.dumps(message))
        self._publish(kind)

    def _publish(self, kind):
        self._ring.kinds[self._slot] = kind
        self._ring.indices_mem[self._slot] = 1
        self._slot = (self._slot + 1) % self._ring.size


def _folder(file_system):
    shared = "/dev/shm"
    return shared if os.path.isdir(shared) and not file_system else tempfile.gettempdir()


def _rebatched(loader, size, drop_last):
    """Batches of `size` samples made of the loader's smaller ones."""
    pending, rows = [], 0
    for item in loader:
        pending.append(item)
        rows += next(flatten(item)).shape[0]
        while rows >= size:
            joined = concatenate(pending)
            yield _rows(joined, 0, size)
            rows -= size
            pending = [_rows(joined, size, None)] if rows else []
    if rows and not drop_last:
        yield concatenate(pending)


def _rows(structure, start, end):
    return rebuild(structure, [tensor[start:end] for tensor in flatten(structure)])

"""`AsynchronousDataAccessor`: the reading end of the data worker's ring buffer."""

import multiprocessing
import os
import pickle
import weakref

from ._arguments import rebuild
from ._data_worker import main
from ._errors import createPoptorchError
from ._logging import logger
from ._ring_buffer import DATA, END, EPOCHS, ERROR, EXIT, RESET, RingBuffer
from .enums import SharingStrategy

_START_METHODS = {
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
}


class AsynchronousDataAccessor:
    """Iterates over a dataset (or loader) that another process reads ahead of time.

    A yielded tensor lives in shared memory and is overwritten after the next step of the iteration.
    """

    def __init__(self, dataset, buffer_size=3, miss_sleep_time_in_ms=0.1, load_indefinitely=True,
                 early_preload=False, sharing_strategy=SharingStrategy.ForkServer, rebatched_size=None):
        assert buffer_size > 0, f"buffer_size must be above 0, not {buffer_size}"
        self._dataset = dataset
        settings = {
            "buffer_size": buffer_size, "sleep": miss_sleep_time_in_ms, "load_indefinitely": load_indefinitely,
            "early_preload": early_preload, "rebatched_size": rebatched_size, "parent": os.getpid(),
            "file_system": sharing_strategy is SharingStrategy.FileSystem,
            "drop_last": getattr(dataset, "rebatched_drop_last", True),
        }
        self._worker = _WorkerHandle(dataset, settings, sharing_strategy)
        self._finalizer = weakref.finalize(self, self._worker.stop)
        self._unfinished = False

    def terminate(self):
        """Stops the worker process."""
        self._finalizer()

    def __len__(self):
        return len(self._dataset)

    def __iter__(self):
        self._worker.begin_epoch(restart=self._unfinished)
        self._unfinished = True
        return self._items()

    def _items(self):
        for item in self._worker.items():
            yield item
        self._unfinished = False


class _WorkerHandle:
    """The worker process, its pipe and its ring."""

    def __init__(self, dataset, settings, strategy):
        method = _START_METHODS[strategy]
        context = multiprocessing.get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(["poptorch._data_worker"])
        self._connection, other = context.Pipe()
        payload = dataset if method == "fork" else _pickled(dataset)
        self._process = context.Process(target=main, args=(other, payload, settings))
        self._process.start()
        other.close()
        logger.debug("AsynchronousDataAccessor worker process: %d", self._process.pid)
        self._slot = 0
        self._data_buffers = None
        layout, self._structure, path = self._receive_layout()
        self._data_buffers = RingBuffer(layout, settings["buffer_size"], path, sleep_ms=settings["sleep"])
        self._data_buffers.unlink()

    def _receive_layout(self):
        try:
            kind, *rest = self._connection.recv()
        except EOFError:
            kind, rest = "failed", ["the process ended"]
        if kind == "failed":
            self._process.join()
            raise createPoptorchError(f"AsynchronousDataAccessor worker thread failed to start: {rest[0]}")
        return rest

    def begin_epoch(self, restart):
        """One more epoch is wanted; `restart`: what is left of the one before is not."""
        ring = self._data_buffers
        ring.controls[EPOCHS] += 1
        if restart:
            ring.controls[RESET] = 1
            self._wait(lambda: ring.controls[RESET] == 0)
            self._slot = 0
            while self._connection.poll():
                self._connection.recv_bytes()

    def items(self):
        """The samples up to the end of the epoch."""
        ring = self._data_buffers
        while True:
            slot = self._slot
            self._wait(lambda: ring.indices_mem[slot])  # noqa: B023 (called before slot changes)
            kind = ring.kinds[slot]
            if kind == DATA:
                yield rebuild(self._structure, ring.read(slot))
            elif kind not in (END, ERROR):
                yield pickle.loads(self._connection.recv_bytes())
            if kind == ERROR:
                raise createPoptorchError(f"The data worker failed: {pickle.loads(self._connection.recv_bytes())}")
            ring.indices_mem[slot] = 0
            self._slot = (slot + 1) % ring.size
            if kind == END:
                return

    def _wait(self, condition):
        turns = 0
        while not condition():
            turns += 1
            if turns % 256 == 0 and not self._process.is_alive():
                raise createPoptorchError("The AsynchronousDataAccessor worker process has died")
            self._data_buffers.pause()

    def stop(self):
        """Ends the process: asks, then insists."""
        if self._data_buffers is not None:
            self._data_buffers.controls[EXIT] = 1
        self._connection.close()
        if self._process.is_alive():
            self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        logger.debug("AsynchronousDataAccessor worker process %d ended", self._process.pid)


def _pickled(dataset):
    try:
        return pickle.dumps(dataset)
    except Exception as error:
        raise createPoptorchError(
            f"The dataset cannot be sent to a worker process: {error}. Define its class and functions at the top of a "
            "module, or use sharing_strategy=poptorch.SharingStrategy.Fork"
        ) from error

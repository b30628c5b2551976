"""The cache of compiled models (`Options.enableExecutableCaching`, POPTORCH_CACHE_DIR): a file per model, under the
digest of all that decides what is compiled. A model that is found there is neither captured nor differentiated; only
the engine's own planning remains. Models without a digest, and those that call the host, are compiled every time.
"""

import contextlib
import io
import os
import pickle
import zlib

import torch

from . import _logging
from ._executable import VERSION

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

_HEAD = f"pando executable {VERSION}\n".encode()


class Cache:
    """A folder of executables."""

    def __init__(self, folder):
        self._folder = folder
        os.makedirs(folder, exist_ok=True)

    @contextlib.contextmanager
    def locked(self):
        """One process at a time compiles; the others then find what it has compiled. (Where folders cannot be locked,
        each compiles for itself.)"""
        if fcntl is None:
            yield
            return
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _logging.core(10, f"cache file locked: {self._folder}")
            try:
                yield
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                _logging.core(10, f"released the cache lock: {self._folder}")
        finally:
            os.close(descriptor)

    def _path(self, key):
        return os.path.join(self._folder, f"{key}.poptorch_cache")

    def get(self, key):
        """The executable, or None. A damaged file is as good as none."""
        try:
            with open(self._path(key), "rb") as file:
                head, data = file.read(len(_HEAD)), file.read()
            if head != _HEAD:
                return None
            return torch.load(io.BytesIO(zlib.decompress(data)), weights_only=False)
        except FileNotFoundError:
            return None
        except (zlib.error, EOFError, RuntimeError, pickle.UnpicklingError) as error:
            _logging.logger.warning("%s is damaged and is written anew: %s", self._path(key), error)
            return None

    def put(self, key, executable):
        """Keeps the executable."""
        buffer = io.BytesIO()
        try:
            torch.save(executable, buffer)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            _logging.logger.debug("The model is not cached: %s", error)
            return
        temporary = f"{self._path(key)}.{os.getpid()}.tmp"
        with open(temporary, "wb") as file:
            file.write(_HEAD + zlib.compress(buffer.getvalue(), 1))
        os.replace(temporary, self._path(key))

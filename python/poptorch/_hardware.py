"""Which IPUs there are: none, or as many as POPTORCH_IPU_MODEL=1 claims (all of them simulated)."""

import os
import time
import weakref

from ._errors import createPoptorchError
from ._logging import core

_VERSIONS = {"ipu1": 1, "ipu2": 2, "ipu21": 21}
MAX_IPUS = 64  # of one process


def claims_hardware():
    """Does the environment claim IPUs?"""
    return os.environ.get("POPTORCH_IPU_MODEL", "0") not in ("", "0")


def ipuHardwareIsAvailable(num_ipus=1):
    """Are there so many IPUs?"""
    return claims_hardware() and num_ipus <= MAX_IPUS


def ipuHardwareVersion():
    """The version of the IPUs: 1, 2 or 21."""
    assert ipuHardwareIsAvailable(), "There is no IPU; POPTORCH_IPU_MODEL=1 claims simulated ones"
    return _VERSIONS.get(os.environ.get("POPTORCH_IPU_MODEL_VERSION", "ipu2"), -1)


_in_use = {}  # IPU -> the executor that is attached to it


def _is_free(ipu):
    owner = _in_use.get(ipu)
    return owner is None or owner() is None


def acquire(executor, count, wanted=None):
    """The number of the first of `count` free IPUs that the executor holds from now on."""
    if count > MAX_IPUS:
        raise too_many(count)
    _wait_for(wanted)
    starts = [wanted] if wanted is not None else range(MAX_IPUS - count + 1)
    for start in starts:
        group = range(start, start + count)
        if all(map(_is_free, group)):
            _in_use.update((ipu, weakref.ref(executor)) for ipu in group)
            return start
    what = f"IPU {wanted}" if wanted is not None else f"{count} IPU(s)"
    raise createPoptorchError(f"Failed to acquire {what}: in use by another model of this process")


def too_many(count):
    """The error for more IPUs than one process can have."""
    return createPoptorchError(
        f"Too many IPUs requested ({count}). Experiments that need more than {MAX_IPUS} IPUs require several "
        "processes: see poptorch.Options().Distributed"
    )


def _wait_for(ipu):
    """With POPTORCH_WAIT_FOR_IPU=1, until the IPU is free."""
    if ipu is not None and os.environ.get("POPTORCH_WAIT_FOR_IPU", "0") not in ("", "0"):
        if not _is_free(ipu):
            core(20, f"No IPU available, sleeping until IPU {ipu} is free")
        while not _is_free(ipu):
            time.sleep(0.1)


def release(executor):
    """Gives up all IPUs of the executor."""
    for ipu in [ipu for ipu, owner in _in_use.items() if owner() in (executor, None)]:
        del _in_use[ipu]

"""Which IPUs there are: none, or as many as POPTORCH_IPU_MODEL=1 claims (all of them simulated)."""

import os

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

"""Where in the user's program an operator is called."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig

_PACKAGES = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "")
_PARTS = tuple(os.path.join(_OWN, name, "") for name in ("pando", "poptorch"))


@functools.cache
def is_library(path: str) -> bool:
    """Whether a source file belongs to Python, an installed package or this one."""
    full = os.path.abspath(path)
    parts = full.split(os.sep)
    installed = "site-packages" in parts or "dist-packages" in parts
    return path.startswith("<") or installed or full.startswith(_PACKAGES) or full.startswith(_PARTS)


def location_of_user() -> tuple[str, int] | None:
    """File and line of the innermost call that is no library's."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not is_library(path):
            return path, frame.f_lineno
        frame = frame.f_back
    return None

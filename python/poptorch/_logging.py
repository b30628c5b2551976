"""The package's log: logger `poptorch::python`, one line a message on stderr, levels by name or by number.

`core(...)` writes lines that upstream's compiled part writes (options, optimizers, the lowered graph): logger
`poptorch::core`. `popart(...)` writes them under PopART's own level (`POPART_LOG_LEVEL`).
"""

import logging
import os
import sys
import time

TRACE = 5
OFF = 60
_LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "OFF": OFF,
}
_ALIASES = {"TRACE_ALL": "TRACE", "DEBUG_IR": "DEBUG"}
_NUMBERS = {0: "TRACE", 1: "DEBUG", 2: "INFO", 3: "WARN", 4: "ERR", 6: "OFF"}
_SHOWN = {TRACE: "trace", logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning",
          logging.ERROR: "error", logging.CRITICAL: "critical"}

logger = logging.getLogger("poptorch::python")
_core = logging.getLogger("poptorch::core")
_popart_level = _LEVELS["WARN"]


class _Formatter(logging.Formatter):
    def format(self, record):
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = _SHOWN.get(record.levelno, record.levelname.lower())
        return f"[{clock}.{int(record.msecs):03d}] [{record.name}] [{level}] {record.getMessage()}"


class _Stderr(logging.StreamHandler):
    """Writes to what `sys.stderr` is now, or to the file that POPTORCH_LOG_DEST names."""

    def __init__(self):
        logging.Handler.__init__(self)
        destination = os.environ.get("POPTORCH_LOG_DEST", "stderr")
        self._file = None if destination in ("stderr", "stdout") else open(destination, "a", encoding="utf-8")
        self._name = destination if self._file is None else None

    @property
    def stream(self):
        return self._file or getattr(sys, self._name)


def setLogLevel(level):
    """Sets the level: TRACE, DEBUG, INFO, WARN, ERR, OFF, or the numbers 0-4 and 6."""
    if isinstance(level, int):
        if level not in _NUMBERS:
            raise ValueError("Invalid log level integer: expected 0 to 4 or 6")
        level = _NUMBERS[level]
    name = _ALIASES.get(level, level)
    if name not in _LEVELS:
        raise ValueError(f"Unknown log level: {level}. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN")
    logger.setLevel(_LEVELS[name])
    _core.setLevel(_LEVELS[name])


def setPopartLogLevel(level):
    """Sets the level of the lines that PopART itself would write."""
    global _popart_level
    if not isinstance(level, str) or level not in _LEVELS:
        raise ValueError(f"Level must be one of {', '.join(sorted(_LEVELS))}")
    _popart_level = _LEVELS[level]


def core(level, message, *args):
    """A line of the compiler's."""
    _core.log(level, message, *args)


def core_enabled(level):
    """Would such a line be written?"""
    return _core.isEnabledFor(level)


def popart(module, level, message):
    """A line of PopART's: time since the start, then one letter for the level."""
    if level >= _popart_level:
        letter = {TRACE: "T", logging.DEBUG: "D", logging.INFO: "I"}.get(level, "W")
        print(f"popart:{module} {time.process_time():.5f} {letter}: {message}", file=sys.stderr)


def _start():
    handler = _Stderr()
    handler.setFormatter(_Formatter())
    for log in (logger, _core):
        if not log.handlers:
            log.addHandler(handler)
    setLogLevel(os.environ.get("POPTORCH_LOG_LEVEL", "WARN"))
    setPopartLogLevel(os.environ.get("POPART_LOG_LEVEL", "WARN"))


_start()

"""Trace points around Python code, written where PVTI_OPTIONS says, otherwise without any cost.

A trace is a file of one JSON event a line (name, channel, start and end in microseconds), the format that
`chrome://tracing` and Perfetto open.
"""

import atexit
import contextlib
import functools
import json
import os
import threading
import time

_events = []


def _enabled():
    options = json.loads(os.environ.get("PVTI_OPTIONS") or "{}")
    return str(options.get("enable", "false")).lower() == "true"


class Channel:
    """A named row of the trace."""

    def __init__(self, name):
        self._name = name
        self._enabled = _enabled()

    @contextlib.contextmanager
    def tracepoint(self, label):
        """Records how long its body took."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            if self._enabled:
                _record(self._name, label, start, time.perf_counter_ns())

    def instrument(self, obj, *methods):
        """Puts a trace point around each of the object's (or class's) methods."""
        for name in methods:
            setattr(obj, name, self._traced(getattr(obj, name), name))

    def _traced(self, method, name):
        @functools.wraps(method)
        def traced(*args, **kwargs):
            with self.tracepoint(name):
                return method(*args, **kwargs)

        return traced


def _record(channel, label, start, end):
    if not _events:
        atexit.register(_write)
    _events.append({
        "name": label, "cat": channel, "ph": "X", "ts": start / 1000, "dur": (end - start) / 1000,
        "pid": os.getpid(), "tid": threading.get_ident(),
    })


def _write():
    directory = json.loads(os.environ.get("PVTI_OPTIONS") or "{}").get("directory", ".")
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, f"poptorch_{os.getpid()}.json"), "w", encoding="utf-8") as file:
        json.dump({"traceEvents": _events}, file)

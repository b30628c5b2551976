"""`openTrace`: Chrome traces, as `poptorch.profiling` and `pando run --trace` write them, by libpva's names."""

from __future__ import annotations

import json
import os

from ._absent import Facts


class Event(Facts):
    """Something that took a while. Times are microseconds."""

    def __init__(self, label: str, channel: str, timestamp: float, duration: float):
        self.label, self.channel = label, channel
        self.timestamp, self.duration = timestamp, duration
        self._children: list[Event] = []

    def children(self) -> list[Event]:
        """The events inside, in order of time."""
        return self._children

    def _holds(self, other: Event) -> bool:
        return other.timestamp + other.duration <= self.timestamp + self.duration


class Thread(Facts):
    """A thread's outermost events."""

    def __init__(self, tid: int, events: list[Event]):
        self.tid = tid
        self.events = _nested(events)


class Process(Facts):
    """A process and its threads."""

    def __init__(self, pid: int, threads: list[Thread]):
        self.pid, self.threads = pid, threads

    def thread(self, tid: int) -> Thread:
        """The thread of that number."""
        return _found(self.threads, "tid", tid)


class Trace(Facts):
    """A trace file that is open."""

    def __init__(self, processes: list[Process]):
        self.processes = processes

    def process(self, pid: int) -> Process:
        """The process of that number."""
        return _found(self.processes, "pid", pid)


def openTrace(path: str | os.PathLike[str]) -> Trace:
    """Opens a trace of JSON events: complete ones (`"ph": "X"`), nested by their times."""
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is no trace in JSON: PVTI's own format is not read") from error
    listed = content.get("traceEvents", []) if isinstance(content, dict) else content
    threads: dict[int, dict[int, list[Event]]] = {}
    for one in listed:
        if one.get("ph") == "X":
            event = Event(one["name"], one.get("cat", ""), one["ts"], one["dur"])
            threads.setdefault(one.get("pid", 0), {}).setdefault(one.get("tid", 0), []).append(event)
    return Trace([
        Process(pid, [Thread(tid, events) for tid, events in by_thread.items()]) for pid, by_thread in threads.items()
    ])


def _nested(events: list[Event]) -> list[Event]:
    outermost: list[Event] = []
    around: list[Event] = []
    for event in sorted(events, key=lambda one: (one.timestamp, -one.duration)):
        while around and not around[-1]._holds(event):
            around.pop()
        (around[-1]._children if around else outermost).append(event)
        around.append(event)
    return outermost


def _found(entries: list, key: str, number: int):
    for entry in entries:
        if getattr(entry, key) == number:
            return entry
    known = ", ".join(str(getattr(entry, key)) for entry in entries) or "none"
    raise KeyError(f"the trace has no {key} {number}; it has {known}")

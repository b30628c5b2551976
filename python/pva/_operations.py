"""`OperationAnalysis`: the steps of a report by operation, and where in the user's program each comes from."""

from __future__ import annotations

import json

from ._absent import Facts
from ._program import Program
from ._report import Report


class Location(Facts):
    """A line of the user's program."""

    def __init__(self, file: str, line: int):
        self.fileName, self.lineNumber = file, line


class DebugContext(Facts):
    """What a layer of software knows about an operation. Pando has one layer: `parents` is empty."""

    ABSENT = {"location": "the operation is none of the user's lines: the optimizer, or the compiler's own"}

    def __init__(self, id: int, name: str, known: dict):
        self.id, self.name = id, name
        self.parents: list[DebugContext] = []
        path, _, kind = name.rpartition("/")
        self.json = json.dumps({"layer": "poptorch", "op_name": name, "op_type": kind or path, **known})
        self.layer = json.dumps({"layer": "poptorch"})
        if "file" in known:
            self.location = Location(known["file"], known["line"])


class Operation(Facts):
    """An operation and what it costs in one run."""

    ABSENT = {
        "debugContext": "open the report with its debug.cbor: pva.openReport(profile, debug)",
        "replacedDebugContext": "open the report with its debug.cbor: pva.openReport(profile, debug)",
        "vars": "the report says when variables live, not which operation uses them",
    }

    def __init__(self, report: Report, index: int, operation: dict):
        self.name = operation["name"]
        self.firstStepIndex = operation["first_step"]
        self.lastStepIndex = operation["first_step"] + operation["steps"] - 1
        #: Ours: cycles and floating-point operations of a run.
        self.cycles, self.flops = operation["cycles"], operation["flops"]
        steps = report.compilation.programs[0].children
        self._programs = [one for one in steps if one.name.partition(":")[0] == self.name]
        self.layer = json.dumps({"layer": "poptorch"})
        if report._debug is not None:
            known = report._debug["values"].get(self.name.rpartition("/")[2], {})
            self.debugContext = DebugContext(index, self.name, known)
            self.replacedDebugContext: list[DebugContext] = []

    def programs(self) -> list[Program]:
        """Its steps."""
        return self._programs


class OperationAnalysis(Facts):
    """All operations, in the order of the program."""

    def __init__(self, report: Report):
        operations = enumerate(report._profile["operations"])
        self.operations = [Operation(report, index, operation) for index, operation in operations]

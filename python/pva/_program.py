"""Programs: what runs, by libpva's types."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from ._absent import PER_TILE, Facts


class ProgramType(enum.Enum):
    """Kinds of programs. Reports of ours use Sequence, OnTileExecute, DoExchange, GlobalExchange, StreamCopyMid."""

    Unknown = 0
    Sequence = 1
    Repeat = 2
    OnTileExecute = 3
    DoExchange = 4
    GlobalExchange = 5
    StreamCopyBegin = 6
    StreamCopyMid = 7
    StreamCopyEnd = 8
    Sync = 9
    SyncAns = 10
    SyncSans = 11
    OnEveryTileSwitch = 12
    Call = 13
    If = 14
    WriteUndef = 15


#: The program of a step of a report, by the step's kind.
OF_KIND = {
    "compute": ProgramType.OnTileExecute,
    "exchange": ProgramType.DoExchange,
    "links": ProgramType.GlobalExchange,
    "host_in": ProgramType.StreamCopyMid,
    "host_out": ProgramType.StreamCopyMid,
}


class ComputeSet(Facts):
    """Vertices that run at the same time."""

    ABSENT = {
        "vertices": "the report has the number of vertices (numVertices), not their types",
        "estimatedCyclesByTile": PER_TILE,
    }

    def __init__(self, name: str, num_vertices: int):
        self.name = name
        self.numVertices = num_vertices


class Program(Facts):
    """A step of the program, or a sequence of them."""

    Type = ProgramType
    ABSENT = {
        "vars": "the report says when variables live, not which program uses them",
        "codeBytesByTile": "the report has code by tile only in sum (compilation.memory.code)",
        "controlCodeByTile": "control code is not predicted apart from other code",
        "estimatedCyclesByTile": PER_TILE,
    }

    def __init__(self, type: ProgramType, name: str, id: int, children: Sequence[Program] = ()):
        self.type = type
        self.name = name
        self._id = id
        self.children = list(children)
        self.computeset: ComputeSet | None = None

    def accept(self, visitor: ProgramVisitor) -> None:
        """Calls the visitor's method for this type."""
        getattr(visitor, f"visit{self.type.name}")(self)


class ProgramVisitor:
    """To subclass: `visitOnTileExecute(program)` and so on do nothing unless overridden."""


def _nothing(self, program: Program) -> None:
    """Does nothing."""


for _kind in ProgramType:
    setattr(ProgramVisitor, f"visit{_kind.name}", _nothing)

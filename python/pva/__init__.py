"""Reads reports of predictions by the names of libpva, so that scripts written for Poplar's reports run on Pando's.

    import pva

    report = pva.openReport("report/training/profile.pop")
    print(report.execution.totalCycles.total, report.compilation.tiles[0].memory.total.excludingGaps)

An independent implementation of the documented names. What Pando does not predict has no value here: asking for it
raises `AttributeError` with one sentence that says why.
"""

from . import pva_core
from ._operations import OperationAnalysis
from ._program import Program, ProgramVisitor
from ._report import IPU, Report, openReport
from ._trace import Event, Trace, openTrace

__all__ = [
    "IPU",
    "Event",
    "OperationAnalysis",
    "Program",
    "ProgramVisitor",
    "Report",
    "Trace",
    "openReport",
    "openTrace",
    "pva_core",
]

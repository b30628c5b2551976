"""The classes of `pva` under the module name that scripts reach for."""

from ._execution import ExecutionStep
from ._program import Program

__all__ = ["ExecutionStep", "Program"]

"""What upstream keeps in its compiled module and programs reach for by name: error classes, the check of
options, whether a model is being compiled, and errors to try an error handler with."""

import enum

from ._errors import Error, RecoverableError, UnrecoverableError, context, location
from ._impl import isCompiling as isCompilingWithDispatcher
from ._option_keys import validate as _validateOptions

__all__ = ["Error", "RecoverableError", "TestErrorType", "UnrecoverableError", "isCompilingWithDispatcher"]


class TestErrorType(enum.IntEnum):
    """The kinds of error that `_throwTestError` raises."""

    __test__ = False  # not a test class, whatever its name says

    Poptorch = 0
    Popart = 1
    PopartInternal = 2
    Poplibs = 3
    PoplarUnrecoverable = 4
    PoplarUnknown = 5
    PoplarRecoverableFullReset = 6
    PoplarLinkError = 7


def _throwTestError(kind):
    """Raises an error of the kind, from inside two contexts."""
    with context("throwTestError::topLevel"), context("throwTestError::bottomLevel"):
        raise _test_error(TestErrorType(kind))


def _test_error(kind):
    where = location()
    if kind is TestErrorType.PoplarRecoverableFullReset:
        return RecoverableError(
            "A reset of the whole system is needed", "poplar_recoverable_runtime_error", where, "FULL_RESET"
        )
    if kind is TestErrorType.PoplarUnrecoverable:
        return UnrecoverableError("The system is broken", "poplar_unrecoverable_runtime_error", where)
    if kind is TestErrorType.PoplarLinkError:
        return Error("Linking failed. Output: -lfoo not found", "poplar_link_error", where)
    names = {
        TestErrorType.Poptorch: "poptorch_cpp_error",
        TestErrorType.Popart: "popart_exception",
        TestErrorType.PopartInternal: "popart_internal_exception",
        TestErrorType.Poplibs: "poplibs_exception",
        TestErrorType.PoplarUnknown: "poplar_unknown_runtime_error",
    }
    return Error(f"A test error of kind {kind.name}", names[kind], where)

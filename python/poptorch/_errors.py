"""Error classes, and the named places that an error was raised in.

    with context("compile"):
        raise createPoptorchError("No loss found")

The message says what is wrong; `location` lists the contexts that were open, innermost first.
"""

import contextlib

_contexts = []


class Error(RuntimeError):
    """Anything that cannot be compiled or run."""

    def __init__(self, message, type="poptorch_py_error", location=""):  # noqa: A002 (the public name)
        self.message = message
        self.type = type
        self.location = location
        super().__init__(f"In {location}: {message}" if location else message)

    def __reduce__(self):
        return (_rebuild, (self.__class__, self.__dict__.copy(), self.args))


class RecoverableError(Error):
    """The system works again after `recovery_action`."""

    def __init__(self, message, type="", location="", recovery_action=""):  # noqa: A002
        super().__init__(message, type, location)
        self.recovery_action = recovery_action


class UnrecoverableError(Error):
    """The system needs its operator."""


def _rebuild(cls, state, args):
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


@contextlib.contextmanager
def context(name):
    """Names the work done inside for the `location` of errors."""
    _contexts.append(name)
    try:
        yield
    finally:
        _contexts.pop()


def location():
    """The open contexts, innermost first, one a line."""
    return "\n".join(f"  [{i}] {name}" for i, name in enumerate(reversed(_contexts)))


def createPoptorchError(message, type="poptorch_py_error"):  # noqa: A002
    """An Error that knows where it was made."""
    return Error(message, type, location())

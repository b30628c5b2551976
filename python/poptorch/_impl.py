"""What the whole package shares while a model is compiled: whether one is, its state, and the hooks around it."""

import contextlib
import threading
from collections import OrderedDict

from torch.utils.hooks import RemovableHandle

_local = threading.local()
_pre_compile_hooks = OrderedDict()
_post_compile_hooks = OrderedDict()


def isCompiling():
    """Is a model being compiled in this thread?"""
    return current() is not None


isDispatchTracing = isCompiling


def isRunningOnIpu():
    """True inside a model that is being compiled, False in the same code run by PyTorch itself."""
    return isCompiling()


def _restoreWrapperIfNecessary():
    """What the mark of a wrapped module is in a file: nothing; a loaded module is not wrapped."""
    return None


def current():
    """The state of the compilation that is under way in this thread, or None."""
    stack = getattr(_local, "stack", None)
    return stack[-1] if stack else None


@contextlib.contextmanager
def compiling(state):
    """Makes `state` the current compilation."""
    if not hasattr(_local, "stack"):
        _local.stack = []
    _local.stack.append(state)
    try:
        yield state
    finally:
        _local.stack.pop()


def registerPreCompileHook(hook):
    """Calls `hook()` before every compilation; returns a handle with `remove()`."""
    return _register(_pre_compile_hooks, hook)


def registerPostCompileHook(hook):
    """Calls `hook()` after every compilation; returns a handle with `remove()`."""
    return _register(_post_compile_hooks, hook)


def _register(hooks, hook):
    if not callable(hook):
        raise RuntimeError(f"A compile hook must be callable, not a {type(hook).__name__}")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


@contextlib.contextmanager
def compile_hooks():
    """Runs the registered hooks around its body."""
    for hook in list(_pre_compile_hooks.values()):
        hook()
    yield
    for hook in list(_post_compile_hooks.values()):
        hook()

"""Marks on a model that say which operations belong together: blocks as scopes, functions or modules."""

import functools

import torch

from pando.torch import current

from . import _impl
from ._errors import createPoptorchError


class Blocks:
    """The blocks of one compilation: asks the strategy where operations run."""

    def __init__(self, strategy):
        self._strategy = strategy
        self._number = 0  # blocks so far
        self.auto_id = 0
        self._place = strategy.first()
        self._used = set()

    def begin(self, user_id, ipu_id):
        """The operations that follow belong to a new block."""
        if user_id is None:
            user_id = str(self.auto_id)
            self.auto_id += 1
        self._number += 1
        self._place = self._strategy.place(str(user_id), ipu_id, self._number)

    def end(self, outer):
        """Back to the block around the one that ends, or to none."""
        self._place = outer

    def outer(self):
        """What `end` will need: the block around a scope, None before the first one."""
        return self._place if self._number else None

    def places(self):
        """Where operations run."""
        return self._used

    def place(self):
        """Where the operation that is being captured runs."""
        if self._place is None:
            raise createPoptorchError("No active Block: every operation after a poptorch.Block must be in another one")
        self._used.add(self._place)
        return self._place


def _blocks():
    state = _impl.current()
    return None if state is None else getattr(state, "blocks", None)


def _begin_region(ipu_id):
    """In a capture that is no compilation of ours, such as that of `pando.torch.profile`."""
    capture = current()
    if capture is not None:
        capture.region = (capture.region or 0) + 1 if ipu_id is None else ipu_id


class Block:
    """Operations inside `with Block("name", ipu_id=1):` form a block."""

    def __init__(self, user_id=None, ipu_id=None):
        self._user_id = user_id
        self._ipu_id = ipu_id
        self._outer = None

    @staticmethod
    def useAutoId():
        """Blocks without a name are called "0", "1", ... from here on."""
        blocks = _blocks()
        if blocks is not None:
            blocks.auto_id = 0

    @staticmethod
    def start(user_id=None, ipu_id=None):
        """Begins a block that lasts until the next one."""
        blocks = _blocks()
        if blocks is not None:
            blocks.begin(user_id, ipu_id)
        else:
            _begin_region(ipu_id)

    def __enter__(self):
        blocks = _blocks()
        if blocks is not None:
            self._outer = blocks.outer()
            blocks.begin(self._user_id, self._ipu_id)
        else:
            _begin_region(self._ipu_id)
        return self

    def __exit__(self, kind, value, traceback):
        blocks = _blocks()
        if blocks is not None:
            blocks.end(self._outer)


def BlockFunction(user_id=None, ipu_id=None):
    """A decorator: everything the function does is a block."""

    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return wrapped

    return decorate


class _BlockHook:
    """A forward pre-hook that begins a block."""

    def __init__(self, user_id, ipu_id):
        self._user_id = user_id
        self._ipu_id = ipu_id

    def __call__(self, module, inputs):  # noqa: ARG002 (the signature of hooks)
        Block.start(self._user_id, self._ipu_id)

    def __repr__(self):
        return f"BeginBlock(user_id={self._user_id}, ipu_id={self._ipu_id})"


class LegacyBeginBlockFn:
    """A callable that begins a block when called."""

    def __init__(self, function, user_id=None, ipu_id=None):
        self._function = function
        self._user_id = user_id
        self._ipu_id = ipu_id

    def __call__(self, *args, **kwargs):
        Block.start(self._user_id, self._ipu_id)
        return self._function(*args, **kwargs)


def BeginBlock(layer_to_call, user_id=None, ipu_id=None):
    """From each call of the module on, operations belong to a new block. Returns the module."""
    if not isinstance(layer_to_call, torch.nn.Module):
        assert callable(layer_to_call), "BeginBlock takes a module or a callable"
        return LegacyBeginBlockFn(layer_to_call, user_id, ipu_id)
    if _hooks(layer_to_call):
        raise createPoptorchError(f"The {type(layer_to_call).__name__} module has already been assigned to a block")
    layer_to_call.register_forward_pre_hook(_BlockHook(user_id, ipu_id))
    return layer_to_call


def _hooks(module):
    return [key for key, hook in module._forward_pre_hooks.items() if isinstance(hook, _BlockHook)]


def removeBlocks(module):
    """Takes all BeginBlock marks off the module and those inside it."""
    for part in module.modules():
        for key in _hooks(part):
            del part._forward_pre_hooks[key]


def module_repr(module):
    """The module's text with its BeginBlock marks."""
    text = _module_text(module)
    hook = next((hook for hook in module._forward_pre_hooks.values() if isinstance(hook, _BlockHook)), None)
    return text if hook is None else f"{hook!r}: {text}"


def _module_text(module):
    head = module._get_name() if isinstance(module, torch.nn.Module) else type(module).__name__
    extra = module.extra_repr()
    children = [f"({name}): " + module_repr(child).replace("\n", "\n  ") for name, child in module.named_children()]
    if not children:
        return f"{head}({extra})"
    lines = ([extra] if extra else []) + children
    return head + "(\n  " + "\n  ".join(lines) + "\n)"


def print_module(module):
    """Prints `module_repr`."""
    print(module_repr(module))

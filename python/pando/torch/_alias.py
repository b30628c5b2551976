"""Which tensors share elements. A storage holds one value of the graph, which writing replaces; a view is computed
from what it is a view of, and a write to it is a write there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .._pando import Error
from ._value import Value


@dataclass(frozen=True)
class View:
    """How a view is made from its parent, and the parent again from its old value and the view's new one."""

    forward: Callable[[Value], Value]
    #: None where elements of the parent appear more than once in the view.
    inverse: Callable[[Value, Value], Value] | None
    #: No gradient flows back through it.
    stops: bool = False


class Tracked:
    """What a tensor of the captured program is: a storage of its own, or a view of another tensor.

    Without a value (None) it is the result of an operator that is not supported.
    """

    __slots__ = ("parent", "view", "storage", "_value", "_version")

    def __init__(self, value: Value | None, needs_grad: bool = False):
        self.parent: Tracked | None = None
        self.view: View | None = None
        self.storage = Storage(value, needs_grad)

    @classmethod
    def of_view(cls, parent: Tracked, view: View) -> Tracked:
        tracked = cls.__new__(cls)
        tracked.parent, tracked.view, tracked.storage = parent, view, parent.storage
        tracked._value, tracked._version = None, -1
        return tracked

    @property
    def needs_grad(self) -> bool:
        if self.parent is None:
            return self.storage.needs_grad
        return not self.view.stops and self.parent.needs_grad

    def read(self) -> Value | None:
        if self.parent is None or self.storage.value is None:
            return self.storage.value
        stale = self._version != self.storage.version
        if stale or not self._value.emitter.is_live(self._value):
            self._value, self._version = self.view.forward(self.parent.read()), self.storage.version
        return self._value

    def write(self, value: Value | None, needs_grad: bool = False) -> None:
        """`value` has this tensor's type. Gradients flow to what was written and to what stayed."""
        if self.parent is None or value is None or self.storage.value is None:
            whole = self.parent is None
            self.storage.replace(value, needs_grad or (self.storage.needs_grad and not whole))
            return
        if self.view.inverse is None:
            raise NotImplementedError("elements that several elements of a view share cannot be written through it")
        parent = self.parent.read()
        self.parent.write(self.view.inverse(parent, value), needs_grad or self.needs_grad)
        self._value, self._version = value, self.storage.version


class Storage:
    __slots__ = ("value", "version", "needs_grad")

    def __init__(self, value: Value | None, needs_grad: bool):
        self.value, self.version, self.needs_grad = value, 0, needs_grad

    def replace(self, value: Value | None, needs_grad: bool) -> None:
        if value is not None and self.value is not None and not value.emitter.are_of_one_function(value, self.value):
            raise Error("the body of a loop or a condition changes a tensor of outside; pass it in and return it")
        self.value, self.needs_grad = value, needs_grad
        self.version += 1

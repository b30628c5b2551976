"""The capture of a program: the user's Python runs once on fake tensors, and every operator that it calls becomes
nodes of a graph. Nothing is computed but sizes and types.

Tables say what operators mean: `ops/` has handlers, `_views.py` views. An operator that has neither may have a
decomposition in torch; those that have none are collected and named all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .._pando import Error
from ._alias import Tracked, View
from ._autograd import CustomGradient
from ._functional import functional, mutated
from ._host import HostCall
from ._location import location_of_user
from ._types import graph_type, memory, location
from ._value import FLOATS, Emitter, Value

aten = torch.ops.aten


@dataclass(frozen=True)
class Spec:
    """What an operator's result has to be: the graph's element type, and sizes."""

    dtype: str
    shape: tuple[int, ...]


class Call:
    """An operator's call as its handler sees it."""

    def __init__(self, capture: Capture, func, args, kwargs, out):
        self.capture, self.func = capture, func
        #: Arguments with fake tensors where the handler gets values.
        self.args, self.kwargs = args, kwargs
        self.fakes = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.outs = [Spec(graph_type(fake.dtype), tuple(fake.shape)) for fake in self.fakes]

    @property
    def g(self) -> Emitter:
        return self.capture.emitter

    @property
    def out(self) -> Spec:
        """The first result."""
        return self.outs[0]

    def full(self, number) -> Value:
        """A number as large as the first result."""
        return self.g.full(self.out.dtype, self.out.shape, number)


class Capture(TorchDispatchMode):
    """A capture under way: `current()` while the program runs."""

    def __init__(self, training: bool):
        super().__init__()
        self.emitter = Emitter()
        #: Whether gradients will be asked for.
        self.training = training
        #: What `region` was when a value was made, by the value's name; for the caller of `capture`.
        self.regions: dict[str, Any] = {}
        #: Anything; belongs to the operators that follow.
        self.region: Any = None
        #: Names of the modules and scopes around the operator.
        self.path: list[str] = []
        #: Free for those who add operators; goes into the result of `capture`.
        self.marks: dict[str, Any] = {}
        #: Operators that cannot be translated: reason by name, and the paths where they are called.
        self.problems: dict[tuple[str, str], list[str]] = {}
        #: Calls of `torch.autograd.Function`s with a backward pass of their own, in order.
        self.custom_gradients: list[CustomGradient] = []
        #: Functions of the host between the parts of the graph, in order.
        self.host_calls: list[HostCall] = []
        #: Where in the user's files each value is made, by the value's name; None if nobody asks.
        self.locations: dict[str, tuple[str, int]] | None = None
        #: Real tensors are computed with: torch's functions are torch's own.
        self.is_outside = False
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        #: Tensors from outside: themselves (so that their ids stay theirs), their fakes, what they are.
        self._fakes: dict[int, tuple[torch.Tensor, FakeTensor]] = {}
        self._outside: dict[int, tuple[torch.Tensor, Tracked]] = {}
        #: Operators that are being decomposed.
        self._outer: list = []
        self._had_history: set[int] = set()
        self._detached: dict[int, tuple[Value, Value]] = {}
        self._names: dict[str, int] = {}
        self._num_draws = 0
        self.seed = Tracked(self.emitter.param(self.unique("seed"), "u32", (2,)))
        self._first_seed = self.seed.read()

    # For those who add operators.

    def value(self, tensor: torch.Tensor) -> Value:
        """The value of a tensor of the program: fake, or real and from outside."""
        value = self.tracked(tensor).read()
        if value is None:
            raise NotImplementedError("an operand comes from an operator that is not supported")
        return value

    def wrap(self, value: Value, dtype: torch.dtype, needs_grad: bool = True, name: str | None = "") -> torch.Tensor:
        """A new fake tensor with a value, of the graph's type for `dtype`."""
        assert value.dtype == graph_type(dtype), (value.type, dtype)
        with self.fake_mode:
            fake = torch.empty(value.shape, dtype=dtype)
        if name is not None:
            self.name(value, name)
        fake._pando = Tracked(value, needs_grad and value.dtype in FLOATS)
        return fake

    def wrap_input(self, value: Value, dtype: torch.dtype) -> torch.Tensor:
        """As `wrap`, for a parameter of the graph, which has its name."""
        return self.wrap(value, dtype, needs_grad=False, name=None)

    def write(self, tensor: torch.Tensor, value: Value, needs_grad: bool = True) -> None:
        """Changes a tensor in place."""
        self.tracked(tensor).write(value, needs_grad and value.dtype in FLOATS)

    def register(self, tensor: torch.Tensor, value: Value, needs_grad: bool) -> Tracked:
        """A tensor from outside stands for a value, such as a parameter of the graph."""
        tracked = Tracked(value, needs_grad)
        self._note_history(tensor)
        self._outside[id(tensor)] = (tensor, tracked)
        return tracked

    def random(self, distribution: str, dtype: str, shape: tuple[int, ...]) -> Value:
        """Elements that differ from call to call and from run to run: `uniform` in [0, 1) or of all integers of the
        type, `normal`."""
        self._num_draws += 1
        draw = self._num_draws * 0x9E3779B9 % (1 << 32)
        low, high = (self._first_seed.slice(0, part, part + 1) for part in range(2))
        low = low + draw
        for frame in self.emitter.frames:
            if frame.counter is not None:
                low = low + frame.counter.to("u32") * 0x85EBCA6B
        seed = self.emitter.concat([low, high], 0)
        type = f"{dtype}[{','.join(map(str, shape))}]"
        return self.emitter.op(f"random distribution={distribution}", [seed], type)

    def advance_seed(self) -> None:
        """Another run draws other numbers; called once the program has ended."""
        if self._num_draws:
            low, high = (self._first_seed.slice(0, part, part + 1) for part in range(2))
            self.seed.write(self.emitter.concat([low, high + 1], 0))

    def name(self, value: Value, name: str) -> None:
        """Names a value by the path of its module; numbered if there are several."""
        full = ".".join([*self.path, name]) if name else ".".join(self.path)
        if not symbol(full):
            return
        full = self.unique(symbol(full))
        if value.frame is self.emitter.frame:
            self.emitter.native.name(value.id, full)
            if self.region is not None:
                self.regions.setdefault(full, self.region)
            if self.locations is not None:
                self.locations.setdefault(full, location_of_user())

    def unique(self, name: str) -> str:
        """The name, or with a number if it is taken."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return self.unique(f"{name}_{count}") if count else name

    # The dispatch.

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.prim.device.default:
            return torch.device("cpu")
        kwargs = kwargs or {}
        special = SPECIAL.get(func)
        if special is not None:
            return special(self, func, args, kwargs)
        step = VIEWS.get(func)
        if step is not None:
            return self._view(func, step, args, kwargs)
        written = mutated(func)
        if written:
            return self._in_place(func, written, args, kwargs)
        return self.call(func, args, kwargs)

    def call(self, func, args, kwargs):
        """An operator that makes new tensors."""
        handler = HANDLERS.get(func)
        if handler is None:
            result = self._decomposed(func, args, kwargs)
            if result is not NotImplemented:
                return result
        out = self.meta(func, args, kwargs, getattr(handler, "before", None))
        values = self.translate(func, handler, args, kwargs, out)
        return self.wrap_all(out, values, self.needs_grad(args, kwargs))

    def _decomposed(self, func, args, kwargs):
        """By simpler operators, as torch defines it."""
        decomposition = decompositions().get(func, func.decompose)
        self._outer.append(func)
        try:
            with self:
                return decomposition(*args, **kwargs)
        finally:
            self._outer.pop()

    def meta(self, func, args, kwargs, before: Callable | None = None):
        """What torch says about the results: fake tensors."""
        args, kwargs = self.faked((args, kwargs))
        if before is not None:
            args = before(args)
        try:
            with self.fake_mode:
                return func(*args, **kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            self.check_problems()
            raise UnknownSize(func, ".".join(self.path)) from None

    def translate(self, func, handler, args, kwargs, out) -> list[Value | None]:
        """The values of the results, None where they cannot be had."""
        count = sum(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(out))
        nothing: list[Value | None] = [None] * count
        if handler is None:
            self.note(func, "")
            return nothing
        call = Call(self, func, *self.faked((args, kwargs)), out)
        try:
            args, kwargs = self.valued((args, kwargs))
        except Unknown:
            return nothing
        self.emitter.made.clear()
        try:
            values = handler(call, *args, **kwargs)
        except NotImplementedError as error:
            self.note(func, str(error))
            return nothing
        values = list(values) if isinstance(values, (tuple, list)) else [values]
        self._check(func, values, call.outs)
        for position, value in enumerate(values):
            if value is not None:
                self.name(value, func._opname if position == 0 else f"{func._opname}.{position}")
        self._name_steps(func._opname)
        return values

    def _name_steps(self, operator: str) -> None:
        """Names what an operator's results are made of, for profiles."""
        for op, value in self.emitter.made:
            if value.frame is not self.emitter.frame:
                continue
            full = self.unique(symbol(".".join([*self.path, operator, op])))
            self.emitter.native.name(value.id, full)
            if self.locations is not None:
                self.locations.setdefault(full, location_of_user())

    def _check(self, func, values: list[Value | None], specs: list[Spec]) -> None:
        if len(values) != len(specs):
            raise AssertionError(f"{func}: {len(values)} values for {len(specs)} results")
        for value, spec in zip(values, specs):
            if value is not None and (value.dtype, value.shape) != (spec.dtype, spec.shape):
                raise AssertionError(f"{func}: a value of {value.type} for {spec.dtype}{list(spec.shape)}")

    def wrap_all(self, out, values: list[Value | None], needs_grad: bool):
        """The fake tensors with their values."""
        fakes = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        for fake, value in zip(fakes, values):
            fake._pando = Tracked(value, needs_grad and fake.dtype.is_floating_point)
        return out

    def _view(self, func, step, args, kwargs):
        """Views of the first argument."""
        out = self.meta(func, args, kwargs)
        parent, fake = self.tracked(args[0]), self.fake(args[0])
        results = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        try:
            views = step(fake, out, *args[1:], **kwargs)
        except NotImplementedError as error:
            self.note(func, str(error))
            return self.wrap_all(out, [None] * len(results), False)
        for result, view in zip(results, views if isinstance(views, list) else [views]):
            result._pando = Tracked.of_view(parent, view)
        return out

    def _in_place(self, func, written: list[int | str], args, kwargs):
        """An operator that writes to arguments: its functional form, and the writes."""
        targets = [args[key] if isinstance(key, int) and key < len(args) else kwargs.get(key) for key in written]
        result = self.meta(func, args, kwargs)
        form = functional(func)
        if form is None:
            self.note(func, "")
            values = [None] * len(targets)
        else:
            form_args, form_kwargs = form.arguments(args, kwargs)
            new = self.call(form.func, form_args, form_kwargs)
            values = [self.tracked(leaf).read() for leaf in pytree.tree_leaves(new)]
        needs_grad = self.needs_grad(args, kwargs)
        for target, value in zip(targets, values):
            if target is not None:
                self.assign(target, value, needs_grad)
        returned = iter(targets)
        fakes = [self.fake(target) for target in targets if target is not None]
        is_target = lambda leaf: isinstance(leaf, torch.Tensor) and any(leaf is fake for fake in fakes)
        return pytree.tree_map(lambda leaf: next(returned) if is_target(leaf) else leaf, result)

    def assign(self, target: torch.Tensor, value: Value | None, needs_grad: bool) -> None:
        """Writes a value, converted and broadcast, to a tensor."""
        if value is not None:
            value = value.to(graph_type(target.dtype)).broadcast(tuple(target.shape))
        tracked = self.tracked(target)
        if value is not None and not torch.is_grad_enabled() and self.training and tracked.needs_grad:
            # Autograd does not see the write: gradients flow to what was there.
            old, needs_grad = tracked.read(), True
            value = value.eq(old).select(old, old + self.detached(value - old))
        try:
            tracked.write(value, needs_grad and target.dtype.is_floating_point)
        except NotImplementedError as error:
            self.note("a write in place", str(error))

    def release(self) -> None:
        """The program's own tensors forget what autograd has noted about writes to them."""
        for tensor, _ in self._outside.values():
            if tensor.grad_fn is not None and id(tensor) not in self._had_history:
                tensor.detach_()

    # Tensors to fakes and values.

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in self._fakes:
            self._fakes[id(tensor)] = (tensor, self.fake_mode.from_tensor(tensor, static_shapes=True))
        return self._fakes[id(tensor)][1]

    def faked(self, tree):
        return pytree.tree_map_only(torch.Tensor, self.fake, tree)

    def tracked(self, tensor: torch.Tensor) -> Tracked:
        if isinstance(tensor, FakeTensor):
            found = getattr(tensor, "_pando", None)
            if found is None:
                raise Error("a tensor of another capture is used; make tensors inside the module, or pass them in")
            return found
        if id(tensor) not in self._outside:
            return self._constant(tensor)
        return self._outside[id(tensor)][1]

    def _constant(self, tensor: torch.Tensor) -> Tracked:
        """A tensor that is neither state nor input keeps the elements that it has now."""
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise Error(f"a tensor of layout {tensor.layout} is used; only dense tensors are supported")
        dtype = graph_type(tensor.dtype)
        with _disable_current_modes():
            array = memory(tensor)
        tracked = Tracked(self.emitter.value(self.emitter.native.constant(location(array, dtype))))
        if len(self.emitter.frames) == 1:
            self._note_history(tensor)
            self._outside[id(tensor)] = (tensor, tracked)
        return tracked

    def _note_history(self, tensor: torch.Tensor) -> None:
        if tensor.grad_fn is not None:
            self._had_history.add(id(tensor))

    def valued(self, tree):
        """Tensors as values; gradients stop where torch's do."""
        return pytree.tree_map_only(torch.Tensor, self._operand, tree)

    def _operand(self, tensor: torch.Tensor) -> Value:
        tracked = self.tracked(tensor)
        value = tracked.read()
        if value is None:
            raise Unknown
        if tracked.needs_grad and self.training and not torch.is_grad_enabled():
            return self.detached(value)
        return value

    def detached(self, value: Value) -> Value:
        if not value.is_float or not self.training:
            return value
        key = (id(value.frame), value.id)
        if key not in self._detached:
            self._detached[key] = (value, self.emitter.composite("detach", [value]))
        found = self._detached[key][1]
        return found if self.emitter.is_live(found) else self.emitter.composite("detach", [value])

    def needs_grad(self, *trees) -> bool:
        if not torch.is_grad_enabled():
            return False
        leaves = pytree.tree_leaves(trees)
        return any(isinstance(leaf, torch.Tensor) and self.tracked(leaf).needs_grad for leaf in leaves)

    # What cannot be translated.

    def note(self, func, reason: str) -> None:
        func = self._outer[0] if self._outer else func
        name = func if isinstance(func, str) else str(func).removesuffix(".default")
        paths = self.problems.setdefault((name, reason), [])
        path = ".".join(self.path)
        if path not in paths:
            paths.append(path)

    def check_problems(self) -> None:
        """One error that names every operator without a translation."""
        if not self.problems:
            return
        lines = []
        for (name, reason), paths in self.problems.items():
            where = ", ".join(path or "the top level" for path in paths[:4]) + (", ..." if len(paths) > 4 else "")
            lines.append(f"{name}{': ' + reason if reason else ''} (in {where})")
        raise Error("these operators are not supported:\n  " + "\n  ".join(lines))


class UnknownSize(DynamicOutputShapeException):
    """As torch calls it, saying more."""

    def __init__(self, func, path: str):
        super().__init__(func)
        self._where = path or "the top level"

    def __str__(self) -> str:
        return (
            f"the size of the result of {self.func} in {self._where} depends on values, which are not known before the"
            " program runs; keep sizes fixed, with torch.where in place of indexing by a mask"
        )


class Unknown(Exception):
    """An operand comes from an operator that is not supported."""


def symbol(name: str) -> str:
    """Fit for the graph's text: letters, digits, `_` and single dots inside, not digits alone."""
    text = "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "_" for c in name)
    text = ".".join(part for part in text.split(".") if part)
    return f"v{text}" if text.replace(".", "").isdigit() else text


def decompositions() -> dict:
    """Torch's own, for operators that have no handler."""
    global _decompositions
    if _decompositions is None:
        _decompositions = {**torch._decomp.decomposition_table, **torch._decomp.core_aten_decompositions()}
    return _decompositions


_decompositions: dict | None = None

from ._special import SPECIAL  # noqa: E402  (they need what is defined above)
from ._views import VIEWS  # noqa: E402
from .ops import HANDLERS  # noqa: E402

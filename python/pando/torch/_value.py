"""Values of a graph under construction, with arithmetic that broadcasts: what the handlers of operators are written
in. Element types are the graph's names; operands of one operation have one type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .. import _pando
from .._pando import Error
from ._types import location

FLOATS = ("f32", "f16", "bf16")
HALVES = ("f16", "bf16")

Number = (bool, int, float)


#: What arithmetic on bools is.
_OF_BOOLS = {"add": "or", "max": "or", "mul": "and", "min": "and"}


class Value:
    """A value of a function under construction."""

    __slots__ = ("emitter", "id", "frame", "dtype", "shape")

    def __init__(self, emitter: Emitter, id: int, frame: Frame, dtype: str, shape: tuple[int, ...]):
        self.emitter, self.id, self.frame, self.dtype, self.shape = emitter, id, frame, dtype, shape

    def __repr__(self) -> str:
        return f"%{self.id}: {self.type}"

    @property
    def type(self) -> str:
        return type_text(self.dtype, self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    # Arithmetic.

    def __add__(self, other):
        return self.emitter.binary("add", self, other)

    def __radd__(self, other):
        return self.emitter.binary("add", other, self)

    def __sub__(self, other):
        return self.emitter.binary("sub", self, other)

    def __rsub__(self, other):
        return self.emitter.binary("sub", other, self)

    def __mul__(self, other):
        return self.emitter.binary("mul", self, other)

    def __rmul__(self, other):
        return self.emitter.binary("mul", other, self)

    def __truediv__(self, other):
        return self.emitter.binary("div", self, other)

    def __rtruediv__(self, other):
        return self.emitter.binary("div", other, self)

    def __mod__(self, other):
        return self.emitter.binary("rem", self, other)

    def __pow__(self, other):
        return self.emitter.binary("pow", self, other)

    def __rpow__(self, other):
        return self.emitter.binary("pow", other, self)

    def __and__(self, other):
        return self.emitter.binary("and", self, other)

    def __or__(self, other):
        return self.emitter.binary("or", self, other)

    def __xor__(self, other):
        return self.emitter.binary("xor", self, other)

    def __neg__(self):
        return self.unary("neg")

    def maximum(self, other):
        return self.emitter.binary("max", self, other)

    def minimum(self, other):
        return self.emitter.binary("min", self, other)

    def eq(self, other):
        return self.emitter.binary("eq", self, other)

    def ne(self, other):
        return self.emitter.binary("ne", self, other)

    def lt(self, other):
        return self.emitter.binary("lt", self, other)

    def le(self, other):
        return self.emitter.binary("le", self, other)

    def gt(self, other):
        return self.emitter.binary("gt", self, other)

    def ge(self, other):
        return self.emitter.binary("ge", self, other)

    def unary(self, func: str) -> Value:
        return self.emitter.op(func, [self])

    def exp(self):
        return self.unary("exp")

    def log(self):
        return self.unary("log")

    def sqrt(self):
        return self.unary("sqrt")

    def abs(self):
        return self.unary("abs")

    def tanh(self):
        return self.unary("tanh")

    def logical_not(self):
        return self.to("bool").unary("not")

    def select(self, on_true, on_false) -> Value:
        """`on_true` where this bool holds; numbers take the other operand's type."""
        return self.emitter.select(self, on_true, on_false)

    def to(self, dtype: str) -> Value:
        """Converted as torch does: floats truncate to integers, everything but zero is True."""
        if dtype == self.dtype:
            return self
        if dtype == "bool":
            return self.ne(0)
        value = self
        if self.is_float and dtype not in FLOATS:
            value = self.lt(0).select(self.unary("ceil"), self.unary("floor"))
        return self.emitter.op("convert", [value], type_text(dtype, self.shape))

    def wide(self) -> Value:
        """16-bit floats as f32: what several steps are computed in."""
        return self.to("f32") if self.dtype in HALVES else self

    # Layout.

    def reshape(self, *shape) -> Value:
        shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else tuple(shape)
        if -1 in shape:
            known = -math.prod(shape)
            shape = tuple(self.size // known if size == -1 else size for size in shape)
        return self if shape == self.shape else self.emitter.op("reshape", [self], type_text(self.dtype, shape))

    def permute(self, perm: Sequence[int]) -> Value:
        if list(perm) == list(range(self.rank)):
            return self
        return self.emitter.op(f"transpose perm={ints(perm)}", [self])

    def swap(self, a: int, b: int) -> Value:
        perm = list(range(self.rank))
        perm[a], perm[b] = perm[b], perm[a]
        return self.permute(perm)

    def broadcast(self, shape: Sequence[int], axes: Sequence[int] | None = None) -> Value:
        """Own dimension i becomes dimension `axes[i]`; the last ones unless told."""
        shape = tuple(shape)
        if axes is None:
            axes = range(len(shape) - self.rank, len(shape))
        if shape == self.shape and list(axes) == list(range(self.rank)):
            return self
        return self.emitter.op(f"broadcast axes={ints(axes)}", [self], type_text(self.dtype, shape))

    def unsqueeze(self, axis: int) -> Value:
        axis %= self.rank + 1
        return self.reshape(self.shape[:axis] + (1,) + self.shape[axis:])

    def slice(self, axis: int, begin: int, end: int, step: int = 1) -> Value:
        axis %= self.rank
        if (begin, end, step) == (0, self.shape[axis], 1):
            return self
        begins, ends, steps = [0] * self.rank, list(self.shape), [1] * self.rank
        begins[axis], ends[axis], steps[axis] = begin, end, step
        return self.emitter.op(f"slice begin={ints(begins)} end={ints(ends)} step={ints(steps)}", [self])

    def pick(self, axis: int, index: int) -> Value:
        """The part at an index, without the axis."""
        axis %= self.rank
        part = self.slice(axis, index, index + 1)
        return part.reshape(self.shape[:axis] + self.shape[axis + 1 :])

    def pad(self, low: Sequence[int], high: Sequence[int], filler=0, interior: Sequence[int] | None = None) -> Value:
        """Negative amounts crop."""
        if not any(low) and not any(high) and not any(interior or ()):
            return self
        inner = f" interior={ints(interior)}" if interior else ""
        filler = self.emitter.scalar(self.dtype, filler)
        return self.emitter.op(f"pad low={ints(low)} high={ints(high)}{inner}", [self, filler])

    def reverse(self, axes: Sequence[int]) -> Value:
        return self.emitter.op(f"reverse axes={ints(axes)}", [self]) if axes else self

    def gather(self, indices: Value, axis: int) -> Value:
        """Parts along an axis; the indices' dimensions take its place. Indices out of range are clamped."""
        return self.emitter.op(f"gather axis={axis % self.rank}", [self, indices])

    def scatter(self, indices: Value, updates: Value, axis: int, combine: str | None = None) -> Value:
        """Row i of `updates` goes to row `indices[i]`; the last one stays, or all are combined."""
        how = f" combine={combine}" if combine else ""
        return self.emitter.op(f"scatter axis={axis % self.rank}{how}", [self, indices, updates])

    # Reductions.

    def reduce(self, func: str, axes: Sequence[int], keep: bool = False) -> Value:
        axes = sorted(axis % self.rank for axis in axes)
        func = _OF_BOOLS.get(func, func) if self.dtype == "bool" else func
        reduced = self.emitter.op(f"reduce func={func} axes={ints(axes)}", [self]) if axes else self
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(self.shape))
        return reduced.reshape(kept) if keep else reduced

    def sum(self, axes, keep=False):
        return self.reduce("sum", axes, keep)

    def mean(self, axes: Sequence[int], keep: bool = False) -> Value:
        count = math.prod(self.shape[axis % self.rank] for axis in axes)
        return self.sum(axes, keep) / (count if count else math.nan)

    def scan(self, func: str, axis: int) -> Value:
        return self.emitter.op(f"scan func={func} axis={axis % self.rank}", [self])

    def composite(self, name: str, **attributes: float) -> Value:
        return self.emitter.composite(name, [self], **attributes)

    def matmul(self, other: Value) -> Value:
        """Of equal leading dimensions; sums of 16-bit floats are f32, rounded once."""
        batch, rank = range(self.rank - 2), self.rank
        return self.dot(other, [(axis, axis) for axis in batch], [(rank - 1, rank - 2)])

    def dot(self, other: Value, batch: Sequence[tuple[int, int]], contract: Sequence[tuple[int, int]]) -> Value:
        sums = " dtype=f32" if self.dtype in HALVES else ""
        groups = f" batch={pairs(batch)}" if batch else ""
        result = self.emitter.op(f"dot{groups} contract={pairs(contract)}{sums}", [self, other])
        return result.to(self.dtype)


class Frame:
    """A function that has begun and not ended."""

    def __init__(self, name: str):
        self.name = name
        #: The number of the iteration, in the body of a loop.
        self.counter: Value | None = None
        #: Values of outer functions, with the parameters that bring them in.
        self.lifted: dict[tuple[int, int], tuple[Value, Value]] = {}
        #: Parameters that were asked for.
        self.declared: list[Value] = []


@dataclass
class Part:
    """A graph that is complete but for its results: the host computes `given` of `results` before the next part."""

    native: _pando.Graph
    frame: Frame
    results: list[Value]


class Emitter:
    """A graph under construction. Values of outer functions may be used in inner ones: they become parameters, which
    `end` reports. Likewise values of earlier parts, where `cut` has divided the graph."""

    def __init__(self):
        self.native = _pando.Graph()
        self.frames = [Frame("main")]
        #: What has been made since somebody cleared it: op and first result.
        self.made: list[tuple[str, Value]] = []
        #: Earlier parts, in order.
        self.parts: list[Part] = []

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def is_live(self, value: Value) -> bool:
        """Whether the value's function has not ended."""
        return value.frame in self.frames or self._part_of(value) is not None

    def are_of_one_function(self, a: Value, b: Value) -> bool:
        """Parts of a divided graph are one function."""
        outermost = [self.frames[0], *(part.frame for part in self.parts)]
        return a.frame is b.frame or (a.frame in outermost and b.frame in outermost)

    def _part_of(self, value: Value) -> Part | None:
        return next((part for part in self.parts if part.frame is value.frame), None)

    def cut(self, results: Sequence[Value]) -> None:
        """What follows is another part of the graph, which runs once `results` are known."""
        if len(self.frames) > 1:
            raise Error("the host is called in the body of a loop or condition; call it outside")
        self.parts.append(Part(self.native, self.frame, list(results)))
        self.native, self.frames = _pando.Graph(), [Frame("main")]

    def value(self, id: int) -> Value:
        dtype, shape = self.native.type(id)
        return Value(self, id, self.frame, dtype, tuple(shape))

    def _id(self, value: Value) -> int:
        """In the innermost function."""
        if value.frame is self.frame:
            return value.id
        if not self.is_live(value):
            raise RuntimeError("a value is used outside of the function that computes it")
        key = (id(value.frame), value.id)
        if key not in self.frame.lifted:
            name = f"outer.{len(self.frame.lifted)}"
            inner = self.value(self.native.param(name, value.dtype, list(value.shape)))
            self.frame.lifted[key] = (value, inner)
        return self.frame.lifted[key][1].id

    def ops(self, text: str, operands: Sequence[Value], type: str | None = None) -> list[Value]:
        values = [self.value(id) for id in self.native.op(text, [self._id(value) for value in operands], type)]
        self.made.append((text.partition(" ")[0], values[0]))
        return values

    def op(self, text: str, operands: Sequence[Value], type: str | None = None) -> Value:
        return self.ops(text, operands, type)[0]

    def composites(self, name: str, operands: Sequence[Value], **attributes: float) -> list[Value]:
        ids = self.native.composite(name, [self._id(value) for value in operands], **attributes)
        return [self.value(id) for id in ids]

    def composite(self, name: str, operands: Sequence[Value], **attributes: float) -> Value:
        return self.composites(name, operands, **attributes)[0]

    def onnx(self, op: str, operands: Sequence[Value | None], attributes: dict | None = None, **options) -> list[Value]:
        """An operator of ONNX; see the native graph's method."""
        ids = [None if value is None else self._id(value) for value in operands]
        return [self.value(id) for id in self.native.onnx(op, ids, attributes, **options)]

    def param(self, name: str, dtype: str, shape: Sequence[int]) -> Value:
        value = self.value(self.native.param(name, dtype, list(shape)))
        self.frame.declared.append(value)
        return value

    def constant(self, array: np.ndarray, dtype: str | None = None) -> Value:
        """A copy; the type is the array's unless its elements are bits of another."""
        array = np.ascontiguousarray(array) if np.ndim(array) else np.array(array)
        return self.value(self.native.constant(location(array, dtype or numpy_type(array.dtype))))

    def scalar(self, dtype: str, number) -> Value:
        if isinstance(number, int) and abs(number) > 1 << 53:
            return self.constant(np.array(number, dtype={"i64": np.int64, "u64": np.uint64}.get(dtype, np.float32)))
        return self.value(self.native.scalar(dtype, float(number)))

    def full(self, dtype: str, shape: Sequence[int], number) -> Value:
        return self.scalar(dtype, number).broadcast(shape, [])

    def iota(self, dtype: str, shape: Sequence[int], axis: int) -> Value:
        return self.op(f"iota axis={axis}", [], type_text(dtype, shape))

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        if len(parts) == 1:
            return parts[0]
        return self.op(f"concat axis={axis % parts[0].rank}", parts)

    def binary(self, func: str, a, b) -> Value:
        """Operands broadcast; a number takes the other's type."""
        a = self.full(b.dtype, (), a) if isinstance(a, Number) else a
        b = self.full(a.dtype, (), b) if isinstance(b, Number) else b
        shape = broadcast_shapes(a.shape, b.shape)
        func = _OF_BOOLS.get(func, func) if a.dtype == "bool" else func
        return self.op(func, [a.broadcast(shape), b.broadcast(shape)])

    def select(self, condition: Value, a, b) -> Value:
        a = self.full(b.dtype, (), a) if isinstance(a, Number) else a
        b = self.full(a.dtype, (), b) if isinstance(b, Number) else b
        shape = broadcast_shapes(condition.shape, a.shape, b.shape)
        return self.op("select", [value.broadcast(shape) for value in (condition, a, b)])

    def known(self, value: Value) -> np.ndarray | None:
        """The elements, if they depend on no parameter."""
        part = self._part_of(value)
        found = self.native.known(self._id(value)) if part is None else part.native.known(value.id)
        return None if found is None else np.asarray(found)

    def begin(self, base: str) -> Frame:
        """Starts a function; see `end`."""
        self.frames.append(Frame(self.native.begin(base)))
        return self.frame

    def end(self, results: Sequence[Value], hand_on: bool = False) -> list[Value]:
        """Ends it. Returns the outer values that it uses: its parameters after those that were asked for. `hand_on`
        makes them results too, as the body of a loop needs."""
        ids = [self._id(value) for value in results]
        lifted = self.frame.lifted.values()
        self.native.end(ids + [inner.id for _, inner in lifted] if hand_on else ids)
        self.frames.pop()
        return [outer for outer, _ in lifted]

    def apart(self, base: str, values: Sequence[Value], stops: bool = False) -> list[Value]:
        """The same values as results of a call of their own. `stops`: no gradient flows back through it."""
        frame = self.begin(base)
        params = [self.param(f"value.{at}", value.dtype, value.shape) for at, value in enumerate(values)]
        self.end([self.composite("detach", [param]) if stops else param for param in params])
        return self.ops(f"call @{frame.name}", values) if values else []

    def lift(self, values: Sequence[Value]) -> None:
        """Makes outer values parameters of the innermost function, used or not."""
        for value in values:
            self._id(value)

    def abandon(self) -> None:
        self.native.abandon()
        self.frames.pop()


def ints(values: Sequence[int]) -> str:
    return "[" + ",".join(str(int(value)) for value in values) + "]"


def pairs(values: Sequence[tuple[int, int]]) -> str:
    return "[" + ",".join(f"{a}:{b}" for a, b in values) + "]"


def type_text(dtype: str, shape: Sequence[int]) -> str:
    return dtype + ints(shape)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    # A size of 0 wins over 1.
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded))


def numpy_type(dtype: np.dtype) -> str:
    if dtype == np.bool_:
        return "bool"
    return {"f": "f", "i": "i", "u": "u"}[dtype.kind] + str(dtype.itemsize * 8)

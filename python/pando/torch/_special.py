"""Operators that are no plain functions of their tensors."""

from __future__ import annotations

import torch
import torch.utils._pytree as pytree

from .._pando import Error
from ._alias import Tracked, View

aten = torch.ops.aten

SPECIAL: dict = {}


def special(*names: str):
    def add(function):
        for name in names:
            packet, _, overload = name.partition(".")
            found = getattr(getattr(aten, packet, None), overload or "default", None)
            if found is not None:
                SPECIAL[found] = function
        return function

    return add


@special("detach")
def _detach(capture, func, args, kwargs):
    """Shares elements; no gradient flows back through it."""
    out = capture.meta(func, args, kwargs)
    parent = capture.tracked(args[0])
    if not (parent.needs_grad and capture.training):
        out._pando = Tracked.of_view(parent, View(lambda value: value, lambda value, new: new))
        return out
    out._pando = Tracked.of_view(parent, View(capture.detached, lambda value, new: new, stops=True))
    return out


@special("lift_fresh", "lift_fresh_copy", "lift")
def _lift(capture, func, args, kwargs):
    """A tensor that Python has just made of numbers."""
    fake = capture.meta(aten.clone.default, args, {})
    fake._pando = Tracked(capture.tracked(args[0]).read())
    return fake


@special("_local_scalar_dense", "item", "is_nonzero")
def _item(capture, func, args, kwargs):
    tracked = capture.tracked(args[0])
    value = tracked.read()
    known = None if value is None or not capture.emitter.is_live(value) else capture.emitter.known(value)
    if known is None:
        where = ".".join(capture.path) or "the top level"
        raise Error(
            f"the program asks for the number in a tensor (.item(), bool(), int(), an if) in {where}, which is not"
            " known before it runs; use torch.where, or poptorch.cond and for_loop"
        )
    number = known.reshape(-1)[0].item()
    return bool(number) if func is not aten._local_scalar_dense.default and func._opname == "is_nonzero" else number


@special("rrelu_with_noise")
def _ignore_writes(capture, func, args, kwargs):
    """What it writes is for its own backward pass."""
    return capture.call(func, args, kwargs)


@special("fill_diagonal_")
def _fill_diagonal(capture, func, args, kwargs):
    from .ops.layout import fill_diagonal

    values = capture.translate(func, fill_diagonal, args, kwargs, capture.fake(args[0]))
    capture.assign(args[0], values[0], capture.needs_grad(args[0]))
    return args[0]


@special("bincount")
def _bincount(capture, func, args, kwargs):
    """As large as `minlength` says: numbers beyond it are not counted."""
    arguments = dict(zip(("input", "weights", "minlength"), args), **kwargs)
    weights, length = arguments.get("weights"), arguments.get("minlength", 0)
    if not length:
        capture.note(func, "give minlength: the size of its result must be known")
        capture.check_problems()
    dtype = torch.int64 if weights is None else torch.float32
    out = capture.fake(args[0]).new_empty(length, dtype=dtype)
    values = capture.translate(func, count_numbers, (args[0], weights, length), {}, out)
    return capture.wrap_all(out, values, weights is not None and capture.needs_grad(weights))


def count_numbers(call, x, weights, length):
    ones = call.g.full("i64", x.shape, 1) if weights is None else weights.to("f32")
    inside = (x.ge(0) & x.lt(length)).to(ones.dtype)
    return call.full(0).scatter(x, ones * inside, 0, "sum")


@special("_ctc_loss", "_ctc_loss.Tensor")
def _ctc(capture, func, args, kwargs):
    """The loss of each sample; torch's second result is for its own backward pass."""
    from .ops import HANDLERS

    fake = capture.fake(args[0])
    out = (fake.new_empty(fake.shape[1]), fake.new_empty(0))
    values = capture.translate(func, HANDLERS[func], args, kwargs, out)
    return capture.wrap_all(out, values, capture.needs_grad(args[0]))


@special("equal")
def _equal(capture, func, args, kwargs):
    raise Error("torch.equal asks whether tensors are equal before the program runs; use torch.eq and torch.all")


@special("t_", "transpose_", "squeeze_", "squeeze_.dim", "squeeze_.dims", "unsqueeze_", "as_strided_")
def _view_in_place(capture, func, args, kwargs):
    """The tensor becomes a view of what it was."""
    target = args[0]
    step = capture_views()[getattr(getattr(aten, func._opname[:-1]), func._overloadname)]
    old = capture.tracked(target)
    before = capture.meta(aten.alias.default, (target,), {})
    out = capture.meta(func, args, kwargs)
    out._pando = Tracked.of_view(old, step(before, out, *args[1:], **kwargs))
    return target


def capture_views() -> dict:
    from ._views import VIEWS

    return VIEWS


@special(
    "_assert_async",
    "_assert_async.msg",
    "_assert_tensor_metadata",
    "_functional_assert_async.msg",
    "record_stream",
    "_debug_has_internal_overlap",
)
def _nothing(capture, func, args, kwargs):
    """Checks of values are left out."""
    return None


@special("resize_", "set_.source_Tensor", "set_.source_Storage_storage_offset")
def _resize(capture, func, args, kwargs):
    raise Error(f"{func._opname} changes where a tensor's elements are, which is not supported; make a new tensor")

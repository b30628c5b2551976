"""Functions of torch that are captured as a whole, above ATen: recurrent layers, attention, dropout. ATen's own way
of computing them would hide what they are."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.modules import transformer
from torch.overrides import TorchFunctionMode, handle_torch_function

from .._pando import Error
from ._recurrent import recurrent
from ._types import graph_type
from ._value import Value

FUNCTIONS: dict = {}


#: Those that other functions of `torch.nn.functional` call by name, where no mode sees it.
_CALLED_INSIDE = (F.dropout, F.scaled_dot_product_attention)


class FunctionMode(TorchFunctionMode):
    """Sees calls of torch's functions; those that attention makes of others by replacing them."""

    def __init__(self, capture):
        super().__init__()
        self.capture = capture

    def __enter__(self):
        for function in _CALLED_INSIDE:
            setattr(F, function.__name__, self._replacement(function))
        # It compares a mask's elements to find a faster way that the graph does not need.
        self._detects = transformer._detect_is_causal_mask
        transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
        return super().__enter__()

    def __exit__(self, *error):
        for function in _CALLED_INSIDE:
            setattr(F, function.__name__, function)
        transformer._detect_is_causal_mask = self._detects
        return super().__exit__(*error)

    def _replacement(self, function):
        @functools.wraps(function)
        def replacement(*args, **kwargs):
            result = _LEFT_TO_TORCH if self.capture.is_outside else self._whole(function, args, kwargs)
            return function(*args, **kwargs) if result is _LEFT_TO_TORCH else result

        return replacement

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if isinstance(func, functools.partial):
            return _shown_to_modes(func, args, kwargs)
        if func in _REWRITTEN:
            args, kwargs = _REWRITTEN[func](*args, **kwargs)
        if func in FUNCTIONS:
            result = self._whole(func, args, kwargs)
            if result is not _LEFT_TO_TORCH:
                return result
        return func(*args, **kwargs)

    def _whole(self, func, args, kwargs):
        captured = functools.partial(_attempt, FUNCTIONS[func], self.capture)
        functools.update_wrapper(captured, func)
        return _shown_to_modes(captured, args, kwargs)


#: `NotImplemented` in words that torch does not take as its own.
_LEFT_TO_TORCH = object()


def _attempt(function, capture, *args, **kwargs):
    result = function(capture, *args, **kwargs)
    return _LEFT_TO_TORCH if result is NotImplemented else result


def _shown_to_modes(captured, args, kwargs):
    """Modes below see the call, too."""
    if torch._C._is_torch_function_mode_enabled():
        return handle_torch_function(captured, args, *args, **kwargs)
    return captured(*args, **kwargs)


def whole(*functions):
    """A function that sees torch's arguments, or says `NotImplemented`."""

    def add(function):
        for one in functions:
            FUNCTIONS[one] = function
        return function

    return add


@whole(F.dropout)
def dropout(capture, input, p=0.5, training=True, inplace=False):
    """Elements that stay are scaled; one draw decides for each."""
    if not training or p == 0.0 or inplace or not 0 <= p < 1 or not input.is_floating_point():
        return NotImplemented
    x = operand(capture, input)
    if x is None:
        return NotImplemented
    kept = capture.random("uniform", "f32", x.shape).ge(p)
    result = kept.select(x * (1 / (1 - p)), 0)
    return capture.wrap(result, input.dtype, needs_grad(capture, input), "dropout")


def operand(capture, tensor: torch.Tensor) -> Value | None:
    return capture.valued(tensor) if capture.tracked(tensor).read() is not None else None


def needs_grad(capture, *tensors) -> bool:
    return capture.needs_grad([tensor for tensor in tensors if tensor is not None])


@whole(F.scaled_dot_product_attention)
def attention(capture, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """softmax(scale · QKᵀ + mask) V, in the form that engines compute as one step."""
    tensors = [query, key, value, *([attn_mask] if attn_mask is not None else [])]
    operands = [operand(capture, tensor) for tensor in tensors]
    if any(x is None for x in operands) or not query.is_floating_point():
        return NotImplemented
    q, k, v = (x.wide() for x in operands[:3])
    if not (q.rank == k.rank == v.rank >= 3):
        return NotImplemented
    if enable_gqa and k.shape[-3] != q.shape[-3]:
        k, v = (_repeated_heads(x, q.shape[-3]) for x in (k, v))
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (x.broadcast((*lead, *x.shape[-2:])) for x in (q, k, v))
    rank, g = q.rank, capture.emitter
    batch = [(axis, axis) for axis in range(rank - 2)]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q * scale).dot(k, batch, [(rank - 1, rank - 1)])
    bias = _bias(g, scores, operands[3] if len(operands) > 3 else None, is_causal)
    if bias is not None:
        scores = scores + bias
    weights = scores.composite("softmax", axis=rank - 1)
    if dropout_p > 0:
        kept = capture.random("uniform", "f32", weights.shape).ge(dropout_p)
        weights = kept.select(weights * (1 / (1 - dropout_p)), 0)
    result = weights.dot(v, batch, [(rank - 1, rank - 2)]).to(graph_type(query.dtype))
    return capture.wrap(result, query.dtype, needs_grad(capture, *tensors), "attention")


def _lengths_as_tensors(log_probs, targets, input_lengths, target_lengths, *args, **kwargs):
    """With lists of lengths torch would read the targets."""
    lengths = [
        one if isinstance(one, torch.Tensor) else torch.tensor(list(one)) for one in (input_lengths, target_lengths)
    ]
    return (log_probs, targets, *lengths, *args), kwargs


@whole(F.one_hot)
def one_hot(capture, tensor, num_classes=-1):
    if num_classes == -1:
        raise Error("OneHot num classes must be specified and must be constant.")
    return NotImplemented


#: Functions that get other arguments.
_REWRITTEN = {F.ctc_loss: _lengths_as_tensors}


def _repeated_heads(x: Value, heads: int) -> Value:
    count = heads // x.shape[-3]
    apart = (*x.shape[:-2], count, *x.shape[-2:])
    axes = [axis for axis in range(len(apart)) if axis != len(apart) - 3]
    return x.broadcast(apart, axes).reshape(*x.shape[:-3], heads, *x.shape[-2:])


def _bias(g, scores: Value, mask: Value | None, is_causal: bool) -> Value | None:
    """What is added to the scores: 0, or so little that nothing is left."""
    never = -1.7e38
    bias = None
    if mask is not None:
        bias = mask.select(g.full("f32", (), 0.0), never) if mask.dtype == "bool" else mask.to("f32")
    if is_causal:
        shape = scores.shape[-2:]
        allowed = g.iota("i32", shape, 1).le(g.iota("i32", shape, 0))
        causal = allowed.select(g.full("f32", (), 0.0), never)
        bias = causal if bias is None else bias + causal
    return bias


for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu"):

    def _layer(capture, *args, kind=kind, **kwargs):
        return recurrent(capture, kind, *args, **kwargs)

    whole(getattr(torch, kind))(_layer)

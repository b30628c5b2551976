"""Operators whose results share elements with their first argument: how a view is made from its parent's value,
and the parent's new value from the view's. Each takes the parent and the result as fake tensors, then the other
arguments."""

from __future__ import annotations

import numpy as np
import torch

from ._alias import View
from ._types import graph_type
from ._value import Value

aten = torch.ops.aten

VIEWS: dict = {}


def view(*names: str):
    def add(function):
        for name in names:
            packet, _, overload = name.partition(".")
            found = getattr(getattr(aten, packet, None), overload or "default", None)
            if found is not None:
                VIEWS[found] = function
        return function

    return add


def reshaped(shape) -> View:
    shape = tuple(shape)
    return View(lambda parent: parent.reshape(shape), lambda parent, new: new.reshape(parent.shape))


def permuted(perm) -> View:
    perm = [axis % len(perm) for axis in perm]
    inverse = [perm.index(axis) for axis in range(len(perm))]
    return View(lambda parent: parent.permute(perm), lambda parent, new: new.permute(inverse))


def sliced(axis: int, begin: int, end: int, step: int) -> View:
    """Elements along an axis; the end is below the size."""

    def put_back(parent: Value, new: Value) -> Value:
        size = parent.shape[axis]
        if step == 1:
            parts = [parent.slice(axis, 0, begin), new, parent.slice(axis, end, size)]
            return parent.emitter.concat([part for part in parts if part.shape[axis]], axis)
        return by_indices(parent, new, axis, range(begin, end, step))

    return View(lambda parent: parent.slice(axis, begin, end, step), put_back)


def by_indices(parent: Value, new: Value, axis: int, indices) -> Value:
    array = np.array(indices, dtype=np.int64)
    return parent.scatter(parent.emitter.constant(array), new, axis) if len(array) else parent


def picked(axis: int, index: int) -> View:
    part = sliced(axis, index, index + 1, 1)
    return View(
        lambda parent: parent.pick(axis, index),
        lambda parent, new: part.inverse(parent, new.unsqueeze(axis)),
    )


def strided(result_shape, offsets) -> View:
    """Any view: elements of the parent at flat positions, an array with the result's shape."""
    shape, flat = tuple(result_shape), np.ascontiguousarray(offsets, dtype=np.int64).reshape(-1)
    is_unique = len(np.unique(flat)) == len(flat)

    def forward(parent: Value) -> Value:
        return parent.reshape(-1).gather(parent.emitter.constant(flat), 0).reshape(shape)

    def inverse(parent: Value, new: Value) -> Value:
        return by_indices(parent.reshape(-1), new.reshape(-1), 0, flat).reshape(parent.shape)

    return View(forward, inverse if is_unique else None)


def by_strides(parent, result) -> View:
    """From torch's own description of a view of a parent whose elements lie densely in some order of its axes."""
    size = sum((n - 1) * s for n, s in zip(parent.shape, parent.stride())) + 1 if parent.numel() else 0
    where = np.full(size, -1, dtype=np.int64)
    if parent.numel():
        where[_offsets(parent.shape, parent.stride())] = np.arange(parent.numel())
    at = _offsets(result.shape, result.stride()) + result.storage_offset() - parent.storage_offset()
    if result.numel() and (at.min() < 0 or at.max() >= size or (where[at] < 0).any()):
        raise NotImplementedError("a view of elements that the tensor it is taken from does not have")
    return strided(result.shape, where[at])


def _offsets(shape, strides) -> np.ndarray:
    total = np.zeros((1,) * len(shape), dtype=np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides)):
        steps = np.arange(size, dtype=np.int64) * stride
        total = total + steps.reshape([-1 if axis == other else 1 for other in range(len(shape))])
    return np.broadcast_to(total, tuple(shape)).reshape(-1)


def dim(axis: int, rank: int) -> int:
    return axis % rank if rank else 0


@view("view", "_reshape_alias", "squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze")
def _reshape(parent, result, *_, **__):
    return reshaped(result.shape)


@view("alias")
def _same(parent, result, *_, **__):
    return View(lambda value: value, lambda value, new: new)


@view("view.dtype")
def _bits(parent, result, dtype):
    own, other = graph_type(parent.dtype), graph_type(dtype)
    if parent.dtype.itemsize != dtype.itemsize:
        raise NotImplementedError("a view as a type of another size")

    def bitcast(to):
        return lambda value: value.emitter.op("bitcast", [value], f"{to}[{','.join(map(str, value.shape))}]")

    return View(bitcast(other), lambda value, new: bitcast(own)(new))


@view("t")
def _t(parent, result):
    return permuted(list(range(parent.dim()))[::-1])


@view("transpose.int")
def _transpose(parent, result, a, b):
    perm = list(range(parent.dim()))
    if perm:
        perm[a], perm[b] = perm[b], perm[a]
    return permuted(perm)


@view("permute")
def _permute(parent, result, dims):
    return permuted(list(dims))


@view("slice.Tensor")
def _slice(parent, result, axis=0, start=None, end=None, step=1):
    axis = dim(axis, parent.dim())
    size = parent.shape[axis]
    begin = 0 if start is None else max(0, start + size if start < 0 else start)
    begin = min(begin, size)
    count = result.shape[axis]
    return sliced(axis, begin, min(begin + count * step, size) if count else begin, step)


@view("select.int")
def _select(parent, result, axis, index):
    axis = dim(axis, parent.dim())
    return picked(axis, index % parent.shape[axis])


@view("unbind.int")
def _unbind(parent, results, axis=0):
    axis = dim(axis, parent.dim())
    return [picked(axis, index) for index in range(parent.shape[axis])]


@view("split.Tensor", "split_with_sizes")
def _split(parent, results, _, axis=0):
    axis, begin, views = dim(axis, parent.dim()), 0, []
    for part in results:
        views.append(sliced(axis, begin, begin + part.shape[axis], 1))
        begin += part.shape[axis]
    return views


@view("expand")
def _expand(parent, result, *_, **__):
    shape = tuple(result.shape)
    if shape == tuple(parent.shape):
        return View(lambda value: value, lambda value, new: new)
    if result.numel() == parent.numel():
        return reshaped(shape)
    return View(lambda value: value.broadcast(shape), None)


@view("diagonal", "as_strided", "unfold")
def _strided(parent, result, *_, **__):
    return by_strides(parent, result)

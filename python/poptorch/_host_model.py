"""The user's module beside the compiled one: weights on the device may be newer than those in the module.

Parameters and buffers of a wrapped module get a class whose every use, by any function of PyTorch, first asks the
executors for newer values. Nothing is copied while nobody looks.
"""

import weakref
from collections import OrderedDict

import torch

from ._errors import createPoptorchError



class _Owners:
    """The executors whose compiled program has a copy of the tensor."""

    def __init__(self):
        self._executors = weakref.WeakSet()

    def add(self, executor):
        self._executors.add(executor)

    def discard(self, executor):
        self._executors.discard(executor)

    def executors(self):
        return list(self._executors)


def _fetch(value):
    """Brings newer values of the tensors among (nested) arguments."""
    if isinstance(value, _Watched):
        owners = value.__dict__.get("_poptorch_owners")
        for executor in owners.executors() if owners is not None else ():
            executor._show_host()
    elif isinstance(value, (tuple, list)):
        for part in value:
            _fetch(part)


class _Watched:
    """Mixed into the classes of parameters and buffers."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__self__", func) not in _HARMLESS:
            _fetch(args)
            if kwargs:
                _fetch(tuple(kwargs.values()))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def __repr__(self, **options):
        _fetch(self)
        with torch._C.DisableTorchFunctionSubclass():
            text = repr(self.detach().as_subclass(torch.Tensor).requires_grad_(self.requires_grad))
        return f"Parameter containing:\n{text}" if isinstance(self, torch.nn.Parameter) else text

    def replicaGrouping(self, comm_group_type, shards, variable_retrieval_mode):
        """Lets groups of replicas have values of their own: the host's tensor has a leading dimension of groups."""
        if self.dim() == 0:
            raise createPoptorchError("A scalar cannot be grouped: replica groups are told apart by a dimension")
        for executor in self.__dict__["_poptorch_owners"].executors():
            executor._group_replicas(self, comm_group_type, shards, variable_retrieval_mode)


# Asking for these does not need the elements.
_HARMLESS = {getattr(torch.Tensor, name) for name in (
    "shape", "dtype", "device", "requires_grad", "grad", "is_leaf", "layout", "grad_fn", "ndim", "dim", "size",
    "numel", "stride", "is_floating_point", "is_contiguous",
)}


class HostParameter(_Watched, torch.nn.Parameter):
    """A parameter of a wrapped module. Copies are plain ones."""

    def __deepcopy__(self, memo):
        _fetch(self)
        return memo.setdefault(id(self), torch.nn.Parameter(plain_view(self).clone(), self.requires_grad))

    def __reduce_ex__(self, protocol):
        _fetch(self)
        return (torch._utils._rebuild_parameter, (plain_view(self), self.requires_grad, OrderedDict()))


class HostBuffer(_Watched, torch.Tensor):
    """A buffer of a wrapped module."""

    def __deepcopy__(self, memo):
        _fetch(self)
        return memo.setdefault(id(self), plain_view(self).clone())

    def __reduce_ex__(self, protocol):
        _fetch(self)
        return plain_view(self).__reduce_ex__(protocol)


def plain_view(tensor):
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.detach().as_subclass(torch.Tensor)


def tensors_of(model):
    """All parameters and buffers."""
    if not isinstance(model, torch.nn.Module):
        return []
    return [*model.parameters(), *model.buffers()]


def watch(model, executor):
    """From now on uses of the module's tensors ask the executor."""
    for tensor in tensors_of(model):
        if type(tensor) is torch.nn.Parameter:
            tensor.__class__ = HostParameter
        elif type(tensor) is torch.Tensor:
            tensor.__class__ = HostBuffer
        if isinstance(tensor, _Watched):
            tensor.__dict__.setdefault("_poptorch_owners", _Owners()).add(executor)


def unwatch(model, executor):
    """The executor is gone; tensors that no other watches are plain again."""
    for tensor in tensors_of(model):
        owners = tensor.__dict__.get("_poptorch_owners")
        if owners is not None:
            owners.discard(executor)
            if not owners.executors():
                del tensor.__dict__["_poptorch_owners"]
                _make_plain(tensor)


def _make_plain(tensor):
    if isinstance(tensor, HostParameter):
        tensor.__class__ = torch.nn.Parameter
    elif isinstance(tensor, HostBuffer):
        tensor.__class__ = torch.Tensor


class plain:
    """Inside `with plain(model):` its tensors have their own classes, as the capture needs them."""

    def __init__(self, model):
        self._tensors = [(tensor, type(tensor)) for tensor in tensors_of(model) if isinstance(tensor, _Watched)]

    def __enter__(self):
        for tensor, _ in self._tensors:
            _make_plain(tensor)

    def __exit__(self, *_):
        for tensor, cls in self._tensors:
            tensor.__class__ = cls

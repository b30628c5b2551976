"""Functions of `torch.autograd.Function` while a program is captured: gradients are those of their forward pass, which
the graph holds; their own backward pass would run on tensors that do not exist. A warning says so."""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import torch
from torch.autograd.function import _SingleLevelFunction


class Context:
    """What `forward` is given: takes everything, keeps what `save_for_backward` is given."""

    def __init__(self, count: int):
        self.needs_input_grad = (True,) * count
        self.saved_tensors: tuple = ()

    def save_for_backward(self, *tensors) -> None:
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *_) -> None: ...
    def mark_non_differentiable(self, *_) -> None: ...
    def set_materialize_grads(self, _) -> None: ...


@contextmanager
def forward_only(training: bool):
    """`apply` runs `forward` like any other function."""
    original = torch.autograd.Function.__dict__["apply"]
    warned = set()

    def apply(cls, *args, **kwargs):
        if training and cls not in warned:
            warned.add(cls)
            warnings.warn(
                f"the backward pass of {cls.__name__} is not used: gradients are those of its forward pass",
                stacklevel=2,
            )
        if cls.setup_context is not _SingleLevelFunction.setup_context:
            return cls.forward(*args, **kwargs)
        return cls.forward(Context(len(args)), *args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield
    finally:
        torch.autograd.Function.apply = original

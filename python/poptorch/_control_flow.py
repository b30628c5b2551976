"""Loops, conditions and host functions inside a model."""

import torch

from pando.torch._host import call_host

from . import _impl
from ._errors import createPoptorchError


def for_loop(count, body, inputs):
    """Runs `inputs = body(*inputs)` `count` times; the body gets copies and returns as many tensors."""
    _check_tensors(inputs)
    state = _impl.current()
    if state is None:
        for _ in range(count):
            inputs = _listed(body(*[tensor.clone() for tensor in inputs]))
        return inputs
    if state.training:
        raise createPoptorchError("poptorch.for_loop() is only supported in inference")
    return state.for_loop(count, body, inputs)


def cond(condition, then_body, then_inputs, else_body, else_inputs):
    """`then_body(*then_inputs)` if the condition holds, else `else_body(*else_inputs)`."""
    _check_tensors(then_inputs)
    _check_tensors(else_inputs)
    state = _impl.current()
    if state is None:
        return _listed(then_body(*then_inputs) if bool(condition) else else_body(*else_inputs))
    if state.training:
        raise createPoptorchError("poptorch.cond() is only supported in inference")
    return state.cond(condition, then_body, then_inputs, else_body, else_inputs)


def _check_tensors(inputs):
    if not isinstance(inputs, list):
        raise ValueError("(Object is not list) The inputs must be a list of tensors")
    for index, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"(Object contained in list at index {index} is not torch.tensor)")


def _listed(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


class CPU:
    """A function that runs on the host in the middle of an inference model, in every call: any Python, which gets
    PyTorch's tensors and returns them.

    The compiled graph is divided there. When the model is compiled the function runs once, on made-up elements (floats
    between 0 and 1, integers 0), which tells the sizes of what it returns: they must not depend on elements.
    """

    def __init__(self, layer_to_call, ID):
        self._layer_to_call = layer_to_call
        self._ID = ID

    def __call__(self, *args, **kwargs):
        state = _impl.current()
        if state is None:
            return self._layer_to_call(*args, **kwargs)
        if state.training:
            raise createPoptorchError("poptorch.CPU is only supported in inference")
        with _impl.compiling(None):
            return call_host(state.capture, self._layer_to_call, args, kwargs)

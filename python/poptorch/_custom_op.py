"""Operators of the user's own.

Upstream loads them from C++ compiled against PopART, which does not exist here. Instead a Python function made of
PyTorch operators says what the operator does; it becomes part of the graph and has gradients:

    @poptorch.registerCustomOp("Cube", "com.acme", 1)
    def cube(inputs, attributes):
        return [inputs[0] ** 3]
"""

import torch

from . import _impl
from ._errors import createPoptorchError

_FLOAT_MAX = torch.finfo(torch.float32).max
_INT64 = torch.iinfo(torch.int64)
_operators = {}


def registerCustomOp(name, domain, domain_version=1):
    """A decorator: the function computes the operator's outputs from a list of inputs and a dict of attributes."""

    def register(function):
        _operators[(name, domain, domain_version)] = function
        return function

    return register


class custom_op:
    """Applies the operator `domain.name`; on PyTorch's own tensors it returns the example outputs."""

    def __new__(cls, inputs, name, domain, domain_version, example_outputs, attributes=None):
        attributes = attributes or {}
        _check_attributes(attributes)
        if _impl.current() is None:
            return list(example_outputs)
        function = _operators.get((name, domain, domain_version))
        if function is None:
            raise createPoptorchError(
                f"Unknown custom op {domain}.{name} version {domain_version}: operators compiled against PopART cannot "
                "be loaded; register a Python function with poptorch.registerCustomOp"
            )
        outputs = function(list(inputs), dict(attributes))
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        _check_outputs(f"{domain}.{name}", outputs, example_outputs)
        return outputs


def _check_outputs(name, outputs, examples):
    shapes, expected = ([tuple(t.shape) for t in tensors] for tensors in (outputs, examples))
    if shapes != expected:
        raise createPoptorchError(f"Custom op {name} returned shapes {shapes}, its example outputs have {expected}")


def _check_attributes(attributes):
    assert isinstance(attributes, dict), "attributes must be a dict"
    for name, value in attributes.items():
        _check_ascii(name)
        for item in value if isinstance(value, (list, tuple)) else [value]:
            _check_attribute(name, item)
        if isinstance(value, (list, tuple)) and len({type(item) for item in value}) > 1:
            raise ValueError(f"Attribute {name} mixes types: a list must hold one type")


def _check_attribute(name, value):
    if isinstance(value, str):
        _check_ascii(value)
    elif isinstance(value, float):
        if value > _FLOAT_MAX:
            raise createPoptorchError(f"{value:g} is too high for a Popart float attribute.")
        if value < -_FLOAT_MAX:
            raise createPoptorchError(f"{value:g} is too low for a Popart float attribute.")
    elif isinstance(value, int):
        if not _INT64.min <= value <= _INT64.max:
            raise createPoptorchError(f"{value} is out of range for a Popart int attribute.")
    else:
        raise ValueError(f"Attribute {name} has type {type(value).__name__}: float, int, str and lists of them exist")


def _check_ascii(text):
    if not isinstance(text, str) or not text.isascii():
        raise ValueError(f"{text} contains non-ASCII characters.")

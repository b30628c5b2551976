"""The arguments of a model's call: bound to names once, compared with those of every later call.

Tensors are inputs; everything else is built into the compiled program, so it must not change.
"""

import inspect

import torch

from ._arguments import flatten, parser_of, rebuild
from ._errors import createPoptorchError


class Arguments:
    """Bound arguments: `named` in the order of the signature, `positional` counts those given without a name."""

    def __init__(self, named, positional, variadic):
        self.named = named
        self.positional = positional
        self.variadic = variadic

    def leaves(self):
        """(name, leaf) of everything, in a fixed order."""
        return [pair for name, value in self._values() for pair in _leaves(value, name)]

    def _values(self):
        """(name, value); arguments that are gathered in a dict have names of their own."""
        for name, value in self.named.items():
            if self.variadic.get(name) is inspect.Parameter.VAR_KEYWORD:
                yield from _ordered(value).items()
            else:
                yield name, value

    def tensors(self):
        """(name, tensor) of the inputs."""
        return [(name, leaf) for name, leaf in self.leaves() if isinstance(leaf, torch.Tensor)]

    def with_tensors(self, tensors):
        """The call's (args, kwargs) with other tensors in the place of the inputs."""
        tensors = iter(tensors)
        leaves = iter([next(tensors) if isinstance(leaf, torch.Tensor) else leaf for _, leaf in self.leaves()])
        named = {name: _rebuild(value, leaves) for name, value in self.named.items()}
        return self._call(named)

    def call(self):
        """(args, kwargs) again."""
        return self._call(self.named)

    def _call(self, named):
        args, kwargs = [], {}
        for name, value in named.items():
            kind = self.variadic.get(name)
            if kind is inspect.Parameter.VAR_POSITIONAL:
                args.extend(value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif kind is inspect.Parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return args, kwargs


def _ordered(value):
    """Dicts by their keys' order in text, so that the order of a call does not matter."""
    return dict(sorted(value.items(), key=lambda item: str(item[0]))) if type(value) is dict else value


def _leaves(value, name):
    if parser_of(value) is not None:
        return [(f"{name}[{i}]", leaf) for i, leaf in enumerate(flatten(value))]
    if isinstance(value, (tuple, list)):
        return [pair for i, part in enumerate(value) for pair in _leaves(part, f"{name}[{i}]")]
    if isinstance(value, dict):
        return [pair for key, part in _ordered(value).items() for pair in _leaves(part, f"{name}[{key}]")]
    return [(name, value)]


def _rebuild(value, leaves):
    if parser_of(value) is None:
        if type(value) is dict:
            parts = {key: _rebuild(part, leaves) for key, part in _ordered(value).items()}
            return {key: parts[key] for key in value}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(_rebuild(part, leaves) for part in value))
        if isinstance(value, (tuple, list)):
            return type(value)(_rebuild(part, leaves) for part in value)
    return rebuild(value, leaves)


class Signature:
    """How a model is called."""

    def __init__(self, function):
        self._parameters = inspect.signature(function).parameters
        kinds = inspect.Parameter
        special = (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD, kinds.KEYWORD_ONLY)
        self._variadic = {name: p.kind for name, p in self._parameters.items() if p.kind in special}

    def bind(self, args, kwargs):
        """The call's arguments by name, defaults filled in."""
        kwargs, named, rest = dict(kwargs), {}, list(args)
        for name, parameter in self._parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                named[name], rest = tuple(rest), []
            elif parameter.kind is parameter.VAR_KEYWORD:
                named[name] = dict(sorted(kwargs.items()))
                kwargs = {}
            elif rest and parameter.kind is not parameter.KEYWORD_ONLY:
                if name in kwargs:
                    raise createPoptorchError(f"Parameter {name} is given twice")
                named[name] = rest.pop(0)
            elif name in kwargs:
                named[name] = kwargs.pop(name)
            elif parameter.default is not parameter.empty:
                named[name] = parameter.default
            else:
                raise createPoptorchError(f"Mandatory parameter {name} missing")
        if rest or kwargs:
            extra = ", ".join(kwargs) or f"{len(rest)} positional"
            raise createPoptorchError(f"Unexpected arguments: {extra}.")
        return Arguments(named, len(args), self._variadic)


def check(expected, actual):
    """Raises a poptorch.Error unless the call fits the compiled program."""
    if any(kind is inspect.Parameter.VAR_POSITIONAL for kind in expected.variadic.values()):
        if expected.positional != actual.positional:
            raise createPoptorchError(
                "Number of positional arguments mismatch: expected "
                f"{expected.positional} arguments but got {actual.positional}"
            )
    for name, kind in expected.variadic.items():
        if kind is inspect.Parameter.VAR_KEYWORD:
            _check_keys(expected.named[name], actual.named[name])
    found = dict(actual._values())
    for name, value in expected._values():
        _check(name, value, found[name])


def _check(name, expected, actual):
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        _check_tensor(name, expected, actual)
    elif parser_of(expected) is not None and type(expected) is type(actual):
        for i, (a, b) in enumerate(zip(list(flatten(expected)), list(flatten(actual)))):
            _check(f"{name}[{i}]", a, b)
    elif isinstance(expected, dict) and isinstance(actual, dict):
        _check_keys(expected, actual)
        for key, value in expected.items():
            _check(f"{name}[{key}]", value, actual[key])
    elif type(expected) is not type(actual):
        raise createPoptorchError(f"Type mismatch for {name}: expected {type(expected)} but got {type(actual)}")
    elif isinstance(expected, (tuple, list)):
        if len(expected) != len(actual):
            raise createPoptorchError(f"Length mismatch for {name}: expected {len(expected)} but got {len(actual)}")
        for i, (a, b) in enumerate(zip(expected, actual)):
            _check(f"{name}[{i}]", a, b)
    elif expected != actual:
        raise createPoptorchError(f"Value mismatch for {name}: expected {expected} but got {actual}")


def _check_keys(expected, actual):
    missing = [str(key) for key in expected if key not in actual]
    if missing:
        raise createPoptorchError(f"Missing arguments: {', '.join(missing)}.")
    extra = [str(key) for key in actual if key not in expected]
    if extra:
        raise createPoptorchError(f"Unexpected arguments: {', '.join(extra)}.")


def _check_tensor(name, expected, actual):
    if expected.dtype != actual.dtype:
        raise createPoptorchError(f"Type mismatch for {name}: expected {expected.dtype} but got {actual.dtype}")
    if expected.shape != actual.shape:
        raise createPoptorchError(f"Shape mismatch for {name}: expected {expected.shape} but got {actual.shape}")

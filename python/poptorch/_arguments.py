"""Structures of tensors: tuples, lists, dicts, named tuples and whatever a custom parser knows.

`flatten` yields the leaves in order, `rebuild` puts other leaves into the same structure.
"""

import itertools


class ICustomArgParser:
    """Says how objects of a class are taken apart into tensors and put together again."""

    def yieldTensors(self, struct):
        """Yields the structure's tensors, always in the same order."""
        raise NotImplementedError("A custom argument parser needs yieldTensors")

    def reconstruct(self, original_structure, tensor_iterator):
        """A new object like `original_structure` with the next tensors of the iterator."""
        raise NotImplementedError("A custom argument parser needs reconstruct")


_parsers = {}


def registerCustomArgParser(type, parser):  # noqa: A002 (the public name)
    """Lets objects of the class be arguments and results of models; None takes it back."""
    if parser is None:
        _parsers.pop(type, None)
        return
    assert isinstance(parser, ICustomArgParser), "A custom parser must be derived from ICustomArgParser"
    _parsers[type] = parser


def registerGeometricCustomArgParsers():
    """Registers PyTorch Geometric's classes if poptorch_geometric is loaded (never loads it)."""
    import sys

    geometric = sys.modules.get("poptorch_geometric")
    register = getattr(geometric, "registerCustomArgParsers", None)
    if register is not None:
        register()


def parser_of(value):
    """The parser for the value's exact class, else for a class it is an instance of, else None."""
    exact = _parsers.get(type(value))
    if exact is not None:
        return exact
    return next((parser for cls, parser in _parsers.items() if isinstance(value, cls)), None)


def flatten(value):
    """Yields the leaves: everything that is no tuple, list, dict or custom class."""
    parser = parser_of(value)
    if parser is not None:
        for part in parser.yieldTensors(value):
            yield from flatten(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from flatten(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from flatten(part)
    else:
        yield value


def rebuild(structure, leaves):
    """The same structure with the next leaves of the iterator."""
    leaves = iter(leaves)
    parser = parser_of(structure)
    if parser is not None:
        parts = [rebuild(part, leaves) for part in parser.yieldTensors(structure)]
        return parser.reconstruct(structure, iter(parts))
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(rebuild(part, leaves) for part in structure))
    if isinstance(structure, (tuple, list)):
        return type(structure)(rebuild(part, leaves) for part in structure)
    if isinstance(structure, dict):
        return type(structure)((key, rebuild(part, leaves)) for key, part in structure.items())
    return next(leaves)


def map_structure(function, structure):
    """The structure with every leaf replaced by `function(leaf)`."""
    return rebuild(structure, map(function, flatten(structure)))


def zip_structures(function, structures):
    """One structure whose leaves are `function([leaf of each structure])`."""
    return rebuild(structures[0], map(function, map(list, zip(*map(flatten, structures)))))


def count(structure):
    """How many leaves the structure has."""
    return sum(1 for _ in flatten(structure))


def named_leaves(structure, name=""):
    """(name, leaf) pairs; names are the way from the root: `a[0].b`."""
    parser = parser_of(structure)
    if parser is not None:
        parts = enumerate(parser.yieldTensors(structure))
        return list(itertools.chain.from_iterable(named_leaves(p, f"{name}[{i}]") for i, p in parts))
    if isinstance(structure, (tuple, list)):
        return list(itertools.chain.from_iterable(named_leaves(p, f"{name}[{i}]") for i, p in enumerate(structure)))
    if isinstance(structure, dict):
        return list(itertools.chain.from_iterable(named_leaves(p, f"{name}[{k}]") for k, p in structure.items()))
    return [(name, structure)]

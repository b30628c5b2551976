"""Operators that write to arguments, and their forms that do not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

aten = torch.ops.aten


@cache
def mutated(func) -> list[int | str]:
    """The arguments that an operator writes to, by position (or name, if only by name)."""
    keys: list[int | str] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            keys.append(argument.name if argument.kwarg_only else position)
    return keys


@dataclass(frozen=True)
class Form:
    """An operator without writes, and the arguments that it does not take."""

    func: object
    dropped: tuple[str, ...] = ()
    #: Computes in a type that it is told.
    takes_type: bool = False

    def arguments(self, args, kwargs):
        kept = {name: value for name, value in kwargs.items() if name not in self.dropped}
        if self.takes_type and self.dropped and kept.get("dtype") is None:
            kept["dtype"] = kwargs[self.dropped[0]].dtype
        return args, kept


_OTHER_NAMES = {
    "normal_": "normal_functional",
}


@cache
def functional(func) -> Form | None:
    """The form of `add_` is `add`, of `add.out` it is `add.Tensor`."""
    schema = func._schema
    name = schema.name.split("::")[1]
    outs = tuple(argument.name for argument in schema.arguments if argument.is_out)
    if outs:
        return _alike(getattr(aten, name), schema, outs)
    other = _OTHER_NAMES.get(name, name.removesuffix("_"))
    packet = getattr(aten, other, None)
    if packet is None or other == name:
        return None
    return _alike(packet, schema, ()) or _of_the_same_name(packet, func._overloadname)


def _of_the_same_name(packet, overload: str) -> Form | None:
    return Form(getattr(packet, overload)) if overload in packet.overloads() else None


def _alike(packet, schema, outs: tuple[str, ...]) -> Form | None:
    """The overload that takes the same arguments."""
    wanted = [(argument.name, str(argument.type)) for argument in schema.arguments if not argument.is_out]
    for overload in packet.overloads():
        candidate = getattr(packet, overload)
        has = [(argument.name, str(argument.type)) for argument in candidate._schema.arguments]
        if has[: len(wanted)] == wanted and not mutated(candidate):
            return Form(candidate, outs, any(name == "dtype" for name, _ in wanted))
    return None

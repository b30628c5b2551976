"""What a machine built of IPUs would do with a module."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._predict import profile_program
from ._capture import capture
from ._trainer import Trainer, optimizer_named


class Prediction(Mapping):
    """The fields of `pando profile --json`, as attributes and as a mapping; `save` writes the whole report."""

    def __init__(self, predict: Callable[[str | None], dict[str, Any]]):
        """`predict` makes the prediction, and writes the report to a path that is not None."""
        self._predict = predict
        self._fields = predict(None)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report file that the command line and `pva.openReport` read."""
        self._predict(os.fspath(path))

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_fields"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self):
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __dir__(self):
        return [*super().__dir__(), *self._fields]

    def __repr__(self) -> str:
        return f"Prediction({json.dumps(self._fields, indent=2)})"

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return f"<table>{''.join(_rows(self._fields))}</table>"


def _rows(fields: Mapping[str, Any], prefix: str = ""):
    for name, value in fields.items():
        label = html.escape(f"{prefix}{name.replace('_', ' ')}")
        if isinstance(value, Mapping):
            yield from _rows(value, f"{prefix}{name.replace('_', ' ')}: ")
        elif isinstance(value, (list, tuple)):
            shown = html.escape(f"{len(value)} entries" if len(value) > 8 else ", ".join(map(str, value)))
            yield f"<tr><th style='text-align:left'>{label}</th><td>{shown}</td></tr>"
        else:
            shown = f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
            yield f"<tr><th style='text-align:left'>{label}</th><td>{html.escape(shown)}</td></tr>"


def profile(
    module: torch.nn.Module | Callable,
    inputs: Sequence[Any],
    system: str = "m2000",
    *,
    kwargs: dict[str, Any] | None = None,
    train: bool = False,
    optimizer: str | torch.optim.Optimizer = "adam",
    stages: int | None = None,
    replicas: int | None = None,
    **options: Any,
) -> Prediction:
    """Predicts time and memory of a module on a system such as "pod16". Weights stay on the machine; their values do
    not matter.

    `train` predicts a step of training instead of inference: forward and backward pass from the loss that the module
    returns, and the update by `optimizer`, whose state stays on the machine, too. `stages` divides inference over so
    many chips, balanced by the predicted time; unless told, as many as the module's `poptorch.BeginBlock`s name. `replicas` are
    copies that run side by side; all chips of the system unless told (one in training). Further options are those of
    `pando.profile`."""
    program = _training_step(module, inputs, kwargs, optimizer) if train else _inference(module, inputs, kwargs)
    if stages is None:
        stages = 1 if train else _annotated_stages(module)
    if train and replicas is None:
        replicas = 1
    named = {"system": system, "stages": stages, "replicas": replicas, **options}
    return Prediction(lambda report: profile_program(*program, name="module", report=report, **named))


def _inference(module, inputs, kwargs):
    """What the module leaves in its buffers is no result of inference."""
    captured = capture(module, inputs, kwargs, training=False)
    params = [one.value for one in (*captured.state, *captured.inputs)]
    program = captured.finish([one.value for one in captured.tensors], params)
    return program, [one.name for one in captured.state], []


def _training_step(module, inputs, kwargs, optimizer):
    if isinstance(optimizer, str):
        optimizer = optimizer_named(optimizer, module)
    _, program, reads, writes, _ = Trainer(module, optimizer, None, "highest")._step(tuple(inputs), kwargs or {})
    return program, reads, writes


def _annotated_stages(module) -> int:
    """By the marks that `poptorch.BeginBlock` leaves: hooks that know a chip's number, or else begin the next stage."""
    hooks = [
        hook
        for part in (module.modules() if isinstance(module, torch.nn.Module) else ())
        for hook in part._forward_pre_hooks.values()
        if hasattr(hook, "ipu_id")
    ]
    chips = [hook.ipu_id for hook in hooks if hook.ipu_id is not None]
    return max(chips) + 1 if chips else max(1, len(hooks))

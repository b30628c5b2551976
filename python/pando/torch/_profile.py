"""What a machine built of IPUs would do with a module."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._predict import profile_program, stage_ends
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
        """Tables, for notebooks: everything, and the operations that take longest."""
        return f"<table>{''.join(_rows(self._fields))}</table>{_slowest(self._fields.get('operations', []))}"


def _slowest(operations: Sequence[Mapping[str, Any]], count: int = 10) -> str:
    """A bar per operation, as long as its share of the run."""
    total = sum(one["cycles"] for one in operations) or 1
    first = sorted(operations, key=lambda one: -one["cycles"])[:count]
    rows = "".join(
        f"<tr><td style='text-align:left'>{html.escape(one['name'])}</td><td>{one['cycles']:,}</td>"
        f"<td><div style='background:#5b8def;height:0.8em;width:{200 * one['cycles'] / total:.0f}px'></div></td></tr>"
        for one in first
    )
    head = f"<tr><th>{len(first)} of {len(operations)} operations</th><th>cycles</th><th>share of the run</th></tr>"
    return f"<table>{head}{rows}</table>" if first else ""


def _rows(fields: Mapping[str, Any], prefix: str = ""):
    for name, value in fields.items():
        label = html.escape(f"{prefix}{name.replace('_', ' ')}")
        if isinstance(value, Mapping):
            yield from _rows(value, f"{prefix}{name.replace('_', ' ')}: ")
        elif value in ("", [], ()):
            continue
        elif isinstance(value, (list, tuple)):
            is_long = len(value) > 8 or isinstance(value[0], Mapping)
            shown = html.escape(f"{len(value)} entries" if is_long else ", ".join(map(str, value)))
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
    returns, and the update by `optimizer`, whose state stays on the machine, too. Inference runs in a pipeline of as
    many chips as there are blocks that `poptorch.BeginBlock` or `poptorch.Block` begins, cut where they begin; or of
    `stages` chips, balanced by the predicted time. `replicas` are copies that run side by side; all chips of the system
    unless told (one in training). Further options are those of `pando.profile`."""
    if train:
        *program, _ = _training_step(module, inputs, kwargs, optimizer)
        replicas = 1 if replicas is None else replicas
    else:
        *program, regions = _inference(module, inputs, kwargs)
        if stages is None:
            options.setdefault("stage_end", stage_ends(program[0], regions))
    named = {"system": system, "stages": stages, "replicas": replicas, **options}
    return Prediction(lambda report: profile_program(*program, name="module", report=report, **named))


def _inference(module, inputs, kwargs):
    """The module, its state, and where values are. What it leaves in its buffers is no result of inference."""
    captured = capture(module, inputs, kwargs, training=False, prepare=_begin_on_first_chip)
    params = [one.value for one in (*captured.state, *captured.inputs)]
    program = captured.finish([one.value for one in captured.tensors], params)
    return program, [one.name for one in captured.state], [], captured.regions


def _begin_on_first_chip(capture) -> None:
    capture.region = 0


def _training_step(module, inputs, kwargs, optimizer):
    if isinstance(optimizer, str):
        optimizer = optimizer_named(optimizer, module)
    captured, program, reads, writes, _ = Trainer(module, optimizer, None, "highest")._step(tuple(inputs), kwargs or {})
    return program, reads, writes, captured.regions

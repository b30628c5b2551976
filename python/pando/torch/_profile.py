"""What a machine built of IPUs would do with a module."""

from __future__ import annotations

import html
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._predict import profile as profile_file
from ._capture import capture


class Prediction(Mapping):
    """The fields of `pando profile --json`, as attributes and as a mapping; `save` writes the whole report."""

    def __init__(self, text: str, options: dict[str, Any]):
        self._text, self._options = text, options
        self._fields = self._predict(None)

    def _predict(self, report: str | None) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.graph")
            with open(path, "w", encoding="utf-8") as file:
                file.write(self._text)
            return profile_file(path, report=report, **self._options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report file that the command line reads."""
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
    **options: Any,
) -> Prediction:
    """Predicts time and memory of the inference of a module on a system such as "pod16". Weights stay on the machine;
    their values do not matter. Options are those of `pando.profile`."""
    captured = capture(module, inputs, kwargs, training=False)
    state = [one.value for one in captured.state]
    params = [*state, *(one.value for one in captured.inputs)]
    module = captured.finish([one.value for one in captured.tensors], params)
    return Prediction(module.with_constants(range(len(state))).text(), {"system": system, **options})

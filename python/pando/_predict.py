"""What a machine built of IPUs would do with a model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _pando


@dataclass(frozen=True)
class System:
    """A machine that models are compiled for."""

    name: str
    #: What it is.
    title: str
    chips: int


def systems() -> list[System]:
    """The built-in systems. `profile` also takes the path of a machine file."""
    return [System(*system) for system in _pando.systems()]


def profile(
    model: str | os.PathLike[str],
    system: str = "m2000",
    *,
    precision: str | None = None,
    micro_batch: int | None = None,
    replicas: int | None = None,
    dims: Mapping[str, int] | None = None,
    report: str | os.PathLike[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Compiles a `.onnx`, `.graph` or `.tile` file for a system and predicts time and memory.

    The result has the fields of `pando profile --json`, among them `fits`, `latency_ms`, `throughput_per_s` (items
    a second), `cycles_per_step`, `breakdown` (cycles), `memory` (bytes a tile), `flops`, `utilisation` (0 to 1) and
    `energy_j_per_item`. A model that does not fit is a result too, with `fits` false and the reason in `fit`.

    `precision` is "f32", "f16", "f16.32" or "f8" (operands of products in 8 bits); `micro_batch` sets the size of the batch; `replicas` are copies of the
    model that run side by side; `dims` gives sizes to named dimensions; `report` is a file for the whole report.
    `suggestions` are rules of thumb here; the command line also tries them.
    Further options are those of `pando profile --help`, with `_` for `-`; True for those without a value.
    """
    named = {"system": system, "precision": precision, "micro_batch": micro_batch, "replicas": replicas}
    if report is not None:
        named["report"] = os.fspath(report)
    words = []
    for name, value in {**named, **options}.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    words += [f"--dim={name}={size}" for name, size in (dims or {}).items()]
    path = os.fspath(model)
    if not os.path.exists(path) and not path.startswith("zoo:"):
        raise FileNotFoundError(f"{path}: there is no such file")
    return json.loads(_pando.predict([*words, "--", path]))

"""What a machine built of IPUs would do with a model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
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
    Further options are those of `pando profile --help`, with `_` for `-`; True for those without a value, a list for
    those that may be repeated.
    """
    words = _words(system, precision, micro_batch, replicas, dims, report, options)
    path = os.fspath(model)
    if not os.path.exists(path) and not path.startswith("zoo:"):
        raise FileNotFoundError(f"{path}: there is no such file")
    return json.loads(_pando.predict([*words, "--", path]))


def profile_program(
    module: _pando.Module,
    reads: Sequence[str],
    writes: Sequence[str],
    *,
    name: str = "program",
    system: str = "m2000",
    precision: str | None = None,
    micro_batch: int | None = None,
    replicas: int | None = None,
    report: str | os.PathLike[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """`profile` for a module in memory whose first parameters are state, `reads`, and whose first results are what is
    written of it, `writes`. State stays on the chip."""
    words = _words(system, precision, micro_batch, replicas, None, report, options)
    positions = {name: position for position, name in enumerate(reads)}
    state = [(positions[name], result) for result, name in enumerate(writes) if name in positions]
    constants = [position for name, position in positions.items() if name not in set(writes)]
    return json.loads(_pando.predict_module(module, constants, state, [*words, "--", f"{name}.graph"]))


def stage_ends(module: _pando.Module, regions: Mapping[str, Any]) -> list[str]:
    """Where a module is cut if each region, a value's chip by the value's name in the program's order, is a stage of its
    own: the last value of every region but the last. Empty if the program comes back to a region."""
    made = [line.partition(" = ")[0] for line in module.text().split("\n") if line.startswith("  %")]
    names = {name.strip().lstrip("%") for names in made for name in names.split(",")}
    kept = [(name, region) for name, region in regions.items() if name in names]
    ends = [name for (name, region), (_, after) in zip(kept, kept[1:]) if region != after]
    return ends if len(ends) == len({region for _, region in kept}) - 1 else []


def _words(system, precision, micro_batch, replicas, dims, report, options: Mapping[str, Any]) -> list[str]:
    """As on the command line."""
    named = {"system": system, "precision": precision, "micro_batch": micro_batch, "replicas": replicas}
    if report is not None:
        named["report"] = os.fspath(report)
    words = []
    for name, value in {**named, **options}.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            words += [f"{option}={one}" for one in value]
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    return words + [f"--dim={name}={size}" for name, size in (dims or {}).items()]

"""What IPUs would make of a compiled program: cycles, and report files. A prediction, never a measurement."""

import json
import os

import pando
from pando._predict import profile_program, stage_ends
from pva import _cbor

from ._errors import createPoptorchError
from ._logging import logger

_SYSTEMS = [(1, "mk2"), (4, "m2000"), (16, "pod16"), (64, "pod64"), (128, "pod128"), (256, "pod256")]


def predict(executable, report=None, **options):
    """The fields of `pando profile --json` for one replica's program on the smallest system with so many IPUs, unless
    options of `pando.profile` say otherwise."""
    if executable.calls_host:
        raise createPoptorchError("A model with poptorch.CPU waits for the host in the middle: that is not predicted")
    system = next(name for chips, name in _SYSTEMS if chips >= executable.num_ipus)
    program = executable.programs[executable.base]
    named = {"system": system, "replicas": 1, **options}
    # A pipeline is predicted for inference; a training step is predicted as if one chip did it all.
    if executable.num_ipus > 1 and not executable.weights and "stages" not in options:
        ends = stage_ends(program.module, {name: place.ipu for name, place in executable.regions.items()})
        named.update({"stage_end": ends} if ends else {"stages": executable.num_ipus})
    return profile_program(program.module, program.reads, program.writes, name=executable.base, report=report, **named)


def engine_options(options):
    """POPLAR_ENGINE_OPTIONS, and what the program's own options say, which goes before it."""
    text = os.environ.get("POPLAR_ENGINE_OPTIONS") or "{}"
    try:
        engine = json.loads(text)
    except ValueError as error:
        raise createPoptorchError(f"POPLAR_ENGINE_OPTIONS is no JSON object: {text}") from error
    return {**engine, **options._Popart.options.get("engineOptions", {})}


def _is_on(engine, name):
    """An option of reports: its own word, or that of `autoReport.all`."""
    return str(engine.get(f"autoReport.{name}", engine.get("autoReport.all", "false"))).lower() == "true"


def wants_locations(options):
    """Does the user want to know which lines of the program operations come from?"""
    return _is_on(engine_options(options), "outputDebugInfo")


def write_reports(executable, options, training):
    """`DIRECTORY/training/profile.pop`, which `pva.openReport` and `pando view` open, and `DIRECTORY/debug.cbor` with
    the lines of the user's program, if the engine's options ask for them."""
    engine = engine_options(options)
    folder = engine.get("autoReport.directory", ".")
    if _is_on(engine, "outputDebugInfo"):
        os.makedirs(folder, exist_ok=True)
        values = {name: {"file": file, "line": line} for name, (file, line) in executable.locations.items()}
        with open(os.path.join(folder, "debug.cbor"), "wb") as file:
            file.write(_cbor.dumps({"version": 1, "values": values}))
    if not (_is_on(engine, "outputGraphProfile") or _is_on(engine, "outputExecutionProfile")):
        return
    if executable.calls_host:
        logger.warning("No report is written: a model with poptorch.CPU waits for the host in the middle")
        return
    name = options.model_name or ("training" if training else "inference")
    os.makedirs(os.path.join(folder, name), exist_ok=True)
    try:
        predict(executable, os.path.join(folder, name, "profile.pop"))
    except pando.Error as error:
        logger.warning("No report is written: %s", error)

"""What IPUs would make of a compiled program: cycles, and a report file. A prediction, never a measurement."""

import json
import os
import tempfile

import pando

_SYSTEMS = [(1, "mk2"), (4, "m2000"), (16, "pod16"), (64, "pod64"), (128, "pod128"), (256, "pod256")]


def predict(program, ipus, report=None):
    """The fields of `pando profile --json` for the program on the smallest system with so many IPUs."""
    system = next(name for chips, name in _SYSTEMS if chips >= ipus)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.graph")
        with open(path, "w", encoding="utf-8") as file:
            file.write(program.module.text())
        return pando.profile(path, system=system, replicas=1, report=report)


def report_folder(options, training):
    """Where the user wants a profile, or None."""
    engine = json.loads(os.environ.get("POPLAR_ENGINE_OPTIONS") or "{}")
    engine.update(options._Popart.options.get("engineOptions", {}))
    if str(engine.get("autoReport.all", "false")).lower() != "true":
        return None
    name = options.model_name or ("training" if training else "inference")
    return os.path.join(engine.get("autoReport.directory", "."), name)


def write_report(program, ipus, folder):
    """Writes `profile.pop`, a report of ours that `pando view` opens."""
    os.makedirs(folder, exist_ok=True)
    return predict(program, ipus, report=os.path.join(folder, "profile.pop"))

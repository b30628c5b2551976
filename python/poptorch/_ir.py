"""The compiled program for people and tools: its operations as JSON, or its text in a file."""

import json
import os
import re

_UPDATES = {
    "sgd": ["SGD0VarUpdate"], "adam": ["AdamUpdater", "AdamVarUpdate"], "adamw": ["AdamUpdater", "AdamVarUpdate"],
    "lamb": ["AdamUpdater", "AdamVarUpdate"], "rmsprop": ["RMSPropUpdater", "AdamVarUpdate"],
}


def as_json(executable, trainer):
    """{"maingraph": [{"type", "name", "attributes"}]}: the graph's nodes, groups of convolutions, weight updates."""
    program = executable.programs[executable.base]
    nodes = [_node(line) for line in program.module.text().split("\n") if line.startswith("  %")]
    for number, group in enumerate(executable.multi_convs):
        attributes = {name: str(value) for name, value in group["options"].items()}
        nodes.append({"type": "MultiConv", "name": f"MultiConv:{number}", "attributes": attributes})
    for weight in trainer.weights() if trainer is not None else ():
        kinds = _UPDATES[trainer.rule()]
        if trainer.has_momentum() and trainer.rule() == "sgd":
            kinds = ["SGD2VarUpdate"]
        nodes += [{"type": kind, "name": f"{weight}/{kind}", "attributes": {}} for kind in kinds]
    return json.dumps({"maingraph": nodes})


def _node(line):
    """`%name = op operands attributes : type`"""
    names, _, rest = line.strip().partition(" = ")
    words = rest.split(" : ")[0].split()
    attributes = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    return {"type": words[0], "name": names.lstrip("%"), "attributes": attributes}


def export_if_asked(executable):
    """Writes the program's text where POPTORCH_EXPORT_PROTO_FILE says."""
    path = os.environ.get("POPTORCH_EXPORT_PROTO_FILE")
    if path:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(executable.programs[executable.base].module.text())


def placement_lines(places, regions, options):
    """Where each operation runs, and whether stages overlap: lines for the log."""
    pipelined = type(options._execution_strategy).__name__ == "PipelinedExecution"
    yield f"enablePipelining set to value {int(pipelined and len({place.stage for place in places}) > 1)}"
    for name, place in regions.items():
        yield f" {_shown(name)} [ {place}]"


def _shown(name):
    """`l1.mul_1` of the graph as `l1/Mul:0/1`."""
    *path, last = name.split(".")
    base, number = re.fullmatch(r"(.*?)(?:_(\d+))?", last).groups()
    operation = "".join(word.capitalize() for word in base.split("_"))
    return "/".join([*path, operation]) + ":0" + (f"/{number}" if number else "")

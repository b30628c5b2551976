"""The compiled program for people and tools: its operations as JSON, or its text in a file."""

import json
import os

_UPDATES = {
    "sgd": ["SGD0VarUpdate"], "adam": ["AdamUpdater", "AdamVarUpdate"], "adamw": ["AdamUpdater", "AdamVarUpdate"],
    "lamb": ["AdamUpdater", "AdamVarUpdate"], "rmsprop": ["RMSPropUpdater", "AdamVarUpdate"],
}


def as_json(built, program, trainer):
    """{"maingraph": [{"type", "name", "attributes"}]}: the graph's nodes, groups of convolutions, weight updates."""
    nodes = [_node(line) for line in program.module.text().split("\n") if line.startswith("  %")]
    for number, group in enumerate(built.compilation.multi_convs):
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


def export_if_asked(program):
    """Writes the program's text where POPTORCH_EXPORT_PROTO_FILE says."""
    path = os.environ.get("POPTORCH_EXPORT_PROTO_FILE")
    if path:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(program.module.text())

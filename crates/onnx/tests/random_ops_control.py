"""Draws for operators with subgraphs; see random_ops_cases.py."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from random_ops_cases import Case, case


def infos(*names_and_shapes):
    kinds = {"i": TensorProto.INT64, "c": TensorProto.BOOL}
    return [
        helper.make_tensor_value_info(name, kinds.get(name[0], TensorProto.FLOAT), shape)
        for name, shape in names_and_shapes
    ]


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


@case("If")
def if_else(d, op):
    branches = {}
    size = d.int(1, 4)
    for branch in ("then_branch", "else_branch"):
        # Branches of different sizes are decided by the condition's value.
        own = size if d.chance(0.6) else size + 1
        value = constant(f"{branch}_value", d.floats([own]))
        nodes = [helper.make_node(d.pick("Neg", "Abs", "Relu"), [value.name], [f"{branch}_out"])]
        out = infos((f"{branch}_out", [own]))
        branches[branch] = helper.make_graph(nodes, branch, [], out, [value])
    return Case(op, [np.array(d.chance(0.5))], branches)


@case("Loop")
def loop(d, op):
    size, counted, stacked = d.int(1, 3), d.chance(0.5), d.chance(0.5)
    nodes = [helper.make_node("Cast", ["i"], ["step"], to=TensorProto.FLOAT)]
    nodes += [helper.make_node("Mul", ["a", "factor"], ["scaled"]), helper.make_node("Add", ["scaled", "step"], ["a2"])]
    if counted:
        nodes.append(helper.make_node("Identity", ["c"], ["c2"]))
    else:
        nodes.append(helper.make_node("ReduceMax", ["a2"], ["most"], keepdims=0))
        nodes.append(helper.make_node("Less", ["most", "limit"], ["c2"]))
    outputs = infos(("c2", []), ("a2", [size]))
    if stacked:
        nodes.append(helper.make_node("Neg", ["a2"], ["b"]))
        outputs += infos(("b", [size]))
    weights = [constant("factor", np.float32(1.5)), constant("limit", np.float32(d.int(5, 30)))]
    body = helper.make_graph(nodes, "body", infos(("i", []), ("c", []), ("a", [size])), outputs, weights)
    inputs = [np.array(d.int(0 if not stacked else 1, 6)), np.array(True), d.floats([size])]
    return Case(op, inputs, {"body": body}, 2 if stacked else 1)


@case("Scan")
def scan(d, op):
    length, size, axis = d.int(1, 5), d.int(1, 4), d.int(0, 1)
    nodes = [helper.make_node("Add", ["s", "x"], ["s2"]), helper.make_node("Mul", ["s2", "x"], ["y"])]
    body = helper.make_graph(nodes, "body", infos(("s", [size]), ("x", [size])), infos(("s2", [size]), ("y", [size])))
    attributes = {"body": body, "num_scan_inputs": 1, "scan_input_axes": [axis], "scan_output_axes": [d.int(0, 1)]}
    attributes |= {"scan_input_directions": [d.int(0, 1)], "scan_output_directions": [d.int(0, 1)]}
    x = d.floats([length, size] if axis == 0 else [size, length])
    return Case(op, [d.floats([size]), x], attributes, 2)

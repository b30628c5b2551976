"""Writes random models of single operators with ONNX Runtime's outputs, as folders of the form that
generate_node_tests.py writes: `random_ops.py FOLDER [--seeds N] [--only OPERATOR]`.

Shapes, attributes and types are drawn from a seed per operator and round; N rounds per operator (10 by
default). What ONNX Runtime does not implement or refuses is counted and left out. The operators' draws are in
the files beside it (random_ops_cases.py). Needs the packages onnx, onnxruntime and numpy.
"""

import argparse
import pathlib
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

# Each adds operators: those with subgraphs, of com.microsoft, between codes, and all others.
import random_ops_control  # noqa: F401
import random_ops_fused  # noqa: F401
import random_ops_networks  # noqa: F401
import random_ops_quantised  # noqa: F401
import random_ops_tensors  # noqa: F401
from random_ops_cases import CASES, Draw

OPSET = 23
MICROSOFT = "com.microsoft"


def named_dims(draw, array):
    """Some sizes as names; equal sizes have equal names."""
    if not draw.chance(0.3):
        return list(array.shape)
    return [f"n{size}" if size > 1 and draw.chance(0.5) else size for size in array.shape]


def build(draw, case):
    inputs, weights, names, feeds = [], [], [], {}
    for position, value in enumerate(case.inputs):
        if value is None:
            names.append("")
            continue
        name = f"x{position}"
        names.append(name)
        array = np.asarray(value)
        if position in case.weights or (position > 0 and draw.chance(0.25)):
            weights.append(numpy_helper.from_array(array, name))
            continue
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        inputs.append(helper.make_tensor_value_info(name, kind, named_dims(draw, array)))
        feeds[name] = array
    outputs = [f"y{position}" for position in range(case.outputs)]
    nodes = case.nodes or [helper.make_node(case.op, names, outputs, domain=case.domain, **case.attributes)]
    infos = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "random", inputs, infos, weights)
    opsets = [helper.make_opsetid("", case.opset or OPSET), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def session(model):
    # Its warnings go past the options.
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def tolerance(case, arrays):
    kinds = {np.asarray(array).dtype for array in arrays if array is not None}
    if np.dtype(np.float16) in kinds:
        return 1e-2, 1e-2
    return (case.rtol or 2e-4), (case.atol or 2e-5)


def write(folder, case, model, feeds, results):
    data = folder / "data_0"
    data.mkdir(parents=True)
    # Types of outputs are what ONNX Runtime gives.
    for info, result in zip(model.graph.output, results):
        kind = helper.np_dtype_to_tensor_dtype(np.asarray(result).dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, kind, None))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    rtol, atol = tolerance(case, [*case.inputs, *results])
    (folder / "tolerance.txt").write_text(f"{rtol} {atol}\n")
    for what, infos, values in (
        ("input", model.graph.input, [feeds[info.name] for info in model.graph.input]),
        ("output", model.graph.output, results),
    ):
        for position, (info, value) in enumerate(zip(infos, values)):
            tensor = numpy_helper.from_array(np.asarray(value), info.name)
            (data / f"{what}_{position}.pb").write_bytes(tensor.SerializeToString())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    written, refused = 0, {}
    for name, draw_case in CASES.items():
        if arguments.only and arguments.only != name:
            continue
        for seed in range(arguments.seeds):
            draw = Draw(np.random.default_rng([seed, zlib.crc32(name.encode())]))
            case = draw_case(draw)
            model, feeds = build(draw, case)
            try:
                results = session(model).run(None, feeds)
            except Exception as error:  # ONNX Runtime has no common type of its errors.
                refused[name] = str(error).splitlines()[0][:160]
                continue
            folder = arguments.folder / f"{name.replace(':', '_').replace(' ', '_')}_{seed}"
            write(folder, case, model, feeds, results)
            written += 1
    for name, error in sorted(refused.items()):
        print(f"left out at least once: {name}: {error}")
    print(f"wrote {written} random tests of {len(CASES)} operators to {arguments.folder}")


if __name__ == "__main__":
    main()

"""Writes the ONNX standard's backend node tests below the folder given as the only argument.

Per test a folder with model.onnx, tolerance.txt ("rtol atol") and data_I/input_J.pb, output_J.pb; each
.pb is a TensorProto, or a SequenceProto / OptionalProto where the model's type says so. Needs the
packages onnx and numpy; run_node_tests.sh makes an environment with them.
"""

import pathlib
import sys

from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases


def encode(value, info):
    if isinstance(value, TensorProto):
        return value
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name)
    if kind == "map_type":
        return numpy_helper.from_dict(value, info.name)
    return numpy_helper.from_array(value, info.name)


def write_case(case, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    (folder / "tolerance.txt").write_text(f"{case.rtol} {case.atol}\n")
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"data_{number}"
        data.mkdir(exist_ok=True)
        for what, values, infos in (
            ("input", inputs, case.model.graph.input),
            ("output", outputs, case.model.graph.output),
        ):
            for position, (value, info) in enumerate(zip(values, infos)):
                path = data / f"{what}_{position}.pb"
                path.write_bytes(encode(value, info).SerializeToString())


def main():
    target = pathlib.Path(sys.argv[1])
    cases = collect_testcases(None)
    for case in cases:
        write_case(case, target / case.name)
    print(f"wrote {len(cases)} tests to {target}")


if __name__ == "__main__":
    main()

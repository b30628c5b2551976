"""Judges exported models: `check_exports.py FOLDER`, where the Rust test `export` has written them with inputs and
outputs. Every model passes the standard's checker with shape inference, and gives the same outputs in ONNX
Runtime as far as that has the operators. Needs the packages onnx, onnxruntime and numpy.
"""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

# Versions of the operator set that ONNX Runtime runs.
NEWEST = 24


def read(folder, what, count):
    tensors = []
    for position in range(count):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"{what}_{position}.pb").read_bytes())
        tensors.append(numpy_helper.to_array(tensor))
    return tensors


def tolerance(array):
    return {"float16": 4e-3, "bfloat16": 3e-2}.get(str(array.dtype), 1e-4)


def main():
    onnxruntime.set_default_logger_severity(4)
    cases = sorted(path for path in pathlib.Path(sys.argv[1]).iterdir())
    ran, refused, wrong = 0, {}, []
    for case in cases:
        model = onnx.load(case / "model.onnx")
        onnx.checker.check_model(model, full_check=True)
        feeds = dict(zip((info.name for info in model.graph.input), read(case / "data_0", "input", len(model.graph.input))))
        expected = read(case / "data_0", "output", len(model.graph.output))
        if model.opset_import[0].version > NEWEST or any(str(x.dtype) == "bfloat16" for x in [*feeds.values(), *expected]):
            continue
        try:
            found = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        except Exception as error:  # ONNX Runtime has no common type of its errors.
            refused[str(error).splitlines()[0][:120]] = case.name
            continue
        ran += 1
        for a, b in zip(found, expected):
            if not np.allclose(a.astype(np.float64), b.astype(np.float64), tolerance(b), tolerance(b), equal_nan=True):
                wrong.append(f"{case.name}: {a.ravel()[:4]} instead of {b.ravel()[:4]}")
                break
    for error, name in refused.items():
        print(f"not run by ONNX Runtime, for instance {name}: {error}")
    print("\n".join(wrong))
    print(f"{len(cases)} exported models are valid; {ran} ran in ONNX Runtime, {ran - len(wrong)} with the same outputs")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

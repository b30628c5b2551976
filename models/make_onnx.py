"""Writes tiny.onnx: softmax(relu(x·w + b)·v) with fixed small weights, and above.onnx: the elements of 2·x above 1,
so that the size of the output depends on the values of the input. Needs the packages onnx and numpy."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

w = (np.arange(12, dtype=np.float32).reshape(4, 3) - 5) / 4
b = np.array([0.5, -0.25, 0.0], dtype=np.float32)
v = np.array([[1, -1], [0.5, 2], [-2, 0.25]], dtype=np.float32)
nodes = [
    helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
    helper.make_node("Relu", ["h"], ["a"]),
    helper.make_node("MatMul", ["a", "v"], ["z"]),
    helper.make_node("Softmax", ["z"], ["y"], axis=-1),
]
graph = helper.make_graph(
    nodes,
    "tiny",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
    [numpy_helper.from_array(array, name) for name, array in (("w", w), ("b", b), ("v", v))],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, "tiny.onnx")

nodes = [
    helper.make_node("Mul", ["x", "two"], ["h"]),
    helper.make_node("Greater", ["h", "one"], ["g"]),
    helper.make_node("Compress", ["h", "g"], ["y"], axis=0),
]
graph = helper.make_graph(
    nodes,
    "above",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M"])],
    [numpy_helper.from_array(np.float32(value), name) for value, name in ((2, "two"), (1, "one"))],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, "above.onnx")

if __name__ == "__main__":
    # What the test of the command line expects for an input of ones.
    a = np.maximum(np.ones((1, 4), np.float32) @ w + b, 0) @ v
    e = np.exp(a - a.max())
    print(e / e.sum())

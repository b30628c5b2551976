"""Small models for tests."""

import onnx
from onnx import TensorProto, helper

AFFINE = """
func @main(%x: f32[N,3], %b: f32[3]) -> f32[N,3] {
  %bb = broadcast %b axes=[1] : f32[N,3]
  %y = add %x, %bb : f32[N,3]
  return %y
}
"""


def onnx_bytes(nodes, inputs, outputs) -> bytes:
    """A model with inputs and outputs (name, TensorProto type, sizes)."""
    infos = [[helper.make_tensor_value_info(*port) for port in ports] for ports in (inputs, outputs)]
    graph = helper.make_graph(nodes, "test", *infos)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def affine() -> bytes:
    """y = x + b, z = 2 y."""
    nodes = [helper.make_node("Add", ["x", "b"], ["y"]), helper.make_node("Add", ["y", "y"], ["z"])]
    inputs = [("x", TensorProto.FLOAT, ["batch", 3]), ("b", TensorProto.FLOAT, [3])]
    outputs = [("y", TensorProto.FLOAT, ["batch", 3]), ("z", TensorProto.FLOAT, ["batch", 3])]
    return onnx_bytes(nodes, inputs, outputs)


def identity(elem: int, shape) -> bytes:
    """y = x, for any element type."""
    return onnx_bytes([helper.make_node("Identity", ["x"], ["y"])], [("x", elem, shape)], [("y", elem, shape)])


def nonzero(size="n") -> bytes:
    """y = the elements of x that are not zero, n = how many there are: a size that depends on values."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"]),
        helper.make_node("Transpose", ["at"], ["indices"], perm=[1, 0]),
        helper.make_node("GatherND", ["x", "indices"], ["y"]),
        helper.make_node("Shape", ["y"], ["n"]),
    ]
    outputs = [("y", TensorProto.FLOAT, ["count"]), ("n", TensorProto.INT64, [1])]
    return onnx_bytes(nodes, [("x", TensorProto.FLOAT, [size])], outputs)


def total() -> bytes:
    """y = a + b, with a name for each one's size: they may be the same, or one of them 1."""
    inputs = [("a", TensorProto.FLOAT, ["m"]), ("b", TensorProto.FLOAT, ["n"])]
    return onnx_bytes([helper.make_node("Add", ["a", "b"], ["y"])], inputs, [("y", TensorProto.FLOAT, ["k"])])


def product(size: int) -> bytes:
    """y = x x, for square matrices."""
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"])]
    shape = [size, size]
    return onnx_bytes(nodes, [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, shape)])

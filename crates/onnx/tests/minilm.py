"""The sentence encoder all-MiniLM-L6-v2 as an ONNX model, from the weights that a package ships: embeddings, layers
of attention and of two products, the mean over the tokens that count, scaled to length 1. Needs onnx and numpy.
"""

import json
import struct

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def tensors(content):
    """The tensors of a file in the format safetensors, by name."""
    (size,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    arrays = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        dtype = {"F32": np.float32, "I64": np.int64}[entry["dtype"]]
        arrays[name] = np.frombuffer(content[begin:end], dtype).reshape(entry["shape"])
    return arrays


class Graph:
    """Nodes and weights as they are made; results have numbers for names."""

    def __init__(self, weights):
        self.weights, self.nodes, self.constants, self.used = weights, [], {}, {}

    def op(self, kind, *inputs, **attributes):
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(self, value, dtype=np.float32):
        array = np.array(value, dtype)
        key = (array.tobytes(), array.shape, array.dtype.str)
        return self.constants.setdefault(key, (f"constant_{len(self.constants)}", array))[0]

    def weight(self, name, transposed=False):
        array = self.weights[name]
        self.used[name] = np.ascontiguousarray(array.T) if transposed else array
        return name

    def linear(self, x, name):
        product = self.op("MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.op("Add", product, self.weight(f"{name}.bias"))

    def norm(self, x, name, epsilon):
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)


def attention(g, x, bias, name, heads, size):
    split = g.constant([0, 0, heads, size], np.int64)

    def part(which, perm):
        values = g.op("Reshape", g.linear(x, f"{name}.self.{which}"), split)
        return g.op("Transpose", values, perm=perm)

    scores = g.op("MatMul", part("query", [0, 2, 1, 3]), part("key", [0, 2, 3, 1]))
    scores = g.op("Add", g.op("Div", scores, g.constant(size**0.5)), bias)
    mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), part("value", [0, 2, 1, 3]))
    mixed = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), g.constant([0, 0, heads * size], np.int64))
    return g.linear(mixed, f"{name}.output.dense")


def gelu(g, x):
    erf = g.op("Erf", g.op("Div", x, g.constant(2**0.5)))
    return g.op("Mul", g.op("Mul", x, g.constant(0.5)), g.op("Add", erf, g.constant(1.0)))


def pooled(g, x, mask):
    """The mean of the tokens that count, of length 1."""
    counts = g.op("Unsqueeze", mask, g.constant([2], np.int64))
    axis = g.constant([1], np.int64)
    total = g.op("ReduceSum", g.op("Mul", x, counts), axis, keepdims=0)
    mean = g.op("Div", total, g.op("ReduceSum", counts, axis, keepdims=0))
    return g.op("Div", mean, g.op("ReduceL2", mean, axes=[1], keepdims=1))


def model(config, weights):
    """From token numbers and a mask, both `i64[batch, sequence]`, to `sentence_embedding`, `f32[batch, 384]`."""
    config, g = json.loads(config), Graph(tensors(weights))
    epsilon, heads = config["layer_norm_eps"], config["num_attention_heads"]
    words = g.op("Gather", g.weight("embeddings.word_embeddings.weight"), "input_ids")
    length = g.op("Shape", "input_ids", start=1, end=2)
    positions = g.weight("embeddings.position_embeddings.weight")
    positions = g.op("Slice", positions, g.constant([0], np.int64), length)
    # All tokens are of the first type.
    types = g.op("Gather", g.weight("embeddings.token_type_embeddings.weight"), g.constant(0, np.int64))
    x = g.norm(g.op("Add", g.op("Add", words, positions), types), "embeddings.LayerNorm", epsilon)
    mask = g.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    bias = g.op("Mul", g.op("Sub", g.constant(1.0), mask), g.constant(-1e9))
    bias = g.op("Unsqueeze", bias, g.constant([1, 2], np.int64))
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        mixed = attention(g, x, bias, f"{name}.attention", heads, config["hidden_size"] // heads)
        x = g.norm(g.op("Add", mixed, x), f"{name}.attention.output.LayerNorm", epsilon)
        wide = gelu(g, g.linear(x, f"{name}.intermediate.dense"))
        x = g.norm(g.op("Add", g.linear(wide, f"{name}.output.dense"), x), f"{name}.output.LayerNorm", epsilon)
    g.nodes.append(helper.make_node("Identity", [pooled(g, x, mask)], ["sentence_embedding"]))
    initializers = [numpy_helper.from_array(array, name) for name, array in g.used.items()]
    initializers += [numpy_helper.from_array(array, name) for name, array in g.constants.values()]
    ids = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
           for name in ("input_ids", "attention_mask")]  # fmt: skip
    result = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", config["hidden_size"]])
    graph = helper.make_graph(g.nodes, "all-MiniLM-L6-v2", ids, [result], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

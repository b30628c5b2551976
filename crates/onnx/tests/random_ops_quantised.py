"""Draws of operators between DequantizeLinear and QuantizeLinear; see random_ops_cases.py. A value in the middle of two
steps may fall on either side."""

import numpy as np
from onnx import helper
from random_ops_cases import Case, case
from random_ops_networks import quantised


class Network:
    """Nodes, and their inputs by position."""

    def __init__(self, d):
        self.d, self.nodes, self.inputs, self.weights = d, [], [], []

    def input(self, value, weight=True):
        if weight:
            self.weights.append(len(self.inputs))
        self.inputs.append(np.asarray(value))
        return f"x{len(self.inputs) - 1}"

    def add(self, op, inputs, output=None, **attributes):
        output = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def scale(self, low, high):
        return self.input(np.float32(self.d.rng.uniform(low, high)))

    def real(self, codes, dtype):
        info = np.iinfo(dtype)
        zero = self.input(np.array(self.d.int(info.min, info.max), dtype))
        return self.add("DequantizeLinear", [codes, self.scale(0.005, 0.02), zero])

    def weight(self, shape, axis):
        codes = self.input(quantised(self.d, shape, np.int8))
        if self.d.chance(0.5):
            return self.add("DequantizeLinear", [codes, self.scale(0.005, 0.02), self.input(np.int8(0))])
        scales = self.input(self.d.floats([shape[axis]], 0.005, 0.02))
        return self.add("DequantizeLinear", [codes, scales, self.input(np.zeros(shape[axis], np.int8))], axis=axis)

    def quantised(self, value, low, high, output=None):
        dtype = self.d.pick(np.uint8, np.int8)
        info = np.iinfo(dtype)
        zero = self.input(np.array(self.d.pick(info.min, info.min + 128, self.d.int(info.min, info.max)), dtype))
        return self.add("QuantizeLinear", [value, self.scale(low, high), zero], output), dtype

    def activation(self, value):
        if self.d.chance(0.4):
            return self.add("Relu", [value])
        if self.d.chance(0.3):
            return self.add("Clip", [value, self.input(np.float32(-1)), self.input(np.float32(6))])
        return value

    def case(self, op, atol):
        return Case(op, self.inputs, weights=tuple(self.weights), nodes=self.nodes, atol=atol)


@case("quantised Conv")
def conv(d, op):
    net, dtype = Network(d), d.pick(np.uint8, np.int8)
    groups = d.pick(1, 1, 4)
    inputs, outputs = groups * d.int(1, 5), groups * d.int(1, 20)
    rank = d.pick(1, 2, 2)
    kernel, spatial = [d.int(1, 3) for _ in range(rank)], [d.int(4, 9) for _ in range(rank)]
    codes = net.input(quantised(d, [d.int(1, 2), inputs, *spatial], dtype), weight=False)
    real = net.real(codes, dtype)
    operands = [real, net.weight([outputs, inputs // groups, *kernel], 0)]
    if d.chance(0.5):
        operands.append(net.input(d.floats([outputs])))
    attributes = {"group": groups, "strides": [d.int(1, 2) for _ in kernel], "pads": [d.int(0, 1) for _ in range(2 * rank)]}
    net.quantised(net.activation(net.add("Conv", operands, **attributes)), 0.02, 0.1, "y0")
    return net.case(op, 1.01)


@case("quantised MatMul")
def matmul(d, op):
    net, dtype = Network(d), d.pick(np.uint8, np.int8)
    m, k, n = d.int(1, 30), d.int(1, 70), d.int(1, 70)
    codes = net.input(quantised(d, [*d.pick([], [2]), m, k], dtype), weight=False)
    value = net.add("MatMul", [net.real(codes, dtype), net.weight([k, n], 1)])
    if d.chance(0.5):
        value = net.add("Add", [value, net.input(d.floats([n]))])
    net.quantised(net.activation(value), 0.02, 0.1, "y0")
    return net.case(op, 1.01)


@case("quantised residual")
def residual(d, op):
    """A convolution around which the input goes. Where its codes fall otherwise, sums may move by a step."""
    net, dtype, channels = Network(d), d.pick(np.uint8, np.int8), d.int(1, 20)
    codes = net.input(quantised(d, [1, channels, 6, 7], dtype), weight=False)
    real = net.real(codes, dtype)
    value = net.add("Conv", [real, net.weight([channels, channels, 1, 1], 0)])
    between, _ = net.quantised(net.activation(value), 0.1, 0.2)
    again = net.add("DequantizeLinear", [between, net.nodes[-1].input[1], net.nodes[-1].input[2]])
    total = net.activation(net.add("Add", [again, real] if d.chance(0.5) else [real, again]))
    net.quantised(total, 0.2, 0.3, "y0")
    return net.case(op, 2.01)

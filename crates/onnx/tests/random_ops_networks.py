"""Draws for products, norms, recurrence, attention, quantised operators, images and signals; see random_ops_cases.py."""

import numpy as np
from random_ops_cases import Case, case

# Products.


@case("MatMul")
def matmul(d, op):
    m, k, n = d.int(1, 6), d.int(1, 6), d.int(1, 6)
    batch = d.shape(0, 2, 3)
    left, right = d.pick(([*batch, m, k], [*d.broadcastable(batch), k, n]), ([k], [*batch, k, n]), ([*batch, m, k], [k]))
    return Case(op, [d.floats(left), d.floats(right)])


@case("Gemm")
def gemm(d, op):
    m, k, n = d.int(1, 6), d.int(1, 6), d.int(1, 6)
    ta, tb = d.int(0, 1), d.int(0, 1)
    c = d.pick(None, [n], [m, n], [m, 1], [1])
    inputs = [d.floats([k, m] if ta else [m, k]), d.floats([n, k] if tb else [k, n])]
    attributes = {"transA": ta, "transB": tb, "alpha": d.pick(1.0, 0.5), "beta": d.pick(1.0, 2.0)}
    return Case(op, inputs + ([d.floats(c)] if c else []), attributes)


@case("Einsum")
def einsum(d, op):
    sizes = {letter: d.int(1, 4) for letter in "bhijk"}
    equation = d.pick("bij,bjk->bik", "bhij,bhkj->bhik", "ij,j->i", "ij->ji", "bij->b", "ij,ij->", "i,j->ij", "...ij,...jk->...ik")
    terms = equation.replace("...", "bh").split("->")[0].split(",")
    return Case(op, [d.floats([sizes[letter] for letter in term]) for term in terms], {"equation": equation})


def windows(d, spatial, kernel):
    attributes = {}
    if d.chance(0.6):
        attributes["strides"] = [d.int(1, 3) for _ in spatial]
    if d.chance(0.4):
        attributes["dilations"] = [d.int(1, 2) for _ in spatial]
    if d.chance(0.4):
        attributes["auto_pad"] = d.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    elif d.chance(0.7):
        attributes["pads"] = [d.int(0, k // 2) for k in kernel * 2]
    return attributes


def convolution(d, rank=None):
    rank = rank or d.int(1, 3)
    groups, per_group = d.pick(1, 1, 2, 3), d.int(1, 3)
    spatial = [d.int(5, 8) for _ in range(rank)]
    kernel = [d.int(1, 3) for _ in range(rank)]
    return groups, per_group, spatial, kernel, d.int(1, 2), groups * d.int(1, 3)


@case("Conv")
def conv(d, op):
    groups, per_group, spatial, kernel, batch, outs = convolution(d)
    inputs = [d.floats([batch, groups * per_group, *spatial]), d.floats([outs, per_group, *kernel])]
    attributes = {"group": groups, **windows(d, spatial, kernel)}
    if d.chance(0.5):
        attributes["kernel_shape"] = kernel
    return Case(op, inputs + ([d.floats([outs])] if d.chance(0.5) else []), attributes)


@case("ConvTranspose")
def conv_transpose(d, op):
    groups, per_group, spatial, kernel, batch, outs = convolution(d, d.int(1, 2))
    inputs = [d.floats([batch, groups * per_group, *spatial]), d.floats([groups * per_group, outs // groups, *kernel])]
    strides = [d.int(1, 3) for _ in spatial]
    attributes = {"group": groups, "strides": strides, "dilations": [d.int(1, 2) for _ in spatial]}
    # Where strides are larger than windows ONNX Runtime's sizes for SAME are not the standard's.
    spans = [(k - 1) * dilation + 1 for k, dilation in zip(kernel, attributes["dilations"])]
    if d.chance(0.4):
        same = all(span >= stride for span, stride in zip(spans, strides))
        attributes["auto_pad"] = d.pick("SAME_UPPER", "SAME_LOWER", "VALID") if same else "VALID"
    else:
        attributes["pads"] = [d.int(0, k // 2) for k in kernel * 2]
    if d.chance(0.4):
        attributes["output_padding"] = [d.int(0, s - 1) for s in strides]
    return Case(op, inputs + ([d.floats([outs])] if d.chance(0.5) else []), attributes)


@case("MaxPool", "AveragePool", "LpPool")
def pool(d, op):
    _, _, spatial, kernel, batch, channels = convolution(d, d.int(1, 3) if op != "LpPool" else d.int(1, 2))
    attributes = {"kernel_shape": kernel, **windows(d, spatial, kernel)}
    attributes["ceil_mode"] = d.int(0, 1)
    if "auto_pad" in attributes:
        attributes.pop("dilations", None)
        attributes["ceil_mode"] = 0
    if op == "AveragePool":
        attributes["count_include_pad"] = d.int(0, 1)
    if op == "LpPool":
        attributes["p"] = d.int(1, 3)
    outputs = 2 if op == "MaxPool" and "auto_pad" not in attributes and d.chance(0.4) else 1
    return Case(op, [d.floats([batch, channels, *spatial])], attributes, outputs, opset=19)


@case("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(d, op):
    return Case(op, [d.floats(d.shape(3, 5))], opset=20)


@case("MaxUnpool")
def max_unpool(d, op):
    n, channels, h, w = d.int(1, 2), d.int(1, 2), d.int(1, 3), d.int(1, 3)
    # The place of each maximum in its own window of 2 by 2 of the result.
    rows, columns = np.meshgrid(np.arange(h) * 2, np.arange(w) * 2, indexing="ij")
    base = np.arange(n * channels).reshape(n, channels, 1, 1) * (4 * h * w)
    places = base + (rows + d.ints([n, channels, h, w], 0, 1)) * (2 * w) + columns + d.ints([n, channels, h, w], 0, 1)
    return Case(op, [d.floats([n, channels, h, w]), places], {"kernel_shape": [2, 2], "strides": [2, 2]})


@case("Col2Im")
def col2im(d, op):
    image, window = [d.int(3, 6), d.int(3, 6)], [d.int(1, 3), d.int(1, 3)]
    strides, pads = [d.int(1, 2), d.int(1, 2)], [d.int(0, 1) for _ in range(4)]
    blocks = [(image[a] + pads[a] + pads[a + 2] - window[a]) // strides[a] + 1 for a in (0, 1)]
    x = d.floats([d.int(1, 2), d.int(1, 3) * window[0] * window[1], blocks[0] * blocks[1]])
    inputs = [x, np.array(image, np.int64), np.array(window, np.int64)]
    return Case(op, inputs, {"strides": strides, "pads": pads})


# Normalisation.


@case("BatchNormalization")
def batch_normalization(d, op):
    shape = d.shape(2, 4)
    vectors = [d.floats([shape[1]]) for _ in range(3)]
    return Case(op, [d.floats(shape), *vectors, d.floats([shape[1]], 0.5, 2)], {"epsilon": 1e-3}, opset=15)


@case("InstanceNormalization")
def instance_normalization(d, op):
    shape = d.shape(3, 4, 5, 2)
    return Case(op, [d.floats(shape), d.floats([shape[1]]), d.floats([shape[1]])], {"epsilon": 1e-3}, rtol=1e-3, atol=1e-4)


@case("GroupNormalization")
def group_normalization(d, op):
    groups, per_group = d.int(1, 3), d.int(1, 3)
    channels = groups * per_group
    inputs = [d.floats([2, channels, *d.shape(1, 2, 4, 2)]), d.floats([channels]), d.floats([channels])]
    return Case(op, inputs, {"num_groups": groups, "epsilon": 1e-3}, opset=21, rtol=1e-3, atol=1e-4)


@case("LayerNormalization")
def layer_normalization(d, op):
    shape = d.shape(1, 4, 6, 2)
    axis = d.axis(len(shape))
    own = shape[axis:]
    inputs = [d.floats(shape), d.floats(own)] + ([d.floats(own)] if d.chance(0.6) else [])
    return Case(op, inputs, {"axis": axis, "epsilon": 1e-3}, d.pick(1, 3), opset=17, rtol=1e-3, atol=1e-4)


@case("RMSNormalization")
def rms_normalization(d, op):
    shape = d.shape(1, 4, 6, 2)
    axis = d.axis(len(shape))
    return Case(op, [d.floats(shape), d.floats(shape[axis:])], {"axis": axis, "epsilon": 1e-3})


@case("LpNormalization")
def lp_normalization(d, op):
    shape = d.shape(1, 3)
    return Case(op, [d.floats(shape)], {"axis": d.axis(len(shape)), "p": d.int(1, 2)})


@case("LRN")
def lrn(d, op):
    return Case(op, [d.floats(d.shape(3, 4))], {"size": d.pick(1, 3, 5), "alpha": 0.05, "beta": 0.6, "bias": 1.5})


@case("MeanVarianceNormalization")
def mean_variance_normalization(d, op):
    return Case(op, [d.floats([d.int(2, 3) for _ in range(4)])], rtol=1e-3, atol=1e-4)


@case("SimplifiedLayerNormalization")
def simplified_layer_normalization(d, op):
    shape = d.shape(1, 3, 6, 2)
    return Case(op, [d.floats(shape), d.floats(shape[-1:])], {"axis": -1, "epsilon": 1e-3}, opset=17)


# Recurrence.


@case("RNN", "GRU", "LSTM")
def recurrent(d, op):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    length, batch, size, hidden = d.int(1, 4), d.int(1, 3), d.int(1, 4), d.int(1, 4)
    direction = d.pick("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    inputs = [d.floats([length, batch, size], -1, 1)]
    inputs += [d.floats([ways, gates * hidden, size], -1, 1), d.floats([ways, gates * hidden, hidden], -1, 1)]
    inputs.append(d.floats([ways, 2 * gates * hidden], -1, 1) if d.chance(0.6) else None)
    inputs.append(d.ints([batch], 1, length, np.int32) if d.chance(0.4) else None)
    inputs.append(d.floats([ways, batch, hidden], -1, 1) if d.chance(0.5) else None)
    attributes = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attributes["linear_before_reset"] = d.int(0, 1)
    if op == "LSTM":
        inputs.append(d.floats([ways, batch, hidden], -1, 1) if d.chance(0.5) else None)
        inputs.append(d.floats([ways, 3 * hidden], -1, 1) if d.chance(0.3) else None)
    while inputs[-1] is None:
        inputs.pop()
    return Case(op, inputs, attributes, 3 if op == "LSTM" else 2, weights=(1, 2), opset=14)


# Attention.


@case("Attention")
def attention(d, op):
    batch, kv_heads, queries, keys, size, v_size = d.int(1, 2), d.int(1, 2), d.int(1, 4), d.int(1, 5), d.pick(4, 8), d.pick(4, 8)
    heads = kv_heads * d.int(1, 2)
    q, k, v = [batch, heads, queries, size], [batch, kv_heads, keys, size], [batch, kv_heads, keys, v_size]
    attributes = {"is_causal": d.int(0, 1)}
    if d.chance(0.3):
        attributes["scale"] = 0.3
    if d.chance(0.3):
        attributes["softcap"] = 2.0
    mask = d.pick(None, d.floats([queries, keys]), d.bools([queries, keys]) | np.eye(queries, keys, dtype=bool) | (np.arange(keys) == 0))
    if d.chance(0.4):
        flat = lambda s: [s[0], s[2], s[1] * s[3]]
        q, k, v = flat(q), flat(k), flat(v)
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    return Case(op, [d.floats(q), d.floats(k), d.floats(v)] + ([mask] if mask is not None else []), attributes)


@case("RotaryEmbedding")
def rotary(d, op):
    batch, heads, length, size = d.int(1, 2), d.int(1, 3), d.int(1, 4), d.pick(4, 8)
    places = d.ints([batch, length], 0, 7)
    caches = [d.floats([8, size // 2], -1, 1), d.floats([8, size // 2], -1, 1)]
    attributes = {"interleaved": d.int(0, 1)}
    x = d.floats([batch, heads, length, size])
    if d.chance(0.4):
        x = d.floats([batch, length, heads * size])
        attributes["num_heads"] = heads
    return Case(op, [x, *caches, places], attributes)


# Quantisation.


def quantised(d, shape, dtype):
    info = np.iinfo(dtype)
    return d.ints(shape, info.min, info.max, dtype)


@case("QuantizeLinear", "DequantizeLinear")
def quantize(d, op):
    shape, dtype = d.shape(1, 4), d.pick(np.uint8, np.int8)
    axis = d.axis(len(shape))
    own = [] if d.chance(0.5) else [shape[axis]]
    scale, zero = d.floats(own, 0.02, 0.2), d.ints(own, 0, 20, dtype)
    x = d.floats(shape) if op == "QuantizeLinear" else quantised(d, shape, dtype)
    return Case(op, [x, scale, zero], {"axis": axis} if own else {})


@case("DynamicQuantizeLinear")
def dynamic_quantize(d, op):
    return Case(op, [d.floats(d.shape(1, 3))], outputs=3)


@case("MatMulInteger")
def matmul_integer(d, op):
    m, k, n = d.int(1, 5), d.int(1, 5), d.int(1, 5)
    a, b = quantised(d, [m, k], np.uint8), quantised(d, [k, n], d.pick(np.uint8, np.int8))
    zeros = [np.array(d.int(0, 9), a.dtype), np.array(d.int(0, 9), b.dtype)][: d.int(0, 2)]
    return Case(op, [a, b, *zeros])


@case("QLinearMatMul")
def qlinear_matmul(d, op):
    m, k, n = d.int(1, 5), d.int(1, 5), d.int(1, 5)
    scale = lambda high: np.float32(d.rng.uniform(0.01, high))
    inputs = []
    for shape in ([m, k], [k, n]):
        inputs += [quantised(d, shape, np.uint8), scale(0.1), np.array(d.int(100, 140), np.uint8)]
    return Case(op, inputs + [scale(0.5), np.array(d.int(100, 140), np.uint8)], atol=1.01)


@case("QLinearConv")
def qlinear_conv(d, op):
    groups, per_group, spatial, kernel, batch, outs = convolution(d, 2)
    scale = lambda: np.float32(d.rng.uniform(0.01, 0.05))
    inputs = [quantised(d, [batch, groups * per_group, *spatial], np.uint8), scale(), np.array(d.int(100, 140), np.uint8)]
    inputs += [quantised(d, [outs, per_group, *kernel], np.uint8), scale(), np.array(d.int(100, 140), np.uint8)]
    inputs += [np.float32(0.4), np.array(d.int(100, 140), np.uint8)]
    if d.chance(0.5):
        inputs.append(d.ints([outs], -50, 50, np.int32))
    return Case(op, inputs, {"group": groups, **windows(d, spatial, kernel)}, weights=(3,), atol=1.01)


@case("ConvInteger")
def conv_integer(d, op):
    groups, per_group, spatial, kernel, batch, outs = convolution(d, 2)
    inputs = [quantised(d, [batch, groups * per_group, *spatial], np.uint8), quantised(d, [outs, per_group, *kernel], np.uint8)]
    if d.chance(0.5):
        inputs.append(np.array(d.int(0, 9), np.uint8))
    return Case(op, inputs, {"group": groups, **windows(d, spatial, kernel)})


# Images, signals, boxes.


@case("Resize")
def resize(d, op):
    shape = [d.int(1, 2), d.int(1, 2), d.int(2, 6), d.int(2, 6)]
    mode = d.pick("nearest", "linear", "cubic")
    attributes = {"mode": mode}
    attributes["coordinate_transformation_mode"] = d.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    if mode == "nearest":
        attributes["nearest_mode"] = d.pick("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": d.pick(-0.75, -0.5), "exclude_outside": d.int(0, 1)}
    if mode != "nearest" and d.chance(0.3):
        attributes["antialias"] = 1
        attributes["coordinate_transformation_mode"] = "half_pixel"
    if d.chance(0.5):
        sizes = np.array([*shape[:2], d.int(1, 9), d.int(1, 9)], np.int64)
        return Case(op, [d.floats(shape), None, None, sizes], attributes, opset=19, rtol=1e-3, atol=1e-4)
    scales = np.array([1, 1, d.pick(0.5, 1.5, 2.0, 0.75), d.pick(0.5, 1.0, 2.0, 3.0)], np.float32)
    if attributes["coordinate_transformation_mode"] == "align_corners":
        # What the corners are is not clear where the scaled size is no whole number.
        scales = np.array([1, 1, d.pick(1.0, 2.0), d.pick(1.0, 2.0, 3.0)], np.float32)
    return Case(op, [d.floats(shape), None, scales], attributes, opset=19, rtol=1e-3, atol=1e-4)


@case("Upsample")
def upsample(d, op):
    scales = np.array([1, 1, d.pick(1, 2, 3), d.pick(1, 2, 3)], np.float32)
    return Case(op, [d.floats([1, 2, d.int(1, 4), d.int(1, 4)]), scales], {"mode": d.pick("nearest", "linear")}, opset=9)


@case("GridSample")
def grid_sample(d, op):
    x, grid = d.floats([d.int(1, 2), d.int(1, 2), d.int(2, 5), d.int(2, 5)]), None
    grid = d.floats([x.shape[0], d.int(1, 4), d.int(1, 4), 2], -1.3, 1.3)
    attributes = {"mode": d.pick("bilinear", "nearest", "bicubic"), "padding_mode": d.pick("zeros", "border", "reflection")}
    return Case(op, [x, grid], attributes | {"align_corners": d.int(0, 1)}, opset=16, rtol=1e-3, atol=1e-4)


@case("RoiAlign")
def roi_align(d, op):
    x = d.floats([2, d.int(1, 3), 8, 8])
    count = d.int(1, 3)
    corners = d.floats([count, 2], 0, 3)
    rois = np.concatenate([corners, corners + d.floats([count, 2], 1, 4)], 1)
    attributes = {"output_height": d.int(1, 3), "output_width": d.int(1, 3), "sampling_ratio": d.int(0, 3)}
    attributes |= {"mode": d.pick("avg", "max"), "spatial_scale": d.pick(1.0, 0.5)}
    attributes["coordinate_transformation_mode"] = d.pick("half_pixel", "output_half_pixel")
    return Case(op, [x, rois, d.ints([count], 0, 1)], attributes, opset=16)


@case("NonMaxSuppression")
def non_max_suppression(d, op):
    batch, count, classes = d.int(1, 2), d.int(1, 8), d.int(1, 3)
    corners = d.floats([batch, count, 2], 0, 4)
    boxes = np.concatenate([corners, corners + d.floats([batch, count, 2], 0.5, 4)], 2)
    inputs = [boxes, d.floats([batch, classes, count], 0, 1), np.array([d.int(1, 5)]), np.array([d.rng.uniform(0.1, 0.8)], np.float32)]
    if d.chance(0.5):
        inputs.append(np.array([0.3], np.float32))
    return Case(op, inputs, {"center_point_box": d.int(0, 1)})


@case("DFT")
def dft(d, op):
    onesided, inverse = (1, 0) if d.chance(0.3) else (0, d.int(0, 1))
    x = d.floats([d.int(1, 3), d.int(2, 8), 1 if onesided else d.pick(1, 2)])
    if inverse:
        x = d.floats([d.int(1, 3), d.int(2, 8), 2])
    return Case(op, [x], {"axis": 1, "onesided": onesided, "inverse": inverse}, opset=17, rtol=1e-3, atol=1e-4)


@case("STFT")
def stft(d, op):
    length = d.pick(4, 8)
    x = d.floats([d.int(1, 2), length * 2 + d.int(0, 5), 1])
    return Case(op, [x, np.array(d.int(1, 4)), d.floats([length], 0, 1), np.array(length)], {"onesided": d.int(0, 1)}, rtol=1e-3, atol=1e-4)


@case("Det")
def det(d, op):
    size = d.int(1, 4)
    return Case(op, [d.floats([*d.shape(0, 2, 3), size, size])], rtol=1e-3, atol=1e-3)


@case("AffineGrid")
def affine_grid(d, op):
    batch, volume = d.int(1, 3), d.chance(0.3)
    size = [batch, 2, *([d.int(1, 3)] if volume else []), d.int(2, 4), d.int(2, 4)]
    theta = d.floats([batch, 3, 4] if volume else [batch, 2, 3])
    # For a size of 1 ONNX Runtime and the standard's reference take opposite corners.
    corners = d.int(0, 1) if 1 not in size[2:] else 0
    return Case(op, [theta, np.array(size, np.int64)], {"align_corners": corners}, opset=20)


@case("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d, op):
    batch, classes, rest = d.int(1, 4), d.int(2, 5), d.shape(0, 2, 3)
    inputs = [d.floats([batch, classes, *rest]), d.ints([batch, *rest], 0, classes - 1)]
    attributes = {"reduction": d.pick("none", "mean", "sum")}
    if d.chance(0.5):
        inputs.append(d.floats([classes], 0.1, 1))
    if d.chance(0.4):
        attributes["ignore_index"] = d.int(0, classes - 1)
        inputs[1].reshape(-1)[0] = (attributes["ignore_index"] + 1) % classes
    return Case(op, inputs, attributes)

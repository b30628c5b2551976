"""Draws for ONNX Runtime's own operators, those of `com.microsoft`; see random_ops_cases.py."""

import numpy as np
from random_ops_cases import CASES, Case
from random_ops_networks import quantised, windows

DOMAIN = "com.microsoft"


def fused(*names):
    def register(draw_case):
        for name in names:

            def draw_fused(draw, name=name):
                drawn = draw_case(draw, name)
                drawn.domain = DOMAIN
                return drawn

            CASES[f"com.microsoft:{name}"] = draw_fused
        return draw_case

    return register


@fused("Gelu", "QuickGelu", "FastGelu", "BiasGelu")
def gelu(d, op):
    shape = d.shape(1, 3)
    inputs = [d.floats(shape)]
    if op == "BiasGelu" or op == "FastGelu" and d.chance(0.6):
        inputs.append(d.floats(shape[-1:]))
    return Case(op, inputs, {"alpha": 1.5} if op == "QuickGelu" else {}, atol=1e-4)


@fused("FusedMatMul")
def fused_matmul(d, op):
    batch, m, k, n = d.shape(1, 2, 3), d.int(1, 4), d.int(1, 4), d.int(1, 4)
    ta, tb = d.int(0, 1), d.int(0, 1)
    attributes = {"alpha": d.pick(1.0, 0.5), "transA": ta, "transB": tb}
    left, right = [*batch, *([k, m] if ta else [m, k])], [*batch, *([n, k] if tb else [k, n])]
    return Case(op, [d.floats(left), d.floats(right)], attributes)


@fused("FusedGemm")
def fused_gemm(d, op):
    m, k, n = d.int(1, 5), d.int(1, 5), d.int(1, 5)
    attributes = {"activation": d.pick("Relu", "LeakyRelu", "Tanh", "Sigmoid"), "activation_alpha": 0.125}
    return Case(op, [d.floats([m, k]), d.floats([k, n]), d.floats([n])], attributes)


@fused("FusedConv")
def fused_conv(d, op):
    inputs = [d.floats([1, 2, 6, 6]), d.floats([3, 2, 3, 3]), d.floats([3])]
    attributes = {"activation": d.pick("Relu", "LeakyRelu", "Tanh", "Sigmoid", "Clip", "HardSigmoid"), "pads": [1, 1, 1, 1]}
    if attributes["activation"] == "LeakyRelu":
        attributes["activation_params"] = [0.125]
    if attributes["activation"] == "Clip":
        attributes["activation_params"] = [-1.0, 2.0]
    if attributes["activation"] == "HardSigmoid":
        attributes["activation_params"] = [0.25, 0.5]
    if d.chance(0.3):
        inputs.append(d.floats([1, 3, 6, 6]))
    return Case(op, inputs, attributes)


@fused("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_layer_normalization(d, op):
    batch, length, size = d.int(1, 3), d.int(1, 4), d.pick(4, 8)
    inputs = [d.floats([batch, length, size]), d.floats([batch, length, size]), d.floats([size])]
    if op == "SkipLayerNormalization":
        inputs.append(d.floats([size]) if d.chance(0.6) else None)
    if d.chance(0.5):
        inputs.append(d.floats([size]))
    while inputs[-1] is None:
        inputs.pop()
    return Case(op, inputs, {"epsilon": 1e-3}, rtol=1e-3, atol=1e-4)


@fused("EmbedLayerNormalization")
def embed_layer_normalization(d, op):
    batch, length, size = d.int(1, 3), d.int(1, 4), d.pick(4, 8)
    segments = d.chance(0.6)
    inputs = [d.ints([batch, length], 0, 9, np.int32), d.ints([batch, length], 0, 1, np.int32) if segments else None]
    inputs += [d.floats([10, size]), d.floats([6, size]), d.floats([2, size]) if segments else None]
    inputs += [d.floats([size]), d.floats([size])]
    mask = (np.arange(length) < d.ints([batch, 1], 1, length)).astype(np.int32)
    if d.chance(0.5):
        inputs.append(mask)
    return Case(op, inputs, {"epsilon": 1e-3}, 2, rtol=1e-3, atol=1e-4)


@fused("Attention")
def attention(d, op):
    batch, length, heads, size = d.int(1, 2), d.int(1, 4), d.int(1, 3), d.pick(4, 8)
    hidden = heads * size
    inputs = [d.floats([batch, length, hidden], -1, 1), d.floats([hidden, 3 * hidden], -1, 1), d.floats([3 * hidden], -1, 1)]
    mask = d.pick(None, "keys", "lengths")
    if mask == "keys":
        inputs.append((np.arange(length) < d.ints([batch, 1], 1, length)).astype(np.int32))
    if mask == "lengths":
        inputs.append(d.ints([batch], 1, length, np.int32))
    return Case(op, inputs, {"num_heads": heads, "unidirectional": d.int(0, 1)}, rtol=1e-3, atol=1e-4)


@fused("MultiHeadAttention")
def multi_head_attention(d, op):
    batch, queries, keys, heads, size = d.int(1, 2), d.int(1, 4), d.int(1, 5), d.int(1, 3), d.pick(4, 8)
    hidden = heads * size
    inputs = [d.floats([batch, queries, hidden], -1, 1), d.floats([batch, keys, hidden], -1, 1), d.floats([batch, keys, hidden], -1, 1)]
    inputs.append(d.floats([3 * hidden], -1, 1) if d.chance(0.5) else None)
    inputs.append((np.arange(keys) < d.ints([batch, 1], 1, keys)).astype(np.int32) if d.chance(0.4) else None)
    inputs.append(d.floats([batch, heads, queries, keys]) if d.chance(0.3) else None)
    while inputs[-1] is None:
        inputs.pop()
    return Case(op, inputs, {"num_heads": heads} | ({"scale": 0.4} if d.chance(0.3) else {}), rtol=1e-3, atol=1e-4)


@fused("GroupQueryAttention")
def group_query_attention(d, op):
    batch, past, shared, size = d.int(1, 2), d.pick(0, 3), d.int(1, 2), d.pick(16, 32)
    length = 1 if past and batch > 1 else d.int(1, 4)
    heads = shared * d.int(1, 2)
    total = past + length
    inputs = [d.floats([batch, length, heads * size], -1, 1)]
    inputs += [d.floats([batch, length, shared * size], -1, 1) for _ in range(2)]
    inputs += [d.floats([batch, shared, past, size], -1, 1) for _ in range(2)]
    inputs += [np.full([batch], total - 1, np.int32), np.array(total, np.int32)]
    attributes = {"num_heads": heads, "kv_num_heads": shared}
    if d.chance(0.4):
        inputs += [d.floats([16, size // 2], -1, 1), d.floats([16, size // 2], -1, 1)]
        attributes |= {"do_rotary": 1, "rotary_interleaved": d.int(0, 1)}
    if d.chance(0.3):
        attributes["local_window_size"] = d.int(1, 3)
    if d.chance(0.3):
        attributes["softcap"] = 2.0
    return Case(op, inputs, attributes, 3, rtol=1e-3, atol=1e-4)


@fused("RotaryEmbedding")
def rotary(d, op):
    batch, heads, length, size = d.int(1, 2), d.int(1, 3), d.int(1, 4), d.pick(4, 8)
    places = d.ints([batch, length], 0, 7) if d.chance(0.5) else d.ints([1], 0, 3)
    caches = [d.floats([8, size // 2], -1, 1), d.floats([8, size // 2], -1, 1)]
    x = d.floats([batch, heads, length, size] if d.chance(0.5) else [batch, length, heads * size])
    return Case(op, [x, places, *caches], {"interleaved": d.int(0, 1)})


@fused("MatMulNBits")
def matmul_nbits(d, op):
    k, n, block, bits = d.pick(16, 32, 48), d.int(1, 6), d.pick(16, 32), 4
    blocks = -(-k // block)
    inputs = [d.floats([d.int(1, 3), k], -1, 1), d.ints([n, blocks, block * bits // 8], 0, 255, np.uint8), d.floats([n * blocks], 0.01, 0.2)]
    if d.chance(0.5):
        inputs.append(d.ints([n * ((blocks * bits + 7) // 8)], 0, 255, np.uint8))
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    return Case(op, inputs, attributes, weights=(1, 2, 3), rtol=1e-3, atol=1e-3)


# Quantised operators.


def scale(d, low=0.01, high=0.1):
    """Of powers of two many values lie in the middle of two codes: which of them is taken is part of the operator."""
    drawn = d.rng.uniform(low, high)
    return np.array(2.0 ** round(np.log2(drawn)) if d.chance(0.5) else drawn, np.float32)


def codes(d, shape, dtype=np.uint8):
    """Codes, scale and zero point."""
    return [quantised(d, shape, dtype), scale(d), np.array(d.int(0, 100), dtype)]


@fused("QLinearAdd", "QLinearMul")
def qlinear_binary(d, op):
    shape, dtype = d.shape(1, 3), d.pick(np.uint8, np.int8)
    inputs = [*codes(d, shape, dtype), *codes(d, d.broadcastable(shape), dtype), scale(d, 0.1, 0.3), np.array(d.int(0, 100), dtype)]
    return Case(op, inputs)


@fused("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax")
def qlinear_unary(d, op):
    shape, dtype = d.shape(1, 3), np.uint8
    attributes = {"QLinearLeakyRelu": {"alpha": 0.25}, "QLinearSoftmax": {"axis": -1, "opset": 13}}.get(op, {})
    result = [scale(d, 0.1, 0.2), np.array(9, dtype)] if op == "QLinearLeakyRelu" else [np.array(1 / 256, np.float32), np.array(0, dtype)]
    return Case(op, [*codes(d, shape, dtype), *result], attributes, weights=(1, 2, 3, 4))


@fused("QLinearAveragePool", "QLinearGlobalAveragePool")
def qlinear_pool(d, op):
    last, kernel, spatial = d.int(0, 1), [d.int(1, 3), d.int(1, 3)], [d.int(4, 7), d.int(4, 7)]
    channels = d.int(1, 3)
    x = codes(d, [d.int(1, 2), *spatial, channels] if last else [d.int(1, 2), channels, *spatial])
    attributes = {"channels_last": last}
    if op == "QLinearAveragePool":
        attributes |= {"kernel_shape": kernel, "count_include_pad": d.int(0, 1), **windows(d, spatial, kernel)}
        attributes.pop("dilations", None)
    return Case(op, [*x, scale(d), np.array(d.int(0, 100), np.uint8)], attributes)


@fused("QLinearConcat")
def qlinear_concat(d, op):
    shape = d.shape(2, 3)
    axis = d.axis(len(shape))
    parts = []
    for _ in range(d.int(1, 3)):
        own = list(shape)
        own[axis] = d.int(1, 3)
        parts += codes(d, own)
    positions = tuple(range(len(parts) + 2))
    weights = tuple(p for p in positions if p < 2 or p % 3 != 2)
    return Case(op, [scale(d), np.array(d.int(0, 100), np.uint8), *parts], {"axis": axis}, weights=weights)


@fused("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(d, op):
    m, k, n = d.int(1, 5), d.int(1, 5), d.int(1, 5)
    kind = d.pick(np.uint8, np.int8)
    inputs = [d.floats([m, k]), quantised(d, [k, n], kind), scale(d), np.array(d.int(0, 9), kind) if d.chance(0.6) else None]
    if d.chance(0.4):
        inputs.append(d.floats([n]))
    elif inputs[-1] is None:
        inputs.pop()
    return Case(op, inputs, rtol=1e-3, atol=1e-3)


@fused("MatMulIntegerToFloat")
def matmul_integer_to_float(d, op):
    m, k, n = d.int(1, 5), d.int(1, 5), d.int(1, 5)
    per_column = d.chance(0.4)
    scales = [scale(d), d.floats([n], 0.01, 0.1) if per_column else scale(d)]
    zeros = [np.array(d.int(0, 9), np.uint8), d.ints([n], 0, 9, np.uint8) if per_column else np.array(d.int(0, 9), np.uint8)]
    inputs = [quantised(d, [m, k], np.uint8), quantised(d, [k, n], np.uint8), *scales, *zeros]
    return Case(op, inputs + ([d.floats([n])] if d.chance(0.5) else []), rtol=1e-3, atol=1e-3)


@fused("NhwcMaxPool")
def nhwc_max_pool(d, op):
    kernel, spatial = [d.int(1, 3), d.int(1, 3)], [d.int(4, 7), d.int(4, 7)]
    attributes = {"kernel_shape": kernel, **windows(d, spatial, kernel)}
    if "auto_pad" in attributes:
        attributes.pop("dilations", None)
    return Case(op, [quantised(d, [d.int(1, 2), *spatial, d.int(1, 3)], d.pick(np.uint8, np.int8))], attributes)


@fused("QGemm")
def qgemm(d, op):
    m, k, n = d.int(1, 5), d.int(1, 5), d.int(1, 5)
    ta, tb = d.int(0, 1), d.int(0, 1)
    inputs = [*codes(d, [k, m] if ta else [m, k]), *codes(d, [n, k] if tb else [k, n])]
    if d.chance(0.4):
        inputs[4:] = [d.floats([n], 0.01, 0.1), d.ints([n], 0, 9, inputs[3].dtype.type)]
    inputs.append(d.ints([n], -5000, 5000, np.int32) if d.chance(0.5) else None)
    if d.chance(0.5):
        inputs += [scale(d, 0.03, 0.6), np.array(d.int(0, 100), np.uint8)]
    elif inputs[-1] is None:
        inputs.pop()
    attributes = {"transA": ta, "transB": tb, "alpha": d.pick(1.0, 0.5)}
    return Case(op, inputs, attributes)


@fused("QuantizeLinear", "DequantizeLinear")
def quantize(d, op):
    shape = d.shape(1, 3)
    x = d.floats(shape) if op == "QuantizeLinear" else quantised(d, shape, np.uint8)
    return Case(op, [x, scale(d), np.array(d.int(0, 100), np.uint8)])


@fused("QAttention")
def qattention(d, op):
    batch, length, heads, size = d.int(1, 2), d.int(1, 4), d.int(1, 3), d.pick(4, 8)
    hidden, kind = heads * size, d.pick(np.uint8, np.int8)
    mask = [d.ints([batch], 1, length, np.int32)] if d.chance(0.5) else [None]
    zeros = [np.array(d.int(0, 255), np.uint8), np.array(d.int(0, 100), kind)]
    inputs = [quantised(d, [batch, length, hidden], np.uint8), quantised(d, [hidden, 3 * hidden], kind), d.floats([3 * hidden])]
    inputs += [scale(d, 0.001, 0.02), scale(d, 0.001, 0.02), *mask, *zeros]
    return Case(op, inputs, {"num_heads": heads, "unidirectional": d.int(0, 1)}, weights=(1, 2), rtol=1e-3, atol=1e-4)


@fused("QEmbedLayerNormalization")
def qembed_layer_normalization(d, op):
    batch, length, words, hidden = d.int(1, 2), d.int(1, 5), d.int(2, 9), d.int(2, 9)
    ids = [d.ints([batch, length], 0, words - 1, np.int32), d.ints([batch, length], 0, 1, np.int32)]
    tables = [quantised(d, shape, np.uint8) for shape in ([words, hidden], [length, hidden], [2, hidden], [hidden], [hidden])]
    zeros = [np.array(d.int(0, 255), np.uint8) for _ in tables]
    inputs = [*ids, *tables, d.bools([batch, length]).astype(np.int32), *(scale(d) for _ in tables), *zeros]
    return Case(op, inputs, {"epsilon": 1e-3}, 2, weights=tuple(range(2, 7)), rtol=1e-3, atol=1e-4)

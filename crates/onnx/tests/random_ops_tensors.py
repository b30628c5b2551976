"""Draws for operators element by element, on layouts, reductions and indices; see random_ops_cases.py."""

import numpy as np
from random_ops_cases import Case, case

# Element by element.

RANGES = {"Acos": (-1, 1), "Asin": (-1, 1), "Atanh": (-0.95, 0.95), "Acosh": (1, 5), "Log": (0.01, 9), "Sqrt": (0, 9)}
UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Neg Reciprocal Round Sign Sin Sinh
Sqrt Tan Tanh Relu Sigmoid Softplus Softsign HardSwish Mish""".split()


@case(*UNARY)
def unary(d, op):
    low, high = RANGES.get(op, (-4, 4))
    dtype = d.float_type() if op not in ("Sinh", "Cosh", "Tan", "Acosh", "Asinh", "Atanh", "Asin", "Acos") else np.float32
    x = d.floats(d.shape(0, 4), low, high, dtype)
    if op in ("Round", "Floor", "Ceil") and d.chance(0.5):
        x = np.round(x * 2) / 2
    return Case(op, [x.astype(dtype)])


@case("IsInf", "IsNaN")
def classify(d, op):
    attributes = {}
    if op == "IsInf":
        attributes = {"detect_negative": d.int(0, 1), "detect_positive": d.int(0, 1)}
    return Case(op, [d.specials(d.floats(d.shape(1, 3)))], attributes)


@case("Celu", "Elu", "LeakyRelu", "ThresholdedRelu", "Selu", "HardSigmoid", "Shrink", "Gelu", "Swish")
def activation(d, op):
    attributes = {}
    if op in ("Celu", "Elu", "LeakyRelu", "ThresholdedRelu", "Swish"):
        attributes["alpha"] = float(np.float32(d.rng.uniform(0.1, 2)))
    if op == "Selu":
        attributes = {"alpha": 1.5, "gamma": 0.75}
    if op == "HardSigmoid":
        attributes = {"alpha": 0.25, "beta": 0.375}
    if op == "Shrink":
        attributes = {"lambd": 0.75, "bias": d.pick(0.0, 0.25)}
    if op == "Gelu":
        attributes = {"approximate": d.pick("none", "tanh")}
    return Case(op, [d.floats(d.shape(0, 4))], {} if d.chance(0.2) else attributes, opset=24 if op == "Swish" else None)


@case("Softmax", "LogSoftmax", "Hardmax")
def softmax(d, op):
    shape = d.shape(1, 4)
    opset = d.pick(11, 13, 23)
    dtype = d.float_type() if op == "Softmax" else np.float32
    return Case(op, [d.floats(shape, dtype=dtype)], {"axis": d.axis(len(shape))} if d.chance(0.7) else {}, opset=opset)


@case("PRelu")
def prelu(d, op):
    shape = d.shape(1, 4)
    return Case(op, [d.floats(shape), d.floats([s if d.chance(0.6) else 1 for s in shape])])


NUMBERS = (np.float32, np.float32, np.float16, np.int32, np.int64)


@case("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Pow")
def arithmetic(d, op):
    shape = d.shape(0, 4)
    dtype = d.pick(*NUMBERS)
    x, y = d.numbers(shape, dtype), d.numbers(d.broadcastable(shape), dtype)
    attributes = {}
    if op in ("Div", "Mod"):
        y = np.where(y == 0, np.ones_like(y), y)
    if op == "Mod":
        attributes = {"fmod": 1 if np.issubdtype(dtype, np.floating) else d.int(0, 1)}
        if np.issubdtype(dtype, np.floating):
            x, y = x.astype(np.float32), y.astype(np.float32)
    if op == "Pow":
        x, y = np.abs(x) + np.ones_like(x), np.abs(y)
    if op in ("Max", "Min") and dtype == np.float32 and d.chance(0.4):
        x = d.specials(x)
    if d.chance(0.3):
        x, y = (x, y) if op == "Pow" else (y, x) if op not in ("Div", "Mod") else (x, y)
    return Case(op, [x, y], attributes)


@case("Sum", "Mean")
def variadic(d, op):
    shape = d.shape(1, 3)
    return Case(op, [d.floats(shape)] + [d.floats(d.broadcastable(shape)) for _ in range(d.int(0, 3))])


@case("And", "Or", "Xor", "Not")
def logic(d, op):
    shape = d.shape(0, 3)
    inputs = [d.bools(shape)] + ([] if op == "Not" else [d.bools(d.broadcastable(shape))])
    return Case(op, inputs)


@case("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
def bits(d, op):
    shape, dtype = d.shape(0, 3), d.pick(np.int32, np.int64, np.uint8, np.int8, np.uint16)
    low = 0 if np.issubdtype(dtype, np.unsignedinteger) else -100
    inputs = [d.ints(shape, low, 100, dtype)]
    return Case(op, inputs if op == "BitwiseNot" else inputs + [d.ints(d.broadcastable(shape), low, 100, dtype)])


@case("BitShift")
def bit_shift(d, op):
    shape, dtype = d.shape(0, 3), d.pick(np.uint8, np.uint32, np.uint64)
    return Case(op, [d.ints(shape, 0, 200, dtype), d.ints(shape, 0, 7, dtype)], {"direction": d.pick("LEFT", "RIGHT")})


@case("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def compare(d, op):
    shape, dtype = d.shape(0, 3), d.pick(np.float32, np.int32, np.int64)
    x, y = d.ints(shape, -2, 2, dtype), d.ints(d.broadcastable(shape), -2, 2, dtype)
    return Case(op, [d.specials(x) if dtype == np.float32 else x, y])


@case("Where")
def where(d, op):
    shape, dtype = d.shape(1, 3), d.pick(np.float32, np.int64, np.uint8)
    return Case(op, [d.bools(d.broadcastable(shape)), d.numbers(shape, dtype), d.numbers(d.broadcastable(shape), dtype)])


@case("Clip")
def clip(d, op):
    dtype = d.pick(np.float32, np.int32, np.float16)
    low, high = np.array(-1, dtype), np.array(2, dtype)
    inputs = [d.numbers(d.shape(0, 3), dtype), low if d.chance(0.8) else None, high if d.chance(0.8) else None]
    return Case(op, inputs)


@case("Cast")
def cast(d, op):
    kinds = {1: np.float32, 10: np.float16, 6: np.int32, 7: np.int64, 9: np.bool_, 2: np.uint8, 3: np.int8, 11: np.float64}
    source = d.pick(*kinds.values())
    to = d.pick(*kinds)
    unsigned = to == 2 or source == np.uint8
    x = d.rng.uniform(0 if unsigned else -100, 100, d.shape(0, 3))
    return Case(op, [x.astype(source)], {"to": to})


@case("CastLike")
def cast_like(d, op):
    kinds = (np.float32, np.float16, np.int32, np.int64, np.uint8)
    return Case(op, [d.floats(d.shape(0, 3), 0, 50, np.float32).astype(d.pick(*kinds)), np.zeros([1], d.pick(*kinds))])


@case("Identity", "Dropout")
def identity(d, op):
    return Case(op, [d.numbers(d.shape(0, 3), np.float32, np.float16)])


# Layout.


@case("Concat")
def concat(d, op):
    shape, dtype = d.shape(1, 4), d.pick(np.float32, np.int64, np.float16)
    axis = d.axis(len(shape))
    inputs = []
    for _ in range(d.int(1, 4)):
        own = list(shape)
        own[axis] = d.int(0 if d.chance(0.1) else 1, 4)
        inputs.append(d.numbers(own, dtype))
    return Case(op, inputs, {"axis": axis})


@case("Reshape")
def reshape(d, op):
    shape = d.shape(1, 4)
    target = [int(np.prod(shape))]
    while d.chance(0.6):
        size = target.pop()
        divisors = [k for k in range(1, size + 1) if size % k == 0]
        part = d.pick(*divisors)
        target += [part, size // part]
    if d.chance(0.5):
        target[d.int(0, len(target) - 1)] = -1
    return Case(op, [d.floats(shape), np.array(target, np.int64)])


@case("Expand")
def expand(d, op):
    shape = d.shape(1, 4)
    return Case(op, [d.numbers(d.broadcastable(shape), np.float32, np.int64), np.array(shape, np.int64)])


@case("Flatten")
def flatten(d, op):
    shape = d.shape(1, 4)
    return Case(op, [d.floats(shape)], {"axis": d.int(-len(shape), len(shape))} if d.chance(0.8) else {})


@case("Transpose")
def transpose(d, op):
    shape = d.shape(1, 5)
    perm = [int(axis) for axis in d.rng.permutation(len(shape))]
    return Case(op, [d.numbers(shape, np.float32, np.int64, np.float16)], {"perm": perm} if d.chance(0.8) else {})


@case("Squeeze")
def squeeze(d, op):
    shape = [d.pick(1, 1, 3) for _ in range(d.int(1, 4))]
    ones = [axis - (len(shape) if d.chance(0.3) else 0) for axis, size in enumerate(shape) if size == 1]
    axes = np.array(ones, np.int64) if ones and d.chance(0.7) else None
    return Case(op, [d.floats(shape)] + ([axes] if axes is not None else []))


@case("Unsqueeze")
def unsqueeze(d, op):
    shape = d.shape(0, 3)
    rank = len(shape) + d.int(1, 2)
    axes = [int(a) - (rank if d.chance(0.3) else 0) for a in d.rng.permutation(rank)[: rank - len(shape)]]
    return Case(op, [d.floats(shape), np.array(axes, np.int64)])


@case("Slice")
def slice_op(d, op):
    shape = d.shape(1, 4, 6)
    axes = d.axes(len(shape))
    starts = [d.int(-8, 8) for _ in axes]
    steps = [d.pick(1, 1, 2, -1, -2) for _ in axes]
    # The largest number means "to the end" to ONNX Runtime also where steps go backwards.
    ends = [d.pick(-7, -1, 0, 2, 5, 2**31 if step > 0 else -(2**31)) for step in steps]
    kind = d.pick(np.int64, np.int32)
    arrays = [np.clip(np.array(v, np.int64), -(2**31), 2**31 - 1).astype(kind) for v in (starts, ends, axes, steps)]
    return Case(op, [d.numbers(shape, np.float32, np.int64), *arrays])


@case("Split")
def split(d, op):
    shape = d.shape(1, 3, 6, 2)
    axis = d.axis(len(shape))
    if d.chance(0.5):
        first = d.int(0, shape[axis])
        return Case(op, [d.floats(shape), np.array([first, shape[axis] - first], np.int64)], {"axis": axis}, 2)
    return Case(op, [d.floats(shape)], {"axis": axis, "num_outputs": 2}, 2)


@case("Tile")
def tile(d, op):
    shape = d.shape(1, 3)
    return Case(op, [d.numbers(shape, np.float32, np.int64), d.ints([len(shape)], 0 if d.chance(0.1) else 1, 3)])


@case("Pad")
def pad(d, op):
    shape = d.shape(1, 4, 5, 3)
    mode = d.pick("constant", "constant", "reflect", "edge", "wrap")
    low = -1 if mode == "constant" else 0
    pads = d.ints([2 * len(shape)], low, 2)
    inputs = [d.floats(shape), pads]
    if mode == "constant" and d.chance(0.7):
        inputs.append(np.array(1.5, np.float32))
    elif mode != "constant" and d.chance(0.3):
        axes = d.axes(len(shape))
        inputs = [inputs[0], d.ints([2 * len(axes)], 0, 2), None, np.array(axes, np.int64)]
    return Case(op, inputs, {"mode": mode})


@case("DepthToSpace", "SpaceToDepth")
def blocks(d, op):
    block = d.int(1, 3)
    n, c, h, w = d.int(1, 2), d.int(1, 2), d.int(1, 3), d.int(1, 3)
    if op == "DepthToSpace":
        return Case(op, [d.floats([n, c * block * block, h, w])], {"blocksize": block, "mode": d.pick("DCR", "CRD")})
    return Case(op, [d.floats([n, c, h * block, w * block])], {"blocksize": block})


@case("ReverseSequence")
def reverse_sequence(d, op):
    shape, time = d.shape(2, 4), d.int(0, 1)
    lengths = d.ints([shape[1 - time]], 1, shape[time])
    return Case(op, [d.floats(shape), lengths], {"time_axis": time, "batch_axis": 1 - time})


@case("CenterCropPad")
def center_crop_pad(d, op):
    shape = d.shape(1, 3)
    axes = sorted(axis % len(shape) for axis in d.axes(len(shape)))
    return Case(op, [d.floats(shape), d.ints([len(axes)], 1, 7)], {"axes": axes})


@case("Trilu")
def trilu(d, op):
    return Case(op, [d.numbers(d.shape(2, 4), np.float32, np.int64), np.array(d.int(-3, 3))], {"upper": d.int(0, 1)})


@case("Shape", "Size")
def sizes(d, op):
    shape = d.shape(0, 4)
    attributes = {"start": d.int(-3, 3), "end": d.int(-3, 4)} if op == "Shape" and d.chance(0.6) else {}
    return Case(op, [d.floats(shape)], attributes)


# Values from nothing.


@case("ConstantOfShape")
def constant_of_shape(d, op):
    from onnx import numpy_helper

    value = d.numbers([1], np.float32, np.int64, np.int32)
    return Case(op, [np.array(d.shape(1, 3), np.int64)], {"value": numpy_helper.from_array(value)} if d.chance(0.7) else {})


@case("EyeLike")
def eye_like(d, op):
    return Case(op, [d.floats([d.int(1, 5), d.int(1, 5)])], {"k": d.int(-2, 2), "dtype": d.pick(1, 6, 7)})


@case("OneHot")
def one_hot(d, op):
    shape, depth = d.shape(1, 3), d.int(1, 5)
    values = d.numbers([2], np.float32, np.int64)
    inputs = [d.ints(shape, -depth, depth - 1), np.array(depth, np.int64), values]
    return Case(op, inputs, {"axis": d.int(-len(shape) - 1, len(shape))})


@case("Range")
def range_op(d, op):
    dtype = d.pick(np.int64, np.int32, np.float32)
    delta = np.array(d.pick(1, 2, -1, -3), dtype)
    return Case(op, [np.array(d.int(-5, 5), dtype), np.array(d.int(-9, 9), dtype), delta])


@case("HannWindow", "HammingWindow", "BlackmanWindow")
def window(d, op):
    return Case(op, [np.array(d.int(2, 12))], {"periodic": d.int(0, 1)}, atol=1e-5)


# Reductions and order.

REDUCTIONS = """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare""".split()


@case(*REDUCTIONS)
def reduction(d, op):
    shape = d.shape(1, 4)
    attributes = {"keepdims": d.int(0, 1)}
    dtype = d.pick(np.float32, np.float32, np.int32) if op not in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2") else np.float32
    x = d.numbers(shape, dtype)
    if op == "ReduceLogSum":
        x = np.abs(x) + np.float32(0.1)
    axes = d.axes(len(shape))
    if d.chance(0.3):
        attributes["axes"] = axes
        return Case(op, [x], attributes, opset=12)
    inputs = [x, np.array(axes, np.int64)] if d.chance(0.8) else [x]
    if len(inputs) == 1:
        attributes["noop_with_empty_axes"] = d.int(0, 1)
    return Case(op, inputs, attributes, opset=20)


@case("ArgMax", "ArgMin")
def arg(d, op):
    shape = d.shape(1, 4)
    attributes = {"axis": d.axis(len(shape)), "keepdims": d.int(0, 1), "select_last_index": d.int(0, 1)}
    return Case(op, [d.ints(shape, -2, 2, d.pick(np.float32, np.int32))], attributes)


@case("CumSum")
def cum_sum(d, op):
    shape = d.shape(1, 4)
    attributes = {"exclusive": d.int(0, 1), "reverse": d.int(0, 1)}
    return Case(op, [d.numbers(shape, np.float32, np.int64), np.array(d.axis(len(shape)))], attributes)


@case("TopK")
def top_k(d, op):
    shape = d.shape(1, 3, 6)
    axis = d.axis(len(shape))
    x = d.rng.permutation(int(np.prod(shape))).reshape(shape).astype(d.pick(np.float32, np.int64))
    attributes = {"axis": axis, "largest": d.int(0, 1), "sorted": 1}
    return Case(op, [x, np.array([d.int(1, shape[axis])])], attributes, 2)


# Indices.


@case("Gather")
def gather(d, op):
    shape = d.shape(1, 4)
    axis = d.axis(len(shape))
    indices = d.ints(d.shape(0, 2), -shape[axis], shape[axis] - 1, d.pick(np.int64, np.int32))
    return Case(op, [d.numbers(shape, np.float32, np.int64), indices], {"axis": axis})


@case("GatherElements")
def gather_elements(d, op):
    shape = d.shape(1, 3)
    axis = d.axis(len(shape))
    own = [d.int(1, size) for size in shape]
    own[axis] = d.int(1, 6)
    return Case(op, [d.floats(shape), d.ints(own, -shape[axis], shape[axis] - 1)], {"axis": axis})


def nd_indices(d, shape, batch=0):
    depth = d.int(1, len(shape) - batch)
    lead = shape[:batch] + d.shape(0 if batch else 1, 2, 3)
    columns = [d.ints(lead, -shape[batch + k], shape[batch + k] - 1) for k in range(depth)]
    return np.stack(columns, -1), depth


@case("GatherND")
def gather_nd(d, op):
    shape = d.shape(2, 4)
    batch = d.int(0, 1)
    return Case(op, [d.floats(shape), nd_indices(d, shape, batch)[0]], {"batch_dims": batch})


@case("ScatterElements")
def scatter_elements(d, op):
    shape = d.shape(1, 3)
    axis = d.axis(len(shape))
    reduction = d.pick("none", "add", "mul", "max", "min")
    own = [d.int(1, size) for size in shape]
    if reduction == "none":
        # Without repeated places.
        line = d.rng.permutation(shape[axis])[: own[axis]]
        form = [1] * len(shape)
        form[axis] = own[axis]
        indices = np.broadcast_to(line.reshape(form), own).astype(np.int64)
    else:
        indices = d.ints(own, -shape[axis], shape[axis] - 1)
    return Case(op, [d.floats(shape), indices, d.floats(own)], {"axis": axis, "reduction": reduction}, opset=18)


@case("Scatter")
def scatter(d, op):
    rows, columns = d.int(2, 5), d.int(1, 4)
    count = d.int(1, rows)
    indices = np.stack([d.rng.permutation(rows)[:count] for _ in range(columns)], 1)
    return Case(op, [d.floats([rows, columns]), indices, d.floats([count, columns])], {"axis": 0}, opset=10)


@case("ScatterND")
def scatter_nd(d, op):
    shape = d.shape(1, 3)
    reduction = d.pick("none", "add", "mul", "max", "min")
    indices, depth = nd_indices(d, shape)
    if reduction == "none":
        indices = indices.reshape(-1, depth)[:1]
    return Case(op, [d.floats(shape), indices, d.floats(list(indices.shape[:-1]) + shape[depth:])], {"reduction": reduction}, opset=18)


@case("Compress")
def compress(d, op):
    shape = d.shape(1, 3)
    if d.chance(0.3):
        return Case(op, [d.floats(shape), d.bools([d.int(1, int(np.prod(shape)))])])
    axis = d.axis(len(shape))
    return Case(op, [d.floats(shape), d.bools([d.int(1, shape[axis])])], {"axis": axis})


@case("NonZero")
def non_zero(d, op):
    return Case(op, [d.ints(d.shape(1, 3), 0, 1, d.pick(np.float32, np.int64, np.bool_))])


@case("Unique")
def unique(d, op):
    shape = d.shape(1, 3)
    attributes = {"sorted": d.int(0, 1)}
    if d.chance(0.5):
        attributes["axis"] = d.axis(len(shape))
    return Case(op, [d.ints(shape, 0, 3, d.pick(np.float32, np.int64))], attributes, 4)

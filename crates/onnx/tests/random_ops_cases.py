"""What random_ops.py draws for each operator: operands, attributes, version. `com.microsoft:` stands before
the names of ONNX Runtime's own operators (random_ops_fused.py)."""

import dataclasses

import numpy as np

CASES = {}


@dataclasses.dataclass
class Case:
    op: str
    inputs: list
    attributes: dict = dataclasses.field(default_factory=dict)
    outputs: int = 1
    opset: int | None = None
    domain: str = ""
    # Positions of operands that must be initializers.
    weights: tuple = ()
    rtol: float | None = None
    atol: float | None = None
    # From x0, x1, … to y0, …, instead of the operator alone.
    nodes: list | None = None


class Draw:
    def __init__(self, rng):
        self.rng = rng

    def chance(self, p):
        return self.rng.random() < p

    def int(self, low, high):
        """Both ends included."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, *items):
        return items[self.int(0, len(items) - 1)]

    def shape(self, low=1, high=4, largest=5, smallest=1):
        return [self.int(smallest, largest) for _ in range(self.int(low, high))]

    def axis(self, rank):
        return self.int(-rank, rank - 1)

    def axes(self, rank, least=1):
        count = self.int(least, rank)
        axes = self.rng.permutation(rank)[:count]
        return [int(axis) - (rank if self.chance(0.3) else 0) for axis in axes]

    def float_type(self):
        return self.pick(np.float32, np.float32, np.float32, np.float16)

    def floats(self, shape, low=-3.0, high=3.0, dtype=np.float32):
        return self.rng.uniform(low, high, shape).astype(dtype)

    def ints(self, shape, low, high, dtype=np.int64):
        return self.rng.integers(low, high + 1, shape).astype(dtype)

    def bools(self, shape):
        return self.rng.random(shape) < 0.5

    def specials(self, array):
        """Infinities, NaN and signed zeros at some places."""
        flat = array.reshape(-1)
        for value in (np.inf, -np.inf, np.nan, 0.0, -0.0):
            if flat.size and self.chance(0.5):
                flat[self.int(0, flat.size - 1)] = value
        return array

    def numbers(self, shape, *dtypes):
        dtype = self.pick(*dtypes)
        if np.issubdtype(dtype, np.floating):
            return self.floats(shape, dtype=dtype)
        low = 0 if np.issubdtype(dtype, np.unsignedinteger) else -6
        return self.ints(shape, low, 6, dtype)

    def broadcastable(self, shape):
        """A shape that broadcasts to or with the given one."""
        own = [size if self.chance(0.7) else 1 for size in shape]
        return own[self.int(0, len(own)) :] if self.chance(0.4) else own


def case(*names):
    def register(draw_case):
        for name in names:
            CASES[name] = lambda draw, name=name: draw_case(draw, name)
        return draw_case

    return register


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


import random_ops_control  # noqa: E402, F401  adds operators with subgraphs
import random_ops_fused  # noqa: E402, F401  adds com.microsoft's operators
import random_ops_quantised  # noqa: E402, F401  adds operators between codes

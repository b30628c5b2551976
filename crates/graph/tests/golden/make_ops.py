"""Writes tests/ops/*.graph at the workspace root: one small program per op or variety, with expected
values from NumPy (f64 arithmetic, one rounding at the end, as the evaluator defines it).

Needs only numpy. Deterministic: run it again and `git diff` shows nothing.
    python crates/graph/tests/golden/make_ops.py
Not here: tests/ops/errors, which are written by hand.
"""
import itertools
import math
import pathlib

import numpy as np

OUT = pathlib.Path(__file__).resolve().parents[4] / "tests" / "ops"
NUMPY = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32,
         "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
         "bool": np.bool_}
FLOATS = ("f32", "f16", "bf16", "f143", "f152")
rng = np.random.default_rng(20240607)
inf, nan = math.inf, math.nan


class T:
    """A tensor of an element type. bf16 and the 8-bit floats are kept in f64; their values must be exact."""

    def __init__(self, dtype, values):
        self.dtype = dtype
        with np.errstate(all="ignore"):
            self.a = np.asarray(values, dtype=NUMPY.get(dtype, np.float64))

    @property
    def ty(self):
        return f"{self.dtype}[{','.join(map(str, self.a.shape))}]"

    @property
    def f(self):
        """f64 for float types; Python integers, which do not overflow, for the others."""
        return self.a.astype(np.float64) if self.dtype in FLOATS else self.a.astype(object)

    def element(self, x):
        if self.dtype == "bool":
            return "true" if x else "false"
        if self.dtype not in FLOATS:
            return str(int(x))
        if np.isnan(x):
            return "nan"
        if np.isinf(x):
            return "inf" if x > 0 else "-inf"
        if x == 0 and np.signbit(x):
            return "-0.0"
        return str(int(x)) if float(x).is_integer() and abs(float(x)) < 1e15 else str(x)

    def __str__(self):
        return f"{self.ty} [{', '.join(self.element(x) for x in self.a.reshape(-1))}]"


def wrap(dtype, values):
    """Integers modulo the width; floats rounded once."""
    values = np.asarray(values)
    if dtype in FLOATS or dtype == "bool":
        return T(dtype, values)
    info = np.iinfo(NUMPY[dtype])
    span = int(info.max) - int(info.min) + 1
    flat = [(int(v) - int(info.min)) % span + int(info.min) for v in values.reshape(-1)]
    return T(dtype, np.array(flat, dtype=NUMPY[dtype]).reshape(values.shape))


def small(dtype, *shape):
    """Multiples of 1/4 (or small integers), exact in every type."""
    n = int(np.prod(shape, dtype=int))
    low = 0 if dtype[0] == "u" or dtype == "bool" else -6
    high = 2 if dtype == "bool" else 7
    values = rng.integers(low, high, n).reshape(shape)
    return T(dtype, values / 4 if dtype in FLOATS else values)


class Case:
    """A function of one op, and a run of it."""

    def __init__(self, func, op, args, results, attrs="", consts=""):
        self.func, self.args = func, args
        self.results = results if isinstance(results, list) else [results]
        params = ", ".join(f"%a{i}: {x.ty}" for i, x in enumerate(args))
        types = ", ".join(r.ty for r in self.results)
        names = ", ".join(f"%r{i}" for i in range(len(self.results)))
        operands = ", ".join(f"%a{i}" for i in range(len(args)))
        line = " ".join(part for part in (op, operands, attrs) if part)
        self.text = f"{consts}func @{func}({params}) -> {types} {{\n  {names} = {line} : {types}\n  return {names}\n}}\n"

    @property
    def run(self):
        args = ", ".join(map(str, self.args))
        return f"; run: @{self.func}({args}) == {', '.join(map(str, self.results))}"


class Text:
    """A program written out, with runs of its functions."""

    def __init__(self, text, *runs):
        self.text = text.strip("\n") + "\n"
        self.run = "\n".join(f"; run: @{f}({', '.join(map(str, args))}) == {', '.join(map(str, results))}"
                             for f, args, results in runs)


def write(name, about, *cases, tolerance=None):
    lines = [f"; {about}"]
    lines += [case.run for case in cases]
    if tolerance is not None:
        lines.append(f"; tolerance: {tolerance}")
    text = "\n".join(lines) + "\n\n" + "\n".join(case.text for case in cases)
    (OUT / f"{name}.graph").write_text(text)


def vector(f):
    return lambda *args: np.array([f(*xs) for xs in zip(*(a.reshape(-1) for a in args))], dtype=object).reshape(args[0].shape)


# --- elementwise -----------------------------------------------------------------------------------

def unary():
    erf = vector(lambda x: math.erf(x))
    floats = {
        "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
        "round": np.rint, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
        "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": lambda x: erf(x).astype(float),
    }
    exact = {"neg", "abs", "sign", "floor", "ceil", "round", "sqrt"}
    for name, f in floats.items():
        domain = {"log": [[0.25, 1, 2, 0], [10, 1e-3, inf, -1]], "sqrt": [[0, 1, 2, 0.25], [1e-4, 9, inf, -1]],
                  "log1p": [[-0.5, 0, 1e-6, -1], [1, 10, inf, -2]]}
        usual = [[-2.5, -1, -0.5, 0], [0.5, 1.5, 3, nan]]
        x = T("f32", domain.get(name, usual))
        half = T("f16", np.abs(x.a.astype(np.float64)) if name in domain else x.a)
        with np.errstate(all="ignore"):
            cases = [Case("main", name, [x], T("f32", f(x.f))), Case("half", name, [half], T("f16", f(half.f)))]
            if name in ("neg", "abs", "sign"):
                i = T("i32", [-2147483648, -7, 0, 5])
                cases.append(Case("int", name, [i], wrap("i32", vector({"neg": lambda v: -v, "abs": abs, "sign": lambda v: (v > 0) - (v < 0)}[name])(i.f))))
        write(f"unary_{name}", f"{name}, element by element", *cases, tolerance=None if name in exact else 1e-6 if name != "erf" else 2e-6)
    write("unary_half_tolerance", "exp in f16 rounds once from f64",
          Case("main", "exp", [T("f16", [-3, 0, 1, 2.5])], T("f16", np.exp(np.array([-3, 0, 1, 2.5])))), tolerance=1e-3)
    b, i, u = T("bool", [True, False]), T("i8", [-128, -1, 0, 5]), T("u8", [0, 1, 255])
    write("unary_not", "not: logical on bool, bitwise on integers",
          Case("main", "not", [b], T("bool", [False, True])), Case("signed", "not", [i], T("i8", [127, 0, -1, -6])),
          Case("unsigned", "not", [u], T("u8", [255, 254, 0])))


def trunc_div(a, b):
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def int_pow(a, b):
    if b >= 0:
        return a ** b
    return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)


def bit_shift(left, width, signed):
    def f(a, b):
        b = b if 0 <= b <= width else width
        return a << b if left else a >> b
    return f


def binary():
    floats = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rem": np.fmod,
              "pow": np.power, "atan2": np.arctan2, "max": np.maximum, "min": np.minimum}
    ints = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": trunc_div,
            "rem": lambda a, b: 0 if b == 0 else a - b * trunc_div(a, b), "pow": int_pow, "max": max, "min": min}
    for name, f in floats.items():
        a, b = T("f32", [[1.5, -2, 0, 7.25], [3, nan, -inf, -7]]), T("f32", [[0.5, 3, 0, -2], [1e8, 1, 2, 2]])
        h, k = T("f16", [[1.5, 2, 1000, 0.25]]), T("f16", [[0.75, 3, 100, -2]])
        cases = []
        with np.errstate(all="ignore"):
            cases += [Case("main", name, [a, b], T("f32", f(a.f, b.f))), Case("half", name, [h, k], T("f16", f(h.f, k.f)))]
        if name in ints:
            i, j = T("i32", [7, -7, 2147483647, -2147483648, 5, 2]), T("i32", [2, 2, 1, -1, 0, -3])
            u, v = T("u8", [200, 3, 255]), T("u8", [100, 5, 2])
            cases += [Case("int", name, [i, j], wrap("i32", vector(ints[name])(i.f, j.f))),
                      Case("byte", name, [u, v], wrap("u8", vector(ints[name])(u.f, v.f)))]
        write(f"binary_{name}", f"{name}, element by element; integers wrap", *cases,
              tolerance=1e-6 if name in ("pow", "atan2") else None)
    for name, f in {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}.items():
        p, q = T("bool", [0, 0, 1, 1]), T("bool", [0, 1, 0, 1])
        i, j = T("i32", [12, -1, 7]), T("i32", [10, 255, -8])
        write(f"binary_{name}", f"{name}: logical on bool, bitwise on integers",
              Case("main", name, [p, q], T("bool", vector(f)(p.a, q.a).astype(bool))), Case("int", name, [i, j], wrap("i32", vector(f)(i.f, j.f))))
    for name in ("shl", "shr"):
        i, s = T("i32", [1, -8, 5, -5, 3]), T("i32", [4, 1, 32, 40, -1])
        u, t = T("u8", [255, 129, 1]), T("u8", [1, 7, 8])
        f = lambda width, signed: vector(bit_shift(name == "shl", width, signed))
        write(f"binary_{name}", f"{name}: distances of the width or more, or below 0, shift everything out",
              Case("main", name, [i, s], wrap("i32", f(32, True)(i.f, s.f))), Case("byte", name, [u, t], wrap("u8", f(8, False)(u.f, t.f))))
    x, y = T("bf16", [1, 256, -3]), T("bf16", [0.5, 1, 0.25])
    write("binary_bf16", "bf16: 257 is a tie and goes to the even 256", Case("main", "add", [x, y], T("bf16", [1.5, 256, -2.75])),
          Case("product", "mul", [x, y], T("bf16", [0.5, 256, -0.75])))
    x, y = T("f143", [1, 1.125, 200, -8]), T("f143", [0.5, 1, 100, 8])
    write("binary_f143", "8-bit floats: three mantissa bits, saturating at 240", Case("main", "add", [x, y], T("f143", [1.5, 2, 240, 0])))
    x, y = T("i64", [2**62, -(2**63), 3]), T("i64", [2**62, -1, 2**53 + 1])
    write("binary_i64", "64-bit integers are exact beyond 2^53 and wrap", Case("main", "add", [x, y], wrap("i64", x.f + y.f)), Case("product", "mul", [x, y], wrap("i64", x.f * y.f)))


def compare():
    functions = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
    a, b = T("f32", [1, 2, 3, nan, nan, 0]), T("f32", [2, 2, 1, 1, nan, -0.0])
    i, j = T("i32", [-1, 0, 1]), T("i32", [1, 0, -1])
    p, q = T("bool", [0, 0, 1, 1]), T("bool", [0, 1, 0, 1])
    for name, f in functions.items():
        write(f"compare_{name}", f"{name}; with NaN only ne holds", Case("main", name, [a, b], T("bool", f(a.a, b.a))),
              Case("int", name, [i, j], T("bool", f(i.a, j.a))), Case("flags", name, [p, q], T("bool", f(p.a, q.a))))


def select_and_cast():
    c, a, b = T("bool", [[1, 0], [0, 1]]), small("f32", 2, 2), small("f32", 2, 2)
    write("select", "select takes whole elements", Case("main", "select", [c, a, b], T("f32", np.where(c.a, a.a, b.a))))
    x = T("f32", [-1.5, 0, 2.75, 300, nan, inf, -inf])
    saturated = lambda low, high: [int(min(max(math.trunc(v), low), high)) if abs(v) < 1e9 else 0 if v != v else (high if v > 0 else low) for v in x.f]
    write("convert_float", "float to other types: one rounding; integers truncate and saturate, NaN gives 0",
          Case("main", "convert", [x], T("f16", x.f)), Case("i8", "convert", [x], T("i8", saturated(-128, 127))),
          Case("u8", "convert", [x], T("u8", saturated(0, 255))), Case("flag", "convert", [x], T("bool", [1, 0, 1, 1, 1, 1, 1])),
          Case("f143", "convert", [T("f32", [1.0625, 1000, -0.0])], T("f143", [1, 240, 0])),
          Case("bf16", "convert", [T("f32", [257, 1.5])], T("bf16", [256, 1.5])))
    i, big = T("i32", [-1, 0, 200, 65537]), T("i64", [2**62 + 2**38 + 1, -3])
    write("convert_int", "integers wrap to integers, and round once to floats",
          Case("main", "convert", [i], wrap("i8", i.f)), Case("unsigned", "convert", [i], wrap("u16", i.f)),
          Case("float", "convert", [i], T("f32", i.f)), Case("flag", "convert", [i], T("bool", [1, 0, 1, 1])),
          Case("big", "convert", [big], T("f32", [float(2**62 + 2**39), -3])),
          Case("from_flag", "convert", [T("bool", [1, 0])], T("f32", [1, 0])))
    x = T("f32", [1, -0.0, 0.5])
    write("bitcast", "the same bits under another type", Case("main", "bitcast", [x], T("i32", x.a.view(np.int32))),
          Case("back", "bitcast", [T("u16", [0x3c00, 0xc000])], T("f16", [1, -2])))


# --- layout ----------------------------------------------------------------------------------------

def layout():
    x = T("f32", np.arange(12).reshape(3, 4))
    write("reshape", "row-major order stays", Case("main", "reshape", [x], T("f32", x.a.reshape(2, 6))),
          Case("scalar", "reshape", [T("i32", [[7]])], T("i32", 7)), Case("ones", "reshape", [x], T("f32", x.a.reshape(3, 1, 2, 2))))
    y = T("i32", np.arange(24).reshape(2, 3, 4))
    write("transpose", "result dimension i is operand dimension perm[i]", Case("main", "transpose", [x], T("f32", x.a.T), "perm=[1,0]"),
          Case("three", "transpose", [y], T("i32", y.a.transpose(2, 0, 1)), "perm=[2,0,1]"),
          Case("flags", "transpose", [T("bool", [[1, 0], [1, 1]])], T("bool", [[1, 1], [0, 1]]), "perm=[1,0]"))
    row = T("f32", [1, 2, 3])
    write("broadcast", "broadcast: new dimensions, stretched ones, scalars",
          Case("main", "broadcast", [row], T("f32", np.tile(row.a, (2, 1))), "axes=[1]"),
          Case("columns", "broadcast", [row], T("f32", np.tile(row.a[:, None], (1, 2))), "axes=[0]"),
          Case("stretch", "broadcast", [T("f16", [[1], [2]])], T("f16", [[1, 1, 1], [2, 2, 2]]), "axes=[0,1]"),
          Case("scalar", "broadcast", [T("i32", 5)], T("i32", [[5, 5], [5, 5]]), "axes=[]"),
          Case("middle", "broadcast", [T("f32", [[1, 2], [3, 4]])], T("f32", [[[1, 2]] * 3, [[3, 4]] * 3]), "axes=[0,2]"))
    write("reverse", "reverse along axes", Case("main", "reverse", [x], T("f32", x.a[:, ::-1]), "axes=[1]"),
          Case("both", "reverse", [x], T("f32", x.a[::-1, ::-1]), "axes=[0,1]"))
    write("slice", "begin, end and step per dimension", Case("main", "slice", [x], T("f32", x.a[1:3, 0:4]), "begin=[1,0] end=[3,4]"),
          Case("steps", "slice", [x], T("f32", x.a[0:3:2, 1:4:2]), "begin=[0,1] end=[3,4] step=[2,2]"),
          Case("empty", "slice", [x], T("f32", x.a[1:1]), "begin=[1,0] end=[1,4]"))
    p, zero = T("f32", [[1, 2], [3, 4]]), T("f32", 9)
    dilated = np.full((2, 3), 9.0)
    dilated[:, ::2] = p.a
    write("pad", "pad: edges, gaps between neighbours, and cropping by negative edges",
          Case("main", "pad", [p, zero], T("f32", np.pad(p.a, ((1, 0), (0, 2)), constant_values=9)), "low=[1,0] high=[0,2]"),
          Case("interior", "pad", [p, zero], T("f32", dilated), "low=[0,0] high=[0,0] interior=[0,1]"),
          Case("crop", "pad", [x, zero], T("f32", x.a[1:, :3]), "low=[-1,0] high=[0,-1]"),
          Case("int", "pad", [T("i32", [1]), T("i32", -1)], T("i32", [-1, -1, 1]), "low=[2] high=[0]"))
    a, b = small("f32", 2, 2), small("f32", 2, 3)
    write("concat", "joins along one axis", Case("main", "concat", [a, b], T("f32", np.concatenate([a.a, b.a], 1)), "axis=1"),
          Case("three", "concat", [a, a, a], T("f32", np.concatenate([a.a] * 3, 0)), "axis=0"),
          Case("one", "concat", [b], b, "axis=0"))


def indexing():
    x, i = T("f32", np.arange(12).reshape(4, 3)), T("i32", [2, 0, 0, 9, -1])
    write("gather", "rows by index; indices out of range are clamped",
          Case("main", "gather", [x, i], T("f32", np.take(x.a, i.a, 0, mode="clip")), "axis=0"),
          Case("columns", "gather", [x, T("i32", [[2, 1], [0, 0]])], T("f32", np.take(x.a, [[2, 1], [0, 0]], 1)), "axis=1"),
          Case("scalar", "gather", [x, T("i64", 3)], T("f32", x.a[3]), "axis=0"),
          Case("half", "gather", [T("f16", [1, 2, 3]), T("u8", [1, 200])], T("f16", [2, 3]), "axis=0"))

    def scatter(dtype, f):
        data, index, updates = small(dtype, 3, 2), T("i32", [2, 0, 2, 7]), small(dtype, 4, 2)
        result = data.f.copy()
        for row, update in zip(np.clip(index.a, 0, 2), updates.f):
            result[row] = [f(a, b) for a, b in zip(result[row], update)]
        return [data, index, updates], wrap(dtype, result)
    args, result = scatter("f32", lambda a, b: b)
    write("scatter", "rows replaced in order: the last update stays; indices are clamped", Case("main", "scatter", args, result, "axis=0"),
          Case("columns", "scatter", [T("f32", np.zeros((2, 3))), T("i32", [1]), T("f32", [[5], [6]])], T("f32", [[0, 5, 0], [0, 6, 0]]), "axis=1"))
    functions = {"sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "max": max, "min": min}
    for name, f in functions.items():
        cases = []
        for func, dtype in (("main", "f32"), ("half", "f16"), ("int", "i32")):
            args, result = scatter(dtype, f)
            cases.append(Case(func, "scatter", args, result, f"axis=0 combine={name}"))
        write(f"scatter_{name}", f"rows combined by {name}", *cases)
    for name, f in {"and": lambda a, b: a and b, "or": lambda a, b: a or b}.items():
        args, result = scatter("bool", f)
        write(f"scatter_{name}", f"rows combined by {name}", Case("main", "scatter", args, result, f"axis=0 combine={name}"))


# --- sums of products ------------------------------------------------------------------------------

def dot():
    def case(func, dtype, a, b, spec, attrs, out=None):
        x, y = small(dtype, *a), small(dtype, *b)
        result = np.einsum(spec, x.f, y.f) if dtype in FLOATS else np.einsum(spec, x.a.astype(np.int64), y.a.astype(np.int64))
        return Case(func, "dot", [x, y], wrap(out or dtype, result), attrs)
    write("dot", "matrix products in every orientation", case("main", "f32", (2, 3), (3, 4), "mk,kn->mn", "contract=[1:0]"),
          case("transposed", "f32", (3, 2), (4, 3), "km,nk->mn", "contract=[0:1]"),
          case("vector", "f32", (3,), (3,), "k,k->", "contract=[0:0]"), case("outer", "f32", (2,), (3,), "m,n->mn", "contract=[]"),
          case("two", "f32", (2, 3, 4), (4, 3, 2), "mkl,lkn->mn", "contract=[1:1,2:0]"))
    write("dot_batch", "batch dimensions come first in the result", case("main", "f32", (2, 3, 2), (2, 2, 4), "bmk,bkn->bmn", "batch=[0:0] contract=[2:1]"),
          case("inner", "f32", (3, 2, 2), (4, 2, 2), "mbk,nkb->bmn", "batch=[1:2] contract=[2:1]"),
          case("pure", "f32", (2, 3), (2, 3), "ab,ab->ab", "batch=[0:0,1:1] contract=[]"))
    write("dot_types", "element types; dtype is that of the sums and the result", case("main", "f16", (2, 4), (4, 2), "mk,kn->mn", "contract=[1:0]"),
          case("wide", "f16", (2, 4), (4, 2), "mk,kn->mn", "contract=[1:0] dtype=f32", "f32"), case("int", "i32", (2, 4), (4, 2), "mk,kn->mn", "contract=[1:0]"),
          case("bytes", "i8", (2, 4), (4, 2), "mk,kn->mn", "contract=[1:0] dtype=i32", "i32"), case("bf16", "bf16", (1, 3), (3, 2), "mk,kn->mn", "contract=[1:0] dtype=f32", "f32"),
          Case("wrapping", "dot", [T("u8", [200, 100]), T("u8", [2, 3])], T("u8", 700 % 256), "contract=[0:0]"))
    write("dot_empty", "no products sum to zero", Case("main", "dot", [T("f32", np.zeros((2, 0))), T("f32", np.zeros((0, 3)))], T("f32", np.zeros((2, 3))), "contract=[1:0]"))


def conv_reference(x, w, strides, padding, input_dilation, kernel_dilation, groups):
    spatial = x.ndim - 2
    grown = list(x.shape[:2]) + [(n - 1) * d + 1 for n, d in zip(x.shape[2:], input_dilation)]
    dilated = np.zeros(grown, x.dtype)
    dilated[(slice(None), slice(None)) + tuple(slice(None, None, d) for d in input_dilation)] = x
    padded = np.pad(dilated, [(0, 0), (0, 0)] + [(max(l, 0), max(h, 0)) for l, h in padding])
    crop = tuple(slice(max(-l, 0), n - max(-h, 0)) for (l, h), n in zip(padding, padded.shape[2:]))
    padded = padded[(slice(None), slice(None)) + crop]
    out = [(n - ((k - 1) * d + 1)) // s + 1 for n, k, d, s in zip(padded.shape[2:], w.shape[2:], kernel_dilation, strides)]
    y = np.zeros([x.shape[0], w.shape[0]] + out, x.dtype)
    per_in, per_out = w.shape[1], w.shape[0] // groups
    for n, o in itertools.product(range(x.shape[0]), range(w.shape[0])):
        g = o // per_out
        for position in np.ndindex(*out):
            window = tuple(slice(p * s, p * s + (k - 1) * d + 1, d) for p, s, k, d in zip(position, strides, w.shape[2:], kernel_dilation))
            y[(n, o) + position] = (padded[(n, slice(g * per_in, (g + 1) * per_in)) + window] * w[o]).sum()
    return y


def conv_case(func, dtype, xs, ws, strides=None, padding=None, input_dilation=None, kernel_dilation=None, groups=1, out=None):
    x, w = small(dtype, *xs), small(dtype, *ws)
    rank = len(xs) - 2
    ones = [1] * rank
    attrs = []
    numbers = lambda v: "[" + ",".join(map(str, v)) + "]"
    if strides: attrs.append(f"strides={numbers(strides)}")
    if padding: attrs.append("padding=[" + ",".join(f"{l}:{h}" for l, h in padding) + "]")
    if input_dilation: attrs.append(f"input_dilation={numbers(input_dilation)}")
    if kernel_dilation: attrs.append(f"kernel_dilation={numbers(kernel_dilation)}")
    if groups != 1: attrs.append(f"groups={groups}")
    if out: attrs.append(f"dtype={out}")
    kind = np.float64 if dtype in FLOATS else np.int64
    y = conv_reference(x.a.astype(kind), w.a.astype(kind), strides or ones, padding or [(0, 0)] * rank, input_dilation or ones, kernel_dilation or ones, groups)
    return Case(func, "conv", [x, w], wrap(out or dtype, y), " ".join(attrs))


def conv():
    write("conv", "plain convolutions of one, two and three spatial dimensions, and of none", conv_case("main", "f32", (1, 2, 4, 4), (3, 2, 3, 3)),
          conv_case("line", "f32", (2, 2, 5), (2, 2, 2)), conv_case("volume", "f32", (1, 1, 2, 3, 3), (2, 1, 2, 2, 2)), conv_case("point", "f32", (2, 3), (4, 3)))
    write("conv_padding", "zeros around the input; negative padding crops", conv_case("main", "f32", (1, 2, 3, 3), (2, 2, 3, 3), padding=[(1, 1), (1, 1)]),
          conv_case("uneven", "f32", (1, 1, 3, 4), (1, 1, 2, 2), padding=[(0, 2), (1, 0)]), conv_case("crop", "f32", (1, 1, 5), (1, 1, 2), padding=[(-1, -1)]))
    write("conv_strides", "strides", conv_case("main", "f32", (1, 2, 5, 5), (2, 2, 3, 3), strides=[2, 2], padding=[(1, 1), (1, 1)]),
          conv_case("uneven", "f32", (1, 1, 6, 5), (1, 1, 2, 2), strides=[3, 2]))
    write("conv_dilation", "kernel dilation, and input dilation (transposed convolution)", conv_case("main", "f32", (1, 1, 5, 5), (1, 1, 2, 2), kernel_dilation=[2, 3]),
          conv_case("transposed", "f32", (1, 2, 3, 3), (2, 2, 2, 2), padding=[(1, 1), (1, 1)], input_dilation=[2, 2]), conv_case("both", "f32", (1, 1, 4), (1, 1, 2), strides=[2], input_dilation=[3], kernel_dilation=[2]))
    write("conv_groups", "groups; depthwise", conv_case("main", "f32", (1, 4, 3, 3), (6, 2, 2, 2), groups=2), conv_case("depthwise", "f32", (1, 3, 3, 3), (3, 1, 2, 2), groups=3))
    write("conv_types", "element types; dtype is that of the sums and the result", conv_case("main", "f16", (1, 2, 3, 3), (2, 2, 2, 2)), conv_case("wide", "f16", (1, 2, 3, 3), (2, 2, 2, 2), out="f32"),
          conv_case("int", "i8", (1, 2, 3, 3), (2, 2, 2, 2), out="i32"))


# --- reductions ------------------------------------------------------------------------------------

NEUTRAL = {"sum": 0, "prod": 1, "and": 1, "or": 0}
FUNCTIONS = {"sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "max": max, "min": min, "and": lambda a, b: a and b, "or": lambda a, b: a or b}


def neutral(name, dtype):
    if name in NEUTRAL:
        return NEUTRAL[name]
    if dtype in FLOATS:
        return -inf if name == "max" else inf
    info = np.iinfo(NUMPY[dtype])
    return int(info.min if name == "max" else info.max)


def fold(name, dtype, values):
    total = neutral(name, dtype)
    for value in values:
        total = FUNCTIONS[name](total, value)
    return total


def reduce_case(func, name, dtype, shape, axes):
    x = small(dtype, *shape)
    kept = [n for i, n in enumerate(shape) if i not in axes]
    result = np.empty(kept, object)
    for index in np.ndindex(*kept):
        rest = iter(index)
        selector = tuple(slice(None) if i in axes else next(rest) for i in range(len(shape)))
        result[index] = fold(name, dtype, np.asarray(x.f[selector]).reshape(-1))
    return Case(func, "reduce", [x], wrap(dtype, result), f"func={name} axes=[{','.join(map(str, axes))}]")


def reduce():
    for name in ("sum", "prod", "max", "min"):
        write(f"reduce_{name}", f"{name} over axes, which are removed; of nothing it is the neutral element", reduce_case("main", name, "f32", (2, 3), [1]), reduce_case("first", name, "f32", (2, 3), [0]),
              reduce_case("all", name, "f32", (2, 2, 2), [0, 1, 2]), reduce_case("outer", name, "f16", (2, 3, 2), [0, 2]), reduce_case("int", name, "i32", (3, 2), [0]), reduce_case("empty", name, "f32", (2, 0), [1]))
    for name in ("and", "or"):
        write(f"reduce_{name}", f"{name} over axes", reduce_case("main", name, "bool", (3, 4), [1]), reduce_case("all", name, "bool", (2, 2), [0, 1]), reduce_case("empty", name, "bool", (2, 0), [1]))
    bits = T("u8", [[12, 10], [255, 7]])
    write("reduce_bits", "and, or on integers are bitwise", Case("main", "reduce", [bits], T("u8", [8, 7]), "func=and axes=[1]"), Case("either", "reduce", [bits], T("u8", [14, 255]), "func=or axes=[1]"))
    x = T("f32", [[1, nan, 2], [inf, -inf, 0], [1e30, 1, -1e30]])
    write("reduce_special", "NaN takes over; sums accumulate in f64 and round once", Case("main", "reduce", [x], T("f32", [nan, nan, 0]), "func=sum axes=[1]"),
          Case("most", "reduce", [x], T("f32", [nan, inf, np.float32(1e30)]), "func=max axes=[1]"),
          Case("once", "reduce", [T("f16", [2048, 1, 1])], T("f16", 2050), "func=sum axes=[0]"))


def window_case(func, name, dtype, shape, window, strides=None, padding=None, dilation=None):
    x = small(dtype, *shape)
    rank = len(shape)
    s, p, d = strides or [1] * rank, padding or [(0, 0)] * rank, dilation or [1] * rank
    out = [(n + l + h - ((w - 1) * e + 1)) // t + 1 for n, (l, h), w, e, t in zip(shape, p, window, d, s)]
    result = np.empty(out, object)
    for index in np.ndindex(*out):
        values = []
        for k in np.ndindex(*window):
            at = tuple(i * t - l + j * e for i, t, (l, _), j, e in zip(index, s, p, k, d))
            if all(0 <= a < n for a, n in zip(at, shape)):
                values.append(x.f[at])
        result[index] = fold(name, dtype, values)
    attrs = f"func={name} window=[{','.join(map(str, window))}]"
    if strides: attrs += f" strides=[{','.join(map(str, s))}]"
    if padding: attrs += " padding=[" + ",".join(f"{l}:{h}" for l, h in p) + "]"
    if dilation: attrs += f" dilation=[{','.join(map(str, d))}]"
    return Case(func, "reduce_window", [x], wrap(dtype, result), attrs)


def reduce_window():
    for name in ("sum", "max", "min", "prod"):
        write(f"reduce_window_{name}", f"{name} in a sliding window; padding is neutral", window_case("main", name, "f32", (1, 1, 4, 4), [1, 1, 2, 2], [1, 1, 2, 2]),
              window_case("padded", name, "f32", (3, 3), [3, 3], None, [(1, 1), (1, 1)]), window_case("dilated", name, "f16", (6,), [2], [2], [(1, 0)], [3]), window_case("int", name, "i32", (5,), [3], None, [(2, 0)]),
              window_case("crop", name, "f32", (5,), [2], None, [(-1, -1)]))


def scan():
    def case(func, name, dtype, shape, axis, exclusive=False, reverse=False):
        x = small(dtype, *shape)
        result = np.empty(shape, object)
        moved, target = np.moveaxis(x.f, axis, -1), np.moveaxis(result, axis, -1)
        for index in np.ndindex(*moved.shape[:-1]):
            total, steps = neutral(name, dtype), range(shape[axis])
            for i in reversed(steps) if reverse else steps:
                after = FUNCTIONS[name](total, moved[index][i])
                target[index][i] = total if exclusive else after
                total = after
        attrs = f"func={name} axis={axis}" + " exclusive=true" * exclusive + " reverse=true" * reverse
        return Case(func, "scan", [x], wrap(dtype, result), attrs)
    for name in ("sum", "prod", "max", "min"):
        write(f"scan_{name}", f"running {name}", case("main", name, "f32", (2, 4), 1), case("first", name, "f32", (3, 2), 0), case("exclusive", name, "f32", (4,), 0, True),
              case("reverse", name, "f16", (4,), 0, False, True), case("int", name, "i32", (2, 3), 1, True, True))


def sort():
    x = T("f32", [[3, 1, nan, 2], [-0.0, 0, -inf, 5]])
    key = lambda v: (v != v, 0 if v != v else v)
    rows = lambda reverse: [sorted(row, key=key, reverse=reverse) for row in x.f]
    write("sort", "keys along an axis; NaN is larger than every number", Case("main", "sort", [x], T("f32", rows(False)), "axis=1"),
          Case("descending", "sort", [x], T("f32", rows(True)), "axis=1 descending=true"),
          Case("columns", "sort", [T("i32", [[3, 1], [2, 5], [1, 0]])], T("i32", [[1, 0], [2, 1], [3, 5]]), "axis=0"))
    keys, ids = T("i32", [2, 1, 2, 1, 0]), T("f32", [10, 11, 12, 13, 14])
    order = lambda reverse: sorted(range(5), key=lambda i: keys.a[i], reverse=reverse)
    write("sort_payload", "payloads move with their keys; equal keys keep their order", *(
        Case(func, "sort", [keys, ids], [T("i32", keys.a[order(r)]), T("f32", ids.a[order(r)])], "axis=0" + " descending=true" * r) for func, r in (("main", False), ("descending", True))))
    write("sort_unstable", "without stable, any order of equal keys is right; the keys tell nothing", Case("main", "sort", [keys], T("i32", sorted(keys.a)), "axis=0 stable=false"))


# --- sources ---------------------------------------------------------------------------------------

M64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
    return z ^ z >> 31


def bits(seed, index):
    return mix(mix(seed ^ GOLDEN) + GOLDEN * (index + 1) & M64)


def normal(seed, index):
    b = bits(seed, index)
    return math.sqrt(-2 * math.log(((b >> 32) + 0.5) / 2**32)) * math.cos(2 * math.pi * (b & 0xFFFFFFFF) / 2**32)


def sources():
    iota = lambda func, dtype, shape, axis: Case(func, "iota", [], T(dtype, np.broadcast_to(np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)), f"axis={axis}")
    write("iota", "the index along an axis", iota("main", "i32", (4,), 0), iota("rows", "f32", (2, 3), 0), iota("columns", "f16", (2, 3), 1))
    seed = T("u32", [7, 1])
    number = 7 | 1 << 32
    write("random", "the same seed gives the same elements, whatever the order", Case("main", "random", [seed], T("f32", [[(bits(number, i) >> 40) / 2**24 for i in range(4)]]), "distribution=uniform"),
          Case("half", "random", [seed], T("f16", [(bits(number, i) >> 53) / 2**11 for i in range(4)]), "distribution=uniform"),
          Case("normal", "random", [seed], T("f32", [normal(number, i) for i in range(4)]), "distribution=normal"),
          Case("ints", "random", [seed], wrap("u32", np.array([bits(number, i) for i in range(4)], dtype=object)), "distribution=uniform"), tolerance=1e-6)
    dense, splat = T("f32", [[1, 2.5], [-3, inf]]), T("f16", [0.5] * 3)
    text = lambda name, ty, data, func: f"const @{name}: {ty} = {data}\n\nfunc @{func}() -> {ty} {{\n  %0 = constant @{name} : {ty}\n  return %0\n}}\n"
    write("constant", "constants written out, and rules that make them",
          Text(text("dense", dense.ty, "[1, 2.5, -3, inf]", "main"), ("main", [], [dense])), Text(text("same", splat.ty, "splat(0.5)", "splat"), ("splat", [], [splat])),
          Text(text("flags", "bool[2]", "[true, false]", "flags"), ("flags", [], [T("bool", [1, 0])])), Text(text("big", "i64[1]", "[9007199254740993]", "big"), ("big", [], [T("i64", [2**53 + 1])])),
          Text(text("noise", "f32[3]", "normal(seed=5, mean=1, std=0.5)", "noise"), ("noise", [], [T("f32", [1 + 0.5 * normal(5, i) for i in range(3)])])),
          Text(text("even", "f32[3]", "uniform(seed=5, low=-1, high=1)", "even"), ("even", [], [T("f32", [-1 + 2 * (bits(5, i) >> 11) / 2**53 for i in range(3)])])), tolerance=1e-6)


# --- functions -------------------------------------------------------------------------------------

def control():
    x = T("f32", [1, -2, 3])
    write("call", "a function called twice, below its use", Text("""
func @main(%x: f32[3]) -> f32[3] {
  %once = call @double %x : f32[3]
  %twice = call @double %once : f32[3]
  return %twice
}

func @double(%x: f32[3]) -> f32[3] {
  %y = add %x, %x : f32[3]
  return %y
}
""", ("main", [x], [T("f32", x.a * 4)])))
    write("if", "one of two functions runs", Text("""
func @main(%p: bool[], %x: f32[3]) -> f32[3] {
  %y = if %p, %x then=@up else=@down : f32[3]
  return %y
}

func @up(%x: f32[3]) -> f32[3] {
  %y = add %x, %x : f32[3]
  return %y
}

func @down(%x: f32[3]) -> f32[3] {
  %y = neg %x : f32[3]
  return %y
}
""", ("main", [T("bool", True), x], [T("f32", x.a * 2)]), ("main", [T("bool", False), x], [T("f32", -x.a)])))
    write("while", "Euclid's algorithm", Text("""
const @zero: i32[] = [0]

func @main(%a: i32[], %b: i32[]) -> i32[] {
  %gcd, %rest = while %a, %b cond=@more body=@step : i32[], i32[]
  return %gcd
}

func @more(%a: i32[], %b: i32[]) -> bool[] {
  %zero = constant @zero : i32[]
  %more = ne %b, %zero : bool[]
  return %more
}

func @step(%a: i32[], %b: i32[]) -> i32[], i32[] {
  %rest = rem %a, %b : i32[]
  return %b, %rest
}
""", *(("main", [T("i32", a), T("i32", b)], [T("i32", math.gcd(a, b))]) for a, b in ((48, 18), (7, 0), (17, 5)))))
    write("repeat", "the body takes the iteration number, from 0, before the carried values", Text("""
func @main(%x: f32[3], %n: i32[]) -> f32[3], i32[] {
  %y, %sum = repeat %x, %n count=4 body=@body : f32[3], i32[]
  return %y, %sum
}

func @never(%x: f32[3], %n: i32[]) -> f32[3], i32[] {
  %y, %sum = repeat %x, %n count=0 body=@body : f32[3], i32[]
  return %y, %sum
}

func @body(%i: i32[], %x: f32[3], %sum: i32[]) -> f32[3], i32[] {
  %twice = add %x, %x : f32[3]
  %more = add %sum, %i : i32[]
  return %twice, %more
}
""", ("main", [x, T("i32", 100)], [T("f32", x.a * 16), T("i32", 106)]), ("never", [x, T("i32", 100)], [x, T("i32", 100)])))


def composites():
    x = T("f32", [[1, 2, 3], [-1, 0, 5]])
    e = np.exp(x.f - x.f.max(1, keepdims=True))
    write("composite_softmax", "a composite: meaning is the body; sizes may have names, which the arguments bind", Text("""
func @main(%x: f32[N,3]) -> f32[N,3] {
  %y = call @softmax %x : f32[N,3]
  return %y
}

composite "softmax" func @softmax(%x: f32[N,3]) -> f32[N,3] {
  %max = reduce %x func=max axes=[1] : f32[N]
  %maxes = broadcast %max axes=[0] : f32[N,3]
  %shifted = sub %x, %maxes : f32[N,3]
  %powers = exp %shifted : f32[N,3]
  %sum = reduce %powers func=sum axes=[1] : f32[N]
  %sums = broadcast %sum axes=[0] : f32[N,3]
  %y = div %powers, %sums : f32[N,3]
  return %y
}
""", ("main", [x], [T("f32", e / e.sum(1, keepdims=True))]), ("main", [T("f32", np.zeros((0, 3)))], [T("f32", np.zeros((0, 3)))])), tolerance=1e-6)
    w, b = small("f32", 3, 2), small("f32", 2)
    y = np.maximum(x.f @ w.f + b.f, 0)
    write("program_mlp", "a linear layer with a ReLU", Text(f"""
const @w: {w.ty} = {str(w).split(' ', 1)[1]}
const @b: {b.ty} = {str(b).split(' ', 1)[1]}
const @zero: f32[] = [0]

func @main(%x: f32[2,3]) -> f32[2,2] {{
  %w = constant @w : f32[3,2]
  %b = constant @b : f32[2]
  %zero = constant @zero : f32[]
  %product = dot %x, %w contract=[1:0] : f32[2,2]
  %bias = broadcast %b axes=[1] : f32[2,2]
  %sum = add %product, %bias : f32[2,2]
  %floor = broadcast %zero axes=[] : f32[2,2]
  %y = max %sum, %floor : f32[2,2]
  return %y
}}
""", ("main", [x], [T("f32", y)])))
    write("program_names", "sizes derived from names: 3 more rows, then all elements in a row", Text("""
func @main(%x: f32[N,2], %y: f32[3,2]) -> f32[N.plus.3,2], f32[all] {
  %joined = concat %x, %y axis=0 : f32[N.plus.3,2]
  %row = reshape %joined : f32[all]
  return %joined, %row
}
""", ("main", [T("f32", [[1, 2]]), T("f32", [[3, 4], [5, 6], [7, 8]])], [T("f32", np.arange(1, 9).reshape(4, 2)), T("f32", np.arange(1, 9))])))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for stale in OUT.glob("*.graph"):
        stale.unlink()
    for section in (unary, binary, compare, select_and_cast, layout, indexing, dot, conv, reduce, reduce_window, scan, sort, sources, control, composites):
        section()
    print(f"{len(list(OUT.glob('*.graph')))} files in {OUT}")


if __name__ == "__main__":
    main()

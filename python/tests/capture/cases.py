"""Operators with arguments: `(name, function, tensors)`. Eager torch says what is right."""

import torch
import torch.nn.functional as F

f32, f16, i64, i32 = torch.float32, torch.float16, torch.int64, torch.int32


def randn(*shape, dtype=f32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def rand(*shape, low=0.0, high=1.0, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))) * (high - low) + low


def ints(*shape, low=-5, high=6, dtype=i64, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=dtype)


def bools(*shape):
    return ints(*shape, low=0, high=2) > 0


X, Y = randn(3, 4), randn(3, 4, seed=1)
P = rand(3, 4, low=0.2, high=2.0)
U = rand(3, 4, low=-0.95, high=0.95)
I, J = ints(3, 4), ints(3, 4, low=1, high=5, seed=2)
B, C = bools(3, 4), bools(4)
H = randn(3, 4, dtype=f16)
N3 = randn(2, 3, 5)
IMAGE = randn(2, 3, 8, 9)
SIGNAL, VOLUME = randn(2, 3, 11), randn(2, 3, 5, 6, 7)
ROW = randn(4)

UNARY = {
    "abs": X, "acos": U, "acosh": P + 1, "asin": U, "asinh": X * 3, "atan": X, "atanh": U, "ceil": X * 3, "cos": X,
    "cosh": X, "erf": X, "erfc": X, "erfinv": U, "exp": X, "exp2": X, "expm1": X, "floor": X * 3, "frac": X * 3,
    "log": P, "log10": P, "log1p": P, "log2": P, "neg": X, "reciprocal": P, "round": X * 3, "rsqrt": P,
    "sigmoid": X, "sign": X, "sin": X, "sinh": X, "sqrt": P, "square": X, "tan": U, "tanh": X, "trunc": X * 3,
    "isnan": X.log(), "isinf": 1 / (X * 0), "isfinite": X.log(), "logical_not": B, "bitwise_not": I, "positive": X,
    "relu": X, "signbit": X, "deg2rad": X, "rad2deg": X, "sinc": X, "logit": P / 3, "nan_to_num": X.log(),
    "sgn": X, "isposinf": X.log(), "isneginf": X.log(),
}
BINARY = ["add", "sub", "mul", "div", "true_divide", "floor_divide", "fmod", "remainder", "maximum", "minimum", "fmax",
          "fmin", "atan2", "hypot", "eq", "ne", "lt", "le", "gt", "ge", "logaddexp", "copysign", "max", "min",
          "logical_and", "logical_or", "logical_xor", "rsub", "nextafter"]
POINTWISE = [(name, getattr(torch, name), (x,)) for name, x in UNARY.items()]
POINTWISE += [(name, getattr(torch, name), (X, Y)) for name in BINARY if name != "nextafter"]
POINTWISE += [(f"{name}-broadcast", getattr(torch, name), (X, ROW)) for name in ("add", "mul", "div", "fmod", "lt")]
POINTWISE += [(f"{name}-ints", getattr(torch, name), (I, J)) for name in
              ("add", "sub", "mul", "div", "floor_divide", "fmod", "remainder", "maximum", "eq", "lt", "bitwise_and",
               "bitwise_or", "bitwise_xor", "logical_and", "bitwise_left_shift", "bitwise_right_shift")]
POINTWISE += [(f"{name}-mixed", getattr(torch, name), (X, I)) for name in
              ("add", "mul", "div", "maximum", "eq", "lt", "floor_divide", "remainder")]
POINTWISE += [(f"{name}-half", getattr(torch, name), (H, H + 1)) for name in ("add", "mul", "div", "maximum", "lt")]
POINTWISE += [(f"{name}-half-float", getattr(torch, name), (H, X)) for name in ("add", "mul", "lt")]
POINTWISE += [
    ("abs-int", torch.abs, (I,)), ("neg-int", torch.neg, (I,)), ("sign-int", torch.sign, (I,)),
    ("sin-int", torch.sin, (I,)), ("sqrt-int", torch.sqrt, (J,)), ("exp-half", torch.exp, (H,)),
    ("tanh-half", torch.tanh, (H,)), ("sigmoid-half", torch.sigmoid, (H,)), ("round-int", torch.round, (I,)),
    ("add-alpha", lambda x, y: torch.add(x, y, alpha=3), (X, Y)), ("sub-alpha", lambda x, y: torch.sub(x, y, alpha=2), (X, Y)),
    ("add-number", lambda x: x + 2, (X,)), ("rsub-number", lambda x: 2 - x, (X,)), ("div-number", lambda x: x / 3, (I,)),
    ("rdiv-number", lambda x: 3 / x, (P,)), ("int-plus-float", lambda x: x + 1.5, (I,)), ("bool-times", lambda x: x * 2, (B,)),
    ("bool-and", lambda x, y: x & y, (B, C)), ("bool-or", lambda x, y: x | y, (B, C)), ("bool-xor", lambda x, y: x ^ y, (B, C)),
    ("bool-mul", lambda x, y: x * y, (B, C)), ("bool-add", lambda x, y: x + y, (B, C)), ("invert", lambda x: ~x, (B,)),
    ("eq-number", lambda x: x == 2, (I,)), ("lt-float", lambda x: x < 1.5, (I,)), ("ne-bool", lambda x, y: x != y, (B, C)),
    ("pow-2", lambda x: x**2, (X,)), ("pow-3", lambda x: x**3, (X,)), ("pow-half", lambda x: x**0.5, (P,)),
    ("pow-minus", lambda x: x**-1.5, (P,)), ("pow-int", lambda x: x**2, (I,)), ("pow-tensor", torch.pow, (P, Y)),
    ("pow-scalar", lambda x: 2.0**x, (X,)), ("pow-0", lambda x: x**0, (X,)), ("pow-int-tensor", torch.pow, (J, J)),
    ("div-floor", lambda x, y: torch.div(x, y, rounding_mode="floor"), (X, Y)),
    ("div-trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), (X * 5, Y)),
    ("div-trunc-int", lambda x, y: torch.div(x, y, rounding_mode="trunc"), (I, J)),
    ("remainder-number", lambda x: x % 3, (I,)), ("remainder-negative", lambda x: x % -3, (I,)), ("remainder-float", lambda x: x % 0.7, (X,)),
    ("fmod-number", lambda x: torch.fmod(x, 0.7), (X,)), ("floor-divide-number", lambda x: x // 2, (I,)), ("float-floor-divide", lambda x: x // 0.3, (X,)),
    ("round-decimals", lambda x: torch.round(x, decimals=2), (X,)),
    ("clamp", lambda x: x.clamp(-0.5, 0.5), (X,)), ("clamp-low", lambda x: x.clamp(min=0.1), (X,)), ("clamp-high", lambda x: x.clamp(max=0.1), (X,)),
    ("clamp-tensors", torch.clamp, (X, Y - 1, Y + 1)), ("clamp_min", lambda x: torch.clamp_min(x, 0.2), (X,)), ("clamp_max", lambda x: torch.clamp_max(x, 0.2), (X,)),
    ("clamp-int", lambda x: x.clamp(-1, 2), (I,)),
    ("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.3), (X, Y, P)), ("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=0.3), (X, Y, P)),
    ("lerp", lambda x, y: torch.lerp(x, y, 0.3), (X, Y)), ("lerp-tensor", torch.lerp, (X, Y, P)),
    ("where", torch.where, (B, X, Y)), ("where-number", lambda b, x: torch.where(b, x, 0.0), (B, X)), ("where-types", torch.where, (B, X, I)),
    ("masked_fill", lambda x, b: x.masked_fill(b, -1.0), (X, B)), ("masked_fill-tensor", lambda x, b: x.masked_fill(b, torch.tensor(2.5)), (X, B)),
    ("masked_fill-broadcast", lambda x, b: x.masked_fill(b, 3), (I, C)),
    ("to-int", lambda x: (x * 3).to(i64), (X,)), ("to-half", lambda x: x.half(), (X,)), ("to-bool", lambda x: x.bool(), (I,)),
    ("to-float", lambda x: x.float(), (I,)), ("to-i32", lambda x: x.to(i32), (I,)), ("bool-to-float", lambda x: x.float(), (B,)),
    ("type_as", lambda x, y: x.type_as(y), (X, I)), ("to-u8", lambda x: x.to(torch.uint8), (J,)), ("to-bf16", lambda x: x.bfloat16().float(), (X,)),
    ("xlogy", torch.xlogy, (X, P)), ("heaviside", torch.heaviside, (X, Y)), ("isclose", torch.isclose, (X, X + 1e-9)),
    ("zero-dim", lambda x: x.sum() * 2 + x.mean(), (X,)), ("cosine_similarity", F.cosine_similarity, (X, Y)),
    ("pairwise_distance", F.pairwise_distance, (X, Y)), ("ldexp", torch.ldexp, (X, I)),
]

ACTIVATIONS = {
    "elu": {}, "celu": {"alpha": 0.7}, "gelu": {}, "hardshrink": {}, "leaky_relu": {}, "log_softmax": {"dim": 1}, "mish": {},
    "relu": {}, "relu6": {}, "selu": {}, "silu": {}, "softmax": {"dim": 1}, "softmin": {"dim": 0}, "softplus": {}, "softsign": {}, "softshrink": {},
    "tanhshrink": {}, "hardtanh": {}, "hardsigmoid": {}, "hardswish": {}, "logsigmoid": {}, "glu": {"dim": 1}, "sigmoid": {}, "tanh": {},
    "normalize": {}, "rrelu": {},
}
ACTIVATION = [(name, lambda x, f=getattr(F, name), k=kwargs: f(x, **k), (X * 3,)) for name, kwargs in ACTIVATIONS.items()]
ACTIVATION += [(f"{name}-half", lambda x, f=getattr(F, name), k=kwargs: f(x, **k), (H,)) for name, kwargs in ACTIVATIONS.items()
               if name in ("gelu", "softmax", "log_softmax", "elu", "silu", "softplus", "hardtanh")]
ACTIVATION += [
    ("gelu-tanh", lambda x: F.gelu(x, approximate="tanh"), (X,)), ("threshold", lambda x: F.threshold(x, 0.1, 20.0), (X,)),
    ("prelu", F.prelu, (IMAGE, randn(3))), ("prelu-one", F.prelu, (IMAGE, randn(1))), ("softmax-0", lambda x: F.softmax(x, 0), (N3,)),
    ("softmax-dtype", lambda x: F.softmax(x, -1, dtype=f32), (H,)), ("log_softmax-2d", lambda x: F.log_softmax(x, 1), (IMAGE,)),
    ("softplus-beta", lambda x: F.softplus(x, 2.0, 1.0), (X,)),
]

REDUCTION = []
for name in ("sum", "mean", "prod", "amax", "amin", "std", "var", "logsumexp", "argmax", "argmin", "cumsum", "cumprod", "median", "max",
             "min", "all", "any", "nansum", "count_nonzero", "cummax", "cummin", "logcumsumexp", "sort", "argsort"):
    REDUCTION.append((f"{name}-1", lambda x, f=getattr(torch, name): f(x, dim=1), (N3,)))
for name in ("sum", "mean", "prod", "amax", "std", "var", "argmax", "argmin", "median", "max", "min", "all", "any", "nansum", "count_nonzero", "norm", "std_mean",
             "var_mean", "aminmax"):
    REDUCTION.append((name, getattr(torch, name), (N3,)))
for name in ("sum", "mean", "amax", "amin", "std", "var", "logsumexp", "argmax", "all", "var_mean", "std_mean", "max", "min", "median"):
    REDUCTION.append((f"{name}-keep", lambda x, f=getattr(torch, name): f(x, dim=-1, keepdim=True), (N3,)))
REDUCTION += [
    ("sum-axes", lambda x: x.sum((0, 2)), (N3,)), ("mean-axes", lambda x: x.mean((1, 2), keepdim=True), (N3,)), ("sum-int", torch.sum, (I,)), ("sum-bool", torch.sum, (B,)),
    ("sum-dtype", lambda x: x.sum(dtype=f32), (I,)), ("mean-dtype", lambda x: x.mean(dtype=f32), (I,)), ("sum-half", torch.sum, (H,)), ("mean-half", lambda x: x.mean(1), (H,)),
    ("var-biased", lambda x: x.var(1, unbiased=False), (N3,)), ("std-biased", lambda x: torch.std(x, unbiased=False), (N3,)), ("var-correction", lambda x: torch.var(x, 1, correction=2), (N3,)),
    ("norm-2", lambda x: x.norm(), (X,)), ("norm-1", lambda x: x.norm(p=1, dim=1), (X,)), ("norm-inf", lambda x: torch.linalg.vector_norm(x, float("inf")), (X,)),
    ("norm-3", lambda x: torch.linalg.vector_norm(x, 3, dim=1), (X,)), ("norm-0", lambda x: torch.linalg.vector_norm(x, 0), (I.float(),)),
    ("norm-fro", lambda x: torch.linalg.matrix_norm(x), (N3,)), ("matrix-norm-1", lambda x: torch.linalg.matrix_norm(x, 1), (N3,)), ("matrix-norm-inf", lambda x: torch.linalg.matrix_norm(x, float("inf")), (N3,)),
    ("linalg-norm", torch.linalg.norm, (X,)), ("topk", lambda x: torch.topk(x, 2, 1), (N3,)), ("topk-smallest", lambda x: torch.topk(x, 3, largest=False), (N3,)),
    ("sort-descending", lambda x: torch.sort(x, descending=True), (N3,)), ("kthvalue", lambda x: torch.kthvalue(x, 2, 1), (N3,)), ("msort", torch.msort, (N3,)),
    ("argmax-all", lambda x: torch.argmax(x), (X,)), ("cumsum-int", lambda x: torch.cumsum(x, 1), (I,)), ("diff", torch.diff, (X,)), ("dist", torch.dist, (X, Y)), ("trapz", torch.trapz, (X,)),
    ("renorm", lambda x: torch.renorm(x, 2, 0, 1.0), (X,)), ("softmax-sum", lambda x: torch.softmax(x, 0).sum(), (X,)),
    ("quantile", lambda x: torch.quantile(x, 0.3, dim=1), (X,)),
]

INDEX = ints(3, 2, low=0, high=4)
POSITIONS = torch.tensor([2, 0, 1])
LAYOUT = [
    ("cat", lambda x, y: torch.cat([x, y], 1), (X, Y)), ("cat-types", lambda x, y: torch.cat([x, y]), (X, I)), ("stack", lambda x, y: torch.stack([x, y], -1), (X, Y)),
    ("chunk", lambda x: torch.chunk(x, 3, 1), (X,)), ("split", lambda x: torch.split(x, 3, 1), (X,)), ("split-sizes", lambda x: torch.split(x, [1, 3], 1), (X,)), ("unbind", lambda x: torch.unbind(x, 1), (X,)),
    ("squeeze", lambda x: x[:, :1].squeeze(1), (X,)), ("unsqueeze", lambda x: x.unsqueeze(1), (X,)), ("t", torch.t, (X,)), ("transpose", lambda x: x.transpose(0, 2), (N3,)), ("permute", lambda x: x.permute(2, 0, 1), (N3,)),
    ("reshape", lambda x: x.transpose(0, 2).reshape(-1, 2), (N3,)), ("view", lambda x: x.view(6, 5), (N3,)), ("flatten", lambda x: x.flatten(1), (N3,)), ("unflatten", lambda x: x.unflatten(1, (2, 2)), (X,)),
    ("expand", lambda x: x[:, None].expand(-1, 2, -1), (X,)), ("expand_as", lambda x, y: x.expand_as(y), (ROW, X)), ("repeat", lambda x: x.repeat(2, 1, 3), (X,)), ("tile", lambda x: x.tile(2), (X,)),
    ("flip", lambda x: x.flip(0, 2), (N3,)), ("roll", lambda x: x.roll(2, 1), (X,)), ("roll-all", lambda x: x.roll(5), (X,)), ("roll-two", lambda x: x.roll((1, -1), (0, 1)), (X,)),
    ("slice", lambda x: x[1:, ::2], (X,)), ("slice-negative", lambda x: x[..., -3:-1], (N3,)), ("select", lambda x: x[1], (N3,)), ("narrow", lambda x: x.narrow(1, 1, 2), (X,)), ("index-none", lambda x: x[:, None, 1:], (X,)),
    ("diagonal", lambda x: x.diagonal(0, 1, 2), (N3,)), ("diagonal-offset", lambda x: torch.diagonal(x, 1), (X,)), ("diag", torch.diag, (ROW,)), ("diag_embed", torch.diag_embed, (X,)), ("diag_embed-offset", lambda x: torch.diag_embed(x, 1, 0, 2), (X,)),
    ("tril", torch.tril, (N3,)), ("triu", lambda x: torch.triu(x, 1), (N3,)), ("unfold", lambda x: x.unfold(1, 3, 1), (X,)), ("as_strided", lambda x: x.as_strided((2, 3), (1, 2)), (X,)), ("movedim", lambda x: x.movedim(0, 2), (N3,)),
    ("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), (ROW, randn(3))), ("cartesian_prod", torch.cartesian_prod, (ROW, randn(3))), ("tensordot", lambda x, y: torch.tensordot(x, y, ([1], [1])), (X, Y)),
    ("pad", lambda x: F.pad(x, (1, 2, 0, 1), value=3.0), (X,)), ("pad-crop", lambda x: F.pad(x, (-1, 2)), (X,)), ("reflect1d", lambda x: F.pad(x, (2, 1), mode="reflect"), (SIGNAL,)), ("reflect2d", lambda x: F.pad(x, (2, 1, 3, 0), mode="reflect"), (IMAGE,)),
    ("replicate1d", lambda x: F.pad(x, (2, 1), mode="replicate"), (SIGNAL,)), ("replicate2d", lambda x: F.pad(x, (2, 1, 3, 0), mode="replicate"), (IMAGE,)), ("replicate3d", lambda x: F.pad(x, (2, 1, 3, 0, 1, 1), mode="replicate"), (VOLUME,)), ("circular", lambda x: F.pad(x, (2, 1), mode="circular"), (SIGNAL,)),
    ("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (randn(2, 8, 3, 4),)), ("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), (randn(2, 3, 4, 6),)), ("channel_shuffle", lambda x: F.channel_shuffle(x, 2), (randn(2, 6, 3, 4),)),
    ("unfold-2d", lambda x: F.unfold(x, 3, padding=1, stride=2), (IMAGE,)), ("fold", lambda x: F.fold(x, (6, 7), (2, 3), padding=1), (randn(2, 12, 49),)), ("broadcast_to", lambda x: torch.broadcast_to(x, (2, 3, 4)), (X,)),
    ("rot90", torch.rot90, (X,)), ("swapaxes", lambda x: x.swapaxes(0, 1), (X,)), ("block_diag", torch.block_diag, (X, Y)), ("kron", torch.kron, (X, Y[:2, :2])), ("contiguous", lambda x: x.t().contiguous() + 1, (X,)), ("clone", lambda x: x.clone() * 2, (X,)),
    ("repeat_interleave", lambda x: x.repeat_interleave(3, dim=1), (X,)), ("hstack", lambda x, y: torch.hstack([x, y]), (X, Y)), ("vander", torch.vander, (ROW,)), ("bitcast", lambda x: x.view(i32), (X,)),
]
CREATION = [
    ("arange", lambda x: torch.arange(4) + x, (X,)), ("arange-float", lambda x: torch.arange(0.5, 2.5, 0.5) + x, (X,)), ("zeros", lambda x: torch.zeros(3, 4) + x, (X,)), ("ones", lambda x: torch.ones(4, dtype=i64) + x, (X,)),
    ("full", lambda x: torch.full((3, 4), 2.5) + x, (X,)), ("full_like", lambda x: torch.full_like(x, 3), (X,)), ("zeros_like", torch.zeros_like, (X,)), ("ones_like", torch.ones_like, (I,)), ("new_zeros", lambda x: x.new_zeros(2), (X,)),
    ("new_ones", lambda x: x.new_ones(2, dtype=i64), (X,)), ("new_full", lambda x: x.new_full((2,), 4), (X,)), ("eye", lambda x: torch.eye(4) @ x.t(), (X,)), ("linspace", lambda x: torch.linspace(0, 1, 4) + x, (X,)), ("logspace", lambda x: torch.logspace(0, 1, 4) + x, (X,)),
    ("tensor", lambda x: torch.tensor([1.0, 2, 3, 4]) * x, (X,)), ("scalar", lambda x: torch.tensor(3) * x, (X,)), ("fill", lambda x: x.clone().fill_(3.5), (X,)), ("tril_indices", lambda x: torch.tril_indices(3, 3) + x.long()[:2, :1], (X,)), ("one_hot", lambda x: F.one_hot(x, 5), (J,)), ("from_numpy", lambda x: x + torch.as_tensor([[1.0], [2], [3]]), (X,)),
    ("empty-filled", lambda x: torch.empty(3, 4).copy_(x), (X,)), ("hann", lambda x: torch.hann_window(4) * x, (X,)),
]
INDEXING = [
    ("gather", lambda x, i: torch.gather(x, 1, i), (X, INDEX)), ("gather-0", lambda x, i: torch.gather(x, 0, i), (X, INDEX % 3)), ("index_select", lambda x, i: x.index_select(0, i), (X, POSITIONS)), ("take", torch.take, (X, INDEX)), ("take_along_dim", lambda x, i: torch.take_along_dim(x, i, 1), (X, INDEX)),
    ("index", lambda x, i: x[i], (X, POSITIONS)), ("index-2d", lambda x, i: x[i], (ROW, INDEX)), ("index-negative", lambda x, i: x[i], (X, POSITIONS - 3)), ("index-two", lambda x, i: x[i, i], (X, POSITIONS)), ("index-second", lambda x, i: x[:, i], (X, POSITIONS)), ("index-apart", lambda x, i: x[i % 2, :, i], (N3, POSITIONS)), ("index-middle", lambda x, i: x[:, i, i], (N3, POSITIONS)),
    ("index-mixed", lambda x, i: x[0, i], (X, POSITIONS)), ("embedding", F.embedding, (I % 3, X)), ("embedding-bag", lambda i, w: F.embedding_bag(i, w, mode="sum"), (I % 3, X)), ("embedding-bag-mean", lambda i, w, o: F.embedding_bag(i, w, o), (I.reshape(-1) % 3, X, torch.tensor([0, 3, 3, 7]))), ("embedding-bag-max", lambda i, w: F.embedding_bag(i, w, mode="max"), (I % 3, X)),
    ("scatter", lambda x, i, s: x.scatter(1, i, s), (X, torch.tensor([[0, 1], [3, 2], [1, 0]]), Y)), ("scatter-number", lambda x, i: x.scatter(1, i, 2.5), (X, INDEX)), ("scatter_add", lambda x, i, s: x.scatter_add(1, i, s), (X, INDEX, Y)), ("scatter_add-rows", lambda x, i, s: x.scatter_add(0, i[:, None].expand(-1, 4), s), (X, torch.tensor([1, 1, 2]), Y)),
    ("scatter-reduce-add", lambda x, i, s: x.scatter(1, i, s, reduce="add"), (X, INDEX, Y)), ("scatter-multiply", lambda x, i: x.scatter(1, i, 2.0, reduce="multiply"), (X, INDEX)),
    *((f"scatter_reduce-{r}-{s}", lambda x, i, y, r=r, s=s: x.scatter_reduce(1, i, y, r, include_self=s), (X, INDEX, Y)) for r in ("sum", "prod", "mean", "amax", "amin") for s in (True, False)),
    *((f"index_reduce-{r}", lambda x, i, y, r=r: x.index_reduce(0, i, y, r), (X, torch.tensor([0, 2, 0]), Y)) for r in ("prod", "mean", "amax", "amin")),
    ("index_add", lambda x, i, s: x.index_add(0, i, s, alpha=2), (X, torch.tensor([0, 2, 0]), Y)), ("index_copy", lambda x, i, s: x.index_copy(0, i, s), (X, POSITIONS, Y)), ("index_fill", lambda x, i: x.index_fill(1, i, 7.0), (X, POSITIONS)), ("index_put", lambda x, i, s: x.index_put((i,), s), (X, POSITIONS, Y)), ("index_put-accumulate", lambda x, i, s: x.index_put((i,), s, accumulate=True), (X, torch.tensor([0, 2, 0]), Y)), ("index_put-two", lambda x, i: x.index_put((i, i), torch.tensor(9.0)), (X, POSITIONS)),
    ("setitem-mask", lambda x, b: torch.where(b, x, 0).index_put((b,), torch.tensor(2.0)), (X, B)), ("masked_scatter", lambda x, b, s: x.masked_scatter(b, s), (X, B, Y)), ("bucketize", torch.bucketize, (X, torch.tensor([-1.0, 0, 1]))), ("bucketize-right", lambda x, b: torch.bucketize(x, b, right=True), (I, torch.tensor([-2, 0, 2]))), ("searchsorted", torch.searchsorted, (torch.sort(X)[0], Y)), ("histc", lambda x: torch.histc(x, 5, -2, 2), (X,)),
    ("select_scatter", lambda x, y: torch.select_scatter(x, y[0], 0, 1), (X, Y)), ("slice_scatter", lambda x, y: torch.slice_scatter(x, y[:, :2], 1, 0, 4, 2), (X, Y)), ("diagonal_scatter", lambda x, y: torch.diagonal_scatter(x, y[0, :3]), (X, Y)), ("bincount", lambda x: torch.bincount(x, minlength=7), (J.reshape(-1),)), ("isin", torch.isin, (I, POSITIONS)),
]
M, K = randn(4, 5), randn(5, 6)
LINALG = [
    ("mm", torch.mm, (M, K)), ("bmm", torch.bmm, (randn(2, 3, 4), randn(2, 4, 5))), ("matmul", torch.matmul, (randn(2, 3, 4, 5), randn(3, 5, 6))), ("matmul-vector", torch.matmul, (M, randn(5))), ("mv", torch.mv, (M, randn(5))), ("dot", torch.dot, (ROW, ROW + 1)), ("outer", torch.outer, (ROW, randn(3))),
    ("addmm", lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), (randn(4, 6), M, K)), ("addmv", torch.addmv, (ROW, M, randn(5))), ("baddbmm", torch.baddbmm, (randn(2, 3, 5), randn(2, 3, 4), randn(2, 4, 5))), ("addbmm", torch.addbmm, (randn(3, 5), randn(2, 3, 4), randn(2, 4, 5))), ("addr", torch.addr, (randn(4, 3), ROW, randn(3))),
    ("einsum", lambda x, y: torch.einsum("bij,bkj->bik", x, y), (randn(2, 3, 4), randn(2, 5, 4))), ("linear", F.linear, (randn(2, 3, 5), randn(6, 5), randn(6))), ("bilinear", F.bilinear, (randn(3, 4), randn(3, 5), randn(2, 4, 5), randn(2))), ("cdist", torch.cdist, (X, Y)), ("cdist-1", lambda x, y: torch.cdist(x, y, 1.0), (X, Y)), ("pdist", F.pdist, (X,)), ("cross", torch.cross, (randn(4, 3), randn(4, 3, seed=5))), ("linalg-cross", lambda x, y: torch.linalg.cross(x, y, dim=0), (randn(3, 4), randn(3, 4, seed=5))), ("trace", torch.trace, (X,)), ("mm-half", torch.mm, (M.half(), K.half())), ("chain", lambda a, b: torch.linalg.multi_dot([a, b, a]), (randn(3, 3), randn(3, 3, seed=1))), ("inner", torch.inner, (X, Y)), ("vdot", torch.vdot, (ROW, ROW)), ("mm-int", torch.mm, (I, J.t())),
]
CONVOLUTION = [
    ("conv1d", lambda x, w, b: F.conv1d(x, w, b, 2, 1), (SIGNAL, randn(4, 3, 3), randn(4))), ("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), (IMAGE, randn(4, 3, 3, 3), randn(4))), ("conv2d-stride", lambda x, w: F.conv2d(x, w, None, (2, 1), (1, 0), (1, 2)), (IMAGE, randn(4, 3, 3, 2))), ("conv3d", lambda x, w: F.conv3d(x, w, padding=1), (VOLUME, randn(4, 3, 3, 2, 3))), ("conv-groups", lambda x, w: F.conv2d(x, w, groups=3), (IMAGE, randn(6, 1, 3, 3))), ("conv-same", lambda x, w: F.conv2d(x, w, padding="same"), (IMAGE, randn(4, 3, 3, 2))), ("conv-unbatched", lambda x, w: F.conv2d(x, w), (randn(3, 6, 7), randn(4, 3, 3, 2))),
    ("conv_transpose1d", lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, 1), (SIGNAL, randn(3, 4, 3), randn(4))), ("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=(2, 3), padding=1, output_padding=(1, 2)), (IMAGE, randn(3, 4, 3, 4))), ("conv_transpose3d", lambda x, w: F.conv_transpose3d(x, w, stride=2), (VOLUME, randn(3, 4, 2, 3, 2))), ("conv_transpose-groups", lambda x, w: F.conv_transpose2d(x, w, groups=3, stride=2), (IMAGE, randn(3, 2, 3, 3))), ("conv_transpose-dilated", lambda x, w: F.conv_transpose2d(x, w, dilation=2), (IMAGE, randn(3, 2, 3, 3))), ("conv-half", lambda x, w: F.conv2d(x, w), (IMAGE.half(), randn(4, 3, 3, 3, dtype=f16))),
]
POOL = [
    ("max_pool1d", lambda x: F.max_pool1d(x, 3, 2, 1), (SIGNAL,)), ("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGE,)), ("max_pool2d-ceil", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), (IMAGE,)), ("max_pool2d-dilated", lambda x: F.max_pool2d(x, 2, 1, dilation=2), (IMAGE,)), ("max_pool3d", lambda x: F.max_pool3d(x, 2), (VOLUME,)), ("max_pool-unbatched", lambda x: F.max_pool2d(x, 2), (randn(3, 6, 7),)),
    ("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, 1), (SIGNAL,)), ("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), (IMAGE,)), ("avg_pool2d-exclude", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (IMAGE,)), ("avg_pool2d-ceil", lambda x: F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True), (IMAGE,)), ("avg_pool2d-divisor", lambda x: F.avg_pool2d(x, 2, divisor_override=3), (IMAGE,)), ("avg_pool3d", lambda x: F.avg_pool3d(x, 2), (VOLUME,)), ("avg_pool2d-unbatched", lambda x: F.avg_pool2d(x, 2), (randn(3, 6, 7),)),
    ("adaptive_avg1d", lambda x: F.adaptive_avg_pool1d(x, 4), (SIGNAL,)), ("adaptive_avg2d", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (IMAGE,)), ("adaptive_avg2d-1", lambda x: F.adaptive_avg_pool2d(x, 1), (IMAGE,)), ("adaptive_avg2d-even", lambda x: F.adaptive_avg_pool2d(x, (4, 3)), (IMAGE,)), ("adaptive_avg3d", lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), (VOLUME,)), ("adaptive_max1d", lambda x: F.adaptive_max_pool1d(x, 4), (SIGNAL,)), ("adaptive_max2d", lambda x: F.adaptive_max_pool2d(x, (3, 2)), (IMAGE,)), ("adaptive_max3d", lambda x: F.adaptive_max_pool3d(x, 2), (VOLUME,)), ("lp_pool2d", lambda x: F.lp_pool2d(x.abs(), 2, 2), (IMAGE,)),
]
NORM = [
    ("layer_norm", lambda x, w, b: F.layer_norm(x, (5,), w, b), (N3, randn(5), randn(5, seed=1))), ("layer_norm-two", lambda x: F.layer_norm(x, (3, 5)), (N3,)), ("layer_norm-half", lambda x: F.layer_norm(x, (4,)), (H,)), ("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), (randn(2, 4, 3, 5), randn(4), randn(4, seed=1))), ("group_norm-plain", lambda x: F.group_norm(x, 3), (IMAGE,)), ("instance_norm", F.instance_norm, (IMAGE,)), ("instance_norm-affine", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), (IMAGE, randn(3), randn(3, seed=1))),
    ("batch_norm", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), (IMAGE, randn(3), rand(3) + 0.5, randn(3, seed=1), randn(3, seed=2))), ("batch_norm-plain", lambda x, m, v: F.batch_norm(x, m, v), (IMAGE, randn(3), rand(3) + 0.5)), ("batch_norm-training", lambda x, m, v: (F.batch_norm(x, m, v, training=True), m, v), (IMAGE, randn(3), rand(3) + 0.5)), ("batch_norm-2d", lambda x: F.batch_norm(x, None, None, training=True), (X,)), ("rms_norm", lambda x, w: F.rms_norm(x, (5,), w), (N3, randn(5))), ("local_response_norm", lambda x: F.local_response_norm(x, 2), (IMAGE,)), ("weight_norm", lambda v, g: torch._weight_norm(v, g, 0), (X, rand(3, 1))),
]
PROBABILITIES, LOGITS, CLASSES = rand(3, 4, low=0.05, high=0.95), randn(5, 7), ints(5, low=0, high=7)
LOSS = [(f"{f.__name__}-{reduction}", lambda x, y, f=f, r=reduction: f(x, y, reduction=r), (X, Y)) for f in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss) for reduction in ("mean", "sum", "none")]
LOSS += [(f"{name}-{reduction}", lambda *a, f=f, r=reduction: f(*a, reduction=r), args) for reduction in ("mean", "sum", "none") for name, f, args in [
    ("cross_entropy", F.cross_entropy, (LOGITS, CLASSES)), ("nll", F.nll_loss, (LOGITS, CLASSES)), ("bce", F.binary_cross_entropy, (PROBABILITIES, P / 2)), ("bce_logits", F.binary_cross_entropy_with_logits, (X, P / 2)), ("kl_div", F.kl_div, (X, PROBABILITIES)), ("poisson", F.poisson_nll_loss, (X, P)), ("hinge", F.hinge_embedding_loss, (X, B * 2.0 - 1)), ("soft_margin", F.soft_margin_loss, (X, B * 2.0 - 1)),
    ("cosine_embedding", F.cosine_embedding_loss, (X, Y, torch.tensor([1, -1, 1]))), ("margin_ranking", F.margin_ranking_loss, (ROW, ROW.flip(0), C * 2.0 - 1)), ("triplet", F.triplet_margin_loss, (X, Y, P)), ("multi_margin", F.multi_margin_loss, (LOGITS, CLASSES)), ("multilabel_soft", F.multilabel_soft_margin_loss, (X, B.float())), ("multilabel_margin", F.multilabel_margin_loss, (X, torch.tensor([[1, 3, -1, 0], [-1, 0, 0, 0], [0, 1, 2, 3]]))),
    ("nll_2d", F.nll_loss, (randn(2, 4, 3, 3), ints(2, 3, 3, low=0, high=4))), ("cross_entropy-2d", F.cross_entropy, (randn(2, 4, 3, 3), ints(2, 3, 3, low=0, high=4))),
]]
LOSS += [
    ("cross_entropy-ignore", lambda x, y: F.cross_entropy(x, y, ignore_index=2), (LOGITS, CLASSES)), ("cross_entropy-weight", lambda x, y, w: F.cross_entropy(x, y, w), (LOGITS, CLASSES, rand(7))), ("cross_entropy-smooth", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), (LOGITS, CLASSES)), ("cross_entropy-probabilities", lambda x, y: F.cross_entropy(x, y.softmax(1)), (LOGITS, LOGITS + 1)), ("bce-weight", lambda x, y, w: F.binary_cross_entropy(x, y, w), (PROBABILITIES, P / 2, P)), ("bce_logits-pos", lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w), (X, P / 2, rand(4))), ("kl-log", lambda x, y: F.kl_div(x, y, log_target=True, reduction="batchmean"), (X, Y)),
    *((f"ctc-{r}", lambda x, y, a, b, r=r: F.ctc_loss(x.log_softmax(2), y, a, b, reduction=r), (randn(8, 3, 5), ints(3, 4, low=1, high=5), torch.tensor([8, 7, 6]), torch.tensor([3, 2, 4]))) for r in ("mean", "sum", "none")), ("ctc-lists", lambda x, y: F.ctc_loss(x.log_softmax(2), y, (8, 8, 8), (3, 2, 4)), (randn(8, 3, 5), ints(3, 4, low=1, high=5))), ("nll-one", lambda x, y: F.nll_loss(x, y), (ROW, torch.tensor(2))),
]
RESIZE = [
    ("nearest1d", lambda x: F.interpolate(x, scale_factor=2), (SIGNAL,)), ("nearest2d", lambda x: F.interpolate(x, (12, 11)), (IMAGE,)), ("nearest2d-scale", lambda x: F.interpolate(x, scale_factor=1.7), (IMAGE,)), ("nearest2d-down", lambda x: F.interpolate(x, (4, 3)), (IMAGE,)), ("nearest3d", lambda x: F.interpolate(x, scale_factor=2), (VOLUME,)), ("nearest-exact", lambda x: F.interpolate(x, (5, 13), mode="nearest-exact"), (IMAGE,)), ("linear", lambda x: F.interpolate(x, 17, mode="linear"), (SIGNAL,)), ("bilinear", lambda x: F.interpolate(x, (12, 5), mode="bilinear"), (IMAGE,)), ("bilinear-align", lambda x: F.interpolate(x, (12, 5), mode="bilinear", align_corners=True), (IMAGE,)), ("bilinear-scale", lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear"), (IMAGE,)), ("trilinear", lambda x: F.interpolate(x, (6, 4, 9), mode="trilinear"), (VOLUME,)), ("bicubic", lambda x: F.interpolate(x, (12, 5), mode="bicubic"), (IMAGE,)), ("bicubic-align", lambda x: F.interpolate(x, (12, 5), mode="bicubic", align_corners=True), (IMAGE,)), ("bilinear-aa", lambda x: F.interpolate(x, (4, 5), mode="bilinear", antialias=True), (IMAGE,)), ("bicubic-aa", lambda x: F.interpolate(x, (4, 5), mode="bicubic", antialias=True), (IMAGE,)), ("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), (IMAGE, rand(2, 4, 5, 2, low=-1.2, high=1.2))), ("affine_grid", lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), (randn(2, 2, 3),)),
]
Q = randn(2, 3, 5, 4)
ATTENTION = [
    ("attention", F.scaled_dot_product_attention, (Q, Q + 1, Q - 1)), ("attention-causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (Q, Q + 1, Q - 1)), ("attention-mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), (Q, Q + 1, Q - 1, randn(5, 5))), ("attention-bool", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), (Q, Q + 1, Q - 1, torch.ones(5, 5).tril() > 0)), ("attention-half", F.scaled_dot_product_attention, (Q.half(), Q.half(), Q.half())), ("attention-gqa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (randn(2, 4, 5, 4), randn(2, 2, 5, 4), randn(2, 2, 5, 4))),
]

ALL = {
    "pointwise": POINTWISE, "activation": ACTIVATION, "reduction": REDUCTION, "layout": LAYOUT, "creation": CREATION, "indexing": INDEXING, "linalg": LINALG, "convolution": CONVOLUTION, "pool": POOL, "norm": NORM, "loss": LOSS, "resize": RESIZE, "attention": ATTENTION,
}

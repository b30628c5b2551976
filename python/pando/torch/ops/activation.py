"""Activations. Those that the engines know as one step are composites."""

from __future__ import annotations

import math

from ._table import arithmetic, axis_of, wide


@arithmetic("relu")
def relu(c, x):
    return x.maximum(0)


@arithmetic("sigmoid")
def sigmoid(c, x):
    return x.composite("sigmoid")


@arithmetic("silu")
def silu(c, x):
    return x.composite("silu")


@arithmetic("gelu")
def gelu(c, x, *, approximate="none"):
    return x.composite("gelu" if approximate == "none" else "gelu_tanh")


@arithmetic("hardsigmoid")
def hardsigmoid(c, x):
    return (x + 3.0).maximum(0.0).minimum(6.0) / 6.0


@arithmetic("hardswish")
def hardswish(c, x):
    return x * (x + 3.0).maximum(0.0).minimum(6.0) / 6.0


@arithmetic("hardtanh")
def hardtanh(c, x, low=-1, high=1):
    return x.maximum(low).minimum(high)


@arithmetic("leaky_relu")
def leaky_relu(c, x, slope=0.01):
    return x.gt(0).select(x, x * slope)


@arithmetic("_prelu_kernel", "prelu")
def prelu(c, x, weight):
    return x.gt(0).select(x, x * weight)


@arithmetic("elu")
def elu(c, x, alpha=1, scale=1, input_scale=1):
    # The other side of the selection must not overflow: its gradient would be NaN.
    below = (x.minimum(0.0) * input_scale).unary("expm1") * (alpha * scale)
    return x.gt(0).select(x * scale if scale != 1 else x, below)


@arithmetic("celu")
def celu(c, x, alpha=1.0):
    return elu(c, x, alpha, 1, 1 / alpha)


@arithmetic("selu")
def selu(c, x):
    return elu(c, x, 1.6732632423543772, 1.0507009873554805)


@arithmetic("softplus")
def softplus(c, x, beta=1, threshold=20):
    scaled = x * beta
    return scaled.gt(threshold).select(x, scaled.minimum(threshold).exp().unary("log1p") / beta)


@arithmetic("mish")
def mish(c, x):
    return x * softplus(c, x).tanh()


@arithmetic("log_sigmoid_forward", "log_sigmoid")
def log_sigmoid(c, x):
    result = x.minimum(0.0) - (-x.abs()).exp().unary("log1p")
    return [result, None][: len(c.outs)]


@arithmetic("softshrink")
def softshrink(c, x, bound=0.5):
    return x.gt(bound).select(x - bound, x.lt(-bound).select(x + bound, x * 0.0))


@arithmetic("hardshrink")
def hardshrink(c, x, bound=0.5):
    return x.abs().gt(bound).select(x, 0)


@arithmetic("threshold")
def threshold(c, x, bound, number):
    return x.le(bound).select(number, x)


@arithmetic("glu")
def glu(c, x, axis=-1):
    axis = axis_of(axis, x.rank)
    half = x.shape[axis] // 2
    return x.slice(axis, 0, half) * x.slice(axis, half, 2 * half).composite("sigmoid")


@wide("_softmax", "softmax.int", "_safe_softmax")
def softmax(c, x, axis, *_, **__):
    if x.rank == 0:
        return c.full(1)
    x = x if x.is_float else x.to("f32")
    axis = axis_of(axis, x.rank)
    result = x.composite("softmax", axis=axis)
    if c.func._opname != "_safe_softmax":
        return result
    # Rows of minus infinity give zeros.
    row = x.reduce("max", [axis], keep=True).eq(-math.inf)
    return row.select(0.0, result)


@wide("_log_softmax", "log_softmax.int")
def log_softmax(c, x, axis, *_, **__):
    if x.rank == 0:
        return c.full(0)
    x = x if x.is_float else x.to("f32")
    return x.composite("log_softmax", axis=axis_of(axis, x.rank))


@arithmetic("rrelu_with_noise", "rrelu_with_noise_functional")
def rrelu(c, x, noise, lower=0.125, upper=1 / 3, training=False, generator=None):
    slope = (lower + upper) / 2
    if training:
        slope = c.capture.random("uniform", "f32", x.shape) * (upper - lower) + lower
    result = x.ge(0).select(x, x * slope)
    return [result, None][: len(c.outs)]

"""Normalisations."""

from __future__ import annotations

import math

import torch

from .._special import special
from .._value import Value
from ._table import op, wide
from .linalg import like


def _affine(x: Value, scale: Value | None, bias: Value | None) -> Value:
    """By channel, the second axis."""
    shape = (1, -1, *([1] * (x.rank - 2)))
    x = x if scale is None else x * scale.reshape(_channel_shape(shape, scale))
    return x if bias is None else x + bias.reshape(_channel_shape(shape, bias))


def _channel_shape(shape, value: Value):
    return tuple(value.size if size == -1 else size for size in shape)


@op("native_layer_norm", before=like(0, 2, 3))
def layer_norm(c, x, shape, weight, bias, eps):
    dtype, x = x.dtype, x.wide()
    length = math.prod(shape)
    flat = x.reshape(*x.shape[: x.rank - len(shape)], length)
    scale = c.g.full(x.dtype, (length,), 1) if weight is None else weight.to(x.dtype).reshape(length)
    shift = c.g.full(x.dtype, (length,), 0) if bias is None else bias.to(x.dtype).reshape(length)
    result = c.g.composite("layer_norm", [flat, scale, shift], epsilon=eps)
    return [result.reshape(x.shape).to(dtype), None, None]


@op("rms_norm", "_fused_rms_norm", before=like(0, 2))
def rms_norm(c, x, shape, weight=None, eps=None):
    dtype, x = x.dtype, x.wide()
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    length = math.prod(shape)
    flat = x.reshape(*x.shape[: x.rank - len(shape)], length)
    scale = c.g.full(x.dtype, (length,), 1) if weight is None else weight.to(x.dtype).reshape(length)
    result = c.g.composite("rms_norm", [flat, scale], epsilon=eps)
    return [result.reshape(x.shape).to(dtype), None][: len(c.outs)]


@op("native_group_norm", before=like(0, 1, 2))
def group_norm(c, x, weight, bias, batch, channels, area, groups, eps):
    dtype, shape, x = x.dtype, x.shape, x.wide()
    flat = x.reshape(batch * groups, channels // groups * area)
    # One scale and bias per group would not do: the row's own are ones and zeros, the channels' come after.
    ones, zeros = (c.g.full(x.dtype, (flat.shape[1],), number) for number in (1, 0))
    normal = c.g.composite("layer_norm", [flat, ones, zeros], epsilon=eps).reshape(shape)
    weight, bias = (value if value is None else value.to(x.dtype) for value in (weight, bias))
    return [_affine(normal, weight, bias).to(dtype), None, None]


@special(
    "native_batch_norm",
    "cudnn_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "_native_batch_norm_legit.no_stats",
)
def batch_norm(capture, func, args, kwargs):
    """Running statistics are changed in place, which the schema does not always say."""
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args)), **kwargs}
    x, weight, bias = given["input"], given.get("weight"), given.get("bias")
    mean, var = given.get("running_mean"), given.get("running_var")
    training = given.get("training", True) or mean is None
    eps = given.get("eps", given.get("epsilon", 1e-5))
    momentum = given.get("momentum", given.get("exponential_average_factor", 0.1))
    fake = capture.fake(x)
    out = [torch.empty_like(fake)] + [fake.new_empty(fake.shape[1] if training else 0) for _ in range(2)]
    handler = _training if training else _inference
    values = capture.translate(func, handler(capture, mean, var, eps, momentum), (x, weight, bias, mean, var), {}, out)
    return tuple(capture.wrap_all(out, values, capture.needs_grad((x, weight, bias), {})))


def _inference(capture, running_mean, running_var, eps, momentum):
    def handler(c, x, weight, bias, mean, var):
        dtype, x = x.dtype, x.wide()
        mean, var = mean.to(x.dtype), var.to(x.dtype)
        scale = 1.0 / (var + eps).sqrt()
        scale = scale if weight is None else scale * weight.to(x.dtype)
        shift = -mean * scale
        shift = shift if bias is None else shift + bias.to(x.dtype)
        return [_affine(x, scale, shift).to(dtype), None, None]

    return handler


def _training(capture, running_mean, running_var, eps, momentum):
    def handler(c, x, weight, bias, mean, var):
        dtype, x = x.dtype, x.wide()
        channels = x.shape[1]
        scale = c.g.full(x.dtype, (channels,), 1) if weight is None else weight.to(x.dtype)
        shift = c.g.full(x.dtype, (channels,), 0) if bias is None else bias.to(x.dtype)
        result, batch_mean, batch_var = c.g.composites("batch_norm_training", [x, scale, shift], epsilon=eps)
        count = x.size // channels if channels else 0
        if running_mean is not None:
            unbiased = batch_var * (count / max(count - 1, 1))
            for tensor, old, new in ((running_mean, mean, batch_mean), (running_var, var, unbiased)):
                new = capture.detached(new).to(old.dtype)
                capture.assign(tensor, old * (1 - momentum) + new * momentum, False)
        return [result.to(dtype), None, None]

    return handler


@wide("_weight_norm_interface", "_weight_norm")
def weight_norm(c, v, g, dim=0):
    axes = [axis for axis in range(v.rank) if axis != dim]
    norm = (v * v).sum(axes, keep=True).sqrt()
    return [v * (g / norm), norm.to("f32")][: len(c.outs)]


@wide("renorm")
def renorm(c, x, order, axis, most):
    from .reduction import vector_norm

    axes = [other for other in range(x.rank) if other != axis % x.rank]
    norm = vector_norm(c, x, order, axes, True)
    return x * norm.gt(most).select(most / (norm + 1e-7), 1.0)

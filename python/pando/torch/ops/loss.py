"""Losses."""

from __future__ import annotations

from .._value import Value
from ._table import arithmetic, op, wide

#: How ATen numbers reductions.
NONE, MEAN, SUM = range(3)


def reduced(loss: Value, reduction: int) -> Value:
    if reduction == NONE:
        return loss
    axes = range(loss.rank)
    return loss.sum(axes) if reduction == SUM else loss.mean(axes)


@arithmetic("mse_loss")
def mse_loss(c, x, target, reduction=MEAN):
    difference = x - target
    return reduced(difference * difference, reduction)


@arithmetic("l1_loss")
def l1_loss(c, x, target, reduction=MEAN):
    return reduced((x - target).abs(), reduction)


@arithmetic("smooth_l1_loss")
def smooth_l1_loss(c, x, target, reduction=MEAN, beta=1.0):
    size = (x - target).abs()
    if beta == 0:
        return reduced(size, reduction)
    return reduced(size.lt(beta).select(size * size * (0.5 / beta), size - 0.5 * beta), reduction)


@arithmetic("huber_loss")
def huber_loss(c, x, target, reduction=MEAN, delta=1.0):
    size = (x - target).abs()
    return reduced(size.le(delta).select(size * size * 0.5, (size - 0.5 * delta) * delta), reduction)


@arithmetic("binary_cross_entropy")
def binary_cross_entropy(c, x, target, weight=None, reduction=MEAN):
    """Logarithms and their gradients are bounded."""
    loss = c.g.composite("bce", [x, target.broadcast(x.shape)])
    return reduced(loss if weight is None else loss * weight, reduction)


@arithmetic("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(c, x, target, weight=None, pos_weight=None, reduction=MEAN):
    # log sigmoid(-x) = min(-x, 0) - log(1 + e^-|x|)
    tail = (-x.abs()).exp().unary("log1p")
    if pos_weight is None:
        loss = x.maximum(0.0) - x * target + tail
    else:
        factor = (pos_weight - 1.0) * target + 1.0
        loss = (1.0 - target) * x + factor * (tail + (-x).maximum(0.0))
    return reduced(loss if weight is None else loss * weight, reduction)


@arithmetic("soft_margin_loss")
def soft_margin_loss(c, x, target, reduction=MEAN):
    power = -(x * target)
    # log(1 + e^p), without overflow
    return reduced(power.maximum(0.0) + (-power.abs()).exp().unary("log1p"), reduction)


@op("nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss2d")
def nll_loss(c, x, target, weight=None, reduction=MEAN, ignore_index=-100):
    """Classes are the second axis, or the only one."""
    dtype, x = x.dtype, x.wide()
    if x.rank == 1:
        x, target = x.unsqueeze(0), target.reshape(1)
    # A comparison with every class: its gradient needs no scatter and joins the softmax's.
    classes = c.g.iota("i32", x.shape, 1)
    chosen = classes.eq(target.to("i32").unsqueeze(1))
    counts = target.ne(ignore_index)
    picked = chosen.select(x, 0.0).sum([1])
    weights = counts.to("f32")
    if weight is not None:
        per_class = weight.to(x.dtype).reshape(1, -1, *([1] * (x.rank - 2)))
        weights = (chosen & counts.unsqueeze(1)).select(per_class.broadcast(x.shape), 0.0).sum([1])
    loss = -(counts.select(picked, 0.0) * weights)
    total = weights.sum(range(weights.rank))
    if reduction == NONE:
        result = loss
    else:
        result = loss.sum(range(loss.rank))
        result = result / total if reduction == MEAN else result
    result = result.reshape(c.out.shape).to(dtype)
    return [result, total.to(dtype) if reduction != NONE else None][: len(c.outs)]


@wide("multi_margin_loss")
def multi_margin_loss(c, x, target, p=1, margin=1, weight=None, reduction=MEAN):
    x = x if x.rank == 2 else x.unsqueeze(0)
    target = target.reshape(-1)
    chosen = c.g.iota("i64", x.shape, 1).eq(target.unsqueeze(1))
    right = chosen.select(x, 0.0).sum([1], keep=True)
    loss = (x - right + margin).maximum(0.0)
    loss = loss * loss if p == 2 else loss
    if weight is not None:
        loss = loss * chosen.select(weight.reshape(1, -1).broadcast(x.shape), 0.0).sum([1], keep=True)
    loss = chosen.select(0.0, loss).sum([1]) / x.shape[1]
    return reduced(loss, reduction).reshape(c.out.shape)


@wide("multilabel_margin_loss_forward")
def multilabel_margin_loss(c, x, target, reduction=MEAN):
    """Targets are classes up to the first negative one."""
    x, target = (value if value.rank == 2 else value.unsqueeze(0) for value in (x, target))
    rows, classes = x.shape
    valid = target.lt(0).to("i32").scan("sum", 1).eq(0)
    cube = (rows, classes, classes)
    hit = c.g.iota("i64", cube, 2).eq(target.unsqueeze(2)) & valid.unsqueeze(2)
    is_target = hit.reduce("or", [1])
    scores = hit.select(x.unsqueeze(1), 0.0).sum([2])
    margins = (x.unsqueeze(1) - scores.unsqueeze(2) + 1.0).maximum(0.0)
    counted = valid.unsqueeze(2) & is_target.logical_not().unsqueeze(1)
    loss = counted.select(margins, 0.0).sum([1, 2]) / classes
    return [reduced(loss, reduction).reshape(c.outs[0].shape), is_target.to(c.outs[1].dtype).reshape(c.outs[1].shape)]


@wide("_ctc_loss", "_ctc_loss.Tensor")
def ctc_loss(c, log_probs, targets, input_lengths, target_lengths, blank=0, zero_infinity=False):
    """Of each sample; targets are padded, one row a sample."""
    if targets.rank != 2:
        raise NotImplementedError("targets of CTC in one vector; pad them to one row for each sample")
    operands = [log_probs, targets, input_lengths, target_lengths]
    return [c.g.composite("ctc", operands, blank=blank, zero_infinity=zero_infinity), None]

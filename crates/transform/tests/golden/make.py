"""Writes optimizers.json and losses.json beside this file: what PyTorch 2.15.0 computes, in f32 on a CPU.

LAMB, Adam without bias correction and RMSprop in TensorFlow's form, which PyTorch does not have, are computed
with NumPy in f64 from the formulas in their papers. Deterministic: run again, and `git diff` shows nothing.
    python crates/transform/tests/golden/make.py        (torch 2.15.0, numpy)
"""
import json
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
STEPS = 6


def numbers(values):
    """Elements in order; JSON has no infinities."""
    flat = np.asarray(values.detach().numpy() if isinstance(values, torch.Tensor) else values).reshape(-1)
    short = (float(str(x)) if x.dtype == np.float32 else x.item() for x in flat)
    return [x if math.isfinite(x) else str(x) for x in short]


def write(name, cases):
    lines = ",\n".join(json.dumps(case) for case in cases)
    (HERE / name).write_text(f"[\n{lines}\n]\n")


# Optimizers: the weight after each step, given its gradients.

def trajectory(make, weight, gradients):
    parameter = torch.nn.Parameter(torch.tensor(weight))
    optimizer = make([parameter])
    weights = []
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        weights.append(numbers(parameter))
    return weights


def numpy_trajectory(step, weight, gradients):
    weight, state, weights = weight.astype(np.float64), {}, []
    for number, gradient in enumerate(gradients, 1):
        weight = step(weight, gradient.astype(np.float64), state, number)
        weights.append(numbers(weight))
    return weights


def moments(g, state, number, correct, beta1=0.9, beta2=0.999):
    state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
    state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g * g
    if not correct:
        return state["m"], state["v"]
    return state["m"] / (1 - beta1**number), state["v"] / (1 - beta2**number)


def lamb(lr, decay=0.01, correct=True, most=65500.0):
    def step(w, g, state, number):
        m, v = moments(g, state, number, correct)
        direction = m / (np.sqrt(v) + 1e-8) + decay * w
        return w - lr * min(np.linalg.norm(w), most) / np.linalg.norm(direction) * direction
    return step


def uncorrected_adam(lr, decay):
    def step(w, g, state, number):
        m, v = moments(g, state, number, False)
        return w * (1 - lr * decay) - lr * m / (np.sqrt(v) + 1e-8)
    return step


def tf_rmsprop(lr, momentum, centered, alpha=0.99, eps=1e-8):
    def step(w, g, state, number):
        state["s"] = alpha * state.get("s", 0) + (1 - alpha) * g * g
        state["m"] = alpha * state.get("m", 0) + (1 - alpha) * g
        root = np.sqrt(state["s"] - (state["m"] ** 2 if centered else 0) + eps)
        state["v"] = momentum * state.get("v", 0) + lr * g / root
        return w - state["v"]
    return step


def optimizers():
    rng = np.random.default_rng(5)
    weight = rng.normal(size=(2, 3)).astype(np.float32)
    gradients = rng.normal(size=(STEPS, 2, 3)).astype(np.float32)
    o = torch.optim
    of_torch = [
        ("sgd", {"lr": 0.1}, o.SGD, {}),
        ("sgd", {"lr": 0.1, "weight_decay": 0.01}, o.SGD, {}),
        ("sgd", {"lr": 0.1, "momentum": 0.9}, o.SGD, {}),
        ("sgd", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}, o.SGD, {}),
        ("sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": 1, "weight_decay": 0.01}, o.SGD, {}),
        ("sgd", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "velocity_scaling": 8}, o.SGD, {}),
        ("adam", {"lr": 0.02}, o.Adam, {}),
        ("adam", {"lr": 0.02, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.1}, o.Adam, {}),
        ("adam", {"lr": 0.02, "amsgrad": 1}, o.Adam, {}),
        ("adam", {"lr": 0.02, "beta1": 0.0, "beta2": 0.9}, o.Adam, {}),
        ("adamw", {"lr": 0.02}, o.AdamW, {}),
        ("adamw", {"lr": 0.02, "weight_decay": 0.3, "amsgrad": 1}, o.AdamW, {}),
        ("adamax", {"lr": 0.02}, o.Adamax, {}),
        ("adamax", {"lr": 0.02, "weight_decay": 0.1, "beta2": 0.9}, o.Adamax, {}),
        ("rmsprop", {"lr": 0.02}, o.RMSprop, {}),
        ("rmsprop", {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1}, o.RMSprop, {}),
        ("rmsprop", {"lr": 0.02, "alpha": 0.9, "centered": 1}, o.RMSprop, {}),
        ("rmsprop", {"lr": 0.02, "alpha": 0.9, "centered": 1, "momentum": 0.9}, o.RMSprop, {}),
        ("adagrad", {"lr": 0.1}, o.Adagrad, {}),
        ("adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1}, o.Adagrad, {}),
        ("adadelta", {}, o.Adadelta, {}),
        ("adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}, o.Adadelta, {}),
    ]
    of_numpy = [
        ("lamb", {"lr": 0.02}, lamb(0.02)),
        ("lamb", {"lr": 0.02, "weight_decay": 0.2, "bias_correction": 0}, lamb(0.02, 0.2, False)),
        ("lamb", {"lr": 0.02, "max_weight_norm": 0.5}, lamb(0.02, most=0.5)),
        ("adamw", {"lr": 0.02, "weight_decay": 0.3, "bias_correction": 0}, uncorrected_adam(0.02, 0.3)),
        ("rmsprop", {"lr": 0.02, "tf_variant": 1}, tf_rmsprop(0.02, 0, False)),
        ("rmsprop", {"lr": 0.02, "tf_variant": 1, "momentum": 0.9}, tf_rmsprop(0.02, 0.9, False)),
        ("rmsprop", {"lr": 0.02, "tf_variant": 1, "momentum": 0.9, "centered": 1}, tf_rmsprop(0.02, 0.9, True)),
    ]
    cases = []
    for rule, settings, cls, _ in of_torch:
        kw = {k: v for k, v in settings.items() if k not in ("beta1", "beta2", "velocity_scaling")}
        kw = {k: bool(v) if k in ("nesterov", "amsgrad", "centered") else v for k, v in kw.items()}
        if "beta1" in settings or "beta2" in settings:
            kw["betas"] = (settings.get("beta1", 0.9), settings.get("beta2", 0.999))
        weights = trajectory(lambda p: cls(p, **kw), weight, gradients)
        cases.append({"rule": rule, "settings": settings, "weights": weights})
    for rule, settings, step in of_numpy:
        cases.append({"rule": rule, "settings": settings, "weights": numpy_trajectory(step, weight, gradients)})
    start = {"weight": numbers(weight), "gradients": [numbers(g) for g in gradients]}
    write("optimizers.json", [start] + cases)


# Losses: values, and gradients of their sum with respect to the first operand.

def operand(tensor):
    names = {torch.float32: "f32", torch.float16: "f16", torch.int64: "i64", torch.int32: "i32"}
    return {"type": names[tensor.dtype], "dims": list(tensor.shape), "values": numbers(tensor)}


def loss_case(name, function, operands, options=None, reduction="mean", gradient=True):
    first = operands[0].clone().requires_grad_(True)
    value = function(first, *operands[1:])
    case = {"loss": name, "options": options or {}, "reduction": reduction,
            "operands": [None if x is None else operand(x) for x in operands],
            "dims": list(value.shape), "values": numbers(value)}
    if gradient:
        value.sum().backward()
        case["gradient"] = numbers(first.grad)
    return case


def elementwise_losses(randn, rand):
    x, y = randn(3, 4), randn(3, 4)
    p, q = rand(3, 4) * 0.98 + 0.01, rand(3, 4)
    p[0, 0], q[0, 0], q[0, 1] = 0.5, 0.0, 1.0
    sign = torch.where(randn(3, 4) > 0, 1.0, -1.0)
    logs, counts = torch.log_softmax(x, 1), torch.floor(rand(3, 4) * 5)
    weights = torch.softmax(y, 1)
    weights[0, 0] = 0.0
    w, pos = rand(3, 4), rand(4) * 3
    for r in ("none", "mean", "sum"):
        yield loss_case("mse", lambda a, b: F.mse_loss(a, b, reduction=r), [x, y], reduction=r)
        yield loss_case("l1", lambda a, b: F.l1_loss(a, b, reduction=r), [x, y], reduction=r)
        yield loss_case("smooth_l1", lambda a, b: F.smooth_l1_loss(a, b, beta=0.7, reduction=r), [x, y],
                        {"beta": 0.7}, r)
        yield loss_case("huber", lambda a, b: F.huber_loss(a, b, delta=0.6, reduction=r), [x, y],
                        {"delta": 0.6}, r)
        yield loss_case("bce", lambda a, b: F.binary_cross_entropy(a, b, reduction=r), [p, q], reduction=r)
        yield loss_case("bce", lambda a, b, c: F.binary_cross_entropy(a, b, c, reduction=r), [p, q, w],
                        reduction=r)
        yield loss_case("bce_with_logits", lambda a, b: F.binary_cross_entropy_with_logits(a, b, reduction=r),
                        [x * 20, q], reduction=r)
        yield loss_case("bce_with_logits", lambda a, b, c, d: F.binary_cross_entropy_with_logits(
            a, b, c, pos_weight=d, reduction=r), [x, q, w, pos], reduction=r)
        yield loss_case("poisson_nll", lambda a, b: F.poisson_nll_loss(a, b, reduction=r), [x, counts],
                        reduction=r)
        yield loss_case("poisson_nll", lambda a, b: F.poisson_nll_loss(
            a, b, log_input=False, full=True, reduction=r), [p, counts], {"log_input": 0, "full": 1}, r)
        yield loss_case("hinge_embedding", lambda a, b: F.hinge_embedding_loss(a, b, margin=0.8, reduction=r),
                        [x, sign], {"margin": 0.8}, r)
        yield loss_case("soft_margin", lambda a, b: F.soft_margin_loss(a, b, reduction=r), [x, sign],
                        reduction=r)
    for r in ("none", "mean", "sum", "batchmean"):
        yield loss_case("kl_div", lambda a, b: F.kl_div(a, b, reduction=r), [logs, weights], reduction=r)
        yield loss_case("kl_div", lambda a, b: F.kl_div(a, b, log_target=True, reduction=r),
                        [logs, torch.log_softmax(y, 1)], {"log_target": 1}, r)
    yield loss_case("smooth_l1", lambda a, b: F.smooth_l1_loss(a, b, beta=0.0), [x, y], {"beta": 0.0})
    # Probabilities of 0 and 1, as a saturated sigmoid gives them.
    edge, truth = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, 1.0, 0.0])
    yield loss_case("bce", F.binary_cross_entropy, [edge, truth])


def class_losses(randn, rand):
    x, image, one = randn(5, 4), randn(2, 3, 2, 3), randn(6)
    target = torch.tensor([1, 3, 0, 3, 2])
    pixels = torch.tensor([0, 2, 1, 1, 0, 2, 2, 2, 0, 1, 0, 1]).reshape(2, 2, 3)
    single = torch.tensor(4)
    w4, w3 = rand(4) + 0.1, rand(3) + 0.1
    logs = torch.log_softmax(x, 1)
    probabilities, soft = torch.softmax(randn(5, 4), 1), torch.softmax(randn(2, 3, 2, 3), 1)
    labels = (rand(5, 4) > 0.5).float()
    for r in ("none", "mean", "sum"):
        yield loss_case("nll", lambda a, b: F.nll_loss(a, b, reduction=r), [logs, target], reduction=r)
        yield loss_case("nll", lambda a, b, c: F.nll_loss(a, b, c, ignore_index=3, reduction=r),
                        [logs, target, w4], {"ignore_index": 3}, r)
        yield loss_case("nll", lambda a, b, c: F.nll_loss(a, b, c, reduction=r), [image, pixels, w3],
                        reduction=r)
        yield loss_case("cross_entropy", lambda a, b: F.cross_entropy(a, b, reduction=r), [x, target],
                        reduction=r)
        yield loss_case("cross_entropy", lambda a, b: F.cross_entropy(a, b, reduction=r),
                        [one, single], reduction=r)
        yield loss_case("cross_entropy", lambda a, b, c: F.cross_entropy(
            a, b, c, ignore_index=3, label_smoothing=0.1, reduction=r), [x, target, w4],
            {"ignore_index": 3, "label_smoothing": 0.1}, r)
        yield loss_case("cross_entropy", lambda a, b: F.cross_entropy(a, b, label_smoothing=0.2, reduction=r),
                        [image, pixels], {"label_smoothing": 0.2}, r)
        yield loss_case("cross_entropy", lambda a, b: F.cross_entropy(a, b, reduction=r), [image, soft],
                        reduction=r)
        yield loss_case("cross_entropy", lambda a, b, c: F.cross_entropy(
            a, b, c, label_smoothing=0.1, reduction=r), [x, probabilities, w4], {"label_smoothing": 0.1}, r)
        yield loss_case("multilabel_soft_margin", lambda a, b: F.multilabel_soft_margin_loss(
            a, b, reduction=r), [x, labels], reduction=r)
        yield loss_case("multilabel_soft_margin", lambda a, b, c: F.multilabel_soft_margin_loss(
            a, b, c, reduction=r), [x, labels, w4], reduction=r)


def vector_losses(randn, rand):
    a, b, c = randn(4, 5), randn(4, 5), randn(4, 5)
    target = torch.tensor([1.0, -1.0, -1.0, 1.0])
    sign = torch.where(randn(4, 5) > 0, 1.0, -1.0)
    for r in ("none", "mean", "sum"):
        yield loss_case("cosine_embedding", lambda x, y, t: F.cosine_embedding_loss(
            x, y, t, margin=0.1, reduction=r), [a, b, target], {"margin": 0.1}, r)
        yield loss_case("margin_ranking", lambda x, y, t: F.margin_ranking_loss(
            x, y, t, margin=0.3, reduction=r), [a, b, sign], {"margin": 0.3}, r)
        yield loss_case("triplet_margin", lambda x, y, z: F.triplet_margin_loss(x, y, z, reduction=r),
                        [a, b, c], reduction=r)
        for p in (1.0, 3.0):
            yield loss_case("triplet_margin", lambda x, y, z: F.triplet_margin_loss(
                x, y, z, margin=2.0, p=p, swap=True, reduction=r), [a, b, c],
                {"margin": 2.0, "p": p, "swap": 1}, r)


def ctc_losses(randn):
    logs = torch.log_softmax(randn(7, 4, 5), 2)
    # Repeated labels, no label at all, the shortest input that fits, and padding that is no class.
    targets = torch.tensor([[1, 1, 2], [3, 0, 0], [4, 2, 1], [2, -1, 77]])
    inputs, lengths = torch.tensor([7, 5, 3, 6]), torch.tensor([3, 0, 3, 1])
    for r in ("none", "mean", "sum"):
        yield loss_case("ctc", lambda x, t, i, n: F.ctc_loss(x.log_softmax(2), t, i, n, reduction=r),
                        [logs, targets, inputs, lengths], reduction=r)
    yield loss_case("ctc", lambda x, t, i, n: F.ctc_loss(x.log_softmax(2), t, i, n, blank=4, reduction="sum"),
                    [logs, torch.tensor([[0, 1, 0]] * 4), inputs, torch.tensor([3, 2, 1, 0])],
                    {"blank": 4}, "sum")
    short = torch.tensor([3, 5, 3, 6])
    yield loss_case("ctc", lambda x, t, i, n: F.ctc_loss(
        x.log_softmax(2), t, i, n, reduction="none", zero_infinity=True),
        [logs, targets, short, lengths], {"zero_infinity": 1}, "none")
    yield loss_case("ctc", lambda x, t, i, n: F.ctc_loss(x.log_softmax(2), t, i, n, reduction="none"),
                    [logs, targets, short, lengths], reduction="none", gradient=False)


def losses():
    generator = torch.Generator().manual_seed(7)
    randn = lambda *dims: torch.randn(*dims, generator=generator)
    rand = lambda *dims: torch.rand(*dims, generator=generator)
    cases = [*elementwise_losses(randn, rand), *class_losses(randn, rand), *vector_losses(randn, rand),
             *ctc_losses(randn)]
    write("losses.json", cases)


if __name__ == "__main__":
    optimizers()
    losses()

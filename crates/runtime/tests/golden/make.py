"""Writes losses.json beside this file: the losses of 20 training steps of a small network in PyTorch 2.15.0, in
f32 on a CPU. Weights and data are made of integers, so that `tests/runtime/network.rs` makes the same.
Deterministic: run again, and `git diff` shows nothing.
    python crates/runtime/tests/golden/make.py          (torch 2.15.0)
"""
import json
import pathlib

import torch
import torch.nn.functional as F

FEATURES, HIDDEN, CLASSES, BATCH, STEPS = 8, 16, 4, 16, 20


def made(seed, *dims):
    count = 1
    for dim in dims:
        count *= dim
    values = [(((i + 1) * 7919 * (2 * seed + 1) + i * i * 31) % 1009) / 1009 - 0.5 for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).float().reshape(dims)


def batch(number):
    x = made(100 + number, BATCH, FEATURES)
    return x, x[:, :CLASSES].argmax(1)


def weights():
    shapes = {"hidden.weight": (FEATURES, HIDDEN), "hidden.bias": (HIDDEN,),
              "out.weight": (HIDDEN, CLASSES), "out.bias": (CLASSES,)}
    return {name: made(seed, *dims).requires_grad_(True) for seed, (name, dims) in enumerate(shapes.items(), 1)}


def loss_of(w, x, target):
    hidden = torch.tanh(x @ w["hidden.weight"] + w["hidden.bias"])
    return F.cross_entropy(hidden @ w["out.weight"] + w["out.bias"], target)


def losses(make_optimizer, micro_batches=1, max_grad_norm=None):
    w = weights()
    optimizer = make_optimizer(w)
    found = []
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(micro_batches):
            loss = loss_of(w, *batch(step * micro_batches + part))
            (loss / micro_batches).backward()
            found.append(loss.item())
        if max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(list(w.values()), max_grad_norm)
        optimizer.step()
    return [float(f"{loss:.9g}") for loss in found]


def groups(w):
    biases = [w["hidden.bias"], w["out.bias"]]
    return [{"params": [w["hidden.weight"], w["out.weight"]], "weight_decay": 0.1}, {"params": biases, "lr": 0.05}]


cases = {
    "sgd": losses(lambda w: torch.optim.SGD(w.values(), lr=0.5, momentum=0.9)),
    "adamw": losses(lambda w: torch.optim.AdamW(w.values(), lr=0.01)),
    "groups": losses(lambda w: torch.optim.Adam(groups(w), lr=0.01)),
    "clipped": losses(lambda w: torch.optim.SGD(w.values(), lr=1.0), max_grad_norm=0.1),
    "accumulated": losses(lambda w: torch.optim.AdamW(w.values(), lr=0.01), micro_batches=4, max_grad_norm=0.1),
}
lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in cases.items())
(pathlib.Path(__file__).parent / "losses.json").write_text("{\n" + lines + "\n}\n")

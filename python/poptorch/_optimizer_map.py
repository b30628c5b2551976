"""PyTorch's and poptorch's optimizers in the words of the compiled update: rules, settings, and numbers by group.

Every number is a variable of the compiled program, so that `setOptimizer` never compiles again; which of them the
user declared constant decides whether a change is allowed.
"""

import math
from dataclasses import dataclass, field

import torch

from . import optim
from ._errors import createPoptorchError
from ._logging import logger

_TORCH_TYPES = {torch.float32: "f32", torch.float16: "f16"}


@dataclass
class Description:
    """An optimizer as the compiler sees it."""

    rule: str
    # What decides the program: settings that are switches, types of state.
    structure: dict
    # Numbers by group: lr, beta1, ...
    groups: list
    parameters: list  # of each group
    loss_scaling: float
    max_grad_norm: float
    accum_type: str = "f32"
    first_type: str = "f32"
    second_type: str = "f32"
    constants: set = field(default_factory=set)


def describe(optimizer):
    """The description, or an Error for an optimizer that has no compiled update."""
    optim.warn_about_custom_step(optimizer)
    for cls, function in _KINDS:
        if isinstance(optimizer, cls):
            rule, structure, groups = function(optimizer)
            break
    else:
        raise createPoptorchError(
            f"Unsupported optimizer {type(optimizer).__name__}: use SGD, Adam, AdamW, RMSprop or LAMB of poptorch.optim "
            "or torch.optim"
        )
    if len({tuple(sorted(s.items())) for s in structure}) > 1:
        raise createPoptorchError("All parameter groups must agree on nesterov, centered and the like")
    attribute = lambda name, default: getattr(optimizer, name, default)  # noqa: E731
    return Description(
        rule, structure[0], groups, [list(group["params"]) for group in optimizer.param_groups],
        float(attribute("loss_scaling", 1.0)), float(attribute("max_grad_norm", math.inf)),
        _type(attribute("accum_type", torch.float32)),
        _type(attribute("velocity_accum_type", attribute("first_order_momentum_accum_type", torch.float32))),
        _type(attribute("second_order_momentum_accum_type", torch.float32)),
    )


def _type(dtype):
    return _TORCH_TYPES[dtype or torch.float32]


def _sgd(optimizer):
    structure, groups = [], []
    combined = getattr(optimizer, "use_combined_accum", False)
    for group in optimizer.param_groups:
        numbers = {name: float(group[name]) for name in ("lr", "momentum", "dampening", "weight_decay")}
        if combined:
            numbers["velocity_scaling"] = float(group.get("velocity_scaling", 1.0))
        structure.append({"nesterov": bool(group["nesterov"]), "combined": combined})
        groups.append(numbers)
    if not _varies(optimizer, "momentum") and all(group["momentum"] == 0 for group in groups):
        for group in groups:
            for name in ("momentum", "dampening", "velocity_scaling"):
                group.pop(name, None)
        structure = [{**s, "nesterov": False, "combined": False} for s in structure]
    return "sgd", structure, groups


def _varies(optimizer, name):
    """May the number change after compilation?"""
    attributes = getattr(optimizer, "variable_attrs", None)
    return attributes is not None and not attributes.isConstant(name)


def _moments(optimizer):
    groups = []
    for group in optimizer.param_groups:
        beta1, beta2 = map(float, group["betas"])
        groups.append({"lr": float(group["lr"]), "beta1": beta1, "beta2": beta2, "eps": float(group["eps"]),
                       "weight_decay": float(group["weight_decay"])})
    if any(group.get("amsgrad") for group in optimizer.param_groups):
        raise createPoptorchError("amsgrad is not supported")
    return groups


def _adam(optimizer):
    groups = _moments(optimizer)
    decoupled = any(group.get("decoupled_weight_decay") for group in optimizer.param_groups)
    return ("adamw" if decoupled else "adam"), [{"bias_correction": True}] * len(groups), groups


def _adamw(optimizer):
    groups = _moments(optimizer)
    structure = [{"bias_correction": bool(getattr(optimizer, "bias_correction", True))}] * len(groups)
    return "adamw", structure, groups


def _lamb(optimizer):
    groups = _moments(optimizer)
    for numbers, group in zip(groups, optimizer.param_groups):
        limit = group["max_weight_norm"]
        numbers["max_weight_norm"] = 3.0e38 if limit is None or math.isinf(limit) else float(limit)
    return "lamb", [{"bias_correction": bool(optimizer.bias_correction)}] * len(groups), groups


def _rmsprop(optimizer):
    structure, groups = [], []
    variant = bool(getattr(optimizer, "use_tf_variant", False))
    for group in optimizer.param_groups:
        groups.append({name: float(group[name]) for name in ("lr", "momentum", "weight_decay", "alpha", "eps")})
        structure.append({"centered": bool(group["centered"]), "tf_variant": variant})
    if not _varies(optimizer, "momentum") and all(group["momentum"] == 0 for group in groups):
        for group in groups:
            del group["momentum"]
    return "rmsprop", structure, groups


# AdamW goes before Adam: in PyTorch it is derived from it.
_KINDS = [
    (torch.optim.SGD, _sgd),
    (torch.optim.AdamW, _adamw),
    (torch.optim.Adam, _adam),
    (optim.LAMB, _lamb),
    (torch.optim.RMSprop, _rmsprop),
]


class AttributeWatch:
    """Warns about attributes that appear on an optimizer after it has been wrapped and that have no effect."""

    def __init__(self, optimizer, relaxed):
        self._relaxed = relaxed
        self._known = self._attributes(optimizer)
        self._groups = {name for group in optimizer.param_groups for name in group}
        self._said = set()

    @staticmethod
    def _attributes(optimizer):
        return {name for name in vars(optimizer) if not name.startswith("_")}

    def check(self, optimizer):
        """Mentions each unknown attribute once."""
        for name in sorted(self._attributes(optimizer) - self._known - {"variable_attrs"}):
            self._say("optimizer", name)
        for number, group in enumerate(optimizer.param_groups):
            for name in sorted(set(group) - self._groups):
                self._say(f"group {number}", name)

    def _say(self, where, name):
        if (where, name) not in self._said:
            self._said.add((where, name))
            level = logger.debug if self._relaxed else logger.warning
            level("Ignoring unexpected %s attribute %r", where, name)

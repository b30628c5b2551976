"""PyTorch's and poptorch's optimizers in the words of the compiled update: rules, settings, and numbers by group.

Every number is a variable of the compiled program, so that `setOptimizer` never compiles again; which of them the
user declared constant decides whether a change is allowed.
"""

import inspect
import math
from dataclasses import dataclass

import torch

from . import optim
from ._errors import createPoptorchError
from ._logging import logger

_TORCH_TYPES = {torch.float32: "f32", torch.float16: "f16"}


@dataclass
class Description:
    """An optimizer as the compiler sees it."""

    title: str  # the class's name in the log
    rule: str
    # Switches, which decide the program.
    structure: dict
    # Numbers by group: lr, beta1, ...
    groups: list
    parameters: list  # of each group
    loss_scaling: float
    max_grad_norm: float
    accum_type: str
    first_type: str
    second_type: str
    constants: set
    # What the log says: all numbers, those that the program leaves out, too.
    logged_groups: list
    logged_defaults: dict

    @property
    def loss_scaling_varies(self):
        """May it change between steps?"""
        return "loss_scaling" not in self.constants

    def program(self):
        """What must not change once the program is compiled."""
        return (self.rule, tuple(self.structure.items()), [sorted(group) for group in self.groups],
                self.accum_type, self.first_type, self.second_type, math.isfinite(self.max_grad_norm))

    def numbers(self):
        """What may change, and is worth a line in the log when it does."""
        return (self.logged_groups, self.logged_defaults, self.loss_scaling, self.max_grad_norm, self.constants)


def describe(optimizer):
    """The description, or an Error for an optimizer that has no compiled update."""
    for cls, title, function in _KINDS:
        if isinstance(optimizer, cls):
            break
    else:
        raise createPoptorchError(
            f"Unsupported optimizer {type(optimizer).__name__}: use SGD, Adam, AdamW, RMSprop or LAMB of poptorch.optim "
            "or torch.optim"
        )
    rule, names, structures = function(optimizer)
    if len({tuple(sorted(structure.items())) for structure in structures}) > 1:
        raise createPoptorchError("All parameter groups must agree on nesterov, centered and the like")
    logged = [_numbers(group, names, optimizer) for group in optimizer.param_groups]
    defaults = _numbers(optimizer.defaults, names, optimizer)
    constants = _constants(optimizer, names)
    groups = [dict(numbers) for numbers in logged]
    structure = _without_unused(optimizer, groups, structures[0], constants)
    attribute = lambda name, default: getattr(optimizer, name, default)  # noqa: E731
    return Description(
        title, rule, structure, groups, [list(group["params"]) for group in optimizer.param_groups],
        float(attribute("loss_scaling", 1.0)), float(attribute("max_grad_norm", math.inf)),
        _type(attribute("accum_type", torch.float32)),
        _type(attribute("velocity_accum_type", attribute("first_order_momentum_accum_type", torch.float32))),
        _type(attribute("second_order_momentum_accum_type", torch.float32)),
        constants, logged, defaults,
    )


def _numbers(group, names, optimizer):
    """The group's numbers, betas taken apart."""
    numbers = {}
    for name in names:
        if name == "betas":
            numbers["beta1"], numbers["beta2"] = map(float, group["betas"])
        elif name == "max_weight_norm":
            limit = group[name]
            numbers[name] = 3.0e38 if limit is None or math.isinf(limit) else float(limit)
        elif name == "velocity_scaling" and not getattr(optimizer, "use_combined_accum", False):
            numbers[name] = float(getattr(optimizer, "loss_scaling", 1.0))  # follows the loss
        else:
            numbers[name] = float(group.get(name, 1.0))
    return numbers


def _constants(optimizer, names):
    """The attributes that the user said, or lets us assume, never change. The learning rate is never one."""
    attributes = getattr(optimizer, "variable_attrs", None)
    allowed = [name for name in (*names, "loss_scaling", "max_grad_norm") if name != "lr"]
    if attributes is not None:
        known = attributes._allowed_attributes
        constant = {name for name in allowed if name not in known or attributes.isConstant(name)}
        if "velocity_scaling" not in known and "loss_scaling" not in constant:
            constant.discard("velocity_scaling")  # follows the loss
        return constant
    defaults = _defaults_of(type(optimizer))
    given = {name for name in allowed if name in optimizer.defaults and optimizer.defaults[name] != defaults.get(name)}
    return set(allowed) - given


def _defaults_of(cls):
    """The defaults of a class of torch.optim, as its constructor has them."""
    return {name: p.default for name, p in inspect.signature(cls.__init__).parameters.items()}


def _without_unused(optimizer, groups, structure, constants):
    """Numbers that are 0 and stay 0 are left out of the program. Returns the switches."""
    def unused(name):
        return name in constants and all(group.get(name, 0.0) == 0 for group in groups)

    drop = ["weight_decay"] if unused("weight_decay") else []
    if unused("momentum"):
        drop += ["momentum", "dampening", "velocity_scaling"]
        structure = {**structure, **{name: False for name in ("nesterov", "combined") if name in structure}}
    if not structure.get("combined"):
        drop.append("velocity_scaling")
    for group in groups:
        for name in drop:
            group.pop(name, None)
    return structure


def _type(dtype):
    return _TORCH_TYPES[dtype or torch.float32]


def _sgd(optimizer):
    combined = bool(getattr(optimizer, "use_combined_accum", False))
    structure = [{"nesterov": bool(group["nesterov"]), "combined": combined} for group in optimizer.param_groups]
    return "sgd", ["lr", "momentum", "dampening", "weight_decay", "velocity_scaling"], structure


def _adam(optimizer):
    groups = optimizer.param_groups
    if any(group.get("amsgrad") for group in groups):
        raise createPoptorchError("amsgrad is not supported")
    decoupled = isinstance(optimizer, torch.optim.AdamW) or any(g.get("decoupled_weight_decay") for g in groups)
    structure = {"bias_correction": bool(getattr(optimizer, "bias_correction", True))}
    return "adamw" if decoupled else "adam", ["lr", "betas", "eps", "weight_decay"], [structure] * len(groups)


def _lamb(optimizer):
    structure = {"bias_correction": bool(optimizer.bias_correction)}
    names = ["lr", "betas", "eps", "weight_decay", "max_weight_norm"]
    return "lamb", names, [structure] * len(optimizer.param_groups)


def _rmsprop(optimizer):
    variant = bool(getattr(optimizer, "use_tf_variant", False))
    structure = [{"centered": bool(group["centered"]), "tf_variant": variant} for group in optimizer.param_groups]
    return "rmsprop", ["lr", "momentum", "weight_decay", "alpha", "eps"], structure


# AdamW goes before Adam: in PyTorch it is derived from it.
_KINDS = [
    (torch.optim.SGD, "SGD", _sgd),
    (torch.optim.AdamW, "AdamW", _adam),
    (torch.optim.Adam, "Adam", _adam),
    (optim.LAMB, "LAMB", _lamb),
    (torch.optim.RMSprop, "RMSprop", _rmsprop),
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

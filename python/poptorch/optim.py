"""Optimizers: PyTorch's own with what a device needs besides (number formats, loss scaling, clipping).

They hold hyperparameters; the update itself is part of the compiled training step. Python's `step` is for eager
PyTorch.
`state_dict()` holds the device's state under `ipu_state` and `ipu_param`.
"""

import math

import torch

from ._logging import logger
from ._variable_attributes import VariableAttributes

_ACCUM_TYPES = (None, torch.float32, torch.float16)


class Optimizer:
    """What all of them share: variable attributes and the state on the device."""

    # Numbers of the whole optimizer, and numbers of each group; subclasses name theirs.
    _child_vars = []
    _group_vars = []

    def _set_up(self, given, **own):
        """`given`: what the caller passed for PyTorch's arguments (None = not passed); `own`: the extra ones."""
        explicit = [name for name, value in {**given, **own}.items() if value is not None]
        allowed = [*self._group_vars, *self._child_vars, *(n for n in given if n not in self._group_vars)]
        self.variable_attrs = VariableAttributes([n for n in explicit if n in allowed], allowed)
        self._device = None
        self._loaded = None

    def _attach(self, device):
        """`device` (of an executor) reads and writes the state from now on; None: the state stays as it was read last."""
        if device is None and self._device is not None:
            self._loaded = self._loaded or self._device.last_optimizer_state()
        self._device = device

    def _is_attached(self):
        return self._device is not None

    def get_state_dict(self):
        """The device's state: two dicts of tensors by name, None before there is one."""
        if self._loaded is not None:
            return dict(self._loaded)
        if self._device is not None:
            return self._device.optimizer_state()
        return {"ipu_state": None, "ipu_param": None}

    def state_dict(self):
        """PyTorch's keys, and `ipu_state` and `ipu_param`, read from the device if they have changed there."""
        return {**super().state_dict(), **self.get_state_dict()}

    def load_state_dict(self, state):
        """Takes over a state that `state_dict` returned; the device gets it before the next step."""
        if not ("ipu_state" in state and "ipu_param" in state):
            raise RuntimeError(
                "Only IPU optimizer states can be loaded onto the IPU. This state has no ipu_state and ipu_param."
            )
        super().load_state_dict({key: value for key, value in state.items() if key not in ("ipu_state", "ipu_param")})
        self._loaded = {key: _copied(state[key]) for key in ("ipu_state", "ipu_param")}
        if self._loaded["ipu_state"] is None and self._loaded["ipu_param"] is None:
            self._loaded = None

    def _take_loaded(self):
        """The state to write to the device, once."""
        loaded, self._loaded = self._loaded, None
        return loaded

    def __getstate__(self):
        skipped = ("_device",)
        state = {k: v for k, v in self.__dict__.items() if k not in skipped and "hook" not in k}
        return {**super().__getstate__(), **state, "_device": None}


def _copied(tensors):
    return None if tensors is None else {name: tensor.clone() for name, tensor in tensors.items()}


def _known(**values):
    """The values that were given, for a constructor with defaults of its own."""
    return {name: value for name, value in values.items() if value is not None}


def _check_types(**types):
    for name, value in types.items():
        if value not in _ACCUM_TYPES:
            raise ValueError(f"{name} must be torch.float32 or torch.float16, not {value}")


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent; with momentum, one tensor of state (combined) or two (separate)."""

    _child_vars = ["loss_scaling", "max_grad_norm"]
    _group_vars = ["lr", "momentum", "dampening", "weight_decay", "nesterov"]

    def __init__(self, params, lr, momentum=None, dampening=None, weight_decay=None, nesterov=None, maximize=None,
                 foreach=None, differentiable=None, loss_scaling=None, velocity_scaling=None,
                 use_combined_accum=False, accum_type=None, velocity_accum_type=None, max_grad_norm=None):
        _check_types(accum_type=accum_type, velocity_accum_type=velocity_accum_type)
        _not_supported(maximize=maximize, foreach=foreach, differentiable=differentiable)
        given = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                 "nesterov": nesterov}
        super().__init__(params, **_known(**given))
        self.use_combined_accum = use_combined_accum
        if use_combined_accum:
            self._group_vars = [*SGD._group_vars, "velocity_scaling"]
            self.defaults["velocity_scaling"] = 1.0 if velocity_scaling is None else velocity_scaling
            for group in self.param_groups:
                group.setdefault("velocity_scaling", self.defaults["velocity_scaling"])
        elif velocity_scaling is not None:
            raise ValueError("velocity_scaling needs use_combined_accum=True")
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        self.max_grad_norm = math.inf if max_grad_norm is None else max_grad_norm
        self.accum_type = accum_type or torch.float32
        self.velocity_accum_type = velocity_accum_type or torch.float32
        self._set_up(given, loss_scaling=loss_scaling, velocity_scaling=velocity_scaling, max_grad_norm=max_grad_norm)


def _not_supported(**arguments):
    for name, value in arguments.items():
        if value:
            raise ValueError(f"{name} is not supported by poptorch.optim")


class _AdamBase(Optimizer):
    """Adam and what differs from it by a line or two."""

    _child_vars = ["loss_scaling", "max_grad_norm"]
    _group_vars = ["lr", "betas", "eps", "weight_decay"]

    def _set_up_adam(self, given, loss_scaling, accum_type, first, second, max_grad_norm=None):
        _check_types(accum_type=accum_type, first_order_momentum_accum_type=first,
                     second_order_momentum_accum_type=second)
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        self.max_grad_norm = math.inf if max_grad_norm is None else max_grad_norm
        self.accum_type = accum_type or torch.float32
        self.first_order_momentum_accum_type = first or torch.float32
        self.second_order_momentum_accum_type = second or torch.float32
        self._set_up(given, loss_scaling=loss_scaling, max_grad_norm=max_grad_norm)


class Adam(_AdamBase, torch.optim.Adam):
    """Adam."""

    def __init__(self, params, lr=None, betas=None, eps=None, weight_decay=None, amsgrad=None, foreach=None,
                 maximize=None, capturable=None, differentiable=None, fused=None, loss_scaling=None, accum_type=None,
                 first_order_momentum_accum_type=None, second_order_momentum_accum_type=None, max_grad_norm=None):
        _not_supported(amsgrad=amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
                       differentiable=differentiable, fused=fused)
        given = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(params, **_known(**given))
        self._set_up_adam(given, loss_scaling, accum_type, first_order_momentum_accum_type,
                          second_order_momentum_accum_type, max_grad_norm)


class AdamW(_AdamBase, torch.optim.AdamW):
    """Adam with decay of the weights themselves; `bias_correction=False` leaves the moments as they are."""

    def __init__(self, params, lr=None, betas=None, eps=None, weight_decay=None, amsgrad=None, maximize=None,
                 foreach=None, capturable=None, differentiable=None, fused=None, loss_scaling=None,
                 bias_correction=True, accum_type=None, first_order_momentum_accum_type=None,
                 second_order_momentum_accum_type=None, max_grad_norm=None):
        _not_supported(amsgrad=amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
                       differentiable=differentiable, fused=fused)
        given = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(params, **_known(**given))
        self.bias_correction = bias_correction
        self._set_up_adam(given, loss_scaling, accum_type, first_order_momentum_accum_type,
                          second_order_momentum_accum_type, max_grad_norm)

    @torch.no_grad()
    def step(self, closure=None):
        """One update of CPU parameters from their `.grad`; PyTorch has none without bias correction."""
        if self.bias_correction:
            return super().step(closure)
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _, _, first, second = _moments(parameter, self.state[parameter], group["betas"])
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.addcdiv_(first, second.sqrt().add_(group["eps"]), value=-group["lr"])
        return loss


class RMSprop(Optimizer, torch.optim.RMSprop):
    """RMSprop; `use_tf_variant` adds epsilon under the root and starts the mean square at one."""

    _child_vars = ["loss_scaling"]
    _group_vars = ["lr", "momentum", "weight_decay", "alpha", "eps", "centered"]

    def __init__(self, params, lr=None, alpha=None, eps=None, weight_decay=None, momentum=None, centered=None,
                 foreach=None, maximize=None, differentiable=None, loss_scaling=None, accum_type=None,
                 first_order_momentum_accum_type=None, second_order_momentum_accum_type=None, use_tf_variant=None):
        _check_types(accum_type=accum_type, first_order_momentum_accum_type=first_order_momentum_accum_type,
                     second_order_momentum_accum_type=second_order_momentum_accum_type)
        _not_supported(foreach=foreach, maximize=maximize, differentiable=differentiable)
        given = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum,
                 "centered": centered}
        super().__init__(params, **_known(**given))
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        self.accum_type = accum_type or torch.float32
        self.first_order_momentum_accum_type = first_order_momentum_accum_type or torch.float32
        self.second_order_momentum_accum_type = second_order_momentum_accum_type or torch.float32
        self.use_tf_variant = bool(use_tf_variant)
        self._set_up(given, loss_scaling=loss_scaling)


class LAMB(Optimizer, torch.optim.Optimizer):
    """Layer-wise adaptive moments. `step` works on CPU tensors, for comparison."""

    _child_vars = ["loss_scaling"]
    _group_vars = ["lr", "betas", "eps", "weight_decay", "max_weight_norm"]

    def __init__(self, params, lr=None, betas=None, eps=None, weight_decay=None, bias_correction=True,
                 loss_scaling=None, max_weight_norm=None, accum_type=None, first_order_momentum_accum_type=None,
                 second_order_momentum_accum_type=None):
        _check_types(accum_type=accum_type, first_order_momentum_accum_type=first_order_momentum_accum_type,
                     second_order_momentum_accum_type=second_order_momentum_accum_type)
        given = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                 "max_weight_norm": max_weight_norm}
        defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2, "max_weight_norm": 65500.0}
        defaults.update(_known(**given))
        _check_lamb(defaults)
        super().__init__(params, defaults)
        self.bias_correction = bias_correction
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        self.accum_type = accum_type or torch.float32
        self.first_order_momentum_accum_type = first_order_momentum_accum_type or torch.float32
        self.second_order_momentum_accum_type = second_order_momentum_accum_type or torch.float32
        self._set_up(given, loss_scaling=loss_scaling)

    @torch.no_grad()
    def step(self, closure=None):
        """One update of CPU parameters from their `.grad`."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _lamb_update(parameter, self.state[parameter], group, self.bias_correction)
        return loss


def _check_lamb(values):
    if values["lr"] < 0 or values["eps"] < 0 or values["weight_decay"] < 0:
        raise ValueError("lr, eps and weight_decay of LAMB must not be negative")
    if not all(0 <= beta < 1 for beta in values["betas"]):
        raise ValueError(f"The betas of LAMB must be at least 0 and below 1, not {values['betas']}")


def _moments(parameter, state, betas):
    """Both betas and both moments after one more gradient."""
    beta1, beta2 = betas
    if not state:
        state.update(step=0, exp_avg=torch.zeros_like(parameter), exp_avg_sq=torch.zeros_like(parameter))
    state["step"] += 1
    first = state["exp_avg"].mul_(beta1).add_(parameter.grad, alpha=1 - beta1)
    second = state["exp_avg_sq"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
    return beta1, beta2, first, second


def _lamb_update(parameter, state, group, bias_correction):
    beta1, beta2, first, second = _moments(parameter, state, group["betas"])
    if bias_correction:
        first = first / (1 - beta1 ** state["step"])
        second = second / (1 - beta2 ** state["step"])
    update = first / (second.sqrt() + group["eps"]) + group["weight_decay"] * parameter
    limit = group["max_weight_norm"]
    weight_norm = parameter.norm(2)
    weight_norm = weight_norm if limit is None else weight_norm.clamp(0, limit)
    update_norm = update.norm(2)
    ratio = torch.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, torch.ones(()))
    parameter.add_(update * ratio, alpha=-group["lr"])


def warn_about_custom_step(optimizer):
    """A subclass's own `step` would be ignored: say so."""
    known = (SGD, Adam, AdamW, RMSprop, LAMB, torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)
    if type(optimizer) not in known:
        logger.warning("Poptorch does not run Python optimizer code directly: what %s adds to its base has no effect",
                       type(optimizer).__name__)

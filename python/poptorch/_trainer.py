"""The optimizer's side of a training executor: its description, its numbers and its state on the device."""

import logging

import torch

from . import _optimizer_log
from ._errors import createPoptorchError
from ._groups import name_in_group
from ._logging import core, logger
from ._optimizer_map import AttributeWatch, describe
from ._training import TrainingPrograms, hyper_name, optimizers
from .optim import warn_about_custom_step
from .enums import ConnectionType, MeanReductionStrategy, ReductionType

# Names on the device of the state that PyTorch calls ...
_STATE = {"exp_avg": "Accl1", "exp_avg_sq": "Accl2", "momentum_buffer": "Accl1", "square_avg": "Accl1",
          "grad_avg": "Accl3", "step": "Step"}
_PARAMETERS = {"lr": "learningRate", "weight_decay": "weightDecay", "momentum": "momentum", "beta1": "beta1",
               "beta2": "beta2", "eps": "eps", "alpha": "alpha", "max_weight_norm": "maxWeightNorm",
               "velocity_scaling": "velocityScaling", "dampening": "dampening"}


class Trainer:
    """Belongs to one executor."""

    def __init__(self, executor, optimizer):
        self._executor = executor
        self._optimizer = optimizer
        warn_about_custom_step(optimizer)
        self._description = describe(optimizer)
        self._watch = AttributeWatch(optimizer, executor.options.relax_optimizer_checks)
        self._weights = None  # None until the model is compiled
        self._stochastic = False
        self._cached = None
        self._cached_version = None
        self._overrides = {}
        self._preloaded = None
        self._choose_strategy(executor.options)

    def _choose_strategy(self, options):
        """float16 accumulators keep a running mean: a sum would overflow."""
        training = options.Training
        is_mean = training.accumulation_and_replication_reduction_type is ReductionType.Mean
        combined = getattr(self._optimizer, "use_combined_accum", False)
        if is_mean and self._description.accum_type == "f16" and not combined:
            training._unfreeze()
            training.setMeanAccumulationAndReplicationReductionStrategy(MeanReductionStrategy.Running)
            training._freeze()

    @property
    def optimizer(self):
        """The user's optimizer."""
        return self._optimizer

    def rule(self):
        """The name of the compiled update."""
        return self._description.rule

    def has_momentum(self):
        """Does the update keep a velocity?"""
        return any("momentum" in group for group in self._description.groups)

    def weights(self):
        """Names of the trained weights."""
        return [weight.name for weight in self._weights]

    def tensor_names(self):
        """Names of gradients, new weights and numbers."""
        names = []
        for weight in self._weights:
            names += [f"Gradient___{weight.name}", f"UpdatedVar___{weight.name}"]
            names += [f"{name}___specific___{weight.name}" for name in self._numbers_of(weight.group)]
        return names

    # Compilation.

    def begin(self):
        """The optimizer as it is now is the one that will be compiled."""
        self._description = describe(self._optimizer)
        self._log()

    def programs(self, built, plan, groupings):
        """The programs of the training step, their state besides the model's, and the weights."""
        made = TrainingPrograms(built, self._executor.options, self._description, plan, groupings)
        programs = made.build()
        return programs, made.state, made.weights

    def what_decides(self):
        """What of the optimizer decides the programs: all but its numbers."""
        description = self._description
        names = {id(tensor): name for name, tensor in self._executor._tensors_by_name().items()}
        scaled = description.loss_scaling != 1.0 or description.loss_scaling_varies
        return description.program(), scaled, [[names.get(id(p)) for p in group] for group in description.parameters]

    def compiled(self, executable):
        """The programs are on the device: their numbers become the optimizer's."""
        self._weights = executable.weights
        self._stochastic = bool(self._executor.options._Popart.options.get("enableStochasticRounding"))
        self._write_numbers()

    def _log(self):
        for line in _optimizer_log.lines(self._description):
            core(logging.DEBUG, line)

    # The optimizer's numbers.

    def set_optimizer(self, optimizer):
        """Takes over another optimizer, or the same one with new numbers."""
        self._watch.check(optimizer)
        new = describe(optimizer)
        if optimizer is not self._optimizer:
            self._detach_optimizer()
            self._optimizer = optimizer
            if self._executor.isCompiled():
                self._attach_optimizer()
        if self._weights is None:
            self._description = new
            return
        if new.accum_type != self._description.accum_type:
            raise ValueError("accum_type decides the compiled program, and the model is already compiled")
        if new.program() != self._description.program():
            raise createPoptorchError(
                f"The {new.title} optimizer differs from the compiled {self._description.title} in more than its "
                "variable numbers: destroy the model and compile it again"
            )
        if new.numbers() != self._description.numbers():
            self._description = new
            self._overrides = {}
            self._cached_version = None
            self._log()
            self._write_numbers()

    def _write_numbers(self):
        device = self._executor._device
        for group, optimizer in enumerate(optimizers(self._description, self._stochastic)):
            for name, value in optimizer.hyperparameters():
                device.write(hyper_name(group, name), torch.tensor(value, dtype=torch.float32))
        device.write("~loss_scaling", torch.tensor(self._description.loss_scaling))
        if device.has("~max_grad_norm"):
            device.write("~max_grad_norm", torch.tensor(self._description.max_grad_norm))

    # State.

    def attached(self):
        """The model is on its device: so is the optimizer's state."""
        self._attach_optimizer()
        if self._cached is not None:
            core(logging.DEBUG, "Writing optimiser state tensors from host to IPU memory")
        self._take_loaded()

    def _attach_optimizer(self):
        if hasattr(self._optimizer, "_attach") and self._executor.options.connection_type is not ConnectionType.Never:
            self._optimizer._attach(self)

    def _detach_optimizer(self):
        if hasattr(self._optimizer, "_attach") and self._optimizer._device is self:
            self._optimizer._attach(None)

    def preload(self, state):
        """State of a file, for the device."""
        self._preloaded = state

    def before_run(self):
        """State that the user has loaded goes to the device."""
        self._take_loaded()

    def detached(self):
        """Reads the state back."""
        if hasattr(self._optimizer, "_attach"):
            self.optimizer_state(quiet=True)

    def destroyed(self):
        """The device is about to go."""
        if hasattr(self._optimizer, "_attach"):
            self.optimizer_state(quiet=True)
        self._detach_optimizer()
        self._weights = self._cached = self._cached_version = None

    def last_optimizer_state(self):
        """The state as it was read last."""
        return self._cached

    def optimizer_state(self, quiet=False):
        """`ipu_state` and `ipu_param`: read from the device if it has run since the last time."""
        version = self._executor._version
        if self._cached is not None and self._cached_version == version:
            if not quiet:
                logger.debug("Using cached optimiser state dict")
            return _copied(self._cached)
        core(logging.DEBUG, "Writing optimiser state tensors from IPU to host.")
        self._cached = {"ipu_state": self._read_state(), "ipu_param": self._read_parameters()}
        self._cached_version = version
        return _copied(self._cached)

    def _read_state(self):
        device, found = self._executor._device, {}
        for weight in self._weights:
            for kind, name in weight.slots:
                copies = [device.read(name_in_group(name, group)) for group in range(weight.copies)]
                whole = copies[0] if weight.name not in self._executor._groupings else torch.stack(copies)
                found[f"{_STATE.get(kind, kind)}___{weight.name}"] = whole
        for name, shown in (("~loss_scale_update_factor", "lossScaleUpdateFactor"), ("~good_steps", "lossScaleSteps")):
            if device.has(name):
                found[shown] = device.read(name)
        return found

    def _read_parameters(self):
        found = {}
        for weight in self._weights:
            for name, value in self._numbers_of(weight.group).items():
                found[f"{name}___specific___{weight.name}"] = torch.tensor(value)
        found["lossScaling_FLOAT"] = torch.tensor(self._description.loss_scaling)
        return {**found, **{name: value for name, value in self._overrides.items() if name in found}}

    def _numbers_of(self, group):
        """A group's numbers by their names on the device. SGD's are folded with the loss scale."""
        numbers = self._description.logged_groups[group]
        if self._description.rule != "sgd":
            return {_PARAMETERS[name]: value for name, value in numbers.items()}
        scale = self._description.loss_scaling
        kept = 1 - numbers["dampening"]
        if "momentum" not in self._description.groups[group]:
            return {"scaledLearningRate0": numbers["lr"] * kept / scale,
                    "weightDecayScaleFactor0": 1 - numbers["lr"] * kept * numbers["weight_decay"]}
        velocity = numbers["velocity_scaling"]
        return {"scaledLearningRate1": numbers["lr"] / velocity, "scaledMomentum1": numbers["momentum"],
                "dampeningScaleFactor1": velocity * kept / scale,
                "weightDecayScaleFactor1": kept * numbers["weight_decay"] * velocity}

    def _take_loaded(self):
        loaded, self._preloaded = self._preloaded, None
        if hasattr(self._optimizer, "_take_loaded"):
            loaded = self._optimizer._take_loaded() or loaded
        if loaded is None:
            return
        self._executor.copyWeightsToHostIfNeeded()
        core(logging.DEBUG, "Writing optimiser state tensors from host to IPU memory")
        device = self._executor._device
        state = loaded["ipu_state"] or {}
        for weight in self._weights:
            for kind, name in weight.slots:
                shown = f"{_STATE.get(kind, kind)}___{weight.name}"
                if shown not in state:
                    continue
                if weight.name not in self._executor._groupings:
                    device.write(name, state[shown])
                    continue
                for group in range(weight.copies):
                    device.write(name_in_group(name, group), state[shown][group])
        if "lossScaleUpdateFactor" in state and device.has("~loss_scale_update_factor"):
            device.write("~loss_scale_update_factor", state["lossScaleUpdateFactor"])
        self._overrides.update(loaded["ipu_param"] or {})
        self._write_overrides()
        self._cached_version = None

    def _write_overrides(self):
        """Numbers that came with a loaded state, where the program has them one to one."""
        device, description = self._executor._device, self._description
        if "lossScaling_FLOAT" in self._overrides:
            device.write("~loss_scaling", self._overrides["lossScaling_FLOAT"])
        if description.rule == "sgd":
            return
        for group in range(len(description.groups)):
            weight = next((w for w in self._weights if w.group == group), None)
            settings = dict(description.groups[group])
            for name in settings if weight is not None else ():
                value = self._overrides.get(f"{_PARAMETERS[name]}___specific___{weight.name}")
                # The same number in float32 is no news: our own has more digits.
                if value is not None and float(value) != float(torch.tensor(settings[name])):
                    settings[name] = float(value)
            changed = _with_groups(description, group, settings)
            for name, value in optimizers(changed, self._stochastic)[group].hyperparameters():
                device.write(hyper_name(group, name), torch.tensor(value, dtype=torch.float32))


def _with_groups(description, group, settings):
    from dataclasses import replace

    groups = list(description.groups)
    groups[group] = settings
    return replace(description, groups=groups)


def _copied(state):
    return {part: None if tensors is None else {name: tensor.clone() for name, tensor in tensors.items()}
            for part, tensors in state.items()}

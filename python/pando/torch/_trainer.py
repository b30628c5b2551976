"""Modules that Pando trains: forward pass, gradients and update as one compiled program."""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree

from .. import _pando
from .._pando import Error
from ._capture import Captured, Output, capture
from ._inference import initial, key_of
from ._types import from_native, graph_type, location, memory, store

#: Rules by torch's classes; subclasses first.
_RULES = {
    torch.optim.AdamW: "adamw",
    torch.optim.Adam: "adam",
    torch.optim.Adamax: "adamax",
    torch.optim.SGD: "sgd",
    torch.optim.RMSprop: "rmsprop",
    torch.optim.Adagrad: "adagrad",
    torch.optim.Adadelta: "adadelta",
}

#: Settings that rules share with torch's groups.
_SETTINGS = (
    "lr",
    "momentum",
    "dampening",
    "weight_decay",
    "nesterov",
    "eps",
    "amsgrad",
    "alpha",
    "centered",
    "rho",
    "lr_decay",
)

#: Those that a rule leaves out of its program where they are 0.
_OPTIONAL = ("momentum", "dampening", "weight_decay", "lr_decay")


class Trainer:
    """A module that learns; `trainer` makes it. Every call is a step of the optimizer and returns what the module
    returns. The weights are Pando's until `copy_weights` brings them to the module."""

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer, threads: int | None, precision: str):
        self.module, self.optimizer = module, optimizer
        self._threads, self._precision = threads, precision
        self._rule = next((name for kind, name in _RULES.items() if isinstance(optimizer, kind)), None)
        if self._rule is None:
            known = ", ".join(kind.__name__ for kind in _RULES)
            raise Error(f"the optimizer {type(optimizer).__name__} is not supported; use one of {known}")
        self._key = None
        self._numbers: dict[str, float] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A step. The loss is the first of the results that is one number and depends on the weights."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        key = (spec, *map(key_of, leaves))
        if self._key is None:
            self._compile(args, kwargs)
            self._key = key
        if key != self._key:
            raise Error("the arguments differ in structure, type or shape from those of the first step")
        self._set_numbers()
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        arrays = [memory(tensor) for tensor in tensors]
        locations = [location(array, graph_type(tensor.dtype)) for array, tensor in zip(arrays, tensors)]
        results = iter(self._session.run("step", locations))
        leaves = [from_native(next(results), one.dtype) if isinstance(one, Output) else one for one in self._outputs]
        return pytree.tree_unflatten(leaves, self._output_spec)

    def copy_weights(self) -> torch.nn.Module:
        """Brings parameters and buffers to the module, and returns it."""
        for state in self._state if self._key is not None else ():
            if state.tensor is not None:
                store(self._session.state(state.name), state.tensor)
        return self.module

    def _compile(self, args, kwargs) -> None:
        captured, module, reads, writes, start = self._step(args, kwargs)
        self._outputs, self._output_spec = captured.outputs, captured.output_spec
        inputs = [f"input.{at}" for at in range(len(captured.inputs))]
        outputs = [f"output.{at}" for at in range(len(captured.tensors))]
        program = ("step", module, reads, writes, inputs, outputs)
        arrays = {name: memory(tensor) for name, tensor in start.items()}
        places = [(name, location(array, graph_type(start[name].dtype))) for name, array in arrays.items()]
        self._state = captured.state
        self._session = _pando.Session([program], places, [], self._threads, self._precision)

    def _step(self, args, kwargs):
        """The capture, the module of a step, names of the state it reads and writes, and the state to begin with."""
        captured = capture(self.module, args, kwargs, training=True)
        reads = {state.name: state.value for state in captured.state}
        writes = {state.name: state.written for state in captured.written_state}
        start: dict[str, Any] = {state.name: initial(state) for state in captured.state}
        self._add_updates(captured, reads, writes, start)
        params = [*reads.values(), *(one.value for one in captured.inputs)]
        results = [*writes.values(), *(one.value for one in captured.tensors)]
        return captured, captured.finish(results, params), list(reads), list(writes), start

    def _add_updates(self, captured: Captured, reads, writes, start) -> None:
        g = captured.emitter
        loss = next((one.value for one in captured.tensors if one.needs_grad and one.value.size == 1), None)
        if loss is None:
            raise Error("the module returns no loss: one number that depends on weights")
        trained = {id(state.tensor): state for state in captured.state if state.needs_grad}
        weights = [
            (number, trained[id(parameter)])
            for number, group in enumerate(self.optimizer.param_groups)
            for parameter in group["params"]
            if id(parameter) in trained
        ]
        seed = g.full(loss.dtype, loss.shape, 1)
        found = captured.gradients([loss], [seed], [state.value for _, state in weights])
        self._optimizers = [self._described(group) for group in self.optimizer.param_groups]
        hyper = [self._hyperparameters(g, number, rule, reads, start) for number, rule in enumerate(self._optimizers)]
        for (number, state), gradient in zip(weights, found):
            if gradient is None:
                continue
            rule, slots = self._optimizers[number], []
            for kind, dtype, sizes, first, _ in rule.slots(state.value.dtype, list(state.value.shape)):
                name = f"{state.name}~{kind}"
                reads[name] = g.param(f"slot.{len(reads)}", dtype, sizes)
                start[name] = torch.full(sizes, 0.0 if first is None else first, dtype=torch.float32)
                slots.append(name)
            old = [reads[name].id for name in slots]
            weight, new = rule.update(g.native, state.value.id, gradient.id, old, hyper[number])
            writes[state.name] = g.value(weight)
            writes.update((name, g.value(id)) for name, id in zip(slots, new))

    def _hyperparameters(self, g, number: int, rule, reads, start) -> list[int]:
        """Numbers are state, so that a change of the optimizer's needs no new program."""
        ids = []
        for name, value in rule.hyperparameters():
            name = f"~group{number}~{name}"
            reads[name] = g.param(f"hyper.{len(reads)}", "f32", ())
            start[name] = torch.tensor(value, dtype=torch.float32)
            self._numbers[name] = value
            ids.append(reads[name].id)
        return ids

    def _described(self, group: dict[str, Any]):
        settings = {name: float(group[name]) for name in _SETTINGS if name in group}
        settings = {name: value for name, value in settings.items() if value or name not in _OPTIONAL}
        if "betas" in group:
            settings["beta1"], settings["beta2"] = map(float, group["betas"])
        if self._rule not in ("adam", "adamw"):
            settings.pop("amsgrad", None)
        return _pando.Optimizer(self._rule, list(settings.items()))

    def _set_numbers(self) -> None:
        for number, group in enumerate(self.optimizer.param_groups):
            for name, value in self._described(group).hyperparameters():
                name = f"~group{number}~{name}"
                if name not in self._numbers:
                    raise Error(f"{name} was 0 at the first step and cannot become another number; begin with it")
                if self._numbers[name] != value:
                    array = memory(torch.tensor(value, dtype=torch.float32))
                    self._session.set_state(name, location(array, "f32"))
                    self._numbers[name] = value


def optimizer_named(name: str, module: torch.nn.Module) -> torch.optim.Optimizer:
    """An optimizer of torch with its usual settings, for all of a module's parameters."""
    kinds = {rule: kind for kind, rule in _RULES.items()}
    if name not in kinds:
        raise Error(f"there is no optimizer {name!r}; use one of {', '.join(sorted(kinds))}, or one of torch's own")
    return kinds[name](module.parameters(), lr=0.01)


def trainer(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    threads: int | None = None,
    matmul_precision: str = "highest",
) -> Trainer:
    """Trains a module whose result is the loss, or has it first: `loss = trainer(model, optimizer)(*inputs)`."""
    return Trainer(module, optimizer, threads, matmul_precision)

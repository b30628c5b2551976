"""The programs of a training step: forward and backward pass, accumulation, update of the weights.

One micro-batch makes a step: program `main` does it all. Otherwise `accumulate` runs for each micro-batch of each
replica, and `update` after them.
"""

import copy
import math

import torch

from pando import _pando
from pando.torch import Emitter
from pando.torch._mode import symbol
from pando.torch._types import TORCH_TYPES, graph_type

from ._build import output_values
from ._device import Program, Uniform
from ._groups import name_in_group
from ._losses import final_loss
from .enums import MeanReductionStrategy, ReductionType

_STRATEGIES = {
    MeanReductionStrategy.Running: "running",
    MeanReductionStrategy.Post: "post",
    MeanReductionStrategy.PostAndLoss: "post_and_loss",
}


class Weight:
    """A parameter that is trained, its gradient in the graph, and the names of its state."""

    def __init__(self, state, group, gradient, grouping):
        self.name, self.group, self.gradient = state.name, group, gradient
        self.value, self.tensor = state.value, state.tensor
        self.grouping = grouping
        self.copies = grouping.groups if grouping is not None else 1
        self.slots = []  # (kind, name of the state)
        self.accumulator = f"~accumulator~{state.name}"

    def of_groups(self):
        """The weight of each group of replicas."""
        for group in range(self.copies):
            one = copy.copy(self)
            one.name = name_in_group(self.name, group)
            one.slots = [(kind, name_in_group(name, group)) for kind, name in self.slots]
            one.accumulator = name_in_group(self.accumulator, group)
            yield one


class TrainingPrograms:
    """Builds the programs and the state they need besides the model's."""

    def __init__(self, built, options, description, plan, groupings):
        self._built, self._options, self._plan = built, options, plan
        self._description = description
        self._groupings = groupings  # by the id of a weight
        self._count = plan.accumulation * plan.replicas
        self._automatic = options.Training.auto_loss_scaling
        self._scaled = self._automatic or description.loss_scaling != 1.0 or description.loss_scaling_varies
        self._stochastic = bool(options._Popart.options.get("enableStochasticRounding"))
        self._accumulation = _pando.Accumulation(_reduction(options), plan.accumulation, plan.replicas)
        self._combined = description.structure.get("combined", False)
        self.optimizers = optimizers(description, self._stochastic)
        self.state = {}
        self.weights = []
        self.programs = {}
        self.anchors = {}  # name -> value in `main` or `accumulate`

    def build(self):
        """The programs, by name."""
        captured = self._built.captured
        self._graph = graph = captured.emitter
        loss = final_loss(captured, self._built.losses, self._built.compilation.wraps_loss)
        self._loss = loss
        self._declare()
        trained = self._trained()
        seed = self._seed_gradient(loss)
        printed = self._built.extra["print_gradients"]
        values = [state.value for state, _ in trained] + [value for value, _ in printed]
        found = captured.gradients([loss], [seed], values)
        for (state, group), gradient in zip(trained, found):
            if gradient is not None:
                self.weights.append(Weight(state, group, gradient, self._groupings.get(id(state.tensor))))
        self._print_gradients(printed, found[len(trained) :])
        for weight in self.weights:
            self._add_slots(weight)
        if self._count == 1:
            self._step_program()
        else:
            self._accumulate_program()
            self._update_program()
        return self.programs

    def _print_gradients(self, printed, gradients):
        """Gradients that are printed, zeros where none flows."""
        for (value, form), gradient in zip(printed, gradients):
            zero = self._graph.full(value.dtype, value.shape, 0)
            self._built.extra["prints"].append(zero if gradient is None else gradient)
            self._built.extra["formats"].append(form)

    def _trained(self):
        groups = {id(p): number for number, group in enumerate(self._description.parameters) for p in group}
        return [(state, groups[id(state.tensor)]) for state in self._built.captured.state
                if state.needs_grad and id(state.tensor) in groups]

    # State.

    def _declare(self):
        """Numbers of the optimizer and of loss scaling."""
        for group, optimizer in enumerate(self.optimizers):
            for name, value in optimizer.hyperparameters():
                self.state[hyper_name(group, name)] = torch.tensor(value, dtype=torch.float32)
        self.state["~loss_scaling"] = torch.tensor(self._description.loss_scaling)
        if self._automatic:
            self.state["~loss_scale_update_factor"] = torch.tensor(1.0)
            self.state["~good_steps"] = torch.tensor(0.0)
        if math.isfinite(self._description.max_grad_norm):
            self.state["~max_grad_norm"] = torch.tensor(self._description.max_grad_norm)

    def _add_slots(self, weight):
        optimizer = self.optimizers[weight.group]
        dims = list(weight.value.shape)
        slots = optimizer.slots(weight.value.dtype, dims)
        weight.slots = [(kind, f"~{kind}~{weight.name}") for kind, *_ in slots]
        for one in weight.of_groups():
            for (_, name), (_, dtype, sizes, initial, _) in zip(one.slots, slots):
                self.state[name] = Uniform(0.0 if initial is None else initial, TORCH_TYPES[dtype], tuple(sizes))
            if self._count > 1 and not self._combined:
                dtype = TORCH_TYPES[self._description.accum_type]
                self.state[one.accumulator] = Uniform(0.0, dtype, tuple(dims))
        if self._accumulation.needs_index() and self._count > 1:
            self.state["~accumulated"] = torch.tensor(0.0)

    # Pieces of programs. `read` is a dict of state parameters in the graph that is being built.

    def _param(self, graph, read, name):
        if name not in read:
            tensor = self.state[name]
            shown = self._built.compilation.capture.unique(symbol(f"state.{name.replace('~', '.')}"))
            read[name] = graph.param(shown, graph_type(tensor.dtype), tuple(tensor.shape))
        return read[name]

    def _scale(self, graph, read):
        scale = self._param(graph, read, "~loss_scaling")
        if self._automatic:
            scale = scale * self._param(graph, read, "~loss_scale_update_factor")
        return scale

    def _seed_gradient(self, loss):
        """The gradient of the loss with respect to itself."""
        graph = self._graph
        self._read = {}
        factor = self._accumulation.loss_factor()
        seed = graph.full("f32", (), factor)
        if self._scaled:
            seed = self._scale(graph, self._read) * factor
        return seed.to(loss.dtype).broadcast(loss.shape, [])

    def _unscaled(self, graph, read, gradient):
        gradient = gradient.to("f32")
        return gradient / self._scale(graph, read) if self._scaled else gradient

    def _step_program(self):
        graph, read = self._graph, self._read
        gradients = [self._unscaled(graph, read, weight.gradient) for weight in self.weights]
        for weight, gradient in zip(self.weights, gradients):
            self.anchors[f"Gradient___{weight.name}"] = gradient
        written = self._updates(graph, read, self.weights, {w.name: w.value for w in self.weights}, gradients)
        for weight in self.weights:
            self.anchors[f"UpdatedVar___{weight.name}"] = written[weight.name]
        self._finish("main", read, written)

    def _accumulate_program(self):
        graph, read, written = self._graph, self._read, {}
        index = graph.full("f32", (), 0.0)
        if self._accumulation.needs_index():
            index = self._param(graph, read, "~accumulated")
            written["~accumulated"] = index + 1.0
        for weight in self.weights:
            gradient = self._unscaled(graph, read, weight.gradient)
            self.anchors[f"Gradient___{weight.name}"] = gradient
            if self._combined:
                name = self._velocity(weight)
                old = self._param(graph, read, name)
                share = self._accumulation.share(graph.native, gradient.id)
                hyper = self._hyper(graph, read, weight.group)
                new = self.optimizers[weight.group].add_to_velocity(
                    graph.native, old.id, share, [value.id for value in hyper])
            else:
                name = weight.accumulator
                old = self._param(graph, read, name)
                new = self._added(graph, weight, old, gradient, index)
            written[name] = graph.value(new)
        self._finish("accumulate", read, written)

    def _added(self, graph, weight, old, gradient, index):
        """The accumulator with one more gradient. A running mean counts all replicas, of which a group sees a few."""
        if weight.copies > 1 and self._accumulation.needs_index():
            share = graph.value(self._accumulation.share(graph.native, gradient.id))
            return (old.to("f32") + share).to(old.dtype).id
        return self._accumulation.add(graph.native, old.id, gradient.id, index.id)

    def _update_program(self):
        graph, read = Emitter(), {}
        weights = {}
        all_weights = [one for weight in self.weights for one in weight.of_groups()]
        for weight in all_weights:
            weights[weight.name] = read[weight.name] = graph.param(
                f"weight.{len(read)}", weight.value.dtype, weight.value.shape)
        gradients, written = [], {}
        for weight in all_weights:
            if self._combined:
                gradients.append(None)
                continue
            name = weight.accumulator
            accumulator = self._param(graph, read, name)
            gradients.append(graph.value(self._accumulation.total(graph.native, accumulator.id)))
            written[name] = graph.full(accumulator.dtype, accumulator.shape, 0.0)
        if self._accumulation.needs_index():
            self._param(graph, read, "~accumulated")
            written["~accumulated"] = graph.full("f32", (), 0.0)
        written.update(self._updates(graph, read, all_weights, weights, gradients))
        self._finish_update(graph, read, written)

    def _updates(self, graph, read, trained, weights, gradients):
        """New values of weights and optimizer state by name. `weights`: name -> value."""
        native, written = graph.native, {}
        known = [gradient for gradient in gradients if gradient is not None]
        if "~max_grad_norm" in self.state and known:
            limit = self._param(graph, read, "~max_grad_norm")
            clipped = _pando.clip_by_norm(native, [gradient.id for gradient in known], limit.id)
            known = [graph.value(value) for value in clipped]
            gradients = known if len(known) == len(gradients) else gradients
        finite = graph.value(_pando.all_finite(native, [g.id for g in known])) if self._automatic else None
        for number, (weight, gradient) in enumerate(zip(trained, gradients)):
            old = [self._param(graph, read, name) for _, name in weight.slots]
            hyper = self._hyper(graph, read, weight.group)
            seed = self._rounding_seed(graph, read, number) if self._stochastic else None
            new, state = self.optimizers[weight.group].update(
                native, weights[weight.name].id, None if gradient is None else gradient.id,
                [value.id for value in old], [value.id for value in hyper], None if seed is None else seed.id)
            pairs = [(weight.name, weights[weight.name], new)]
            pairs += [(name, before, after) for (_, name), before, after in zip(weight.slots, old, state)]
            for name, before, after in pairs:
                after = graph.value(after)
                written[name] = after if finite is None else finite.select(after, before)
        if self._automatic:
            written.update(self._next_scale(graph, read, finite))
        return written

    def _next_scale(self, graph, read, finite):
        initial = self._param(graph, read, "~loss_scaling")
        good = self._param(graph, read, "~good_steps")
        scale, steps = _pando.next_loss_scale(graph.native, finite.id, self._scale(graph, read).id, good.id)
        self.anchors["finalLossScale"] = self._scale(graph, read)
        return {"~loss_scale_update_factor": graph.value(scale) / initial, "~good_steps": graph.value(steps)}

    def _hyper(self, graph, read, group):
        names = [name for name, _ in self.optimizers[group].hyperparameters()]
        return [self._param(graph, read, hyper_name(group, name)) for name in names]

    def _rounding_seed(self, graph, read, number):
        """Random bits for one weight: the step's own seed with the weight's number."""
        if "~rounding_seed" not in self.state:
            seed = torch.initial_seed() & 0xFFFFFFFF
            self.state["~rounding_seed"] = torch.tensor([seed, 0], dtype=torch.int64).to(torch.uint32)
        seed = self._param(graph, read, "~rounding_seed")
        low, high = seed.slice(0, 0, 1), seed.slice(0, 1, 2)
        return graph.concat([low + (number * 0x9E3779B9 & 0xFFFFFFFF), high], 0)

    def _velocity(self, weight):
        return next(name for kind, name in weight.slots if kind == "momentum_buffer")

    # Programs.

    def _finish(self, name, read, written):
        """The program with the model in it."""
        built, captured = self._built, self._built.captured
        values, dtypes = output_values(built)
        anchors, anchor_types = self._anchor_values()
        model_state = captured.state
        for state in captured.written_state:
            written.setdefault(state.name, state.written)
        self._bump_rounding_seed(self._graph, read, written)
        changed = [one for one in captured.inputs if one.written is not None]
        prints = [*built.extra["prints"], *built.extra["finite"]]
        params = [*(s.value for s in model_state), *read.values(), *(one.value for one in captured.inputs)]
        results = [*written.values(), *values, *(one.written for one in changed), *prints, *anchors]
        module = captured.finish(results, params)
        outputs = [*dtypes, *(one.dtype for one in changed), *(TORCH_TYPES[p.dtype] for p in prints), *anchor_types]
        self.programs[name] = Program(
            module, [*(s.name for s in model_state), *read], list(written), built.names, outputs)
        built.extra.update(outputs=dtypes, writes=list(written))

    def _anchor_values(self):
        found = {short: self.anchors[entry[0]] for short, entry in self._options.anchored_tensors.items()
                 if entry[0] in self.anchors}
        self._built.extra["anchors"] = list(found)
        return list(found.values()), [TORCH_TYPES[value.dtype] for value in found.values()]

    def _finish_update(self, graph, read, written):
        self._bump_rounding_seed(graph, read, written)
        results = list(written.values())
        module = graph.native.finish([value.id for value in results], [value.id for value in read.values()])
        self.programs["update"] = Program(module, list(read), list(written), [], [])
        self._built.extra["writes"] = [*self._built.extra["writes"], *written]

    def _bump_rounding_seed(self, graph, read, written):
        if "~rounding_seed" in read:
            seed = read["~rounding_seed"]
            written["~rounding_seed"] = graph.concat([seed.slice(0, 0, 1), seed.slice(0, 1, 2) + 1], 0)


def hyper_name(group, name):
    """The state that holds a group's number."""
    return f"~hyper~{group}~{name}"


def optimizers(description, stochastic):
    """The compiled rule of each group."""
    flags = {name: float(value) for name, value in description.structure.items() if name != "combined"}
    return [
        _pando.Optimizer(description.rule, [*numbers.items(), *_flags(description.rule, flags)],
                         first=description.first_type, second=description.second_type, stochastic=stochastic)
        for numbers in description.groups
    ]


def _flags(rule, flags):
    return list(flags.items())


def _reduction(options):
    if options.Training.accumulation_and_replication_reduction_type is ReductionType.Sum:
        return "sum"
    return _STRATEGIES[options.Training.meanAccumulationAndReplicationReductionStrategy]

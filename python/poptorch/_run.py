"""One call of a compiled model: its micro-batches through the device's programs, its outputs put together."""

import numpy as np
import torch

from ._device import copy_into
from ._errors import createPoptorchError
from ._perf import Counters
from ._print_tensor import print_array


class Runner:
    """What a call needs besides its tensors."""

    def __init__(self, device, plan, output_mode, period, num_outputs, programs, written_inputs, synthetic=False):
        self._device, self._plan = device, plan
        self._programs = programs  # by replica
        self._mode, self._period = output_mode, period
        self._num_outputs = num_outputs
        self._written_inputs = written_inputs  # positions of inputs that the model changes in place
        self._synthetic = synthetic
        self.counters = None
        self.prints = []  # formats
        self.anchors = []  # (output mode, period) of the anchored tensors
        self.anchored = []
        self.checks_finite = False

    def run(self, tensors):
        """The outputs of a call, joined."""
        plan, counters = self._plan, Counters(len(tensors), self._num_outputs)
        self.counters = counters
        kept, anchored = [], [[] for _ in self.anchors]
        for iteration, step, replica in plan.steps():
            begin = counters.now()
            index = plan.index(iteration, step, replica)
            inputs = [plan.part(tensor, index) for tensor in tensors]
            if self._synthetic:
                inputs = [_random(tensor) for tensor in inputs]
            if not self._synthetic:
                counters.add("input", begin, counters.now())
            outputs = self._device.run(self._programs[replica], inputs)
            begin = counters.now()
            results = self._written_back(inputs, outputs)
            for parts, (mode, period), tensor in zip(anchored, self.anchors, self.anchored):
                if plan.returned(mode, period, iteration, step):
                    parts.append(tensor)
            if plan.returned(self._mode, self._period, iteration, step):
                kept.append(results)
                if not self._synthetic and (not self._sums() or self._last(iteration, step)):
                    counters.add("output", begin, counters.now())
            if replica == plan.replicas - 1 and step == plan.accumulation - 1:
                self._update()
        self.anchored = [self._join(parts, mode) for parts, (mode, _) in zip(anchored, self.anchors)]
        return [self._join([results[i] for results in kept], self._mode) for i in range(self._num_outputs)]

    def _sums(self):
        return self._mode.name == "Sum"

    def _last(self, iteration, step):
        return iteration == self._plan.iterations - 1 and step == self._plan.accumulation - 1

    def _update(self):
        if "update" in self._device.programs:
            self._device.run("update")

    def _written_back(self, inputs, outputs):
        """The outputs without those that are new elements of inputs, which go there."""
        results = outputs[: self._num_outputs]
        rest = iter(outputs[self._num_outputs :])
        for position in self._written_inputs:
            copy_into(inputs[position], next(rest))
        for form in self.prints:
            print_array(form, next(rest).numpy())
        if self.checks_finite and not next(rest).item():
            raise createPoptorchError(
                "Floating-point exception: a value of the model is infinite or not a number "
                "(Precision.enableFloatingPointExceptions is on)"
            )
        self.anchored = list(rest)
        return results

    def _join(self, parts, mode):
        if not parts:
            return torch.empty(0)
        if mode.name == "Sum" and len(parts) > self._plan.replicas:
            count = self._plan.replicas
            parts = [_sum(parts[replica::count]) for replica in range(count)]
        if len(parts) == 1:
            return parts[0]
        arrays = [part.view(torch.int16) if part.dtype is torch.bfloat16 else part for part in parts]
        join = np.stack if parts[0].dim() == 0 else np.concatenate
        joined = torch.from_numpy(join([array.numpy() for array in arrays]))
        return joined.view(torch.bfloat16) if parts[0].dtype is torch.bfloat16 else joined


def _random(tensor):
    """Random normal numbers in the place of an input."""
    numbers = np.random.default_rng(0).standard_normal(tuple(tensor.shape), np.float32)
    return torch.from_numpy(np.asarray(numbers)).to(tensor.dtype)


def _sum(parts):
    total = parts[0].numpy().copy()
    for part in parts[1:]:
        total = np.asarray(total + part.numpy(), dtype=total.dtype)
    return torch.from_numpy(np.asarray(total))

"""The arithmetic of one call: which samples a micro-batch has, and which outputs come back.

A call's samples are ordered by device iteration, then by step of accumulation, then by replica.
"""

from dataclasses import dataclass

from ._errors import createPoptorchError
from .enums import CommGroupType, OutputMode


@dataclass(frozen=True)
class Plan:
    """The loops of one call."""

    iterations: int
    accumulation: int
    replicas: int
    group_size: int = 1
    group_type: CommGroupType = CommGroupType.NoGrouping

    @classmethod
    def of(cls, options, training):
        """From the options."""
        return cls(options.device_iterations, options.Training.gradient_accumulation if training else 1,
                   options.replication_factor, options.input_group_size, options.input_comm_group_type)

    @property
    def sources(self):
        """Different inputs at a time: replicas of a group share theirs."""
        return self.replicas // self.group_size

    @property
    def splits(self):
        """Micro-batches of input in a call."""
        return self.iterations * self.accumulation * self.sources

    def steps(self):
        """(iteration, accumulation step, replica) in the order in which they run."""
        for iteration in range(self.iterations):
            for step in range(self.accumulation):
                for replica in range(self.replicas):
                    yield iteration, step, replica

    def index(self, iteration, step, replica):
        """The number of the micro-batch."""
        if self.group_size == 1:
            source = replica
        elif self.group_type is CommGroupType.Orthogonal:
            source = replica % self.sources
        else:
            source = replica // self.group_size
        return (iteration * self.accumulation + step) * self.sources + source

    def micro_batch(self, name, tensor):
        """The size of a micro-batch of the tensor along its first dimension; None for scalars."""
        if 0 in tensor.shape:
            raise createPoptorchError(f"Zero-sized tensors are unsupported (Got shape {list(tensor.shape)})")
        if tensor.dim() == 0:
            if self.splits == 1:
                return None
            raise createPoptorchError(f"Input {name} is a scalar: it cannot be split into {self.splits} micro-batches")
        if tensor.shape[0] % self.splits:
            raise createPoptorchError(
                f"The first dimension of input {name} is {tensor.shape[0]}, which is no multiple of {self.splits} = "
                f"deviceIterations ({self.iterations}) x replicationFactor / input group size ({self.sources}) x "
                f"gradientAccumulation ({self.accumulation})"
            )
        return tensor.shape[0] // self.splits

    def part(self, tensor, index):
        """Micro-batch `index` of the tensor: a view."""
        if self.splits == 1:
            return tensor
        size = tensor.shape[0] // self.splits
        return tensor[index * size : (index + 1) * size]

    def returned(self, mode, period, iteration, step):
        """Is the output of this micro-batch one of those that come back?"""
        if mode is OutputMode.Final:
            return iteration == self.iterations - 1 and step == self.accumulation - 1
        if mode is OutputMode.EveryN:
            return (iteration + 1) % period == 0
        return True

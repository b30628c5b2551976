"""Overlap of the host's transfers with loops: what `set_overlap_for_input` and `_output` allow."""

from ._errors import createPoptorchError
from .enums import OverlapMode


class Overlaps:
    """The marks of one capture."""

    def __init__(self, options):
        self._options = options
        self._inputs = {}  # number of the input -> uses before the mark
        self._outputs = []  # (operand, result)
        self.uses = {}  # id of an input -> how often the model uses it

    def mark_input(self, inputs, tensor, mode):
        """An input is marked; the mark itself is one use."""
        index = next((i for i, one in enumerate(inputs) if one is tensor), None)
        if index is None:
            raise createPoptorchError(
                "poptorch.set_overlap_for_input applied on a node which is not a tensor input to the model."
            )
        if mode is not OverlapMode.NoOverlap:
            self._inputs[index] = tensor

    def mark_output(self, operand, result, mode):
        """A tensor that will be an output is marked."""
        if mode is not OverlapMode.NoOverlap:
            self._outputs.append((operand, result))

    def check(self, outputs):
        """After the capture: `outputs` are the tensors that the model returns."""
        for index, tensor in self._inputs.items():
            if self.uses.get(id(tensor), 0) > 1:
                raise createPoptorchError(
                    "poptorch.set_overlap_for_input must be the only op applied to an input. This is not the case for "
                    f"input {index} to the model."
                )
        for operand, result in self._outputs:
            if not any(output is result for output in outputs):
                raise createPoptorchError(
                    "poptorch.set_overlap_for_output applied on a node which is not a tensor output to the model."
                )
            if any(output is operand for output in outputs):
                raise createPoptorchError(
                    "poptorch.set_overlap_for_output cannot be used with a tensor that is returned twice. Please check "
                    "all returned tensors including those nested in tuples/lists."
                )
        if self._inputs or self._outputs:
            self._check_options()

    def _check_options(self):
        if type(self._options._execution_strategy).__name__ == "PipelinedExecution":
            raise createPoptorchError(
                "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only one IPU, please "
                "switch to poptorch.ShardedExecution."
            )
        if not self._options.TensorLocations.numIOTilesSet:
            raise createPoptorchError(
                "No IO tiles allocated. You must allocate at least 32 IO tiles using "
                "poptorch.Options().TensorLocations.numIOTiles."
            )

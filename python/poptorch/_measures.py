"""What an executor says about time: measured on this computer, or predicted for IPUs."""

from pando.torch import Prediction

from . import _prediction
from ._errors import createPoptorchError
from ._perf import summary


class Measures:
    """A part of `PoplarExecutor`."""

    def getPerfCounters(self):
        """When inputs and outputs of the last call were moved: seconds by [tensor][step]."""
        empty = {name: [[]] for name in ("input", "input_complete", "output", "output_complete")}
        counters = self._runner.counters if self._runner is not None else None
        return empty if counters is None else counters.lists()

    def _latency(self, part):
        counters = self._runner.counters if self._runner is not None else None
        return (0.0, 0.0, 0.0) if counters is None else summary(counters.latencies()[part])

    def getHostIpuLatency(self):
        """(minimum, maximum, average) seconds to hand over a micro-batch's inputs."""
        return self._latency(0)

    def getComputeLatency(self):
        """(minimum, maximum, average) seconds to compute a micro-batch."""
        return self._latency(1)

    def getIpuHostLatency(self):
        """(minimum, maximum, average) seconds to get a micro-batch's outputs."""
        return self._latency(2)

    def getLatency(self):
        """(minimum, maximum, average) seconds of all three."""
        return self._latency(3)

    def prediction(self, **options):
        """What IPUs would make of the compiled program: a `pando.torch.Prediction` of one replica's call for a
        micro-batch (in training with accumulation without the update). Options, such as `system="pod16"` and
        `replicas=4`, are those of `pando.profile`. Not a method of PopTorch's."""
        self._require_compiled()
        executable = self._executable
        return Prediction(lambda report: _prediction.predict(executable, report, **options))

    def cycleCount(self):
        """Cycles of one run on an IPU, as predicted."""
        if not self._options.log_cycle_count:
            raise createPoptorchError(
                "Cycle count logging is disabled. Please set option logCycleCount to True to enable."
            )
        if not self._has_run:
            raise createPoptorchError("Please run the model at least once before obtaining cycle count.")
        return self._cycles()

    def _cycles(self):
        if self._cycle_count is None:
            self._cycle_count = _prediction.predict(self._executable)["cycles_per_step"]
        return self._cycle_count

    def compilationTime(self):
        """How long compilation took."""
        if self._compilation_time is None:
            raise createPoptorchError("Please compile the model before obtaining compilation time.")
        if not self._options.compilation_progress_bar:
            raise createPoptorchError("Please set showCompilationProgressBar option to obtain compilation time.")
        return self._compilation_time

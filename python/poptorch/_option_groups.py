"""The parts of `poptorch.Options`: training, precision, tensor locations, distribution, PopART's own."""

import os

import torch

from . import enums
from ._logging import logger
from ._option_values import OptionValues, boolean, member, positive


class _JitOptions(OptionValues):
    """How the model is captured. Only by running it once with stand-ins for tensors."""

    def __init__(self):
        super().__init__(trace_model=False)

    def traceModel(self, trace_model):
        """False is the only value there is: tracing through TorchScript does not exist any more."""
        if trace_model:
            raise ValueError("traceModel(True) is not supported: models are captured by running them once")
        self.trace_model = False
        return self


class _TrainingOptions(OptionValues):
    """What concerns training alone."""

    def __init__(self):
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=enums.ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=enums.MeanReductionStrategy.Post,
            auto_loss_scaling=False,
            convolution_dithering=False,
        )

    def gradientAccumulation(self, gradient_accumulation):
        """How many micro-batches make one weight update."""
        self.gradient_accumulation = positive("gradientAccumulation", gradient_accumulation)
        return self

    def accumulationAndReplicationReductionType(self, reduction_type):
        """Whether gradients of micro-batches and replicas are summed or averaged."""
        member("accumulationAndReplicationReductionType", reduction_type, enums.ReductionType)
        if reduction_type is enums.ReductionType.NoReduction:
            raise ValueError("accumulationAndReplicationReductionType must be Sum or Mean, not NoReduction")
        self.accumulation_and_replication_reduction_type = reduction_type
        return self

    def setMeanAccumulationAndReplicationReductionStrategy(self, strategy):
        """When a mean divides: at every micro-batch (Running) or at the end."""
        name = "meanAccumulationAndReplicationReductionStrategy"
        self.set(**{name: member(name, strategy, enums.MeanReductionStrategy)})
        return self

    def setAutomaticLossScaling(self, enabled):
        """Adjusts the loss scale to the range of float16 gradients."""
        self.auto_loss_scaling = boolean("setAutomaticLossScaling", enabled)
        return self

    def setConvolutionDithering(self, enabled):
        """Starts consecutive convolutions on different tiles."""
        self.convolution_dithering = boolean("setConvolutionDithering", enabled)
        return self


class _PrecisionOptions(OptionValues):
    """Number formats inside the model."""

    def __init__(self, popart):
        super().__init__(enableFloatingPointChecks=False)
        object.__setattr__(self, "_popart", popart)

    def _parts(self):
        return {}

    def enableFloatingPointExceptions(self, enabled):
        """Makes a division by zero, an overflow or an invalid operation an error."""
        self.set(enableFloatingPointChecks=boolean("enableFloatingPointExceptions", enabled))
        return self

    def enableStochasticRounding(self, enabled):
        """Rounds float32 to float16 up or down with the right odds."""
        self.checkIsFrozen()
        self._popart.set("enableStochasticRounding", boolean("enableStochasticRounding", enabled))
        return self

    def setPartialsType(self, dtype):
        """The type of partial sums in matrix products and convolutions: torch.float or torch.half."""
        self.checkIsFrozen()
        names = {torch.float32: "float", torch.float16: "half"}
        assert dtype in names, f"setPartialsType takes torch.float or torch.half, not {dtype!r}"
        self._popart.set("partialsTypeMatMuls", names[dtype])
        self._popart.set("convolutionOptions", {"partialsType": names[dtype]})
        return self

    def halfFloatCasting(self, half_float_casting):  # noqa: ARG002
        """Deprecated; mixed operands follow PyTorch's promotion."""
        logger.warning("halfFloatCasting is deprecated and has no effect")
        return self

    def runningStatisticsAlwaysFloat(self, value):  # noqa: ARG002
        """Deprecated; running statistics have the type of their buffers."""
        logger.warning("runningStatisticsAlwaysFloat is deprecated and has no effect")
        return self


class TensorLocationSettings(OptionValues):
    """Where one kind of tensor lives; unset values are the compiler's choice."""

    def __init__(self, **values):
        super().__init__(**values)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def _with(self, key, value):
        self.checkIsFrozen()
        self._values[key] = value
        return self

    def __getitem__(self, key):
        return self._values[key]

    def minElementsForOffChip(self, min_elements):
        """Smaller tensors stay on the chip."""
        assert isinstance(min_elements, int), "minElementsForOffChip must be an integer"
        return self._with("minElementsForOffChip", min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements):
        """Smaller tensors are not sharded."""
        assert isinstance(min_elements, int), "minElementsForReplicatedTensorSharding must be an integer"
        return self._with("minElementsForReplicatedTensorSharding", min_elements)

    def useOnChipStorage(self, use=True):
        """True: on the chip; False: in streaming memory; None: the compiler's choice."""
        if use is not None:
            return self._with("onChip", boolean("useOnChipStorage", use))
        self.checkIsFrozen()
        self._values.pop("onChip", None)
        return self

    def useReplicatedTensorSharding(self, use=True):
        """Every replica keeps a part."""
        return self._with("useReplicatedTensorSharding", int(boolean("useReplicatedTensorSharding", use)))

    def useIOTilesToLoad(self, use=True):
        """Tiles set apart for input load it."""
        return self._with("useIOTilesToLoad", int(boolean("useIOTilesToLoad", use)))

    def useIOTilesToStore(self, use=True):
        """Tiles set apart for output store it."""
        return self._with("useIOTilesToStore", int(boolean("useIOTilesToStore", use)))

    def __str__(self):
        names = {"onChip": "useOnChipStorage"}
        return ".".join(f"{names.get(key, key)}({_shown(key, value)})" for key, value in self._values.items())


def _shown(key, value):
    return value if key.startswith("min") else bool(value)


class _TensorLocationOptions(OptionValues):
    """Where weights, activations, optimizer state and accumulators live."""

    def __init__(self):
        super().__init__(
            location_activation=TensorLocationSettings(),
            location_weight=TensorLocationSettings(),
            location_optimizer=TensorLocationSettings(),
            location_accumulator=TensorLocationSettings(),
            numIOTilesSet=0,
        )

    def _freeze(self, frozen=True):
        for value in self._values.values():
            if isinstance(value, TensorLocationSettings):
                value._freeze(frozen)
        super()._freeze(frozen)

    def _locate(self, kind, location):
        assert isinstance(location, TensorLocationSettings), f"{kind} needs a poptorch.TensorLocationSettings"
        self.set(**{kind: location})
        return self

    def setActivationLocation(self, location):
        """Where activations live."""
        return self._locate("location_activation", location)

    def setWeightLocation(self, location):
        """Where weights live."""
        return self._locate("location_weight", location)

    def setOptimizerLocation(self, location):
        """Where the optimizer's state lives."""
        return self._locate("location_optimizer", location)

    def setAccumulatorLocation(self, location):
        """Where gradient accumulators live."""
        return self._locate("location_accumulator", location)

    def numIOTiles(self, num_tiles):
        """How many tiles of an IPU only move data."""
        assert isinstance(num_tiles, int) and 32 <= num_tiles <= 192 and num_tiles % 2 == 0, (
            "numIOTiles must be an even number between 32 and 192."
        )
        self.set(numIOTilesSet=num_tiles)
        return self

    def toDict(self):
        values = super().toDict()
        tiles = values.pop("numIOTilesSet")
        return {**values, **({"numIOTiles": tiles} if tiles else {})}


class _DistributedOptions(OptionValues):
    """This process among those that train the same model."""

    def __init__(self):
        super().__init__(distributed_process_id=0, num_distributed_processes=1)
        self.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    def disable(self):
        """One process alone, whatever the environment says."""
        return self.set(distributed_process_id=0, num_distributed_processes=1)

    def configureProcessId(self, process_id, num_processes):
        """Process `process_id` of `num_processes`."""
        assert 0 <= process_id < num_processes, (
            f"The process id must be between 0 and {num_processes - 1}, not {process_id}"
        )
        return self.set(distributed_process_id=process_id, num_distributed_processes=num_processes)

    def setEnvVarNames(self, var_num_processes, var_process_id):
        """Reads both numbers from environment variables, if they are set."""
        if var_num_processes in os.environ and var_process_id in os.environ:
            self.configureProcessId(int(os.environ[var_process_id]), int(os.environ[var_num_processes]))
        return self

    @property
    def processId(self):
        """This process's number."""
        return self.distributed_process_id

    @property
    def numProcesses(self):
        """How many processes there are."""
        return self.num_distributed_processes


class _PopartOptions(OptionValues):
    """Session options by PopART's names. Checked when a model is compiled."""

    def __init__(self):
        super().__init__()
        self._options = {}
        self.set("instrumentWithHardwareCycleCounter", False)
        self.set("rearrangeAnchorsOnHost", False)

    @property
    def options(self):
        """The plain dict."""
        return self._options

    def set(self, key, value):
        """Sets one session option."""
        self.checkIsFrozen()
        self._options[key] = value
        return self

    def setEngineOptions(self, engine_options):
        """Sets options of the engine by name."""
        return self.set("engineOptions", {**self._options.get("engineOptions", {}), **engine_options})

    def setPatterns(self, patterns, level=2):
        """Graph patterns to switch on or off, on top of those of the level."""
        assert isinstance(patterns, dict), "setPatterns takes a dict of pattern names to True or False"
        self.set("patterns", dict(patterns))
        return self.set("patterns_level", int(level))

    def toDict(self):
        return dict(self._options)

    def __repr__(self):
        values = (f"{key}={value!r}" for key, value in self._options.items())
        return f"{type(self).__name__}({', '.join(values)})"

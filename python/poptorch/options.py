"""`poptorch.Options`: everything about how a model is compiled and run that is not in the model.

    opts = poptorch.Options()
    opts.deviceIterations(4).replicationFactor(2)
    opts.Training.gradientAccumulation(8)
"""

import copy
import json
import os

import torch

from . import enums
from ._attributes import Attribute, accessAttributes, attributes_lists  # noqa: F401 (public here)
from ._option_files import ConfigFileError, apply_json, load_file
from ._option_groups import (  # noqa: F401 (public here)
    TensorLocationSettings,
    _DistributedOptions,
    _JitOptions,
    _PopartOptions,
    _PrecisionOptions,
    _TensorLocationOptions,
    _TrainingOptions,
)
from ._option_values import OptionValues, boolean, member, positive
from ._strategies import AutoStage, ICommonStrategy, PipelinedExecution

__all__ = ["Attribute", "AutoStage", "ConfigFileError", "Options", "TensorLocationSettings"]


class Options(OptionValues):
    """All options with their defaults; every setter returns the object."""

    def __init__(self):
        super().__init__(
            replication_factor=1,
            input_group_size=1,
            input_comm_group_type=enums.CommGroupType.NoGrouping,
            broadcast_buffers=True,
            device_iterations=1,
            log_dir=".",
            auto_round_num_ipus=False,
            anchored_tensors={},
            output_mode=enums.OutputMode.Default,
            output_return_period=1,
            connection_type=enums.ConnectionType.Always,
            sync_pattern=enums.SyncPattern.Full,
            available_memory_proportion={},
            random_seed=None,
            ipu_id=None,
            ipu_model=None,
            offline_ipu_version=None,
            log_cycle_count=False,
            module_namescope_enabled=True,
            max_repeat_logs=4,
            model_name=None,
            compilation_progress_bar=None,
            source_location_excludes=["install/poptorch", "site-packages/torch", "site-packages/poptorch"],
            relax_optimizer_checks=False,
            executable_cache_path=None,
        )
        self._execution_strategy = PipelinedExecution()
        self._popart_options = _PopartOptions()
        self._training = _TrainingOptions()
        self._precision = _PrecisionOptions(self._popart_options)
        self._tensor_locations = _TensorLocationOptions()
        self._distributed = _DistributedOptions()
        self._jit = _JitOptions()
        path = os.environ.get("POPTORCH_CACHE_DIR")
        if path:
            self.enableExecutableCaching(path)
        defaults = os.environ.get("POPTORCH_DEFAULT_OPTIONS")
        if defaults:
            self.from_json(defaults)

    @property
    def Training(self):
        """Options of training."""
        return self._training

    @property
    def Precision(self):
        """Options of number formats."""
        return self._precision

    @property
    def TensorLocations(self):
        """Options of where tensors live."""
        return self._tensor_locations

    @property
    def Distributed(self):
        """Options of several processes."""
        return self._distributed

    @property
    def Jit(self):
        """Options of capture."""
        return self._jit

    @property
    def _Popart(self):
        return self._popart_options

    # How much one call does.

    def deviceIterations(self, device_iterations):
        """How many steps one call runs before it returns."""
        self.device_iterations = positive("deviceIterations", device_iterations)
        return self

    def replicationFactor(self, replication_factor):
        """How many copies of the model share the work of this process."""
        self.replication_factor = positive("replicationFactor", replication_factor)
        return self

    def inputReplicaGrouping(self, input_group_size, input_comm_group_type):
        """Groups of replicas that get the same input."""
        positive("inputReplicaGrouping", input_group_size)
        member("inputReplicaGrouping", input_comm_group_type, enums.CommGroupType)
        return self.set(input_group_size=input_group_size, input_comm_group_type=input_comm_group_type)

    def broadcastBuffers(self, broadcast_buffers=True):
        """Whether every replica has its own buffers (False) or all start from one."""
        self.broadcast_buffers = boolean("broadcastBuffers", broadcast_buffers)
        return self

    def outputMode(self, output_mode, output_return_period=None):
        """Which micro-batches' outputs a call returns; EveryN needs the period."""
        member("outputMode", output_mode, enums.OutputMode)
        if output_mode is enums.OutputMode.EveryN:
            assert output_return_period, "EveryN requires a value for output_return_period"
            positive("output_return_period", output_return_period)
        return self.set(output_mode=output_mode, output_return_period=output_return_period or 1)

    def defaultOutputMode(self):
        """Is the output mode left to the kind of model?"""
        return self.output_mode is enums.OutputMode.Default

    def anchorTensor(self, short_name, long_name, output_mode=None, output_return_period=1):
        """Keeps the tensor `long_name` of the compiled graph for `getAnchoredTensor(short_name)`."""
        if output_mode is None:
            output_mode = self.output_mode
        member("anchorTensor", output_mode, enums.OutputMode)
        if output_mode is enums.OutputMode.EveryN:
            positive("output_return_period", output_return_period)
        self.checkIsFrozen()
        self._values["anchored_tensors"][short_name] = [long_name, output_mode, output_return_period]
        return self

    def randomSeed(self, random_seed):
        """Seeds the model's random numbers and PyTorch's."""
        assert isinstance(random_seed, int), "randomSeed must be an integer"
        self.random_seed = random_seed
        torch.manual_seed(random_seed)
        return self

    def enableSyntheticData(self, enabled):
        """No transfers from or to the host: inputs are random normal numbers made on the device."""
        self.checkIsFrozen()
        self._Popart.set("syntheticDataMode", 2 if boolean("enableSyntheticData", enabled) else 0)
        return self

    def updatableNamedBuffers(self, buffers):
        """Buffers that `copyNamedBuffersToDevice` writes."""
        assert all(isinstance(name, str) for name in buffers), "updatableNamedBuffers takes a list of names"
        self.checkIsFrozen()
        self._Popart.set("updatableNamedBuffers", list(buffers))
        return self

    # What it runs on.

    def setExecutionStrategy(self, strategy):
        """How blocks, stages and phases share the IPUs."""
        assert isinstance(strategy, (ICommonStrategy, AutoStage)), (
            "setExecutionStrategy takes an execution strategy or a poptorch.AutoStage"
        )
        self.checkIsFrozen()
        self._execution_strategy = PipelinedExecution(strategy) if isinstance(strategy, AutoStage) else strategy
        return self

    def setAvailableMemoryProportion(self, available_memory_proportion):
        """The share of an IPU's memory that convolutions and products may use: {"IPU0": 0.2, ...}."""
        proportions = {}
        for name, proportion in available_memory_proportion.items():
            assert name.startswith("IPU"), f'Available memory proportions are given by "IPU" and a number, not {name}'
            assert 0 < proportion <= 1, f"The proportion of {name} must be above 0 and at most 1, not {proportion}"
            proportions[int(name[3:])] = proportion
        self.available_memory_proportion = proportions
        return self

    def autoRoundNumIPUs(self, auto_round_num_ipus=True):
        """Reserves the next power of two when the model uses fewer IPUs."""
        self.auto_round_num_ipus = boolean("autoRoundNumIPUs", auto_round_num_ipus)
        return self

    def connectionType(self, connection_type):
        """When to attach to the IPUs."""
        self.connection_type = member("connectionType", connection_type, enums.ConnectionType)
        return self

    def syncPattern(self, sync_pattern):
        """Which IPUs wait for each other."""
        self.sync_pattern = member("syncPattern", sync_pattern, enums.SyncPattern)
        return self

    def useIpuId(self, ipu_id):
        """Runs on this IPU of the system."""
        assert isinstance(ipu_id, int), "useIpuId must be an integer"
        self.ipu_id = ipu_id
        return self

    def useIpuModel(self, use_model):
        """Whether to run on a model of an IPU; goes before POPTORCH_IPU_MODEL."""
        self.ipu_model = boolean("useIpuModel", use_model)
        return self

    def useOfflineIpuTarget(self, ipu_version=2):
        """Compiles for an IPU of the version without having one."""
        assert ipu_version in (1, 2, 21), f"There are IPU versions 1, 2 and 21, not {ipu_version}"
        self.set(offline_ipu_version=ipu_version)
        return self.connectionType(enums.ConnectionType.Never)

    # Compilation, logs and profiles.

    def enableExecutableCaching(self, path):
        """Keeps compiled models in a folder; None or "" switches it off."""
        self.checkIsFrozen()
        self._Popart.set("enableEngineCaching", bool(path))
        if path:
            self._Popart.set("cachePath", path)
        else:
            self._Popart.options.pop("cachePath", None)
        self.executable_cache_path = path or None
        return self

    def enableProfiling(self, profile_dir=None):
        """Writes a profile of the compiled model to the folder (the current one if None)."""
        self.checkIsFrozen()
        engine = {"autoReport.all": "true", "debug.allowOutOfMemory": "true"}
        self._Popart.setEngineOptions({**engine, "autoReport.directory": profile_dir or "."})
        return self

    def enableStableNorm(self, enabled):
        """A slower, more exact variance in group norm."""
        self.checkIsFrozen()
        self._Popart.set("enableStableNorm", boolean("enableStableNorm", enabled))
        return self

    def logDir(self, log_dir):
        """Where logs go."""
        self.log_dir = log_dir
        return self

    def modelName(self, name):
        """The folder of the profile ("training" or "inference" if not set)."""
        assert isinstance(name, str), "modelName must be a string"
        self.model_name = name
        return self

    def maxRepeatLogs(self, max_lines):
        """How often the same line is logged; None for always."""
        assert max_lines is None or positive("maxRepeatLogs", max_lines)
        self.max_repeat_logs = max_lines
        return self

    def logCycleCount(self, log_cycle_count):
        """Counts the cycles of a run."""
        boolean("logCycleCount", log_cycle_count)
        self.set(log_cycle_count=log_cycle_count)
        self._Popart.set("instrumentWithHardwareCycleCounter", log_cycle_count)
        return self

    def showCompilationProgressBar(self, show=True):
        """Shows how far compilation is."""
        self.compilation_progress_bar = boolean("showCompilationProgressBar", show)
        return self

    def disableModuleNamescope(self):
        """Operations are not named after their modules."""
        self.module_namescope_enabled = False
        return self

    def relaxOptimizerAttributesChecks(self, relax=True):
        """Unknown attributes of optimizers are mentioned at debug level only."""
        self.relax_optimizer_checks = boolean("relaxOptimizerAttributesChecks", relax)
        return self

    def sourceLocationExcludes(self, excludes):
        """Files whose path contains one of these are not named as an operation's origin."""
        self.source_location_excludes = list(excludes)
        return self

    def appendToLocationExcludes(self, *excludes):
        """Adds to `sourceLocationExcludes`."""
        self.source_location_excludes = [*self.source_location_excludes, *excludes]
        return self

    # As a whole.

    def from_json(self, string):
        """Calls setters by name: {"deviceIterations": 2, "Precision.setPartialsType": ...}."""
        apply_json(self, json.loads(string))
        return self

    def loadFromFile(self, filepath):
        """Calls the setters in a file, one call a line, without the leading `options.`."""
        load_file(self, filepath)
        return self

    def clone(self):
        """An unfrozen copy."""
        return copy.deepcopy(self)

    def toDict(self):
        """Everything in one dict; the output mode must be chosen."""
        assert not self.defaultOutputMode(), "An output mode must be chosen before toDict()"
        values = super().toDict()
        values.update(self._execution_strategy.backendOptions())
        for part in self._parts().values():
            values.update(part.toDict())
        return values

    def __repr__(self):
        text = super().__repr__()
        return f"{text[:-1]}, execution_strategy={self._execution_strategy!r})"

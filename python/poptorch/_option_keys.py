"""Which options the compiler knows, and the log lines that say what each was set to.

The names of session options are those of PopART's public documentation (SessionOptions, nested structures
dotted). Most of them steer a code generator that is not ours: they are accepted and recorded.
"""

import enum
import logging

from ._errors import createPoptorchError
from ._logging import core
from ._option_groups import TensorLocationSettings

_OWN = frozenset(
    """
    replication_factor input_group_size input_comm_group_type device_iterations log_dir auto_round_num_ipus
    anchored_tensors output_mode output_return_period connection_type sync_pattern random_seed ipu_id ipu_model
    offline_ipu_version available_memory_proportion module_namescope_enabled max_repeat_logs model_name
    compilation_progress_bar source_location_excludes broadcast_buffers log_cycle_count
    relax_optimizer_checks executable_cache_path execution_mode serial_phases_execution
    separate_backward_phase tensors_liveness phased_send_off_chip_after_fwd trace_model gradient_accumulation
    accumulation_and_replication_reduction_type auto_loss_scaling convolution_dithering patterns patterns_level
    location_activation location_weight location_optimizer location_accumulator distributed_process_id
    num_distributed_processes
    """.split()
)

_SESSION = frozenset(
    """
    accumulateOuterFragmentSettings.schedule accumulateOuterFragmentSettings.excludedVirtualGraphs
    accumulationAndReplicationReductionType accumulationFactor aliasZeroCopy autoRecomputation
    autodiffSettings.stitchStrategy automaticLossScalingSettings.enabled
    automaticLossScalingSettings.binEdgeLocation automaticLossScalingSettings.thresholdUpperCountProportion
    automaticLossScalingSettings.toTrackTensors automaticLossScalingSettings.updatePeriod
    automaticLossScalingSettings.gradientTensorTrackingMethod
    batchSerializationSettings.factor batchSerializationSettings.concatOnVirtualGraphChange
    batchSerializationSettings.concatOnExecutionPhaseChange batchSerializationSettings.concatOnPipelineStageChange
    batchSerializationSettings.transformContext batchSerializationSettings.method
    batchSerializationSettings.batchSchedule
    cachePath compileEngine constantWeights convolutionOptions createHalfPartials
    createImplicitPipeliningFwdOnlyProgram customCodeletCompileFlags customCodelets decomposeGradSum
    defaultBufferingDepth defaultPrefetchBufferingDepth delayVarUpdates disableGradAccumulationTensorStreams
    disableOptimizerStateTensorStreams dotChecks dotOpNames enableConstantFoldingOfMultipleConsumers
    enableDistributedReplicatedGraphs enableEfficientOverlapIOTopoCons enableEngineCaching enableExplicitIR
    enableExplicitMainLoops enableFloatingPointChecks enableFullyConnectedPass enableGradientAccumulation
    enableInplaceAmbiguityChecking enableLoadAndOffloadRNGState enableMergeExchange enableNonStableSoftmax
    enableOutlining enableOutliningCopyCostPruning enablePipelining enablePrefetchDatastreams
    enableReplicatedGraphs enableRngStateManagement enableSerializedMatmuls enableStableNorm
    enableStochasticRounding enableSupportedDataTypeCasting enableVariablesCaching engineOptions
    ensureFp32LossScaleTensor executionPhaseSettings.phases executionPhaseSettings.stages
    executionPhaseSettings.weightIOSchedule executionPhaseSettings.activationIOSchedule
    executionPhaseSettings.optimizerStateIOSchedule executionPhaseSettings.accumulatorIOSchedule
    executionPhaseSettings.schedule explicitRecomputation exportPoplarComputationGraph exportPoplarVertexGraph
    finalDotOp firstDotOp gclOptions globalReplicaOffset globalReplicationFactor groupHostSync
    groupNormStridedChannelGrouping hardwareInstrumentations implicitPipelining
    instrumentWithHardwareCycleCounter kahnTieBreaker logDir looseThresholdAtPeak lstmOptions matmulOptions
    meanAccumulationAndReplicationReductionStrategy mergeVarUpdate mergeVarUpdateMemThreshold numIOTiles
    opxAliasChecking opxModifyChecking outlineSequenceBreakCost outlineThreshold partialsTypeMatMuls
    rearrangeAnchorsOnHost rearrangeStreamsOnHost
    replicatedCollectivesSettings.prepareScheduleForMergingCollectives
    replicatedCollectivesSettings.mergeAllReduceCollectives
    replicatedCollectivesSettings.mergeReduceScatterCollectives
    replicatedCollectivesSettings.mergeAllGatherCollectives replicatedGraphCount reportOptions
    saveInitializersToFile scheduleNonWeightUpdateGradientConsumersEarly separateCallOpPdfs
    serializedPoprithmsShiftGraphsDir strictOpVersions subgraphCopyingStrategy swapLimitScheduler
    syntheticDataMode timeLimitScheduler transitiveClosureOptimizationThreshold updatableNamedBuffers
    useHostCopyOps virtualGraphMode zeroInfinity
    """.split()
)


def validate(options):
    """Raises a poptorch.Error for an unknown option or a value of no known type; logs the others."""
    for key, value in options.items():
        if key not in _OWN and key not in _SESSION:
            raise createPoptorchError(f"Unknown session option {key} in poptorch.Options")
        for line in lines(key, value):
            core(logging.DEBUG, "poptorch.Options %s", line)


def lines(key, value):
    """What the log says about one option."""
    if isinstance(value, TensorLocationSettings):
        return [f"{key} set to value {value}"] if str(value) else []
    if isinstance(value, dict):
        return [f"set {key}[{name}] to {_text(key, item)}" for name, item in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [f"added {_text(key, item)} to {key}" for item in value]
    return [f"set {key} to value {_text(key, value)}"]


def _text(key, value):
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, (int, float, str, list, tuple, dict)):
        return str(value)
    raise createPoptorchError(f"Unknown value type {type(value).__name__} for option {key}")

"""PopTorch's public interface on Pando: models train and run on this computer through one compiled graph.

    import poptorch

    model = poptorch.trainingModel(module, options=poptorch.Options(), optimizer=poptorch.optim.AdamW(...))
    output, loss = model(inputs, labels)

An independent implementation from the documented behaviour. What needs real IPUs raises `poptorch.Error`.
"""

import os as _os

_os.environ.setdefault("RDMAV_FORK_SAFE", "1")

from . import _compat, _impl, _logging, enums, optim, options, poptorch_core, profiling, testing  # noqa: E402
from ._arguments import (  # noqa: E402
    ICustomArgParser,
    registerCustomArgParser,
    registerGeometricCustomArgParsers,
)
from ._attributes import Attribute, accessAttributes, attributes_lists  # noqa: E402
from ._blocks import (  # noqa: E402
    BeginBlock,
    Block,
    BlockFunction,
    LegacyBeginBlockFn,
    module_repr,
    removeBlocks,
)
from ._blocks import print_module as print  # noqa: A004, E402 (the public name)
from ._data_accessor import AsynchronousDataAccessor  # noqa: E402
from ._data_loader import DataLoader  # noqa: E402
from ._errors import Error, RecoverableError, UnrecoverableError, createPoptorchError  # noqa: E402
from ._hardware import ipuHardwareIsAvailable, ipuHardwareVersion  # noqa: E402
from ._impl import isRunningOnIpu, registerPostCompileHook, registerPreCompileHook  # noqa: E402
from ._executor import PoplarExecutor  # noqa: E402
from ._logging import setLogLevel  # noqa: E402
from ._strategies import (  # noqa: E402
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)
from .enums import (  # noqa: E402
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    MultiConvPlanType,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
    VariableRetrievalMode,
)
from .ops import *  # noqa: E402, F403
from .ops import __all__ as _ops  # noqa: E402
from .options import Options, TensorLocationSettings  # noqa: E402
from ._wrappers import inferenceModel, load, trainingModel  # noqa: E402

registerGeometricCustomArgParsers()

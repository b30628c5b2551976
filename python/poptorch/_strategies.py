"""Execution strategies: which blocks form a stage or phase, and on which IPU each runs.

A strategy never changes numbers. It answers one question, `place(block)`: IPU, stage and phase of the
operations in a block.
"""

from dataclasses import dataclass

from ._errors import createPoptorchError
from .enums import AutoStage, Liveness


@dataclass(frozen=True)
class Place:
    """Where an operation runs."""

    mode: str  # "Pipelined", "Sharded" or "Phased"
    ipu: int
    stage: int = 0
    phase: int = 0

    def __str__(self):
        step = f"phase({self.phase})" if self.mode == "Phased" else f"stage({self.stage})"
        return f"mode({self.mode}), ipu({self.ipu}), {step}"


class Stage:
    """Blocks that run on one IPU."""

    def __init__(self, *block_ids):
        assert all(isinstance(block, str) for block in block_ids), "A Stage takes the names of blocks"
        self._blocks = list(block_ids)
        self._ipu_id = None

    @property
    def blocks(self):
        """The names of the blocks."""
        return self._blocks

    def ipu(self, ipu_id):
        """Runs the stage on this IPU."""
        self._ipu_id = ipu_id
        return self

    def __repr__(self):
        return f"Stage({', '.join(map(repr, self._blocks))}, ipu={self._ipu_id})"


class Phase:
    """Stages that run at the same time, each on its own IPU."""

    def __init__(self, *args):
        if args and all(isinstance(arg, str) for arg in args):
            self.stages = [Stage(*args)]
        else:
            self.stages = _stages(args)

    def stage(self, index):
        """The stage of that number."""
        return self.stages[index]

    def ipus(self, *ipus):
        """Gives each stage its IPU."""
        assert len(ipus) == len(self.stages), f"The phase has {len(self.stages)} stages, not {len(ipus)}"
        for stage, ipu in zip(self.stages, ipus):
            stage.ipu(ipu)
        return self

    def __repr__(self):
        return f"Phase({', '.join(map(repr, self.stages))})"


def _stages(args):
    stages = []
    for arg in args:
        if isinstance(arg, Stage):
            stages.append(arg)
        elif isinstance(arg, str):
            stages.append(Stage(arg))
        else:
            assert isinstance(arg, (list, tuple)), f"Expected a stage, a block's name or a list of names, not {arg!r}"
            stages.append(Stage(*arg))
    return stages


class ICommonStrategy:
    """What all strategies share: stages by the names of their blocks."""

    def stage(self, block_id):
        """The stage that the block belongs to."""
        for stage in self._all_stages():
            if block_id in stage.blocks:
                return stage
        raise createPoptorchError(f"Unknown block {block_id} in the execution strategy")

    def _all_stages(self):
        raise NotImplementedError

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(map(repr, self._all_stages()))})"


class _StagedStrategy(ICommonStrategy):
    """Stages one after the other."""

    def __init__(self, *args):
        autos = [arg for arg in args if isinstance(arg, AutoStage)]
        assert len(autos) <= 1 and (not autos or len(args) == 1), (
            f"{type(self).__name__} takes one AutoStage or a list of stages"
        )
        self._auto = autos[0] if autos else (None if args else AutoStage.SameAsIpu)
        self._stage_list = [] if autos else _stages(args)

    def _all_stages(self):
        return self._stage_list

    def place(self, block, ipu_id, number):
        """Where the block runs; `number` counts the blocks of the model, 0 = before the first one."""
        if self._auto is AutoStage.SameAsIpu:
            ipu = ipu_id or 0
            return Place(self._mode, ipu, ipu)
        if self._auto is AutoStage.AutoIncrement:
            return Place(self._mode, number if ipu_id is None else ipu_id, number)
        stage = self.stage(block)
        index = self._stage_list.index(stage)
        ipu = next(i for i in (ipu_id, stage._ipu_id, index) if i is not None)
        return Place(self._mode, ipu, index)

    def first(self):
        """Where operations before the first block run."""
        return Place(self._mode, 0, 0)

    def __repr__(self):
        return f"{type(self).__name__}({self._auto!s})" if self._auto is not None else super().__repr__()


class PipelinedExecution(_StagedStrategy):
    """Every stage works on another micro-batch at the same time."""

    _mode = "Pipelined"

    def backendOptions(self):
        """The options the compiler sees."""
        return {"execution_mode": 0}


class ShardedExecution(_StagedStrategy):
    """One stage works at a time."""

    _mode = "Sharded"

    def backendOptions(self):
        """The options the compiler sees."""
        return {"execution_mode": 1}


class _IPhasedExecution(ICommonStrategy):
    """Phases one after the other, weights and activations in streaming memory between them."""

    def __init__(self, *phases):
        assert phases, f"{type(self).__name__} needs phases"
        self._phases = [_phase(arg) for arg in phases]
        self._separate_backward_phase = False

    def _all_stages(self):
        return [stage for phase in self._phases for stage in phase.stages]

    def phase(self, index):
        """The phase of that number."""
        return self._phases[index]

    def useSeparateBackwardPhase(self, use=True):
        """Whether the last forward phase and the first backward one are two."""
        assert isinstance(use, bool), "useSeparateBackwardPhase must be True or False"
        self._separate_backward_phase = use
        return self

    def place(self, block, ipu_id, number):  # noqa: ARG002 (the strategies' common signature)
        """Where the block runs."""
        stage = self.stage(block)
        index = next(i for i, phase in enumerate(self._phases) if stage in phase.stages)
        within = self._phases[index].stages.index(stage)
        chosen = next((i for i in (ipu_id, stage._ipu_id) if i is not None), None)
        ipu = self._ipu(index, within) if chosen is None else chosen
        return Place("Phased", ipu, phase=index * self.stride())

    def first(self):
        """Where operations before the first block run."""
        return Place("Phased", 0)

    def phases(self):
        """How many phases the forward pass and the gap before the backward pass take."""
        return (len(self._phases) - 1) * self.stride() + self._gap()

    def stride(self):
        """Phases from one to the next."""
        return 1

    def _gap(self):
        return 1


def _phase(arg):
    if isinstance(arg, Phase):
        return arg
    return Phase(*arg) if isinstance(arg, (list, tuple)) else Phase(arg)


class SerialPhasedExecution(_IPhasedExecution):
    """All phases on one group of IPUs."""

    def __init__(self, *phases):
        super().__init__(*phases)
        self._liveness = Liveness.AlwaysLive

    def setTensorsLiveness(self, liveness):
        """How long tensors stay on the chip."""
        assert isinstance(liveness, Liveness), f"setTensorsLiveness takes a poptorch.Liveness, not {liveness!r}"
        self._liveness = liveness
        return self

    def stride(self):
        strides = {Liveness.OffChipAfterFwdNoOverlap: 2, Liveness.OffChipAfterEachPhase: 4}
        return strides.get(self._liveness, 1)

    def _gap(self):
        return 1 if self._liveness is Liveness.AlwaysLive else 4

    def groups(self):
        """Groups of IPUs that take turns."""
        return 1

    def _ipu(self, phase, stage):  # noqa: ARG002
        return stage

    def backendOptions(self):
        """The options the compiler sees."""
        return {
            "execution_mode": 2,
            "serial_phases_execution": True,
            "separate_backward_phase": self._separate_backward_phase,
            "tensors_liveness": self._liveness.value,
        }


class ParallelPhasedExecution(_IPhasedExecution):
    """Even phases on even IPUs, odd phases on odd ones, so that transfers and work overlap."""

    def __init__(self, *phases):
        super().__init__(*phases)
        self._off_chip_after_forward = False

    def sendTensorsOffChipAfterFwd(self, off_chip=True):
        """Whether activations leave the chip between forward and backward pass."""
        assert isinstance(off_chip, bool), "sendTensorsOffChipAfterFwd must be True or False"
        self._off_chip_after_forward = off_chip
        return self

    def groups(self):
        """Groups of IPUs that take turns."""
        return 2

    def _ipu(self, phase, stage):
        return 2 * stage + phase % 2

    def backendOptions(self):
        """The options the compiler sees."""
        return {
            "execution_mode": 2,
            "serial_phases_execution": False,
            "separate_backward_phase": self._separate_backward_phase,
            "phased_send_off_chip_after_fwd": self._off_chip_after_forward,
        }

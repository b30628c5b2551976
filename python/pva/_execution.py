"""A predicted run: steps, cycles, and what each chip does meanwhile."""

from __future__ import annotations

from ._absent import PER_TILE, Facts
from ._program import Program


class Extremes(Facts):
    """A number that Poplar has for every tile. Ours is one for all: `min` equals `max`."""

    def __init__(self, value: int):
        self.min = self.max = value


class ActiveCycles(Facts):
    """When a chip works on a step, in cycles since the run's begin."""

    def __init__(self, begin: int, end: int):
        self.cyclesFrom, self.cyclesTo = Extremes(begin), Extremes(end)


class StepOnIpu(Facts):
    """A chip's part of a step. `cycles` is 0 where another chip works."""

    def __init__(self, cycles: int, begin: int):
        self.cycles = cycles
        self.activeCycles = ActiveCycles(begin, begin + cycles)


class ExecutionStep(Facts):
    """All executions of one step of the program: a loop's body appears once, with the cycles of all its turns."""

    ABSENT = {"cyclesByTile": PER_TILE}

    def __init__(self, program: Program, ipus: list[StepOnIpu], executions: int):
        self.program, self.ipus = program, ipus
        #: How often the step runs. Not among libpva's names.
        self.executions = executions


class Run(Facts):
    """One call of the compiled program."""

    ABSENT = {"microseconds": "a prediction has no wall-clock time of a host"}

    def __init__(self, name: str, steps: list[ExecutionStep]):
        self.name, self.steps = name, steps


class TotalCycles(Facts):
    """Cycles of a run, from its first step to its last."""

    def __init__(self, total: int):
        self.total = total


class Execution(Facts):
    """`steps`, `runs` and `totalCycles`."""

    def __init__(self, profile: dict, programs: list[Program], chips: int):
        self.steps = _steps(profile, programs, chips)
        self.runs = [Run(profile["program"], self.steps)]
        self.totalCycles = TotalCycles(profile["totals"]["cycles"])

    def blocks(self, tile: int):
        """Not in our reports."""
        raise AttributeError(f"Execution.blocks({tile}): {PER_TILE}")


def _steps(profile: dict, programs: list[Program], chips: int) -> list[ExecutionStep]:
    """Steps follow one another; those of a pipeline's stage on its chip."""
    stage_of = {}
    for number, stage in enumerate(profile["stages"]):
        for index in range(stage["first_step"], stage["first_step"] + stage["steps"]):
            stage_of[index] = number
    steps, now = [], 0
    for index, (step, program) in enumerate(zip(profile["steps"], programs)):
        cycles = step["cycles"] * step["times"]
        works = stage_of.get(index, 0)
        ipus = [StepOnIpu(cycles if chip == works else 0, now) for chip in range(chips)]
        steps.append(ExecutionStep(program, ipus, step["times"]))
        now += cycles
    return steps

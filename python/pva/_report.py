"""`openReport`: a report file by libpva's names. Numbers are of one replica, as in libpva's liveness."""

from __future__ import annotations

import enum
import json
import os
from pathlib import Path

from pando import _pando

from . import _cbor
from ._absent import BY_CATEGORY, NO_POPLAR, ONE_STEP, Facts
from ._execution import Execution
from ._program import OF_KIND, ComputeSet, Program, ProgramType


class Architecture(enum.Enum):
    """Generations of IPUs."""

    Ipu1 = 1
    Ipu2 = 2


#: Tiles of the first generation's chip (Colossus GC2); later chips, and chips of one's own, count as the second.
_TILES_OF_IPU1 = 1216


class IPU(Facts):
    """A chip and its tiles."""

    Architecture = Architecture

    def __init__(self, tiles: list[Tile]):
        self.tiles = tiles


class Target(Facts):
    """The machine that the report is about."""

    def __init__(self, profile: dict, chips: int):
        system = profile["system"]
        first = system["tiles_per_chip"] == _TILES_OF_IPU1
        self.architecture = Architecture.Ipu1 if first else Architecture.Ipu2
        #: The system's name, such as "pod16".
        self.type = system["name"]
        self.numReplicas = profile["replicas"]
        self.numIPUs = chips * profile["replicas"]
        self.tilesPerIpu = system["tiles_per_chip"]
        self.numTiles = chips * system["tiles_per_chip"]
        self.bytesPerTile = system["tile_bytes"]
        self.bytesPerIPU = system["tiles_per_chip"] * system["tile_bytes"]
        self.totalMemory = chips * self.bytesPerIPU
        self.clockFrequency = system["clock_hz"]


class Graph(Facts):
    """Sizes of the program."""

    ABSENT = {"numEdges": "vertices are predicted in groups whose edges are not counted one by one"}

    def __init__(self, profile: dict):
        steps = profile["steps"]
        self.numComputeSets = sum(step["kind"] == "compute" for step in steps)
        self.numVertices = sum(step["vertices"] for step in steps)
        self.numVars = len(profile["variables"])


class TotalMemory(Facts):
    """Bytes of a tile when the fullest tile is fullest."""

    def __init__(self, bytes: int, gaps: int | None, fullest: int):
        self.excludingGaps = bytes
        if gaps is not None:
            self.includingGaps = bytes + gaps
        self.ABSENT = {"includingGaps": f"the report has the gaps of its fullest tile only, which is tile {fullest}"}


class Category(Facts):
    """Bytes for one purpose."""

    def __init__(self, total: int):
        self.total = total


class Categories(Facts):
    """What a tile's bytes are for, in libpva's words where they mean the same."""

    def __init__(self, memory: dict):
        self.vertexCode = Category(memory["code"])
        self.vertexInstanceState = Category(memory["vertex_state"])
        self.internalExchangeCode = Category(memory["exchange_code"])
        self.stack = Category(memory["stacks"])
        #: Ours: variables that live always, and those that live for a while.
        self.alwaysLive = Category(memory["always_live"])
        self.temporary = Category(memory["temporary"])


class TileMemory(Facts):
    """A tile's memory."""

    ABSENT = {"category": BY_CATEGORY, "alwaysLiveBytes": BY_CATEGORY, "vertices": "vertices are not listed by tile"}

    def __init__(self, total: TotalMemory, categories: dict | None = None):
        self.total = total
        if categories is not None:
            self.category = Categories(categories)
            self.alwaysLiveBytes = categories["always_live"]


class Tile(Facts):
    """A tile of the replica; tiles of a pipeline's later stages follow those of the first one's chip."""

    ABSENT = {"memory": "of a pipeline the report has the memory of its fullest stage only"}

    def __init__(self, id: int, memory: TileMemory | None):
        self.id = id
        if memory is not None:
            self.memory = memory


class Live(Facts):
    """Bytes that live only while they are needed."""

    ABSENT = {"variables": ONE_STEP}

    def __init__(self, bytes: int):
        self.bytes = bytes


class LivenessStep(Facts):
    """Memory during a step, on the tile that is fullest then."""

    ABSENT = {"notAlwaysLiveMemory": f"{ONE_STEP}; ask notAlwaysLiveMemoryForTile of the step's `tile`"}

    def __init__(self, program: Program, step: dict, always_live: int):
        self.program = program
        #: The fullest tile. Not among libpva's names.
        self.tile = step["live_peak_tile"]
        self._live = Live(max(0, step["live_bytes_peak"] - always_live))

    def notAlwaysLiveMemoryForTile(self, tile: int) -> Live:
        """Code and stacks included; known of the fullest tile."""
        if tile != self.tile:
            raise AttributeError(f"LivenessStep.notAlwaysLiveMemoryForTile({tile}): {ONE_STEP}; here that is {self.tile}")
        return self._live


class Variable(Facts):
    """A variable; `size` is its bytes on all tiles."""

    def __init__(self, variable: dict):
        self.name, self.size = variable["name"], variable["total_bytes"]


class Compilation(Facts):
    """What was compiled, and for what."""

    ABSENT = {"loweredVariables": "the report has no variable's bytes tile by tile; see alwaysLiveVariables"}

    def __init__(self, profile: dict, chips: int):
        self.target = Target(profile, chips)
        self.graph = Graph(profile)
        steps = [_program(step, index + 1) for index, step in enumerate(profile["steps"])]
        self.programs = [Program(ProgramType.Sequence, profile["program"], 0, steps), *steps]
        self.computeSets = [program.computeset for program in steps if program.computeset is not None]
        self.tiles = _tiles(profile, chips)
        per_chip = self.target.tilesPerIpu
        self.ipus = [IPU(self.tiles[chip * per_chip : (chip + 1) * per_chip]) for chip in range(chips)]
        always = profile["memory"]["always_live"]
        self.livenessProgramSteps = [
            LivenessStep(program, step, always) for program, step in zip(steps, profile["steps"])
        ]
        self.alwaysLiveVariables = [
            Variable(one) for one in profile["variables"] if one["role"] in ("state", "constant")
        ]

    def alwaysLiveVariablesForTile(self, tile: int):
        """Not in our reports."""
        raise AttributeError(f"Compilation.alwaysLiveVariablesForTile({tile}): {ONE_STEP}")


class Version(Facts):
    """The version of the file's format. `string` says who wrote it."""

    ABSENT = {"packageHash": NO_POPLAR}

    def __init__(self, profile: dict):
        self.major, self.minor, self.point = profile["format_version"], 0, 0
        self.string = f"Pando, report format {self.major}"


class Level(enum.Enum):
    """How finely a run was measured: not at all."""

    Off = 0


class InstrumentationSettings(Facts):
    """A prediction measures nothing."""

    def __init__(self):
        self.compute = self.externalExchange = Level.Off


class Report(Facts):
    """A report file that is open."""

    def __init__(self, profile: dict, debug: dict | None = None):
        #: All fields as `crates/profile/FORMAT.md` describes them.
        self._profile, self._debug = profile, debug
        chips = max(1, len(profile["stages"]))
        self.version = self.poplarVersion = Version(profile)
        self.instrumentationSettings = InstrumentationSettings()
        self.compilation = Compilation(profile, chips)
        self.execution = Execution(profile, self.compilation.programs[0].children, chips)

    def __repr__(self) -> str:
        return f"<pva.Report of {self._profile['program']!r} on {self._profile['system']['name']}>"


def openReport(profile: str | os.PathLike[str], debugInfo: str | os.PathLike[str] | None = None) -> Report:
    """Opens a report that `pando profile --report`, `Prediction.save` or a `poptorch` program with
    `autoReport.all` has written. `debugInfo` is the `debug.cbor` beside its folder, for `OperationAnalysis`."""
    path = os.fspath(profile)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: there is no such file")
    debug = None if debugInfo is None else _cbor.loads(Path(debugInfo).read_bytes())
    return Report(json.loads(_pando.read_report(path)), debug)


def _program(step: dict, id: int) -> Program:
    program = Program(OF_KIND[step["kind"]], step["name"], id)
    if program.type is ProgramType.OnTileExecute:
        program.computeset = ComputeSet(step["name"], step["vertices"])
    return program


def _tiles(profile: dict, chips: int) -> list[Tile]:
    memory, per_chip = profile["memory"], profile["system"]["tiles_per_chip"]
    stages = profile["stages"]
    fullest = max(range(len(stages)), key=lambda at: stages[at]["max_used"]) if stages else 0
    used = [0] * per_chip
    for run in memory["tiles"]:
        used[run["first_tile"] : run["first_tile"] + run["count"]] = [run["bytes"]] * run["count"]
    tiles = []
    for chip in range(chips):
        for tile in range(per_chip):
            known = chip == fullest
            tiles.append(Tile(chip * per_chip + tile, _tile_memory(memory, tile, used[tile]) if known else None))
    return tiles


def _tile_memory(memory: dict, tile: int, bytes: int) -> TileMemory:
    is_fullest = tile == memory["max_tile"]
    # An empty tile has no gaps.
    gaps = memory["gap_bytes"] if is_fullest else 0 if bytes == 0 else None
    total = TotalMemory(bytes, gaps, memory["max_tile"])
    return TileMemory(total, memory["fullest"] if is_fullest else None)

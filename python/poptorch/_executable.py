"""What compiling a model gives: all that running it needs, apart from the user's module. It can be pickled, unless the
model calls the host."""

import enum
from dataclasses import dataclass, field

from pando import _pando

from ._arguments import map_structure

# Of files with executables: they are read by the same version only. The second number counts changes of what is in them.
VERSION = f"3.4.0+pando{_pando.__version__}.2"


class Leaf(enum.Enum):
    """Stands for a tensor among a result's leaves."""

    TENSOR = 0


@dataclass
class TrainedWeight:
    """A weight and the names of its optimizer's state."""

    name: str
    group: int  # of the optimizer's parameters
    slots: list  # (kind, name)
    copies: int = 1  # groups of replicas with values of their own


@dataclass
class Executable:
    """Programs, and what their parts mean."""

    programs: dict  # name -> Program
    base: str  # the program that runs the model: "main", or "accumulate" before "update"
    state: dict  # first values of what the programs keep besides the model's tensors
    tensors: list  # names of the model's tensors
    own_buffers: list  # those that every replica changes for itself
    inputs: list  # names
    written_inputs: list  # positions of inputs that the model changes in place
    structure: object  # of the result
    leaves: list  # Leaf.TENSOR or a constant
    num_outputs: int
    writes: list  # names of state that a call changes
    prints: list  # formats of printed tensors
    checks_finite: bool
    places: list  # where operations run
    regions: dict  # value -> place
    multi_convs: list
    anchors: list = field(default_factory=list)  # short names
    weights: list = field(default_factory=list)  # TrainedWeight
    locations: dict = field(default_factory=dict)  # value -> (file, line)

    def __getstate__(self):
        return {**self.__dict__, "structure": map_structure(lambda _: None, self.structure)}

    @property
    def calls_host(self):
        """Does a function of the host run in the middle?"""
        return any(program.steps for program in self.programs.values())

    @property
    def num_ipus(self):
        """IPUs of one replica: up to the highest one that is used."""
        return 1 + max((place.ipu for place in self.places), default=0)

"""The native half. Addresses and shapes are trusted: use the package's own classes."""

from collections.abc import Sequence

__version__: str

class Error(ValueError):
    """What was asked cannot be done; the message says what to do."""

class Array:
    """A tensor; `numpy.asarray` takes it without a copy."""

    @property
    def dtype(self) -> str: ...
    @property
    def __array_interface__(self) -> dict[str, object]: ...

class Model:
    @staticmethod
    def from_file(
        path: str, dims: list[tuple[str, int]], threads: int | None, precision: str, instructions: tuple[str | None, bool]
    ) -> Model: ...
    @staticmethod
    def from_bytes(
        bytes: bytes, dims: list[tuple[str, int]], threads: int | None, precision: str, instructions: tuple[str | None, bool]
    ) -> Model: ...
    @property
    def threads(self) -> int: ...
    @property
    def matmul_precision(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def tile_unit(self) -> str: ...
    @property
    def inputs(self) -> list[tuple[str, str, list[int | str] | None]]: ...
    @property
    def outputs(self) -> list[tuple[str, str, list[int | str] | None]]: ...
    def run(self, arrays: Sequence[tuple[int, str, Sequence[int]]]) -> list[tuple[str, Array]]: ...
    def profile(
        self, arrays: Sequence[tuple[int, str, Sequence[int]]], runs: int
    ) -> list[tuple[str, str, float, int, int]]: ...

#: Address, element type, shape of a C-contiguous array; its address is a multiple of 8.
Location = tuple[int, str, Sequence[int]]

class Graph:
    """A graph under construction; the function `main` is open. Values are numbers, and belong to the function that
    has begun last. Errors name the rule that is broken and leave the graph as it was."""

    def __init__(self) -> None: ...
    def param(self, name: str, dtype: str, dims: Sequence[int]) -> int:
        """Names are of letters, digits, `_` and single `.`s inside, and unique in the function."""
    def constant(self, array: Location) -> int:
        """The elements are copied."""
    def scalar(self, dtype: str, value: float) -> int: ...
    def type(self, value: int) -> tuple[str, list[int]]:
        """Element type and sizes."""
    def known(self, value: int) -> Array | None:
        """The elements of a value that depends on no parameter, if that is little work."""
    def name(self, value: int, name: str) -> None:
        """Does nothing if the value has a name or another value has this one."""
    def op(self, op: str, operands: Sequence[int], ty: str | None = None) -> list[int]:
        """A primitive in the text format's spelling: `g.op("transpose perm=[1,0]", [x])`,
        `g.op("reshape", [x], "f32[2,3]")`, `g.op("if then=@f else=@g", [condition, x])`."""
    def composite(self, name: str, operands: Sequence[int], **attributes: float) -> list[int]:
        """relu, sigmoid, silu, gelu, gelu_tanh (x); softmax, log_softmax (x; axis);
        layer_norm (x, scale, bias; epsilon), rms_norm (x, scale; epsilon) over the last axis; detach (x);
        batch_norm_training (x[N,C,...], scale, bias; epsilon), which gives y, mean and biased variance; the losses
        of `pando_transform::loss`, not reduced, such as ctc (log_probs, targets, input and target lengths; blank,
        zero_infinity)."""
    def onnx(
        self,
        op_type: str,
        operands: Sequence[int | None],
        attributes: dict[str, object] | None = None,
        *,
        outputs: int = 1,
        domain: str = "",
        opset: int | None = None,
    ) -> list[int]:
        """An operator of ONNX; the newest opset unless told. Attributes are numbers, strings or lists of them."""
    def begin(self, base: str) -> str:
        """Starts a function and returns its name, `base` or `base_1`, ...; `op` calls it `@name`."""
    def end(self, results: Sequence[int]) -> None: ...
    def abandon(self) -> None:
        """Ends the function that has begun last without keeping it."""
    def finish(self, results: Sequence[int], params: Sequence[int] | None = None) -> Module:
        """Ends `main`, which keeps `params` as its parameters, in this order (all unless told). Nodes that no result needs are dropped; names of values stay."""

class Module:
    """A finished graph."""

    @staticmethod
    def parse(source: str) -> Module: ...
    def with_constants(self, positions: Sequence[int]) -> Module:
        """The same module with constants in place of these parameters, for predictions."""
    def text(self) -> str: ...
    def compile(self, threads: int | None, precision: str) -> Compiled: ...

class Compiled:
    """A module compiled for this computer: arrays by position."""

    def run(self, arrays: Sequence[Location]) -> list[Array]: ...
    def profile(self, arrays: Sequence[Location], runs: int) -> list[tuple[str, str, float, int, int]]: ...

class Session:
    """Programs over shared state. A program is its name, module, names of state read and written, names of inputs and
    outputs: `main` takes the state read, then the inputs, and gives the state written, then the outputs."""

    def __init__(
        self,
        programs: Sequence[tuple[str, Module, list[str], list[str], list[str], list[str]]],
        state: Sequence[tuple[str, Location]],
        uniform: Sequence[tuple[str, str, Sequence[int], float]],
        threads: int | None,
        precision: str,
    ) -> None: ...
    def run(self, program: str, arrays: Sequence[Location]) -> list[Array]: ...
    def state(self, name: str) -> Array: ...
    def state_names(self) -> list[str]: ...
    def set_state(self, name: str, array: Location) -> None: ...
    def lend(self, name: str, array: Location) -> None: ...
    def take_back(self, name: str) -> None: ...
    def save(self, folder: str) -> None: ...
    def load(self, folder: str) -> None: ...

class Optimizer:
    """A rule for updating weights: its name (sgd, adam, adamw, adamax, lamb, rmsprop, adagrad, adadelta), settings."""

    def __init__(
        self,
        rule: str,
        settings: Sequence[tuple[str, float]],
        *,
        first: str = "f32",
        second: str = "f32",
        master: bool = False,
        stochastic: bool = False,
    ) -> None: ...
    def hyperparameters(self) -> list[tuple[str, float]]: ...
    def slots(self, dtype: str, dims: Sequence[int]) -> list[tuple[str, str, list[int], float | None, bool]]:
        """Name, element type, sizes, first value (None: the weight), whether all weights share it."""
    def update(
        self,
        graph: Graph,
        weight: int,
        gradient: int | None,
        state: Sequence[int],
        hyper: Sequence[int],
        seed: int | None = None,
    ) -> tuple[int, list[int]]: ...
    def add_to_velocity(self, graph: Graph, velocity: int, gradient: int, hyper: Sequence[int]) -> int: ...

class Accumulation:
    """How the gradients of micro-batches and replicas become one: "sum", "running", "post" or "post_and_loss"."""

    def __init__(self, reduction: str, micro_batches: int, replicas: int) -> None: ...
    def loss_factor(self) -> float: ...
    def needs_index(self) -> bool: ...
    def add(self, graph: Graph, accumulator: int, gradient: int, index: int) -> int: ...
    def total(self, graph: Graph, accumulator: int) -> int: ...
    def share(self, graph: Graph, gradient: int) -> int:
        """What one gradient adds to a sum that is not divided afterwards."""

def gradients(
    graph: Graph, outputs: Sequence[int], seeds: Sequence[int], wrt: Sequence[int]
) -> list[int | None]: ...
def clip_by_norm(graph: Graph, gradients: Sequence[int], max_norm: int) -> list[int]: ...
def all_finite(graph: Graph, values: Sequence[int]) -> int: ...
def next_loss_scale(graph: Graph, finite: int, scale: int, good_steps: int) -> tuple[int, int]: ...
def predict(args: list[str]) -> str: ...
def predict_module(
    module: Module, constants: Sequence[int], state: Sequence[tuple[int, int]], args: list[str]
) -> str:
    """`predict` for a module: parameters at `constants` become constants, parameters and results of `state` stay on
    the chip. The model that the arguments name is what the program is called."""
def read_report(path: str) -> str:
    """A report file's profile as JSON."""
def systems() -> list[tuple[str, str, int]]: ...
def command_line(args: list[str]) -> int: ...

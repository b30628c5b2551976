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
    def from_file(path: str, dims: list[tuple[str, int]], threads: int | None, precision: str) -> Model: ...
    @staticmethod
    def from_bytes(bytes: bytes, dims: list[tuple[str, int]], threads: int | None, precision: str) -> Model: ...
    @property
    def threads(self) -> int: ...
    @property
    def matmul_precision(self) -> str: ...
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
    def text(self) -> str: ...
    def compile(self, threads: int | None, precision: str) -> Compiled: ...

class Compiled:
    """A module compiled for this computer: arrays by position."""

    def run(self, arrays: Sequence[Location]) -> list[Array]: ...
    def profile(self, arrays: Sequence[Location], runs: int) -> list[tuple[str, str, float, int, int]]: ...

def predict(args: list[str]) -> str: ...
def systems() -> list[tuple[str, str, int]]: ...
def command_line(args: list[str]) -> int: ...

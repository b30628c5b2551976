"""Models that run on this computer."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _pando
from ._dtypes import numpy_dtype
from ._pando import Error


@dataclass(frozen=True)
class Port:
    """An input or output of a model."""

    #: As in the file.
    name: str
    #: In Pando's words: f32, f16, bf16, i8 ... u64, bool.
    dtype: str
    #: A number, or the name of a dimension whose size the inputs decide, for each dimension.
    #: None for an output whose file does not even say how many they are.
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{'?' if self.shape is None else ', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Step:
    """A part of a run, as `Model.profile` measures it."""

    #: The kind of work: gemm, conv, elementwise, ...
    kind: str
    #: What it computes, in the model's own names.
    name: str
    #: Median over the runs.
    seconds: float
    #: Multiplications and additions, where they are the measure of the work.
    flops: int
    #: What it reads and writes at least.
    bytes: int


class Model:
    """A model compiled for this computer; `pando.load` makes it.

    Runs in several threads at the same time are safe; they share the model's own threads. The interpreter is free
    while one runs.
    """

    def __init__(self, native: _pando.Model):
        self._native = native
        self._inputs, self._outputs = (tuple(map(_port, ports)) for ports in (native.inputs, native.outputs))

    @property
    def inputs(self) -> tuple[Port, ...]:
        """In the order of the file."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """In the order of the file. Outputs that are no tensors are left out."""
        return self._outputs

    @property
    def threads(self) -> int:
        """How many threads compute, the caller's included."""
        return self._native.threads

    @property
    def matmul_precision(self) -> str:
        """How products of f32 are computed in fact: less precise may be no faster here."""
        return self._native.matmul_precision

    @property
    def isa(self) -> str:
        """The level of instructions: "portable", "avx2" or "avx512"."""
        return self._native.isa

    @property
    def tile_unit(self) -> str:
        """The processor's unit for products of tiles: "amx" or "none"."""
        return self._native.tile_unit

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs by name, for arrays by name (or anything that `numpy.asarray` takes).

        C-contiguous arrays of the input's own type are read in place: do not change them meanwhile. Others are
        copied; values that would change (2.5 as an integer, 300 as an i8) are refused. The first run with shapes
        not seen before plans for them. Where sizes depend on values of the inputs, the first run with values that
        decide otherwise than the last ones compiles the model for them. Outputs are new arrays.
        """
        arrays = self._arrays(inputs)
        results = self._native.run([_location(array, port) for array, port in zip(arrays, self._inputs)])
        return {name: _from_native(result) for name, result in results}

    def __call__(self, *args: Any, **kwargs: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        """Inputs by position or name; the output, or a tuple if there are several."""
        if len(args) > len(self._inputs):
            raise Error(f"{len(args)} inputs are given, the model has {len(self._inputs)}")
        named = {port.name: value for port, value in zip(self._inputs, args)}
        twice = [name for name in kwargs if name in named]
        if twice:
            raise Error(f"input {twice[0]} is given twice, by position and by name")
        outputs = tuple(self.run({**named, **kwargs}).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def profile(self, inputs: Mapping[str, Any], runs: int = 5) -> list[Step]:
        """The time of every step of a run, in order: medians of `runs` runs after one to warm up."""
        if runs < 1:
            raise Error(f"runs={runs}: give at least 1")
        arrays = self._arrays(inputs)
        locations = [_location(array, port) for array, port in zip(arrays, self._inputs)]
        return [Step(*step) for step in self._native.profile(locations, runs)]

    def _arrays(self, inputs: Mapping[str, Any]) -> list[np.ndarray]:
        """In order, converted; they must live until the engine has read them."""
        if not isinstance(inputs, Mapping):
            raise TypeError(f"run() takes a mapping from names to arrays, not a {type(inputs).__name__}")
        known = [port.name for port in self._inputs]
        for name in inputs:
            if name not in known:
                raise Error(f"the model has no input {name!r}; its inputs are {', '.join(known) or 'none'}")
        missing = [str(port) for port in self._inputs if port.name not in inputs]
        if missing:
            raise Error(f"no value is given for input {missing[0]}")
        sizes: dict[str, tuple[int, str]] = {}
        arrays = [_converted(inputs[port.name], port) for port in self._inputs]
        for array, port in zip(arrays, self._inputs):
            _check_shape(array, port, sizes)
        return arrays

    def __repr__(self) -> str:
        inputs, outputs = ("; ".join(map(str, ports)) for ports in (self._inputs, self._outputs))
        return f"<pando.Model ({inputs}) -> ({outputs}), {self.threads} threads>"


def load(
    model: str | os.PathLike[str] | bytes,
    *,
    threads: int | None = None,
    matmul_precision: str = "highest",
    dims: Mapping[str, int] | None = None,
    isa: str | None = None,
    amx: bool = True,
) -> Model:
    """Compiles a model for this computer.

    `model` is the path of a `.onnx` or `.graph` file, the name of a built-in model such as "zoo:resnet18", or the
    bytes of a file (external data need a path).
    `threads` are all cores by default. `matmul_precision` is how precisely products of f32 are computed, at least:
    "highest", "high" or "medium", as in PyTorch. `dims` gives sizes to named dimensions; those left take them from
    the inputs of each run. `isa` is the level of instructions to use, "portable", "avx2" or "avx512": the processor's best
    if it is not given. With that one comes the unit for products of tiles (AMX) if there is one, unless `amx` is False.
    """
    if threads is not None and not (isinstance(threads, numbers.Integral) and 1 <= threads <= 1024):
        raise Error(f"threads={threads!r}: give a number from 1 to 1024")
    for name, value in (("matmul_precision", matmul_precision), ("isa", isa)):
        if not isinstance(value, str) and not (name == "isa" and value is None):
            raise Error(f"{name}={value!r}: give a name")
    if not isinstance(amx, bool):
        raise Error(f"amx={amx!r}: give True or False")
    sizes = [(str(name), _size(name, size)) for name, size in (dims or {}).items()]
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Model(_pando.Model.from_bytes(bytes(model), sizes, threads, matmul_precision, (isa, amx)))
    path = os.fspath(model)
    if not os.path.exists(path) and not path.startswith("zoo:"):
        raise FileNotFoundError(f"{path}: there is no such file")
    return Model(_pando.Model.from_file(path, sizes, threads, matmul_precision, (isa, amx)))


def _port(native: tuple[str, str, list[int | str] | None]) -> Port:
    name, dtype, shape = native
    return Port(name, dtype, None if shape is None else tuple(shape))


def _size(name: str, size: int) -> int:
    if not isinstance(size, numbers.Integral) or size < 0:
        raise Error(f"dimension {name}: {size!r} is no size")
    return int(size)


def _converted(value: Any, port: Port) -> np.ndarray:
    """A C-contiguous array of the port's type."""
    array = np.asarray(value)
    dtype = numpy_dtype(port.dtype)
    if dtype is None:
        return _bits(array, port)
    if array.dtype != dtype:
        array = _cast(array, dtype, port)
    array = np.ascontiguousarray(array) if array.ndim else array
    # Slices may begin anywhere; the engine wants the alignment that fresh arrays have.
    return array if _address(array) % 8 == 0 else array.copy()


def _cast(array: np.ndarray, dtype: np.dtype, port: Port) -> np.ndarray:
    if array.dtype.kind not in "biufV":
        raise Error(f"input {port} is given an array of {array.dtype}; pass numbers")
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    # Floats round to floats; everything else must keep its value.
    are_floats = port.dtype in ("f32", "f16", "bf16") and array.dtype.kind not in "biu"
    if not are_floats and not np.array_equal(cast.astype(array.dtype), array):
        raise Error(f"input {port} is given an array of {array.dtype} with values that {port.dtype} does not have")
    return cast


def _bits(array: np.ndarray, port: Port) -> np.ndarray:
    """Types that NumPy lacks are passed as unsigned integers with their bits."""
    bits = np.dtype(np.uint16 if port.dtype == "bf16" else np.uint8)
    if array.dtype != bits:
        advice = "install ml_dtypes, or pass" if port.dtype == "bf16" else "pass"
        raise Error(f"input {port} is given an array of {array.dtype}; {advice} the bits as {bits}")
    return np.ascontiguousarray(array)


def _check_shape(array: np.ndarray, port: Port, sizes: dict[str, tuple[int, str]]) -> None:
    wanted, given = port.shape, array.shape
    if len(wanted) != len(given) or any(isinstance(d, int) and d != size for d, size in zip(wanted, given)):
        raise Error(f"input {port} is given an array of shape [{', '.join(map(str, given))}]")
    for dim, size in zip(wanted, given):
        if isinstance(dim, str):
            known, where = sizes.setdefault(dim, (size, port.name))
            if known != size:
                raise Error(f"input {port} is given {dim}={size}, but input {where} has {dim}={known}")


def _location(array: np.ndarray, port: Port) -> tuple[int, str, Sequence[int]]:
    return _address(array), port.dtype, array.shape


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _from_native(result: _pando.Array) -> np.ndarray:
    array = np.asarray(result)
    dtype = numpy_dtype(result.dtype)
    return array if dtype is None or array.dtype == dtype else array.view(dtype)

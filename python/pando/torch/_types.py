"""Element types of torch in the words of the graph, and tensors as plain memory.

The graph has no f64: such tensors are f32 here, which `warn_about_doubles` says once.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch

from .._pando import Array, Error

GRAPH_TYPES = {
    torch.float32: "f32",
    torch.float64: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "bool",
}

TORCH_TYPES = {name: dtype for dtype, name in GRAPH_TYPES.items() if dtype != torch.float64}

_warned_about_doubles = False


def graph_type(dtype: torch.dtype) -> str:
    """The graph's element type for a tensor of this type."""
    name = GRAPH_TYPES.get(dtype)
    if name is None:
        raise Error(f"tensors of {dtype} are not supported; use real numbers of at most 64 bits")
    if dtype == torch.float64:
        warn_about_doubles()
    return name


def warn_about_doubles() -> None:
    global _warned_about_doubles
    if not _warned_about_doubles:
        _warned_about_doubles = True
        warnings.warn("float64 tensors are computed as float32", stacklevel=2)


def memory(tensor: torch.Tensor) -> np.ndarray:
    """The elements as an aligned array of the graph's type (16-bit floats as their bits), shared where possible."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    array = tensor.numpy()
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    if array.ndim:
        array = np.ascontiguousarray(array)
    return array if array.__array_interface__["data"][0] % 8 == 0 else array.copy()


def location(array: np.ndarray, dtype: str) -> tuple[int, str, tuple[int, ...]]:
    """What the native half reads; the array must live until it has."""
    return array.__array_interface__["data"][0], dtype, array.shape


def from_native(result: Array, dtype: torch.dtype) -> torch.Tensor:
    """A tensor over the memory of a result; f64 is a copy."""
    array = np.asarray(result)
    if dtype == torch.float64:
        array = array.astype(np.float64)
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == torch.bfloat16 else tensor


def store(result: Array, target: torch.Tensor) -> None:
    """Copies a result to a tensor's memory."""
    target = target.detach()
    view = target.view(torch.int16) if target.dtype == torch.bfloat16 else target
    np.copyto(view.numpy(), np.asarray(result).view(np.int16) if target.dtype == torch.bfloat16 else np.asarray(result))

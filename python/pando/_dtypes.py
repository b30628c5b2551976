"""Element types: Pando's names and NumPy's."""

from __future__ import annotations

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

#: NumPy's type of each of Pando's that it has.
NUMPY = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
}

if ml_dtypes is not None:
    NUMPY["bf16"] = np.dtype(ml_dtypes.bfloat16)


def numpy_dtype(name: str) -> np.dtype | None:
    """None for a type that NumPy lacks: bfloat16 without the package ml_dtypes, the 8-bit floats."""
    return NUMPY.get(name)

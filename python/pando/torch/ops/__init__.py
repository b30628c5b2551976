"""What the operators of ATen mean, a file per family."""

from . import (  # noqa: F401  (they fill the table)
    activation,
    convolution,
    creation,
    indexing,
    layout,
    linalg,
    loss,
    norm,
    pointwise,
    pool,
    random,
    reduction,
    resize,
    sort,
)
from ._table import HANDLERS

__all__ = ["HANDLERS"]

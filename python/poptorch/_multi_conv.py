"""Independent convolutions that run at the same time."""

import torch

from . import _impl
from .enums import MultiConvPlanType


class MultiConv:
    """The convolutions inside `with poptorch.MultiConv():` share the tiles. Every setter returns the object."""

    def __init__(self):
        self._options = {}

    def availableMemoryProportions(self, value):
        """The share of memory of all convolutions, or of each."""
        return self._set("availableMemoryProportions", _each(value))

    def partialsTypes(self, value):
        """The type of partial sums of all convolutions, or of each: torch.float or torch.half."""
        types = _each(value)
        if not all(dtype in (torch.float32, torch.float16) for dtype in types):
            raise ValueError(f"Invalid partials types: {value!r}. They must be torch.float or torch.half")
        return self._set("partialsTypes", types)

    def enableConvDithering(self, value):
        """Starts convolutions on different tiles."""
        return self._set("enableConvDithering", _each(value))

    def planType(self, value):
        """Whether the convolutions share the tiles or take turns."""
        assert isinstance(value, MultiConvPlanType), "Invalid plan type: it must be a poptorch.MultiConvPlanType"
        return self._set("planType", value)

    def perConvReservedTiles(self, value):
        """Tiles that each convolution keeps for itself."""
        assert isinstance(value, int), f"perConvReservedTiles must be an integer, not {value!r}"
        return self._set("perConvReservedTiles", value)

    def cycleBackOff(self, value):
        """How much slower than the best plan a convolution may be."""
        assert isinstance(value, float), f"cycleBackOff must be a float, not {value!r}"
        return self._set("cycleBackOff", value)

    def _set(self, name, value):
        self._options[name] = value
        return self

    def __enter__(self):
        state = _impl.current()
        if state is not None:
            state.begin_multi_conv(self._options)
        return self

    def __exit__(self, kind, value, traceback):
        state = _impl.current()
        if state is not None and kind is None:
            state.end_multi_conv()


def _each(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]

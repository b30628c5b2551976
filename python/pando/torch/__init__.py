"""PyTorch modules on Pando: captured as graphs, computed by the compiled graph."""

from ._alias import View
from ._capture import Captured, Input, Output, State, capture, current
from ._control import cond, for_loop
from ._inference import Inference, inference
from ._mode import Capture
from ._value import Emitter, Value

__all__ = [
    "Capture",
    "Captured",
    "Emitter",
    "Inference",
    "Input",
    "Output",
    "State",
    "Value",
    "View",
    "capture",
    "cond",
    "current",
    "for_loop",
    "inference",
]

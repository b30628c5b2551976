"""PyTorch modules on Pando: captured as graphs, computed by the compiled graph."""

from ._alias import View
from ._capture import Captured, Input, Output, State, capture, current
from ._control import cond, for_loop
from ._inference import Inference, inference
from ._mode import Capture
from ._profile import Prediction, profile
from ._trainer import Trainer, trainer
from ._value import Emitter, Value

__all__ = [
    "Capture",
    "Captured",
    "Emitter",
    "Inference",
    "Input",
    "Output",
    "Prediction",
    "State",
    "Trainer",
    "Value",
    "View",
    "capture",
    "cond",
    "current",
    "for_loop",
    "inference",
    "profile",
    "trainer",
]

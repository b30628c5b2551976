"""Runs models on this computer, and predicts what a machine built of Graphcore-style IPUs would do with them.

    import numpy as np
    import pando

    model = pando.load("model.onnx")
    outputs = model.run({"x": np.zeros((1, 3, 224, 224), np.float32)})

    pando.profile("model.onnx", system="m2000", precision="f16")["latency_ms"]

Everything that cannot be done is a `pando.Error` whose message says what, where and what to do.
"""

from ._model import Model, Port, Step, load
from ._pando import Error, __version__
from ._predict import System, profile, systems

__all__ = ["Error", "Model", "Port", "Step", "System", "__version__", "load", "profile", "systems"]

"""Functions of torch that are captured as a whole, above ATen: recurrent layers, attention, dropout. ATen's own way
of computing them would hide what they are."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

FUNCTIONS: dict = {}


class FunctionMode(TorchFunctionMode):
    def __init__(self, capture):
        super().__init__()
        self.capture = capture

    def __torch_function__(self, func, types, args=(), kwargs=None):
        whole = FUNCTIONS.get(func)
        if whole is not None:
            result = whole(self.capture, *args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return func(*args, **(kwargs or {}))

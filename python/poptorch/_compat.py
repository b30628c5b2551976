"""What programs written for the PyTorch of PopTorch's time rely on and PyTorch has dropped since."""

import torch


def _sampler_init(self, data_source=None):  # noqa: ARG001
    """Samplers used to take their data source, and subclasses still pass one on."""


def restore():
    """Puts the old behaviours back where they are missing."""
    if torch.utils.data.Sampler.__init__ is object.__init__:
        torch.utils.data.Sampler.__init__ = _sampler_init


restore()

"""Comparison of nested results."""

import torch

from ._arguments import flatten


def allclose(ref, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Do both have the same structure and close tensors?"""
    assert type(ref) is type(other) or isinstance(ref, torch.Tensor) == isinstance(other, torch.Tensor), (
        f"Different structures: {type(ref).__name__} and {type(other).__name__}"
    )
    first, second = list(flatten(ref)), list(flatten(other))
    assert len(first) == len(second), f"Different structures: {len(first)} and {len(second)} tensors"
    return all(_close(a, b, rtol, atol, equal_nan) for a, b in zip(first, second))


def _close(a, b, rtol, atol, equal_nan):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.allclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return a == b

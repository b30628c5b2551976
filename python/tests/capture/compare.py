"""What counts as the same."""

import torch
import torch.utils._pytree as pytree

#: Relative to the largest element: sums are ordered differently.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}


def assert_same(actual, expected, factor=1.0, scale=1e-3):
    """Structure, types and shapes exactly; floats within their type's rounding, of numbers as large as `scale` if
    their own are smaller."""
    actual, actual_spec = pytree.tree_flatten(actual)
    expected, expected_spec = pytree.tree_flatten(expected)
    assert actual_spec == expected_spec
    for a, e in zip(actual, expected):
        if not isinstance(e, torch.Tensor):
            assert a == e
            continue
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        if not e.dtype.is_floating_point:
            assert torch.equal(a, e), f"{a} is not {e}"
            continue
        finite = e[torch.isfinite(e)]
        largest = finite.abs().max().item() if finite.numel() else 1.0
        tolerance = TOLERANCE[e.dtype] * factor
        torch.testing.assert_close(a, e, rtol=tolerance, atol=tolerance * max(scale, largest), equal_nan=True)

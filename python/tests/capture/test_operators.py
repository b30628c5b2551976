"""Every operator against eager torch, on small random tensors."""

import pytest

torch = pytest.importorskip("torch")

import pando.torch  # noqa: E402

import cases  # noqa: E402
from compare import assert_same  # noqa: E402

CASES = [pytest.param(*case[1:], id=f"{family}/{case[0]}") for family, all in cases.ALL.items() for case in all]


@pytest.mark.parametrize("function, tensors", CASES)
def test_operator(function, tensors):
    expected_inputs = [tensor.clone() for tensor in tensors]
    expected = function(*expected_inputs)
    inputs = [tensor.clone() for tensor in tensors]
    assert_same(pando.torch.inference(function)(*inputs), expected)
    for changed, right in zip(inputs, expected_inputs):
        assert_same(changed, right)

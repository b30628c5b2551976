"""Goal: `poptorch.CPU` runs any Python on the host in the middle of a model, in every call.
Method: functions of NumPy and functions that decide by elements, compared with the same model in PyTorch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
poptorch = pytest.importorskip("poptorch")


class Middle(torch.nn.Module):
    """A layer, a function of the host, a layer that also needs a value from before."""

    def __init__(self, function):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        self.host = poptorch.CPU(function, "Middle")

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        return self.second(self.host(hidden) + hidden)


def sorted_by_numpy(x):
    return torch.from_numpy(np.sort(x.numpy(), axis=1))


def decided_by_elements(x):
    return x * 2 if x.sum() > 0 else -x


@pytest.mark.parametrize("function", [sorted_by_numpy, decided_by_elements])
def test_any_python(function):
    model = Middle(function)
    wrapped = poptorch.inferenceModel(model)
    for seed in range(4):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            expected = model(x)
        torch.testing.assert_close(wrapped(x), expected, rtol=1e-5, atol=1e-6)


def test_several_calls_with_several_results_in_every_micro_batch():
    calls = []

    def split(x, factor, scale=None):
        calls.append(factor)
        parts = np.split(x.numpy() * scale.item(), 2, axis=-1)
        return {"low": torch.from_numpy(parts[0].copy()), "high": torch.from_numpy(parts[1].copy())}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((), 3.0))
            self.host = poptorch.CPU(split, "Split")

        def forward(self, x):
            y = x + 1
            one = self.host(y, 1, scale=self.weight)
            two = self.host(torch.cat([one["high"], one["low"]], -1) * self.weight, 2, scale=self.weight)
            return one["low"], two["high"] + y[:, :2], x

    model = Model()
    wrapped = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(3))
    x = torch.randn(6, 4)
    results = wrapped(x)
    assert calls == [1, 2] * 4  # once each while compiling, then in each of three micro-batches
    with torch.no_grad():
        expected = model(x)
    for ours, theirs in zip(results, expected):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_integers_and_random_numbers_keep_their_order():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.host = poptorch.CPU(lambda x: torch.from_numpy(np.cumsum(x.numpy())), "Sum")

        def forward(self, x):
            noise = torch.rand(4)
            return self.host(x), noise, noise + 0 * self.host(x)

    wrapped = poptorch.inferenceModel(Model())
    x = torch.arange(4)
    sums, noise, same = wrapped(x)
    assert sums.tolist() == [0, 1, 3, 6]
    assert torch.equal(noise, same)
    assert not torch.equal(noise, wrapped(x)[1])


def test_what_cannot_be_done_is_said():
    types = iter([torch.float32])  # of the first call, which compilation makes
    wrapped = poptorch.inferenceModel(Middle(lambda x: x.to(next(types, torch.int32))))
    with pytest.raises(poptorch.Error, match="when the model was compiled it was"):
        wrapped(torch.randn(5, 3))
    wrapped = poptorch.inferenceModel(Middle(lambda x: x.tolist()))
    with pytest.raises(poptorch.Error, match="must return tensors"):
        wrapped(torch.randn(5, 3))

    class Training(Middle):
        def forward(self, x):
            return poptorch.identity_loss(super().forward(x), "sum")

    with pytest.raises(poptorch.Error, match="only supported in inference"):
        poptorch.trainingModel(Training(sorted_by_numpy))(torch.randn(5, 3))
    wrapped = poptorch.inferenceModel(Middle(sorted_by_numpy))
    with pytest.raises(poptorch.Error, match="cannot be exported"):
        wrapped.compileAndExport("model.poptorch", torch.randn(5, 3))

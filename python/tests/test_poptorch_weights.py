"""Goal: host and device may have weights in one memory, and nobody notices.
Method: what a program can see of the host's weights, before and after steps, against what PopTorch documents."""

import tempfile

import pytest

torch = pytest.importorskip("torch")
poptorch = pytest.importorskip("poptorch")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)
        self.loss = torch.nn.MSELoss()

    def forward(self, x):
        y = self.layer(x)
        return y, self.loss(y, x)


@pytest.fixture
def trained():
    """A wrapped model before its first step, and its input."""
    torch.manual_seed(1)
    model = Model()
    wrapped = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    return model, wrapped, torch.randn(4, 6)


def test_weights_are_shared_until_somebody_looks(trained):
    model, wrapped, x = trained
    wrapped(x)
    assert wrapped._shared
    newest = model.layer.weight.detach().clone()
    assert not wrapped._shared
    before = model.layer.weight.detach()
    wrapped(x)
    torch.testing.assert_close(before, newest, rtol=0, atol=0)
    wrapped.copyWeightsToHost()
    assert not torch.equal(before, newest)


def test_what_the_host_had_comes_back(trained):
    model, wrapped, x = trained
    first, _ = wrapped(x)
    for _ in range(3):
        later, _ = wrapped(x)
    assert not torch.equal(first, later)
    wrapped.copyWeightsToDevice()
    again, _ = wrapped(x)
    torch.testing.assert_close(again, first, rtol=0, atol=0)


def test_memory_that_others_see_is_not_shared():
    torch.manual_seed(1)
    model, x = Model(), torch.randn(4, 6)
    seen = model.layer.weight.detach()
    before = seen.clone()
    wrapped = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    wrapped(x)
    assert not wrapped._shared.has("layer.weight", model.layer.weight)
    torch.testing.assert_close(seen, before, rtol=0, atol=0)
    wrapped.copyWeightsToHost()
    assert not torch.equal(seen, before)


def test_changes_of_the_host_wait_for_the_copy_to_the_device(trained):
    model, wrapped, x = trained
    first, _ = wrapped(x)
    with torch.no_grad():
        model.layer.weight.zero_()
        model.layer.bias.zero_()
    scores, _ = wrapped(x)
    assert scores.any()
    with torch.no_grad():
        model.layer.weight.zero_()
        model.layer.bias.zero_()
    wrapped.copyWeightsToDevice()
    scores, _ = wrapped(x)
    assert not scores.any()


def test_without_room_for_the_old_weights_nothing_is_shared(trained, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    model, wrapped, x = trained
    first, _ = wrapped(x)
    assert not wrapped._shared
    wrapped(x)
    wrapped.copyWeightsToDevice()


def test_destroyed_models_keep_their_weights(trained):
    model, wrapped, x = trained
    wrapped(x)
    later, _ = wrapped(x)
    expected = None
    with torch.no_grad():
        wrapped.destroy()
        expected = model(x)[0]
    again = poptorch.inferenceModel(model)
    torch.testing.assert_close(again(x)[0], expected)
    assert not torch.equal(expected, later)

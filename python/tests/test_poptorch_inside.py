"""Goal: what users see of a running model (printed tensors and gradients, predictions) is the compiled program's own.
Method: printed numbers beside PyTorch's gradients; predictions of models divided over IPUs."""

import re

import pytest

torch = pytest.importorskip("torch")
poptorch = pytest.importorskip("poptorch")


class Printing(torch.nn.Module):
    def __init__(self, gradient=True):
        super().__init__()
        self.layer, self.gradient = torch.nn.Linear(3, 2), gradient

    def forward(self, x):
        hidden = self.layer(x)
        seen = poptorch.ipu_print_tensor(hidden, "hidden", self.gradient, digits=9)
        # The gradient that is printed is that of `seen`, not all of `hidden`'s.
        return poptorch.identity_loss(seen.square() + hidden, "sum")


def printed(capfd):
    """Title -> numbers."""
    text = capfd.readouterr().err
    found = re.findall(r"^(\S+): \(([^a-z:]*)\)$", text, re.M)
    return {title: [float(number) for number in re.findall(r"[-+.\de]+", body)] for title, body in found}


def test_gradients_are_printed_in_training(capfd):
    model = Printing()
    x = torch.tensor([[1.0, 2.0, 3.0]])
    with torch.no_grad():
        hidden = model.layer(x).flatten()
    wrapped = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0))
    wrapped(x)
    found = printed(capfd)
    torch.testing.assert_close(torch.tensor(found["hidden"]), hidden)
    torch.testing.assert_close(torch.tensor(found["Gradient___hidden"]), 2 * hidden)
    for quiet in (poptorch.inferenceModel(Printing()), poptorch.trainingModel(Printing(gradient=False))):
        quiet(x)
        assert list(printed(capfd)) == ["hidden"]


def test_predictions_of_wrapped_models():
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(4)))
    poptorch.BeginBlock(model[2], ipu_id=1)
    wrapped = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(2).useIpuModel(True))
    with pytest.raises(poptorch.Error, match="not been compiled"):
        wrapped.prediction()
    wrapped(torch.randn(16, 32))
    prediction = wrapped.prediction()
    assert len(prediction.stages) == 2 and prediction.fits
    assert wrapped.prediction(system="pod16", replicas=4).throughput_per_s > 3 * prediction.throughput_per_s
    assert "throughput" in prediction._repr_html_()

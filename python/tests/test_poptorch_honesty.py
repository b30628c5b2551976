"""Goal: results come from the compiled graph, never from running the user's module.
Method: after the first call, the module's Python must not run, and no kernel of PyTorch may compute."""

import pytest

torch = pytest.importorskip("torch")
poptorch = pytest.importorskip("poptorch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

# Looking at elements, not computing with them.
HARMLESS = {"detach", "slice", "select", "view", "alias", "_to_copy", "as_strided", "empty", "copy_", "lift_fresh"}


class Watch(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func._opname)
        return func(*args, **(kwargs or {}))


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x, target):
        self.calls += 1
        out = torch.tanh(self.layer(x))
        return out, torch.nn.functional.mse_loss(out, target)


@pytest.mark.parametrize("training", [True, False])
def test_no_kernel_of_pytorch_computes(training):
    model = Counting()
    options = poptorch.Options().deviceIterations(2)
    if training:
        options.Training.gradientAccumulation(2)
    wrap = poptorch.trainingModel if training else poptorch.inferenceModel
    wrapped = wrap(model, options)
    x, target = torch.randn(8, 4), torch.randn(8, 4)
    wrapped(x, target)
    assert model.calls == 1
    with Watch() as watch:
        wrapped(x, target)
    assert model.calls == 1
    assert set(watch.seen) <= HARMLESS, set(watch.seen) - HARMLESS

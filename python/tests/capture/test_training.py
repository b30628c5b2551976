"""Gradients and training steps against torch's autograd and optimizers."""

import copy

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import pando  # noqa: E402
import pando.torch  # noqa: E402
from pando import _pando  # noqa: E402
from pando.torch._types import from_native, graph_type, location, memory  # noqa: E402

import cases  # noqa: E402
from compare import assert_same  # noqa: E402
from test_modules import MODULES  # noqa: E402


class Weighted(nn.Module):
    """A function of float tensors, each a parameter."""

    def __init__(self, function, tensors):
        super().__init__()
        self.function = function
        self.tensors = [nn.Parameter(t.clone()) if t.is_floating_point() else t for t in tensors]
        for position, tensor in enumerate(self.tensors):
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(f"p{position}", tensor)

    def forward(self):
        result = self.function(*(t.clone() if t.is_floating_point() else t for t in self.tensors))
        leaves = torch.utils._pytree.tree_leaves(result)
        total = 0.0
        for position, leaf in enumerate(leaves):
            if leaf.is_floating_point():
                weights = torch.linspace(0.5, 1.5 + position, leaf.numel()).reshape(leaf.shape)
                total = total + (leaf.float() * weights).sum()
        return total


def gradients(module, *args):
    """Of the first output, by name of the parameter; None where there is none."""
    captured = pando.torch.capture(module, args, training=True)
    g, loss = captured.emitter, captured.tensors[0].value
    wanted = [state for state in captured.state if state.needs_grad]
    seed = g.full(loss.dtype, loss.shape, 1)
    found = _pando.gradients(g.native, [loss.id], [seed.id], [state.value.id for state in wanted])
    results = [g.value(id) for id in found if id is not None]
    state = [one for one in captured.state if one.tensor is not None]
    tensors = [one.tensor for one in state] + list(args)
    params = [one.value for one in state] + [one.value for one in captured.inputs]
    seeds = [one.value for one in captured.state if one.tensor is None]
    compiled = captured.finish(results, params + seeds).compile(2, "highest")
    tensors.append(torch.tensor([1, 2], dtype=torch.int64).to(torch.uint32))
    arrays = [memory(tensor) for tensor in tensors]
    computed = iter(compiled.run([location(a, graph_type(t.dtype)) for a, t in zip(arrays, tensors)]))
    return {
        one.name: None if id is None else from_native(next(computed), one.tensor.dtype)
        for one, id in zip(wanted, found)
    }


#: Drawn anew by every call, or not differentiable in torch either.
WITHOUT = {"activation/rrelu", "layout/bitcast"}
CASES = [
    pytest.param(function, tensors, id=f"{family}/{name}")
    for family, all in cases.ALL.items()
    for name, function, tensors in all
    if any(t.is_floating_point() for t in tensors) and f"{family}/{name}" not in WITHOUT
]


@pytest.mark.parametrize("function, tensors", CASES)
def test_gradient(function, tensors):
    module = Weighted(function, tensors)
    try:
        module().backward()
    except (RuntimeError, AttributeError) as error:
        pytest.skip(f"torch has no gradient: {error}")
    for name, gradient in gradients(module).items():
        expected = getattr(module, name).grad
        if expected is None or gradient is None:
            nothing = expected if gradient is None else gradient
            assert nothing is None or not nothing.any(), name
        else:
            assert_same(gradient, expected, factor=10)


@pytest.mark.parametrize("name", MODULES)
def test_module_gradient(name):
    module, inputs = MODULES[name]

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = copy.deepcopy(module).train()

        def forward(self, *args):
            result = torch.utils._pytree.tree_leaves(self.inner(*args))
            return sum(
                (leaf * leaf * 0.5 + leaf).sum() for leaf in result if leaf is not None and leaf.is_floating_point()
            )

    loss = Loss()
    eager = copy.deepcopy(loss)
    leaves = torch.utils._pytree.tree_leaves(inputs)
    if len(leaves) != len(inputs):
        pytest.skip("nested inputs")
    if not list(eager.parameters()):
        pytest.skip("nothing to learn")
    eager(*inputs).backward()
    found = gradients(loss, *inputs)
    # Some are zero but for rounding.
    largest = max(parameter.grad.abs().max().item() for parameter in eager.parameters())
    for name, parameter in eager.named_parameters():
        assert_same(found[name], parameter.grad, factor=20, scale=largest)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(252, 4)
        )
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, image, target):
        scores = self.body(image) * self.frozen
        return F.cross_entropy(scores, target), scores


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name):
    module, eager = Classifier(), Classifier()
    ours, theirs = OPTIMIZERS[name](module.parameters()), OPTIMIZERS[name](eager.parameters())
    step = pando.torch.trainer(module, ours)
    target = torch.tensor([1, 3])
    for number in range(6):
        if number == 3:
            for optimizer in (ours, theirs):
                optimizer.param_groups[0]["lr"] *= 0.5
        loss, scores = step(cases.IMAGE, target)
        theirs.zero_grad()
        expected, expected_scores = eager(cases.IMAGE, target)
        expected.backward()
        theirs.step()
        assert_same((loss, scores), (expected.detach(), expected_scores.detach()), factor=30)
    step.copy_weights()
    assert_same(module.state_dict(), eager.state_dict(), factor=30)


def test_no_gradient_through_detach_and_no_grad():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Parameter(cases.randn(3)) for _ in range(3))

        def forward(self):
            with torch.no_grad():
                fixed = self.b * 2
            return (self.a * fixed + self.c.detach() * self.a).sum()

    found = gradients(Model())
    assert found["a"] is not None and found["b"] is None and found["c"] is None

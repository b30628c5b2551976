"""Goal: a `torch.autograd.Function` trains with its own backward pass, in any combination.
Method: the same steps in eager PyTorch, whose gradients differ from those of the forward pass."""

import copy

import pytest

torch = pytest.importorskip("torch")

import pando  # noqa: E402
from pando.torch import trainer  # noqa: E402


class Straight(torch.autograd.Function):
    """Rounds forward, passes gradients (clamped) backward."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-0.5, 0.5)


class Scaled(torch.autograd.Function):
    """Several tensors, a number, saved tensors, several results."""

    @staticmethod
    def forward(ctx, x, w, factor):
        ctx.save_for_backward(x, w)
        ctx.factor = factor
        return x * w, x + 1

    @staticmethod
    def backward(ctx, first, second):
        x, w = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, True, False)
        return -ctx.factor * first * w + second, (first * x).sum(0), None


class Reversed(torch.autograd.Function):
    """An identity with the new style of contexts."""

    @staticmethod
    def forward(x):
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = output.shape

    @staticmethod
    def backward(ctx, gradient):
        return -gradient.reshape(ctx.shape)


class InPlace(torch.autograd.Function):
    """Writes to its argument."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


class Model(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.layer, self.w = torch.nn.Linear(4, 4), torch.nn.Parameter(torch.randn(4))
        self.body = body

    def forward(self, x):
        return self.body(self, self.layer(x)).square().sum()


def chained(model, h):
    a, b = Scaled.apply(h, model.w, 3.0)
    c, _ = Scaled.apply(h, model.w, 0.5)
    d, e = Scaled.apply(torch.tanh(a + b), model.w, 1.0)
    return d * c + e


BODIES = {
    "one": lambda model, h: Straight.apply(h * 3) * model.w,
    "chained": chained,
    "the same identity twice": lambda model, h: Reversed.apply(h) * 2 + Reversed.apply(h) + Straight.apply(h),
    "a result that nobody uses": lambda model, h: Scaled.apply(h, model.w, 2.0)[1],
    "in place": lambda model, h: InPlace.apply(h + model.w) + model.w,
}


@pytest.mark.parametrize("name", BODIES)
def test_steps_are_those_of_pytorch(name):
    torch.manual_seed(0)
    model = Model(BODIES[name])
    reference = copy.deepcopy(model)
    ours = trainer(model, torch.optim.SGD(model.parameters(), lr=0.02))
    theirs = torch.optim.SGD(reference.parameters(), lr=0.02)
    for _ in range(3):
        x = torch.randn(2, 4)
        theirs.zero_grad()
        loss = reference(x)
        loss.backward()
        theirs.step()
        torch.testing.assert_close(ours(x), loss.detach(), rtol=1e-5, atol=1e-5)
    ours.copy_weights()
    for one, other in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-5, atol=1e-6)


def test_a_wrong_gradient_is_refused():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient.sum(0)

    model = Model(lambda model, h: Wrong.apply(h))
    with pytest.raises(pando.Error, match=r"Wrong.backward returns a gradient of shape \[4\]"):
        trainer(model, torch.optim.SGD(model.parameters(), lr=0.1))(torch.randn(2, 4))

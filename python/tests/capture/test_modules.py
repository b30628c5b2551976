"""Modules of torch.nn, in evaluation and training mode, against eager torch."""

import copy

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402

import pando.torch  # noqa: E402

from cases import I, IMAGE, N3, SIGNAL, VOLUME, X, randn  # noqa: E402
from compare import assert_same  # noqa: E402

SEQUENCE = randn(7, 3, 5)

MODULES = {
    "linear": (nn.Linear(4, 6), (X,)),
    "mlp": (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2), nn.Softmax(-1)), (X,)),
    "conv": (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 3),
        ),
        (IMAGE,),
    ),
    "batch_norm1d": (nn.BatchNorm1d(3), (SIGNAL,)),
    "batch_norm3d": (nn.BatchNorm3d(3, momentum=0.3), (VOLUME,)),
    "instance_norm": (nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (IMAGE,)),
    "group_norm": (nn.GroupNorm(3, 3), (IMAGE,)),
    "embedding": (nn.Embedding(6, 4, padding_idx=0), (I.abs(),)),
    "embedding_bag": (nn.EmbeddingBag(6, 4), (I.abs(),)),
    "prelu": (nn.PReLU(3), (IMAGE,)),
    "bilinear": (nn.Bilinear(4, 4, 5), (X, X + 1)),
    "upsample": (nn.Upsample(scale_factor=2, mode="bicubic"), (IMAGE,)),
    "lstm": (nn.LSTM(5, 4), (SEQUENCE,)),
    "lstm-full": (nn.LSTM(5, 4, 2, batch_first=True, bidirectional=True), (SEQUENCE,)),
    "lstm-states": (nn.LSTM(5, 4), (SEQUENCE, (randn(1, 3, 4), randn(1, 3, 4, seed=1)))),
    "lstm-projection": (nn.LSTM(5, 4, proj_size=2), (SEQUENCE,)),
    "lstm-unbatched": (nn.LSTM(5, 4), (SEQUENCE[:, 0],)),
    "lstm-no-bias": (nn.LSTM(5, 4, bias=False), (SEQUENCE,)),
    "gru": (nn.GRU(5, 4, 2, bidirectional=True), (SEQUENCE,)),
    "gru-no-bias": (nn.GRU(5, 4, bias=False, batch_first=True), (SEQUENCE,)),
    "rnn": (nn.RNN(5, 4), (SEQUENCE,)),
    "rnn-relu": (nn.RNN(5, 4, nonlinearity="relu"), (SEQUENCE,)),
    "lstm_cell": (nn.LSTMCell(5, 4), (N3[0],)),
    "gru_cell": (nn.GRUCell(5, 4), (N3[0],)),
    "attention": (nn.MultiheadAttention(4, 2, batch_first=True), (X[None], X[None], X[None])),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (randn(2, 5, 8),)),
    "decoder": (nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), (randn(5, 2, 8), randn(4, 2, 8))),
    "transformer": (nn.Transformer(8, 2, 1, 1, 16, dropout=0.0), (randn(5, 2, 8), randn(4, 2, 8))),
    "weight_norm": (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (X,)),
    "cosine": (nn.CosineSimilarity(), (X, X + 1)),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_module(name, training):
    module, inputs = MODULES[name]
    module = copy.deepcopy(module).train(training)
    for parameter in module.parameters():
        if parameter.ndim:
            parameter.data += 0.1 * randn(*parameter.shape)
    eager = copy.deepcopy(module)
    ours = pando.torch.inference(module)
    for _ in range(2):
        assert_same(ours(*inputs), eager(*inputs), factor=3)
        assert_same(dict(module.named_buffers()), dict(eager.named_buffers()))


class Writes(nn.Module):
    """Writes through views of all kinds."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.scale = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x, counts):
        y = x * self.scale
        y[:, 1:3].add_(1)
        y.transpose(0, 1).mul_(2)
        y[0] = 5
        y[1:, ::2] = y[1:, 1::2]
        y.view(-1)[3:5].copy_(torch.tensor([7.0, 8.0]))
        first, *_ = y.unbind(0)
        first.sub_(3)
        y.diagonal().fill_(0.5)
        y.fill_diagonal_(0.25)
        y[y > 6] = 6
        y[torch.tensor([0, 2]), torch.tensor([1, 1])] = 9
        part = y.narrow(1, 0, 2).t()
        part[1].zero_()
        y.flatten()[2:4] += 1
        copied = y.clone()
        y.as_strided((2,), (5,)).add_(100)
        self.seen += y.sum(0)
        counts.add_(1)
        row = counts.unsqueeze(0)
        row.mul_(2)
        detached = y.detach()
        detached[0, 3] = -1
        y.unsqueeze_(0)
        y.squeeze_(0)
        z = torch.empty(3, 4)
        torch.add(x, 1, out=z)
        return y, copied, part, first, z


def test_writes_through_views():
    module, eager = Writes(), Writes()
    ours = pando.torch.inference(module)
    counts, expected_counts = torch.arange(3), torch.arange(3)
    for _ in range(2):
        assert_same(ours(X, counts), eager(X, expected_counts))
        assert_same(counts, expected_counts)
        assert_same(module.seen, eager.seen)


def test_structures_and_constants():
    def function(data, scale, flag=True):
        rows = [part * scale for part in data["parts"]]
        return {"rows": rows, "none": None, "flag": flag, "sum": sum(rows), "text": "x"}

    arguments = ({"parts": [X, X + 1], "unused": None}, 2.0)
    assert_same(pando.torch.inference(function)(*arguments, flag=False), function(*arguments, flag=False))


def test_all_unsupported_operators_are_named():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return torch.linalg.inv(self.inner(x)) + 1

    class Inner(nn.Module):
        def forward(self, x):
            return torch.lgamma(x)

    with pytest.raises(pando.Error) as error:
        pando.torch.inference(Model())(X[:, :3])
    assert "aten.lgamma (in inner)" in str(error.value)
    assert "aten.linalg_inv" in str(error.value)


def test_values_are_not_known():
    with pytest.raises(pando.Error, match="not known before it runs"):
        pando.torch.inference(lambda x: x * x.sum().item())(X)
    # But what depends on no input is.
    assert_same(pando.torch.inference(lambda x: x * torch.tensor(3.0).item())(X), X * 3)


def test_sizes_are_not_known():
    with pytest.raises(RuntimeError, match="depends on values"):
        pando.torch.inference(lambda x: x[x > 0])(X)


def test_doubles_are_floats():
    result = pando.torch.inference(lambda x: x * 2)(X.double())
    assert result.dtype == torch.float64 and torch.allclose(result, X.double() * 2)


def test_random_numbers():
    def function(x):
        return (
            torch.rand(1000),
            torch.randn(1000),
            torch.nn.functional.dropout(torch.ones(1000), 0.3),
            torch.randperm(9),
        )

    ours = pando.torch.inference(function)
    first, second = ours(X), ours(X)
    assert not torch.equal(first[0], second[0])
    uniform, normal, dropped, permutation = first
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.05
    assert abs(normal.mean()) < 0.15 and abs(normal.std() - 1) < 0.1
    assert (
        set(dropped.tolist()) == {0.0, torch.tensor(1 / 0.7).item()} and abs((dropped == 0).float().mean() - 0.3) < 0.06
    )
    assert sorted(permutation.tolist()) == list(range(9))


def test_transformer_with_masks():
    model = torch.nn.Transformer(8, 2, 1, 1, 16, dropout=0.0)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(4)
    inputs = (randn(5, 2, 8), randn(4, 2, 8), None, mask)
    for training in (True, False):
        model.train(training)
        assert_same(pando.torch.inference(model)(*inputs), model(*inputs).detach(), factor=3)


def test_modes_of_the_caller_do_not_matter():
    module, inputs = MODULES["conv"]
    module = copy.deepcopy(module).eval()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert_same(pando.torch.inference(module)(*inputs), module(*inputs), factor=3)


def test_weights_may_change():
    module = torch.nn.Linear(4, 2)
    ours = pando.torch.inference(module)
    ours(X)
    torch.nn.init.normal_(module.weight)
    assert_same(ours(X), module(X).detach())
    module.weight.data.numpy()[:] = 3
    ours.refresh()
    assert_same(ours(X), module(X).detach())


def test_random_operators():
    """Mean and spread."""
    size = (4000,)

    def function(x):
        return {
            "bernoulli": torch.bernoulli(torch.full(size, 0.3)),
            "bernoulli_": x.clone().bernoulli_(0.3),
            "normal": torch.normal(torch.full(size, 2.0), 3.0),
            "normal_": x.clone().normal_(2.0, 3.0),
            "uniform_": x.clone().uniform_(-1, 3),
            "exponential_": x.clone().exponential_(2.0),
            "randint": torch.randint(3, 9, size).float(),
            "random_": x.long().random_(3, 9).float(),
            "rand_like": torch.rand_like(x),
            "randn_like": torch.randn_like(x),
            "multinomial": torch.multinomial(torch.tensor([1.0, 2, 1]), size[0], replacement=True).float(),
            "dropout2d": torch.nn.functional.dropout2d(torch.ones(40, 100, 2, 2), 0.3, True).flatten(),
            "alpha_dropout": torch.nn.functional.alpha_dropout(x.clone().normal_(), 0.2, True),
            "distribution": torch.distributions.Normal(2.0, 3.0).sample(size),
            "rrelu": torch.nn.functional.rrelu(-torch.ones(size), 0.1, 0.3, training=True),
        }

    ours, eager = pando.torch.inference(function)(torch.zeros(size)), function(torch.zeros(size))
    for name, expected in eager.items():
        spread = expected.std().item()
        assert abs(ours[name].mean() - expected.mean()) < 0.12 * spread, name
        assert abs(ours[name].std() - spread) < 0.12 * spread, name


def test_layers_take_the_type_of_their_input():
    half, single = X.half(), X
    linear = torch.nn.Linear(4, 3)
    assert pando.torch.inference(linear)(half).dtype == torch.float16
    assert pando.torch.inference(linear.half())(single).dtype == torch.float32


def test_no_kernel_of_torch_computes():
    """Between call and return only copies of results could run, and none do."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        calls = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.calls.append(str(func))
            return func(*args, **(kwargs or {}))

    module, inputs = MODULES["encoder"]
    ours = pando.torch.inference(module.eval())
    ours(*inputs)
    with Count():
        result = ours(*inputs)
    allowed = {"aten.detach.default", "aten.lift_fresh.default"}  # no elements are touched
    assert set(Count.calls) <= allowed
    assert_same(result, module(*inputs), factor=3)

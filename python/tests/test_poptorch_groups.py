"""Goal: `replicaGrouping` gives groups of replicas weights of their own, which train by their own gradients.
Method: the same replicas one after another in PyTorch, each with the weights of its group."""

import pytest

torch = pytest.importorskip("torch")
poptorch = pytest.importorskip("poptorch")

from poptorch import CommGroupType, VariableRetrievalMode  # noqa: E402

REPLICAS = 4


class Model(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(*((rows,) if rows else ()), 3, 2))
        self.shared = torch.nn.Parameter(torch.randn(2))

    def forward(self, x):
        y = x @ self.weight + self.shared
        return y, poptorch.identity_loss(y.square(), "mean")


def group_of(kind, size, replica):
    groups = REPLICAS // size
    return replica % groups if kind is CommGroupType.Orthogonal else replica // size


KINDS = [(CommGroupType.Consecutive, 2), (CommGroupType.Orthogonal, 2), (CommGroupType.NoGrouping, 1),
         (CommGroupType.All, 4)]


def reference(start, shared, kind, size, xs, steps, make):
    """Weights per group and the shared one after steps of `make`'s optimizer on the mean of all replicas' losses."""
    weights = [row.clone().requires_grad_() for row in start]
    shared = shared.clone().requires_grad_()
    optimizer = make([*weights, shared])
    for _ in range(steps):
        optimizer.zero_grad()
        for micro in range(xs.shape[0]):
            replica = micro % REPLICAS
            y = xs[micro] @ weights[group_of(kind, size, replica)] + shared
            (y.square().mean() / xs.shape[0]).backward()
        optimizer.step()
    return torch.stack([w.detach() for w in weights]), shared.detach()


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("strategy", ["Running", "Post"])
@pytest.mark.parametrize("kind, size", KINDS)
def test_groups_train_by_their_own_gradients(kind, size, strategy, accumulation):
    groups = REPLICAS // size
    model = Model(groups)
    start, shared = model.weight.detach().clone(), model.shared.detach().clone()
    options = poptorch.Options().replicationFactor(REPLICAS)
    options.Training.gradientAccumulation(accumulation)
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(poptorch.MeanReductionStrategy[strategy])
    make = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)  # noqa: E731
    wrapped = poptorch.trainingModel(model, options, make(model.parameters()))
    wrapped.weight.replicaGrouping(kind, size, VariableRetrievalMode.OnePerGroup)
    xs = torch.randn(accumulation * REPLICAS, 5, 3)
    for _ in range(3):
        wrapped(xs.reshape(-1, 3))
    expected, expected_shared = reference(start, shared, kind, size, xs, 3, make)
    torch.testing.assert_close(model.weight.detach(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.shared.detach(), expected_shared, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["AdamW", "combined"])
def test_state_of_the_optimizer_has_a_row_per_group(optimizer):
    model = Model(2)
    options = poptorch.Options().replicationFactor(REPLICAS)
    if optimizer == "AdamW":
        chosen = poptorch.optim.AdamW(model.parameters(), lr=0.1)
    else:
        chosen = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, use_combined_accum=True)
    wrapped = poptorch.trainingModel(model, options, chosen)
    wrapped.weight.replicaGrouping(CommGroupType.Consecutive, 2, VariableRetrievalMode.OnePerGroup)
    x = torch.randn(REPLICAS, 3)
    wrapped(x)
    state = chosen.state_dict()
    for name, value in state["ipu_state"].items():
        assert value.shape[:1] == ((2,) if name.endswith("weight") else (2,) if value.dim() else ()), name
    before = model.weight.detach().clone()
    after = [wrapped(x)[1] for _ in range(2)]
    model.weight.data.copy_(before)
    wrapped.copyWeightsToDevice()
    assert after[0].shape == after[1].shape


def test_inference_uses_the_weights_of_each_group():
    model = Model(2)
    wrapped = poptorch.inferenceModel(model, poptorch.Options().replicationFactor(REPLICAS))
    wrapped.weight.replicaGrouping(CommGroupType.Orthogonal, 2, VariableRetrievalMode.OnePerGroup)
    x = torch.randn(REPLICAS, 3)
    y, _ = wrapped(x)
    rows = [x[r] @ model.weight[r % 2] + model.shared for r in range(REPLICAS)]
    torch.testing.assert_close(y, torch.stack(rows).detach(), rtol=1e-5, atol=1e-6)


def test_all_replicas_come_back():
    model = Model(REPLICAS)
    start, shared = model.weight.detach().clone(), model.shared.detach().clone()
    options = poptorch.Options().replicationFactor(REPLICAS)
    make = lambda p: torch.optim.SGD(p, lr=0.1)  # noqa: E731
    wrapped = poptorch.trainingModel(model, options, make(model.parameters()))
    wrapped.weight.replicaGrouping(CommGroupType.Consecutive, 2, VariableRetrievalMode.AllReplicas)
    xs = torch.randn(REPLICAS, 5, 3)
    wrapped(xs.reshape(-1, 3))
    expected, _ = reference(start[[0, 2]], shared, CommGroupType.Consecutive, 2, xs, 1, make)
    torch.testing.assert_close(model.weight.detach(), expected[[0, 0, 1, 1]], rtol=1e-5, atol=1e-6)


def test_mistakes_are_explained():
    options = poptorch.Options().replicationFactor(REPLICAS)
    wrapped = poptorch.inferenceModel(Model(2), options)
    mode = VariableRetrievalMode.OnePerGroup
    with pytest.raises(poptorch.Error, match="groups of 3 replicas are no division of 4"):
        wrapped.weight.replicaGrouping(CommGroupType.Consecutive, 3, mode)
    with pytest.raises(poptorch.Error, match="the first dimension of weight is 2; it must be the number of groups"):
        wrapped.weight.replicaGrouping(CommGroupType.NoGrouping, 0, mode)
    wrapped(torch.randn(REPLICAS * 3, 2, 2, 3)[:4].reshape(4, 4, 3))
    with pytest.raises(poptorch.Error, match="before the model is compiled"):
        wrapped.weight.replicaGrouping(CommGroupType.Consecutive, 2, mode)

"""Goal: a wrapped model computes and trains as PyTorch does, whatever loops a call has.
Method: the same steps in eager PyTorch, and a small classifier of drawn digits that has to learn."""

import copy

import pytest

torch = pytest.importorskip("torch")
poptorch = pytest.importorskip("poptorch")


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 4)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        scores = self.second(torch.relu(self.first(x)))
        return scores if labels is None else (scores, self.loss(scores, labels))


def batch(size, seed=0):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(size, 6, generator=random), torch.randint(4, (size,), generator=random)


def close(model, reference, tolerance=2e-6):
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=tolerance * 10, atol=tolerance)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_are_those_of_pytorch(optimizer):
    model = Classifier()
    reference = copy.deepcopy(model)
    wrapped = poptorch.trainingModel(model, optimizer=OPTIMIZERS[optimizer](model.parameters()))
    theirs = OPTIMIZERS[optimizer](reference.parameters())
    for step in range(5):
        x, labels = batch(8, step)
        _, loss = wrapped(x, labels)
        theirs.zero_grad()
        _, expected = reference(x, labels)
        expected.backward()
        theirs.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)
    close(model, reference)


@pytest.mark.parametrize("iterations, accumulation, replicas", [(2, 1, 1), (1, 4, 1), (1, 1, 2), (2, 3, 2)])
@pytest.mark.parametrize("reduction", ["Mean", "Sum"])
def test_a_call_is_so_many_steps_of_so_many_micro_batches(iterations, accumulation, replicas, reduction):
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(accumulation)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType[reduction])
    model = Classifier()
    reference = copy.deepcopy(model)
    wrapped = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
    theirs = torch.optim.SGD(reference.parameters(), lr=0.1)
    parts = accumulation * replicas
    x, labels = batch(3 * iterations * parts)
    scores, losses = wrapped(x, labels)
    expected = []
    for step in range(iterations):
        theirs.zero_grad()
        for part in range(parts):
            start = 3 * (step * parts + part)
            out, loss = reference(x[start : start + 3], labels[start : start + 3])
            (loss / parts if reduction == "Mean" else loss).backward()
            expected.append((out.detach(), loss.detach()))
        theirs.step()
    torch.testing.assert_close(scores, torch.cat([out for out, _ in expected]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(losses, torch.stack([loss for _, loss in expected]), rtol=1e-5, atol=1e-6)
    close(model, reference)


def test_output_modes():
    x = torch.arange(12.0).reshape(6, 2)
    results = {}
    for mode in (poptorch.OutputMode.All, poptorch.OutputMode.Final, poptorch.OutputMode.Sum):
        options = poptorch.Options().deviceIterations(3).outputMode(mode)
        results[mode.name] = poptorch.inferenceModel(torch.nn.Identity(), options)(x)
    options = poptorch.Options().deviceIterations(6).outputMode(poptorch.OutputMode.EveryN, 2)
    assert torch.equal(results["All"], x)
    assert torch.equal(results["Final"], x[4:])
    assert torch.equal(results["Sum"], x[:2] + x[2:4] + x[4:])
    assert torch.equal(poptorch.inferenceModel(torch.nn.Identity(), options)(x), x[1::2])


def test_the_learning_rate_changes_between_steps():
    model = Classifier()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.0)
    wrapped = poptorch.trainingModel(model, optimizer=optimizer)
    before = model.first.weight.detach().clone()
    wrapped(*batch(4))
    assert torch.equal(before, model.first.weight)
    optimizer.param_groups[0]["lr"] = 0.1
    wrapped.setOptimizer(optimizer)
    wrapped(*batch(4))
    assert not torch.equal(before, model.first.weight)


def test_weights_are_where_one_looks():
    model = Classifier()
    wrapped = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    inference = poptorch.inferenceModel(model)
    x, labels = batch(4)
    before = inference(x)
    wrapped(x, labels)
    after = inference(x)
    assert not torch.equal(before, after)
    wrapped.destroy()
    torch.testing.assert_close(model(x).detach(), after, rtol=1e-5, atol=1e-6)
    assert type(model.first.weight) is torch.nn.Parameter or inference.isCompiled()


def test_training_goes_on_from_a_state():
    steps = [batch(4, seed) for seed in range(6)]

    def make(weights=None, state=None):
        torch.manual_seed(3)
        model = Classifier()
        if weights is not None:
            model.load_state_dict(weights)
        optimizer = poptorch.optim.Adam(model.parameters(), lr=0.05)
        if state is not None:
            optimizer.load_state_dict(state)
        return model, optimizer, poptorch.trainingModel(model, optimizer=optimizer)

    _, _, whole = make()
    expected = [whole(*step)[1] for step in steps]
    model, optimizer, first = make()
    losses = [first(*step)[1] for step in steps[:3]]
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = optimizer.state_dict()
    _, _, second = make(weights, state)
    losses += [second(*step)[1] for step in steps[3:]]
    assert all(torch.equal(ours, one) for ours, one in zip(losses, expected))


def test_an_exported_model_comes_back(tmp_path):
    model = Classifier()
    wrapped = poptorch.inferenceModel(model)
    x, _ = batch(4)
    expected = wrapped(x)
    wrapped.save(str(tmp_path))
    loaded = poptorch.load(str(tmp_path))
    assert loaded.isCompiled() and torch.equal(loaded(x), expected)


def test_calls_have_to_fit():
    wrapped = poptorch.inferenceModel(torch.nn.Linear(3, 2))
    wrapped(torch.ones(2, 3))
    with pytest.raises(poptorch.Error, match="Shape mismatch for input"):
        wrapped(torch.ones(4, 3))
    with pytest.raises(poptorch.Error, match="expected torch.float32 but got torch.int32"):
        wrapped(torch.ones(2, 3, dtype=torch.int32))
    options = poptorch.Options().deviceIterations(3)
    with pytest.raises(poptorch.Error, match="no multiple of 3"):
        poptorch.inferenceModel(torch.nn.Linear(3, 2), options)(torch.ones(4, 3))
    with pytest.raises(poptorch.Error, match="Couldn't find a loss"):
        poptorch.trainingModel(torch.nn.Linear(3, 2))(torch.ones(4, 3))


# Seven strokes of a digit, as on a pocket calculator: which are drawn, and where (rows, columns).
STROKES = {0: "abcdef", 1: "bc", 2: "abdeg", 3: "abcdg", 4: "bcfg", 5: "acdfg", 6: "acdefg", 7: "abc", 8: "abcdefg",
           9: "abcdfg"}
PLACES = {"a": (slice(1, 3), slice(3, 9)), "g": (slice(5, 7), slice(3, 9)), "d": (slice(9, 11), slice(3, 9)),
          "f": (slice(1, 7), slice(2, 4)), "b": (slice(1, 7), slice(8, 10)), "e": (slice(5, 11), slice(2, 4)),
          "c": (slice(5, 11), slice(8, 10))}


def digits(count, seed):
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=random)
    images = torch.zeros(count, 1, 12, 12)
    for image, label in zip(images, labels.tolist()):
        for stroke in STROKES[label]:
            image[(0, *PLACES[stroke])] = 0.6 + 0.4 * torch.rand((), generator=random)
        shift = torch.randint(-1, 2, (2,), generator=random).tolist()
        image.copy_(image.roll(shift, (1, 2)))
    return images + 0.15 * torch.randn(images.shape, generator=random), labels


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten())
        self.head = torch.nn.Linear(16 * 9, 10)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        scores = self.head(self.features(x))
        return scores if labels is None else (scores, self.loss(scores, labels))


def test_a_network_learns_digits():
    torch.manual_seed(0)
    options = poptorch.Options().deviceIterations(4)
    data = torch.utils.data.TensorDataset(*digits(1024, 1))
    loader = poptorch.DataLoader(options, data, batch_size=16, shuffle=True)
    model = Network()
    training = poptorch.trainingModel(model, options, poptorch.optim.AdamW(model.parameters(), lr=3e-3))
    for _ in range(10):
        for images, labels in loader:
            training(images, labels)
    training.detachFromDevice()
    model.eval()
    images, labels = digits(512, 2)
    right = (poptorch.inferenceModel(model)(images).argmax(1) == labels).float().mean()
    assert right > 0.97


class Rounded(torch.autograd.Function):
    """Rounds forward; backward is not the gradient of rounding."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < 2)


def test_functions_with_a_backward_pass_of_their_own_train():
    class Quantised(Classifier):
        def forward(self, x, labels):
            scores = self.second(Rounded.apply(self.first(x) * 2))
            return scores, self.loss(scores, labels)

    model = Quantised()
    reference = copy.deepcopy(model)
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    wrapped = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
    theirs = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(3):
        x, labels = batch(8, step)
        wrapped(x, labels)
        theirs.zero_grad()
        for half in (slice(0, 4), slice(4, 8)):
            (reference(x[half], labels[half])[1] / 2).backward()
        theirs.step()
    close(model, reference)

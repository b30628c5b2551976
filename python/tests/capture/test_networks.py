"""Whole networks of torchvision and transformers, with random weights; loops and conditions; predictions."""

import pytest

torch = pytest.importorskip("torch")

import pando.torch  # noqa: E402

from cases import X, randn  # noqa: E402
from compare import assert_same  # noqa: E402

VISION = ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "convnext_tiny", "swin_t"]


@pytest.mark.parametrize("name", VISION)
def test_vision(name):
    models = pytest.importorskip("torchvision").models
    torch.manual_seed(0)
    model = getattr(models, name)(weights=None).eval()
    image = randn(1, 3, 64, 64)
    assert_same(pando.torch.inference(model)(image), model(image).detach(), factor=5)


def test_vision_transformer():
    models = pytest.importorskip("torchvision").models
    model = models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=5).eval()
    torch.nn.init.normal_(model.heads.head.weight)
    image = randn(2, 3, 32, 32)
    assert_same(pando.torch.inference(model)(image), model(image).detach(), factor=5)


SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.mark.parametrize("name", ["Bert", "Roberta", "Electra"])
def test_language(name):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(**SIZES)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForMaskedLM")(config).eval()
    ids = torch.arange(24).reshape(2, 12) % 47 + 2
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": ids}
    ours, eager = pando.torch.inference(model)(**inputs), model(**inputs)
    assert_same((ours.loss, ours.logits), (eager.loss.detach(), eager.logits.detach()), factor=5)


class Steps(torch.nn.Module):
    """A loop and a condition in the graph."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, flag):
        capture = pando.torch.current()
        x, total = pando.torch.for_loop(
            capture, 3, lambda x, total: (self.layer(x).tanh(), total + x.sum()), [x, torch.zeros(())]
        )
        (y,) = pando.torch.cond(capture, flag, lambda x: x * total, [x], lambda x: self.layer(x), [x])
        return x, total, y

    def eager(self, x, flag):
        total = torch.zeros(())
        for _ in range(3):
            x, total = self.layer(x).tanh(), total + x.sum()
        return x, total, x * total if flag else self.layer(x)


@pytest.mark.parametrize("flag", [True, False])
def test_loops_and_conditions(flag):
    model, flag = Steps(), torch.tensor(flag)
    with torch.no_grad():
        assert_same(pando.torch.inference(model)(X, flag), model.eager(X, flag), factor=3)


def test_bodies_change_nothing_outside():
    def function(x):
        def body(y):
            x.add_(1)
            return y

        return pando.torch.for_loop(pando.torch.current(), 2, body, [x * 2])[0]

    with pytest.raises(pando.Error, match="changes a tensor of outside"):
        pando.torch.inference(function)(X)


def test_profile(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    prediction = pando.torch.profile(model, [randn(16, 64)], system="m2000")
    assert prediction.fits and prediction["throughput_per_s"] > 0
    text = prediction._repr_html_()
    assert text.count("<table>") == text.count("</table>") == 2 and "throughput" in text
    assert "dot/0.addmm.dot" in text and "&#x27;" not in text
    prediction.save(tmp_path / "report")
    assert (tmp_path / "report").stat().st_size > 0


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x, target=None):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x if target is None else torch.nn.functional.mse_loss(x, target)


def test_profile_of_a_training_step():
    x, target = randn(16, 64), randn(16, 64)
    inference = pando.torch.profile(Classifier(), [x], system="mk2")
    plain = pando.torch.profile(Classifier(), [x, target], system="mk2", train=True, optimizer="sgd")
    adam = pando.torch.profile(Classifier(), [x, target], system="mk2", train=True)
    assert inference.cycles_per_step < plain.cycles_per_step < adam.cycles_per_step
    assert plain.flops > 2.5 * inference.flops
    assert plain.memory["mean_used"] < adam.memory["mean_used"]
    model = Classifier()
    given = torch.optim.Adam(model.parameters(), lr=0.5)
    same = pando.torch.profile(model, [x, target], system="mk2", train=True, optimizer=given)
    assert same.cycles_per_step == adam.cycles_per_step
    with pytest.raises(pando.Error, match="there is no optimizer 'adma'; use one of"):
        pando.torch.profile(Classifier(), [x, target], train=True, optimizer="adma")
    with pytest.raises(pando.Error, match="returns no loss"):
        pando.torch.profile(Classifier(), [x], train=True)


def test_profile_of_a_pipeline():
    model, x = Classifier(), randn(16, 64)
    two = pando.torch.profile(model, [x], system="pod4", stages=2, replicas=2)
    assert len(two.stages) == 2 and two.replicas == 2
    poptorch = pytest.importorskip("poptorch")
    for chip in (1, 2):
        poptorch.BeginBlock(model.layers[chip], ipu_id=chip)
    cut = pando.torch.profile(model, [x], system="pod4")
    assert len(cut.stages) == 3
    # The last block has two of the four layers.
    work = [stage["flops"] for stage in cut.stages]
    assert work[0] < 1.2 * work[1] < 0.8 * work[2]
    assert not pando.torch.profile(model, [x], system="pod4", stages=1).stages


def test_values_carry_the_names_of_modules():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.ModuleDict({"first": torch.nn.Linear(4, 4)})

        def forward(self, x):
            return self.body["first"](x) + 1

    captured = pando.torch.capture(Model(), [X], training=False)
    text = captured.finish(
        [captured.tensors[0].value], [one.value for one in [*captured.state, *captured.inputs]]
    ).text()
    assert "%body.first.weight: f32[4,4]" in text and "%body.first.addmm" in text and "%x: f32[3,4]" in text

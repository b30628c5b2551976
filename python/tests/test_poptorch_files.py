"""Goal: what one process has compiled, another one need not, and nothing else passes for it.
Method: models that count how often their Python runs, in processes of their own; damaged and foreign files."""

import json
import os
import subprocess
import sys
import zipfile

import pytest

torch = pytest.importorskip("torch")
poptorch = pytest.importorskip("poptorch")

MODULE = """
import torch
FACTOR = {factor}
CALLS = []

def helper(x):
    return x {sign} FACTOR

class Model(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer, self.scale = torch.nn.Linear(4, width), 2.0

    def forward(self, x, target=None):
        CALLS.append(1) if CALLS is not None else None
        y = helper(torch.tanh(self.layer(x)) * self.scale)
        return y if target is None else (y, torch.nn.functional.mse_loss(y, target))
"""

SCRIPT = """
import json, sys, torch, poptorch, {module} as user
settings = json.loads(sys.argv[1])
torch.manual_seed(0)
model = user.Model()
for name, value in settings.get("attributes", {{}}).items():
    setattr(model, name, value)
options = poptorch.Options().enableExecutableCaching(sys.argv[2])
options.deviceIterations(settings.get("iterations", 1))
x, target = torch.linspace(-1, 1, 16).reshape(4, 4), torch.zeros(4, 4)
if settings.get("training"):
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=settings.get("lr", 0.1))
    wrapped = poptorch.trainingModel(model, options, optimizer)
    result = [wrapped(x, target)[1].item() for _ in range(3)]
else:
    result = poptorch.inferenceModel(model, options)(x).flatten().tolist()
print(json.dumps([user.COUNT, result]))
"""


@pytest.fixture
def process(tmp_path):
    """Runs the script in a process of its own: how often the model's Python ran, and the results."""
    (tmp_path / "cache").mkdir()

    def run(factor=3.0, sign="+", **settings):
        text = MODULE.replace("CALLS = []", "COUNT = 0").replace(
            "CALLS.append(1) if CALLS is not None else None", "_count()"
        ).format(factor=factor, sign=sign) + "\ndef _count():\n    import usermodel_count\n    usermodel_count.bump()\n"
        (tmp_path / "usermodel.py").write_text(text)
        (tmp_path / "usermodel_count.py").write_text(
            "import sys\ndef bump():\n    sys.modules['usermodel'].COUNT += 1\n"
        )
        (tmp_path / "script.py").write_text(SCRIPT.format(module="usermodel"))
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "script.py", json.dumps(settings), "cache"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return tuple(json.loads(done.stdout))

    return process_of(run, tmp_path / "cache")


class process_of:
    def __init__(self, run, cache):
        self.run, self.cache = run, cache

    def __call__(self, **settings):
        return self.run(**settings)


@pytest.mark.parametrize("training", [False, True])
def test_a_second_process_finds_the_executable(process, training):
    calls, first = process(training=training)
    assert calls == 1
    assert len(os.listdir(process.cache)) == 1
    calls, second = process(training=training)
    assert (calls, second) == (0, first)


def test_numbers_of_the_optimizer_are_not_cached(process):
    process(training=True, lr=0.1)
    calls, losses = process(training=True, lr=0.0)
    assert calls == 0
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.parametrize(
    "change", [{"factor": 4.0}, {"sign": "-"}, {"attributes": {"scale": 1.0}}, {"iterations": 2}]
)
def test_another_model_is_compiled(process, change):
    process()
    assert process(**change)[0] == 1
    assert len(os.listdir(process.cache)) == 2


def test_a_damaged_file_is_written_anew(process):
    _, expected = process()
    path = next(process.cache.iterdir())
    path.write_bytes(path.read_bytes()[:-100])
    assert process() == (1, expected)
    assert process() == (0, expected)


class Net(torch.nn.Module):
    """Of this file: what `poptorch.load` unpickles."""

    def __init__(self, width=4):
        super().__init__()
        self.layer = torch.nn.Linear(4, width)

    def forward(self, x, target=None):
        y = torch.relu(self.layer(x))
        return y if target is None else (y, torch.nn.functional.mse_loss(y, target))


@pytest.fixture
def calls():
    """A list that grows whenever the Python of a `Net` runs."""
    found = []
    hook = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, _: found.append(module) if isinstance(module, Net) else None
    )
    yield found
    hook.remove()


@pytest.fixture
def exported(tmp_path):
    model, path = Net(), tmp_path / "model.poptorch"
    wrapped = poptorch.inferenceModel(model)
    wrapped.compileAndExport(str(path), torch.randn(3, 4))
    return model, str(path)


def test_an_exported_model_runs_without_its_python(exported, calls):
    model, path = exported
    calls.clear()
    x = torch.randn(3, 4)
    result = poptorch.load(path)(x)
    assert not calls
    torch.testing.assert_close(result, model(x).detach())
    other = poptorch.inferenceModel(Net())
    other.loadExecutable(path)
    calls.clear()
    result = other(x)
    assert not calls
    torch.testing.assert_close(result, other.model(x).detach())


def test_other_options_compile_the_exported_model_again(exported, calls):
    model, path = exported
    calls.clear()
    poptorch.load(path, lambda options: options.outputMode(poptorch.OutputMode.Final))
    assert not calls
    loaded = poptorch.load(path, lambda options: options.Precision.enableFloatingPointExceptions(True))
    assert len(calls) == 1
    torch.testing.assert_close(loaded(torch.ones(3, 4)), model(torch.ones(3, 4)).detach())


def test_a_training_step_goes_on_in_another_executor(tmp_path, calls):
    path = str(tmp_path / "model.poptorch")
    model = Net()
    wrapped = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    x, target = torch.randn(3, 4), torch.randn(3, 4)
    wrapped(x, target)
    wrapped.save(path)
    loaded = poptorch.load(path)
    expected = [wrapped(x, target)[1].item() for _ in range(3)]
    calls.clear()
    assert [loaded(x, target)[1].item() for _ in range(3)] == expected
    assert not calls


def test_what_decides_has_a_digest():
    from poptorch._fingerprint import Unknown, fingerprint

    def model(factor=2, constant=1.0, held=None):
        net = Net()
        net.constant, net.held = torch.full((2,), constant), held
        net.forward = lambda x: x * factor + net.constant
        return net

    same = fingerprint(model())
    assert fingerprint(model()) == same
    assert len({same, fingerprint(model(factor=3)), fingerprint(model(constant=2.0)), fingerprint(model(held="x")),
                fingerprint(model().half()), fingerprint(model().eval()), fingerprint(Net())}) == 7
    trained = model()
    with torch.no_grad():
        trained.layer.weight.zero_()
    assert fingerprint(trained) == same
    import threading

    with pytest.raises(Unknown):
        fingerprint(model(held=threading.Lock()))


def test_foreign_files_are_refused(exported, tmp_path):
    _, path = exported
    data = open(path, "rb").read()
    with open(path, "wb") as file:
        file.write(data[: len(data) // 2])
    with pytest.raises(poptorch.Error, match="cut short or damaged"):
        poptorch.load(path)
    old = str(tmp_path / "old.poptorch")
    with open(path, "wb") as file:
        file.write(data)
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(old, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "metadata.json":
                content = json.dumps({**json.loads(content), "version": "3.3.0"})
            target.writestr(name, content)
    with pytest.raises(poptorch.Error, match=r"written by version 3\.3\.0"):
        poptorch.load(old)
    with pytest.raises(poptorch.Error, match="exported for another model"):
        poptorch.inferenceModel(Net(width=5)).loadExecutable(path)

    class Changed(Net):
        def forward(self, x, target=None):
            return super().forward(x, target) * 2

    with pytest.raises(poptorch.Error, match="exported for another model"):
        poptorch.inferenceModel(Changed()).loadExecutable(path)
    with pytest.raises(poptorch.Error, match="holds a model for inference"):
        poptorch.trainingModel(Net()).loadExecutable(path)

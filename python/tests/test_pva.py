"""Goal: reports of ours open by libpva's names and say what the prediction says.
Method: a report beside the fields of the same prediction; the report that a PopTorch program writes when the engine's
options ask for one."""

import json

import pytest

import pando
import pva
from pva import _cbor

MODEL = """const @w: f32[64,32] = normal(seed=1, mean=0, std=0.2)

func @main(%x: f32[16,64]) -> f32[16,32] {
  %w = constant @w : f32[64,32]
  %y = dot %x, %w contract=[1:0] : f32[16,32]
  %z = tanh %y : f32[16,32]
  %v = add %z, %y : f32[16,32]
  return %v
}
"""


def opened(tmp_path, **options):
    model, path = tmp_path / "model.graph", tmp_path / "report.pando"
    model.write_text(MODEL)
    fields = pando.profile(model, report=path, **options)
    return fields, pva.openReport(str(path))


def test_a_report_says_what_the_prediction_says(tmp_path):
    fields, report = opened(tmp_path, system="mk2", replicas=1)
    compilation, execution = report.compilation, report.execution
    assert execution.totalCycles.total == fields["cycles_per_step"]
    assert sum(step.ipus[0].cycles for step in execution.steps) == fields["cycles_per_step"]
    assert execution.steps[-1].ipus[0].activeCycles.cyclesTo.max == fields["cycles_per_step"]
    assert execution.runs[0].steps is execution.steps
    assert compilation.target.numTiles == len(compilation.tiles) == 1472
    assert compilation.target.architecture is pva.IPU.Architecture.Ipu2
    assert compilation.target.totalMemory == 1472 * fields["memory"]["tile_bytes"]
    used = [tile.memory.total.excludingGaps for tile in compilation.tiles]
    assert max(used) == fields["memory"]["max_used"]
    assert sum(used) / 1472 == pytest.approx(fields["memory"]["mean_used"], rel=0.2)
    fullest = used.index(max(used))
    assert compilation.tiles[fullest].memory.total.includingGaps >= max(used)
    assert compilation.tiles[fullest].memory.category.vertexCode.total == fields["memory"]["code"]
    assert compilation.graph.numComputeSets == len(compilation.computeSets) > 0
    assert "Pando" in report.poplarVersion.string
    peak = max(step.notAlwaysLiveMemoryForTile(step.tile).bytes for step in compilation.livenessProgramSteps)
    assert peak + fields["memory"]["always_live"] == fields["memory"]["max_used"]
    (weights,) = compilation.alwaysLiveVariables
    assert weights.name == "w" and weights.size % (4 * 64 * 32) == 0  # copies count


def test_programs_are_visited_by_type(tmp_path):
    _, report = opened(tmp_path, system="mk2", replicas=1)

    class Visitor(pva.ProgramVisitor):
        def __init__(self):
            self.computed, self.copied = [], 0

        def visitOnTileExecute(self, program):
            self.computed.append((program.name, program.computeset.name))

        def visitStreamCopyMid(self, program):
            self.copied += 1

    visitor = Visitor()
    for step in report.execution.steps:
        assert isinstance(step, pva.pva_core.ExecutionStep)
        step.program.accept(visitor)
    assert visitor.copied == 2
    assert any(name.startswith("dot/") for name, _ in visitor.computed)
    assert all(name == computeset for name, computeset in visitor.computed)
    root = report.compilation.programs[0]
    assert root.type is pva.Program.Type.Sequence
    assert [one.type for one in root.children][0] is pva.pva_core.Program.Type.StreamCopyMid
    operations = pva.OperationAnalysis(report).operations
    dot = next(one for one in operations if one.name.startswith("dot/"))
    assert [one.name.split(":")[0] for one in dot.programs()] == [dot.name] * len(dot.programs())


def test_stages_are_ipus(tmp_path):
    fields, report = opened(tmp_path, system="pod4", stages=2, replicas=2)
    assert report.compilation.target.numIPUs == 4
    assert len(report.compilation.ipus) == 2
    for chip, stage in enumerate(fields["stages"]):
        steps = report.execution.steps[stage["first_step"] : stage["first_step"] + stage["steps"]]
        assert all(step.ipus[1 - chip].cycles == 0 for step in steps)


def test_what_is_not_there_is_said(tmp_path):
    _, report = opened(tmp_path, system="mk2", replicas=1)
    with pytest.raises(AttributeError, match="busiest tile"):
        report.execution.blocks(0)
    with pytest.raises(AttributeError, match="open the report with its debug.cbor"):
        pva.OperationAnalysis(report).operations[0].debugContext  # noqa: B018
    with pytest.raises(AttributeError, match="number of vertices"):
        report.compilation.computeSets[0].vertices  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        report.nonsense  # noqa: B018
    with pytest.raises(FileNotFoundError):
        pva.openReport(str(tmp_path / "absent"))
    (tmp_path / "text").write_text("no report")
    with pytest.raises(pando.Error):
        pva.openReport(str(tmp_path / "text"))


def test_cbor():
    value = {"a": [0, 23, 24, 255, 256, 65536, 1 << 40, -1, -500], "ü": None, "t": True, "f": False, "": {}}
    assert _cbor.loads(_cbor.dumps(value)) == value
    assert _cbor.dumps([1, -1, "a"]) == bytes.fromhex("8301206161")  # RFC 8949, appendix A's rules
    for end in range(len(_cbor.dumps(value))):
        with pytest.raises(ValueError, match="debug file"):
            _cbor.loads(_cbor.dumps(value)[:end])


def test_traces(tmp_path):
    events = [{"ph": "X", "name": name, "cat": "c", "ts": ts, "dur": dur, "pid": 1, "tid": 2}
              for name, ts, dur in [("inner", 12, 3), ("outer", 10, 10), ("innermost", 13, 1), ("next", 30, 1)]]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    thread = pva.openTrace(str(path)).process(1).thread(2)
    assert [event.label for event in thread.events] == ["outer", "next"]
    inner = thread.events[0].children()[0]
    assert (inner.label, inner.duration, [one.label for one in inner.children()]) == ("inner", 3, ["innermost"])


def test_trace_points_of_poptorch(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    profiling = pytest.importorskip("poptorch").profiling
    monkeypatch.setenv("PVTI_OPTIONS", json.dumps({"enable": "true", "directory": str(tmp_path)}))
    monkeypatch.setattr(profiling, "_events", [])
    monkeypatch.setattr(profiling.atexit, "register", lambda _: None)  # these events are not the process's
    channel = profiling.Channel("mine")

    class Worker:
        def work(self):
            with channel.tracepoint("inside"):
                return 7

    worker = Worker()
    channel.instrument(worker, "work")
    assert worker.work() == 7
    profiling._write()
    (path,) = tmp_path.iterdir()
    (process,) = pva.openTrace(str(path)).processes
    (event,) = process.threads[0].events
    assert (event.label, event.channel, [one.label for one in event.children()]) == ("work", "mine", ["inside"])


@pytest.mark.parametrize("training", [False, True])
def test_a_poptorch_program_writes_its_report(tmp_path, monkeypatch, training):
    torch = pytest.importorskip("torch")
    poptorch = pytest.importorskip("poptorch")
    engine = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "report")}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(engine))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(8, 4)

        def forward(self, x, labels=None):
            scores = self.first(x)
            return scores if labels is None else (scores, torch.nn.functional.cross_entropy(scores, labels))

    model = Model()
    x, labels = torch.randn(6, 8), torch.randint(4, (6,))
    if training:
        poptorch.trainingModel(model, optimizer=torch.optim.Adam(model.parameters())).compile(x, labels)
    else:
        poptorch.inferenceModel(model).compile(x)
    folder = tmp_path / "report" / ("training" if training else "inference")
    report = pva.openReport(str(folder / "profile.pop"), str(tmp_path / "report" / "debug.cbor"))
    assert report.execution.totalCycles.total > 0
    operations = pva.OperationAnalysis(report).operations
    product = next(one for one in operations if one.name.startswith("dot/first."))
    assert product.debugContext.location.fileName == __file__
    with open(__file__, encoding="utf-8") as file:
        line = file.read().split("\n")[product.debugContext.location.lineNumber - 1]
    assert "self.first(x)" in line
    if training:
        # Weights stay on the chip: what the host sends and gets is the batch.
        moved = sum(step["host_bytes"] for step in report._profile["steps"])
        assert moved < 4 * (x.numel() + labels.numel() + 6 * 4 + 1) + 64

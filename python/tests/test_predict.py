"""Goal: predictions and the command line from Python are those of the command. Method: both are asked."""

import json
import pathlib
import subprocess
import sys

import pando
import pytest

MODEL = pathlib.Path(__file__).parents[2] / "models/mlp-small.graph"


def command(*words):
    return subprocess.run([sys.executable, "-m", "pando", *words], capture_output=True, text=True)


def test_prediction_is_the_commands(tmp_path):
    report = tmp_path / "r.pando-report"
    ours = pando.profile(MODEL, system="mk2", precision="f16", replicas=1, report=report)
    words = ["--system", "mk2", "--precision", "f16", "--replicas", "1", "--no-tries", "--json"]
    run = command("profile", str(MODEL), *words)
    theirs = json.loads(run.stdout)
    for prediction in (ours, theirs):
        assert prediction.pop("compile_s") > 0
    assert ours == theirs
    assert ours["fits"] and ours["latency_ms"] > 0
    assert report.stat().st_size > 0


def test_every_option_of_the_command():
    assert pando.profile(MODEL, "tiny4", exact=True, replicas=1)["exact"]
    more = pando.profile(MODEL, "m2000", replicas=4)["throughput_per_s"]
    assert more > pando.profile(MODEL, "m2000", replicas=1)["throughput_per_s"]


def test_mistakes_are_explained():
    with pytest.raises(pando.Error, match="unexpected argument '--colour'"):
        pando.profile(MODEL, colour="blue")
    with pytest.raises(pando.Error, match="mk7"):
        pando.profile(MODEL, "mk7")
    with pytest.raises(pando.Error, match="possible values: f16, f32, f16.32, f8"):
        pando.profile(MODEL, precision="f64")
    with pytest.raises(FileNotFoundError):
        pando.profile("missing.graph")


def test_systems():
    systems = {system.name: system for system in pando.systems()}
    assert systems["m2000"].chips == 4 and systems["pod64k"].chips == 64_000


def test_the_command_line_is_installed():
    run = command("system", "list", "--json")
    assert [row["name"] for row in json.loads(run.stdout)["systems"]] == [system.name for system in pando.systems()]
    assert command("profile", "missing.graph", "--system", "mk2").returncode == 1
    assert command("no-such-command").returncode == 2

"""Goal: options check what they are given, freeze when a model uses them, and read themselves from text.
Method: each rule of the documentation once."""

import copy
import json

import pytest

poptorch = pytest.importorskip("poptorch")


def test_setters_chain_and_show():
    options = poptorch.Options().deviceIterations(3).replicationFactor(2)
    options.Training.gradientAccumulation(5)
    text = repr(options)
    assert "device_iterations=3" in text and "replication_factor=2" in text and "gradient_accumulation=5" in text


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_counts_are_positive_integers(value):
    with pytest.raises(AssertionError):
        poptorch.Options().deviceIterations(value)
    with pytest.raises(AssertionError):
        poptorch.Options().Training.gradientAccumulation(value)


def test_unknown_names_are_errors():
    with pytest.raises(AttributeError):
        poptorch.Options().deviceIteration = 3
    with pytest.raises(AssertionError):
        poptorch.Options().set(nonsense=1)


def test_a_user_freezes_and_a_copy_is_free():
    options = poptorch.Options()
    poptorch.DataLoader(options, [1, 2, 3])
    with pytest.raises(AttributeError, match="frozen"):
        options.Training.gradientAccumulation(2)
    with pytest.raises(AttributeError, match="frozen"):
        options._Popart.set("enableOutlining", True)
    free = options.clone()
    assert copy.deepcopy(options).deviceIterations(2).device_iterations == 2
    assert free.Training.gradientAccumulation(2).gradient_accumulation == 2


def test_precision_belongs_to_its_own_options():
    options = poptorch.Options()
    free = options.clone()
    free.Precision.enableStochasticRounding(True)
    assert free._Popart.options["enableStochasticRounding"]
    assert "enableStochasticRounding" not in options._Popart.options


def test_text_sets_what_calls_set(tmp_path, monkeypatch):
    expected = poptorch.Options().deviceIterations(2).connectionType(poptorch.ConnectionType.OnDemand)
    expected.Training.gradientAccumulation(4)
    calls = {"deviceIterations": 2, "connectionType": "ConnectionType.OnDemand", "Training.gradientAccumulation": [4]}
    assert repr(poptorch.Options().from_json(json.dumps(calls))) == repr(expected)
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", json.dumps(calls))
    assert repr(poptorch.Options()) == repr(expected)
    monkeypatch.delenv("POPTORCH_DEFAULT_OPTIONS")
    file = tmp_path / "options.conf"
    file.write_text("deviceIterations(2)  # twice\n\nconnectionType(poptorch.ConnectionType.OnDemand)\n"
                    "Training.gradientAccumulation(4)\n")
    assert repr(poptorch.Options().loadFromFile(str(file))) == repr(expected)
    file.write_text("deviceIterations(2\n")
    with pytest.raises(poptorch.options.ConfigFileError, match="line 1 of options.conf"):
        poptorch.Options().loadFromFile(str(file))


def test_unknown_session_options_are_found_when_compiling():
    options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    options._Popart.set("notAnOption", 1)
    with pytest.raises(poptorch.Error, match="notAnOption"):
        poptorch.poptorch_core._validateOptions(options.toDict())


def test_strategies_place_blocks():
    automatic = poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)
    place = automatic.place("b", 1, 3)
    assert (place.ipu, place.stage) == (1, 3)
    named = poptorch.ShardedExecution(poptorch.Stage("a", "b").ipu(1), "c")
    assert named.place("b", None, 2).ipu == 1
    assert named.place("c", None, 3).stage == 1
    with pytest.raises(poptorch.Error, match="Unknown block d"):
        named.place("d", None, 4)
    phased = poptorch.ParallelPhasedExecution([poptorch.Stage("a"), poptorch.Stage("b")], "c")
    assert [phased.place(block, None, 0).ipu for block in "abc"] == [0, 2, 1]


def test_log_levels(capfd):
    poptorch.setLogLevel("INFO")
    poptorch._logging.logger.info("seen")
    poptorch._logging.logger.debug("not seen")
    poptorch.setLogLevel("WARN")
    error = capfd.readouterr().err
    assert "[poptorch::python] [info] seen" in error and "not seen" not in error
    with pytest.raises(ValueError, match="Unknown log level"):
        poptorch.setLogLevel("LOUD")

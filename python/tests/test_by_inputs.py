"""Goal: models whose sizes depend on the values of their inputs run as others do. Method: small ones, with inputs that
lead to other sizes each time; NumPy knows the results."""

import threading

import models
import numpy as np
import onnx
import pando
import pytest
from onnx import TensorProto, helper

VALUES = [[1, 0, 2], [3, 0, 4], [0, 0, 5], [6, 0, 0, 7, 8], [0, 0]]


def check(model, values):
    x = np.array(values, np.float32)
    outputs = model.run({"x": x})
    assert list(outputs) == ["y", "n"]
    np.testing.assert_array_equal(outputs["y"], x[x != 0])
    assert outputs["n"].dtype == np.int64 and outputs["n"].tolist() == [np.count_nonzero(x)]


@pytest.mark.parametrize("from_file", [True, False])
def test_sizes_follow_the_values(tmp_path, from_file):
    path = tmp_path / "nonzero.onnx"
    path.write_bytes(models.nonzero())
    model = pando.load(path if from_file else models.nonzero(), threads=1)
    for values in VALUES + VALUES:
        check(model, values)
    y, n = model(np.array([2, 0], np.float32))
    assert y.tolist() == [2] and n.tolist() == [1]


def test_what_the_file_says_is_known_before_a_run():
    model = pando.load(models.nonzero())
    assert model.inputs == (pando.Port("x", "f32", ("n",)),)
    assert model.outputs == (pando.Port("y", "f32", ("count",)), pando.Port("n", "i64", (1,)))
    without_shape = onnx.load_from_string(models.nonzero())
    without_shape.graph.output[0].type.tensor_type.ClearField("shape")
    untold = pando.load(without_shape.SerializeToString())
    assert untold.outputs[0] == pando.Port("y", "f32", None) and "y: f32[?]" in repr(untold)
    check(untold, VALUES[0])
    bound = pando.load(models.nonzero(), dims={"n": 3})
    assert bound.inputs[0].shape == (3,)
    with pytest.raises(pando.Error, match=r"input x: f32\[3\] is given an array of shape \[2\]"):
        bound(np.ones(2, np.float32))


def test_runs_at_the_same_time_do_not_mix():
    model = pando.load(models.nonzero(), threads=2)
    failures = []

    def run(values):
        try:
            for _ in range(10):
                check(model, values)
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(values,)) for values in VALUES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_profile_is_that_of_the_inputs():
    steps = pando.load(models.nonzero()).profile({"x": np.array([1, 0, 2], np.float32)}, runs=2)
    assert steps and all(step.seconds >= 0 for step in steps)


def test_sizes_with_other_names_may_be_broadcast():
    model = pando.load(models.total())
    a = np.array([1, 2, 3], np.float32)
    for b in ([4, 5, 6], [7], [8, 9, 10]):
        np.testing.assert_array_equal(model(a, np.array(b, np.float32)), a + np.array(b, np.float32))
    with pytest.raises(pando.Error):
        model(a, np.zeros(2, np.float32))
    np.testing.assert_array_equal(model(a, a), a + a)


def test_what_no_inputs_help_is_an_error_of_loading():
    nodes = [
        helper.make_node("NonZero", ["x"], ["y"]),
        helper.make_node("Frobnicate", ["x"], ["z"], domain="other"),
    ]
    infos = [
        helper.make_tensor_value_info(name, elem, None)
        for name, elem in [("y", TensorProto.INT64), ("z", TensorProto.FLOAT)]
    ]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])], infos)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("other", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    with pytest.raises(pando.Error, match=r"(?s)model: .*other\.Frobnicate"):
        pando.load(model.SerializeToString())
    with pytest.raises(pando.Error, match="'q'"):
        pando.load(models.nonzero(), dims={"q": 3})


def test_weights_beside_the_file_are_found_by_its_path(tmp_path):
    model = onnx.load_from_string(models.affine())
    weight = onnx.numpy_helper.from_array(np.arange(3, dtype=np.float32), "b")
    del model.graph.input[1]
    model.graph.initializer.append(weight)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    y = pando.load(tmp_path / "m.onnx").run({"x": np.zeros((2, 3), np.float32)})["y"]
    np.testing.assert_array_equal(y, [[0, 1, 2]] * 2)
    with pytest.raises(pando.Error, match="external data"):
        pando.load((tmp_path / "m.onnx").read_bytes())

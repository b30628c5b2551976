"""Goal: models run from Python with the right numbers, without needless copies, and mistakes are explained. Method:
small ONNX models whose results NumPy computes too."""

import gc
import pathlib
import threading

import ml_dtypes
import models
import numpy as np
import pando
import pytest
from onnx import TensorProto

X = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.array([10, 20, 30], np.float32)


def test_outputs_by_name_and_by_position():
    model = pando.load(models.affine())
    outputs = model.run({"b": B, "x": X})
    assert list(outputs) == ["y", "z"]
    np.testing.assert_array_equal(outputs["y"], X + B)
    np.testing.assert_array_equal(outputs["z"], 2 * (X + B))
    by_position = model(X, b=B)
    assert isinstance(by_position, tuple) and np.array_equal(by_position[1], outputs["z"])
    assert isinstance(pando.load(models.product(2))(np.eye(2, dtype=np.float32)), np.ndarray)


def test_metadata():
    model = pando.load(models.affine(), threads=1)
    assert model.threads == 1
    assert model.inputs == (pando.Port("x", "f32", ("batch", 3)), pando.Port("b", "f32", (3,)))
    assert [port.name for port in model.outputs] == ["y", "z"]
    assert "x: f32[batch, 3]" in repr(model)
    bound = pando.load(models.affine(), dims={"batch": 4})
    assert bound.inputs[0].shape == bound.outputs[0].shape == (4, 3)


@pytest.mark.parametrize("as_path", [str, pathlib.Path])
def test_files_of_both_kinds(tmp_path, as_path):
    (tmp_path / "a.graph").write_text(models.AFFINE)
    (tmp_path / "a.onnx").write_bytes(models.affine())
    for name in ["a.graph", "a.onnx"]:
        y = pando.load(as_path(tmp_path / name)).run({"x": X, "b": B})["y"]
        np.testing.assert_array_equal(y, X + B)
    np.testing.assert_array_equal(pando.load(models.AFFINE.encode())(X, B), X + B)


def test_built_in_models():
    model = pando.load("zoo:resnet18?batch=2")
    (image,), (scores,) = model.inputs, model.outputs
    assert (image.dtype, image.shape, scores.shape) == ("f32", (2, 3, 224, 224), (2, 1000))
    x = np.random.default_rng(0).standard_normal(image.shape, dtype=np.float32)
    both = model(x)
    assert both.shape == scores.shape and np.isfinite(both).all() and both.std() > 0
    # Images of a batch do not know of each other.
    swapped = model(x[::-1])
    np.testing.assert_allclose(swapped, both[::-1], rtol=1e-3, atol=1e-4 * np.abs(both).max())
    assert pando.load("zoo:resnet18").inputs[0].shape[0] == 1
    with pytest.raises(pando.Error, match="resnet19"):
        pando.load("zoo:resnet19")
    with pytest.raises(pando.Error, match="zoo:resnet18\\?batch=4"):
        pando.load("zoo:resnet18", dims={"batch": 4})


def test_the_precision_of_products_is_told():
    def used(asked):
        return pando.load(models.product(2), matmul_precision=asked).matmul_precision

    assert used("highest") == "highest"
    assert used("high") in ("high", "highest")
    assert used("medium") in ("medium", "highest")
    assert pando.load(models.AFFINE.encode()).matmul_precision == "highest"


def test_instructions_are_told_and_can_be_chosen():
    best = pando.load(models.affine())
    assert best.isa in ("portable", "avx2", "avx512") and best.tile_unit in ("amx", "none")
    assert pando.load(models.affine(), amx=False).tile_unit == "none"
    portable = pando.load(models.AFFINE.encode(), isa="portable")
    assert (portable.isa, portable.tile_unit, portable.matmul_precision) == ("portable", "none", "highest")
    assert pando.load(models.affine(), isa="portable", matmul_precision="medium").matmul_precision == "highest"


ELEMENTS = [
    (TensorProto.FLOAT, np.float32), (TensorProto.FLOAT16, np.float16), (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    (TensorProto.INT8, np.int8), (TensorProto.INT16, np.int16), (TensorProto.INT32, np.int32),
    (TensorProto.INT64, np.int64), (TensorProto.UINT8, np.uint8), (TensorProto.UINT16, np.uint16),
    (TensorProto.UINT32, np.uint32), (TensorProto.UINT64, np.uint64), (TensorProto.BOOL, np.bool_),
]  # fmt: skip


@pytest.mark.parametrize(("elem", "dtype"), ELEMENTS, ids=[np.dtype(d).name for _, d in ELEMENTS])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 5)])
def test_every_element_type_and_shape(elem, dtype, shape):
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    y = pando.load(models.identity(elem, list(shape)))(x)
    assert y.dtype == x.dtype and y.shape == x.shape
    np.testing.assert_array_equal(y, x)


def test_strided_inputs_and_other_types_are_converted():
    model = pando.load(models.identity(TensorProto.FLOAT, [3, 2]))
    np.testing.assert_array_equal(model(X.T), X.T)
    np.testing.assert_array_equal(model(X.T.astype(np.float64)), X.T)
    np.testing.assert_array_equal(model([[1, 2], [3, 4], [5, 6]]), np.arange(1, 7).reshape(3, 2))
    unaligned = np.arange(7, dtype=np.float32)[1:].reshape(3, 2)
    np.testing.assert_array_equal(model(unaligned), unaligned)
    big_endian = X.T.astype(">f4")
    np.testing.assert_array_equal(model(big_endian), X.T)


def test_outputs_outlive_the_model_and_are_new():
    model = pando.load(models.identity(TensorProto.FLOAT, [2, 3]))
    x = X.copy()
    first, second = model(x), model(x)
    first[0, 0] = 99
    assert x[0, 0] == second[0, 0] == 0
    del model
    gc.collect()
    np.testing.assert_array_equal(second, X)


def test_other_threads_run_meanwhile():
    size = 1024
    model = pando.load(models.product(size), threads=1)
    x = np.eye(size, dtype=np.float32)
    model(x)
    done = threading.Event()
    worker = threading.Thread(target=lambda: ([model(x) for _ in range(20)], done.set()))
    worker.start()
    steps = 0
    while not done.is_set():
        steps += 1
    worker.join()
    # With the interpreter locked, this loop would get a turn between runs at most.
    assert steps > 1000


def test_runs_at_the_same_time_agree():
    model = pando.load(models.product(64), threads=2)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((64, 64), dtype=np.float32) for _ in range(8)]
    outputs = [None] * len(inputs)

    def run(index):
        for _ in range(10):
            outputs[index] = model(inputs[index])

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x, y in zip(inputs, outputs):
        np.testing.assert_array_equal(y, model(x))
        np.testing.assert_allclose(y, x @ x, rtol=1e-4, atol=1e-4)


def test_profile_knows_names_and_work():
    steps = pando.load(models.product(32)).profile({"x": np.eye(32)}, runs=3)
    gemm = next(step for step in steps if step.kind == "gemm")
    assert gemm.name == "y" and gemm.flops == 2 * 32**3 and gemm.bytes == 3 * 32 * 32 * 4 and gemm.seconds > 0


MISTAKES = [
    ({"x": X}, r"no value is given for input b: f32\[3\]"),
    ({"x": X, "b": B, "c": B}, "no input 'c'; its inputs are x, b"),
    ({"x": X[:, :2], "b": B}, r"input x: f32\[batch, 3\] is given an array of shape \[2, 2\]"),
    ({"x": X, "b": B[None]}, r"input b: f32\[3\] is given an array of shape \[1, 3\]"),
    ({"x": X, "b": "hello"}, "pass numbers"),
    ({"x": X, "b": np.array([1, 2, 2**24 + 1])}, "values that f32 does not have"),
]


@pytest.mark.parametrize(("inputs", "message"), MISTAKES)
def test_mistakes_in_inputs_are_explained(inputs, message):
    with pytest.raises(pando.Error, match=message):
        pando.load(models.affine()).run(inputs)


def test_sizes_must_agree():
    graph = b"""
func @main(%x: f32[N], %y: f32[N]) -> f32[N] {
  %z = add %x, %y : f32[N]
  return %z
}
"""
    with pytest.raises(pando.Error, match=r"N=3, but input x has N=2"):
        pando.load(graph)(np.zeros(2), np.zeros(3))


def test_mistakes_in_calls_are_explained():
    model = pando.load(models.affine())
    with pytest.raises(pando.Error, match="3 inputs are given, the model has 2"):
        model(X, B, B)
    with pytest.raises(pando.Error, match="given twice"):
        model(X, x=X)
    with pytest.raises(TypeError, match="takes a mapping"):
        model.run([X, B])
    with pytest.raises(pando.Error, match="values that i8 does not have"):
        pando.load(models.identity(TensorProto.INT8, [1]))(np.array([300]))


def test_mistakes_in_loading_are_explained(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        pando.load(tmp_path / "missing.onnx")
    with pytest.raises(pando.Error, match="model:1:1"):
        pando.load(b"nonsense")
    with pytest.raises(pando.Error, match="must end in"):
        (tmp_path / "a.txt").write_text("x")
        pando.load(tmp_path / "a.txt")
    with pytest.raises(pando.Error, match="threads=0"):
        pando.load(models.affine(), threads=0)
    with pytest.raises(pando.Error, match="matmul_precision"):
        pando.load(models.affine(), matmul_precision="best")
    with pytest.raises(pando.Error, match='instructions called "mmx": choose one of portable'):
        pando.load(models.affine(), isa="mmx")
    for argument in ({"isa": 3}, {"amx": None}, {"threads": "2"}, {"matmul_precision": None}):
        with pytest.raises(pando.Error, match=f"{next(iter(argument))}="):
            pando.load(models.affine(), **argument)
    with pytest.raises(pando.Error, match="dimension N: '3' is no size"):
        pando.load(models.affine(), dims={"N": "3"})
    with pytest.raises(ValueError, match="q"):
        pando.load(models.affine(), dims={"q": 3})


def test_without_ml_dtypes_bfloat16_is_bits(monkeypatch):
    from pando import _dtypes

    monkeypatch.delitem(_dtypes.NUMPY, "bf16")
    model = pando.load(models.identity(TensorProto.BFLOAT16, [2]))
    bits = np.array([0x3F80, 0xC000], np.uint16)
    assert model(bits).dtype == np.uint16 and np.array_equal(model(bits), bits)
    with pytest.raises(pando.Error, match="install ml_dtypes"):
        model(np.ones(2, np.float32))

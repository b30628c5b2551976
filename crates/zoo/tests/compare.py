"""Compares the built-in models with their PyTorch definitions: the same seeded weights, the same inputs.

    cargo build --release -p pando-zoo --example run
    python crates/zoo/tests/compare.py [NAME...]

Needs numpy, safetensors, torch, torchvision, timm and transformers. Models without a public definition are
written out in definitions.py. Prints, for each output, the largest difference as a share of the
largest magnitude; fails beyond LIMIT.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))
from cases import CASES

LIMIT = 1e-3
RUN = Path(__file__).resolve().parents[3] / "target/release/examples/run"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models to compare; all by default")
    names = parser.parse_args().names or list(CASES)
    failures = [name for name in names if not compare(name)]
    sys.exit(f"{len(failures)} differ: {', '.join(failures)}" if failures else 0)


def compare(name):
    torch.manual_seed(1)
    started = time.time()
    options, model, inputs = CASES[name]()
    randomise(model)
    model.eval()
    with torch.no_grad():
        expected = model(*inputs)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    parameters = sum(p.numel() for p in model.parameters())
    with tempfile.TemporaryDirectory() as directory:
        source, target = f"{directory}/in.safetensors", f"{directory}/out.safetensors"
        save(source, model.state_dict(), inputs)
        # The largest models are gigabytes: one copy at a time.
        del model
        subprocess.run([RUN, name + options, source, target], check=True)
        actual = load_file(target)
    assert len(actual) == len(expected), f"{len(actual)} outputs instead of {len(expected)}"
    worst = [difference(actual[f"output.{index}"], e) for index, e in enumerate(expected)]
    shown = ", ".join(f"{w:.1e}" for w in worst)
    print(
        f"{name + options:44} {parameters:12,} parameters  differences {shown:28} {time.time() - started:5.1f} s",
        flush=True,
    )
    return all(w <= LIMIT for w in worst)


def randomise(model):
    """Statistics, scales and offsets that matter: as created they are zeros and ones."""
    for name, tensor in model.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.8, 1.2)
        elif name.endswith("running_mean"):
            tensor.normal_(0, 0.1)
        elif tensor.ndim == 1 and tensor.is_floating_point():
            tensor.add_(torch.randn_like(tensor) * 0.1)
        elif name.endswith(("cls_token", "pos_bias_u", "pos_bias_v", "position_bias_table")):
            tensor.normal_(0, 0.1)


def save(path, weights, inputs):
    tensors = {name: t.contiguous() for name, t in weights.items() if t.dtype == torch.float32}
    # The built-in model knows shared weights (a head that is the embedding) by one name.
    tensors.pop("lm_head.weight", None)
    for index, tensor in enumerate(inputs):
        tensors[f"input.{index}"] = tensor.contiguous() if tensor.is_floating_point() else tensor.to(torch.int32)
    save_file(tensors, path)


def difference(actual, expected):
    expected = expected.float()
    assert actual.shape == expected.shape, f"shapes {tuple(actual.shape)} and {tuple(expected.shape)}"
    assert torch.isfinite(expected).all() and torch.isfinite(actual).all(), "not finite"
    scale = expected.abs().max().item()
    return (actual - expected).abs().max().item() / (scale or 1.0)


if __name__ == "__main__":
    main()

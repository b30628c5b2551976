"""The programs in examples/poptorch, as a user runs them; the long ones for a few steps, which they check the same way."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "poptorch"


@pytest.mark.parametrize(
    "command",
    [["digits_cnn.py"], ["gnn.py"], ["lstm.py"], ["bert_mlm.py", "--steps", "10"], ["dcgan.py", "--steps", "3"]],
    ids=lambda command: command[0],
)
def test_example(command):
    if command[0] == "digits_cnn.py":
        pytest.importorskip("sklearn")
    run = subprocess.run([sys.executable, *command], cwd=EXAMPLES, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr

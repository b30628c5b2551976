#!/bin/sh
# Generates the ONNX standard's node tests into target/ (needs network for the onnx package, once) and runs
# them. Arguments go to the test program, for instance --nocapture.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
work=${CARGO_TARGET_DIR:-$root/target}/onnx-node-tests
if [ ! -d "$work/data" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet onnx==1.23.2 numpy ml_dtypes pillow
    "$work/venv/bin/python" "$root/crates/onnx/tests/generate_node_tests.py" "$work/data.part"
    mv "$work/data.part" "$work/data"
fi
cd "$root"
PANDO_ONNX_NODE_TESTS="$work/data" cargo test -p pando-onnx --locked --test node_tests -- --nocapture "$@"

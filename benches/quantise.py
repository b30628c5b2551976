"""int8 forms of models of the comparison, as onnxruntime.quantization makes them: calibrated with the model's own inputs.

Forms: `qdq` (QuantizeLinear and DequantizeLinear around f32 operators), `qoperator` (QLinearConv and the like), `dynamic`
(weights in int8, activations quantised by the range they turn out to have). Activations are u8 and weights i8 with a
scale per channel, which is what ONNX Runtime is fastest with on x86; its default of i8 for both takes it twice as long.

The floor, one thread: an instruction of AVX-512 VNNI does 64 multiply-adds, four times those of f32, so 448 GOP/s at
3.5 GHz on a Zen 4 core. ResNet-50 has 8.2 GOP: 18 ms. BERT-base has 22 GOP at sequence 128, of which attention's 0.6
stay in f32: 54 ms.
"""

import pathlib
import shutil
import tempfile

FORMS = ["qdq", "qoperator", "dynamic"]


class Calibration:
    """The model's inputs, once."""

    def __init__(self, inputs: dict):
        self.left = [inputs]

    def get_next(self) -> dict | None:
        return self.left.pop() if self.left else None


def quantise(model: pathlib.Path, form: str, to: pathlib.Path) -> None:
    """Writes the file's int8 form, and its inputs beside it."""
    import numpy
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    inputs = dict(numpy.load(model.with_suffix(".npz")))
    part = to.with_suffix(".part")
    with tempfile.TemporaryDirectory() as scratch:
        prepared = pathlib.Path(scratch) / "prepared.onnx"
        quant_pre_process(model, prepared, skip_symbolic_shape=True)
        if form == "dynamic":
            quantization.quantize_dynamic(prepared, part)
        else:
            formats = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}
            quantization.quantize_static(
                prepared, part, Calibration(inputs), quant_format=formats[form], per_channel=True,
                activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
            )  # fmt: skip
    shutil.copy(model.with_suffix(".npz"), to.with_suffix(".npz"))
    part.rename(to)

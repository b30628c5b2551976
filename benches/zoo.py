"""The models of the comparison: architectures of torchvision, timm and transformers with seeded random weights,
exported to ONNX files with torch's exporter. Nothing is downloaded. A file is made once.

    python benches/zoo.py DIRECTORY [NAME...]
"""

import argparse
import contextlib
import os
import pathlib
import sys
import warnings
from collections.abc import Callable

from quantise import quantise

# Weights are drawn, never fetched.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


class Spec:
    """A model, how its inputs look, and for what it is used. Quantised ones say of which model, and in which form."""

    def __init__(self, build: Callable, inputs: Callable, names: list[str], timed: bool = False, int8: tuple = ()):
        self.build, self.inputs, self.names, self.timed, self.int8 = build, inputs, names, timed, int8


def image(batch: int = 1, size: int = 224, channels: int = 3):
    return lambda torch: (torch.randn(batch, channels, size, size),)


def tokens(vocabulary: int, batch: int, sequence: int):
    """Token numbers and a mask that leaves out the last tokens of the first text."""

    def make(torch):
        mask = torch.ones(batch, sequence, dtype=torch.int64)
        mask[0, sequence - sequence // 8 :] = 0
        return (torch.randint(0, vocabulary, (batch, sequence)), mask)

    return make


def torchvision_model(name: str):
    def build():
        import torchvision

        return getattr(torchvision.models, name)(weights=None)

    return build


def timm_model(name: str):
    def build():
        import timm

        return timm.create_model(name, pretrained=False)

    return build


def transformer(model: str, config: str, output: str = "last_hidden_state", part: str = "", **settings):
    """A model of transformers, or a part of it, with one output. `settings` go to its configuration."""

    def build():
        import torch
        import transformers

        class OneOutput(torch.nn.Module):
            def __init__(self):
                super().__init__()
                made = getattr(transformers, config)(**settings)
                whole = getattr(transformers, model)(made)
                self.model = getattr(whole, part) if part else whole
                # Decoders would also give their keys and values, one output a layer.
                self.options = {"use_cache": False} if "GPT" in model else {}

            def forward(self, *inputs):
                keys = ["input_features"] if len(inputs) == 1 else ["input_ids", "attention_mask"]
                return self.model(**dict(zip(keys, inputs)), **self.options)[output]

        return OneOutput()

    return build


IDS = ["input_ids", "attention_mask"]
BERT = transformer("BertModel", "BertConfig")
MINILM = transformer(
    "BertModel", "BertConfig", hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
)

MODELS: dict[str, Spec] = {
    "resnet50-b1": Spec(torchvision_model("resnet50"), image(1), ["x"], timed=True),
    "resnet50-b16": Spec(torchvision_model("resnet50"), image(16), ["x"], timed=True),
    "efficientnet-b0-b1": Spec(torchvision_model("efficientnet_b0"), image(1), ["x"], timed=True),
    "efficientnet-b0-b16": Spec(torchvision_model("efficientnet_b0"), image(16), ["x"], timed=True),
    "bert-base-s128-b1": Spec(BERT, tokens(30522, 1, 128), IDS, timed=True),
    "bert-base-s128-b8": Spec(BERT, tokens(30522, 8, 128), IDS, timed=True),
    "gpt2-s128-b1": Spec(
        transformer("GPT2LMHeadModel", "GPT2Config", "logits"), tokens(50257, 1, 128), IDS, timed=True
    ),
    "minilm-s64-b1": Spec(MINILM, tokens(30522, 1, 64), IDS, timed=True),
}

for name in [
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_v2_s", "googlenet", "inception_v3", "mnasnet1_0",
    "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "resnet18",
    "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11_bn", "vit_b_16",
    "maxvit_t",
]:  # fmt: skip
    size = 299 if name == "inception_v3" else 224
    MODELS[f"torchvision/{name}"] = Spec(torchvision_model(name), image(1, size), ["x"])
for name, size in [
    ("mixer_s32_224", 224), ("deit_tiny_patch16_224", 224), ("ghostnet_100", 224), ("hrnet_w18_small", 224),
    ("levit_128s", 224), ("mobilevit_xxs", 256), ("efficientformerv2_s0", 224), ("edgenext_xx_small", 256),
    ("pvt_v2_b0", 224), ("poolformer_s12", 224), ("coatnet_nano_rw_224", 224), ("nfnet_l0", 224),
    ("gmlp_s16_224", 224), ("resmlp_12_224", 224), ("repvgg_a0", 224), ("xcit_nano_12_p16_224", 224),
    ("cait_xxs24_224", 224), ("beit_base_patch16_224", 224), ("fastvit_t8", 256), ("tiny_vit_5m_224", 224),
]:  # fmt: skip
    MODELS[f"timm/{name}"] = Spec(timm_model(name), image(1, size), ["x"])
for name, spec in {
    "distilbert": Spec(transformer("DistilBertModel", "DistilBertConfig"), tokens(30522, 2, 64), IDS),
    "roberta": Spec(transformer("RobertaModel", "RobertaConfig", num_hidden_layers=4), tokens(50265, 2, 64), IDS),
    "albert": Spec(
        transformer("AlbertModel", "AlbertConfig", hidden_size=768, num_attention_heads=12, intermediate_size=3072),
        tokens(30000, 2, 64),
        IDS,
    ),
    "electra": Spec(transformer("ElectraModel", "ElectraConfig"), tokens(30522, 2, 64), IDS),
    "deberta": Spec(transformer("DebertaV2Model", "DebertaV2Config", hidden_size=384, num_hidden_layers=3,
                                num_attention_heads=6, intermediate_size=1536, vocab_size=30522,
                                relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=256),
                    tokens(30522, 2, 64), IDS),
    "t5-small-encoder": Spec(
        transformer("T5EncoderModel", "T5Config", d_model=512, num_layers=6, d_ff=2048), tokens(32128, 2, 64), IDS
    ),
    "llama-tiny": Spec(
        transformer("LlamaForCausalLM", "LlamaConfig", "logits", hidden_size=256, intermediate_size=688,
                    num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, vocab_size=8000,
                    use_cache=False),
        tokens(8000, 2, 64), IDS),
    "opt-tiny": Spec(
        transformer("OPTForCausalLM", "OPTConfig", "logits", hidden_size=256, ffn_dim=1024, num_hidden_layers=4,
                    num_attention_heads=8, vocab_size=8000, word_embed_proj_dim=256, use_cache=False),
        tokens(8000, 2, 64), IDS),
    "whisper-tiny-encoder": Spec(
        transformer("WhisperModel", "WhisperConfig", part="encoder"),
        lambda torch: (torch.randn(1, 80, 3000),),
        ["input_features"],
    ),
}.items():  # fmt: skip
    MODELS[f"transformers/{name}"] = spec
# `benches/run --models 'int8/*'` measures these.
for name, of, form in [
    ("resnet50-qdq", "resnet50-b1", "qdq"), ("resnet50-qoperator", "resnet50-b1", "qoperator"),
    ("bert-base-dynamic", "bert-base-s128-b1", "dynamic"), ("minilm-dynamic", "minilm-s64-b1", "dynamic"),
    ("minilm-qdq", "minilm-s64-b1", "qdq"), ("resnet18-qdq", "torchvision/resnet18", "qdq"),
    ("mobilenet_v2-qdq", "torchvision/mobilenet_v2", "qdq"),
    ("mobilenet_v2-qoperator", "torchvision/mobilenet_v2", "qoperator"),
    ("efficientnet-b0-qdq", "efficientnet-b0-b1", "qdq"),
]:  # fmt: skip
    spec = MODELS[of]
    MODELS[f"int8/{name}"] = Spec(spec.build, spec.inputs, spec.names, int8=(of, form))


def draw_weights(model, inputs) -> None:
    """Every parameter matters to the outputs and none makes them explode or vanish, which is not so for what many
    architectures start training with: branches scaled by 0 or 1e-6, weights that leave nothing but the last bias.
    Batch normalisations get the means and variances of random data, as training would have them."""
    import torch

    generator = torch.Generator().manual_seed(0)
    for name, tensor in model.named_parameters():
        if tensor.dim() > 1:
            fan_in = tensor.numel() / tensor.shape[0]
            tensor.normal_(0, (2 / fan_in) ** 0.5, generator=generator)
        elif tensor.dim() == 1:
            tensor.normal_(0 if name.endswith("bias") else 1, 0.1, generator=generator)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    if norms:
        model(torch.randn(2, *inputs[0].shape[1:], generator=generator))
    for norm in norms:
        norm.eval()


def file_of(directory: pathlib.Path, name: str) -> pathlib.Path:
    return directory / (name.replace("/", "-") + ".onnx")


def export(directory: pathlib.Path, name: str) -> pathlib.Path:
    """The model's file in the directory, and beside it its inputs as .npz: made unless they are there."""
    path = file_of(directory, name)
    if path.exists() and path.with_suffix(".npz").exists():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    spec = MODELS[name]
    if spec.int8:
        of, form = spec.int8
        quantise(export(directory, of), form, path)
        return path
    import numpy
    import torch

    torch.manual_seed(0)
    model = spec.build().eval()
    inputs = spec.inputs(torch)
    with torch.no_grad():
        draw_weights(model, inputs)
    part = path.with_suffix(".part")
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr), torch.no_grad():
        warnings.simplefilter("ignore")
        # One file: a reader needs no second one.
        torch.onnx.export(
            model, inputs, part, input_names=spec.names, output_names=["y"], dynamo=True, external_data=False,
            verbose=False,
        )  # fmt: skip
    numpy.savez(path.with_suffix(".npz"), **{name: value.numpy() for name, value in zip(spec.names, inputs)})
    part.rename(path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="the timed ones if none is given")
    args = parser.parse_args()
    failed = 0
    for name in args.names or [name for name, spec in MODELS.items() if spec.timed]:
        try:
            path = export(args.directory, name)
            print(f"{name}: {path.stat().st_size / 1e6:.1f} MB")
        except Exception as error:  # noqa: BLE001: an exporter's failure is the exporter's
            print(f"{name}: not exported: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
            failed += 1
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

"""What each built-in model is compared with: options, the PyTorch module, its inputs. Sizes are small where the
full one adds nothing but time."""

import timm
import torch
import torchvision
from torch import nn
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertModel,
    CLIPTextConfig,
    CLIPTextModel,
    GPT2Config,
    GPT2LMHeadModel,
)
from transformers.models.wav2vec2_conformer.configuration_wav2vec2_conformer import Wav2Vec2ConformerConfig
from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import Wav2Vec2ConformerEncoder

import definitions

CASES = {}


def case(name):
    def register(function):
        CASES[name] = function
        return function

    return register


class Outputs(nn.Module):
    """A module whose outputs are some fields of another's."""

    def __init__(self, inner, fields, **kwargs):
        super().__init__()
        self.inner, self.fields, self.kwargs = inner, fields, kwargs

    def state_dict(self, *args, **kwargs):
        return self.inner.state_dict(*args, **kwargs)

    def forward(self, *inputs):
        result = self.inner(*inputs, **self.kwargs)
        return tuple(getattr(result, field) for field in self.fields)


def images(batch, size):
    return (torch.randn(batch, 3, size, size),)


def torchvision_case(name, constructor, size, batch=2):
    CASES[name] = lambda: (f"?batch={batch}&image={size}", constructor(), images(batch, size))


for number in (18, 34, 50, 101, 152):
    torchvision_case(f"resnet{number}", getattr(torchvision.models, f"resnet{number}"), 224)
torchvision_case("resnext50-32x4d", torchvision.models.resnext50_32x4d, 224, 1)
torchvision_case("resnext101-32x8d", torchvision.models.resnext101_32x8d, 224, 1)

for number, size in enumerate((224, 240, 260, 300, 380, 224, 224, 224)):
    constructor = getattr(torchvision.models, f"efficientnet_b{number}")
    torchvision_case(f"efficientnet-b{number}", constructor, size, 1)
    torchvision_case(
        f"efficientnet-b{number}-g16", lambda constructor=constructor: definitions.grouped(constructor), 224, 1
    )


@case("vit-b16")
def vit():
    return "?batch=2", timm.create_model("vit_base_patch16_224", pretrained=False), images(2, 224)


@case("siglip-so400m")
def siglip():
    module = timm.create_model("vit_so400m_patch14_siglip_384", pretrained=False, depth=2, img_size=112)
    return "?batch=2&layers=2&image=112", module, images(2, 112)


@case("swin-t")
def swin_t():
    return "?batch=2", timm.create_model("swin_tiny_patch4_window7_224", pretrained=False), images(2, 224)


@case("swin-l")
def swin_l():
    # The last stage is smaller than a window.
    module = timm.create_model("swin_large_patch4_window12_384", pretrained=False, img_size=192)
    return "?batch=1&image=192", module, images(1, 192)


@case("clip-text")
def clip_text():
    config = CLIPTextConfig(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, eos_token_id=2
    )
    model = Outputs(CLIPTextModel(config), ("last_hidden_state", "pooler_output"))
    return "?batch=2", model, (torch.randint(0, config.vocab_size, (2, 77)),)


def bert_case(name, layers, hidden, heads, sequence, kind=BertModel, outputs=("last_hidden_state", "pooler_output")):
    def make():
        config = BertConfig(
            num_hidden_layers=layers,
            hidden_size=hidden,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
            hidden_act="gelu" if kind is BertModel else "gelu_new",
        )
        ids = torch.randint(0, config.vocab_size, (2, sequence))
        mask = torch.ones(2, sequence, dtype=torch.long)
        mask[1, sequence // 2 :] = 0
        types = torch.randint(0, 2, (2, sequence))
        model = Outputs(kind(config), outputs)
        return f"?batch=2&sequence={sequence}", model, (ids, mask, types)

    CASES[name] = make


bert_case("bert-base", 12, 768, 12, 128)
bert_case("bert-base-qa", 12, 768, 12, 64, BertForQuestionAnswering, ("start_logits", "end_logits"))
bert_case("bert-large", 24, 1024, 16, 96)
bert_case("bert-3-layer", 3, 768, 12, 512)


def gpt2_case(name, layers, hidden, heads, sequence):
    def make():
        config = GPT2Config(n_layer=layers, n_embd=hidden, n_head=heads)
        ids = torch.randint(0, config.vocab_size, (2, sequence))
        return f"?batch=2&sequence={sequence}", Outputs(GPT2LMHeadModel(config), ("logits",)), (ids,)

    CASES[name] = make


gpt2_case("gpt2", 12, 768, 12, 128)
gpt2_case("gpt2-medium", 24, 1024, 16, 32)
gpt2_case("gpt2-large", 36, 1280, 20, 16)


@case("conformer")
def conformer():
    config = Wav2Vec2ConformerConfig(
        num_hidden_layers=16,
        hidden_size=256,
        num_attention_heads=4,
        intermediate_size=1024,
        hidden_act="silu",
        position_embeddings_type="relative",
        conv_depthwise_kernel_size=31,
    )
    config._attn_implementation = "eager"
    model = Outputs(Wav2Vec2ConformerEncoder(config), ("last_hidden_state",))
    return "?batch=2&sequence=50", model, (torch.randn(2, 50, 256),)


@case("lstm")
def lstm():
    return "?batch=3&sequence=20&layers=3", definitions.Recurrent(nn.LSTM, 512, 3), (torch.randn(3, 20, 512),)


@case("gru")
def gru():
    model = definitions.Recurrent(nn.GRU, 96, 2)
    return "?batch=3&sequence=20&hidden=96", model, (torch.randn(3, 20, 96),)


@case("deep-voice")
def deep_voice():
    inputs = (torch.randint(0, 149, (2, 30)), torch.randn(2, 20, 320))
    return "?batch=2&sequence=30&steps=20", definitions.DeepVoice(), inputs


@case("fastspeech2")
def fastspeech2():
    inputs = (torch.randint(0, 360, (2, 20)), torch.randint(0, 9, (2, 20)))
    return "?batch=2&sequence=20&frames=80", definitions.FastSpeech2(80), inputs


def graph_case(name, layer):
    def make():
        model = definitions.TwoLayers(layer, 100, 32, 7)
        inputs = (torch.randn(200, 100), torch.randint(0, 200, (2, 900)))
        return "?nodes=200&edges=900&features=100&hidden=32&classes=7", model, inputs

    CASES[name] = make


graph_case("gcn", definitions.GCNConv)
graph_case("graphsage", definitions.SAGEConv)


@case("schnet")
def schnet():
    inputs = (
        torch.randint(1, 100, (60,)),
        3 * torch.randn(60, 3),
        torch.randint(0, 60, (2, 400)),
        torch.randint(0, 4, (60,)).sort()[0],
    )
    return "?atoms=60&pairs=400&molecules=4", definitions.SchNet(4), inputs


@case("tgn")
def tgn():
    inputs = (
        torch.randn(50, 100),
        torch.rand(50),
        torch.randint(0, 50, (40,)),
        torch.randint(0, 50, (40,)),
        1 + torch.rand(40).sort()[0],
        torch.randn(40, 172),
        torch.randint(0, 50, (2, 300)),
        torch.rand(300),
        torch.randn(300, 172),
    )
    return "?nodes=50&edges=300", definitions.TGN(), inputs


@case("deeplob")
def deeplob():
    return "?batch=2", definitions.DeepLOB(), (torch.randn(2, 1, 100, 40),)


@case("mcmc")
def mcmc():
    inputs = (
        torch.randn(64, 5),
        torch.randint(0, 2, (64,)).float(),
        torch.randn(8, 5),
        torch.tensor([7, 0], dtype=torch.int64),
    )
    return "?points=64&features=5&chains=8&samples=30", definitions.MCMC(30), inputs


@case("unet")
def unet():
    return "?batch=2&image=64", definitions.UNet(), (torch.randn(2, 1, 64, 64),)


@case("sparse-fc")
def sparse_fc():
    model = definitions.BlockSparse(512, 16, 4)
    return "?batch=8&features=512&blocks=4", model, (torch.randn(8, 512),)

//! The table of models.

use crate::models::{
    bert, clip, conformer, deep_voice, deeplob, efficientnet, fastspeech2, gpt2, graphs, mcmc, recurrent,
    resnet, schnet, sparse, swin, tgn, unet, vit,
};
use crate::net::Net;
use pando_base::Result;
use pando_graph::{Cell, ValueId};

type Sizes = &'static [(&'static str, u64)];
type Build = fn(&mut Net) -> Result<Vec<ValueId>>;

pub(crate) struct Entry {
    pub name: &'static str,
    pub about: &'static str,
    /// Whose state_dict names the weights.
    pub definition: &'static str,
    pub sizes: Sizes,
    /// Writes the model and returns its outputs.
    pub build: Build,
}

const fn model(
    name: &'static str,
    about: &'static str,
    definition: &'static str,
    sizes: Sizes,
    build: Build,
) -> Entry {
    Entry { name, about, definition, sizes, build }
}

const IMAGES: Sizes = &[("batch", 1), ("image", 224)];
const TEXTS: Sizes = &[("batch", 1), ("sequence", 128)];

const SEQUENCES: Sizes = &[("batch", 1), ("sequence", 128), ("hidden", 512), ("layers", 2)];

/// No public definition suits: the tests have one.
const OWN: &str = "crates/zoo/tests/definitions.py";
const RESNET: &str = "image classifier, residual convolutions";
const SWIN: &str = "image classifier, transformer within windows";
const BERT: &str = "text encoder";
const GPT2: &str = "text generator, logits of every position";

macro_rules! efficientnet {
    ($number:literal, $image:literal) => {
        model(
            concat!("efficientnet-b", $number),
            "image classifier, depthwise convolutions",
            concat!("torchvision efficientnet_b", $number),
            &[("batch", 1), ("image", $image)],
            |n| efficientnet::build(n, &efficientnet::DEPTHWISE[$number]),
        )
    };
}

macro_rules! efficientnet_g16 {
    ($number:literal, $image:literal) => {
        model(
            concat!("efficientnet-b", $number, "-g16"),
            "image classifier, convolutions in groups of 16 channels",
            "arXiv 2106.03640, named as torchvision's",
            &[("batch", 1), ("image", $image)],
            |n| efficientnet::build(n, &efficientnet::grouped(efficientnet::DEPTHWISE[$number])),
        )
    };
}

pub(crate) const CATALOG: &[Entry] = &[
    model("resnet18", RESNET, "torchvision resnet18", IMAGES, |n| resnet::build(n, &resnet::RESNET18)),
    model("resnet34", RESNET, "torchvision resnet34", IMAGES, |n| resnet::build(n, &resnet::RESNET34)),
    model("resnet50", RESNET, "torchvision resnet50", IMAGES, |n| resnet::build(n, &resnet::RESNET50)),
    model("resnet101", RESNET, "torchvision resnet101", IMAGES, |n| resnet::build(n, &resnet::RESNET101)),
    model("resnet152", RESNET, "torchvision resnet152", IMAGES, |n| resnet::build(n, &resnet::RESNET152)),
    model("resnext50-32x4d", RESNET, "torchvision resnext50_32x4d", IMAGES, |n| {
        resnet::build(n, &resnet::RESNEXT50)
    }),
    model("resnext101-32x8d", RESNET, "torchvision resnext101_32x8d", IMAGES, |n| {
        resnet::build(n, &resnet::RESNEXT101)
    }),
    efficientnet!(0, 224),
    efficientnet!(1, 240),
    efficientnet!(2, 260),
    efficientnet!(3, 300),
    efficientnet!(4, 380),
    efficientnet!(5, 456),
    efficientnet!(6, 528),
    efficientnet!(7, 600),
    efficientnet_g16!(0, 224),
    efficientnet_g16!(1, 240),
    efficientnet_g16!(2, 260),
    efficientnet_g16!(3, 300),
    efficientnet_g16!(4, 380),
    efficientnet_g16!(5, 456),
    efficientnet_g16!(6, 528),
    efficientnet_g16!(7, 600),
    model("vit-b16", "image classifier, transformer", "timm vit_base_patch16_224", IMAGES, vit::base),
    model(
        "siglip-so400m",
        "image encoder, transformer with attention pooling",
        "timm vit_so400m_patch14_siglip_384",
        &[("batch", 1), ("image", 384), ("layers", 27)],
        vit::siglip_so400m,
    ),
    model("swin-t", SWIN, "timm swin_tiny_patch4_window7_224", IMAGES, |n| swin::build(n, &swin::TINY)),
    model("swin-l", SWIN, "timm swin_large_patch4_window12_384", &[("batch", 1), ("image", 384)], |n| {
        swin::build(n, &swin::LARGE)
    }),
    model(
        "clip-text",
        "text encoder of Stable Diffusion 1",
        "transformers CLIPTextModel",
        &[("batch", 1), ("sequence", 77)],
        clip::text,
    ),
    model("bert-base", BERT, "transformers BertModel", TEXTS, |n| bert::build(n, &bert::BASE)),
    model("bert-base-qa", BERT, "transformers BertForQuestionAnswering, gelu_new", TEXTS, |n| {
        bert::question_answering(n, &bert::BASE_BY_TANH)
    }),
    model("bert-large", BERT, "transformers BertModel", TEXTS, |n| bert::build(n, &bert::LARGE)),
    model("bert-3-layer", BERT, "transformers BertModel", TEXTS, |n| bert::build(n, &bert::THREE_LAYERS)),
    model("gpt2", GPT2, "transformers GPT2LMHeadModel", TEXTS, |n| gpt2::build(n, &gpt2::SMALL)),
    model("gpt2-medium", GPT2, "transformers GPT2LMHeadModel", TEXTS, |n| gpt2::build(n, &gpt2::MEDIUM)),
    model("gpt2-large", GPT2, "transformers GPT2LMHeadModel", TEXTS, |n| gpt2::build(n, &gpt2::LARGE)),
    model(
        "conformer",
        "speech encoder, attention and convolutions",
        "transformers Wav2Vec2ConformerEncoder",
        &[("batch", 1), ("sequence", 256)],
        conformer::build,
    ),
    model("lstm", "LSTM layers", "torch nn.LSTM as 'rnn'", SEQUENCES, |n| recurrent::build(n, Cell::Lstm)),
    model("gru", "GRU layers", "torch nn.GRU as 'rnn'", SEQUENCES, |n| recurrent::build(n, Cell::Gru)),
    model(
        "deep-voice",
        "text to speech by convolutions, after Deep Voice 3",
        OWN,
        &[("batch", 1), ("sequence", 128), ("steps", 128)],
        deep_voice::build,
    ),
    model(
        "fastspeech2",
        "text to speech by transformers, after FastSpeech 2",
        OWN,
        &[("batch", 1), ("sequence", 64), ("frames", 512)],
        fastspeech2::build,
    ),
    model(
        "gcn",
        "classes of nodes, sums of neighbours (Cora)",
        "PyTorch Geometric GCNConv",
        &[("nodes", 2708), ("edges", 10556), ("features", 1433), ("hidden", 16), ("classes", 7)],
        graphs::gcn,
    ),
    model(
        "graphsage",
        "classes of nodes, means of neighbours (Reddit)",
        "PyTorch Geometric SAGEConv",
        &[("nodes", 4096), ("edges", 40960), ("features", 602), ("hidden", 256), ("classes", 41)],
        graphs::graphsage,
    ),
    model(
        "schnet",
        "energies of molecules by continuous filters",
        "PyTorch Geometric SchNet",
        &[("atoms", 256), ("pairs", 4096), ("molecules", 8)],
        schnet::build,
    ),
    model(
        "tgn",
        "events in a graph: memories, attention, scores of links",
        "PyTorch Geometric's TGN example",
        &[("nodes", 500), ("events", 40), ("edges", 800)],
        tgn::build,
    ),
    model(
        "deeplob",
        "prices from limit order books: convolutions and an LSTM",
        OWN,
        &[("batch", 1), ("sequence", 100)],
        deeplob::build,
    ),
    model(
        "mcmc",
        "Hamiltonian Monte Carlo, Bayesian logistic regression",
        OWN,
        &[("points", 256), ("features", 16), ("chains", 64), ("samples", 100)],
        mcmc::build,
    ),
    model("unet", "segments images, skips over scales", OWN, &[("batch", 1), ("image", 256)], unet::build),
    model(
        "sparse-fc",
        "a layer with a block-sparse weight",
        OWN,
        &[("batch", 64), ("features", 4096), ("block", 16), ("blocks", 16)],
        sparse::build,
    ),
];

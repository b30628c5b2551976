//! Goal: the models are the published ones. Method: parameters and multiply-adds against published counts.

use crate::common::{multiply_adds, parameters};
use pando_graph::validate;
use pando_zoo::{Options, build, describe, names};
use std::time::Instant;

/// Name, parameters, and 10^9 multiply-adds at an image size. Source: torchvision's tables of weights
/// (`num_params`, `_ops`); timm's ViT is torchvision's `vit_b_16` under other names.
const IMAGES: &[(&str, u64, f64, u64)] = &[
    ("resnet18", 11_689_512, 1.814, 224),
    ("resnet34", 21_797_672, 3.664, 224),
    ("resnet50", 25_557_032, 4.089, 224),
    ("resnet101", 44_549_160, 7.801, 224),
    ("resnet152", 60_192_808, 11.514, 224),
    ("resnext50-32x4d", 25_028_904, 4.230, 224),
    ("resnext101-32x8d", 88_791_336, 16.414, 224),
    ("efficientnet-b0", 5_288_548, 0.386, 224),
    ("efficientnet-b1", 7_794_184, 0.687, 240),
    ("efficientnet-b2", 9_109_994, 1.088, 288),
    ("efficientnet-b3", 12_233_232, 1.827, 300),
    ("efficientnet-b4", 19_341_616, 4.394, 380),
    ("efficientnet-b5", 30_389_784, 10.266, 456),
    ("efficientnet-b6", 43_040_704, 19.068, 528),
    ("efficientnet-b7", 66_347_960, 37.746, 600),
    ("vit-b16", 86_567_656, 17.564, 224),
];

#[test]
fn image_models_have_the_published_counts() {
    for &(name, parameters_expected, giga, image) in IMAGES {
        assert_eq!(parameters(name), parameters_expected, "{name}");
        let module = build(name, &Options::default().with_size("image", image)).expect("builds");
        let found = multiply_adds(&module) as f64 / 1e9;
        // The tables have three digits after the point.
        assert!((found - giga).abs() <= 0.0006, "{name}: {found} instead of {giga}");
    }
}

/// As transformers' own `num_parameters` has them; GPT-2's head shares the embedding's weight. Then those that
/// PyTorch Geometric prints for a GCN on Cora and for SchNet, and the well-known UNet's with one colour
/// instead of three. The SigLIP encoder's and the Swin transformers' are
/// those of timm's modules.
#[test]
fn other_models_have_the_published_parameters() {
    for (name, expected) in [
        ("bert-base", 109_482_240),
        ("bert-base-qa", 108_893_186),
        ("bert-large", 335_141_888),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("siglip-so400m", 428_225_600),
        ("swin-t", 28_288_354),
        ("swin-l", 196_735_516),
        ("clip-text", 123_060_480),
        ("gcn", 23_063),
        ("schnet", 455_809),
        ("unet", 31_037_698 - 2 * 64 * 9),
    ] {
        assert_eq!(parameters(name), expected, "{name}");
    }
}

/// Per token and layer a transformer multiplies with 12 h² weights, and with S keys and S values of h numbers.
#[test]
fn transformers_have_the_expected_multiply_adds() {
    let expected = |layers: u64, hidden: u64, sequence: u64, more: u64| {
        sequence * layers * (12 * hidden * hidden + 2 * sequence * hidden) + more
    };
    for (name, layers, hidden, sequence) in [("bert-base", 12, 768, 128), ("bert-large", 24, 1024, 384)] {
        let module = build(name, &Options::default().with_size("sequence", sequence)).expect("builds");
        // The pooler looks at one token.
        assert_eq!(multiply_adds(&module), expected(layers, hidden, sequence, hidden * hidden), "{name}");
    }
    let module = build("gpt2", &Options::default().with_size("sequence", 256)).expect("builds");
    assert_eq!(multiply_adds(&module), expected(12, 768, 256, 256 * 768 * 50257));
}

#[test]
fn work_grows_with_the_batch() {
    for name in names() {
        if !describe(name).unwrap().sizes.iter().any(|&(size, _)| size == "batch") {
            continue; // Graphs have none.
        }
        let work = |batch| {
            let module = build(name, &Options::default().with_size("batch", batch)).expect("builds");
            // Projected distances and the projected query serve the whole batch.
            let shared = match name {
                "conformer" => 16 * (2 * 256 - 1) * 256 * 256,
                "siglip-so400m" => 1152 * 1152,
                _ => 0,
            };
            multiply_adds(&module) - shared
        };
        assert_eq!(work(1) * 3, work(3), "{name}");
    }
}

#[test]
fn all_are_valid_and_print() {
    for name in names() {
        let module = build(name, &Options::default()).expect("builds");
        validate(&module).unwrap_or_else(|error| panic!("{name}: {error}"));
        let text = pando_graph::print(&module);
        assert!(text.len() < 4 << 20, "{name} takes {} bytes of text", text.len());
        let again = pando_graph::parse(&text, name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(pando_graph::print(&again), text, "{name}");
    }
}

/// Layers of a stack: four gates of products with inputs and states, both 512 wide, at each of 128 steps.
#[test]
fn repeats_count_each_step() {
    let work = |name| multiply_adds(&build(name, &Options::default()).expect("builds"));
    assert_eq!(work("lstm"), 2 * 128 * 4 * 2 * 512 * 512);
    assert_eq!(work("gru"), 2 * 128 * 3 * 2 * 512 * 512);
    // Blocks of 16x16, 16 of them in each of 256 rows, for 64 columns.
    assert_eq!(work("sparse-fc"), 64 * 256 * 16 * 16 * 16);
}

/// Nothing draws weights while building: the largest models hold gigabytes of them.
#[test]
fn building_takes_no_time() {
    for name in ["resnet50", "bert-large", "gpt2-large"] {
        let start = Instant::now();
        build(name, &Options::default()).expect("builds");
        let seconds = start.elapsed().as_secs_f64();
        assert!(seconds < 1.0, "{name} takes {seconds} s to build");
    }
}

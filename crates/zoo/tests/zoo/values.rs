//! Goal: models mean the same to the evaluator and to the engine, and give sensible numbers. Method: small
//! sizes, both computed.

use crate::common::{difference, inputs};
use pando_base::{DType, Tensor};
use pando_cpu::{CompileOptions, compile};
use pando_graph::{Module, eval};
use pando_zoo::{Options, build};

fn on_engine(module: &Module, args: &[Tensor]) -> Vec<Tensor> {
    compile(module, &CompileOptions::default()).expect("compiles").run(args).expect("runs")
}

/// A model, sizes that the evaluator, which is slow on purpose, manages within seconds, and what integers stay
/// below. `compare.py` has the others.
type Case = (&'static str, &'static [(&'static str, u64)], u64);

const SMALL: &[Case] = &[
    ("resnet18", &[("image", 32)], 1),
    ("efficientnet-b0", &[("image", 32)], 1),
    ("efficientnet-b0-g16", &[("image", 32)], 1),
    ("conformer", &[("sequence", 2)], 1),
    ("lstm", &[("batch", 2), ("sequence", 7), ("hidden", 24)], 1),
    ("gru", &[("batch", 2), ("sequence", 7), ("hidden", 24)], 1),
    ("deep-voice", &[("sequence", 3), ("steps", 2)], 149),
    ("gcn", &[("nodes", 20), ("edges", 70), ("features", 12)], 20),
    ("graphsage", &[("nodes", 20), ("edges", 70), ("features", 12)], 20),
    ("schnet", &[("atoms", 8), ("pairs", 20), ("molecules", 3)], 3),
    ("tgn", &[("nodes", 20), ("events", 9), ("edges", 30)], 20),
    ("deeplob", &[("sequence", 12)], 1),
    ("mcmc", &[("points", 20), ("features", 3), ("chains", 4), ("samples", 5)], 2),
    ("sparse-fc", &[("batch", 2), ("features", 64), ("block", 4), ("blocks", 4)], 1),
];

#[test]
fn evaluator_and_engine_agree() {
    for &(name, sizes, below) in SMALL {
        let options = sizes.iter().fold(Options::default(), |options, &(size, n)| options.with_size(size, n));
        let module = build(name, &options).expect("builds");
        let args = inputs(&module, below);
        let expected = eval(&module, module.main().unwrap(), &args).expect("evaluates");
        for (actual, expected) in on_engine(&module, &args).iter().zip(&expected) {
            let difference = difference(actual, expected);
            assert!(difference < 1e-4, "{name}: {difference}");
        }
    }
}

/// Seeded models must not overflow or collapse, in f16 either: their predictions are of ordinary size.
#[test]
fn outputs_are_of_ordinary_size() {
    for name in ["resnet50", "efficientnet-b0", "bert-3-layer", "conformer"] {
        let options = Options { dtype: DType::F16, ..Options::default() };
        let module = build(name, &options).expect("builds");
        for output in on_engine(&module, &inputs(&module, 2)) {
            let values = output.to_f64();
            let size = (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt();
            assert!((0.05..50.0).contains(&size), "{name}: outputs of size {size}");
        }
    }
}

/// The posterior's mean is where the likelihood says: labels of points far along an axis follow its sign.
#[test]
fn monte_carlo_finds_the_posterior() {
    let sizes = [("points", 200), ("features", 2), ("chains", 16), ("samples", 300)];
    let options = sizes.iter().fold(Options::default(), |options, &(size, n)| options.with_size(size, n));
    let module = build("mcmc", &options).expect("builds");
    let mut args = inputs(&module, 2);
    let labels: Vec<f64> = (0..200).map(|row| f64::from(u8::from(args[0].get_f64(2 * row) > 0.0))).collect();
    args[1] = Tensor::from_f64(DType::F32, [200], &labels);
    let results = on_engine(&module, &args);
    let mean = results[1].to_f64();
    assert!(mean[0] > 2.0 && mean[1].abs() < 1.0, "{mean:?}");
    assert!(results[2].to_f64().iter().all(|&rate| rate > 0.5 && rate <= 1.0), "{:?}", results[2].to_f64());
}

//! Goal: attention in one step computes what its parts compute, for all sizes and the ways in which models
//! write it. Method: the graphs that exporters make, against the evaluator, at every level and with both numbers
//! of threads; and against the same program one op at a time.

mod common;

use common::{options, run};
use pando_base::{BinaryFn, CompareFn, DType, Shape, Tensor};
use pando_cpu::{CompileOptions, Isa, MatmulPrecision, TileUnit, compile};
use pando_graph::testing::compare;
use pando_graph::{Builder, ConstData, Module, TensorType, ValueId, eval};

#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: u64,
    heads: u64,
    rows: u64,
    keys: u64,
    width: u64,
}

fn normal(seed: u64, sizes: &[u64]) -> Tensor {
    ConstData::Normal { seed, mean: 0.0, std: 1.0 }.materialize(DType::F32, &Shape::new(sizes))
}

fn heads(b: &mut Builder, x: ValueId, s: Sizes, length: u64) -> ValueId {
    let x = b.reshape(x, [s.batch, length, s.heads, s.width]).unwrap();
    b.transpose(x, &[0, 2, 1, 3]).unwrap()
}

/// As PyTorch exports it: both sides scaled, a mask added, rows without keys made zero; heads in and out of the
/// last dimension.
fn attention(s: Sizes, masked: bool) -> Module {
    let mut b = Builder::new();
    b.begin("main");
    let side = |b: &mut Builder, name: &str, length| {
        b.param(name, TensorType::new(DType::F32, [s.batch, length, s.heads * s.width]))
    };
    let (q, k, v) = (side(&mut b, "q", s.rows), side(&mut b, "k", s.keys), side(&mut b, "v", s.keys));
    let mask = b.param("mask", TensorType::new(DType::F32, [s.batch, 1, s.rows, s.keys]));
    let (q, k, v) = (heads(&mut b, q, s, s.rows), heads(&mut b, k, s, s.keys), heads(&mut b, v, s, s.keys));
    let k = b.transpose(k, &[0, 1, 3, 2]).unwrap();
    let (q, k) =
        (b.binary_scalar(BinaryFn::Mul, q, 0.5).unwrap(), b.binary_scalar(BinaryFn::Mul, k, 0.5).unwrap());
    let mut scores = b.matmul(q, k).unwrap();
    if masked {
        let dims = b.ty(scores).dims.clone();
        let mask = b.reshape(mask, [s.batch, s.rows, s.keys]).unwrap();
        let mask = b.broadcast(mask, dims, &[0, 2, 3]).unwrap();
        scores = b.add(scores, mask).unwrap();
    }
    let mut weights = b.softmax(scores, 3).unwrap();
    if masked {
        let nan = b.compare(CompareFn::Ne, weights, weights).unwrap();
        let zero = b.splat_like(weights, 0.0).unwrap();
        weights = b.select(nan, zero, weights).unwrap();
    }
    let mixed = b.matmul(weights, v).unwrap();
    let mixed = b.transpose(mixed, &[0, 2, 1, 3]).unwrap();
    let mixed = b.reshape(mixed, [s.batch, s.rows, s.heads * s.width]).unwrap();
    b.end(&[mixed]);
    b.finish()
}

fn inputs(s: Sizes) -> Vec<Tensor> {
    let width = s.heads * s.width;
    let mut mask = Tensor::zeros(DType::F32, [s.batch, 1, s.rows, s.keys]);
    for position in 0..(s.batch * s.rows * s.keys) as usize {
        // Some keys everywhere, and all keys of the first row.
        let hidden = position % 5 == 3 || (position as u64) < s.keys;
        mask.set_f64(position, if hidden { f64::NEG_INFINITY } else { 0.0 });
    }
    let side = |seed, length| normal(seed, &[s.batch, length, width]);
    vec![side(1, s.rows), side(2, s.keys), side(3, s.keys), mask]
}

fn check(s: Sizes, masked: bool) {
    let (module, inputs) = (attention(s, masked), inputs(s));
    let expected = eval(&module, module.main().unwrap(), &inputs).unwrap();
    for isa in Isa::available() {
        let fused = run(&module, &inputs, &options(isa, 1, true));
        compare(&fused, &expected, 2e-5).unwrap_or_else(|error| panic!("{s:?} {masked} {isa:?}: {error}"));
        assert_eq!(
            fused,
            run(&module, &inputs, &options(isa, 2, true)),
            "{s:?}: the number of threads shows"
        );
        let plain = run(&module, &inputs, &options(isa, 2, false));
        compare(&plain, &expected, 2e-5).unwrap();
    }
    let model = compile(&module, &options(Isa::detect(), 1, true)).unwrap();
    let (_, steps) = model.profile(&inputs).unwrap();
    let count = |name: &str| steps.iter().filter(|step| step.kind == name).count();
    assert_eq!((count("attention"), count("gemm"), count("softmax")), (1, 0, 0), "{s:?}: {steps:?}");
}

#[test]
fn attention_of_all_sizes() {
    for masked in [false, true] {
        for (rows, keys) in [(1, 1), (1, 40), (3, 17), (15, 33), (40, 15), (200, 70)] {
            check(Sizes { batch: 2, heads: 3, rows, keys, width: 8 }, masked);
        }
        check(Sizes { batch: 1, heads: 1, rows: 33, keys: 1100, width: 5 }, masked);
        check(Sizes { batch: 1, heads: 2, rows: 30, keys: 64, width: 64 }, masked);
    }
}

/// Scores and weights that are results, too, are not lost.
#[test]
fn what_others_read_is_kept() {
    let mut b = Builder::new();
    b.begin("main");
    let side = |b: &mut Builder, name: &str| b.param(name, TensorType::new(DType::F32, [2u64, 9, 9]));
    let (q, k, v) = (side(&mut b, "q"), side(&mut b, "k"), side(&mut b, "v"));
    let scores = b.matmul(q, k).unwrap();
    let weights = b.softmax(scores, 2).unwrap();
    let mixed = b.matmul(weights, v).unwrap();
    let squared = b.matmul(weights, weights).unwrap();
    b.end(&[mixed, squared, scores]);
    let module = b.finish();
    let inputs = [1, 2, 3].map(|seed| normal(seed, &[2, 9, 9]));
    let expected = eval(&module, module.main().unwrap(), &inputs).unwrap();
    compare(&run(&module, &inputs, &options(Isa::detect(), 2, true)), &expected, 1e-5).unwrap();
}

/// At medium precision both products are of bf16, in vectors and on a unit for tiles.
#[test]
fn medium_is_of_bf16() {
    for masked in [false, true] {
        for (rows, keys, width) in [(32, 1, 8), (40, 15, 5), (33, 70, 64), (200, 300, 20)] {
            let s = Sizes { batch: 2, heads: 3, rows, keys, width };
            let (module, inputs) = (attention(s, masked), inputs(s));
            let expected = eval(&module, module.main().unwrap(), &inputs).unwrap();
            for tile_unit in [TileUnit::None, TileUnit::Emulated] {
                let highest = CompileOptions { tile_unit, ..options(Isa::detect(), 1, true) };
                let medium = CompileOptions { matmul_precision: MatmulPrecision::Medium, ..highest.clone() };
                let used = medium.matmul_precision.used(medium.isa, tile_unit) == MatmulPrecision::Medium;
                let found = run(&module, &inputs, &medium);
                compare(&found, &expected, 2e-2)
                    .unwrap_or_else(|error| panic!("{s:?} {tile_unit:?}: {error}"));
                assert_eq!(found != run(&module, &inputs, &highest), used, "{s:?} {tile_unit:?}");
                assert_eq!(found, run(&module, &inputs, &CompileOptions { threads: 2, ..medium }));
            }
        }
    }
}

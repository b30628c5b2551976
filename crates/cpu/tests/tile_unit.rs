//! Goal: products on a unit for tiles (AMX) are right: all edges, as exact as their precision says, and no different
//! from f32 where numbers are infinite, NaN, very large or very small. Method: the unit's emulation, on any computer,
//! and the processor's unit where there is one, against sums in f64 and against the same products without it.

mod common;

use common::run;
use pando_base::{DType, Tensor};
use pando_cpu::{CompileOptions, Isa, MatmulPrecision, TileUnit};
use pando_graph::{Builder, ConstData, Dot, TensorType, random};

fn options(matmul_precision: MatmulPrecision, tile_unit: TileUnit, isa: Isa) -> CompileOptions {
    let threads = CompileOptions::default().threads.min(2);
    CompileOptions { matmul_precision, tile_unit, ..common::options(isa, threads, true) }
}

/// The emulation, and this computer's unit.
fn units() -> impl Iterator<Item = TileUnit> {
    let own = Some(TileUnit::detect()).filter(|&unit| unit != TileUnit::None);
    [TileUnit::Emulated].into_iter().chain(own)
}

/// A processor's unit that does what its makers say is used.
#[test]
fn the_unit_is_sound() {
    assert_eq!(TileUnit::problem(), None);
}

fn tensor(sizes: [usize; 2], value: impl Fn(usize) -> f64) -> Tensor {
    let values: Vec<f64> = (0..sizes[0] * sizes[1]).map(value).collect();
    Tensor::from_f64(DType::F32, sizes.map(|size| size as u64), &values)
}

/// `a · w` for a constant w.
fn product(a: &Tensor, w: &Tensor, options: &CompileOptions) -> Vec<f32> {
    let mut builder = Builder::new();
    builder.begin("main");
    let x = builder.param("x", TensorType::new(a.dtype(), a.shape().to_vec()));
    let w = builder.weight("w", w.dtype(), w.shape().clone(), ConstData::Dense(w.clone()));
    let y = builder.dot(x, w, Dot { contract: vec![(1, 0)], ..Dot::default() }).unwrap();
    builder.end(&[y]);
    let results = run(&builder.finish(), std::slice::from_ref(a), options);
    results[0].to_f64().into_iter().map(|x| x as f32).collect()
}

/// The exact result of each product, and the sum of its terms' magnitudes.
fn exact(a: &Tensor, w: &Tensor) -> Vec<(f64, f64)> {
    let [m, k, n] = [a.shape()[0], a.shape()[1], w.shape()[1]].map(|size| size as usize);
    let (a, w) = (a.to_f64(), w.to_f64());
    let sum = |at: usize| {
        let terms = (0..k).map(|step| a[at / n * k + step] * w[step * n + at % n]);
        terms.fold((0.0, 0.0), |(sum, size): (f64, f64), term| (sum + term, size + term.abs()))
    };
    (0..m * n).map(sum).collect()
}

/// The largest error, and the root of the mean of its squares, as shares of the terms' magnitudes.
fn errors(results: &[f32], exact: &[(f64, f64)]) -> (f64, f64) {
    let error = |(&x, &(sum, size)): (&f32, &(f64, f64))| {
        if size == 0.0 { 0.0 } else { (f64::from(x) - sum).abs() / size }
    };
    let errors: Vec<f64> = results.iter().zip(exact).map(error).collect();
    let squares: f64 = errors.iter().map(|x| x * x).sum();
    (errors.iter().copied().fold(0.0, f64::max), (squares / errors.len() as f64).sqrt())
}

const SIZES: [[usize; 3]; 9] = [
    [1, 1, 1],
    [5, 40, 3],
    [16, 32, 64],
    [17, 33, 65],
    [31, 1, 70],
    [150, 17, 64],
    [18, 800, 64],
    [33, 15, 769],
    [40, 34, 1601],
];

/// Numbers that no rounding touches: edges of tiles, panels, passes and blocks.
#[test]
fn products_of_all_sizes() {
    let whole = |seed| move |i| (random::bits(seed, i as u64) % 15) as f64 - 7.0;
    for precision in MatmulPrecision::ALL {
        for (isa, [m, n, k]) in Isa::available().flat_map(|isa| SIZES.map(|sizes| (isa, sizes))) {
            // Other levels differ in what copies rows and what takes wild ones.
            if isa == Isa::detect() || k < 100 {
                let (a, w) = (tensor([m, k], whole(1)), tensor([k, n], whole(2)));
                let expected: Vec<f32> = exact(&a, &w).into_iter().map(|(sum, _)| sum as f32).collect();
                for unit in units() {
                    let found = product(&a, &w, &options(precision, unit, isa));
                    assert_eq!(found, expected, "{m}x{n}x{k} {precision:?} {isa:?} {unit:?}");
                }
            }
        }
    }
}

fn normal(seed: u64, i: usize) -> f64 {
    random::normal(seed, i as u64)
}

/// Data by name: of mixed signs, of one, of magnitudes far apart, sums that cancel.
fn data([m, n, k]: [usize; 3]) -> Vec<(&'static str, Tensor, Tensor)> {
    let scale = |i: usize, step: usize| ((i * step % 61) as f64 - 30.0).exp2();
    let pair = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    vec![
        ("normal", tensor([m, k], |i| normal(1, i)), tensor([k, n], |i| normal(2, i))),
        ("positive", tensor([m, k], |i| normal(3, i).abs()), tensor([k, n], |i| normal(4, i).abs())),
        (
            "scaled",
            tensor([m, k], |i| normal(5, i) * scale(i, 7)),
            tensor([k, n], |i| normal(6, i) * scale(i, 11)),
        ),
        (
            "cancelling",
            tensor([m, k], |i| pair(i) * (1.0 + normal(7, i) / 1e4)),
            tensor([k, n], |i| 1.0 + normal(8, i / n / 2)),
        ),
        (
            "rows",
            tensor([m, k], |i| normal(9, i) * scale(i / k, 3)),
            tensor([k, n], |i| normal(10, i) * scale(i % n, 5)),
        ),
    ]
}

/// Errors of `highest` on the unit are no larger than those of a plain f32 product, in the mean and at worst.
#[test]
fn highest_is_as_exact_as_f32() {
    let isa = Isa::detect();
    for sizes in [[33, 40, 64], [40, 33, 300], [32, 32, 1600]] {
        for (name, a, w) in data(sizes) {
            let exact = exact(&a, &w);
            let of = |unit| errors(&product(&a, &w, &options(MatmulPrecision::Highest, unit, isa)), &exact);
            let plain = of(TileUnit::None);
            for unit in units() {
                let split = of(unit);
                // The processor's may be slower than its vectors.
                assert!(
                    split != plain || unit == TileUnit::Processor,
                    "{name} {sizes:?}: the unit was not used"
                );
                let exact = split.0 <= plain.0 && split.1 <= plain.1;
                assert!(exact, "{name} {sizes:?} {unit:?}: {split:?}, plain {plain:?}");
            }
        }
    }
}

/// Two parts hold a number up to 2^-17 of it, and 2^-16 at most are the small parts' product, which is left out.
#[test]
fn high_has_16_bits() {
    for sizes in [[33, 40, 64], [32, 32, 800]] {
        for (name, a, w) in data(sizes) {
            for unit in units() {
                let found = product(&a, &w, &options(MatmulPrecision::High, unit, Isa::detect()));
                let (most, _) = errors(&found, &exact(&a, &w));
                assert!(most < 1.0 / 32768.0, "{name} {sizes:?} {unit:?}: {most:e}");
            }
        }
    }
}

/// Bits, all NaN alike.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

/// A row that parts of bf16 cannot hold has the bits of f32, denormal results and infinities included.
#[test]
fn wild_rows_are_f32() {
    let (m, n, k) = (36, 20, 800);
    let wild = [f64::INFINITY, f64::NAN, f64::from(f32::MAX), 1e-40, 1e-30, -1e25];
    let w = tensor([k, n], |i| normal(2, i));
    for (index, value) in wild.into_iter().enumerate() {
        for at in [7, m * k - 1] {
            let row = at / k;
            let tiny = value.abs() < 1e-20;
            let a = tensor([m, k], |i| match i {
                _ if i == at => value,
                // Alone, so that its products are what counts.
                _ if tiny && i / k == row => 0.0,
                _ => normal(20 + index as u64, i),
            });
            for precision in [MatmulPrecision::High, MatmulPrecision::Highest] {
                let of = |unit| bits(&product(&a, &w, &options(precision, unit, Isa::detect())));
                let (split, plain) = (of(TileUnit::Emulated), of(TileUnit::None));
                let of_row = |bits: &[u32]| bits[row * n..(row + 1) * n].to_vec();
                if precision == MatmulPrecision::Highest {
                    assert_eq!(of_row(&split), of_row(&plain), "{value} in row {row}");
                } else {
                    let finite = |bits: &[u32]| -> Vec<bool> {
                        of_row(bits).into_iter().map(|x| f32::from_bits(x).is_finite()).collect()
                    };
                    assert_eq!(finite(&split), finite(&plain), "{value} in row {row}");
                }
                assert_ne!(split, plain, "the other rows are on the unit");
            }
        }
    }
}

/// Weights that parts of bf16 cannot hold are multiplied as f32.
#[test]
fn wild_weights_are_f32() {
    for value in [f64::INFINITY, f64::NAN, 1e-40, 1e-20, 1e20] {
        let a = tensor([20, 64], |i| normal(1, i));
        let w = tensor([64, 33], |i| if i == 77 { value } else { normal(2, i) });
        for precision in [MatmulPrecision::High, MatmulPrecision::Highest] {
            let of = |unit| bits(&product(&a, &w, &options(precision, unit, Isa::detect())));
            assert_eq!(of(TileUnit::Emulated), of(TileUnit::None), "{value}");
        }
    }
}

/// The bits do not depend on the number of threads.
#[test]
fn threads_do_not_matter() {
    let (a, w) = (tensor([200, 100], |i| normal(1, i)), tensor([100, 900], |i| normal(2, i)));
    for precision in MatmulPrecision::ALL {
        let of = |threads| {
            let options = CompileOptions { threads, ..options(precision, TileUnit::Emulated, Isa::detect()) };
            bits(&product(&a, &w, &options))
        };
        assert_eq!(of(1), of(3), "{precision:?}");
    }
}

//! How fast are matrix products? GFLOP/s per shape: this crate (right side packed at compile time, as weights
//! are), the same with both sides given at run time, and the `gemm` crate, all in turn within a round, one
//! thread; medians of `ROUNDS` rounds, each the best of some 20 ms. Beside them the roofline: multiply-adds
//! on registers alone, measured in the same rounds.
//!
//! The limit is that roofline. Shapes with one row are limited by reading the right side once: divide their
//! GFLOP/s by 0.5 for GB/s.
//!
//! Measured on one core of a Zen 4 (118 GFLOP/s on registers; shared host, so 100 to 118): a tile whose sides are
//! in the caches reaches 117.5; 128 rows with 340 MB of packed weights read in turn 114 (768 × 768) and 111
//! (3072 × 768), which is what the three passes over results and 20 GB/s of weights leave. Pairs of bf16
//! (`MatmulPrecision::Medium`) have a peak of 208.
//!
//! `cargo bench -p pando-cpu --bench gemm -- --json` prints one JSON object.

use pando_base::{DType, Shape, Tensor};
use pando_cpu::{CompileOptions, Model, compile};
use pando_graph::{Builder, ConstData, Dot, TensorType};
use std::time::Instant;

const ROUNDS: usize = 5;
const SHAPES: [(u64, u64, u64, u64); 9] = [
    (1, 1024, 1024, 1024),
    (1, 128, 768, 768),
    (1, 128, 3072, 768),
    (1, 128, 768, 3072),
    (1, 1024, 3072, 768),
    (1, 1, 768, 3072),
    (1, 196, 512, 1024),
    (1, 3136, 64, 576),
    (12, 128, 128, 64),
];

fn normal(seed: u64) -> ConstData {
    ConstData::Normal { seed, mean: 0.0, std: 1.0 }
}

fn tensor(seed: u64, sizes: &[u64]) -> Tensor {
    normal(seed).materialize(DType::F32, &Shape::new(sizes))
}

fn model(sizes: (u64, u64, u64, u64), packed: bool) -> (Model, Vec<Tensor>) {
    let (batch, m, n, k) = sizes;
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(DType::F32, [batch, m, k]));
    let mut inputs = vec![tensor(1, &[batch, m, k])];
    let w = if packed {
        b.weight("w", DType::F32, Shape::new(&[batch, k, n]), normal(2))
    } else {
        inputs.push(tensor(2, &[batch, k, n]));
        b.param("w", TensorType::new(DType::F32, [batch, k, n]))
    };
    let dot = Dot { batch: vec![(0, 0)], contract: vec![(2, 1)], dtype: None };
    let y = b.dot(x, w, dot).expect("the sizes agree");
    b.end(&[y]);
    let options = CompileOptions { threads: 1, ..CompileOptions::default() };
    (compile(&b.finish(), &options).expect("a dot compiles"), inputs)
}

/// GFLOP/s of the best run within some 20 ms.
fn best(flop: f64, mut run: impl FnMut()) -> f64 {
    let (begin, mut best) = (Instant::now(), f64::INFINITY);
    while begin.elapsed().as_millis() < 20 {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    flop / best / 1e9
}

#[cfg(target_arch = "x86_64")]
mod peak {
    use std::arch::x86_64::*;

    pub const LOOPS: usize = 100_000;
    /// Enough to hide the latency of two units, few enough for 16 registers.
    const SUMS: usize = 12;

    /// Floating-point operations of a call.
    pub fn flop() -> f64 {
        let lanes = if is_x86_feature_detected!("avx512f") { 16 } else { 8 };
        (LOOPS * SUMS * lanes * 2) as f64
    }

    pub fn run() -> f32 {
        // SAFETY: the features are there.
        #[allow(unsafe_code)]
        unsafe {
            match (is_x86_feature_detected!("avx512f"), is_x86_feature_detected!("fma")) {
                (true, _) => wide(),
                (_, true) => narrow(),
                _ => 0.0,
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn wide() -> f32 {
        let x = _mm512_set1_ps(std::hint::black_box(0.5));
        let mut sums = [_mm512_set1_ps(1.0); SUMS];
        for _ in 0..LOOPS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, x, x);
            }
        }
        sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
    }

    #[target_feature(enable = "avx2,fma")]
    fn narrow() -> f32 {
        let x = _mm256_set1_ps(std::hint::black_box(0.5));
        let mut sums = [_mm256_set1_ps(1.0); SUMS];
        for _ in 0..LOOPS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, x, x);
            }
        }
        sums.into_iter().map(|sum| _mm256_cvtss_f32(sum)).sum()
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod peak {
    pub fn flop() -> f64 {
        0.0
    }
    pub fn run() -> f32 {
        0.0
    }
}

/// The `gemm` crate on a batch of row-major products.
fn other(sizes: (u64, u64, u64, u64), a: &[f32], b: &[f32], c: &mut [f32]) {
    let [batch, m, n, k] = [sizes.0, sizes.1, sizes.2, sizes.3].map(|size| size as usize);
    for i in 0..batch {
        let (a, b, c) = (&a[i * m * k..][..m * k], &b[i * k * n..][..k * n], &mut c[i * m * n..][..m * n]);
        // SAFETY: the slices have the sizes and strides stated.
        #[allow(unsafe_code)]
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                c.as_mut_ptr(),
                1,
                n as isize,
                false,
                a.as_ptr(),
                1,
                k as isize,
                b.as_ptr(),
                1,
                n as isize,
                0.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let json = std::env::args().any(|arg| arg == "--json");
    let mut rows = Vec::new();
    for sizes in SHAPES {
        let (batch, m, n, k) = sizes;
        let flop = 2.0 * (batch * m * n * k) as f64;
        let (packed, packed_inputs) = model(sizes, true);
        let (given, inputs) = model(sizes, false);
        let mut outputs = given.run(&inputs).expect("the model runs");
        let sides = [0, 1].map(|side: usize| inputs[side].as_slice::<f32>().expect("f32").to_vec());
        let mut c = vec![0f32; (batch * m * n) as usize];
        let mut columns: [Vec<f64>; 4] = Default::default();
        for _ in 0..ROUNDS {
            columns[0]
                .push(best(flop, || packed.run_into(&packed_inputs, &mut outputs).expect("the model runs")));
            columns[1].push(best(flop, || given.run_into(&inputs, &mut outputs).expect("the model runs")));
            columns[2].push(best(flop, || other(sizes, &sides[0], &sides[1], &mut c)));
            columns[3].push(best(peak::flop(), || {
                std::hint::black_box(peak::run());
            }));
        }
        rows.push((sizes, columns.map(median)));
    }
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|((batch, m, n, k), [packed, given, gemm, peak])| {
                serde_json::json!({
                    "batch": batch, "m": m, "n": n, "k": k, "packed": packed, "given": given, "gemm_crate": gemm, "peak": peak,
                })
            })
            .collect();
        println!("{}", serde_json::json!({ "gflops": rows }));
        return;
    }
    println!("{:<20} {:>8} {:>8} {:>11} {:>8}", "batch x m x n x k", "packed", "given", "gemm crate", "peak");
    for ((batch, m, n, k), [packed, given, gemm, peak]) in rows {
        let shape = format!("{batch}x{m}x{n}x{k}");
        println!("{shape:<20} {packed:>8.1} {given:>8.1} {gemm:>11.1} {peak:>8.1}");
    }
}

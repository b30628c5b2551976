//! Reductions against hand-written values and a plain f64 loop.

use super::*;
use crate::kernel::cost::tests::{bow, cycles as number};
use crate::kernel::values::tests::{arg, out, random, run as run_kernel};
use crate::kernel::{Dims, Kernel};

fn reduce(func: ReduceFn, axes: &[u8], dtype: DType, shape: &[u64], values: &[f64]) -> Vec<f64> {
    let kept: Vec<u64> = (0..shape.len()).filter(|&d| !axes.contains(&(d as u8))).map(|d| shape[d]).collect();
    let kernel = Kernel::Reduce { func, axes: Dims::from_slice(axes) };
    run_kernel(&kernel, vec![arg(dtype, shape, values), out(dtype, &kept)])
}

#[test]
fn inner_outer_and_middle_axes() {
    let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let sum = |axes, shape| reduce(ReduceFn::Sum, axes, DType::F32, shape, &values);
    assert_eq!(sum(&[1], &[2, 3]), [6.0, 15.0]);
    assert_eq!(sum(&[0], &[2, 3]), [5.0, 7.0, 9.0]);
    assert_eq!(sum(&[0, 1], &[2, 3]), [21.0]);
    assert_eq!(sum(&[1], &[1, 3, 2]), [9.0, 12.0]);
    assert_eq!(sum(&[0, 2], &[1, 3, 2]), [3.0, 7.0, 11.0]);
    assert_eq!(sum(&[], &[6]), values);
    assert_eq!(reduce(ReduceFn::Sum, &[], DType::F32, &[], &[7.0]), [7.0]);
}

#[test]
fn functions_of_floats() {
    let of = |func, values: &[f64]| reduce(func, &[0], DType::F16, &[values.len() as u64], values)[0];
    assert_eq!(of(ReduceFn::Prod, &[2.0, -3.0, 0.5]), -3.0);
    assert_eq!(of(ReduceFn::Max, &[-2.0, -3.0]), -2.0);
    assert!(of(ReduceFn::Max, &[1.0, f64::NAN, 2.0]).is_nan());
    assert!(of(ReduceFn::Min, &[f64::NAN]).is_nan());
    // Kept in f32: 2048 + 1 + 1 is 2050, and an overflow on the way is none at the end.
    assert_eq!(of(ReduceFn::Sum, &[2048.0, 1.0, 1.0]), 2050.0);
    assert_eq!(of(ReduceFn::Sum, &[60000.0, 60000.0, -60000.0]), 60000.0);
    assert_eq!(of(ReduceFn::Sum, &[60000.0, 60000.0]), f64::INFINITY);
}

#[test]
fn empty_reductions_are_neutral() {
    let of = |func, dtype| reduce(func, &[0], dtype, &[0], &[])[0];
    assert_eq!(of(ReduceFn::Sum, DType::F32), 0.0);
    assert_eq!(of(ReduceFn::Prod, DType::I8), 1.0);
    assert_eq!(of(ReduceFn::Max, DType::F16), f64::NEG_INFINITY);
    assert_eq!(of(ReduceFn::Max, DType::I8), -128.0);
    assert_eq!(of(ReduceFn::Min, DType::U8), 255.0);
    assert_eq!(of(ReduceFn::And, DType::I16), -1.0);
    assert_eq!(of(ReduceFn::And, DType::Bool), 1.0);
    assert_eq!(of(ReduceFn::Or, DType::Bool), 0.0);
}

#[test]
fn functions_of_integers() {
    let of = |func, values: &[f64]| reduce(func, &[0], DType::I8, &[values.len() as u64], values)[0];
    assert_eq!(of(ReduceFn::Sum, &[100.0, 100.0]), -56.0);
    assert_eq!(of(ReduceFn::Prod, &[16.0, 16.0, 3.0]), 0.0);
    assert_eq!(of(ReduceFn::Max, &[-3.0, -7.0]), -3.0);
    assert_eq!(of(ReduceFn::And, &[6.0, 3.0]), 2.0);
    assert_eq!(of(ReduceFn::Or, &[-128.0, 1.0]), -127.0);
    assert_eq!(reduce(ReduceFn::And, &[1], DType::Bool, &[2, 2], &[1.0, 1.0, 1.0, 0.0]), [1.0, 0.0]);
    assert_eq!(reduce(ReduceFn::Or, &[1], DType::Bool, &[2, 2], &[0.0, 0.0, 1.0, 0.0]), [0.0, 1.0]);
}

/// The sums of halves may be kept in f32, and reduced axes may stay.
#[test]
fn partial_results() {
    let kernel = Kernel::Reduce { func: ReduceFn::Sum, axes: Dims::from_slice(&[1]) };
    let input = arg(DType::F16, &[2, 2], &[2048.0, 1.0, 60000.0, 60000.0]);
    assert_eq!(run_kernel(&kernel, vec![input, out(DType::F32, &[2, 1])]), [2049.0, 120000.0]);
}

#[test]
fn golden_sums() {
    for (seed, shape, axes) in
        [(1, [3u64, 5, 7], &[0u8][..]), (2, [4, 1, 33], &[2]), (3, [2, 6, 4], &[0, 2]), (4, [8, 3, 2], &[1])]
    {
        for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::BF16, 2e-2)] {
            let values: Vec<f64> =
                random(seed, shape.iter().product()).iter().map(|&x| dtype.round(x)).collect();
            let result = reduce(ReduceFn::Sum, axes, dtype, &shape, &values);
            let mut expected = vec![0.0; result.len()];
            for (i, value) in values.iter().enumerate() {
                let index =
                    [i as u64 / (shape[1] * shape[2]), i as u64 / shape[2] % shape[1], i as u64 % shape[2]];
                let kept = (0..3).filter(|dim| !axes.contains(&(*dim as u8)));
                let place = kept.fold(0, |place, dim| place * shape[dim] + index[dim]);
                expected[place as usize] += value;
            }
            let close = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * b.abs().max(1.0);
            assert!(result.iter().zip(&expected).all(close), "{dtype} {shape:?} {axes:?}");
        }
    }
}

#[test]
fn refuses_what_does_not_match() {
    let ty = |dtype, lens| OperandType { dtype, lens };
    let error = check(ReduceFn::Or, &[0], &[ty(DType::F32, &[2]), ty(DType::F32, &[])]).unwrap_err();
    assert_eq!(error, "or of f32 does not exist");
    assert!(check(ReduceFn::Sum, &[0], &[ty(DType::Bool, &[2]), ty(DType::Bool, &[])]).is_err());
    assert!(check(ReduceFn::Sum, &[2], &[ty(DType::F32, &[2]), ty(DType::F32, &[])]).is_err());
    assert!(check(ReduceFn::Sum, &[0], &[ty(DType::F32, &[2, 3]), ty(DType::F32, &[2])]).is_err());
    assert!(check(ReduceFn::Sum, &[0], &[ty(DType::I8, &[2]), ty(DType::I32, &[])]).is_err());
}

fn time(axes: &[u8], dtype: DType, lens: &[u64]) -> u64 {
    let out: Vec<u64> = (0..lens.len()).filter(|&d| !axes.contains(&(d as u8))).map(|d| lens[d]).collect();
    let operands = [OperandType { dtype, lens }, OperandType { dtype, lens: &out }];
    number(cycles(axes, &operands, &bow()))
}

#[test]
fn cycles_follow_the_formulas() {
    // 12 outputs, 2 a worker, of 8 f32.
    assert_eq!(time(&[1], DType::F32, &[12, 8]), 6 * (16 + 2 * (12 + 4)) + 38);
    // 24 f32 outputs are 12 vectors, 2 a worker, of 8 partial sums.
    assert_eq!(time(&[0], DType::F32, &[8, 24]), 6 * (16 + 2 * (6 + 1 + 3 + 7)) + 38);
    // 24 f16 outputs are 6 vectors, each rounded before it is stored.
    assert_eq!(time(&[0], DType::F16, &[8, 24]), 6 * (16 + 6 + 2 + 3 + 7) + 38);
    // A single output of 6000: each worker sums 1000, then one sums six.
    assert_eq!(time(&[0], DType::F32, &[6000]), 6 * (16 + 12 + 500 + 16 + 12 + 3) + 38);
}

#[test]
fn cycles_grow() {
    for axes in [&[0u8][..], &[1], &[0, 1]] {
        for n in [1u64, 3, 8, 50, 1000] {
            assert!(time(axes, DType::F16, &[n, 40]) <= time(axes, DType::F16, &[2 * n, 40]), "{axes:?} {n}");
            assert!(time(axes, DType::F32, &[9, n]) <= time(axes, DType::F32, &[9, 2 * n]), "{axes:?} {n}");
        }
    }
    assert!(time(&[0, 1], DType::F32, &[u64::MAX, u64::MAX]) > u64::MAX / 4, "no overflow");
}

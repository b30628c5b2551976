//! Products against hand-written values and a plain f64 loop.

use super::*;
use crate::kernel::Kernel;
use crate::kernel::cost::tests::{bow, cycles as number};
use crate::kernel::values::tests::{arg, out, random, run as run_kernel};
use pando_base::F8Format;

fn matmul(batch: &Pairs, contract: &Pairs, partials: DType) -> Kernel {
    ordered(batch, contract, &[], partials)
}

fn ordered(batch: &Pairs, contract: &Pairs, order: &[u8], partials: DType) -> Kernel {
    Kernel::MatMul { batch: batch.into(), contract: contract.into(), order: order.into(), partials }
}

/// Rows and columns exchanged, as when the operands are: the same values in another order.
#[test]
fn outputs_in_another_order() {
    let (a, b) = (random(1, 2 * 3 * 40), random(2, 2 * 5 * 40));
    let lhs = || arg(DType::F16, &[2, 3, 40], &a);
    let rhs = || arg(DType::F16, &[2, 5, 40], &b);
    let plain = matmul(&[(0, 0)], &[(2, 2)], DType::F16);
    let expected = run_kernel(&plain, vec![lhs(), rhs(), out(DType::F16, &[2, 3, 5])]);
    let swapped = ordered(&[(0, 0)], &[(2, 2)], &[0, 2, 1], DType::F16);
    assert_eq!(run_kernel(&swapped, vec![rhs(), lhs(), out(DType::F16, &[2, 3, 5])]), expected);
    // Batch between rows and columns, with a dimension that says which partial result this is.
    let between = ordered(&[(0, 0)], &[(2, 2)], &[1, 0, 2], DType::F16);
    let result = run_kernel(&between, vec![lhs(), rhs(), out(DType::F16, &[1, 3, 2, 5])]);
    let at = |g: usize, row: usize, column: usize| expected[(g * 3 + row) * 5 + column];
    for (place, &value) in result.iter().enumerate() {
        assert_eq!(value, at(place / 5 % 2, place / 10, place % 5));
    }
    let f16 = |lens| OperandType { dtype: DType::F16, lens };
    let types = [f16(&[2, 3, 40]), f16(&[2, 5, 40]), f16(&[2, 3, 5])];
    assert!(
        between.check(&types).is_err() && ordered(&[], &[(2, 2)], &[0], DType::F16).check(&types).is_err()
    );
}

/// Only an output whose last dimension is not the product's has to be transposed.
#[test]
fn transposed_outputs_cost() {
    let time = |order: &[u8], lens: &[u64]| {
        let f16 = |lens| OperandType { dtype: DType::F16, lens };
        let kernel = ordered(&[(0, 0)], &[(2, 1)], order, DType::F16);
        number(kernel.cycles(&[f16(&[4, 64, 64]), f16(&[4, 64, 64]), f16(lens)], &bow()))
    };
    let plain = time(&[], &[4, 64, 64]);
    assert_eq!(time(&[1, 0, 2], &[64, 4, 64]), plain);
    // 4 · 64 · 64 halves in grains of 16, over 6 workers, and a launch.
    let grains = (4u64 * 64 * 64 / 16).div_ceil(6);
    assert_eq!(time(&[0, 2, 1], &[4, 64, 64]) - plain, 6 * (57 + (grains - 2) * 4) + 7 + 38);
}

/// `[2,2]·[2,2]` by hand: 1·5+2·7, 1·6+2·8, 3·5+4·7, 3·6+4·8.
#[test]
fn small_products_in_every_type() {
    for (dtype, partials) in [
        (DType::F32, DType::F32),
        (DType::F16, DType::F32),
        (DType::F16, DType::F16),
        (DType::BF16, DType::F32),
        (DType::I8, DType::I8),
        (DType::U64, DType::U64),
    ] {
        let a = arg(dtype, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let b = arg(dtype, &[2, 2], &[5.0, 6.0, 7.0, 8.0]);
        let result = run_kernel(&matmul(&[], &[(1, 0)], partials), vec![a, b, out(dtype, &[2, 2])]);
        assert_eq!(result, [19.0, 22.0, 43.0, 50.0], "{dtype} {partials}");
    }
}

#[test]
fn eight_bit_floats_mix_formats_and_scales() {
    let a = arg(DType::F8(F8Format::F143, 1), &[1, 2], &[2.0, -4.0]);
    let b = arg(DType::F8(F8Format::F152, -2), &[2, 1], &[3.0, 0.5]);
    let result = run_kernel(&matmul(&[], &[(1, 0)], DType::F16), vec![a, b, out(DType::F16, &[1, 1])]);
    assert_eq!(result, [4.0]);
}

#[test]
fn integers_wrap_in_the_output() {
    let product = |dtype| {
        let (a, b) = (arg(DType::I8, &[2], &[100.0, -3.0]), arg(DType::I8, &[2], &[100.0, 5.0]));
        run_kernel(&matmul(&[], &[(0, 0)], dtype), vec![a, b, out(dtype, &[])])[0]
    };
    assert_eq!(product(DType::I32), 9985.0);
    assert_eq!(product(DType::I8), 1.0, "9985 - 39 · 256");
}

/// Batch dimension 1 of lhs with 0 of rhs, two contracted dimensions in another order on each side, and a
/// leading dimension of the output that says which partial result this is.
#[test]
fn batches_and_several_contracted_dimensions() {
    let a: Vec<f64> = (0..12).map(f64::from).collect();
    let b: Vec<f64> = (0..24).map(f64::from).collect();
    let (lhs, rhs) = (arg(DType::F32, &[2, 2, 3], &a), arg(DType::F32, &[2, 3, 2, 2], &b));
    let kernel = matmul(&[(1, 0)], &[(0, 2), (2, 1)], DType::F32);
    let result = run_kernel(&kernel, vec![lhs, rhs, out(DType::F32, &[1, 2, 2])]);
    for (g, column) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let terms = (0..2).flat_map(|i| (0..3).map(move |j| (i, j)));
        let expected: f64 =
            terms.map(|(i, j)| a[i * 6 + g * 3 + j] * b[g * 12 + j * 4 + i * 2 + column]).sum();
        assert_eq!(result[g * 2 + column], expected);
    }
}

#[test]
fn empty_sums_are_zero() {
    let mut result = out(DType::F32, &[2, 2]);
    result.data = pando_base::Tensor::from_f64(DType::F32, [2, 2], &[9.0; 4]);
    let args = vec![out(DType::F32, &[2, 0]), out(DType::F32, &[0, 2]), result];
    assert_eq!(run_kernel(&matmul(&[], &[(1, 0)], DType::F32), args), [0.0; 4]);
}

#[test]
fn overflow_and_nan() {
    let dot = |a: &[f64], b: &[f64], partials| {
        let k = a.len() as u64;
        let args = vec![arg(DType::F16, &[k], a), arg(DType::F16, &[k], b), out(DType::F16, &[])];
        run_kernel(&matmul(&[], &[(0, 0)], partials), args)[0]
    };
    assert_eq!(dot(&[300.0, -300.0], &[300.0, 300.0], DType::F16), 0.0, "one step sums in f32");
    assert_eq!(dot(&[300.0], &[300.0], DType::F32), f64::INFINITY);
    assert!(dot(&[0.0], &[f64::NAN], DType::F32).is_nan());
    assert!(dot(&[0.0], &[f64::INFINITY], DType::F16).is_nan());
}

#[test]
fn golden_products() {
    for (seed, [g, m, k, n]) in
        [(1, [1, 7, 33, 17]), (2, [3, 1, 16, 40]), (3, [2, 9, 5, 1]), (4, [1, 16, 64, 16])]
    {
        for (dtype, partials, tolerance) in [
            (DType::F32, DType::F32, 1e-6),
            (DType::F16, DType::F32, 1e-3),
            (DType::F16, DType::F16, 5e-3),
            (DType::BF16, DType::F32, 1e-2),
        ] {
            let rounded = |seed, count| random(seed, count).into_iter().map(|x| dtype.round(x)).collect();
            let (a, b): (Vec<f64>, Vec<f64>) = (rounded(seed, g * m * k), rounded(seed + 10, g * k * n));
            let args = vec![arg(dtype, &[g, m, k], &a), arg(dtype, &[g, k, n], &b), out(dtype, &[g, m, n])];
            let result = run_kernel(&matmul(&[(0, 0)], &[(2, 1)], partials), args);
            for (place, &value) in result.iter().enumerate() {
                let (row, column) = (place as u64 / n, place as u64 % n);
                let term = |i: u64| a[(row * k + i) as usize] * b[((row / m * k + i) * n + column) as usize];
                let (sum, scale) =
                    (0..k).fold((0.0, 0.0), |(sum, scale), i| (sum + term(i), scale + term(i).abs()));
                assert!(
                    (value - sum).abs() <= tolerance * scale.max(0.1),
                    "{dtype} {partials} {place}: {value} {sum}"
                );
            }
        }
    }
}

#[test]
fn refuses_what_does_not_match() {
    let ty = |dtype, lens| OperandType { dtype, lens };
    let check = |a, b, c, partials| check(&[], &[(1, 0)], &[], partials, &[a, b, c]);
    let (f16, f32s) = (|lens| ty(DType::F16, lens), |lens| ty(DType::F32, lens));
    let error = check(f16(&[2, 3]), f16(&[4, 2]), f16(&[2, 2]), DType::F32).unwrap_err();
    assert_eq!(error, "dimension 1 of f16[2,3] and dimension 0 of f16[4,2] differ in length");
    let error = check(f32s(&[2, 3]), f32s(&[3, 2]), f32s(&[2, 2]), DType::F16).unwrap_err();
    assert_eq!(error, "keeps sums in f32, or f16 if inputs are f16 or 8-bit floats, not f16 for f32");
    assert!(check(f16(&[2, 3]), f32s(&[3, 2]), f32s(&[2, 2]), DType::F32).is_err());
    assert!(check(f16(&[2, 3]), f16(&[3, 2]), f16(&[2, 3]), DType::F32).is_err());
    assert!(check(f16(&[2]), f16(&[3, 2]), f16(&[2, 2]), DType::F32).is_err());
    assert!(
        check(ty(DType::I8, &[2, 3]), ty(DType::I8, &[3, 2]), ty(DType::I32, &[2, 2]), DType::I8).is_err()
    );
}

fn time(dtype: DType, [g, m, k, n]: [u64; 4], chip: &Chip) -> u64 {
    let lens: [&[u64]; 3] = [&[g, m, k], &[g, k, n], &[g, m, n]];
    let operands: Vec<_> = lens.into_iter().map(|lens| OperandType { dtype, lens }).collect();
    number(cycles(&[(0, 0)], &[(2, 1)], &[], DType::F32, &operands, chip))
}

/// What a tile must reach in a product of a whole chip: rows 39 and 41 of hardware.md section 9 have Bow
/// at 223 of 348.6 TF (f16) and 57.8 of 87.1 TF (f32) at m = k = 1024, n = 16384, exchange included, so
/// its compute alone lies between that and the peak.
#[test]
fn shares_of_measured_matrix_products() {
    // 1472 tiles with blocks of 128 × 1024 × 96 or so.
    for (dtype, per_cycle, measured) in [(DType::F16, 64, 0.64), (DType::F32, 16, 0.66)] {
        let ideal = 128 * 1024 * 96 / per_cycle;
        let efficiency = ideal as f64 / time(dtype, [1, 128, 1024, 96], &bow()) as f64;
        assert!((measured * 0.9..1.0).contains(&efficiency), "{dtype}: {efficiency}");
    }
}

#[test]
fn cycles_and_flops_grow() {
    let bare = Chip { matrix: Vec::new(), ..bow() };
    for (dtype, chip) in [(DType::F32, bow()), (DType::F16, bow()), (DType::I32, bow()), (DType::F16, bare)] {
        for base in [[1, 1, 1, 1], [2, 20, 33, 17], [1, 500, 64, 1], [u64::MAX / 2; 4]] {
            for dim in 0..4 {
                let mut larger = base;
                larger[dim] *= 2;
                assert!(time(dtype, base, &chip) <= time(dtype, larger, &chip), "{dtype} {base:?} {dim}");
            }
        }
    }
    let ty = |lens| OperandType { dtype: DType::F32, lens };
    assert_eq!(flops(&[], &[(1, 0)], &[ty(&[2, 3]), ty(&[3, 5]), ty(&[2, 5])]), 60);
}

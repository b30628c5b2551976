//! Values of elementwise kernels, written by hand.

use super::*;
use crate::kernel::Kernel;
use crate::kernel::values::tests::{arg, out, run};
use pando_base::Tensor;

fn unary(func: UnaryFn, dtype: DType, values: &[f64]) -> Vec<f64> {
    let shape = [values.len() as u64];
    run(&Kernel::Unary(func), vec![arg(dtype, &shape, values), out(dtype, &shape)])
}

fn binary(func: BinaryFn, dtype: DType, a: &[f64], b: &[f64]) -> Vec<f64> {
    let shape = [a.len() as u64];
    run(&Kernel::Binary(func), vec![arg(dtype, &shape, a), arg(dtype, &shape, b), out(dtype, &shape)])
}

#[test]
fn unary_floats() {
    assert_eq!(unary(UnaryFn::Round, DType::F32, &[0.5, 1.5, -2.5]), [0.0, 2.0, -2.0]);
    assert_eq!(unary(UnaryFn::Sign, DType::F16, &[-3.0, 0.0, 7.0]), [-1.0, 0.0, 1.0]);
    assert!(unary(UnaryFn::Sign, DType::F32, &[f64::NAN])[0].is_nan());
    assert_eq!(unary(UnaryFn::Floor, DType::BF16, &[-1.5]), [-2.0]);
    assert_eq!(unary(UnaryFn::Ceil, DType::F32, &[-1.5, 0.2]), [-1.0, 1.0]);
    assert_eq!(unary(UnaryFn::Exp, DType::F16, &[0.0, 12.0]), [1.0, f64::INFINITY], "e^12 is no f16");
    assert_eq!(unary(UnaryFn::Log, DType::F32, &[0.0, 1.0]), [f64::NEG_INFINITY, 0.0]);
    assert!(unary(UnaryFn::Sqrt, DType::F32, &[-1.0])[0].is_nan());
    assert_eq!(unary(UnaryFn::Abs, DType::F16, &[-2.0, f64::NEG_INFINITY]), [2.0, f64::INFINITY]);
}

/// Six digits of tables of the functions, at 0.5.
#[test]
fn transcendental_functions() {
    for (func, expected) in [
        (UnaryFn::Exp, 1.648721),
        (UnaryFn::Expm1, 0.648721),
        (UnaryFn::Log, -std::f64::consts::LN_2),
        (UnaryFn::Log1p, 0.405465),
        (UnaryFn::Sqrt, std::f64::consts::FRAC_1_SQRT_2),
        (UnaryFn::Sin, 0.479426),
        (UnaryFn::Cos, 0.877583),
        (UnaryFn::Tanh, 0.462117),
        (UnaryFn::Erf, 0.520500),
    ] {
        assert!((unary(func, DType::F32, &[0.5])[0] - expected).abs() < 1e-6, "{func}");
        assert!((unary(func, DType::F16, &[0.5])[0] - expected).abs() < 1e-3, "{func}");
    }
    assert!((binary(BinaryFn::Atan2, DType::F32, &[1.0], &[-1.0])[0] - 2.356194).abs() < 1e-6);
}

#[test]
fn unary_integers() {
    assert_eq!(unary(UnaryFn::Neg, DType::I8, &[-128.0, 5.0]), [-128.0, -5.0]);
    assert_eq!(unary(UnaryFn::Abs, DType::I8, &[-128.0, -5.0]), [-128.0, 5.0]);
    assert_eq!(unary(UnaryFn::Neg, DType::U8, &[1.0]), [255.0]);
    assert_eq!(unary(UnaryFn::Sign, DType::I64, &[-9.0, 0.0]), [-1.0, 0.0]);
    assert_eq!(unary(UnaryFn::Not, DType::U16, &[0.0]), [65535.0]);
    assert_eq!(unary(UnaryFn::Not, DType::Bool, &[0.0, 1.0]), [1.0, 0.0]);
}

#[test]
fn binary_floats() {
    assert_eq!(
        binary(BinaryFn::Add, DType::F16, &[60000.0, 2048.0], &[60000.0, 1.0]),
        [f64::INFINITY, 2048.0]
    );
    assert_eq!(binary(BinaryFn::Div, DType::F32, &[1.0, -7.0], &[0.0, 2.0]), [f64::INFINITY, -3.5]);
    assert_eq!(binary(BinaryFn::Rem, DType::F32, &[-7.0, 7.5], &[3.0, -2.0]), [-1.0, 1.5]);
    assert_eq!(binary(BinaryFn::Pow, DType::F32, &[2.0], &[-1.0]), [0.5]);
    assert_eq!(binary(BinaryFn::Max, DType::F32, &[1.0, -2.0], &[3.0, -5.0]), [3.0, -2.0]);
    for func in [BinaryFn::Max, BinaryFn::Min] {
        assert!(binary(func, DType::F16, &[f64::NAN], &[1.0])[0].is_nan());
        assert!(binary(func, DType::F32, &[1.0], &[f64::NAN])[0].is_nan());
    }
    assert!(binary(BinaryFn::Max, DType::F32, &[-0.0], &[0.0])[0].is_sign_positive());
    assert!(binary(BinaryFn::Min, DType::F32, &[0.0], &[-0.0])[0].is_sign_negative());
}

#[test]
fn binary_integers() {
    assert_eq!(binary(BinaryFn::Div, DType::I32, &[-7.0, 7.0, 1.0], &[2.0, -2.0, 0.0]), [-3.0, -3.0, 0.0]);
    assert_eq!(binary(BinaryFn::Rem, DType::I32, &[-7.0, 7.0, 1.0], &[2.0, -2.0, 0.0]), [-1.0, 1.0, 0.0]);
    assert_eq!(binary(BinaryFn::Div, DType::I8, &[-128.0], &[-1.0]), [-128.0]);
    assert_eq!(binary(BinaryFn::Rem, DType::I8, &[-128.0], &[-1.0]), [0.0]);
    assert_eq!(binary(BinaryFn::Mul, DType::I16, &[300.0], &[300.0]), [24464.0], "90000 - 65536");
    assert_eq!(binary(BinaryFn::Sub, DType::U8, &[0.0], &[1.0]), [255.0]);
    let powers = binary(
        BinaryFn::Pow,
        DType::I8,
        &[3.0, 2.0, 2.0, -1.0, 0.0, 0.0],
        &[4.0, 8.0, -1.0, -3.0, 0.0, -1.0],
    );
    assert_eq!(powers, [81.0, 0.0, 0.0, -1.0, 1.0, 0.0]);
    assert_eq!(binary(BinaryFn::Max, DType::U8, &[200.0], &[100.0]), [200.0]);
    assert_eq!(binary(BinaryFn::Xor, DType::I8, &[5.0], &[3.0]), [6.0]);
    let bools = |func| binary(func, DType::Bool, &[0.0, 0.0, 1.0, 1.0], &[0.0, 1.0, 0.0, 1.0]);
    assert_eq!(bools(BinaryFn::And), [0.0, 0.0, 0.0, 1.0]);
    assert_eq!(bools(BinaryFn::Or), [0.0, 1.0, 1.0, 1.0]);
    assert_eq!(bools(BinaryFn::Xor), [0.0, 1.0, 1.0, 0.0]);
}

#[test]
fn shifts_beyond_the_width() {
    let shift = |func, dtype, value, by| binary(func, dtype, &[value], &[by])[0];
    assert_eq!(shift(BinaryFn::Shl, DType::I8, 3.0, 6.0), -64.0);
    assert_eq!(shift(BinaryFn::Shl, DType::U8, 255.0, 8.0), 0.0);
    assert_eq!(shift(BinaryFn::Shr, DType::I8, -128.0, 100.0), -1.0);
    assert_eq!(shift(BinaryFn::Shr, DType::U8, 128.0, 7.0), 1.0);
    assert_eq!(shift(BinaryFn::Shr, DType::I32, -5.0, -1.0), -1.0, "a negative distance is a large one");
}

#[test]
fn comparisons() {
    let compare = |func, dtype, a: f64, b: f64| {
        run(
            &Kernel::Compare(func),
            vec![arg(dtype, &[1], &[a]), arg(dtype, &[1], &[b]), out(DType::Bool, &[1])],
        )[0]
    };
    let outcomes =
        |dtype, a, b| CompareFn::ALL.iter().map(|&func| compare(func, dtype, a, b)).collect::<Vec<_>>();
    // In the order eq, ne, lt, le, gt, ge.
    assert_eq!(outcomes(DType::F16, 1.0, 2.0), [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
    assert_eq!(outcomes(DType::U8, 200.0, 100.0), [0.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
    assert_eq!(outcomes(DType::F32, f64::NAN, 1.0), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(outcomes(DType::F32, 0.0, -0.0), [1.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
    assert_eq!(outcomes(DType::Bool, 0.0, 1.0), [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn select_moves_bits() {
    let nan = f32::from_bits(0x7fc0_1234);
    let mut choices = out(DType::F32, &[2]);
    choices.data.as_mut_slice::<f32>().expect("f32").copy_from_slice(&[nan, 1.0]);
    let mut args = vec![
        arg(DType::Bool, &[2], &[1.0, 0.0]),
        choices,
        arg(DType::F32, &[2], &[3.0, 4.0]),
        out(DType::F32, &[2]),
    ];
    Kernel::Select.run(&mut args);
    let result: &Tensor = &args[3].data;
    let bits: Vec<u32> = result.as_slice::<f32>().expect("f32").iter().map(|x| x.to_bits()).collect();
    assert_eq!(bits, [0x7fc0_1234, 4f32.to_bits()]);
}

#[test]
fn refuses_what_does_not_match() {
    let ty = |dtype| OperandType { dtype, lens: &[2] };
    let error = check_unary(UnaryFn::Exp, &[ty(DType::I32), ty(DType::I32)]).unwrap_err();
    assert_eq!(error, "exp exists for f32, f16 and bf16, not i32");
    let f8 = ty(DType::F8(pando_base::F8Format::F143, 0));
    assert!(check_binary(BinaryFn::Add, &[f8; 3]).is_err());
    assert!(check_binary(BinaryFn::Shl, &[ty(DType::F32); 3]).is_err());
    assert!(check_binary(BinaryFn::Add, &[ty(DType::F32), ty(DType::F16), ty(DType::F32)]).is_err());
    assert!(check_compare(&[ty(DType::F32); 3]).is_err());
    assert!(check_select(&[ty(DType::I8), f8, f8, f8]).is_err());
    assert!(check_select(&[ty(DType::Bool), f8, f8, f8]).is_ok());
    let longer = OperandType { dtype: DType::F32, lens: &[3] };
    assert!(check_cast(&[longer, ty(DType::F16)]).is_err());
}

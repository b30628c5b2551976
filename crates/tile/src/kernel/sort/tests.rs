use super::*;
use crate::block::Block;
use crate::kernel::Kernel;
use crate::kernel::cost::tests::{bow, cycles as number};
use crate::kernel::values::tests::{arg, out, run as run_kernel};

#[test]
fn sorts_lines_with_their_order() {
    let keys = || arg(DType::F32, &[2, 3], &[3.0, f64::NAN, -1.0, 2.0, 2.0, f64::NEG_INFINITY]);
    let kernel = |axis, descending| Kernel::Sort { axis, descending, ordered: true };
    let order =
        |kernel| run_kernel(&kernel, vec![keys(), out(DType::F32, &[2, 3]), out(DType::I32, &[2, 3])]);
    assert_eq!(order(kernel(1, false)), [2.0, 0.0, 1.0, 2.0, 0.0, 1.0]);
    assert_eq!(order(kernel(1, true)), [1.0, 0.0, 2.0, 0.0, 1.0, 2.0]);
    assert_eq!(order(kernel(0, false)), [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    let kernel = Kernel::Sort { axis: 1, descending: false, ordered: false };
    let sorted = run_kernel(&kernel, vec![keys(), out(DType::F32, &[2, 1, 3])]);
    assert_eq!(sorted[..2], [-1.0, 3.0]);
    assert!(sorted[2].is_nan());
}

/// The two halves of a merge are the sorted whole, with equal keys in order.
#[test]
fn merges_keep_halves() {
    let piece = |place: u64, dtype, values: &[f64]| {
        let block = Block::new(&[(place, place + 1), (0, 3)]);
        Arg::new(block, &[2, 3], Tensor::from_f64(dtype, [1, 3], values))
    };
    let blocks = [[-2.0, 1.0, 5.0], [1.0, 2.0, 9.0]];
    let orders = [[4.0, 2.0, 0.0], [1.0, 3.0, 5.0]];
    let half = |own: usize| {
        let (place, other) = (own as u64, 1 - own);
        let args = vec![
            piece(place, DType::I32, &blocks[own]),
            piece(place, DType::I32, &orders[own]),
            piece(place, DType::I32, &blocks[other]),
            piece(place, DType::I32, &orders[other]),
            piece(place, DType::I32, &[0.0; 3]),
            piece(place, DType::I32, &[0.0; 3]),
            piece(place, DType::I32, &[0.0; 3]),
        ];
        run_kernel(&Kernel::Merge { side: 0, descending: false, ordered: true }, args)
    };
    // -2, 1 (order 1), 1 (order 2) | 2, 5, 9.
    assert_eq!(half(0), [0.0, 3.0, 1.0]);
    assert_eq!(half(1), [1.0, 5.0, 2.0]);
    let keys = vec![
        piece(1, DType::I32, &[9.0, 4.0, 0.0]),
        piece(1, DType::I32, &[7.0, 5.0, 1.0]),
        piece(1, DType::I32, &[0.0; 3]),
    ];
    let kernel = Kernel::Merge { side: 0, descending: true, ordered: false };
    assert_eq!(run_kernel(&kernel, keys), [4.0, 1.0, 0.0]);
}

#[test]
fn picks_and_takes() {
    let own = arg(DType::F16, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let other = arg(DType::F16, &[2, 2], &[5.0, 6.0, 7.0, 8.0]);
    let picks = arg(DType::I32, &[2, 2], &[2.0, 0.0, 3.0, 1.0]);
    let picked = run_kernel(&Kernel::Pick, vec![own, other, picks, out(DType::F16, &[2, 2])]);
    assert_eq!(picked, [5.0, 1.0, 8.0, 4.0]);
    let data = arg(DType::U8, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let indices = || arg(DType::I32, &[2, 2], &[1.0, 0.0, 0.0, 9.0]);
    let take =
        |axis| run_kernel(&Kernel::Take { axis }, vec![data.clone(), indices(), out(DType::U8, &[2, 2])]);
    assert_eq!(take(0), [3.0, 2.0, 1.0, 4.0]);
    assert_eq!(take(1), [2.0, 1.0, 3.0, 4.0]);
}

#[test]
fn refuses_what_does_not_match() {
    let ty = |dtype, lens| OperandType { dtype, lens };
    let keys = ty(DType::F32, &[4, 2]);
    assert_eq!(check_sort(1, &[keys, keys]), Ok(()));
    let error = check_sort(1, &[keys, keys, ty(DType::I64, &[4, 2])]).unwrap_err();
    assert_eq!(error, "i64[4,2] is not an i32 for each element of f32[4,2]");
    assert!(check_sort(2, &[keys, keys]).is_err());
    assert!(check_merge(0, false, &[keys; 3]).is_err(), "dimension 0 has length 4");
    assert!(check_take(0, &[keys, ty(DType::I32, &[4, 2]), ty(DType::F16, &[4, 2])]).is_err());
}

#[test]
fn cycles_follow_the_formulas() {
    let time = |kernel: Kernel, operands: &[OperandType]| number(kernel.cycles(operands, &bow()));
    let (keys, order) =
        (OperandType { dtype: DType::F32, lens: &[3, 8] }, OperandType { dtype: DType::I32, lens: &[3, 8] });
    // 12 pairs a stage, 2 a worker; 6 stages of 3 steps.
    let sort = Kernel::Sort { axis: 1, descending: false, ordered: false };
    assert_eq!(time(sort, &[keys, keys]), 6 * (6 * 2 * 13 + 68) + 38);
    let sort = Kernel::Sort { axis: 1, descending: false, ordered: true };
    assert_eq!(time(sort, &[keys, keys, order]), 6 * (6 * 2 * 11 + 68) + 38);
    let merge = Kernel::Merge { side: 0, descending: false, ordered: false };
    assert_eq!(time(merge, &[keys; 3]), (6 * 4 * 13 + 68) + 3 * (6 * 2 * 13 + 68) + 38);
    assert_eq!(time(Kernel::Pick, &[keys, keys, order, keys]), 6 * (6 + 5 * 4) + 38);
}

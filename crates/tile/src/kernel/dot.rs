//! RowDot: the dot product of one row by one worker, the vertex of hand-written matrix–vector programs.
//! f32, f16 and bf16; products and their sum in index order in f32, rounded once to the output's type.
//! Cycles: a loop of one load–load–accumulate slot a vector, fitted to hardware.md section 9, rows 33 and
//! 34.

use super::cost::{self, c};
use super::values;
use super::{Arg, OperandType, VertexCost};
use pando_base::DType;
use pando_machine::Chip;

/// `row [1.., k], vector [k], out [1..]`.
pub(super) fn check(operands: &[OperandType]) -> Result<(), String> {
    let [row, vector, out] = [operands[0], operands[1], operands[2]];
    if !matches!(row.dtype, DType::F32 | DType::F16 | DType::BF16) || row.dtype != vector.dtype {
        return Err(format!("multiplies f32, f16 or bf16 of one type, not {row} and {vector}"));
    }
    if out.dtype != row.dtype && out.dtype != DType::F32 {
        return Err(format!("the sum is {} or f32, not {}", row.dtype, out.dtype));
    }
    if vector.lens.len() != 1 || row.lens.last() != vector.lens.last() || !is_single(row.lens.split_last()) {
        return Err(format!("{row} is not one row as long as {vector}"));
    }
    if out.num_elements() != 1 {
        return Err(format!("the output {out} is not one element"));
    }
    Ok(())
}

fn is_single(row: Option<(&u64, &[u64])>) -> bool {
    row.is_some_and(|(_, outer)| outer.iter().all(|&len| len == 1))
}

pub(super) fn run(args: &mut [Arg]) {
    let [row, vector, out] = args else { unreachable!("rowdot has three operands") };
    let (row, vector) = (values::to_f32(&row.data), values::to_f32(&vector.data));
    let sum = row.iter().zip(vector.iter()).fold(0.0, |sum, (a, b)| sum + a * b);
    values::write_f32(&mut out.data, &[sum]);
}

/// `5 + ceil(k / vector)` slots: the 105 of row 34 for its k = 1000 / 5 = 200 f32, and 77 for the
/// k = ceil(1000 / 7) = 143 of row 33, whose 3696 cycles are 48 rows of 77 (10000 · 7 rows on 1472 tiles).
pub(super) fn cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    let row = operands[0];
    let vectors = row.num_elements().div_ceil(cost::vector_len(row.dtype, chip));
    VertexCost::Worker((c(5) + c(vectors)).0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::kernel::cost::tests::bow;
    use crate::kernel::values::tests::{arg, out, run as run_kernel};

    #[test]
    fn sums_products() {
        let dot = |dtype, a: &[f64], b: &[f64], sum| {
            let k = a.len() as u64;
            let args = vec![arg(dtype, &[1, k], a), arg(dtype, &[k], b), out(sum, &[1])];
            run_kernel(&Kernel::RowDot, args)[0]
        };
        assert_eq!(dot(DType::F32, &[1.0, 2.0, 3.0], &[4.0, -5.0, 6.0], DType::F32), 12.0);
        assert_eq!(dot(DType::F16, &[], &[], DType::F16), 0.0);
        // 2048 + 1 + 1: kept in f32, the ones survive; 2050 is an f16.
        assert_eq!(dot(DType::F16, &[2048.0, 1.0, 1.0], &[1.0; 3], DType::F16), 2050.0);
        assert_eq!(dot(DType::F16, &[300.0], &[300.0], DType::F16), f64::INFINITY);
        assert_eq!(dot(DType::F16, &[300.0], &[300.0], DType::F32), 90000.0);
    }

    #[test]
    fn refuses_what_does_not_match() {
        let ty = |dtype, lens| OperandType { dtype, lens };
        assert!(check(&[ty(DType::I32, &[4]), ty(DType::I32, &[4]), ty(DType::I32, &[1])]).is_err());
        let error =
            check(&[ty(DType::F32, &[2, 4]), ty(DType::F32, &[4]), ty(DType::F32, &[1])]).unwrap_err();
        assert_eq!(error, "f32[2,4] is not one row as long as f32[4]");
        assert!(check(&[ty(DType::F32, &[4]), ty(DType::F32, &[4]), ty(DType::F32, &[2])]).is_err());
    }

    /// hardware.md section 9 rows 33 and 34.
    #[test]
    fn slots_of_the_matrix_vector_tutorial() {
        let slots = |k: u64| {
            let (row, vector) = ([1, k], [k]);
            let ty = |lens| OperandType { dtype: DType::F32, lens };
            cycles(&[ty(&row), ty(&vector), ty(&[1])], &bow())
        };
        assert_eq!(slots(200), VertexCost::Worker(105));
        assert_eq!(slots(143), VertexCost::Worker(77));
        assert_eq!(slots(0), VertexCost::Worker(5));
    }
}

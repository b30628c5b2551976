//! Gather: rows of a table by index, the embedding lookup. Any element type; indices of any integer type.
//! Cycles: MultiSlice, hardware.md section 6.5.

use super::cost::{self, c};
use super::values::{self, with_int};
use super::{Arg, OperandType, VertexCost, same_but_ones};
use pando_base::Tensor;
use pando_machine::Chip;

/// `data, indices, out`: `out` has `axis` of `data` replaced by the dimensions of `indices`.
pub(super) fn check(axis: u8, size: u64, operands: &[OperandType]) -> Result<(), String> {
    let [data, indices, out] = [operands[0], operands[1], operands[2]];
    let axis = usize::from(axis);
    if axis >= data.lens.len() {
        return Err(format!("the data {data} has no axis {axis}"));
    }
    if size < data.lens[axis].max(1) {
        return Err(format!("size {size} is less than the {} rows at hand", data.lens[axis].max(1)));
    }
    if !indices.dtype.is_int() {
        return Err(format!("indices are integers, not {}", indices.dtype));
    }
    if data.dtype != out.dtype {
        return Err(format!("gathers {data} into {out}; both need one type"));
    }
    let expected = [&data.lens[..axis], indices.lens, &data.lens[axis + 1..]].concat();
    if !same_but_ones(&expected, out.lens) {
        return Err(format!("rows of {data} at indices {indices} along axis {axis} are not {out}"));
    }
    Ok(())
}

/// Indices are clamped to `[0, size)`; rows that are not in the data's block give zero, so that the
/// answers of tiles with different rows can be added.
pub(super) fn run(axis: u8, size: u64, args: &mut [Arg]) {
    let [data, indices, out] = args else { unreachable!("gather has three operands") };
    let axis = usize::from(axis);
    let (begin, end) = data.block.0[axis];
    let row = |index: i128| {
        let index = index.clamp(0, i128::from(size) - 1) as u64;
        (begin..end).contains(&index).then(|| (index - begin) as usize)
    };
    let rows: Vec<Option<usize>> = read_indices(&indices.data).into_iter().map(row).collect();
    let row_bytes =
        (data.data.shape()[axis + 1..].iter().product::<u64>() * data.data.dtype().size_bytes()) as usize;
    if row_bytes == 0 || rows.is_empty() {
        return;
    }
    let table_bytes = (end - begin) as usize * row_bytes;
    let source = data.data.bytes();
    let outer = out.data.bytes_mut().chunks_exact_mut(rows.len() * row_bytes);
    for (o, block) in outer.enumerate() {
        for (to, row) in block.chunks_exact_mut(row_bytes).zip(&rows) {
            match row {
                Some(row) => to.copy_from_slice(&source[o * table_bytes + row * row_bytes..][..row_bytes]),
                None => to.fill(0),
            }
        }
    }
}

pub(super) fn read_indices(indices: &Tensor) -> Vec<i128> {
    with_int!(indices.dtype(), T => values::slice::<T>(indices).iter().map(|&index| index.into()).collect())
}

/// "W(30 + in-range·(19 + 2/vec(2 elems))); 8-bit 4 elems @3".
///
/// Assumption: every index is in range, the dearer case; 8-byte elements are pairs of 4-byte ones; every
/// slice outside the axis counts as an index of its own; a single one is split over the workers.
pub(super) fn cycles(axis: u8, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let [data, indices] = [operands[0], operands[1]];
    let axis = usize::from(axis);
    let slices = cost::product(&data.lens[..axis]).saturating_mul(indices.num_elements());
    let row = cost::product(&data.lens[axis + 1..]);
    let width = cost::vector_len(data.dtype, chip);
    let (vectors, per_vector) = match data.dtype.size_bytes() {
        1 => (row.div_ceil((width / 2).max(1)), 3),
        2 => (row.div_ceil((width / 2).max(1)), 2),
        _ => (row.div_ceil(width), 2),
    };
    let vectors = if slices == 1 { cost::per_worker(vectors, chip) } else { vectors };
    let slots = c(cost::per_worker(slices, chip)) * (c(19) + c(vectors) * c(per_vector));
    cost::supervisor(c(30) + slots, 0, chip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;
    use crate::kernel::Kernel;
    use crate::kernel::cost::tests::{bow, cycles as number};
    use crate::kernel::values::tests::{arg, out, run as run_kernel};
    use pando_base::DType;

    #[test]
    fn clamps_indices() {
        let data = arg(DType::F16, &[3, 2], &[0.0, 1.0, 10.0, 11.0, 20.0, 21.0]);
        let indices = arg(DType::I8, &[4], &[2.0, -5.0, 100.0, 1.0]);
        let kernel = Kernel::Gather { axis: 0, size: 3 };
        let rows = run_kernel(&kernel, vec![data, indices, out(DType::F16, &[4, 2])]);
        assert_eq!(rows, [20.0, 21.0, 0.0, 1.0, 20.0, 21.0, 10.0, 11.0]);
    }

    #[test]
    fn inner_axes_and_missing_rows() {
        // Columns 2..4 of a variable [2, 5]; indices [1, 2].
        let block = Block::new(&[(0, 2), (2, 4)]);
        let data = Tensor::from_f64(DType::I32, [2, 2], &[2.0, 3.0, 12.0, 13.0]);
        let data = Arg::new(block, &[2, 5], data);
        let indices = arg(DType::U64, &[1, 2], &[3.0, 4.0]);
        let mut result = out(DType::I32, &[2, 1, 2]);
        result.data = Tensor::from_f64(DType::I32, [2, 1, 2], &[9.0; 4]);
        let kernel = Kernel::Gather { axis: 1, size: 5 };
        assert_eq!(run_kernel(&kernel, vec![data, indices, result]), [3.0, 0.0, 13.0, 0.0]);
    }

    #[test]
    fn refuses_what_does_not_match() {
        let ty = |dtype, lens| OperandType { dtype, lens };
        let data = ty(DType::F32, &[4, 2]);
        let check = |axis, indices, out| check(axis, 4, &[data, indices, out]);
        assert_eq!(check(0, ty(DType::I32, &[3]), ty(DType::F32, &[3, 2])), Ok(()));
        assert_eq!(check(0, ty(DType::I32, &[3]), ty(DType::F32, &[1, 3, 2])), Ok(()));
        let error = check(0, ty(DType::F32, &[3]), ty(DType::F32, &[3, 2])).unwrap_err();
        assert_eq!(error, "indices are integers, not f32");
        assert!(check(2, ty(DType::I32, &[3]), ty(DType::F32, &[3, 2])).is_err());
        assert!(check(0, ty(DType::I32, &[3]), ty(DType::F32, &[2, 3])).is_err());
    }

    #[test]
    fn cycles_follow_the_formula() {
        let time = |dtype, rows: u64, row: u64| {
            let lens: [&[u64]; 3] = [&[100, row], &[rows], &[rows, row]];
            let dtypes = [dtype, DType::I32, dtype];
            let operands: Vec<_> =
                dtypes.into_iter().zip(lens).map(|(dtype, lens)| OperandType { dtype, lens }).collect();
            number(cycles(0, &operands, &bow()))
        };
        assert_eq!(time(DType::F32, 12, 8), 6 * (30 + 2 * (19 + 4 * 2)) + 38);
        assert_eq!(time(DType::F16, 12, 8), 6 * (30 + 2 * (19 + 4 * 2)) + 38);
        assert_eq!(time(DType::F32, 1, 24), 6 * (30 + 19 + 2 * 2) + 38, "one row is split");
        assert!((2..50).all(|n| time(DType::F16, n, 10) <= time(DType::F16, n + 1, 10)));
        assert!((2..50).all(|n| time(DType::F32, 5, n) <= time(DType::F32, 5, n + 1)));
    }
}

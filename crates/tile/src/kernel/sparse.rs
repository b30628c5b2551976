//! A dense block times the blocks of a sparse matrix that a tile holds: `x [n, k], values [.., s, side, side], rows [.., s],
//! columns [.., s], out [.., n, m]`. Rows and columns count blocks in the whole matrix; a block outside the part at
//! hand is none of the tile's. Sums are kept in f32 and rounded once.
//! Cycles: hardware.md section 6.7.

use super::cost::{self, c};
use super::gather::read_indices;
use super::values;
use super::{Arg, OperandType, VertexCost};
use pando_base::DType;
use pando_machine::Chip;

/// Number of blocks, and their side.
fn blocks(values: OperandType) -> (u64, u64) {
    let (count, block) = values.lens.split_at(values.lens.len() - 2);
    (cost::product(count), block[1])
}

pub(super) fn check(operands: &[OperandType]) -> Result<(), String> {
    let [x, values, rows, columns, out] = [0, 1, 2, 3, 4].map(|at| operands[at]);
    if !matches!(x.dtype, DType::F32 | DType::F16) || x.dtype != values.dtype || !out.dtype.is_float() {
        return Err(format!(
            "multiplies {x} by blocks {values} to {out}; blocks are f32 or f16 as the operand is"
        ));
    }
    if values.lens.len() < 2 || x.lens.len() != 2 || out.lens.len() < 2 {
        return Err(format!("{x}, blocks {values} and {out} are too few dimensions for a product"));
    }
    let (count, side) = blocks(values);
    let [n, m] = [out.lens[out.lens.len() - 2], out.lens[out.lens.len() - 1]];
    let square = values.lens[values.lens.len() - 2] == side && side > 0;
    let whole = square && x.lens[1].is_multiple_of(side) && m.is_multiple_of(side);
    if !whole || x.lens[0] != n || cost::product(out.lens) != n * m {
        return Err(format!("{x} times blocks {values} is not {out}"));
    }
    let places = [rows, columns].iter().all(|index| index.dtype.is_int() && index.num_elements() == count);
    if places {
        Ok(())
    } else {
        Err(format!("rows {rows} and columns {columns} are not one for each of {values}"))
    }
}

pub(super) fn run(args: &mut [Arg]) {
    let [x, blocks, rows, columns, out] = args else { unreachable!("a sparse product has five operands") };
    let side = blocks.data.shape()[blocks.data.shape().rank() - 1] as usize;
    let size = |arg: &Arg, back: usize| arg.data.shape()[arg.data.shape().rank() - back] as usize;
    let (batch, width, height) = (size(x, 2), size(x, 1), size(out, 1));
    let begin = |arg: &Arg| i128::from(arg.block.0[arg.block.rank() - 1].0) / side as i128;
    let (first_column, first_row) = (begin(x), begin(out));
    let local = |index: i128, first: i128, size: usize| {
        usize::try_from(index - first).ok().filter(|at| (at + 1) * side <= size)
    };
    let (x, weights) = (values::to_f32(&x.data), values::to_f32(&blocks.data));
    let mut sums = vec![0f32; batch * height];
    for (block, (row, column)) in weights
        .chunks_exact(side * side)
        .zip(read_indices(&rows.data).into_iter().zip(read_indices(&columns.data)))
    {
        let (Some(row), Some(column)) = (local(row, first_row, height), local(column, first_column, width))
        else {
            continue;
        };
        for n in 0..batch {
            let input = &x[n * width + column * side..][..side];
            let output = &mut sums[n * height + row * side..][..side];
            for (sum, weights) in output.iter_mut().zip(block.chunks_exact(side)) {
                *sum += weights.iter().zip(input).map(|(w, x)| w * x).sum::<f32>();
            }
        }
    }
    values::write_f32(&mut out.data, &sums);
}

/// Elements: "sup 30 + 47(avg+1) + 46/bucket; worker 25-33 + X·(11-15 + Y·{3 per 4 f32 / 8 f16 outputs})" with X rows
/// of Y elements. Blocks: "coeff load area/(2 f32|4 f16)+15 per block; cyc per z: 4x4 2 f16 / 4 f32; 8x8 4/8; 16x16 4;
/// overhead 14-25".
///
/// Assumptions: of a range the upper end applies; one bucket, whose sub-groups all match (avg = 1); workers divide the
/// rows of elements, and the batch of blocks; other sides take as many multiplications a cycle as the next smaller one
/// of these; f32 of 16 x 16 takes twice 8.
pub(super) fn cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    let [x, values, out] = [operands[0], operands[1], operands[4]];
    let (count, side) = blocks(values);
    let (batch, height) = (x.lens[0], out.lens[out.lens.len() - 1]);
    let half = x.dtype == DType::F16;
    if side == 1 {
        let rows = cost::per_worker(height.min(count), chip);
        let each = count.div_ceil(height.clamp(1, count.max(1)));
        let passes = batch.div_ceil(if half { 8 } else { 4 });
        let slots = c(33) + c(rows) * (c(15) + c(each) * c(3) * c(passes));
        return cost::supervisor(slots, 30 + 47 * 2 + 46, chip);
    }
    let area = side.saturating_mul(side);
    let load = area.div_ceil(if half { 4 } else { 2 }) + 15;
    let per_row = match (side, half) {
        (16, true) => 4,
        (8, true) => 4,
        (4, true) => 2,
        (16, false) => 16,
        (8, false) => 8,
        (4, false) => 4,
        (side, true) => area.div_ceil(if side < 8 { 8 } else { 64 }),
        (_, false) => area.div_ceil(4),
    };
    let slots = c(25) + c(cost::per_worker(batch, chip)) * c(per_row);
    cost::launched(c(count) * (c(load) + c(cost::workers(chip)) * slots) + c(30), chip)
}

pub(super) fn flops(operands: &[OperandType]) -> u64 {
    operands[1].num_elements().saturating_mul(operands[0].lens[0]).saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::kernel::cost::tests::{bow, cycles as number};
    use crate::kernel::values::tests::{arg, out, run as run_kernel};

    /// A block at row 1, column 0, one elsewhere, and an empty slot.
    #[test]
    fn blocks_are_placed_by_their_indices() {
        let x = arg(DType::F32, &[1, 4], &[1.0, 2.0, 3.0, 4.0]);
        let blocks = [1.0, 2.0, 3.0, 4.0, 9.0, 9.0, 9.0, 9.0, 0.0, 0.0, 0.0, 0.0];
        let values = arg(DType::F32, &[1, 3, 2, 2], &blocks);
        let rows = arg(DType::I32, &[1, 3], &[1.0, 7.0, 0.0]);
        let columns = arg(DType::I32, &[1, 3], &[0.0, 0.0, 0.0]);
        let result =
            run_kernel(&Kernel::SparseMatMul, vec![x, values, rows, columns, out(DType::F32, &[1, 4])]);
        assert_eq!(result, [0.0, 0.0, 1.0 + 4.0, 3.0 + 8.0]);
    }

    #[test]
    fn cycles_follow_the_formulas() {
        let chip = bow();
        let f16 = |lens| OperandType { dtype: DType::F16, lens };
        let index = |lens| OperandType { dtype: DType::I32, lens };
        let of = |values, places, x, out| {
            number(cycles(&[f16(x), f16(values), index(places), index(places), f16(out)], &chip))
        };
        let dispatch = chip.issue.vertex_dispatch_cycles;
        let blocks = of(&[10, 16, 16], &[10], &[96, 64], &[96, 32]);
        assert_eq!(blocks, 10 * (64 + 15 + 6 * (25 + 16 * 4)) + 30 + dispatch);
        let elements = of(&[120, 1, 1], &[120], &[16, 64], &[16, 60]);
        assert_eq!(elements, 6 * (33 + 10 * (15 + 2 * 3 * 2)) + 30 + 94 + 46 + dispatch);
    }

    #[test]
    fn refuses_what_does_not_match() {
        let f16 = |lens| OperandType { dtype: DType::F16, lens };
        let index = OperandType { dtype: DType::I32, lens: &[2] };
        let values = f16(&[2, 4, 4]);
        assert_eq!(check(&[f16(&[3, 8]), values, index, index, f16(&[3, 12])]), Ok(()));
        assert!(check(&[f16(&[3, 8]), values, index, index, f16(&[3, 10])]).is_err());
        assert!(check(&[f16(&[3, 8]), values, f16(&[2]), index, f16(&[3, 12])]).is_err());
        assert!(check(&[f16(&[3, 8]), f16(&[2, 4, 2]), index, index, f16(&[3, 12])]).is_err());
    }
}

//! Scatter: rows of updates go to rows by index, in order; the last one stays, or all are combined
//! (functions and types as [`super::combine`] has them; sums of floats are kept in f32 and rounded once).
//! Any element type without a function; indices of any integer type.
//! Cycles: MultiUpdateAdd, hardware.md section 6.5.

use super::combine::{self, Combine, Combining};
use super::cost::{self, c};
use super::gather::read_indices;
use super::{Arg, OperandType, ScatterAttrs, VertexCost, same_but_ones};
use pando_base::{ReduceFn, Tensor};
use pando_machine::Chip;

/// `data, indices, updates, out`, or without `data`: then `out` begins as neutral elements.
pub(super) fn check(attrs: &ScatterAttrs, operands: &[OperandType]) -> Result<(), String> {
    let [indices, updates, out] = operands[operands.len() - 3..] else { unreachable!("counted before") };
    let axis = usize::from(attrs.axis);
    // Partial results have one more dimension in front, of length 1.
    let rows = &out.lens[out.lens.len().saturating_sub(updates.lens.len())..];
    if axis >= updates.lens.len() || !same_but_ones(rows, out.lens) || rows.len() != updates.lens.len() {
        return Err(format!("the updates {updates} and the output {out} have no common axis {axis}"));
    }
    if attrs.size < rows[axis].max(1) {
        return Err(format!("size {} is less than the {} rows at hand", attrs.size, rows[axis].max(1)));
    }
    if !indices.dtype.is_int() || indices.num_elements() != updates.lens[axis] {
        return Err(format!("indices {indices} are not an integer for each row of {updates}"));
    }
    let others = (0..rows.len()).filter(|&dim| dim != axis).all(|dim| rows[dim] == updates.lens[dim]);
    if !others || !combine::are_alike(updates.dtype, out.dtype) {
        return Err(format!("rows of {updates} are not rows of {out}"));
    }
    if attrs.onto && (operands[0].lens != rows || !combine::are_alike(operands[0].dtype, out.dtype)) {
        return Err(format!("the data {} is not what {out} begins as", operands[0]));
    }
    match attrs.combine {
        Some(func) => combine::check_type(func, updates.dtype),
        None if attrs.onto && [operands[0].dtype, updates.dtype] == [out.dtype; 2] => Ok(()),
        None => Err("without a function rows replace those of data of one type".into()),
    }
}

/// Indices are clamped to `[0, size)`; those of rows that are not in the output's block do nothing.
pub(super) fn run(attrs: &ScatterAttrs, args: &mut [Arg]) {
    let (out, inputs) = args.split_last_mut().expect("a scatter has an output");
    let [indices, updates] = &inputs[inputs.len() - 2..] else { unreachable!("a scatter has updates") };
    let axis = usize::from(attrs.axis);
    let leading = out.block.rank() - updates.block.rank();
    let (begin, end) = out.block.0[leading + axis];
    let target = |index: i128| {
        let index = index.clamp(0, i128::from(attrs.size) - 1) as u64;
        (begin..end).contains(&index).then(|| (index - begin) as usize)
    };
    let rows = Rows {
        func: attrs.combine,
        targets: read_indices(&indices.data).into_iter().map(target).collect(),
        row: updates.data.shape()[axis + 1..].iter().product::<u64>() as usize,
        length: (end - begin) as usize,
    };
    let updates = &updates.data;
    match (attrs.combine, attrs.onto) {
        (None, _) => rows.replace(&inputs[0].data, updates, &mut out.data),
        (_, true) => combine::run(&rows, &[updates, &inputs[0].data], &mut out.data),
        (_, false) => combine::run(&rows, &[updates], &mut out.data),
    }
}

struct Rows {
    func: Option<ReduceFn>,
    /// For each update the row of the output's block.
    targets: Vec<Option<usize>>,
    /// Elements of a row.
    row: usize,
    /// Rows of the output's block.
    length: usize,
}

impl Rows {
    /// For every row that moves, where it begins in the updates and in the output, in order.
    fn moves(&self, updates: usize) -> impl Iterator<Item = (usize, usize)> {
        let all = self.targets.len() * self.row;
        (0..updates.checked_div(all).unwrap_or(0)).flat_map(move |outer| {
            let to = move |(i, target): (usize, &Option<usize>)| {
                let begin = outer * self.length * self.row;
                target.map(|target| (outer * all + i * self.row, begin + target * self.row))
            };
            self.targets.iter().enumerate().filter_map(to)
        })
    }

    fn replace(&self, data: &Tensor, updates: &Tensor, out: &mut Tensor) {
        let size = data.dtype().size_bytes() as usize;
        let count = updates.num_elements() as usize;
        let bytes = out.bytes_mut();
        bytes.copy_from_slice(data.bytes());
        for (from, to) in self.moves(count) {
            let length = self.row * size;
            bytes[to * size..][..length].copy_from_slice(&updates.bytes()[from * size..][..length]);
        }
    }
}

impl Combining for Rows {
    fn run<T: Combine>(&self, inputs: &[&[T]], out: &mut [T]) {
        let func = self.func.expect("rows without a function are replaced");
        match inputs.get(1) {
            Some(data) => out.copy_from_slice(data),
            None => out.fill(T::neutral(func)),
        }
        for (from, to) in self.moves(inputs[0].len()) {
            let rows = out[to..][..self.row].iter_mut().zip(&inputs[0][from..]);
            rows.for_each(|(sum, &update)| *sum = T::combine(func, *sum, update));
        }
    }
}

/// "W(32..+ in-range(11 or 12 + (atoms-1)·3) + 5·out-of-range)" and the copy of the data before.
///
/// Assumptions: an atom is a 32-bit word; the workers divide the row, each looks at every index; every
/// function takes the time of the sum; indices are spread evenly over all rows, so the block's share of
/// them is in range; every slice outside the axis counts as indices of its own.
pub(super) fn cycles(attrs: &ScatterAttrs, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let [updates, out] = [operands[operands.len() - 2], operands[operands.len() - 1]];
    let axis = usize::from(attrs.axis);
    let rows = out.lens[out.lens.len() - updates.lens.len() + axis];
    let indices = cost::product(&updates.lens[..=axis]);
    let in_range = (u128::from(indices) * u128::from(rows)).div_ceil(u128::from(attrs.size.max(1)));
    let in_range = (in_range as u64).min(indices);
    let row_bytes = cost::product(&updates.lens[axis + 1..]).saturating_mul(updates.dtype.size_bytes());
    let atoms = cost::per_worker(row_bytes.div_ceil(4), chip).max(1);
    let slots = c(32) + c(in_range) * (c(12) + c(atoms - 1) * c(3)) + c(5) * c(indices - in_range);
    let copied = out.num_bytes().div_ceil(chip.issue.memcpy_bytes_per_cycle.max(1));
    cost::supervisor(slots, copied, chip)
}

/// What [`Kernel::Update`](super::Kernel::Update) does, as a scatter.
pub(super) fn update(axis: u8, size: u64) -> ScatterAttrs {
    ScatterAttrs { combine: None, axis, size, onto: true }
}

/// "DynamicSlice1D 25 + W(39 + sub(24+2·vecs))", section 6.5, which its update shares.
///
/// Assumption: the workers divide the vectors of the row, and every slice outside the axis is a part of its own.
pub(super) fn update_cycles(axis: u8, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let row = operands[2];
    let parts = cost::product(&row.lens[..usize::from(axis)]);
    let length = cost::product(&row.lens[usize::from(axis)..]);
    let vectors = cost::per_worker(length.div_ceil(cost::vector_len(row.dtype, chip)), chip);
    cost::supervisor(c(39) + c(parts) * (c(24) + c(2) * c(vectors)), 25, chip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;
    use crate::kernel::Kernel;
    use crate::kernel::cost::tests::{bow, cycles as number};
    use crate::kernel::values::tests::{arg, out, run as run_kernel};
    use pando_base::DType;

    fn kernel(combine: Option<ReduceFn>, onto: bool) -> Kernel {
        Kernel::Scatter(ScatterAttrs { combine, axis: 0, size: 3, onto })
    }

    #[test]
    fn the_last_update_stays_or_all_are_added() {
        let data = || arg(DType::F32, &[3, 2], &[0.0; 6]);
        let indices = || arg(DType::I32, &[3], &[2.0, -1.0, 7.0]);
        let updates = || arg(DType::F32, &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let operands = || vec![data(), indices(), updates(), out(DType::F32, &[3, 2])];
        assert_eq!(run_kernel(&kernel(None, true), operands()), [3.0, 4.0, 0.0, 0.0, 5.0, 6.0]);
        let sums = run_kernel(&kernel(Some(ReduceFn::Sum), true), operands());
        assert_eq!(sums, [3.0, 4.0, 0.0, 0.0, 6.0, 8.0]);
        let products = vec![indices(), updates(), out(DType::F32, &[1, 3, 2])];
        let products = run_kernel(&kernel(Some(ReduceFn::Prod), false), products);
        assert_eq!(products, [3.0, 4.0, 1.0, 1.0, 5.0, 12.0]);
    }

    #[test]
    fn rows_elsewhere_are_left_alone() {
        let indices = arg(DType::U8, &[2], &[0.0, 1.0]);
        let updates = arg(DType::I16, &[2], &[5.0, 6.0]);
        let block = Block::new(&[(1, 3)]);
        let data = Arg::new(block.clone(), &[3], Tensor::from_f64(DType::I16, [2], &[1.0, 2.0]));
        let result = Arg::new(block, &[3], Tensor::zeros(DType::I16, [2]));
        let max = run_kernel(&kernel(Some(ReduceFn::Max), true), vec![data, indices, updates, result]);
        assert_eq!(max, [6.0, 2.0]);
    }

    #[test]
    fn refuses_what_does_not_match() {
        let ty = |dtype, lens| OperandType { dtype, lens };
        let attrs = ScatterAttrs { combine: None, axis: 0, size: 4, onto: true };
        let (data, updates) = (ty(DType::F32, &[4, 2]), ty(DType::F32, &[3, 2]));
        assert_eq!(check(&attrs, &[data, ty(DType::I32, &[3]), updates, data]), Ok(()));
        let error = check(&attrs, &[data, ty(DType::F32, &[3]), updates, data]).unwrap_err();
        assert_eq!(error, "indices f32[3] are not an integer for each row of f32[3,2]");
        assert!(check(&attrs, &[data, ty(DType::I32, &[3]), ty(DType::F32, &[3, 1]), data]).is_err());
        let fresh = ScatterAttrs { onto: false, ..attrs };
        assert!(check(&fresh, &[ty(DType::I32, &[3]), updates, data]).is_err());
    }

    #[test]
    fn cycles_follow_the_formula() {
        let time = |rows: u64, updates: u64, row: u64| {
            let attrs = ScatterAttrs { combine: Some(ReduceFn::Sum), axis: 0, size: 100, onto: false };
            let lens: [&[u64]; 3] = [&[updates], &[updates, row], &[rows, row]];
            let dtypes = [DType::I32, DType::F32, DType::F32];
            let operands: Vec<_> =
                dtypes.into_iter().zip(lens).map(|(dtype, lens)| OperandType { dtype, lens }).collect();
            number(cycles(&attrs, &operands, &bow()))
        };
        // All 10 in range, 2 words a worker; half of them in range.
        assert_eq!(time(100, 10, 12), 6 * (32 + 10 * 15) + 600 + 38);
        assert_eq!(time(50, 10, 12), 6 * (32 + 5 * 15 + 5 * 5) + 300 + 38);
    }
}

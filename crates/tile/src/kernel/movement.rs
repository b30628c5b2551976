//! Kernels that move or make elements without arithmetic: copy, fill, broadcast, transpose, iota.
//! Operands may have any element type (bits are moved), iota any but bool. Cycles: hardware.md section
//! 6.5 (copies, transposes, iota) and 6.2 (fill). Assumption: a broadcast, which has no row of its own, is
//! priced as copies of rows.

use super::cost::{self, Cycles, c};
use super::values::{self, Sizes, with_int, with_size};
use super::{Arg, OperandType, VertexCost, same_but_ones};
use pando_base::DType;
use pando_machine::Chip;

pub(super) fn check_copy(operands: &[OperandType]) -> Result<(), String> {
    let [input, out] = [operands[0], operands[1]];
    if input.dtype.size_bytes() == out.dtype.size_bytes() && same_but_ones(input.lens, out.lens) {
        return Ok(());
    }
    Err(format!("copies {input} to {out}; both need one shape and types of one size"))
}

pub(super) fn check_broadcast(dims: &[u8], operands: &[OperandType]) -> Result<(), String> {
    let [input, out] = [operands[0], operands[1]];
    if input.dtype != out.dtype {
        return Err(format!("broadcasts {input} to {out}; both need one type"));
    }
    if dims.len() != input.lens.len() {
        return Err(format!("has {} dims for the input {input}", dims.len()));
    }
    let in_range = dims.iter().all(|&dim| usize::from(dim) < out.lens.len());
    // A length of 1 goes anywhere.
    let long = dims.iter().zip(input.lens).filter(|&(_, &len)| len != 1);
    let long: super::Dims = long.map(|(&dim, _)| dim).collect();
    if !in_range || !are_distinct(&long) {
        return Err(format!("dims {dims:?} are not distinct dimensions of the output {out}"));
    }
    for (&len, &dim) in input.lens.iter().zip(dims) {
        let wanted = out.lens[usize::from(dim)];
        if len != wanted && len != 1 {
            return Err(format!(
                "an input length of {len} cannot become {wanted} (dimension {dim} of {out})"
            ));
        }
    }
    Ok(())
}

pub(super) fn check_transpose(perm: &[u8], operands: &[OperandType]) -> Result<(), String> {
    let [input, out] = [operands[0], operands[1]];
    if input.dtype != out.dtype {
        return Err(format!("transposes {input} to {out}; both need one type"));
    }
    let in_range = perm.iter().all(|&dim| usize::from(dim) < input.lens.len());
    if perm.len() != input.lens.len() || !in_range || !are_distinct(perm) {
        return Err(format!("perm {perm:?} does not hold each dimension of {input} once"));
    }
    if perm.iter().map(|&dim| input.lens[usize::from(dim)]).ne(out.lens.iter().copied()) {
        return Err(format!("{input} permuted by {perm:?} does not have the shape of {out}"));
    }
    Ok(())
}

pub(super) fn check_iota(axis: u8, operands: &[OperandType]) -> Result<(), String> {
    let out = operands[0];
    if usize::from(axis) >= out.lens.len() {
        return Err(format!("{out} has no axis {axis}"));
    }
    if out.dtype == DType::Bool {
        return Err("indices are numbers, not bool".into());
    }
    Ok(())
}

pub(super) fn are_distinct(dims: &[u8]) -> bool {
    dims.iter().enumerate().all(|(i, dim)| !dims[..i].contains(dim))
}

pub(super) fn run_copy(args: &mut [Arg]) {
    let [input, out] = args else { unreachable!("copy has two operands") };
    out.data.bytes_mut().copy_from_slice(input.data.bytes());
}

pub(super) fn run_fill(value: f64, args: &mut [Arg]) {
    let out = &mut args[0].data;
    let dtype = out.dtype();
    let size = dtype.size_bytes() as usize;
    let mut element = [0; 8];
    dtype.write_f64(value, &mut element[..size]);
    out.bytes_mut().chunks_exact_mut(size).for_each(|bytes| bytes.copy_from_slice(&element[..size]));
}

pub(super) fn run_broadcast(dims: &[u8], args: &mut [Arg]) {
    let [input, out] = args else { unreachable!("broadcast has two operands") };
    let lens = values::sizes(out.data.shape());
    let source = values::sizes(input.data.shape());
    let mut strides = Sizes::from_elem(0, lens.len());
    for ((&dim, stride), _) in
        dims.iter().zip(values::strides(&source)).zip(&source).filter(|&(_, &len)| len != 1)
    {
        strides[usize::from(dim)] = stride;
    }
    rearrange(input, out, &lens, &strides);
}

pub(super) fn run_transpose(perm: &[u8], args: &mut [Arg]) {
    let [input, out] = args else { unreachable!("transpose has two operands") };
    let source = values::strides(&values::sizes(input.data.shape()));
    let strides: Sizes = perm.iter().map(|&dim| source[usize::from(dim)]).collect();
    let lens = values::sizes(out.data.shape());
    rearrange(input, out, &lens, &strides);
}

fn rearrange(input: &Arg, out: &mut Arg, lens: &[usize], strides: &[usize]) {
    with_size!(out.data.dtype(), SIZE => {
        values::copy_strided::<[u8; SIZE]>(values::chunks(&input.data), lens, strides, values::chunks_mut(&mut out.data))
    });
}

/// Indices count in the whole variable; they wrap in integer types and round in float types.
pub(super) fn run_iota(axis: u8, args: &mut [Arg]) {
    let axis = usize::from(axis);
    let out = &mut args[0];
    let (begin, end) = out.block.0[axis];
    let repeat: u64 = out.data.shape()[axis + 1..].iter().product();
    let count = out.data.num_elements() as usize;
    let index = (begin..end).flat_map(|index| std::iter::repeat_n(index, repeat as usize));
    let indices = index.cycle().take(count);
    let dtype = out.data.dtype();
    if dtype.is_float() {
        // By way of f64, which holds every index of a variable that fits a machine, and one rounding.
        let elements = out.data.bytes_mut().chunks_exact_mut(dtype.size_bytes() as usize);
        elements.zip(indices).for_each(|(bytes, index)| dtype.write_f64(index as f64, bytes));
    } else {
        with_int!(dtype, T => {
            values::slice_mut::<T>(&mut out.data).iter_mut().zip(indices).for_each(|(x, index)| *x = index as T)
        });
    }
}

/// 8 bytes a cycle plus "~20-30 setup per copy vertex" (section 6.5). Assumption: the upper end, 30.
pub(super) fn copy_cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    let words = operands[1].num_bytes().div_ceil(chip.issue.memcpy_bytes_per_cycle.max(1));
    cost::launched(c(words) + c(30), chip)
}

/// Section 6.2: `23 + n/2`, for f16 `26 + n/4`.
///
/// Assumption: of each worker, and of other types by the vectors they fill, with the set-up of f16 if they
/// have its size.
pub(super) fn fill_cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    let out = operands[0];
    let around = if out.dtype.size_bytes() == 2 { 26 } else { 23 };
    cost::supervisor(c(around) + c(worker_vectors(out, chip)), 0, chip)
}

pub(super) fn check_count(operands: &[OperandType]) -> Result<(), String> {
    let [input, out] = [operands[0], operands[1]];
    if [input.dtype, out.dtype] != [DType::I32; 2] || input.num_elements() != 1 || out.num_elements() != 1 {
        return Err(format!("counts from one i32 to another, not from {input} to {out}"));
    }
    Ok(())
}

pub(super) fn run_count(args: &mut [Arg]) {
    let [input, out] = args else { unreachable!("count has two operands") };
    let next = values::slice::<i32>(&input.data)[0].wrapping_add(1);
    values::slice_mut::<i32>(&mut out.data)[0] = next;
}

/// Section 6.5: "for-loop counter 43".
pub(super) fn count_cycles(chip: &Chip) -> VertexCost {
    cost::launched(c(43), chip)
}

/// Section 6.5: 3 per vector. Assumption: the set-up is that of fill.
pub(super) fn iota_cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    cost::supervisor(c(23) + c(3) * c(worker_vectors(operands[0], chip)), 0, chip)
}

fn worker_vectors(out: OperandType, chip: &Chip) -> u64 {
    cost::per_worker(out.num_elements(), chip).div_ceil(cost::vector_len(out.dtype, chip))
}

/// Rows of the output that are contiguous in the input, or repeat one element of it.
pub(super) fn broadcast_cycles(dims: &[u8], operands: &[OperandType], chip: &Chip) -> VertexCost {
    let [input, out] = [operands[0], operands[1]];
    let rank = out.lens.len();
    let source = |dim: usize| (0..dims.len()).find(|&i| usize::from(dims[i]) == dim && input.lens[i] > 1);
    // The trailing dimensions that all repeat, or else that all follow the input.
    let repeats = rank > 0 && source(rank - 1).is_none();
    let follows = |dim: &usize| {
        source(*dim).is_none() == repeats
            && (repeats || source(*dim).map(|i| i + rank) == Some(dims.len() + dim))
    };
    let trailing = (0..rank).rev().take_while(follows).count();
    row_copies(out, cost::product(&out.lens[rank - trailing..]), chip)
}

/// Copies of rows by workers.
///
/// Assumption: 15 for set-up and 7 a row, as the vector outer operations have ("15+rows(7|25+...)", section
/// 6.2), and a slot for every 8 bytes as in a copy. Rows are cut when there are fewer than workers.
fn row_copies(out: OperandType, row: u64, chip: &Chip) -> VertexCost {
    let row = row.max(1);
    let rows = out.num_elements() / row;
    let words = row.saturating_mul(out.dtype.size_bytes()).div_ceil(chip.issue.memcpy_bytes_per_cycle.max(1));
    let slots = c(cost::per_worker(rows, chip)) * (c(7) + c(words.div_ceil(cost::sharers(rows, chip))));
    cost::supervisor(c(15) + slots, 0, chip)
}

/// Section 6.5. Where the last dimension stays, rows are copied; otherwise the matrix of the last
/// dimensions of input and output is transposed in square grains of a vector's side, every other dimension
/// counting matrices.
pub(super) fn transpose_cycles(perm: &[u8], operands: &[OperandType], chip: &Chip) -> VertexCost {
    let [input, out] = [operands[0], operands[1]];
    let rank = perm.len();
    let fixed = (0..rank).rev().take_while(|&dim| usize::from(perm[dim]) == dim).count();
    if fixed > 0 || rank == 0 {
        return row_copies(out, cost::product(&out.lens[rank - fixed..]), chip);
    }
    let (columns, rows) = (input.lens[rank - 1], out.lens[rank - 1]);
    let matrices = out.num_elements() / rows.saturating_mul(columns).max(1);
    let slots = match grain_cycles(out.dtype) {
        Some(per_grain) => {
            let side = cost::vector_len(out.dtype, chip);
            let grains = c(matrices) * c(rows.div_ceil(side)) * c(columns.div_ceil(side));
            grains_slots(cost::per_worker(grains.0, chip), per_grain(side))
        }
        // The planner's slow rate, 64 bits in 5 cycles. Assumption: after the set-up of the fast one.
        None => c(MANY_GRAINS) + c(5) * c(worker_vectors(out, chip)),
    };
    cost::supervisor(slots, 7, chip)
}

/// Set-up for more than one grain, "37+20".
const MANY_GRAINS: u64 = 57;

/// Slots of a worker's grains: "single 29; many 37+20+(n-2)c". Assumption: `n` counts those of all matrices.
fn grains_slots(grains: u64, per_grain: Cycles) -> Cycles {
    if grains < 2 { c(29) } else { c(MANY_GRAINS) + c(grains - 2) * per_grain }
}

/// Cycles of a grain of the given side: 4 for f16 4×4 and 3 for f32 2×2. Assumption: of whatever type of
/// that size.
fn grain_cycles(dtype: DType) -> Option<fn(u64) -> Cycles> {
    match dtype.size_bytes() {
        2 => Some(c),
        4 => Some(|side| c(side) + c(1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;
    use crate::kernel::cost::tests::{bow, cycles};
    use crate::kernel::values::tests::{arg, out, run};
    use crate::kernel::{Dims, Kernel, operand_types};
    use pando_base::Tensor;
    use smallvec::{SmallVec, smallvec};

    #[test]
    fn fill_and_copy() {
        assert_eq!(run(&Kernel::Fill { value: 1e6 }, vec![out(DType::F16, &[2])]), [f64::INFINITY; 2]);
        assert_eq!(run(&Kernel::Fill { value: -1.0 }, vec![out(DType::U8, &[1])]), [0.0]);
        let input = arg(DType::I16, &[3], &[1.0, -2.0, 3.0]);
        assert_eq!(run(&Kernel::Copy, vec![input, out(DType::I16, &[3])]), [1.0, -2.0, 3.0]);
    }

    #[test]
    fn broadcasts_along_new_and_single_dimensions() {
        let kernel = |dims: &[u8]| Kernel::Broadcast { dims: Dims::from_slice(dims) };
        let input = || arg(DType::F32, &[2], &[1.0, 2.0]);
        let rows = run(&kernel(&[0]), vec![input(), out(DType::F32, &[2, 3])]);
        assert_eq!(rows, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!(run(&kernel(&[1]), vec![input(), out(DType::F32, &[2, 2])]), [1.0, 2.0, 1.0, 2.0]);
        let column = arg(DType::F32, &[2, 1], &[1.0, 2.0]);
        assert_eq!(run(&kernel(&[0, 1]), vec![column, out(DType::F32, &[2, 2])]), [1.0, 1.0, 2.0, 2.0]);
        let scalar = arg(DType::Bool, &[], &[1.0]);
        assert_eq!(run(&kernel(&[]), vec![scalar, out(DType::Bool, &[2])]), [1.0, 1.0]);
    }

    #[test]
    fn transposes() {
        let kernel = Kernel::Transpose { perm: smallvec![1, 0] };
        let input = arg(DType::F16, &[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let result = run(&kernel, vec![input, out(DType::F16, &[3, 2])]);
        assert_eq!(result, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let kernel = Kernel::Transpose { perm: smallvec![2, 0, 1] };
        let input = arg(DType::I64, &[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(run(&kernel, vec![input, out(DType::I64, &[2, 1, 2])]), [1.0, 3.0, 2.0, 4.0]);
    }

    #[test]
    fn iota_counts_in_the_variable() {
        let block = Block::new(&[(0, 1), (254, 257), (0, 2)]);
        let data = Tensor::zeros(DType::U8, [1, 3, 2]);
        let values = run(&Kernel::Iota { axis: 1 }, vec![Arg::new(block, &[1, 300, 2], data)]);
        assert_eq!(values, [254.0, 254.0, 255.0, 255.0, 0.0, 0.0]);
        let block = Block::new(&[(2048, 2050)]);
        let data = Tensor::zeros(DType::F16, [2]);
        let values = run(&Kernel::Iota { axis: 0 }, vec![Arg::new(block, &[4096], data)]);
        assert_eq!(values, [2048.0, 2048.0], "2049 is no f16");
    }

    #[test]
    fn refuses_what_does_not_match() {
        let f32s = |lens| OperandType { dtype: DType::F32, lens };
        let error = check_transpose(&[0, 0], &[f32s(&[2, 3]), f32s(&[2, 3])]).unwrap_err();
        assert_eq!(error, "perm [0, 0] does not hold each dimension of f32[2,3] once");
        assert!(check_broadcast(&[0], &[f32s(&[2]), f32s(&[4])]).is_err());
        assert!(check_copy(&[f32s(&[2]), f32s(&[3])]).is_err());
        assert!(check_iota(1, &[f32s(&[2])]).is_err());
    }

    fn time(kernel: &Kernel, dtype: DType, lens: &[&[u64]]) -> u64 {
        let lens: Vec<SmallVec<[u64; 4]>> = lens.iter().map(|lens| SmallVec::from_slice(lens)).collect();
        let dtypes = vec![dtype; lens.len()];
        cycles(kernel.cycles(&operand_types(&dtypes, &lens), &bow()))
    }

    #[test]
    fn cycles_follow_the_formulas() {
        // 30 + 8192 / 8, and 38 of the launch.
        assert_eq!(time(&Kernel::Copy, DType::F32, &[&[2048], &[2048]]), 30 + 1024 + 38);
        // 6 workers with 26 + 10 vectors each.
        assert_eq!(time(&Kernel::Fill { value: 0.0 }, DType::F16, &[&[240]]), 6 * 36 + 38);
        // 16 × 16 halves are 16 grains, 3 for the busiest worker; a single grain has its own number.
        let transpose = Kernel::Transpose { perm: smallvec![1, 0] };
        assert_eq!(time(&transpose, DType::F16, &[&[16, 16], &[16, 16]]), 7 + 6 * (57 + 4) + 38);
        assert_eq!(time(&transpose, DType::F32, &[&[2, 2], &[2, 2]]), 7 + 6 * 29 + 38);
        // Two rows among six workers: thirds of a row of 48 words.
        let broadcast = Kernel::Broadcast { dims: smallvec![1] };
        assert_eq!(time(&broadcast, DType::F32, &[&[96], &[2, 96]]), 6 * (15 + 7 + 16) + 38);
    }

    #[test]
    fn cycles_grow() {
        let broadcast = Kernel::Broadcast { dims: smallvec![0] };
        let transpose = Kernel::Transpose { perm: smallvec![1, 0] };
        for n in [1u64, 2, 7, 64, 1000] {
            let times = |n: u64| {
                [
                    time(&Kernel::Copy, DType::F16, &[&[n], &[n]]),
                    time(&Kernel::Iota { axis: 0 }, DType::I32, &[&[n]]),
                    time(&broadcast, DType::F32, &[&[n], &[n, 8]]),
                    time(&transpose, DType::U8, &[&[n, 4], &[4, n]]),
                ]
            };
            assert!(times(n).iter().zip(times(2 * n)).all(|(small, large)| *small <= large), "{n}");
        }
        assert_eq!(time(&Kernel::Copy, DType::F32, &[&[0], &[0]]), 68);
    }
}

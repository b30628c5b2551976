//! ReduceWindow: a reduction under a window that slides over all dimensions (pooling). Functions and types
//! as [`super::combine`] has them; elements are combined in row-major order, floats rounded once.
//!
//! Blocks are placed by their global indices, as a convolution's are. What lies outside the input's
//! *variable* counts as the neutral element. Cycles: pooling, hardware.md section 6.3.

use super::combine::{self, Combine, Combining};
use super::cost::{self, c};
use super::values::{self, Sizes};
use super::{Arg, OperandType, VertexCost, WindowAttrs};
use pando_base::{ReduceFn, Shape};
use pando_machine::Chip;

/// `in, out`.
pub(super) fn check(func: ReduceFn, attrs: &WindowAttrs, operands: &[OperandType]) -> Result<(), String> {
    let [input, out] = [operands[0], operands[1]];
    let rank = input.lens.len();
    if input.dtype != out.dtype || out.lens.len() != rank {
        return Err(format!("reduces {input} to {out}; both need one type and rank"));
    }
    let lists = [attrs.window.len(), attrs.strides.len(), attrs.padding_low.len(), attrs.dilation.len()];
    if lists != [rank; 4] {
        return Err(format!("window, strides, padding and dilation need {rank} entries each for {input}"));
    }
    if attrs.window.contains(&0) || attrs.strides.contains(&0) || attrs.dilation.contains(&0) {
        return Err("window, strides and dilations are at least 1".into());
    }
    combine::check_type(func, input.dtype)
}

/// The input indices within `0..size` that output `y` combines, along one dimension: the first, the step,
/// and how many. Costs nothing however large the window.
pub(super) fn taps(attrs: &WindowAttrs, dim: usize, y: u64, size: u64) -> (u64, u64, u64) {
    let (window, dilation) = (i128::from(attrs.window[dim]), i128::from(attrs.dilation[dim]));
    let start = i128::from(y) * i128::from(attrs.strides[dim]) - i128::from(attrs.padding_low[dim]);
    let up = |distance: i128| (distance.max(0) + dilation - 1) / dilation;
    let (begin, end) = (up(-start), window.min(up(i128::from(size) - start)));
    match (end - begin).max(0) {
        0 => (0, 1, 0),
        count => ((start + begin * dilation) as u64, dilation.min(1 << 60) as u64, count as u64),
    }
}

/// The first input index that the block of the input should hold but does not, if any, with its dimension.
pub fn missing(attrs: &WindowAttrs, input: &Arg, out: &Arg) -> Option<(usize, u64)> {
    (0..attrs.window.len()).find_map(|dim| {
        let (held, (first, end)) = (input.block.0[dim], out.block.0[dim]);
        let outside = |x: &u64| !(held.0..held.1).contains(x);
        (first..end).find_map(|y| {
            let (begin, step, count) = taps(attrs, dim, y, input.shape[dim]);
            let ends = (count > 0).then(|| [begin, begin + step * (count - 1)])?;
            ends.into_iter().find(outside).map(|x| (dim, x))
        })
    })
}

pub(super) fn run(func: ReduceFn, attrs: &WindowAttrs, args: &mut [Arg]) {
    let [input, out] = args else { unreachable!("reduce_window has two operands") };
    assert!(missing(attrs, input, out).is_none(), "reduce_window: {} lacks inputs", input.block);
    let along = (0..attrs.window.len()).map(|dim| {
        let (first, end) = out.block.0[dim];
        let taps = |y| {
            let (begin, step, count) = taps(attrs, dim, y, input.shape[dim]);
            (0..count).map(|tap| (begin + tap * step - input.block.0[dim].0) as usize).collect()
        };
        (first..end).map(taps).collect()
    });
    let walk =
        Window { func, along: along.collect(), strides: values::strides(&values::sizes(input.data.shape())) };
    combine::run(&walk, &[&input.data], &mut out.data);
}

struct Window {
    func: ReduceFn,
    /// Per dimension and output index of the block: the input indices of the block.
    along: Vec<Vec<Vec<usize>>>,
    /// Of the input's block.
    strides: Sizes,
}

impl Combining for Window {
    fn run<T: Combine>(&self, inputs: &[&[T]], out: &mut [T]) {
        let lens: Shape = self.along.iter().map(|outputs| outputs.len() as u64).collect();
        for (result, position) in out.iter_mut().zip(lens.indices()) {
            let taps = |dim: usize| &self.along[dim][position[dim] as usize];
            *result = self.fold(inputs[0], &taps, 0, 0, T::neutral(self.func));
        }
    }
}

impl Window {
    /// Combines the taps of dimensions from `dim` on, at an offset into the input.
    fn fold<'a, T: Combine>(
        &self,
        input: &[T],
        taps: &impl Fn(usize) -> &'a Vec<usize>,
        dim: usize,
        offset: usize,
        sum: T,
    ) -> T {
        if dim == self.along.len() {
            return T::combine(self.func, sum, input[offset]);
        }
        let next = |sum, &at: &usize| self.fold(input, taps, dim + 1, offset + at * self.strides[dim], sum);
        taps(dim).iter().fold(sum, next)
    }
}

/// "3/vec + 30/row".
///
/// Assumption: vectors lie across the dimensions along which the window is 1 (the library keeps channels
/// innermost); a row is one of the innermost of the others. Integers, which the row does not name, take an
/// element at a time at the 8 cycles of their maximum (section 6.2). Padding is not left out.
pub(super) fn cycles(attrs: &WindowAttrs, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let work = work(attrs, operands[0], operands[1], chip);
    let per_vector = if operands[1].dtype.is_float() { 3 } else { 8 };
    let slots = c(30) * c(cost::per_worker(work.rows.max(1), chip))
        + c(per_vector) * c(work.taps) * c(cost::per_worker(work.vectors, chip));
    cost::supervisor(slots, 0, chip)
}

/// What there is to do for windows at each element of a block.
pub(super) struct Work {
    pub rows: u64,
    pub vectors: u64,
    /// Elements of a window.
    pub taps: u64,
}

pub(super) fn work(attrs: &WindowAttrs, input: OperandType, out: OperandType, chip: &Chip) -> Work {
    let of = |crossed: bool| -> Vec<u64> {
        let dims = out.lens.iter().zip(&attrs.window);
        dims.filter(|&(_, &window)| (window > 1) == crossed).map(|(&len, _)| len).collect()
    };
    let crossed = of(true);
    let positions = cost::product(&crossed);
    let width = if out.dtype.is_float() { cost::vector_len(out.dtype, chip) } else { 1 };
    let inputs = input.lens.iter().zip(&attrs.window).map(|(&len, &window)| window.min(len.max(1)));
    Work {
        rows: positions / crossed.last().copied().unwrap_or(1).max(1),
        vectors: positions.saturating_mul(cost::product(&of(false)).div_ceil(width)),
        taps: cost::product(&inputs.collect::<Vec<u64>>()),
    }
}

pub(super) fn flops(attrs: &WindowAttrs, operands: &[OperandType]) -> u64 {
    cost::product(&attrs.window).saturating_mul(operands[1].num_elements())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::block::Block;
    use crate::kernel::Kernel;
    use crate::kernel::cost::tests::{bow, cycles as number};
    use crate::kernel::values::tests::{arg, out, run as run_kernel};
    use pando_base::{DType, Tensor};
    use smallvec::smallvec;

    pub fn attrs(window: &[u64], strides: &[u64], padding: &[i64]) -> WindowAttrs {
        WindowAttrs {
            window: window.into(),
            strides: strides.into(),
            padding_low: padding.into(),
            dilation: smallvec![1; window.len()],
        }
    }

    #[test]
    fn pools_with_padding() {
        let kernel = |func| Kernel::ReduceWindow { func, attrs: attrs(&[1, 3], &[1, 2], &[0, 1]) };
        let input = || arg(DType::F32, &[2, 4], &[1.0, -2.0, 3.0, -4.0, -5.0, -6.0, -7.0, f64::NAN]);
        let max = run_kernel(&kernel(ReduceFn::Max), vec![input(), out(DType::F32, &[2, 2])]);
        assert_eq!(max[..3], [1.0, 3.0, -5.0]);
        assert!(max[3].is_nan());
        let sum = run_kernel(&kernel(ReduceFn::Sum), vec![input(), out(DType::F32, &[2, 2])]);
        assert_eq!(sum[..3], [-1.0, -3.0, -11.0]);
    }

    #[test]
    fn blocks_are_placed_by_global_indices() {
        // Outputs 3..5 of 6, stride 1, window 3, padding 1: inputs 2..6 of 6.
        let block = Block::new(&[(2, 6)]);
        let input = Arg::new(block, &[6], Tensor::from_f64(DType::I32, [4], &[2.0, 3.0, 4.0, 5.0]));
        let block = Block::new(&[(3, 6)]);
        let result = Arg::new(block, &[6], Tensor::zeros(DType::I32, [3]));
        let kernel = Kernel::ReduceWindow { func: ReduceFn::Sum, attrs: attrs(&[3], &[1], &[1]) };
        assert_eq!(run_kernel(&kernel, vec![input, result]), [9.0, 12.0, 9.0]);
    }

    /// Against the definition.
    #[test]
    fn taps_by_definition() {
        for (window, stride, padding, dilation, size) in
            [(3, 2, 1, 1, 7), (2, 1, -3, 3, 9), (5, 1, 9, 2, 3), (1, 4, 0, 1, 5)]
        {
            let mut attrs = attrs(&[window], &[stride], &[padding]);
            attrs.dilation = smallvec![dilation];
            for y in 0..9u64 {
                let at = |k: u64| (y * stride + k * dilation) as i64 - padding;
                let expected: Vec<i64> =
                    (0..window).map(at).filter(|x| (0..size as i64).contains(x)).collect();
                let (begin, step, count) = taps(&attrs, 0, y, size);
                let found: Vec<i64> = (0..count).map(|i| (begin + i * step) as i64).collect();
                assert_eq!(found, expected, "{window} {stride} {padding} {dilation} {y}");
            }
        }
        assert_eq!(taps(&attrs(&[1 << 50], &[1], &[0]), 0, 1, 4), (1, 1, 3));
    }

    #[test]
    fn refuses_what_does_not_match() {
        let ty = |dtype, lens| OperandType { dtype, lens };
        let check = |func, dtype, rank: &'static [u64]| {
            check(func, &attrs(&[2, 2], &[1, 1], &[0, 0]), &[ty(dtype, &[4, 4]), ty(dtype, rank)])
        };
        assert_eq!(check(ReduceFn::Max, DType::F16, &[3, 3]), Ok(()));
        assert_eq!(check(ReduceFn::And, DType::F16, &[3, 3]).unwrap_err(), "and of f16 does not exist");
        assert!(check(ReduceFn::Max, DType::F16, &[3]).is_err());
    }

    #[test]
    fn cycles_follow_the_formula() {
        let time = |dtype, channels: u64| {
            let attrs = attrs(&[1, 1, 3, 3], &[1, 1, 2, 2], &[0, 0, 1, 1]);
            let (input, result) = ([1, channels, 8, 8], [1, channels, 4, 4]);
            number(cycles(
                &attrs,
                &[OperandType { dtype, lens: &input }, OperandType { dtype, lens: &result }],
                &bow(),
            ))
        };
        // 4 rows among 6 workers; 16 positions of 2 vectors, 6 for the busiest worker, 9 taps each.
        assert_eq!(time(DType::F16, 8), 6 * (30 + 3 * 9 * 6) + 38);
        assert_eq!(time(DType::F32, 4), time(DType::F16, 8));
        assert!((1..40).all(|n| time(DType::F16, n) <= time(DType::F16, n + 1)));
    }
}

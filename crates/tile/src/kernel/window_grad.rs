//! WindowGrad: the gradient of a maximum or minimum under a window that slides over all dimensions. Each window's
//! gradient goes to its first element, in row-major order, that is the extreme; elements under several windows get the
//! sum, in f32 and rounded once. A window without such an element (of NaNs), or whose extreme is padding, gives nothing.
//!
//! Blocks are placed by their global indices, as those of [`super::window`] are: the block of `gradient` holds all
//! windows that lie over the block of `out`, and that of `in` all elements of these windows. Cycles: pooling, hardware.md
//! section 6.3.

use super::combine::{self, Combine};
use super::cost::{self, c};
use super::values;
use super::window::{self, taps};
use super::{Arg, OperandType, VertexCost, WindowAttrs};
use pando_base::{ReduceFn, Shape};
use pando_machine::Chip;
use smallvec::SmallVec;

/// Every element of a window is looked at, in the padding, too.
const MOST_ELEMENTS: u64 = 1 << 16;

/// `in, gradient, out`.
pub(super) fn check(func: ReduceFn, attrs: &WindowAttrs, operands: &[OperandType]) -> Result<(), String> {
    let [input, gradient, out] = [operands[0], operands[1], operands[2]];
    window::check(func, attrs, &[input, gradient])?;
    if !matches!(func, ReduceFn::Max | ReduceFn::Min) {
        return Err(format!("routes gradients of max and min, not of {func}"));
    }
    if cost::product(&attrs.window) > MOST_ELEMENTS {
        return Err(format!("windows have at most {MOST_ELEMENTS} elements"));
    }
    if !combine::is_float(input.dtype) || out.dtype != input.dtype || out.lens.len() != input.lens.len() {
        return Err(format!("the gradient of {input} is not {out}"));
    }
    Ok(())
}

/// Whether the blocks of the input and of the gradient hold all that the block of the output needs.
pub fn holds(attrs: &WindowAttrs, input: &Arg, gradient: &Arg, out: &Arg) -> bool {
    (0..attrs.window.len()).all(|dim| {
        let inside = |(begin, end): (u64, u64), x: u64| (begin..end).contains(&x);
        let (own, windows) = (out.block.0[dim], gradient.block.0[dim]);
        let over = |y: u64| ends(attrs, dim, y, input.shape[dim]);
        (0..gradient.shape[dim]).all(|y| {
            over(y).is_none_or(|[first, last]| {
                let held = inside(windows, y);
                let touches = (0..attrs.window[dim]).any(|k| {
                    position(attrs, dim, y, k).is_some_and(|x| x < out.shape[dim] && inside(own, x))
                });
                (held || !touches)
                    && (!held || (inside(input.block.0[dim], first) && inside(input.block.0[dim], last)))
            })
        })
    })
}

/// The first and the last input under window `y`, if there is one.
fn ends(attrs: &WindowAttrs, dim: usize, y: u64, size: u64) -> Option<[u64; 2]> {
    let (begin, step, count) = taps(attrs, dim, y, size);
    (count > 0).then(|| [begin, begin + step * (count - 1)])
}

/// Where element `k` of window `y` lies, if not before the input.
fn position(attrs: &WindowAttrs, dim: usize, y: u64, k: u64) -> Option<u64> {
    let at = i128::from(y) * i128::from(attrs.strides[dim]) - i128::from(attrs.padding_low[dim])
        + i128::from(k) * i128::from(attrs.dilation[dim]);
    u64::try_from(at).ok()
}

pub(super) fn run(func: ReduceFn, attrs: &WindowAttrs, args: &mut [Arg]) {
    let [input, gradient, out] = args else { unreachable!("window_grad has three operands") };
    assert!(holds(attrs, input, gradient, out), "window_grad: {} lacks inputs", input.block);
    let (x, gradients) = (values::to_f32(&input.data), values::to_f32(&gradient.data));
    let mut sums = vec![0.0; out.data.num_elements() as usize];
    let windows = Shape::new(gradient.data.shape());
    let elements = Shape::new(&attrs.window);
    for (at, &value) in windows.indices().zip(gradients.iter()) {
        let y: Index = at.iter().zip(&gradient.block.0).map(|(at, block)| at + block.0).collect();
        // Where each element of the window lies; nothing in the padding.
        let place = |k: &[u64]| -> Option<Index> {
            (0..k.len())
                .map(|dim| position(attrs, dim, y[dim], k[dim]).filter(|&x| x < input.shape[dim]))
                .collect()
        };
        let element = |k: &[u64]| place(k).map_or(f32::neutral(func), |at| x[offset(input, &at)]);
        let extreme =
            elements.indices().fold(f32::neutral(func), |so_far, k| f32::combine(func, so_far, element(&k)));
        let first = elements.indices().find(|k| element(k) == extreme);
        if let Some(at) = first.and_then(|k| place(&k))
            && at.iter().zip(&out.block.0).all(|(x, block)| (block.0..block.1).contains(x))
        {
            sums[offset(out, &at)] += value;
        }
    }
    values::write_f32(&mut out.data, &sums);
}

type Index = SmallVec<[u64; 4]>;

/// Of a global index in the block at hand.
fn offset(arg: &Arg, at: &[u64]) -> usize {
    let dims = at.iter().zip(&arg.block.0);
    dims.fold(0, |sum, (x, &(begin, end))| sum * (end - begin) as usize + (x - begin) as usize)
}

/// "3/vec (max-bwd 5) + 30/row".
///
/// Assumption: the extremes are found as forward, and then every element of every window takes the 5 of the backward
/// pass; rows and vectors are those of the gradient, as [`window::cycles`] has them.
pub(super) fn cycles(attrs: &WindowAttrs, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let [input, gradient] = [operands[0], operands[1]];
    let shape = window::work(attrs, input, gradient, chip);
    let each = c(3 + 5) * c(shape.taps) * c(cost::per_worker(shape.vectors, chip));
    cost::supervisor(c(2 * 30) * c(cost::per_worker(shape.rows, chip)) + each, 0, chip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;
    use crate::kernel::Kernel;
    use crate::kernel::cost::tests::{bow, cycles as number};
    use crate::kernel::values::tests::{arg, out, run as run_kernel};
    use crate::kernel::window::tests::attrs;
    use pando_base::{DType, Tensor};

    fn kernel(window: &[u64], strides: &[u64], padding: &[i64]) -> Kernel {
        Kernel::WindowGrad { func: ReduceFn::Max, attrs: attrs(window, strides, padding) }
    }

    #[test]
    fn gradients_go_to_the_first_maximum() {
        // Windows [1 5], [5 5 2], [2 7]: the second 5 gets nothing.
        let x = arg(DType::F32, &[1, 5], &[1.0, 5.0, 5.0, 2.0, 7.0]);
        let gradient = arg(DType::F32, &[1, 3], &[1.0, 10.0, 100.0]);
        let pool = kernel(&[1, 3], &[1, 2], &[0, 1]);
        let result = run_kernel(&pool, vec![x, gradient, out(DType::F32, &[1, 5])]);
        assert_eq!(result, [0.0, 11.0, 0.0, 0.0, 100.0]);
    }

    #[test]
    fn numbers_that_compare_with_nothing_get_nothing() {
        let x = arg(DType::F16, &[2], &[f64::NAN, 1.0]);
        let gradient = arg(DType::F16, &[1], &[1.0]);
        assert_eq!(run_kernel(&kernel(&[2], &[2], &[0]), vec![x, gradient, out(DType::F16, &[2])]), [0.0; 2]);
        // The padding is the first of equals.
        let x = arg(DType::F16, &[1], &[f64::NEG_INFINITY]);
        let gradient = arg(DType::F16, &[1], &[1.0]);
        assert_eq!(run_kernel(&kernel(&[2], &[1], &[1]), vec![x, gradient, out(DType::F16, &[1])]), [0.0]);
    }

    #[test]
    fn blocks_are_placed_by_global_indices() {
        // Outputs 2..4 of 6 under windows of 3 that begin at 2y - 1: windows 1 and 2, which read 1..6.
        let block = |begin, end, data: &[f64], size: u64| {
            let data = Tensor::from_f64(DType::F32, [end - begin], data);
            Arg::new(Block::new(&[(begin, end)]), &[size], data)
        };
        let x = block(1, 6, &[1.0, 9.0, 3.0, 4.0, 5.0], 6);
        let gradient = block(1, 3, &[10.0, 100.0], 3);
        let result = block(2, 4, &[0.0, 0.0], 6);
        let pool = kernel(&[3], &[2], &[1]);
        assert_eq!(run_kernel(&pool, vec![x.clone(), gradient.clone(), result.clone()]), [10.0, 0.0]);
        let pool = attrs(&[3], &[2], &[1]);
        assert!(holds(&pool, &x, &gradient, &result));
        assert!(!holds(&pool, &block(2, 6, &[0.0; 4], 6), &gradient, &result));
        assert!(!holds(&pool, &x, &block(2, 3, &[0.0], 3), &result));
    }

    #[test]
    fn refuses_what_does_not_match() {
        let f32s = |lens| OperandType { dtype: DType::F32, lens };
        let check =
            |func, x, y, out| check(func, &attrs(&[2, 2], &[1, 1], &[0, 0]), &[f32s(x), f32s(y), f32s(out)]);
        assert_eq!(check(ReduceFn::Max, &[4, 4], &[3, 3], &[4, 4]), Ok(()));
        assert!(check(ReduceFn::Sum, &[4, 4], &[3, 3], &[4, 4]).is_err());
        assert!(check(ReduceFn::Max, &[4, 4], &[3, 3], &[4]).is_err());
    }

    #[test]
    fn cycles_follow_the_formula() {
        let attrs = attrs(&[1, 1, 3, 3], &[1, 1, 2, 2], &[0, 0, 1, 1]);
        let f16 = |lens| OperandType { dtype: DType::F16, lens };
        let operands = [f16(&[1, 8, 9, 9]), f16(&[1, 8, 4, 4]), f16(&[1, 8, 8, 8])];
        assert_eq!(number(cycles(&attrs, &operands, &bow())), 6 * (60 + 8 * 9 * 6) + 38);
    }
}

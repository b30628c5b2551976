//! Whether the input block of a convolution or a sliding window holds all that its output block needs. Types and sizes say nothing
//! about where blocks lie, so no earlier check sees this, and the kernel takes it for granted.

use pando_tile::kernel::{ConvAttrs, holds_gradient_windows, missing_window_input};
use pando_tile::{Arg, Kernel};

/// True for all other kernels.
pub fn holds_windows(kernel: &Kernel, args: &[Arg]) -> bool {
    match (kernel, args) {
        (Kernel::Conv(attrs), [input, weights, out]) => {
            (0..attrs.strides.len()).all(|dim| holds_window(attrs, dim, input, weights, out))
                && holds_channels(attrs, input, weights, out)
        }
        (Kernel::ReduceWindow { attrs, .. }, [input, out]) => {
            missing_window_input(attrs, input, out).is_none()
        }
        (Kernel::WindowGrad { attrs, .. }, [input, gradient, out]) => {
            holds_gradient_windows(attrs, input, gradient, out)
        }
        _ => true,
    }
}

/// Output `y` and kernel position `k` read input `y·stride − padding + k·dilation`, if there is one.
fn holds_window(attrs: &ConvAttrs, dim: usize, input: &Arg, weights: &Arg, out: &Arg) -> bool {
    let range = |arg: &Arg| arg.block.0[dim + 2];
    let (held, taps, outputs) = (range(input), range(weights), out.block.0[leading(input, out) + dim + 2]);
    (outputs.0..outputs.1).all(|y| {
        (taps.0..taps.1).all(|k| {
            let padded = y
                .saturating_mul(attrs.strides[dim])
                .saturating_add(k.saturating_mul(attrs.kernel_dilation[dim]));
            let read = padded.checked_sub(attrs.padding_low[dim]).filter(|&x| x < input.shape[dim + 2]);
            read.is_none_or(|x| (held.0..held.1).contains(&x))
        })
    })
}

/// Dimensions that only the output has, in front: those of partial sums.
fn leading(input: &Arg, out: &Arg) -> usize {
    out.block.rank().saturating_sub(input.block.rank())
}

/// Each output channel reads the input channels of its group.
fn holds_channels(attrs: &ConvAttrs, input: &Arg, weights: &Arg, out: &Arg) -> bool {
    let channels = leading(input, out) + 1;
    let outputs_per_group = (out.shape[channels] / attrs.groups).max(1);
    let (held, own, outputs) = (input.block.0[1], weights.block.0[1], out.block.0[channels]);
    let groups = outputs.0 / outputs_per_group..outputs.1.div_ceil(outputs_per_group);
    outputs.0 >= outputs.1
        || groups.into_iter().all(|group| {
            let begin = group * weights.shape[1] + own.0;
            held.0 <= begin && begin + (own.1 - own.0) <= held.1
        })
}

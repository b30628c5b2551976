//! Convolutions that stride over their output (input dilation), as the gradients of strided ones do: the pixels of
//! each phase of the strides see other taps, and are a convolution of their own.

use super::layout::{BlockedConv, Layout, blocked_sizes, dims};
use crate::flat::{Flat, FlatNode, ValueIndex, Work};
use pando_base::DType;
use pando_graph::{Conv, Op, Slice};

/// The taps of one phase, along one axis.
#[derive(Clone, Copy)]
pub struct PhaseAxis {
    /// First tap; every `stride`-th follows.
    pub first: usize,
    pub taps: usize,
    pub padding: (i64, i64),
    /// Pixels of the result.
    pub size: usize,
}

/// A convolution by phases.
pub struct Phases {
    pub strides: [usize; 2],
    /// By axis, then phase.
    pub axes: [Vec<PhaseAxis>; 2],
    /// Without strides; its padding and window are those of no phase.
    pub conv: BlockedConv,
}

/// More phases are not worth a convolution each.
const MAX_STRIDE: u64 = 4;

/// Set if the node is a convolution with strides over its output that is done in blocks.
pub fn phases(flat: &Flat, node: &FlatNode) -> Option<Phases> {
    let Work::Op(Op::Conv(conv)) = &node.work else { return None };
    let image = |value: usize| -> Option<[usize; 4]> {
        let ty = &flat.values[value];
        ty.sizes.as_slice().try_into().ok().filter(|_| ty.dtype == DType::F32)
    };
    let (from, kernel, to) = (image(node.operands[0])?, image(node.operands[1])?, image(node.results[0])?);
    let plain = conv.strides == [1, 1] && conv.kernel_dilation == [1, 1];
    let strides = conv.input_dilation.iter().all(|&stride| stride <= MAX_STRIDE);
    let empty = [from, kernel, to].concat().contains(&0);
    if !plain || !strides || empty || conv.input_dilation == [1, 1] {
        return None;
    }
    let strides = [0, 1].map(|axis| conv.input_dilation[axis] as usize);
    let axis = |axis: usize| -> Vec<PhaseAxis> {
        let (stride, low) = (strides[axis] as i64, conv.padding[axis].0);
        let phase = |phase: i64| {
            // Tap r meets an element where phase + r - low is a multiple of the stride.
            let first = (low - phase).rem_euclid(stride);
            let taps = (kernel[axis + 2] as i64 - first + stride - 1).div_euclid(stride).max(0);
            let size = (to[axis + 2] as i64 - phase + stride - 1).div_euclid(stride).max(0);
            let low = (low - phase - first) / stride;
            let high = size - 1 + taps - from[axis + 2] as i64 - low;
            PhaseAxis {
                first: first as usize,
                taps: taps as usize,
                padding: (low, high),
                size: size as usize,
            }
        };
        (0..stride).map(phase).collect()
    };
    let dense = Conv { input_dilation: vec![1; 2], ..conv.clone() };
    let conv = BlockedConv { conv: dense, from, to, window: [kernel[2], kernel[3]], blocked_input: true };
    let depthwise = conv.is_depthwise();
    (conv.is_worthy() && !depthwise).then(|| Phases { strides, axes: [axis(0), axis(1)], conv })
}

impl Layout {
    /// A convolution for each phase that has taps, and their pixels in turn.
    pub(super) fn phases(&mut self, node: &FlatNode, of: &Phases) {
        let (x, kernel) = (self.in_blocks(node.operands[0]), self.plain(node.operands[1]));
        let (mut operands, mut phases) = (Vec::new(), Vec::new());
        for y in &of.axes[0] {
            for x_axis in &of.axes[1] {
                let axes = [y, x_axis];
                if axes.iter().any(|axis| axis.taps == 0 || axis.size == 0) {
                    phases.push(None);
                    continue;
                }
                phases.push(Some(operands.len()));
                let kernel = self.phase_kernel(kernel, axes, of.strides);
                let mut conv = of.conv.clone();
                for (axis, phase) in axes.iter().enumerate() {
                    conv.conv.padding[axis] = phase.padding;
                    conv.window[axis] = phase.taps;
                    conv.to[axis + 2] = phase.size;
                }
                let sizes = blocked_sizes(conv.to);
                operands.push(self.push(
                    Work::BlockedConv(Box::new(conv)),
                    vec![x, kernel],
                    DType::F32,
                    sizes,
                ));
            }
        }
        let work = Work::Interleave { strides: of.strides, phases };
        self.done(node, work, operands);
    }

    fn phase_kernel(&mut self, kernel: ValueIndex, axes: [&PhaseAxis; 2], strides: [usize; 2]) -> ValueIndex {
        let mut sizes = self.new.values[kernel].sizes.to_vec();
        let mut slice = Slice { begin: vec![0; 4], end: dims(&sizes), step: vec![1; 4] };
        for axis in 0..2 {
            slice.begin[axis + 2] = axes[axis].first as u64;
            slice.step[axis + 2] = strides[axis] as u64;
            sizes[axis + 2] = axes[axis].taps;
        }
        self.op(Op::Slice(slice), kernel, &sizes)
    }
}

//! The rule of convolution. The gradients of its operands are convolutions, too: composites `conv.grad_input` of
//! (gradient, kernel) and `conv.grad_kernel` of (input, gradient), for back ends that know faster ways.

use super::dot::factors;
use super::layout::extent;
use super::{Gradients, Visit};
use crate::builder::Builder;
use crate::module::ValueId;
use crate::op::Conv;
use pando_base::{Result, Shape};

pub(super) fn conv(b: &mut Builder, at: &Visit, conv: &Conv) -> Result<Gradients> {
    at.each(|position| {
        let (own, other) = (at.operand(position), at.operand(1 - position));
        let shape = b.ty(own).require_shape()?;
        let [gradient, other] = factors(b, at.gradient(), other)?;
        let result = match position {
            0 => b.conv_grad_input(gradient, other, conv, &shape),
            _ => b.conv_grad_kernel(other, gradient, conv, &shape),
        };
        b.convert(result?, b.ty(own).dtype)
    })
}

impl Builder {
    /// The gradient of a convolution's input, which has `shape`: the composite `conv.grad_input`, whose body's
    /// convolution has the kernel reversed and transposed, and strides and input dilation exchanged.
    pub fn conv_grad_input(
        &mut self,
        gradient: ValueId,
        kernel: ValueId,
        conv: &Conv,
        shape: &Shape,
    ) -> Result<ValueId> {
        let key = format!("{conv:?} {shape}");
        self.composite("conv.grad_input", &key, &[gradient, kernel], |b, args| {
            let (to, window) = (b.ty(args[0]).require_shape()?, b.ty(args[1]).require_shape()?);
            let padding = |axis: usize| -> (i64, i64) {
                let span = extent(window[axis + 2], conv.kernel_dilation[axis]) as i64;
                let needed = extent(shape[axis + 2], conv.input_dilation[axis]) as i64 + span - 1;
                let low = span - 1 - conv.padding[axis].0;
                (low, needed - low - extent(to[axis + 2], conv.strides[axis]) as i64)
            };
            let backward = Conv {
                strides: conv.input_dilation.clone(),
                padding: (0..conv.strides.len()).map(padding).collect(),
                input_dilation: conv.strides.clone(),
                ..conv.clone()
            };
            let kernel = exchange_channels(b, args[1], conv.groups)?;
            let spatial: Vec<usize> = (2..shape.rank()).filter(|&axis| window[axis] > 1).collect();
            let kernel = b.reverse(kernel, &spatial)?;
            b.conv(args[0], kernel, backward)
        })
    }

    /// The gradient of a convolution's kernel, which has `shape`: the composite `conv.grad_kernel`, whose body's
    /// convolution has batch and channels exchanged, and strides and kernel dilation.
    pub fn conv_grad_kernel(
        &mut self,
        input: ValueId,
        gradient: ValueId,
        conv: &Conv,
        shape: &Shape,
    ) -> Result<ValueId> {
        let key = format!("{conv:?} {shape}");
        self.composite("conv.grad_kernel", &key, &[input, gradient], |b, args| {
            let (from, to) = (b.ty(args[0]).require_shape()?, b.ty(args[1]).require_shape()?);
            let padding = |axis: usize| -> (i64, i64) {
                let (low, _) = conv.padding[axis];
                let moves = (shape[axis + 2] as i64 - 1) * conv.kernel_dilation[axis] as i64;
                let used = extent(to[axis + 2], conv.strides[axis]) as i64 + moves;
                (low, used - low - extent(from[axis + 2], conv.input_dilation[axis]) as i64)
            };
            let backward = Conv {
                strides: conv.kernel_dilation.clone(),
                padding: (0..conv.strides.len()).map(padding).collect(),
                kernel_dilation: conv.strides.clone(),
                ..conv.clone()
            };
            let mut swap: Vec<usize> = (0..shape.rank()).collect();
            swap.swap(0, 1);
            let input = batch_to_channels(b, args[0], conv.groups)?;
            let gradient = b.transpose(args[1], &swap)?;
            let result = b.conv(input, gradient, backward)?;
            b.transpose(result, &swap)
        })
    }
}

/// A kernel `[O, C/groups, …]` as `[C, O/groups, …]`.
fn exchange_channels(b: &mut Builder, kernel: ValueId, groups: u64) -> Result<ValueId> {
    let shape = b.ty(kernel).require_shape()?;
    let (outputs, inputs) = (shape[0] / groups, shape[1]);
    let split: Vec<u64> = [&[groups, outputs, inputs], &shape[2..]].concat();
    let mut perm: Vec<usize> = (0..split.len()).collect();
    perm.swap(1, 2);
    let joined: Vec<u64> = [&[groups * inputs, outputs], &shape[2..]].concat();
    exchange(b, kernel, groups, split, &perm, joined)
}

/// An input `[N, groups · C, …]` as `[C, groups · N, …]`.
fn batch_to_channels(b: &mut Builder, input: ValueId, groups: u64) -> Result<ValueId> {
    let shape = b.ty(input).require_shape()?;
    let (batch, channels) = (shape[0], shape[1] / groups);
    let split: Vec<u64> = [&[batch, groups, channels], &shape[2..]].concat();
    let mut perm: Vec<usize> = (0..split.len()).collect();
    perm.swap(0, 2);
    let joined: Vec<u64> = [&[channels, groups * batch], &shape[2..]].concat();
    exchange(b, input, groups, split, &perm, joined)
}

/// With one group a transpose of the first two axes does it.
fn exchange(
    b: &mut Builder,
    x: ValueId,
    groups: u64,
    split: Vec<u64>,
    perm: &[usize],
    joined: Vec<u64>,
) -> Result<ValueId> {
    if groups == 1 {
        let mut swap: Vec<usize> = (0..joined.len()).collect();
        swap.swap(0, 1);
        return b.transpose(x, &swap);
    }
    let x = b.reshape(x, split)?;
    let x = b.transpose(x, perm)?;
    b.reshape(x, joined)
}

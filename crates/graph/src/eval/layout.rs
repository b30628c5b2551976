//! Ops that move elements without changing them. Bits are copied.

use crate::op::{Pad, Slice};
use pando_base::{Shape, Tensor};

/// A tensor of `shape` whose element at an index is the input's element at `position(index)`.
pub(super) fn remap(input: &Tensor, shape: &Shape, position: impl Fn(&[u64]) -> u64) -> Tensor {
    let size = input.dtype().size_bytes() as usize;
    let mut result = Tensor::zeros(input.dtype(), shape.clone());
    for (bytes, index) in result.bytes_mut().chunks_exact_mut(size).zip(shape.indices()) {
        let from = position(&index) as usize * size;
        bytes.copy_from_slice(&input.bytes()[from..from + size]);
    }
    result
}

/// The sum of index × stride.
fn offset(index: &[u64], strides: &[u64]) -> u64 {
    index.iter().zip(strides).map(|(i, stride)| i * stride).sum()
}

pub(super) fn transpose(perm: &[usize], input: &Tensor, shape: &Shape) -> Tensor {
    let strides = input.shape().strides();
    let strides: Vec<u64> = perm.iter().map(|&axis| strides[axis]).collect();
    remap(input, shape, |index| offset(index, &strides))
}

pub(super) fn broadcast(axes: &[usize], input: &Tensor, shape: &Shape) -> Tensor {
    let mut strides = vec![0; shape.rank()];
    for (from, &axis) in axes.iter().enumerate() {
        // A size of 1 is repeated, or is copied once: both have stride zero.
        strides[axis] = if input.shape()[from] == 1 { 0 } else { input.shape().strides()[from] };
    }
    remap(input, shape, |index| offset(index, &strides))
}

pub(super) fn slice(slice: &Slice, input: &Tensor, shape: &Shape) -> Tensor {
    let strides = input.shape().strides();
    let begin = offset(&slice.begin, &strides);
    // Steps may be absurdly large where only one element is taken; they do not matter then.
    let steps: Vec<u64> = (0..shape.rank())
        .map(|axis| if shape[axis] > 1 { slice.step[axis] * strides[axis] } else { 0 })
        .collect();
    remap(input, shape, |index| begin + offset(index, &steps))
}

pub(super) fn reverse(axes: &[usize], input: &Tensor) -> Tensor {
    let shape = input.shape();
    let strides = shape.strides();
    let at = |axis: usize, i: u64| if axes.contains(&axis) { shape[axis] - 1 - i } else { i };
    remap(input, shape, |index| index.iter().enumerate().map(|(axis, &i)| at(axis, i) * strides[axis]).sum())
}

pub(super) fn pad(pad: &Pad, input: &Tensor, filler: &Tensor, shape: &Shape) -> Tensor {
    let mut result = remap(filler, shape, |_| 0);
    let (size, strides) = (input.dtype().size_bytes() as usize, shape.strides());
    let target = |index: &[u64]| -> Option<u64> {
        let mut position = 0;
        for axis in 0..shape.rank() {
            let at =
                i128::from(index[axis]) * (i128::from(pad.interior[axis]) + 1) + i128::from(pad.low[axis]);
            position += u64::try_from(at).ok().filter(|&at| at < shape[axis])? * strides[axis];
        }
        Some(position)
    };
    let bytes = result.bytes_mut();
    for (from, index) in input.bytes().chunks_exact(size).zip(input.shape().indices()) {
        if let Some(position) = target(&index) {
            bytes[position as usize * size..][..size].copy_from_slice(from);
        }
    }
    result
}

pub(super) fn concat(axis: usize, operands: &[&Tensor], shape: &Shape) -> Tensor {
    let size = operands[0].dtype().size_bytes() as usize;
    let mut result = Tensor::zeros(operands[0].dtype(), shape.clone());
    let outer: u64 = shape[..axis].iter().product();
    // Bytes of one operand's, and of the result's, rows below `axis`.
    let row = |shape: &Shape| shape[axis..].iter().product::<u64>() as usize * size;
    let (stride, mut begin) = (row(shape), 0);
    for operand in operands {
        let length = row(operand.shape());
        for block in (0..outer as usize).filter(|_| length > 0) {
            let from = &operand.bytes()[block * length..][..length];
            result.bytes_mut()[block * stride + begin..][..length].copy_from_slice(from);
        }
        begin += length;
    }
    result
}

//! Gather and scatter. Indices out of range are clamped to the nearest row.

use super::layout::remap;
use super::scalar::{Domain, Scalar, in_domain};
use pando_base::{ReduceFn, Shape, Tensor};

/// The rows to use: every index clamped into `0..rows`.
fn clamped(indices: &Tensor, rows: u64) -> Vec<u64> {
    indices.to_ints().into_iter().map(|index| index.clamp(0, i128::from(rows) - 1) as u64).collect()
}

pub(super) fn gather(axis: usize, data: &Tensor, indices: &Tensor, shape: &Shape) -> Tensor {
    let rows = clamped(indices, data.shape()[axis]);
    let (strides, index_strides) = (data.shape().strides(), indices.shape().strides());
    let index_rank = indices.shape().rank();
    remap(data, shape, |index| {
        let (before, rest) = index.split_at(axis);
        let (middle, after) = rest.split_at(index_rank);
        let dot = |index: &[u64], strides: &[u64]| -> u64 {
            index.iter().zip(strides).map(|(i, stride)| i * stride).sum()
        };
        let row = rows[dot(middle, &index_strides) as usize];
        dot(before, &strides) + row * strides[axis] + dot(after, &strides[axis + 1..])
    })
}

pub(super) fn scatter(
    axis: usize,
    combine: Option<ReduceFn>,
    domain: Domain,
    operands: &[&Tensor],
) -> Tensor {
    let [data, indices, updates] = [operands[0], operands[1], operands[2]];
    match combine {
        None => overwrite(axis, data, indices, updates),
        Some(func) => in_domain!(domain, accumulate(func, axis, data, indices, updates)),
    }
}

/// For each element of `updates` in row-major order, its position in `data`.
fn targets(axis: usize, data: &Tensor, indices: &Tensor, updates: &Tensor) -> Vec<usize> {
    let rows = clamped(indices, data.shape()[axis]);
    let strides = data.shape().strides();
    let position = |index: &[u64]| -> u64 {
        let at = |a: usize| if a == axis { rows[index[a] as usize] } else { index[a] };
        (0..index.len()).map(|a| at(a) * strides[a]).sum()
    };
    updates.shape().indices().map(|index| position(&index) as usize).collect()
}

/// Row-major order along any axis is index order for each target: the last update stays.
fn overwrite(axis: usize, data: &Tensor, indices: &Tensor, updates: &Tensor) -> Tensor {
    let size = data.dtype().size_bytes() as usize;
    let mut result = data.clone();
    let bytes = result.bytes_mut();
    let targets = targets(axis, data, indices, updates);
    for (target, from) in targets.into_iter().zip(updates.bytes().chunks_exact(size)) {
        bytes[target * size..][..size].copy_from_slice(from);
    }
    result
}

fn accumulate<T: Scalar>(
    func: ReduceFn,
    axis: usize,
    data: &Tensor,
    indices: &Tensor,
    updates: &Tensor,
) -> Tensor {
    let mut values = T::read(data);
    for (target, update) in targets(axis, data, indices, updates).into_iter().zip(T::read(updates)) {
        values[target] = T::combine(func, values[target], update);
    }
    T::write(data.dtype(), data.shape().clone(), &values)
}

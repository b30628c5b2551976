//! Reductions, window reductions and scans.

use super::scalar::{Domain, Scalar, in_domain};
use super::taps::{Tap, taps};
use crate::op::{ReduceWindow, Scan};
use pando_base::{ReduceFn, Shape, Tensor};

pub(super) fn reduce(func: ReduceFn, axes: &[usize], domain: Domain, x: &Tensor, shape: Shape) -> Tensor {
    in_domain!(domain, reduce_as(func, axes, x, shape))
}

fn reduce_as<T: Scalar>(func: ReduceFn, axes: &[usize], x: &Tensor, shape: Shape) -> Tensor {
    let kept: Vec<usize> = (0..x.shape().rank()).filter(|axis| !axes.contains(axis)).collect();
    let strides = shape.strides();
    let mut values = vec![T::neutral(func, x.dtype()); shape.num_elements() as usize];
    for (value, index) in T::read(x).into_iter().zip(x.shape().indices()) {
        let target: u64 = kept.iter().zip(&strides).map(|(&axis, stride)| index[axis] * stride).sum();
        let target = &mut values[target as usize];
        *target = T::combine(func, *target, value);
    }
    T::write(x.dtype(), shape, &values)
}

pub(super) fn reduce_window(window: &ReduceWindow, domain: Domain, x: &Tensor, shape: Shape) -> Tensor {
    in_domain!(domain, reduce_window_as(window, x, shape))
}

fn reduce_window_as<T: Scalar>(window: &ReduceWindow, x: &Tensor, shape: Shape) -> Tensor {
    let values = T::read(x);
    let strides = x.shape().strides();
    let neutral = T::neutral(window.func, x.dtype());
    let at = |index: &[u64]| -> T {
        let along: Vec<Vec<Tap>> = (0..index.len())
            .map(|axis| taps(index[axis], x.shape()[axis], window.window[axis], window.sliding(axis)))
            .collect();
        let counts: Shape = along.iter().map(|taps| taps.len() as u64).collect();
        counts.indices().fold(neutral, |sum, choice| {
            let position: u64 = choice
                .iter()
                .enumerate()
                .map(|(axis, &i)| along[axis][i as usize].input as u64 * strides[axis])
                .sum();
            T::combine(window.func, sum, values[position as usize])
        })
    };
    let results: Vec<T> = shape.indices().map(|index| at(&index)).collect();
    T::write(x.dtype(), shape, &results)
}

pub(super) fn scan(scan: &Scan, domain: Domain, x: &Tensor) -> Tensor {
    in_domain!(domain, scan_as(scan, x))
}

fn scan_as<T: Scalar>(scan: &Scan, x: &Tensor) -> Tensor {
    let mut values = T::read(x);
    let (length, stride) = (x.shape()[scan.axis] as usize, x.shape().strides()[scan.axis] as usize);
    for start in lane_starts(x.shape(), scan.axis) {
        let mut total = T::neutral(scan.func, x.dtype());
        for step in 0..length {
            let along = if scan.reverse { length - 1 - step } else { step };
            let slot = &mut values[start + along * stride];
            let next = T::combine(scan.func, total, *slot);
            *slot = if scan.exclusive { total } else { next };
            total = next;
        }
    }
    T::write(x.dtype(), x.shape().clone(), &values)
}

/// The positions of the first elements of all lines along an axis.
pub(super) fn lane_starts(shape: &Shape, axis: usize) -> Vec<usize> {
    let strides = shape.strides();
    let mut starts = shape.clone();
    starts[axis] = starts[axis].min(1);
    let position = |index: &[u64]| -> u64 { index.iter().zip(&strides).map(|(i, stride)| i * stride).sum() };
    starts.indices().map(|index| position(&index) as usize).collect()
}

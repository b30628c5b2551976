//! Sort: always stable here; programs that do not ask for it may see any order of equal keys elsewhere.

use super::reduce::lane_starts;
use crate::op::Sort;
use pando_base::Tensor;
use std::cmp::Ordering;

pub(super) fn sort(sort: &Sort, operands: &[&Tensor]) -> Vec<Tensor> {
    let keys = operands[0];
    let mut results: Vec<Tensor> = operands.iter().map(|&operand| operand.clone()).collect();
    let (length, stride) = (keys.shape()[sort.axis] as usize, keys.shape().strides()[sort.axis] as usize);
    let compare = |a: usize, b: usize| compare_keys(keys, a, b);
    for start in lane_starts(keys.shape(), sort.axis) {
        let mut order: Vec<usize> = (0..length).map(|step| start + step * stride).collect();
        match sort.descending {
            false => order.sort_by(|&a, &b| compare(a, b)),
            true => order.sort_by(|&a, &b| compare(b, a)),
        }
        for (operand, result) in operands.iter().zip(&mut results) {
            let size = operand.dtype().size_bytes() as usize;
            let bytes = result.bytes_mut();
            for (step, &from) in order.iter().enumerate() {
                let to = (start + step * stride) * size;
                bytes[to..to + size].copy_from_slice(&operand.bytes()[from * size..][..size]);
            }
        }
    }
    results
}

/// NaN above every number and equal to itself.
fn compare_keys(keys: &Tensor, a: usize, b: usize) -> Ordering {
    if !keys.dtype().is_float() {
        return keys.get_int(a).cmp(&keys.get_int(b));
    }
    let (a, b) = (keys.get_f64(a), keys.get_f64(b));
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

//! Sort: always stable here; programs that do not ask for it may see any order of equal keys elsewhere.

use super::reduce::lane_starts;
use super::scalar::Domain;
use crate::op::Sort;
use pando_base::Tensor;
use std::cmp::Ordering;

pub(super) fn sort(sort: &Sort, domain: Domain, operands: &[&Tensor]) -> Vec<Tensor> {
    let keys = operands[0];
    let mut results: Vec<Tensor> = operands.iter().map(|&operand| operand.clone()).collect();
    let (length, stride) = (keys.shape()[sort.axis] as usize, keys.shape().strides()[sort.axis] as usize);
    let key = |position| match domain {
        Domain::Wide => f64::from_bits(keys.get_int(position) as u64),
        _ => keys.get_f64(position),
    };
    let compare = |a: usize, b: usize| match domain {
        Domain::Int => keys.get_int(a).cmp(&keys.get_int(b)),
        _ => compare_keys(key(a), key(b)),
    };
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
fn compare_keys(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

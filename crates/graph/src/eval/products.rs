//! Dot and convolution: sums of products, accumulated in f64 (or exactly) and rounded once.

use super::scalar::{Domain, Scalar, in_domain};
use super::taps::taps;
use crate::op::{Conv, Dot};
use pando_base::{DType, Shape, Tensor};

pub(super) fn dot(
    dot: &Dot,
    domain: Domain,
    lhs: &Tensor,
    rhs: &Tensor,
    dtype: DType,
    shape: Shape,
) -> Tensor {
    in_domain!(domain, dot_as(dot, lhs, rhs, dtype, shape))
}

/// As batches of matrix products `[m,k] × [k,n]`.
fn dot_as<T: Scalar>(dot: &Dot, lhs: &Tensor, rhs: &Tensor, dtype: DType, shape: Shape) -> Tensor {
    let left = |pairs: &[(usize, usize)]| pairs.iter().map(|pair| pair.0).collect::<Vec<_>>();
    let right = |pairs: &[(usize, usize)]| pairs.iter().map(|pair| pair.1).collect::<Vec<_>>();
    let (lhs_free, rhs_free) = (dot.lhs_free(lhs.shape().rank()), dot.rhs_free(rhs.shape().rank()));
    let count = |tensor: &Tensor, axes: &[usize]| {
        axes.iter().map(|&axis| tensor.shape()[axis]).product::<u64>() as usize
    };
    let (m, n) = (count(lhs, &lhs_free), count(rhs, &rhs_free));
    let k = count(lhs, &left(&dot.contract));
    let a: Vec<T> = ordered(lhs, &[left(&dot.batch), lhs_free, left(&dot.contract)].concat());
    let b: Vec<T> = ordered(rhs, &[right(&dot.batch), right(&dot.contract), rhs_free].concat());
    let mut sums = vec![T::ZERO; shape.num_elements() as usize];
    if m * n * k > 0 {
        let batches = sums.chunks_exact_mut(m * n).zip(a.chunks_exact(m * k).zip(b.chunks_exact(k * n)));
        batches.for_each(|(sums, (a, b))| matrix_product(sums, a, b, k, n));
    }
    T::write(dtype, shape, &sums)
}

fn matrix_product<T: Scalar>(sums: &mut [T], a: &[T], b: &[T], k: usize, n: usize) {
    for (sums, a) in sums.chunks_exact_mut(n).zip(a.chunks_exact(k)) {
        for (&a, b) in a.iter().zip(b.chunks_exact(n)) {
            for (sum, &b) in sums.iter_mut().zip(b) {
                *sum = sum.mul_add(a, b);
            }
        }
    }
}

/// All elements with the axes in the given order.
fn ordered<T: Scalar>(tensor: &Tensor, axes: &[usize]) -> Vec<T> {
    let values = T::read(tensor);
    if axes.is_sorted() {
        return values;
    }
    let strides = tensor.shape().strides();
    let shape: Shape = axes.iter().map(|&axis| tensor.shape()[axis]).collect();
    let position =
        |index: &[u64]| -> u64 { index.iter().zip(axes).map(|(i, &axis)| i * strides[axis]).sum() };
    shape.indices().map(|index| values[position(&index) as usize]).collect()
}

pub(super) fn conv(
    conv: &Conv,
    domain: Domain,
    input: &Tensor,
    kernel: &Tensor,
    dtype: DType,
    shape: Shape,
) -> Tensor {
    in_domain!(domain, conv_as(conv, input, kernel, dtype, shape))
}

fn conv_as<T: Scalar>(conv: &Conv, input: &Tensor, kernel: &Tensor, dtype: DType, shape: Shape) -> Tensor {
    let (x, w) = (T::read(input), T::read(kernel));
    let spatial = |shape: &Shape| Shape::new(&shape[2..]);
    let (from, window, to) = (spatial(input.shape()), spatial(kernel.shape()), spatial(&shape));
    let [x_size, w_size, y_size] = [&from, &window, &to].map(|shape| shape.num_elements() as usize);
    let [batch, outputs] = [shape[0], shape[1]].map(|size| size as usize);
    let [inputs, inputs_per_group] = [input.shape()[1], kernel.shape()[1]].map(|size| size as usize);
    let outputs_per_group = outputs / conv.groups as usize;
    let mut sums = vec![T::ZERO; batch * outputs * y_size];
    for (position, index) in to.indices().enumerate() {
        let taps = window_taps(conv, &index, &from, &window);
        for n in 0..batch {
            for o in 0..outputs {
                let first = n * inputs + o / outputs_per_group * inputs_per_group;
                let mut sum = T::ZERO;
                for i in 0..inputs_per_group {
                    let (x, w) = (&x[(first + i) * x_size..], &w[(o * inputs_per_group + i) * w_size..]);
                    sum = taps.iter().fold(sum, |sum, &(at_w, at_x)| sum.mul_add(x[at_x], w[at_w]));
                }
                sums[(n * outputs + o) * y_size + position] = sum;
            }
        }
    }
    T::write(dtype, shape, &sums)
}

/// Pairs of (kernel position, input position) for one output position, over all spatial dimensions.
fn window_taps(conv: &Conv, index: &[u64], from: &Shape, window: &Shape) -> Vec<(usize, usize)> {
    let (from_strides, window_strides) = (from.strides(), window.strides());
    let mut pairs = vec![(0, 0)];
    for axis in 0..index.len() {
        let along = taps(index[axis], from[axis], window[axis], conv.sliding(axis));
        let (w_stride, x_stride) = (window_strides[axis] as usize, from_strides[axis] as usize);
        let step = |(w, x): (usize, usize)| {
            along.iter().map(move |tap| (w + tap.window * w_stride, x + tap.input * x_stride))
        };
        pairs = pairs.into_iter().flat_map(step).collect();
    }
    pairs
}

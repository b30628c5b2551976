//! Sums of products, reductions, windows.

use super::Site;
use super::layout::padded;
use super::writer::{Writer, int, ints};
use crate::errors;
use pando_base::{DType, ReduceFn, Result, Tensor};
use pando_graph::{Conv, Dot, Pad, ReduceWindow, Scan};

/// The type in which ONNX's sums exist that wraps to the given one.
fn sum_type(dtype: DType) -> DType {
    match dtype {
        DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::Bool => DType::I32,
        other => other,
    }
}

fn in_type(w: &mut Writer, x: &str, own: DType, wanted: DType) -> String {
    if own == wanted { x.into() } else { w.cast(x, wanted) }
}

fn product(sizes: impl IntoIterator<Item = u64>) -> u64 {
    sizes.into_iter().fold(1, u64::saturating_mul)
}

/// `[batch, rows, inner]` by `[batch, inner, columns]`.
pub fn dot(w: &mut Writer, site: &Site, dot: &Dot) -> Result<String> {
    let (lhs, rhs) = (site.shape(0)?, site.shape(1)?);
    let (rows, columns) = (dot.lhs_free(lhs.len()), dot.rhs_free(rhs.len()));
    let dtype = sum_type(site.result.dtype);
    let side = |w: &mut Writer, at: usize, order: [Vec<usize>; 3]| -> Result<String> {
        let shape = site.shape(at)?;
        let x = in_type(w, &site.x[at], site.types[at].dtype, dtype);
        let moved = w.transpose(&x, &order.concat());
        Ok(w.reshape(&moved, &order.map(|axes| product(axes.iter().map(|&axis| shape[axis])))))
    };
    let pick = |pairs: &[(usize, usize)], left: bool| -> Vec<usize> {
        pairs.iter().map(|&(l, r)| if left { l } else { r }).collect()
    };
    let x = side(w, 0, [pick(&dot.batch, true), rows, pick(&dot.contract, true)])?;
    let y = side(w, 1, [pick(&dot.batch, false), pick(&dot.contract, false), columns])?;
    let result = w.node("MatMul", &[&x, &y]);
    let result = in_type(w, &result, dtype, site.result.dtype);
    Ok(w.reshape(&result, &site.result_shape()?))
}

pub fn conv(w: &mut Writer, site: &Site, conv: &Conv) -> Result<String> {
    let own = site.result.dtype;
    if !own.is_float() {
        return Err(errors::no_onnx_op(site.op, format!("of {own}")));
    }
    let dtype = if own == DType::BF16 { DType::F32 } else { own };
    let x = in_type(w, &site.x[0], site.types[0].dtype, dtype);
    let kernel = in_type(w, &site.x[1], site.types[1].dtype, dtype);
    let result = convolved(w, (&x, site.shape(0)?), (&kernel, site.shape(1)?), dtype, conv);
    let result = in_type(w, &result, dtype, own);
    Ok(w.reshape(&result, &site.result_shape()?))
}

/// Padding and input dilation are written out; without spatial axes there is one of size 1.
fn convolved(
    w: &mut Writer,
    (x, mut shape): (&str, Vec<u64>),
    (kernel, mut window): (&str, Vec<u64>),
    dtype: DType,
    conv: &Conv,
) -> String {
    let zero = w.number(dtype, 0.0);
    let edges = |side: fn(&(i64, i64)) -> i64| -> Vec<i64> {
        [0, 0].into_iter().chain(conv.padding.iter().map(side)).collect()
    };
    let interior = [1, 1].iter().chain(&conv.input_dilation).map(|&by| by - 1).collect();
    let pad = Pad { low: edges(|edge| edge.0), high: edges(|edge| edge.1), interior };
    let mut x = padded(w, x, &shape, &pad, &zero);
    let (mut strides, mut dilations) = (conv.strides.clone(), conv.kernel_dilation.clone());
    let mut kernel = kernel.to_string();
    if strides.is_empty() {
        shape.push(1);
        window.push(1);
        (x, kernel) = (w.reshape(&x, &shape), w.reshape(&kernel, &window));
        (strides, dilations) = (vec![1], vec![1]);
    }
    let all = |values: &[u64]| values.iter().map(|&value| value as i64).collect::<Vec<_>>();
    let attributes = vec![
        int("group", conv.groups as i64),
        ints("strides", &all(&strides)),
        ints("dilations", &all(&dilations)),
        ints("kernel_shape", &all(&window[2..])),
    ];
    w.with("Conv", &[&x, &kernel], attributes)
}

pub fn reduce(w: &mut Writer, site: &Site, func: ReduceFn, axes: &[usize]) -> Result<String> {
    if axes.is_empty() {
        return Ok(site.x[0].clone());
    }
    let own = site.dtype();
    let (op, dtype) = match func {
        ReduceFn::Sum => ("ReduceSum", sum_type(own)),
        ReduceFn::Prod => ("ReduceProd", sum_type(own)),
        ReduceFn::Max => ("ReduceMax", order_type(own)),
        ReduceFn::Min => ("ReduceMin", order_type(own)),
        // Of bools these are the smallest and the largest.
        ReduceFn::And if own == DType::Bool => ("ReduceMin", DType::U8),
        ReduceFn::Or if own == DType::Bool => ("ReduceMax", DType::U8),
        ReduceFn::And | ReduceFn::Or => return Err(errors::no_onnx_op(site.op, format!("{func} of {own}"))),
    };
    let axes = w.ints(&axes.iter().map(|&axis| axis as i64).collect::<Vec<_>>());
    Ok(w.through(&site.x[0], own, dtype, |w, x| w.with(op, &[x, &axes], vec![int("keepdims", 0)])))
}

/// ONNX's maxima exist for a few types only.
fn order_type(dtype: DType) -> DType {
    match dtype {
        DType::I16 | DType::U16 => DType::I32,
        other => other,
    }
}

/// Maxima are MaxPool, minima those of the negative, sums a convolution with ones, all over `[1, 1, dims…]`.
pub fn reduce_window(w: &mut Writer, site: &Site, window: &ReduceWindow) -> Result<String> {
    let own = site.dtype();
    if !own.is_float() || window.func == ReduceFn::Prod {
        return Err(errors::no_onnx_op(site.op, format!("{} of {own}", window.func)));
    }
    let dtype = if own == DType::BF16 { DType::F32 } else { own };
    let shape = site.shape(0)?;
    let (neutral, sum) = match window.func {
        ReduceFn::Sum => (0.0, true),
        _ => (f64::NEG_INFINITY, false),
    };
    let mut x = in_type(w, &site.x[0], own, dtype);
    if window.func == ReduceFn::Min {
        x = w.node("Neg", &[&x]);
    }
    let filler = w.number(dtype, neutral);
    let (low, high) = window.padding.iter().copied().unzip();
    let pad = Pad { low, high, interior: vec![0; shape.len()] };
    let x = padded(w, &x, &shape, &pad, &filler);
    let mut sizes = vec![1, 1];
    sizes.extend(
        shape
            .iter()
            .zip(&window.padding)
            .map(|(&size, edge)| size.saturating_add_signed(edge.0).saturating_add_signed(edge.1)),
    );
    let (x, window_sizes, strides, dilations) = if shape.is_empty() {
        (w.reshape(&x, &[1, 1, 1]), vec![1], vec![1], vec![1])
    } else {
        let x = w.reshape(&x, &sizes);
        (x, window.window.clone(), window.strides.clone(), window.dilation.clone())
    };
    let all = |values: &[u64]| values.iter().map(|&value| value as i64).collect::<Vec<_>>();
    let attributes = vec![
        ints("kernel_shape", &all(&window_sizes)),
        ints("strides", &all(&strides)),
        ints("dilations", &all(&dilations)),
    ];
    let mut result = if sum {
        let kernel: Vec<u64> = [1, 1].into_iter().chain(window_sizes).collect();
        let ones = w.constant("", || {
            Tensor::from_f64(dtype, kernel.clone(), &vec![1.0; product(kernel.iter().copied()) as usize])
        })?;
        w.with("Conv", &[&x, &ones], attributes)
    } else {
        w.with("MaxPool", &[&x], attributes)
    };
    if window.func == ReduceFn::Min {
        result = w.node("Neg", &[&result]);
    }
    let result = in_type(w, &result, dtype, own);
    Ok(w.reshape(&result, &site.result_shape()?))
}

pub fn scan(w: &mut Writer, site: &Site, scan: &Scan) -> Result<String> {
    let own = site.dtype();
    if scan.func != ReduceFn::Sum {
        return Err(errors::no_onnx_op(site.op, format!("with {}", scan.func)));
    }
    let axis = w.number(DType::I64, scan.axis as f64);
    let dtype = if own == DType::BF16 { DType::F32 } else { sum_type(own) };
    let attributes = vec![int("exclusive", scan.exclusive.into()), int("reverse", scan.reverse.into())];
    Ok(w.through(&site.x[0], own, dtype, |w, x| w.with("CumSum", &[x, &axis], attributes)))
}

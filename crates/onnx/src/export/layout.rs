//! Moving elements: layout, indices, order.

use super::Site;
use super::writer::{Writer, int, string};
use crate::errors;
use pando_base::{DType, ReduceFn, Result, Tensor};
use pando_graph::{Pad, Slice, Sort};

/// The counts along one axis, spread over the others.
pub fn iota(w: &mut Writer, site: &Site, dtype: DType, axis: usize) -> Result<String> {
    let shape = site.result_shape()?;
    let count = shape[axis];
    let counts = w.constant("", || match dtype.is_float() {
        true => Tensor::from_f64(dtype, [count], &(0..count).map(|i| i as f64).collect::<Vec<_>>()),
        false => Tensor::from_ints(dtype, [count], &(0..count).map(i128::from).collect::<Vec<_>>()),
    })?;
    let mut line = vec![1; shape.len()];
    line[axis] = count;
    let line = w.reshape(&counts, &line);
    Ok(expand(w, &line, &shape))
}

fn expand(w: &mut Writer, x: &str, shape: &[u64]) -> String {
    let sizes = w.ints(&shape.iter().map(|&size| size as i64).collect::<Vec<_>>());
    w.node("Expand", &[x, &sizes])
}

pub fn broadcast(w: &mut Writer, site: &Site, axes: &[usize]) -> Result<String> {
    let (own, shape) = (site.shape(0)?, site.result_shape()?);
    let mut sizes = vec![1; shape.len()];
    axes.iter().zip(own).for_each(|(&axis, size)| sizes[axis] = size);
    let x = w.reshape(&site.x[0], &sizes);
    Ok(expand(w, &x, &shape))
}

/// Elements from `begin` to `end` (exclusive) along every axis.
fn cut(w: &mut Writer, x: &str, begin: &[i64], end: &[i64], step: &[i64]) -> String {
    if begin.is_empty() {
        return x.into();
    }
    let axes: Vec<i64> = (0..begin.len() as i64).collect();
    let [begin, end, axes, step] = [begin, end, &axes, step].map(|values| w.ints(values));
    w.node("Slice", &[x, &begin, &end, &axes, &step])
}

pub fn slice(w: &mut Writer, site: &Site, slice: &Slice) -> Result<String> {
    let sizes = |values: &[u64]| values.iter().map(|&value| value.min(1 << 62) as i64).collect::<Vec<_>>();
    let end = slice.end.iter().map(|dim| dim.known().ok_or_else(|| errors::needs_size(dim)));
    let end = end.collect::<Result<Vec<_>>>()?;
    Ok(cut(w, &site.x[0], &sizes(&slice.begin), &sizes(&end), &sizes(&slice.step)))
}

pub fn reverse(w: &mut Writer, x: &str, axes: &[usize]) -> String {
    if axes.is_empty() {
        return x.into();
    }
    let all: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
    let same = |value: i64| vec![value; axes.len()];
    let [begin, end, axes, step] = [same(-1), same(i64::MIN), all, same(-1)].map(|values| w.ints(&values));
    w.node("Slice", &[x, &begin, &end, &axes, &step])
}

pub fn pad(w: &mut Writer, site: &Site, pad: &Pad) -> Result<String> {
    let shape = site.shape(0)?;
    Ok(padded(w, &site.x[0], &shape, pad, &site.x[1]))
}

/// Fillers between neighbours, then crops, then fillers around.
pub fn padded(w: &mut Writer, x: &str, shape: &[u64], pad: &Pad, filler: &str) -> String {
    let mut x = x.to_string();
    let mut shape = shape.to_vec();
    for axis in 0..shape.len() {
        let gap = pad.interior[axis];
        if gap > 0 && shape[axis] > 1 {
            x = spread(w, &x, &shape, axis, gap, filler);
            shape[axis] += (shape[axis] - 1) * gap;
        }
    }
    let edges = || pad.low.iter().zip(&pad.high).zip(&shape);
    if edges().any(|((&low, &high), _)| low < 0 || high < 0) {
        // A crop on one side may reach into the fillers of the other.
        let begin: Vec<i64> = edges().map(|((&low, _), &size)| (-low).clamp(0, size as i64)).collect();
        let end: Vec<i64> = edges().map(|((_, &high), &size)| (size as i64 + high.min(0)).max(0)).collect();
        let lost = |((&low, &high), &size): ((&i64, &i64), &u64)| {
            let (low, high, size) = ((-low).max(0), (-high).max(0), size as i64);
            ((low - size).max(0), (high - size).max(0))
        };
        let lost: Vec<(i64, i64)> = edges().map(lost).collect();
        x = cut(w, &x, &begin, &end, &vec![1; shape.len()]);
        let low: Vec<i64> = pad.low.iter().zip(&lost).map(|(&low, lost)| low.max(0) - lost.1).collect();
        let high: Vec<i64> = pad.high.iter().zip(&lost).map(|(&high, lost)| high.max(0) - lost.0).collect();
        return around(w, &x, &low, &high, filler);
    }
    around(w, &x, &pad.low, &pad.high, filler)
}

fn around(w: &mut Writer, x: &str, low: &[i64], high: &[i64], filler: &str) -> String {
    if low.iter().chain(high).all(|&edge| edge == 0) {
        return x.into();
    }
    let pads: Vec<i64> = low.iter().chain(high).map(|&edge| edge.max(0)).collect();
    let pads = w.ints(&pads);
    w.with("Pad", &[x, &pads, filler], vec![string("mode", "constant")])
}

/// `gap` fillers between neighbours: after each element, but for the last.
fn spread(w: &mut Writer, x: &str, shape: &[u64], axis: usize, gap: u64, filler: &str) -> String {
    let mut split = shape.to_vec();
    split.insert(axis + 1, 1);
    let apart = w.reshape(x, &split);
    let low = vec![0; split.len()];
    let mut high = low.clone();
    high[axis + 1] = gap as i64;
    let filled = around(w, &apart, &low, &high, filler);
    let mut joined = shape.to_vec();
    joined[axis] *= gap + 1;
    let joined_x = w.reshape(&filled, &joined);
    let mut end: Vec<i64> = joined.iter().map(|&size| size as i64).collect();
    end[axis] -= gap as i64;
    cut(w, &joined_x, &vec![0; end.len()], &end, &vec![1; end.len()])
}

pub fn concat(w: &mut Writer, site: &Site, axis: usize) -> String {
    let parts: Vec<&str> = site.x.iter().map(String::as_str).collect();
    w.with("Concat", &parts, vec![int("axis", axis as i64)])
}

/// Indices in int64, moved into the rows there are.
fn rows(w: &mut Writer, indices: &str, dtype: DType, count: u64) -> String {
    let own = if dtype == DType::I64 { indices.to_string() } else { w.cast(indices, DType::I64) };
    let (first, last) = (w.number(DType::I64, 0.0), w.number(DType::I64, count as f64 - 1.0));
    w.node("Clip", &[&own, &first, &last])
}

pub fn gather(w: &mut Writer, site: &Site, axis: usize) -> Result<String> {
    let rows = rows(w, &site.x[1], site.types[1].dtype, site.shape(0)?[axis]);
    Ok(w.with("Gather", &[&site.x[0], &rows], vec![int("axis", axis as i64)]))
}

pub fn scatter(w: &mut Writer, site: &Site, axis: usize, combine: Option<ReduceFn>) -> Result<String> {
    let reduction = match combine {
        None => "none",
        Some(ReduceFn::Sum) => "add",
        Some(ReduceFn::Prod) => "mul",
        Some(ReduceFn::Max) => "max",
        Some(ReduceFn::Min) => "min",
        // Of bools these are the smallest and the largest.
        Some(ReduceFn::And) if site.dtype() == DType::Bool => "min",
        Some(ReduceFn::Or) if site.dtype() == DType::Bool => "max",
        Some(func) => return Err(errors::no_onnx_op(site.op, format!("with {func}"))),
    };
    let updates = site.shape(2)?;
    let rows = rows(w, &site.x[1], site.types[1].dtype, site.shape(0)?[axis]);
    let mut line = vec![1; updates.len()];
    line[axis] = updates[axis];
    let rows = w.reshape(&rows, &line);
    let rows = expand(w, &rows, &updates);
    let attributes = vec![int("axis", axis as i64), string("reduction", reduction)];
    if site.dtype() != DType::Bool || combine.is_none() {
        return Ok(w.with("ScatterElements", &[&site.x[0], &rows, &site.x[2]], attributes));
    }
    let (data, updates) = (w.cast(&site.x[0], DType::U8), w.cast(&site.x[2], DType::U8));
    let result = w.with("ScatterElements", &[&data, &rows, &updates], attributes);
    Ok(w.cast(&result, DType::Bool))
}

/// TopK of all elements keeps the order of equal ones; payloads follow its indices.
pub fn sort(w: &mut Writer, site: &Site, sort: &Sort) -> Result<Vec<String>> {
    let own = site.dtype();
    let key = match own {
        DType::Bool => DType::U8,
        DType::BF16 => DType::F32,
        other => other,
    };
    let keys = if key == own { site.x[0].clone() } else { w.cast(&site.x[0], key) };
    let count = w.ints(&[site.shape(0)?[sort.axis] as i64]);
    let attributes =
        vec![int("axis", sort.axis as i64), int("largest", sort.descending.into()), int("sorted", 1)];
    let results = w.many("TopK", &[&keys, &count], 2, attributes);
    let order = results[1].clone();
    let follow =
        |w: &mut Writer, x: &str| w.with("GatherElements", &[x, &order], vec![int("axis", sort.axis as i64)]);
    let sorted = if key == own { results[0].clone() } else { w.cast(&results[0], own) };
    Ok(std::iter::once(sorted).chain(site.x[1..].iter().map(|x| follow(w, x))).collect())
}

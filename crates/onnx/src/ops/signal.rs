//! Fourier transforms as products with constant matrices, and the mel filter bank.

use crate::ctx::Ctx;
use crate::elem::Elem;
use crate::errors;
use crate::import::Value;
use pando_base::{DType, Result, Tensor};
use pando_graph::{Dot, ValueId};

/// Matrices larger than this are refused.
const MAX_POINTS: u64 = 1 << 12;

/// `[in, out]` matrices of cosines and sines of the angles `sign · 2π · in · out / length`.
fn matrices(c: &mut Ctx, inputs: u64, outputs: u64, length: u64, sign: f64) -> Result<(ValueId, ValueId)> {
    if inputs.max(outputs).max(length) > MAX_POINTS {
        return Err(errors::too_much_work(format!("a Fourier transform of more than {MAX_POINTS} points")));
    }
    // The product is reduced first, for precision.
    let angle = |i: u64, o: u64| sign * std::f64::consts::TAU * ((i * o) % length) as f64 / length as f64;
    let all = |f: fn(f64) -> f64| -> Vec<f64> {
        (0..inputs).flat_map(|i| (0..outputs).map(move |o| (i, o))).map(|(i, o)| f(angle(i, o))).collect()
    };
    let (cosines, sines) = (all(f64::cos), all(f64::sin));
    let shape = [inputs, outputs];
    Ok((c.floats_const(DType::F32, &shape, &cosines), c.floats_const(DType::F32, &shape, &sines)))
}

/// The last axis of `x` times a matrix.
fn times_matrix(c: &mut Ctx, x: ValueId, matrix: ValueId) -> Result<ValueId> {
    let last = c.rank(x) - 1;
    c.b.dot(x, matrix, Dot { contract: vec![(last, 0)], ..Dot::default() })
}

/// The real or imaginary part with the axis last.
fn part_of(c: &mut Ctx, x: ValueId, axis: usize, which: u64) -> Result<ValueId> {
    let last = c.rank(x) - 1;
    let part = c.pick(x, last, which)?;
    let mut perm: Vec<usize> = (0..last).collect();
    let moved = perm.remove(axis);
    perm.push(moved);
    c.b.transpose(part, &perm)
}

pub(super) fn dft(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let (rank, dtype) = (c.rank(x), c.dtype(x));
    if rank < 2 {
        return Err(errors::invalid("the operand needs rank 2 at least"));
    }
    let axis = match c.version < 20 {
        true => c.int("axis", 1),
        false => c.known_ints_opt(2)?.and_then(|axis| axis.first().copied()).unwrap_or(-2),
    };
    let axis = c.axis_of(axis, rank)?;
    if axis == rank - 1 {
        return Err(errors::bad_axis(axis as i64, rank));
    }
    let (inverse, onesided) = (c.flag("inverse", false), c.flag("onesided", false));
    let size = c.size(x, axis)?;
    let natural = if inverse && onesided { 2 * size.saturating_sub(1) } else { size };
    let length = match c.known_ints_opt(1)?.and_then(|length| length.first().copied()) {
        Some(length) => u64::try_from(length).unwrap_or(0),
        None => natural,
    };
    if length == 0 {
        return Err(errors::invalid("the transform has no length"));
    }
    let x = c.b.convert(x, DType::F32)?;
    let complex = c.size(x, rank - 1)? == 2;
    let mut real = part_of(c, x, axis, 0)?;
    let mut imaginary = if complex { Some(part_of(c, x, axis, 1)?) } else { None };
    if inverse && onesided {
        (real, imaginary) = whole_spectrum(c, real, imaginary, length)?;
    }
    let outputs = if onesided && !inverse { length / 2 + 1 } else { length };
    let inputs = c.size(real, rank - 2)?.min(length);
    let sign = if inverse { 1.0 } else { -1.0 };
    let (cosines, sines) = matrices(c, inputs, outputs, length, sign)?;
    real = c.part(real, rank - 2, 0, inputs)?;
    let mut re = times_matrix(c, real, cosines)?;
    let mut im = times_matrix(c, real, sines)?;
    if let Some(imaginary) = imaginary {
        let imaginary = c.part(imaginary, rank - 2, 0, inputs)?;
        let (a, b) = (times_matrix(c, imaginary, sines)?, times_matrix(c, imaginary, cosines)?);
        (re, im) = (c.b.sub(re, a)?, c.b.add(im, b)?);
    }
    let mut parts = vec![re];
    if !(inverse && onesided) {
        parts.push(im);
    }
    let mut planes = Vec::new();
    for part in parts {
        let part = if inverse { c.over_n(part, length as f64)? } else { part };
        let mut perm: Vec<usize> = (0..rank - 2).collect();
        perm.insert(axis, rank - 2);
        let moved = c.b.transpose(part, &perm)?;
        planes.push(c.unsqueeze(moved, &[rank - 1])?);
    }
    let result = c.b.concat(&planes, rank - 1)?;
    c.b.convert(result, dtype)
}

/// The other half of a spectrum whose signal is real: the conjugate, mirrored.
fn whole_spectrum(
    c: &mut Ctx,
    real: ValueId,
    imaginary: Option<ValueId>,
    length: u64,
) -> Result<(ValueId, Option<ValueId>)> {
    let axis = c.rank(real) - 1;
    let wanted = length / 2 + 1;
    let fitted = |c: &mut Ctx, x: ValueId| -> Result<ValueId> {
        let room = wanted as i64 - c.size(x, axis)? as i64;
        let (low, mut high) = (vec![0; axis + 1], vec![0; axis + 1]);
        high[axis] = room;
        c.pad_with(x, &low, &high, 0.0)
    };
    let mirrored = |c: &mut Ctx, x: ValueId, negate: bool| -> Result<ValueId> {
        let half = fitted(c, x)?;
        let rest = c.part(half, axis, 1, (length - length / 2).max(1))?;
        let rest = c.b.reverse(rest, &[axis])?;
        let rest = if negate { c.b.neg(rest)? } else { rest };
        c.b.concat(&[half, rest], axis)
    };
    let real = mirrored(c, real, false)?;
    let imaginary = match imaginary {
        Some(imaginary) => Some(mirrored(c, imaginary, true)?),
        None => None,
    };
    Ok((real, imaginary))
}

/// Frames of the signal, windowed, transformed.
pub(super) fn stft(c: &mut Ctx) -> Result<ValueId> {
    let signal = c.x(0)?;
    let (dtype, step) = (c.dtype(signal), c.known_int(1)?.max(1) as u64);
    let window = c.opt(2)?;
    let length = match (c.known_ints_opt(3)?.and_then(|length| length.first().copied()), window) {
        (Some(length), _) => u64::try_from(length).unwrap_or(0),
        (None, Some(window)) => c.size(window, 0)?,
        (None, None) => return Err(errors::missing_input(3)),
    };
    let signal = c.b.convert(signal, DType::F32)?;
    let size = c.size(signal, 1)?;
    if length == 0 || length > size {
        return Err(errors::invalid("a frame is empty or longer than the signal"));
    }
    let complex = c.rank(signal) == 3 && c.size(signal, 2)? == 2;
    let frames = (size - length) / step + 1;
    let places: Vec<i64> =
        (0..frames).flat_map(|frame| (0..length).map(move |i| (frame * step + i) as i64)).collect();
    let places = c.ints_const(DType::I64, &[frames, length], &places);
    let outputs = if c.flag("onesided", true) && !complex { length / 2 + 1 } else { length };
    let (cosines, sines) = matrices(c, length, outputs, length, -1.0)?;
    let plane = |c: &mut Ctx, which: u64| -> Result<ValueId> {
        let plane = if c.rank(signal) == 3 { c.pick(signal, 2, which)? } else { signal };
        let frames = c.b.gather(plane, places, 1)?;
        match window {
            Some(window) => {
                let window = c.b.convert(window, DType::F32)?;
                c.times(frames, window)
            }
            None => Ok(frames),
        }
    };
    let real = plane(c, 0)?;
    let (mut re, mut im) = (times_matrix(c, real, cosines)?, times_matrix(c, real, sines)?);
    if complex {
        let imaginary = plane(c, 1)?;
        let (a, b) = (times_matrix(c, imaginary, sines)?, times_matrix(c, imaginary, cosines)?);
        (re, im) = (c.b.sub(re, a)?, c.b.add(im, b)?);
    }
    let planes = [c.unsqueeze(re, &[3])?, c.unsqueeze(im, &[3])?];
    let result = c.b.concat(&planes, 3)?;
    c.b.convert(result, dtype)
}

/// Triangular filters, evenly spaced in mels.
pub(super) fn mel_weight_matrix(c: &mut Ctx) -> Result<Vec<Value>> {
    let (bins, length, rate) = (c.known_int(0)?, c.known_int(1)?, c.known_float(2)?);
    let (low, high) = (c.known_float(3)?, c.known_float(4)?);
    let elem = Elem(c.int("output_datatype", 1) as i32);
    let dtype = elem.dtype().ok_or_else(|| errors::unsupported_elem(elem))?;
    if !(0..1 << 12).contains(&bins) || !(0..1 << 14).contains(&length) {
        return Err(errors::invalid("the filter bank has no sensible size"));
    }
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let (first, last) = (mel(low), mel(high));
    let step = (last - first) / (bins + 2) as f64;
    let edge = |i: i64| {
        let hertz = 700.0 * (10f64.powf((first + step * i as f64) / 2595.0) - 1.0);
        ((length + 1) as f64 * hertz / rate).floor().clamp(-1e9, 1e9) as i64
    };
    let rows = length / 2 + 1;
    let mut values = vec![0.0; (rows * bins) as usize];
    for bin in 0..bins {
        let (begin, middle, end) = (edge(bin), edge(bin + 1), edge(bin + 2));
        let mut set = |row: i64, value: f64| {
            if (0..rows).contains(&row) {
                values[(row * bins + bin) as usize] = value;
            }
        };
        if begin == middle {
            set(middle, 1.0);
        }
        for row in begin.max(0)..middle.min(rows) + i64::from(begin != middle) {
            set(row, (row - begin) as f64 / (middle - begin) as f64);
        }
        for row in middle.max(0)..end.min(rows) {
            if end != middle {
                set(row, (end - row) as f64 / (end - middle) as f64);
            }
        }
    }
    let id = c.b.constant(Tensor::from_f64(dtype, [rows as u64, bins as u64], &values));
    Ok(vec![Value::typed(id, elem)])
}

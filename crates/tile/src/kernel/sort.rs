//! Sorting: of lines on a tile, and of two sorted blocks on two tiles, of which each keeps a half; and the
//! moves of what belongs to the keys. NaN counts as larger than every number, zeros of either sign are
//! equal; equal keys keep their order. Any element type.
//! Cycles: hardware.md section 6.5, bitonic networks, see [`network`].

use super::cost::{self, Cycles, c};
use super::values::{self, with_int};
use super::{Arg, OperandType, VertexCost, same_but_ones};
use pando_base::{DType, Tensor};
use pando_machine::Chip;

/// `keys, out`, or `keys, out, order (i32)`.
pub(super) fn check_sort(axis: u8, operands: &[OperandType]) -> Result<(), String> {
    let keys = operands[0];
    if usize::from(axis) >= keys.lens.len() {
        return Err(format!("{keys} has no axis {axis}"));
    }
    check_alike(keys, operands[1])?;
    operands.get(2).map_or(Ok(()), |&order| check_index(keys, order))
}

fn check_alike(keys: OperandType, out: OperandType) -> Result<(), String> {
    if keys.dtype == out.dtype && same_but_ones(keys.lens, out.lens) {
        return Ok(());
    }
    Err(format!("{keys} and {out} need one type and shape"))
}

fn check_index(keys: OperandType, index: OperandType) -> Result<(), String> {
    if index.dtype == DType::I32 && same_but_ones(keys.lens, index.lens) {
        return Ok(());
    }
    Err(format!("{index} is not an i32 for each element of {keys}"))
}

/// `own, other, out`; or with their orders `own, own order, other, other order, out, order, picks`.
pub(super) fn check_merge(side: u8, ordered: bool, operands: &[OperandType]) -> Result<(), String> {
    let own = operands[0];
    if usize::from(side) + 1 >= own.lens.len() || own.lens[usize::from(side)] != 1 {
        return Err(format!("dimension {side} of {own} is not a tile's place among those that merge"));
    }
    if !ordered {
        return operands[1..].iter().try_for_each(|&operand| check_alike(own, operand));
    }
    [2, 4].into_iter().try_for_each(|i| check_alike(own, operands[i]))?;
    [1, 3, 5, 6].into_iter().try_for_each(|i| check_index(own, operands[i]))
}

/// `own, other, picks (i32), out`.
pub(super) fn check_pick(operands: &[OperandType]) -> Result<(), String> {
    check_alike(operands[0], operands[1])?;
    check_alike(operands[0], operands[3])?;
    check_index(operands[0], operands[2])
}

/// `data, indices (i32), out`: one index for each element.
pub(super) fn check_take(axis: u8, operands: &[OperandType]) -> Result<(), String> {
    let [data, indices, out] = [operands[0], operands[1], operands[2]];
    if usize::from(axis) >= data.lens.len() || data.lens != out.lens {
        return Err(format!("takes {data} along axis {axis} to {out}, which has another shape"));
    }
    check_alike(data, out)?;
    check_index(data, indices)
}

/// Integers in the order of the keys.
fn ranks(keys: &Tensor) -> Vec<i128> {
    match keys.dtype() {
        DType::Bool => keys.bytes().iter().map(|&flag| i128::from(flag != 0)).collect(),
        dtype if dtype.is_float() => values::to_f32(keys).iter().map(|&key| rank_of_float(key)).collect(),
        dtype => with_int!(dtype, T => values::slice::<T>(keys).iter().map(|&key| key.into()).collect()),
    }
}

fn rank_of_float(key: f32) -> i128 {
    // The bits of a float rise with its magnitude.
    let magnitude = i128::from(key.abs().to_bits());
    match key {
        _ if key.is_nan() => i128::MAX,
        _ if key < 0.0 => -magnitude,
        _ => magnitude,
    }
}

/// Positions of an `axis` line by line: `(first, distance of neighbours)`.
fn lines(shape: &[u64], axis: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
    let inner = shape[axis + 1..].iter().product::<u64>() as usize;
    let (outer, length) = (shape[..axis].iter().product::<u64>() as usize, shape[axis] as usize);
    (0..outer).flat_map(move |o| (0..inner).map(move |i| (o * length * inner + i, inner)))
}

/// Element `i` of `to` becomes element `from(i)` of one of the sources.
fn move_elements(to: &mut Tensor, sources: &[&Tensor], from: impl Fn(usize) -> (usize, usize)) {
    let size = to.dtype().size_bytes() as usize;
    for (i, bytes) in to.bytes_mut().chunks_exact_mut(size).enumerate() {
        let (source, at) = from(i);
        bytes.copy_from_slice(&sources[source].bytes()[at * size..][..size]);
    }
}

/// The order counts in the whole variable.
pub(super) fn run_sort(axis: u8, descending: bool, args: &mut [Arg]) {
    let [keys, outs @ ..] = args else { unreachable!("sort has keys") };
    let axis = usize::from(axis);
    let (shape, ranks) = (keys.data.shape().clone(), ranks(&keys.data));
    let mut from = vec![0; ranks.len()];
    for (first, distance) in lines(&shape, axis) {
        let place = |i: usize| first + i * distance;
        let mut order: Vec<usize> = (0..shape[axis] as usize).map(place).collect();
        match descending {
            false => order.sort_by_key(|&at| ranks[at]),
            true => order.sort_by_key(|&at| std::cmp::Reverse(ranks[at])),
        }
        order.into_iter().enumerate().for_each(|(i, at)| from[place(i)] = at);
    }
    move_elements(&mut outs[0].data, &[&keys.data], |i| (0, from[i]));
    if let Some(order) = outs.get_mut(1) {
        let inner = shape[axis + 1..].iter().product::<u64>() as usize;
        let index = |at: usize| (at / inner % shape[axis] as usize) as u64 + keys.block.0[axis].0;
        let order = values::slice_mut::<i32>(&mut order.data).iter_mut();
        order.zip(&from).for_each(|(to, &at)| *to = index(at) as i32);
    }
}

/// The tiles whose place along `side` is in the first half keep the first half of the two blocks merged,
/// the others the second. Lines lie along the last dimension. Of equal keys the one with the smaller order
/// comes first.
pub(super) fn run_merge(side: u8, descending: bool, ordered: bool, args: &mut [Arg]) {
    let side = usize::from(side);
    let first_half = args[0].block.0[side].0 < args[0].shape[side] / 2;
    let (own, other) = (&args[0], &args[if ordered { 2 } else { 1 }]);
    let length = own.data.shape().last().copied().unwrap_or(1) as usize;
    let keys = [ranks(&own.data), ranks(&other.data)];
    let order = |source: usize, at: usize| -> i32 {
        if ordered { values::slice::<i32>(&args[2 * source + 1].data)[at] } else { 0 }
    };
    let mut picks: Vec<(usize, usize)> = Vec::with_capacity(keys[0].len());
    for first in (0..keys[0].len()).step_by(length.max(1)) {
        let mut line: Vec<(usize, usize)> =
            (0..2).flat_map(|source| (first..first + length).map(move |at| (source, at))).collect();
        let key = |&(source, at): &(usize, usize)| keys[source][at];
        line.sort_by_key(|pick| (if descending { !key(pick) } else { key(pick) }, order(pick.0, pick.1)));
        let kept = if first_half { &line[..length] } else { &line[length..] };
        picks.extend(kept);
    }
    keep(ordered, &picks, length, args);
}

fn keep(ordered: bool, picks: &[(usize, usize)], length: usize, args: &mut [Arg]) {
    if !ordered {
        let [own, other, out] = args else { unreachable!("merge has three operands") };
        return move_elements(&mut out.data, &[&own.data, &other.data], |i| picks[i]);
    }
    let [own, own_order, other, other_order, out, order, taken] = args else {
        unreachable!("an ordered merge has seven operands")
    };
    move_elements(&mut out.data, &[&own.data, &other.data], |i| picks[i]);
    move_elements(&mut order.data, &[&own_order.data, &other_order.data], |i| picks[i]);
    let taken = values::slice_mut::<i32>(&mut taken.data).iter_mut();
    taken.zip(picks).for_each(|(to, &(source, at))| *to = (source * length + at % length) as i32);
}

/// Picks count through a line of `own` and then of `other`.
pub(super) fn run_pick(args: &mut [Arg]) {
    let [own, other, picks, out] = args else { unreachable!("pick has four operands") };
    let length = own.data.shape().last().copied().unwrap_or(1) as usize;
    let picks = values::slice::<i32>(&picks.data);
    move_elements(&mut out.data, &[&own.data, &other.data], |i| {
        let pick = (picks[i].max(0) as usize).min(2 * length - 1);
        (pick / length, i / length * length + pick % length)
    });
}

/// Indices count in the whole variable and are clamped to the block.
pub(super) fn run_take(axis: u8, args: &mut [Arg]) {
    let [data, indices, out] = args else { unreachable!("take has three operands") };
    let axis = usize::from(axis);
    let ((begin, end), shape) = (data.block.0[axis], data.data.shape());
    let inner = shape[axis + 1..].iter().product::<u64>() as usize;
    let length = shape[axis] as usize;
    let indices = values::slice::<i32>(&indices.data);
    move_elements(&mut out.data, &[&data.data], |i| {
        let index = u64::try_from(indices[i]).unwrap_or(0).clamp(begin, end - 1) - begin;
        (0, (i / inner / length * length + index as usize) * inner + i % inner)
    });
}

/// Cycles of `pairs` comparisons in each of `stages`.
///
/// "bitonic compare-swap f32 13, int 12, f32 KV 11, int KV 17 /elem-pair; sup 19, +23-49": of a worker, the
/// pairs of a stage divided among the workers; 19 + 49 around each stage. Assumption: other types as f32
/// or as integers; the table's "KV" is a key with its order.
fn network(stages: u64, pairs: u64, keys: OperandType, ordered: bool, chip: &Chip) -> Cycles {
    let per_pair = match (keys.dtype.is_float(), ordered) {
        (true, false) => 13,
        (false, false) => 12,
        (true, true) => 11,
        (false, true) => 17,
    };
    let stage = c(cost::workers(chip)) * c(cost::per_worker(pairs, chip)) * c(per_pair) + c(19 + 49);
    c(stages) * stage
}

/// Steps of a bitonic network for lines of this length: log2, rounded up.
fn steps(length: u64) -> u64 {
    u64::from(length.max(1).next_power_of_two().ilog2())
}

/// Lines are filled up to the next power of two.
pub(super) fn sort_cycles(axis: u8, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let keys = operands[0];
    let length = keys.lens[usize::from(axis)];
    let lines = keys.num_elements().checked_div(length).unwrap_or(0);
    let pairs = lines.saturating_mul(1 << steps(length).min(62)) / 2;
    let stages = steps(length) * (steps(length) + 1) / 2;
    cost::launched(network(stages, pairs, keys, operands.len() > 2, chip), chip)
}

/// Two sorted blocks: one stage of pairs between them, then log2 stages inside the half that is kept.
pub(super) fn merge_cycles(ordered: bool, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let own = operands[0];
    let length = own.lens.last().copied().unwrap_or(1);
    let lines = own.num_elements().checked_div(length).unwrap_or(0);
    let pairs = lines.saturating_mul(1 << steps(length).min(62));
    let cycles =
        network(1, pairs, own, ordered, chip) + network(steps(length), pairs / 2, own, ordered, chip);
    cost::launched(cycles, chip)
}

/// Assumption: an element at a time as select, "5/elem+6" of one worker (section 6.2).
pub(super) fn pick_cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    let out = operands[operands.len() - 1];
    cost::supervisor(c(6) + c(5) * c(cost::per_worker(out.num_elements(), chip)), 0, chip)
}

#[cfg(test)]
mod tests;

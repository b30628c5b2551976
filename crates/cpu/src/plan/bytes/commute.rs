//! What picks or moves elements works on codes as well as on the reals they stand for: maxima, slices, concatenations and
//! the like between DequantizeLinear and QuantizeLinear come first, and codes that are quantised as they were stay as they
//! are.
//!
//! Exact: the maps are monotone and element by element; and `round(((q - zero) · scale) / scale) + zero` is q for whole
//! numbers of 8 bits. Padding of windows is below all codes on either side.

use super::known::{Known, Quantised, Real};
use crate::flat::{Flat, FlatNode, ValueIndex, Work};
use pando_base::{BinaryFn, ReduceFn};
use pando_graph::Op;

pub fn commute(flat: Flat) -> Flat {
    let moves = {
        let known = Known::of(&flat);
        let moves =
            flat.nodes.iter().map(|node| node.results.first().and_then(|&value| moved(&known, value)));
        moves.collect::<Vec<Option<Move>>>()
    };
    if moves.iter().all(Option::is_none) {
        return flat;
    }
    let Flat { values, nodes, params, mut results } = flat;
    let mut same: Vec<ValueIndex> = (0..values.len()).collect();
    let mut new: Vec<FlatNode> = Vec::with_capacity(nodes.len());
    for (mut node, found) in nodes.into_iter().zip(moves) {
        node.operands.iter_mut().for_each(|value| *value = same[*value]);
        match found {
            Some(Move { work: None, operands }) => same[node.results[0]] = same[operands[0]],
            Some(Move { work: Some(work), operands }) => {
                let operands = operands.iter().map(|&value| same[value]).collect();
                new.push(FlatNode { work, operands, ..node });
            }
            None => new.push(node),
        }
    }
    results.iter_mut().for_each(|value| *value = same[*value]);
    Flat { values, nodes: new, params, results }
}

/// Codes made of codes; `None`: they are the operand.
struct Move {
    work: Option<Work>,
    operands: Vec<ValueIndex>,
}

fn moved(known: &Known, codes: ValueIndex) -> Option<Move> {
    let quantised = known.quantised(codes)?;
    let x = unscaled(known, &quantised)?;
    let same = |real: &Real| is_same(known, real, codes, &quantised, &x.1);
    if let Some(real) = known.real(x.0) {
        return same(&real).then(|| Move { work: None, operands: vec![real.codes] });
    }
    let node = known.maker(x.0)?;
    let Work::Op(op) = &node.work else { return None };
    let count = match op {
        Op::Reshape { .. } | Op::Transpose { .. } | Op::Slice(_) => 1,
        Op::ReduceWindow(window) if window.func == ReduceFn::Max => 1,
        Op::Concat { .. } => node.operands.len(),
        _ => return None,
    };
    let reals = node.operands[..count].iter().map(|&operand| known.real(operand).filter(|real| same(real)));
    let operands = reals.map(|real| real.map(|real| real.codes)).collect::<Option<Vec<_>>>()?;
    Some(Move { work: Some(Work::Op(op.clone())), operands })
}

/// What is quantised, and by which scale.
fn unscaled(known: &Known, quantised: &Quantised) -> Option<(ValueIndex, f32)> {
    match known.binary(quantised.before, BinaryFn::Div) {
        Some([x, scale]) => Some((x, known.numbers(scale)?.uniform()?)),
        // A scale of one is gone.
        None => Some((quantised.before, 1.0)),
    }
}

fn is_same(known: &Known, real: &Real, codes: ValueIndex, quantised: &Quantised, scale: &f32) -> bool {
    known.dtype(real.codes) == known.dtype(codes) && real.uniform() == Some((quantised.zero, *scale))
}

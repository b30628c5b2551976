//! The gradients of values, which are sums over the uses of each. A sum is made when it is read, so that
//! terms that are mostly zeros are put together without adding zeros.

use crate::builder::Builder;
use crate::module::ValueId;
use crate::op::{Op, Pad};
use pando_base::{ReduceFn, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

#[derive(Default)]
pub(super) struct Sums {
    terms: FxHashMap<ValueId, SmallVec<[ValueId; 2]>>,
}

impl Sums {
    pub(super) fn add(&mut self, value: ValueId, term: ValueId) {
        self.terms.entry(value).or_default().push(term);
    }

    pub(super) fn contains(&self, value: ValueId) -> bool {
        self.terms.contains_key(&value)
    }

    /// The gradient of a value; `None` if no term has come.
    pub(super) fn total(&mut self, b: &mut Builder, value: ValueId) -> Result<Option<ValueId>> {
        let Some(terms) = self.terms.get_mut(&value) else { return Ok(None) };
        if terms.len() > 1 {
            let total = sum(b, terms)?;
            *terms = SmallVec::from_slice(&[total]);
        }
        Ok(Some(terms[0]))
    }
}

fn sum(b: &mut Builder, terms: &[ValueId]) -> Result<ValueId> {
    let parts: Vec<Part> = terms.iter().filter_map(|&term| part(b, term)).collect();
    let mut rest: Vec<ValueId> =
        terms.iter().copied().filter(|&term| !parts.iter().any(|part| part.term == term)).collect();
    match joined(b, parts.clone())? {
        Some(joined) => rest.insert(0, joined),
        None => rest = terms.to_vec(),
    }
    // Scatters come last: they add to what stands already, not to zeros.
    rest.sort_by_key(|&term| scattered(b, term).is_some());
    let mut total = rest[0];
    for &term in &rest[1..] {
        total = plus(b, total, term)?;
    }
    Ok(total)
}

fn plus(b: &mut Builder, total: ValueId, term: ValueId) -> Result<ValueId> {
    match scattered(b, term) {
        Some((op, indices, updates)) => b.op(op, &[total, indices, updates]),
        None => b.add(total, term),
    }
}

/// The op, indices and updates of a scatter that adds to zeros.
fn scattered(b: &Builder, term: ValueId) -> Option<(Op, ValueId, ValueId)> {
    let node = b.def_node(term)?;
    let node = &b.func().nodes[node];
    match &node.op {
        op @ Op::Scatter { combine: Some(ReduceFn::Sum), .. }
            if b.splat_of(node.operands[0]) == Some(0.0) =>
        {
            Some((op.clone(), node.operands[1], node.operands[2]))
        }
        _ => None,
    }
}

/// A term that is zero but for `source`, at `begin..end` along one axis.
#[derive(Clone)]
struct Part {
    term: ValueId,
    source: ValueId,
    axis: usize,
    begin: u64,
    end: u64,
}

fn part(b: &Builder, term: ValueId) -> Option<Part> {
    let node = &b.func().nodes[b.def_node(term)?];
    let Op::Pad(Pad { low, high, interior }) = &node.op else { return None };
    let mut padded = (0..low.len()).filter(|&axis| low[axis] != 0 || high[axis] != 0);
    let (axis, more) = (padded.next()?, padded.next());
    let plain = more.is_none() && low[axis] >= 0 && high[axis] >= 0 && interior.iter().all(|&gap| gap == 0);
    if !plain || b.splat_of(node.operands[1]) != Some(0.0) {
        return None;
    }
    let (source, begin) = (node.operands[0], low[axis] as u64);
    let size = b.ty(source).dims[axis].known()?;
    Some(Part { term, source, axis, begin, end: begin + size })
}

/// The sum of parts along one axis that do not overlap, with zeros in the gaps: the gradient of a value that
/// was split. `None` if they are fewer than two or overlap.
fn joined(b: &mut Builder, mut parts: Vec<Part>) -> Result<Option<ValueId>> {
    parts.sort_by_key(|part| part.begin);
    let disjoint = parts.windows(2).all(|pair| pair[0].axis == pair[1].axis && pair[0].end <= pair[1].begin);
    if parts.len() < 2 || !disjoint {
        return Ok(None);
    }
    let (axis, ty) = (parts[0].axis, b.ty(parts[0].term).clone());
    let size = ty.dims[axis].known().expect("a pad of known parts");
    let (mut pieces, mut end) = (Vec::new(), 0);
    for (begin, next, source) in
        parts.iter().map(|part| (part.begin, part.end, Some(part.source))).chain([(size, size, None)])
    {
        if begin > end {
            let mut gap = ty.clone();
            gap.dims[axis] = (begin - end).into();
            pieces.push(b.splat(&gap, 0.0)?);
        }
        pieces.extend(source);
        end = next;
    }
    b.concat(&pieces, axis).map(Some)
}

//! Rules of reductions. Those other than sums go by groups: elements that were combined into one.

use super::{Gradients, Visit};
use crate::builder::Builder;
use crate::module::ValueId;
use pando_base::{CompareFn, ReduceFn, Result};
use smallvec::smallvec;

pub(super) fn reduce(b: &mut Builder, at: &Visit, func: ReduceFn, axes: &[usize]) -> Result<Gradients> {
    let x = at.operand(0);
    let dims = b.ty(x).dims.clone();
    let kept: Vec<usize> = (0..dims.len()).filter(|axis| !axes.contains(axis)).collect();
    let spread =
        move |b: &mut Builder, whole: ValueId, _member: usize| b.broadcast(whole, dims.clone(), &kept);
    if func == ReduceFn::Sum {
        return Ok(smallvec![Some(spread(b, at.gradient(), 0)?)]);
    }
    let group = Group { func, all: at.result(), gradient: at.gradient() };
    let collect = |b: &mut Builder, func: ReduceFn, members: [ValueId; 1]| b.reduce(func, members[0], axes);
    let [gradient] = members(b, &group, [x], spread, collect)?;
    Ok(smallvec![Some(gradient)])
}

/// What elements were combined to, by a product, maximum or minimum, and its gradient.
pub(super) struct Group {
    pub func: ReduceFn,
    pub all: ValueId,
    pub gradient: ValueId,
}

/// The gradients of a group's members: several tensors, if they come from several. `spread` gives each element of
/// a member what belongs to its group, `collect` combines members into groups.
pub(super) fn members<const N: usize>(
    b: &mut Builder,
    group: &Group,
    members: [ValueId; N],
    spread: impl Fn(&mut Builder, ValueId, usize) -> Result<ValueId>,
    collect: impl Fn(&mut Builder, ReduceFn, [ValueId; N]) -> Result<ValueId>,
) -> Result<[ValueId; N]> {
    match group.func {
        ReduceFn::Prod => product(b, group.gradient, members, spread, collect),
        _ => extreme(b, group, members, spread, collect),
    }
}

/// Evenly to all members that are the maximum or minimum.
fn extreme<const N: usize>(
    b: &mut Builder,
    group: &Group,
    members: [ValueId; N],
    spread: impl Fn(&mut Builder, ValueId, usize) -> Result<ValueId>,
    collect: impl Fn(&mut Builder, ReduceFn, [ValueId; N]) -> Result<ValueId>,
) -> Result<[ValueId; N]> {
    let mut taken = members;
    for (index, &member) in members.iter().enumerate() {
        let all = spread(b, group.all, index)?;
        let is_taken = b.compare(CompareFn::Eq, member, all)?;
        taken[index] = flags(b, is_taken, member)?;
    }
    let count = collect(b, ReduceFn::Sum, taken)?;
    let share = b.div(group.gradient, count)?;
    let mut gradients = taken;
    for (index, gradient) in gradients.iter_mut().enumerate() {
        let share = spread(b, share, index)?;
        *gradient = b.mul(share, *gradient)?;
    }
    Ok(gradients)
}

/// To each member the product of all others: of those that are not zero, divided by itself, if no other member
/// is zero.
fn product<const N: usize>(
    b: &mut Builder,
    gradient: ValueId,
    members: [ValueId; N],
    spread: impl Fn(&mut Builder, ValueId, usize) -> Result<ValueId>,
    collect: impl Fn(&mut Builder, ReduceFn, [ValueId; N]) -> Result<ValueId>,
) -> Result<[ValueId; N]> {
    let (mut zero_counts, mut factors) = (members, members);
    for (index, &member) in members.iter().enumerate() {
        let (zero, one) = (b.splat_like(member, 0.0)?, b.splat_like(member, 1.0)?);
        let is_zero = b.compare(CompareFn::Eq, member, zero)?;
        zero_counts[index] = b.select(is_zero, one, zero)?;
        factors[index] = b.select(is_zero, one, member)?;
    }
    let (zeros, factor) = (collect(b, ReduceFn::Sum, zero_counts)?, collect(b, ReduceFn::Prod, factors)?);
    let numerator = b.mul(gradient, factor)?;
    let mut gradients = members;
    for (index, gradient) in gradients.iter_mut().enumerate() {
        let (zeros, numerator) = (spread(b, zeros, index)?, spread(b, numerator, index)?);
        let others_are_not_zero = b.compare(CompareFn::Eq, zeros, zero_counts[index])?;
        let quotient = b.div(numerator, factors[index])?;
        let none = b.splat_like(quotient, 0.0)?;
        *gradient = b.select(others_are_not_zero, quotient, none)?;
    }
    Ok(gradients)
}

/// One where a flag is set, zero elsewhere, in the type of `like`.
fn flags(b: &mut Builder, flag: ValueId, like: ValueId) -> Result<ValueId> {
    let dtype = b.ty(like).dtype;
    b.convert(flag, dtype)
}

//! Ways to break a sound program, one at a time.

use crate::source::Source;
use pando_base::Id;
use pando_tile::{ComputeSetId, CopyMap, ExchangeId, Program, Span, SrcIndex, VarId};

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    MoveGroup,
    ShiftOperand,
    WidenOperand,
    RepeatGroup,
    SwapOperand,
    DropCopy,
    RepeatCopy,
    ShiftCopy,
    ShrinkVar,
}

impl Mutation {
    pub const ALL: [Mutation; 9] = [
        Mutation::MoveGroup,
        Mutation::ShiftOperand,
        Mutation::WidenOperand,
        Mutation::RepeatGroup,
        Mutation::SwapOperand,
        Mutation::DropCopy,
        Mutation::RepeatCopy,
        Mutation::ShiftCopy,
        Mutation::ShrinkVar,
    ];
}

/// Breaks the program; nothing if it has no place for this mutation.
pub fn mutate(program: &mut Program, mutation: Mutation, source: &mut Source) -> Option<()> {
    match mutation {
        Mutation::MoveGroup => move_group(program, source),
        Mutation::ShiftOperand => shift_operand(program, source),
        Mutation::WidenOperand => widen_operand(program, source),
        Mutation::RepeatGroup => repeat_group(program, source),
        Mutation::SwapOperand => swap_operand(program, source),
        Mutation::DropCopy => drop_copy(program, source),
        Mutation::RepeatCopy => repeat_copy(program, source),
        Mutation::ShiftCopy => shift_copy(program, source),
        Mutation::ShrinkVar => shrink_var(program, source),
    }
}

fn some_set(program: &Program, source: &mut Source) -> Option<ComputeSetId> {
    let sets = program.compute_sets.len();
    (sets > 0).then(|| ComputeSetId::from_index(source.below(sets)))
}

fn some_exchange(program: &Program, source: &mut Source) -> Option<ExchangeId> {
    let exchanges = program.exchanges.len();
    (exchanges > 0).then(|| ExchangeId::from_index(source.below(exchanges)))
}

fn move_group(program: &mut Program, source: &mut Source) -> Option<()> {
    let set = some_set(program, source)?;
    let groups = &mut program.compute_sets[set].groups;
    let at = source.below(groups.len());
    let base = &mut groups[at].grid.base;
    *base = if source.chance(4) { *base + 1 } else { base.checked_sub(1)? };
    Some(())
}

/// Moves or changes one span of one operand.
fn change_span(
    program: &mut Program,
    source: &mut Source,
    change: impl Fn(Span, u64) -> Option<Span>,
) -> Option<()> {
    let set = some_set(program, source)?;
    let group = source.below(program.compute_sets[set].groups.len());
    let operand = source.below(program.compute_sets[set].groups[group].operands.len());
    let var = program.compute_sets[set].groups[group].operands[operand].var;
    let shape = program.vars[var].shape.clone();
    let region = &mut program.compute_sets[set].groups[group].operands[operand].region;
    let dim = source.below(region.len().max(1));
    *region.get_mut(dim)? = change(*region.get(dim)?, shape[dim])?;
    Some(())
}

fn shift_operand(program: &mut Program, source: &mut Source) -> Option<()> {
    change_span(program, source, |span, size| match span {
        Span::Fixed { begin, end } if end < size => Some(Span::Fixed { begin: begin + 1, end: end + 1 }),
        Span::Fixed { begin, end } if begin > 0 => Some(Span::Fixed { begin: begin - 1, end: end - 1 }),
        Span::Fixed { .. } => None,
        Span::Part(mut part) => {
            (part.lo, part.hi) = (part.lo + 1, part.hi + 1);
            Some(Span::Part(part))
        }
    })
}

/// A part becomes a window, or the whole: sizes may no longer match, and outputs may meet.
fn widen_operand(program: &mut Program, source: &mut Source) -> Option<()> {
    let window = source.chance(4);
    change_span(program, source, |span, size| match span {
        Span::Fixed { .. } => None,
        Span::Part(mut part) if window => {
            part.lo -= 1;
            Some(Span::Part(part))
        }
        Span::Part(_) => Some(Span::full(size)),
    })
}

/// The same vertices twice: their outputs meet.
fn repeat_group(program: &mut Program, source: &mut Source) -> Option<()> {
    let set = some_set(program, source)?;
    let groups = &mut program.compute_sets[set].groups;
    let group = groups[source.below(groups.len())].clone();
    groups.push(group);
    Some(())
}

/// An operand becomes another variable of the same type, shape and layout, or the output of another group.
fn swap_operand(program: &mut Program, source: &mut Source) -> Option<()> {
    let set = some_set(program, source)?;
    let group = source.below(program.compute_sets[set].groups.len());
    let operand = source.below(program.compute_sets[set].groups[group].operands.len());
    let var = program.compute_sets[set].groups[group].operands[operand].var;
    let first = &program.vars[var];
    let alike: Vec<VarId> = program
        .vars
        .iter()
        .filter(|(id, other)| *id != var && other.dtype == first.dtype && other.shape == first.shape)
        .map(|(id, _)| id)
        .collect();
    let other = *alike.get(source.below(alike.len()))?;
    program.compute_sets[set].groups[group].operands[operand].var = other;
    Some(())
}

fn drop_copy(program: &mut Program, source: &mut Source) -> Option<()> {
    let exchange = some_exchange(program, source)?;
    let copies = &mut program.exchanges[exchange].copies;
    copies.remove(source.below(copies.len()));
    Some(())
}

fn repeat_copy(program: &mut Program, source: &mut Source) -> Option<()> {
    let exchange = some_exchange(program, source)?;
    let copies = &mut program.exchanges[exchange].copies;
    let copy = copies[source.below(copies.len())].clone();
    copies.push(copy);
    Some(())
}

/// Moves the destination of a copy, so that joined copies overlap.
fn shift_copy(program: &mut Program, source: &mut Source) -> Option<()> {
    let exchange = some_exchange(program, source)?;
    let copies = &mut program.exchanges[exchange].copies;
    let at = source.below(copies.len());
    match &mut copies[at].map {
        CopyMap::Affine { region, dims } => {
            let bounds = region.0.first_mut()?;
            *bounds = (bounds.0.checked_sub(1)?, bounds.1 - 1);
            for index in dims.iter_mut() {
                if let SrcIndex::Dst { dim: 0, step, offset } = index {
                    *offset += *step;
                }
            }
            Some(())
        }
        CopyMap::Flat { src_begin, len, .. } => {
            (*src_begin, *len) = (*src_begin + 1, len.checked_sub(1)?);
            Some(())
        }
    }
}

/// A variable holds one index less along a dimension.
fn shrink_var(program: &mut Program, source: &mut Source) -> Option<()> {
    let var = VarId::from_index(source.below(program.vars.len()));
    let var = &mut program.vars[var];
    let dim = source.below(var.home.region.len().max(1));
    match var.home.region.get_mut(dim)? {
        Span::Fixed { end, .. } => *end = end.checked_sub(1)?,
        Span::Part(part) => part.hi -= 1,
    }
    Some(())
}

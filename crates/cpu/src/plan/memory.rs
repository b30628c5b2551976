//! Places buffers in one arena: each gets the lowest gap among those live with it, largest first among those
//! that begin together. A buffer lives from the step that writes it first to the one that uses it last. A large result of
//! a step that goes row by row lies where its operand does, if that dies.

use super::{Changes, Draft};
use crate::step::Step;
use crate::view::{BufferId, View};
use pando_base::{Arena, SideTable};

/// Offsets are multiples of this: a cache line.
pub const ALIGN: usize = 64;

/// First and last step that use a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub first: usize,
    pub last: usize,
}

/// The lives of all buffers that steps or results name.
pub fn lives<'a>(
    steps: impl Iterator<Item = &'a Step>,
    results: &[View],
) -> SideTable<BufferId, Option<Life>> {
    let mut lives: SideTable<BufferId, Option<Life>> = SideTable::with_default(None);
    for (index, step) in steps.enumerate() {
        for view in step.inputs.iter().chain(&step.outputs).chain(&step.scratch) {
            let first = lives[view.buffer].map_or(index, |life| life.first);
            lives[view.buffer] = Some(Life { first, last: index });
        }
    }
    for view in results {
        let first = lives[view.buffer].map_or(0, |life| life.first);
        lives[view.buffer] = Some(Life { first, last: usize::MAX });
    }
    lives
}

/// Smaller results are not worth sharing the memory of operands.
const LARGE: usize = 1 << 20;

/// For each buffer that lies where an operand of its maker does, which nobody needs any more, that operand.
pub(super) fn taken_over(
    steps: &[Step],
    results: &[View],
    drafts: &Arena<BufferId, Draft>,
) -> SideTable<BufferId, Option<BufferId>> {
    let lives = lives(steps.iter(), results);
    let mut taken = SideTable::with_default(None);
    let movable = |buffer: BufferId| {
        let draft = &drafts[buffer];
        draft.place.is_none() && draft.changes == Changes::EachRun && draft.bytes >= LARGE
    };
    for (at, step) in steps.iter().enumerate() {
        let Some(operand) = step.operand_to_overwrite() else { continue };
        let result = step.outputs[0].buffer;
        let ends = lives[operand].is_some_and(|life| life.last == at);
        let begins = lives[result].is_some_and(|life| life.first == at);
        let same = drafts[operand].bytes == drafts[result].bytes;
        if ends && begins && same && movable(operand) && movable(result) {
            taken[result] = Some(operand);
        }
    }
    taken
}

/// Offsets of the buffers without a place that change as `kind` says, and the size of the memory for them.
pub(super) fn place(
    steps: &[Step],
    results: &[View],
    drafts: &Arena<BufferId, Draft>,
    kind: &dyn Fn(Changes) -> bool,
    taken: &SideTable<BufferId, Option<BufferId>>,
) -> (SideTable<BufferId, Option<usize>>, usize) {
    let mut lives = lives(steps.iter(), results);
    let first = |mut buffer: BufferId| {
        while let Some(before) = taken[buffer] {
            buffer = before;
        }
        buffer
    };
    let followers: Vec<BufferId> = drafts.ids().filter(|&id| taken[id].is_some()).collect();
    for &id in &followers {
        let last = lives[id].map_or(0, |life| life.last);
        if let Some(life) = &mut lives[first(id)] {
            life.last = life.last.max(last);
        }
    }
    let mut order: Vec<(BufferId, Life)> = drafts
        .iter()
        .filter(|&(id, draft)| draft.place.is_none() && kind(draft.changes) && taken[id].is_none())
        .filter_map(|(id, _)| Some((id, lives[id]?)))
        .collect();
    order.sort_by_key(|&(id, life)| (life.first, std::cmp::Reverse(drafts[id].bytes), id));
    let mut offsets = SideTable::with_default(None);
    // Live buffers by offset: (begin, end, last step).
    let mut live: Vec<(usize, usize, usize)> = Vec::new();
    let mut size = 0;
    for (id, life) in order {
        live.retain(|&(_, _, last)| last >= life.first);
        let bytes = drafts[id].bytes.next_multiple_of(ALIGN);
        let mut begin = 0;
        let mut at = 0;
        for &(other_begin, other_end, _) in &live {
            if begin + bytes <= other_begin {
                break;
            }
            begin = begin.max(other_end);
            at += 1;
        }
        live.insert(at, (begin, begin + bytes, life.last));
        size = size.max(begin + bytes);
        offsets[id] = Some(begin);
    }
    for id in followers {
        offsets[id] = offsets[first(id)];
    }
    (offsets, size)
}

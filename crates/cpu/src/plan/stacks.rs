//! Stacks of a loop: tensors with a row for each iteration. What an iteration reads of its own row it reads there, and
//! what it writes to its own row is made there, if it is made at all.

use super::{Changes, Draft, Place, Planner};
use crate::flat::{FlatNode, FlatType, ValueIndex, Work};
use crate::model::Input;
use crate::step::movement::Movement;
use crate::step::{Kind, Step};
use crate::view::View;
use pando_base::{BinaryFn, ReduceFn};
use pando_graph::Op;

/// The row of a parameter that belongs to the iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number.
    pub param: usize,
    pub count: u64,
    /// Whether the first iteration has the last row.
    pub backwards: bool,
}

impl Row {
    pub fn index(&self, iteration: u64) -> u64 {
        if self.backwards { self.count - 1 - iteration } else { iteration }
    }
}

impl Planner<'_> {
    /// What a gather of an iteration's own row gives, if nobody changes the parameter meanwhile.
    pub(super) fn row_read(&mut self, axis: usize, node: &FlatNode, ty: &FlatType) -> Option<View> {
        let row = self.own_row(axis, node)?;
        (self.options.fuse && self.state.is_steady(row.param)).then(|| self.row(row, ty))
    }

    /// The stack after a scatter into an iteration's own row. Nobody else may look at the stack.
    pub(super) fn row_written(
        &mut self,
        axis: usize,
        combine: Option<ReduceFn>,
        node: &FlatNode,
    ) -> Option<View> {
        let row = self.own_row(axis, node).filter(|_| combine.is_none() && self.options.fuse)?;
        let (&[stack, _, update], result) = (node.operands.as_slice(), node.results[0]) else { return None };
        let replaces =
            |&(param, index): &(usize, usize)| param == row.param && self.flat.results[index] == result;
        let once = |value| self.flat.results.iter().filter(|&&other| other == value).count();
        let alone = self.users[stack].len() == 1 && self.users[result].is_empty();
        if !self.state.aliases.iter().any(replaces) || !alone || once(result) != 1 || once(stack) != 0 {
            return None;
        }
        let (update, ty) = (self.view(update), self.flat.values[update].clone());
        if self.may_move(&update) {
            self.buffers[update.buffer].place = Some(Place::Row(row));
        } else {
            let outputs = vec![self.row(row, &ty)];
            let (name, kind) = (self.name.clone(), Kind::Movement(Movement::Copy));
            self.steps.push(Step { name, kind, inputs: vec![update], outputs, scratch: None });
        }
        Some(self.view(stack))
    }

    /// The row that a gather or scatter without a function is about, in a parameter that has one for each iteration.
    fn own_row(&self, axis: usize, node: &FlatNode) -> Option<Row> {
        let count = self.state.count?;
        let (stack, index) = (node.operands[0], node.operands[1]);
        let param = self.flat.params.iter().position(|&param| param == stack)?;
        let sizes = &self.flat.values[stack].sizes;
        let row_bytes = self.view(stack).num_bytes() / sizes.first().copied().unwrap_or(1).max(1);
        let fits = axis == 0 && sizes.first() == Some(&(count as usize)) && count > 0;
        if !fits || !row_bytes.is_multiple_of(Input::ALIGNMENT) || self.view(index).num_elements() != 1 {
            return None;
        }
        Some(Row { param, count, backwards: self.counts_down(index, count)? })
    }

    /// Whether a value is the number of iterations left after this one, or, `Some(false)`, of those before it.
    fn counts_down(&self, value: ValueIndex, count: u64) -> Option<bool> {
        if value == self.flat.params[0] {
            return Some(false);
        }
        let node = &self.flat.nodes[self.makers[value]?];
        match (&node.work, node.operands.as_slice()) {
            (Work::Op(Op::Reshape { .. }), &[x]) => self.counts_down(x, count),
            (Work::Op(Op::Binary(BinaryFn::Sub)), &[last, done]) if done == self.flat.params[0] => {
                (self.constant_of(last) == Some((count - 1) as f64)).then_some(true)
            }
            _ => None,
        }
    }

    fn row(&mut self, row: Row, ty: &FlatType) -> View {
        let view = View::dense(crate::view::BufferId::default(), ty.dtype, &ty.sizes);
        let place = Some(Place::Row(row));
        let draft = Draft { bytes: view.num_bytes(), place, changes: Changes::EachRun, constant: None };
        View { buffer: self.buffers.push(draft), ..view }
    }

    /// Whether a buffer that a step makes for this view can lie anywhere.
    fn may_move(&self, view: &View) -> bool {
        let draft = &self.buffers[view.buffer];
        let whole = view.is_dense() && view.offset == 0 && view.num_bytes() == draft.bytes;
        whole && draft.place.is_none() && draft.changes == Changes::EachRun && draft.constant.is_none()
    }
}

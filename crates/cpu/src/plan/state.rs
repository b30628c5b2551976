//! Parameters whose memory a result takes over. The step that makes such a result writes where the parameter is
//! if every other reader of the parameter can run before it; otherwise the result is copied there, last.
//!
//! Cost: per result a walk over the steps behind its maker.

use super::program::copy_of;
use super::schedule::Before;
use super::{Changes, Draft, Place, Planner};
use crate::step::gemm::Gemm;
use crate::step::movement::Movement;
use crate::step::order::Order;
use crate::step::program::{Access, Input, Program};
use crate::step::{Kind, Step};
use crate::view::{BufferId, View};

/// What of a function outlives its runs, or those of a loop.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// Parameters that change rarely.
    pub steady: Vec<usize>,
    /// Parameters and the results that replace them.
    pub aliases: Vec<(usize, usize)>,
    /// How often a loop's body runs, whose first parameter counts the iterations.
    pub count: Option<u64>,
}

impl Declared {
    /// The parameter that a result replaces.
    pub fn replaced_by(&self, result: usize) -> Option<usize> {
        self.aliases.iter().find(|alias| alias.1 == result).map(|alias| alias.0)
    }

    pub fn is_steady(&self, param: usize) -> bool {
        self.steady.contains(&param)
    }
}

/// A buffer that lies where a parameter does.
pub(super) struct Replaced {
    pub param: BufferId,
    pub buffer: BufferId,
}

impl Planner<'_> {
    /// Decides where the results that replace parameters are made, and appends copies of those that cannot be
    /// made in place.
    pub(super) fn replace(
        &mut self,
        state: &Declared,
        params: &[BufferId],
        results: &[View],
    ) -> Vec<Replaced> {
        let mut before = Before::of(&self.steps);
        let (mut replaced, mut copies) = (Vec::new(), Vec::new());
        for &(param, result) in &state.aliases {
            let (buffer, view) = (params[param], &results[result]);
            if view.buffer == buffer {
                continue;
            }
            if self.takes_over(buffer, view, &mut before) {
                self.buffers[view.buffer].place = Some(Place::Replaces(param));
                replaced.push(Replaced { param: buffer, buffer: view.buffer });
            } else {
                copies.push((param, view.clone()));
            }
        }
        for (param, view) in copies {
            let place = Some(Place::Replaces(param));
            let draft = Draft { bytes: view.num_bytes(), place, changes: Changes::EachRun, constant: None };
            let buffer = self.buffers.push(draft);
            let (name, kind) = (self.name.clone(), Kind::Movement(Movement::Copy));
            let outputs = vec![View { buffer, ..view.clone() }];
            self.steps.push(Step { name, kind, inputs: vec![view], outputs, scratch: None });
            replaced.push(Replaced { param: params[param], buffer });
        }
        replaced
    }

    /// Whether a result can be made where a parameter is; if so, its maker waits for the parameter's readers.
    fn takes_over(&mut self, param: BufferId, view: &View, before: &mut Before) -> bool {
        let draft = &self.buffers[view.buffer];
        let own = draft.place.is_none() && draft.changes == Changes::EachRun;
        let whole = view.num_bytes() == draft.bytes && draft.bytes == self.buffers[param].bytes;
        let maker =
            self.steps.iter().rposition(|step| step.outputs.iter().any(|out| out.buffer == view.buffer));
        let Some(maker) = maker.filter(|_| own && whole) else { return false };
        let reads = |step: &Step| step.inputs.iter().any(|input| input.buffer == param);
        if reads(&self.steps[maker]) && !overwrites(&mut self.steps[maker], param, self.options.isa) {
            return false;
        }
        let others = (0..self.steps.len()).filter(|&at| at != maker && reads(&self.steps[at])).collect();
        before.wait(maker, others)
    }
}

/// Whether a step reads a parameter only where it writes, each element before it is written; if so, made ready
/// for it.
fn overwrites(step: &mut Step, param: BufferId, isa: crate::isa::Isa) -> bool {
    let output = &step.outputs[0];
    let same = |view: &View| {
        let dense = matches!(Input::of(view).access, Access::Dense) || view.num_elements() == 1;
        let sizes = view.dtype.size_bytes() == output.dtype.size_bytes() && view.offset == 0;
        dense && sizes && view.num_elements() == output.num_elements()
    };
    let (first, program): (usize, &mut Program) = match &mut step.kind {
        Kind::Order(Order::Scatter { .. }) => {
            let others = step.inputs[1..].iter().any(|view| view.buffer == param);
            return !others && same(&step.inputs[0]);
        }
        Kind::Elementwise(program) => (0, program),
        Kind::Gemm(gemm) => match &mut **gemm {
            // Its first input is the product.
            Gemm { epilogue: Some(epilogue), target: None, .. } => (1, epilogue),
            _ => return false,
        },
        _ => return false,
    };
    let mut reads = step.inputs.iter().enumerate().filter(|(_, view)| view.buffer == param);
    let operands = if first > 0 { 2 } else { 0 };
    if !reads.all(|(index, view)| index >= operands && same(view)) {
        return false;
    }
    let inputs = step.inputs.iter().enumerate().filter(|(_, view)| view.buffer == param);
    for (index, _) in inputs {
        program.write_last(index - operands + first, copy_of(isa, program.output_bytes));
    }
    true
}

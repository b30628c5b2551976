//! The order of steps where some write over parameters: each after all other readers of what it overwrites, and
//! those that let go of as much memory as they take as soon as they can run. A gradient is used up
//! before the next one is made, so that they never all live at once.
//!
//! Before: steps in an order that makes operands before uses. After: the same steps in such an order.
//! Cost: linear in steps and uses, and a heap.

use super::Draft;
use super::state::Replaced;
use crate::step::Step;
use crate::view::BufferId;
use pando_base::{Arena, SideTable};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes that are not worth waiting for: what reads a large buffer is done with it the sooner.
const TINY: usize = 1 << 10;

/// Which steps run after which.
pub(super) struct Before {
    after: Vec<Vec<usize>>,
}

impl Before {
    /// By the buffers that steps make and use.
    pub fn of(steps: &[Step]) -> Before {
        let mut makers: SideTable<BufferId, Option<usize>> = SideTable::with_default(None);
        let mut after = vec![Vec::new(); steps.len()];
        for (at, step) in steps.iter().enumerate() {
            for input in &step.inputs {
                if let Some(maker) = makers[input.buffer] {
                    after[maker].push(at);
                }
            }
            step.outputs.iter().for_each(|output| makers[output.buffer] = Some(at));
        }
        after.iter_mut().for_each(|steps: &mut Vec<usize>| steps.dedup());
        Before { after }
    }

    /// Makes a step wait for others, unless one of them waits for it.
    pub fn wait(&mut self, step: usize, others: Vec<usize>) -> bool {
        let mut reached = vec![false; self.after.len()];
        let mut open = vec![step];
        while let Some(at) = open.pop() {
            for &next in &self.after[at] {
                if !std::mem::replace(&mut reached[next], true) {
                    open.push(next);
                }
            }
        }
        let possible = others.iter().all(|&other| !reached[other]);
        if possible {
            others.iter().for_each(|&other| self.after[other].push(step));
        }
        possible
    }
}

pub(super) fn schedule(
    steps: Vec<Step>,
    replaced: &[Replaced],
    drafts: &Arena<BufferId, Draft>,
) -> Vec<Step> {
    if replaced.is_empty() {
        return steps;
    }
    let mut before = Before::of(&steps);
    for &Replaced { param, buffer } in replaced {
        let maker = steps.iter().position(|step| step.outputs.iter().any(|view| view.buffer == buffer));
        let Some(maker) = maker else { continue };
        let reads = |step: &Step| step.inputs.iter().any(|view| view.buffer == param);
        let readers = (0..steps.len()).filter(|&at| at != maker && reads(&steps[at])).collect();
        assert!(before.wait(maker, readers), "a step that overwrites a parameter waits for itself");
    }
    let order = Scheduler::of(&steps, &before, drafts).run(&before);
    let mut steps: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    order.into_iter().map(|at| steps[at].take().expect("each step once")).collect()
}

struct Scheduler<'a> {
    steps: &'a [Step],
    drafts: &'a Arena<BufferId, Draft>,
    /// Steps that a step still waits for.
    waits: Vec<usize>,
    /// Steps that still read a buffer.
    readers: SideTable<BufferId, usize>,
    /// Steps by buffers they read.
    reading: SideTable<BufferId, Vec<usize>>,
    ready: BinaryHeap<Reverse<usize>>,
    /// Ready steps that take no memory.
    cheap: BinaryHeap<Reverse<usize>>,
    done: Vec<bool>,
}

impl<'a> Scheduler<'a> {
    fn of(steps: &'a [Step], before: &Before, drafts: &'a Arena<BufferId, Draft>) -> Scheduler<'a> {
        let mut waits = vec![0; steps.len()];
        before.after.iter().flatten().for_each(|&step| waits[step] += 1);
        let mut readers: SideTable<BufferId, usize> = SideTable::with_default(0);
        let mut reading: SideTable<BufferId, Vec<usize>> = SideTable::with_default(Vec::new());
        for (at, step) in steps.iter().enumerate() {
            for buffer in distinct_inputs(step) {
                readers[buffer] += 1;
                reading[buffer].push(at);
            }
        }
        let (ready, cheap) = (BinaryHeap::new(), BinaryHeap::new());
        let done = vec![false; steps.len()];
        Scheduler { steps, drafts, waits, readers, reading, ready, cheap, done }
    }

    fn run(mut self, before: &Before) -> Vec<usize> {
        let first = (0..self.steps.len()).filter(|&at| self.waits[at] == 0).collect::<Vec<usize>>();
        first.into_iter().for_each(|at| self.add(at));
        let mut order = Vec::with_capacity(self.steps.len());
        while let Some(Reverse(at)) = self.cheap.pop().or_else(|| self.ready.pop()) {
            if std::mem::replace(&mut self.done[at], true) {
                continue;
            }
            order.push(at);
            for &next in &before.after[at] {
                self.waits[next] -= 1;
                if self.waits[next] == 0 {
                    self.add(next);
                }
            }
            for buffer in distinct_inputs(&self.steps[at]) {
                self.readers[buffer] -= 1;
                if self.readers[buffer] == 1 {
                    self.last_reader(buffer);
                }
            }
        }
        assert_eq!(order.len(), self.steps.len(), "steps that wait for each other");
        order
    }

    fn add(&mut self, at: usize) {
        self.ready.push(Reverse(at));
        if self.is_cheap(at) {
            self.cheap.push(Reverse(at));
        }
    }

    /// The one step that still reads a buffer may have become cheap.
    fn last_reader(&mut self, buffer: BufferId) {
        let last = self.reading[buffer].iter().copied().find(|&at| !self.done[at]);
        if let Some(at) = last.filter(|&at| self.waits[at] == 0 && self.is_cheap(at)) {
            self.cheap.push(Reverse(at));
        }
    }

    /// Whether a step lets go of as much memory as it takes, or takes next to none.
    fn is_cheap(&self, at: usize) -> bool {
        let step = &self.steps[at];
        let taken: usize = step.outputs.iter().map(|view| self.size(view.buffer)).sum();
        let freed = distinct_inputs(step).filter(|&buffer| self.readers[buffer] == 1);
        taken <= TINY || taken <= freed.map(|buffer| self.size(buffer)).sum()
    }

    /// Bytes of the arena.
    fn size(&self, buffer: BufferId) -> usize {
        let draft = &self.drafts[buffer];
        let own = draft.place.is_none() && draft.changes == super::Changes::EachRun;
        if own { draft.bytes } else { 0 }
    }
}

fn distinct_inputs(step: &Step) -> impl Iterator<Item = BufferId> {
    let inputs = &step.inputs;
    let first = move |&(at, view): &(usize, &crate::view::View)| {
        !inputs[..at].iter().any(|other| other.buffer == view.buffer)
    };
    inputs.iter().enumerate().filter(first).map(|(_, view)| view.buffer)
}

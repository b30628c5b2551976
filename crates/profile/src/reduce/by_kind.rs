//! Cycles by what they are spent on.

use crate::schema::{Cycles, Step, StepKind};
use std::collections::BTreeMap;

/// Cycles per run by part, repetitions counted.
pub fn cycles_by_kind(steps: &[Step]) -> Cycles {
    let mut sum = Cycles::default();
    steps.iter().for_each(|step| sum.add(&step.parts, step.times));
    sum
}

/// Cycles per run by the kind of step, repetitions counted.
pub fn cycles_by_step_kind(steps: &[Step]) -> BTreeMap<StepKind, u64> {
    let mut sums: BTreeMap<StepKind, u64> = BTreeMap::new();
    for step in steps {
        let sum = sums.entry(step.kind).or_default();
        *sum = sum.saturating_add(step.total_cycles());
    }
    sums
}

//! Steps grouped by the operation they came from.

use crate::schema::{Operation, Step};
use std::collections::BTreeMap;

/// The operation of a step's name: what stands before the first `:`, which separates a stage of the
/// operation (`dot/h1:reduce` is a stage of `dot/h1`).
pub fn operation_name(step: &str) -> &str {
    step.split_once(':').map_or(step, |(operation, _)| operation)
}

/// All operations in order of first appearance.
pub fn operations(steps: &[Step]) -> Vec<Operation> {
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    let mut out: Vec<Operation> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let name = operation_name(&step.name);
        let position = *index.entry(name).or_insert_with(|| {
            out.push(Operation { name: name.into(), first_step: at as u32, ..Operation::default() });
            out.len() - 1
        });
        add(&mut out[position], step);
    }
    out
}

fn add(operation: &mut Operation, step: &Step) {
    let scaled = |value: u64| value.saturating_mul(step.times);
    operation.steps += 1;
    operation.cycles = operation.cycles.saturating_add(step.total_cycles());
    operation.parts.add(&step.parts, step.times);
    operation.flops = operation.flops.saturating_add(scaled(step.flops));
    operation.sent_bytes = operation.sent_bytes.saturating_add(scaled(step.sent_bytes));
    operation.tiles_used = operation.tiles_used.max(step.tiles_used);
}

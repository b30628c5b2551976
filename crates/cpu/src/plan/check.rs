//! The placement, proved from the definition rather than from how it was made: what every pointer in this
//! crate relies on.

use super::{Place, Plan, memory};
use crate::view::{BufferId, View};
use pando_base::Id;

/// # Panics
/// If a view leaves its buffer, a buffer its arena, two buffers that live at once overlap, or a step writes
/// what is not its own.
pub fn check(plan: &Plan) {
    for step in &plan.steps {
        for view in step.inputs.iter().chain(&step.outputs).chain(&step.scratch) {
            check_inside(plan, view, step.kind_name());
        }
        for output in step.outputs.iter().chain(&step.scratch) {
            assert!(output.is_dense(), "{} writes the strided view {output:?}", step.kind_name());
            assert!(
                matches!(plan.buffers[output.buffer].place, Place::Arena(_)),
                "{} writes {}, which is no part of the arena",
                step.kind_name(),
                output.buffer
            );
            let reads = step.inputs.iter().any(|input| input.buffer == output.buffer);
            assert!(!reads, "{} reads {} while writing it", step.kind_name(), output.buffer);
        }
    }
    plan.results.iter().for_each(|view| check_inside(plan, view, "return"));
    check_overlaps(plan);
}

fn check_inside(plan: &Plan, view: &View, step: &str) {
    let Some((low, high)) = view.extent() else { return };
    let elements = plan.buffers[view.buffer].bytes as u64 / view.dtype.size_bytes();
    assert!(low >= 0 && (high as u64) < elements, "{step}: the view {view:?} leaves its {elements} elements");
}

/// Sorted by the first step, each buffer is compared with those still live: quadratic only in those.
fn check_overlaps(plan: &Plan) {
    let lives = memory::lives(&plan.steps, &plan.results);
    let mut placed: Vec<(BufferId, memory::Life, usize, usize)> = Vec::new();
    for (id, buffer) in plan.buffers.iter() {
        if let (Place::Arena(offset), Some(life)) = (&buffer.place, lives[id]) {
            assert!(offset + buffer.bytes <= plan.arena_bytes, "{id} leaves the arena");
            placed.push((id, life, *offset, offset + buffer.bytes));
        }
    }
    placed.sort_by_key(|&(id, life, ..)| (life.first, id.index()));
    let mut live: Vec<(BufferId, memory::Life, usize, usize)> = Vec::new();
    for new in placed {
        live.retain(|old| old.1.last >= new.1.first);
        if let Some(old) = live.iter().find(|old| old.2 < new.3 && new.2 < old.3) {
            panic!("{} and {} are live at step {} and overlap", old.0, new.0, new.1.first);
        }
        live.push(new);
    }
}

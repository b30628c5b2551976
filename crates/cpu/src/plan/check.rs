//! The placement, proved from the definition rather than from how it was made: what every pointer in this
//! crate relies on.

use super::{Place, Plan, memory};
use crate::step::{Kind, Step};
use crate::view::{BufferId, View};
use pando_base::Id;

/// # Panics
/// If a view leaves its buffer, a buffer its arena, two buffers that live at once overlap, or a step writes
/// what is not its own.
pub fn check(plan: &Plan) {
    for step in &plan.prepared {
        check_step(plan, step, |place| matches!(place, Place::Prepared(_)));
    }
    for step in &plan.steps {
        check_step(plan, step, |place| matches!(place, Place::Arena(_) | Place::Replaces(_)));
    }
    plan.results.iter().for_each(|view| check_inside(plan, view, "return"));
    let arena = |place: &Place| if let Place::Arena(offset) = place { Some(*offset) } else { None };
    let kept = |place: &Place| if let Place::Prepared(offset) = place { Some(*offset) } else { None };
    let all = || plan.prepared.iter().chain(&plan.steps);
    check_overlaps(plan, (plan.steps.iter(), &plan.results), arena, plan.arena_bytes);
    // Room that the preparation needs while it runs.
    check_overlaps(plan, (plan.prepared.iter(), &[]), arena, plan.arena_bytes);
    check_overlaps(plan, (all(), &plan.results), kept, plan.prepared_bytes);
    check_replaced(plan);
}

fn check_step(plan: &Plan, step: &Step, may_write: impl Fn(&Place) -> bool) {
    for view in step.inputs.iter().chain(&step.outputs).chain(&step.scratch) {
        check_inside(plan, view, step.kind_name());
    }
    let scratch = step.scratch.iter().map(|view| (view, true));
    for (output, is_scratch) in step.outputs.iter().map(|view| (view, false)).chain(scratch) {
        assert!(output.is_dense(), "{} writes the strided view {output:?}", step.kind_name());
        let place = &plan.buffers[output.buffer].place;
        let own = if is_scratch { matches!(place, Place::Arena(_)) } else { may_write(place) };
        assert!(own, "{} writes {}, which is not its own", step.kind_name(), output.buffer);
        let reads = step.inputs.iter().any(|input| input.buffer == output.buffer);
        assert!(!reads, "{} reads {} while writing it", step.kind_name(), output.buffer);
    }
}

/// Nobody reads a parameter after the step that writes over it; that step itself only element by element.
fn check_replaced(plan: &Plan) {
    for (at, step) in plan.steps.iter().enumerate() {
        for output in &step.outputs {
            let Place::Replaces(param) = plan.buffers[output.buffer].place else { continue };
            let old = plan.params[param];
            let reads = |step: &Step| step.inputs.iter().any(|view| view.buffer == old);
            assert!(
                !plan.steps[at + 1..].iter().any(reads),
                "{old} is read after {} replaced it",
                output.buffer
            );
            let by_element = matches!(
                step.kind,
                Kind::Elementwise(_) | Kind::Together(_) | Kind::Gemm(_) | Kind::Order(_)
            );
            assert!(by_element || !reads(step), "{} reads {old} while replacing it", step.kind_name());
            assert!(!plan.prepared.iter().any(reads), "{old} is prepared, and replaced");
            assert_eq!(plan.buffers[old].bytes, plan.buffers[output.buffer].bytes, "{old} has another size");
        }
    }
}

fn check_inside(plan: &Plan, view: &View, step: &str) {
    let Some((low, high)) = view.extent() else { return };
    let elements = plan.buffers[view.buffer].bytes as u64 / view.dtype.size_bytes();
    assert!(low >= 0 && (high as u64) < elements, "{step}: the view {view:?} leaves its {elements} elements");
}

/// Sorted by the first step, each buffer is compared with those still live: quadratic only in those.
fn check_overlaps<'a>(
    plan: &Plan,
    (steps, results): (impl Iterator<Item = &'a Step>, &[View]),
    offset: impl Fn(&Place) -> Option<usize>,
    size: usize,
) {
    let lives = memory::lives(steps, results);
    let mut placed: Vec<(BufferId, memory::Life, usize, usize)> = Vec::new();
    for (id, buffer) in plan.buffers.iter() {
        if let (Some(offset), Some(life)) = (offset(&buffer.place), lives[id]) {
            assert!(offset + buffer.bytes <= size, "{id} leaves the arena");
            placed.push((id, life, offset, offset + buffer.bytes));
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

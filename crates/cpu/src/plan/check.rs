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
        check_step(plan, step, |place| matches!(place, Place::Arena(_) | Place::Replaces(_) | Place::Row(_)));
    }
    plan.results.iter().for_each(|view| check_inside(plan, view, "return"));
    let arena = |place: &Place| if let Place::Arena(offset) = place { Some(*offset) } else { None };
    let kept = |place: &Place| if let Place::Prepared(offset) = place { Some(*offset) } else { None };
    let over = |at: usize| {
        plan.steps[at].operand_to_overwrite().map(|operand| (operand, plan.steps[at].outputs[0].buffer))
    };
    let never = |_| None;
    let all = || plan.prepared.iter().chain(&plan.steps);
    check_overlaps(plan, (plan.steps.iter(), &plan.results), arena, plan.arena_bytes, over);
    // Room that the preparation needs while it runs.
    check_overlaps(plan, (plan.prepared.iter(), &[]), arena, plan.arena_bytes, never);
    check_overlaps(plan, (all(), &plan.results), kept, plan.prepared_bytes, never);
    check_replaced(plan);
    check_rows(plan);
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

/// Rows lie in their parameters. One that is written has no other user of its parameter beside it.
fn check_rows(plan: &Plan) {
    let uses = |step: &Step, buffer: BufferId| step.inputs.iter().any(|view| view.buffer == buffer);
    for &(buffer, row) in &plan.rows {
        let stack = plan.params[row.param];
        assert_eq!(
            plan.buffers[stack].bytes,
            plan.buffers[buffer].bytes * row.count as usize,
            "rows of {stack}"
        );
        let written = plan.steps.iter().any(|step| step.outputs.iter().any(|view| view.buffer == buffer));
        let reads = plan.prepared.iter().chain(&plan.steps).any(|step| uses(step, stack));
        let others = plan.rows.iter().filter(|(_, other)| other.param == row.param).count();
        assert!(!written || !reads && others == 1, "{stack} is used besides its row {buffer}");
        assert_eq!(written, !plan.steady.contains(&row.param), "{stack} changes, or {buffer} is not its row");
    }
}

fn check_inside(plan: &Plan, view: &View, step: &str) {
    let Some((low, high)) = view.extent() else { return };
    let elements = plan.buffers[view.buffer].bytes as u64 / view.dtype.size_bytes();
    assert!(low >= 0 && (high as u64) < elements, "{step}: the view {view:?} leaves its {elements} elements");
}

/// Sorted by the first step, each buffer is compared with those still live: quadratic only in those. `overwritten`: the
/// operand that a step reads last, and the result that may lie over it.
fn check_overlaps<'a>(
    plan: &Plan,
    (steps, results): (impl Iterator<Item = &'a Step>, &[View]),
    offset: impl Fn(&Place) -> Option<usize>,
    size: usize,
    overwritten: impl Fn(usize) -> Option<(BufferId, BufferId)>,
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
        let takes_over = |old: &(BufferId, memory::Life, usize, usize)| {
            let same = (old.2, old.3) == (new.2, new.3) && old.1.last == new.1.first;
            same && overwritten(new.1.first) == Some((old.0, new.0))
        };
        let overlaps = |old: &&(BufferId, memory::Life, usize, usize)| old.2 < new.3 && new.2 < old.3;
        if let Some(old) = live.iter().filter(overlaps).find(|old| !takes_over(old)) {
            panic!("{} and {} are live at step {} and overlap", old.0, new.0, new.1.first);
        }
        live.push(new);
    }
}

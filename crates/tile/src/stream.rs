//! What of a stream's body the host's transfers may run beside.
//!
//! In the first part of the body what the host has written is taken from the I/O tiles, in the last part results are
//! brought there. Between them nobody touches the I/O tiles' variables: this is the window in which the host writes
//! the next item and reads the last one's results.

use crate::liveness::accesses;
use crate::program::{Program, Step, VarId};
use std::ops::Range;

/// The variables that a stream loads and stores; none for other steps.
pub fn transferred(step: &Step) -> Vec<VarId> {
    let Step::Stream { load, store, .. } = step else { return Vec::new() };
    host_vars(load.iter().chain(store))
}

fn host_vars<'a>(steps: impl Iterator<Item = &'a Step>) -> Vec<VarId> {
    let var = |step: &Step| match step {
        Step::HostIn(var) | Step::HostOut(var) => Some(*var),
        _ => None,
    };
    steps.filter_map(var).collect()
}

/// The steps of a stream's body between the last that touches what is loaded and the first that touches what is
/// stored; none if they are the other way round, or the step is no stream.
pub fn window(program: &Program, step: &Step) -> Option<Range<usize>> {
    let Step::Stream { load, body, store, .. } = step else { return None };
    let (loaded, stored) = (host_vars(load.iter()), host_vars(store.iter()));
    let touches =
        |step: &Step, vars: &[VarId]| accesses(program, step).iter().any(|(var, _)| vars.contains(var));
    let begin = body.iter().rposition(|step| touches(step, &loaded)).map_or(0, |last| last + 1);
    let end = body.iter().position(|step| touches(step, &stored)).unwrap_or(body.len());
    (begin <= end).then_some(begin..end)
}

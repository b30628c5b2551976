//! What sets the pace.

use crate::schema::{Cycles, Profile};

/// What takes the largest part of the time from one iteration to the next: `compute` (with copies within tiles),
/// `exchange` (with its barriers), `links`, `host`, or `call`, the host's starting of calls. Transfers that are hidden
/// behind work count once they are longer than it. Empty for an empty program.
pub fn bound(profile: &Profile) -> &'static str {
    let io = &profile.host_io;
    if io.io_tiles > 0 && io.period_cycles > io.chip_cycles {
        return "host";
    }
    let parts = match slowest_stage(profile) {
        Some(parts) => parts,
        None => profile.totals.parts,
    };
    let shares = [
        ("compute", parts.compute.saturating_add(parts.local_copy)),
        ("exchange", parts.exchange.saturating_add(parts.sync)),
        ("links", parts.links),
        ("host", parts.host),
        ("call", io.call_cycles),
    ];
    let most = shares.iter().map(|&(_, cycles)| cycles).max().unwrap_or(0);
    shares.iter().find(|&&(_, cycles)| cycles == most && most > 0).map_or("", |&(name, _)| name)
}

/// What the slowest stage of a pipeline spends its cycles on.
fn slowest_stage(profile: &Profile) -> Option<Cycles> {
    let slowest = profile.stages.iter().max_by_key(|stage| stage.cycles)?;
    let (first, count) = (slowest.first_step as usize, slowest.steps as usize);
    let mut parts = super::cycles_by_kind(profile.steps.get(first..first + count)?);
    // Steps that receive count at the sender in the whole, but here for both.
    parts.links = slowest.link_cycles.saturating_mul(profile.host_io.iterations.max(1));
    Some(parts)
}

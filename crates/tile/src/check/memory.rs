//! A placement is sound if no two variables that are live at the same time share a byte on any tile.

use crate::liveness::liveness;
use crate::memory::var_bytes;
use crate::program::{Placement, Program, VarId};

/// One sentence per overlapping pair, the first few.
pub fn check_placement(program: &Program, placement: &Placement) -> Vec<String> {
    let live = liveness(program);
    let placed: Vec<(VarId, u64)> = program
        .vars
        .ids()
        .filter(|&id| live.ranges[id].is_some())
        .map(|id| (id, placement.offset_bytes[id]))
        .collect();
    let mut findings = Vec::new();
    for (i, &(a, a_begin)) in placed.iter().enumerate() {
        for &(b, b_begin) in &placed[i + 1..] {
            let (Some(a_live), Some(b_live)) = (live.ranges[a], live.ranges[b]) else { continue };
            let at_once = a_live.0 <= b_live.1 && b_live.0 <= a_live.1;
            if at_once && findings.len() < 10 {
                findings.extend(overlap(program, (a, a_begin), (b, b_begin)));
            }
        }
    }
    findings
}

/// Compares the bytes of two variables on every piece of tiles that holds both.
fn overlap(program: &Program, a: (VarId, u64), b: (VarId, u64)) -> Option<String> {
    let (a_pieces, b_pieces) =
        (var_bytes(&program.vars[a.0]).pieces(), var_bytes(&program.vars[b.0]).pieces());
    for &(a_first, a_count, a_bytes) in &a_pieces {
        for &(b_first, b_count, b_bytes) in &b_pieces {
            let meet = a_first.max(b_first) < (a_first + a_count).min(b_first + b_count);
            if meet && a.1 < b.1 + b_bytes as u64 && b.1 < a.1 + a_bytes as u64 {
                let (a_name, b_name) = (&program.vars[a.0].name, &program.vars[b.0].name);
                let tile = a_first.max(b_first);
                return Some(format!("memory: %{a_name} and %{b_name} share bytes on tile {tile}"));
            }
        }
    }
    None
}

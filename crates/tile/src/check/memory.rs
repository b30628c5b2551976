//! A placement is sound if no two variables that are live at the same time share a byte on any tile, and if what
//! vertices load at once lies where the machine can: in the interleaved region, in different memory elements. Whether a
//! program has room is a second question, since not fitting is an answer.

use crate::liveness::liveness;
use crate::memory::{fixed_memory, var_bytes};
use crate::program::{Group, Placement, Program, VarId};
use crate::traffic::Traffic;
use pando_machine::{Chip, Sram};

/// Findings beyond these repeat what the first ones say.
const MOST: usize = 10;

/// One sentence per broken rule, the first few.
pub fn check_placement(program: &Program, placement: &Placement, chip: &Chip) -> Vec<String> {
    let mut findings = check_overlaps(program, placement);
    for (id, set) in program.compute_sets.iter() {
        for group in &set.groups {
            let found = operands(program, group, placement, &chip.sram);
            findings.extend(found.into_iter().map(|what| format!("memory: {what} ({id} \"{}\")", set.name)));
        }
    }
    findings.truncate(MOST);
    findings
}

fn check_overlaps(program: &Program, placement: &Placement) -> Vec<String> {
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
            if at_once && findings.len() < MOST {
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

/// What is wrong with the addresses of a group's operands.
fn operands(program: &Program, group: &Group, placement: &Placement, sram: &Sram) -> Vec<String> {
    let place = |operand: usize| {
        let id = group.operands[operand].var;
        let begin = placement.offset_bytes[id];
        (id, begin, begin + program.vars[id].max_tile_bytes())
    };
    let mut findings = Vec::new();
    for operand in 0..group.operands.len() {
        let (id, begin, _) = place(operand);
        if begin % 8 != 0 {
            findings.push(format!("%{} is not aligned to 64 bits", program.vars[id].name));
        }
    }
    for &operand in group.kernel.wide_operands().iter().filter(|_| sram.interleaved_bytes > 0) {
        let (id, begin, _) = place(operand);
        if begin < sram.executable_bytes || begin % 16 != 0 {
            findings
                .push(format!("%{} is loaded 128 bits at a time but not interleaved", program.vars[id].name));
        }
    }
    for &(a, b) in group.kernel.apart_operands() {
        let (a, b) = (place(a), place(b));
        let touched =
            |(_, begin, end): (VarId, u64, u64)| (sram.element(begin), sram.element(end.max(begin + 1) - 1));
        let ((a_first, a_last), (b_first, b_last)) = (touched(a), touched(b));
        let is_empty = a.1 == a.2 || b.1 == b.2;
        if a.0 != b.0 && !is_empty && a_first <= b_last && b_first <= a_last {
            let (a, b) = (&program.vars[a.0].name, &program.vars[b.0].name);
            findings.push(format!("%{a} and %{b} are accessed in one cycle but share a memory element"));
        }
    }
    findings
}

/// Where a program has no room: code beyond the executable region, variables among the code or beyond the memory's end.
/// None if it fits.
pub fn check_room(program: &Program, placement: &Placement, chip: &Chip) -> Vec<String> {
    let traffic = Traffic::new(program, chip);
    let fixed = fixed_memory(program, chip, &traffic, Some(placement)).total().pieces();
    let mut findings = Vec::new();
    for &(tile, _, bytes) in &fixed {
        if bytes as u64 > chip.sram.executable_bytes {
            findings.push(format!("memory: code of tile {tile} does not fit the executable region"));
        }
    }
    let live = liveness(program);
    for (id, var) in program.vars.iter().filter(|(id, _)| live.ranges[*id].is_some()) {
        let begin = placement.offset_bytes[id];
        for (first, count, bytes) in var_bytes(var).pieces() {
            let end = begin + bytes as u64;
            let shares = |&&(tile, tiles, _): &&(u32, u32, i64)| tile < first + count && first < tile + tiles;
            let code = fixed.iter().filter(shares).map(|&(_, _, bytes)| bytes as u64).max().unwrap_or(0);
            if begin < code || end > chip.sram.bytes_per_tile {
                findings.push(format!("memory: %{} has no room on tile {first}", var.name));
            }
        }
    }
    findings.truncate(MOST);
    findings
}

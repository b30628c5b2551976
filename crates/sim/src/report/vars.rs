//! The life of every variable, and sums of its bytes.

use crate::timing::Timeline;
use pando_profile::{VarLife, VarRole};
use pando_tile::liveness::Liveness;
use pando_tile::{Placement, Program, Role, Var};

/// Bytes of a variable on all tiles, copies counted; saturating.
pub fn total_bytes(var: &Var) -> u64 {
    u64::try_from(var.total_bytes()).unwrap_or(u64::MAX)
}

/// Variables that are used, in the program's order, with the steps between which they live.
pub fn variables(
    program: &Program,
    live: &Liveness,
    timeline: &Timeline,
    placement: Option<&Placement>,
) -> Vec<VarLife> {
    let step = |point: u32| timeline.step_of_point.get(point as usize).copied().unwrap_or(0);
    let life = |(id, var): (pando_tile::VarId, &Var)| {
        let (first, last) = live.ranges[id]?;
        Some(VarLife {
            name: var.name.clone(),
            dtype: var.dtype.to_string(),
            shape: var.shape.to_vec(),
            tile_bytes_max: var.max_tile_bytes(),
            total_bytes: total_bytes(var),
            tiles: var.home.grid.len(),
            first_step: step(first),
            last_step: step(last),
            role: role(&var.role),
            address: placement.map(|placement| placement.offset_bytes[id]),
        })
    };
    program.vars.iter().filter_map(life).collect()
}

fn role(role: &Role) -> VarRole {
    match role {
        Role::Temp => VarRole::Temp,
        Role::Input => VarRole::Input,
        Role::Output => VarRole::Output,
        Role::Constant(_) => VarRole::Constant,
        Role::State => VarRole::State,
    }
}

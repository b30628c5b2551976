//! Every vertex touches only what its own tile holds.
//!
//! A class of coordinates is checked at its corners where the variable's grid steps through tiles as the
//! group's does: both bounds are then affine in each coordinate, and an inequality between affine functions
//! holds on a box if it holds at the corners. Otherwise every coordinate is looked at.

use crate::grid::{Class, Coordinates};
use crate::program::{Group, Operand, Program};
use crate::validate::{group_classes, operand_block};
use smallvec::SmallVec;

pub fn check_locality(program: &Program) -> Vec<String> {
    let mut findings = Vec::new();
    for (id, set) in program.compute_sets.iter() {
        for group in &set.groups {
            for operand in &group.operands {
                if let Some(tile) = first_foreign(program, group, operand) {
                    let name = &program.vars[operand.var].name;
                    findings.push(format!(
                        "locality: {} in {id} \"{}\" touches part of %{name} that tile {tile} does not hold",
                        group.kernel.name(),
                        set.name
                    ));
                }
            }
        }
    }
    findings
}

/// A tile whose vertex reaches beyond its block.
fn first_foreign(program: &Program, group: &Group, operand: &Operand) -> Option<u32> {
    let held = |coordinates: &Coordinates| {
        let tile = group.grid.tile(coordinates);
        let var = &program.vars[operand.var];
        let wanted = operand_block(program, group, operand, coordinates);
        let there = var.home.grid.coordinates_of(tile);
        let holds = there.is_some_and(|at| var.home.block(&var.shape, &at).contains(&wanted));
        (!holds).then_some(tile)
    };
    if same_walk(program, group, operand) {
        return group_classes_with_home(program, group, operand)
            .iter()
            .flat_map(corners)
            .find_map(|c| held(&c));
    }
    group.grid.coordinates().find_map(|c| held(&c))
}

/// Whether each axis of the group moves along one axis of the variable's grid, or stays on the tile.
fn same_walk(program: &Program, group: &Group, operand: &Operand) -> bool {
    let home = &program.vars[operand.var].home.grid;
    let moving = group.grid.axes.iter().filter(|axis| axis.stride > 0 && axis.extent > 1);
    group.grid.base == home.base
        && moving
            .clone()
            .all(|axis| home.axes.iter().any(|h| h.stride == axis.stride && h.extent >= axis.extent))
        && {
            let mut strides: Vec<u32> = moving.map(|axis| axis.stride).collect();
            strides.sort_unstable();
            strides.windows(2).all(|pair| pair[0] != pair[1])
        }
}

/// Classes of the group refined so that the home's blocks are affine within each, too.
fn group_classes_with_home(program: &Program, group: &Group, operand: &Operand) -> Vec<Class> {
    let var = &program.vars[operand.var];
    let home_classes = var.home.grid.classes([(var.home.region.as_slice(), &*var.shape)].into_iter());
    let cuts = |stride: u32| -> Vec<u32> {
        let axis = var.home.grid.axes.iter().position(|axis| axis.stride == stride && axis.extent > 1);
        axis.map_or(Vec::new(), |axis| {
            home_classes.iter().flat_map(|c| [c.ranges[axis].0, c.ranges[axis].1]).collect()
        })
    };
    let mut classes = group_classes(program, group);
    for (index, axis) in group.grid.axes.iter().enumerate() {
        let at = if axis.stride > 0 { cuts(axis.stride) } else { Vec::new() };
        classes = classes.iter().flat_map(|class| split(class, index, &at)).collect();
    }
    classes
}

fn split(class: &Class, axis: usize, at: &[u32]) -> Vec<Class> {
    let (begin, end) = class.ranges[axis];
    let mut cuts: Vec<u32> = at.iter().copied().filter(|cut| (begin + 1..end).contains(cut)).collect();
    cuts.extend([begin, end]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2)
        .map(|pair| {
            let mut ranges = class.ranges.clone();
            ranges[axis] = (pair[0], pair[1]);
            Class { ranges }
        })
        .collect()
}

fn corners(class: &Class) -> Vec<Coordinates> {
    class.ranges.iter().fold(vec![SmallVec::new()], |corners: Vec<Coordinates>, &(begin, end)| {
        let ends: SmallVec<[u32; 2]> = if end - begin > 1 {
            SmallVec::from_slice(&[begin, end - 1])
        } else {
            SmallVec::from_slice(&[begin])
        };
        corners
            .iter()
            .flat_map(|corner| {
                ends.iter().map(move |&c| {
                    let mut corner = corner.clone();
                    corner.push(c);
                    corner
                })
            })
            .collect()
    })
}

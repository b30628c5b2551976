//! The explicit form of a program: one variable per tile and block, one vertex per group coordinate, one
//! copy per message. Same values, cycles and bytes as the grouped form, and as large as the machine: for
//! tests, small machines and people who want to see everything.

use crate::grid::Grid;
use crate::message::{holders, messages};
use crate::program::{ComputeSet, Copy, Exchange, Group, Layout, Operand, Program, Step, Var, VarId};
use crate::span::Span;
use pando_base::SideTable;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The pieces of each variable by tile.
type Pieces = FxHashMap<(VarId, u32), VarId>;

/// The explicit program, and for each of its variables the one it is a piece of. Pieces keep the whole
/// variable's shape and index space; their layout is the block of one tile.
pub fn expand(program: &Program) -> (Program, SideTable<VarId, Option<VarId>>) {
    let mut out = Program {
        replicas: program.replicas,
        prefetch: program.prefetch,
        ..Program::new(program.name.clone(), program.tiles)
    };
    let mut origins = SideTable::default();
    let mut pieces = Pieces::default();
    let mut names: rustc_hash::FxHashSet<String> =
        program.vars.values().map(|var| var.name.clone()).collect();
    for (id, var) in program.vars.iter() {
        for (tile, piece) in split_var(var, &mut names) {
            let new = out.vars.push(piece);
            origins[new] = Some(id);
            pieces.insert((id, tile), new);
        }
    }
    for set in program.compute_sets.values() {
        let groups = set.groups.iter().flat_map(|group| split_group(program, group, &pieces)).collect();
        out.compute_sets.push(ComputeSet { name: set.name.clone(), groups });
    }
    for exchange in program.exchanges.values() {
        let copies = exchange.copies.iter().flat_map(|copy| split_copy(program, copy, &pieces)).collect();
        out.exchanges.push(Exchange { name: exchange.name.clone(), copies });
    }
    out.body = split_steps(program, &program.body, &pieces);
    (out, origins)
}

fn split_var(var: &Var, names: &mut rustc_hash::FxHashSet<String>) -> Vec<(u32, Var)> {
    let mut out = Vec::new();
    for holder in holders(var) {
        let region: SmallVec<[Span; 4]> =
            holder.block.0.iter().map(|&(begin, end)| Span::Fixed { begin, end }).collect();
        for &tile in &holder.tiles {
            let mut name = format!("{}.t{tile}", var.name);
            while !names.insert(name.clone()) {
                name.push('_');
            }
            let home = Layout { grid: Grid::single(tile), region: region.clone() };
            out.push((tile, Var { name, home, ..var.clone() }));
        }
    }
    out
}

fn split_group(program: &Program, group: &Group, pieces: &Pieces) -> Vec<Group> {
    let explicit = |coordinates: SmallVec<[u32; 4]>| {
        let tile = group.grid.tile(&coordinates);
        let operands = group.operands.iter().map(|operand| {
            let block = group.grid.block(&operand.region, &program.vars[operand.var].shape, &coordinates);
            let region = block.0.iter().map(|&(begin, end)| Span::Fixed { begin, end }).collect();
            let var = *pieces.get(&(operand.var, tile)).expect("locality: the tile holds the operand");
            Operand { var, region }
        });
        Group { kernel: group.kernel.clone(), grid: Grid::single(tile), operands: operands.collect() }
    };
    group.grid.coordinates().map(explicit).collect()
}

fn split_copy(program: &Program, copy: &Copy, pieces: &Pieces) -> Vec<Copy> {
    messages(program, copy)
        .into_iter()
        .map(|message| Copy {
            src: pieces[&(copy.src, message.src_tile)],
            dsts: message.dsts.iter().map(|&(var, tile)| pieces[&(var, tile)]).collect(),
            map: message.map,
        })
        .collect()
}

fn split_steps(program: &Program, steps: &[Step], pieces: &Pieces) -> Vec<Step> {
    let all = |var: &VarId| -> Vec<VarId> {
        holders(&program.vars[*var])
            .iter()
            .flat_map(|holder| holder.tiles.iter().map(|&tile| pieces[&(*var, tile)]))
            .collect()
    };
    steps
        .iter()
        .flat_map(|step| match step {
            Step::HostIn(var) => all(var).into_iter().map(Step::HostIn).collect(),
            Step::HostOut(var) => all(var).into_iter().map(Step::HostOut).collect(),
            Step::Repeat { count, body } => {
                vec![Step::Repeat { count: *count, body: split_steps(program, body, pieces) }]
            }
            Step::Stream { count, load, body, store } => vec![Step::Stream {
                count: *count,
                load: split_steps(program, load, pieces),
                body: split_steps(program, body, pieces),
                store: split_steps(program, store, pieces),
            }],
            Step::If { flags, then_body, else_body } => vec![Step::If {
                flags: flags.iter().flat_map(all).collect(),
                then_body: split_steps(program, then_body, pieces),
                else_body: split_steps(program, else_body, pieces),
            }],
            Step::While { cond, flags, body, trips } => vec![Step::While {
                cond: split_steps(program, cond, pieces),
                flags: flags.iter().flat_map(all).collect(),
                body: split_steps(program, body, pieces),
                trips: *trips,
            }],
            Step::Compute(_) | Step::Exchange(_) => vec![step.clone()],
        })
        .collect()
}

//! While the host transfers, the I/O tiles do nothing else: nothing that the body touches meanwhile lies on a tile that
//! holds what is loaded or stored.

use crate::liveness::accesses;
use crate::program::{Program, Step, VarId};
use crate::stream::{transferred, window};
use pando_base::Ranges;

pub fn check_streams(program: &Program) -> Vec<String> {
    let mut findings = Vec::new();
    walk(program, &program.body, &mut findings);
    findings
}

fn walk(program: &Program, steps: &[Step], findings: &mut Vec<String>) {
    for step in steps {
        if let Step::Stream { body, .. } = step {
            findings.extend(first_meeting(program, step, body));
        }
        step.bodies().iter().for_each(|&(body, _)| walk(program, body, findings));
    }
}

fn first_meeting(program: &Program, stream: &Step, body: &[Step]) -> Option<String> {
    let mut io_tiles = Ranges::default();
    transferred(stream).into_iter().for_each(|var| add_tiles(program, var, &mut io_tiles));
    let busy = &body[window(program, stream)?];
    let mut touched: Vec<VarId> =
        busy.iter().flat_map(|step| accesses(program, step)).map(|(var, _)| var).collect();
    touched.sort_unstable();
    touched.dedup();
    touched.into_iter().find_map(|var| {
        let mut tiles = Ranges::default();
        add_tiles(program, var, &mut tiles);
        let shared = tiles.intersection(&io_tiles);
        let &(tile, _) = shared.intervals().first()?;
        let name = &program.vars[var].name;
        Some(format!("stream: %{name} is used on tile {tile} while the host transfers there"))
    })
}

fn add_tiles(program: &Program, var: VarId, tiles: &mut Ranges) {
    let grid = &program.vars[var].home.grid;
    let whole = crate::grid::Class { ranges: grid.axes.iter().map(|axis| (0, axis.extent)).collect() };
    for (first, count) in grid.tile_runs(&whole) {
        tiles.insert(first.into(), u64::from(first) + u64::from(count));
    }
}

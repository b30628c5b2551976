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

#[cfg(test)]
mod tests {
    use super::*;

    fn program(tile: u32, work: &str) -> pando_base::Result<Program> {
        let text = format!(
            "program \"stream\" tiles=4 replicas=1\n\
             var %x.io: f32[4] input on 3 [0..4]\n\
             var %x: f32[4] temp on {tile} [0..4]\n\
             var %y: f32[4] temp on {tile} [0..4]\n\
             var %y.io: f32[4] output on 3 [0..4]\n\
             compute @cs0 \"double\" {{\n  binary.add on {tile} %x[0..4], %x[0..4], %y[0..4]\n}}\n\
             exchange @ex0 \"in\" {{\n  copy %x <- %x.io\n}}\n\
             exchange @ex1 \"out\" {{\n  copy %y.io <- %y\n}}\n\
             main {{\n  stream 2 load {{\n    host.in %x.io\n  }} work {{\n{work}  }} store {{\n    host.out %y.io\n  }}\n}}\n"
        );
        let program = crate::parse(&text, "stream.tile")?;
        assert_eq!(crate::print(&program), text);
        Ok(program)
    }

    const WORK: &str = "    exchange @ex0\n    compute @cs0\n    exchange @ex1\n";

    #[test]
    fn io_tiles_do_nothing_else() {
        let sound = program(1, WORK).expect("valid");
        assert_eq!(window(&sound, &sound.body[0]), Some(1..2));
        assert_eq!(check_streams(&sound), Vec::<String>::new());
        let meets = check_streams(&program(3, WORK).expect("valid"));
        assert_eq!(meets, ["stream: %x is used on tile 3 while the host transfers there"]);
    }

    #[test]
    fn results_leave_after_the_inputs_are_used() {
        let backward = "    exchange @ex1\n    compute @cs0\n    exchange @ex0\n";
        let error = program(1, backward).expect_err("no window");
        assert!(error.to_string().contains("(T8)"), "{error}");
        let nested = "    stream 2 load {\n    } work {\n    } store {\n    }\n";
        assert!(program(1, nested).expect_err("nested").to_string().contains("(T8)"));
    }
}

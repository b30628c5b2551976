//! Does compile time, or the program's size, grow with the machine? A 3-layer perceptron (4096 wide, batch
//! 256) is compiled and timed for chips of 64 to 16,384 tiles, and for 1 to 64,000 replicas of a chip with
//! 1,472. Medians (and, since machines are shared, best) of `ROUNDS` rounds, all configurations in turn within
//! a round.
//!
//! Replicas cost nothing. Of tiles, 256 times as many (64 to 16,384, eleven times the largest chip) take 11 times the
//! fifth of a millisecond: more tiles admit more splits, which the search bounds rather than tries; an exchange looks at
//! every tile once, about 15 ns; the rest follows the classes and runs of tiles of the layouts. On two cores shared
//! with others: 0.2 ms at 64 tiles, 0.6 at 1,472, 2.5 at 16,384; program text 4.2 to 5.8 kB.
//!
//! `cargo bench -p pando-lower -- --json` prints one JSON object.

use pando_lower::{Options, compile};
use pando_machine::Machine;
use serde_json::json;
use std::time::Instant;

const ROUNDS: usize = 31;
const MODEL: &str = include_str!("../../../models/mlp.graph");

struct Row {
    what: String,
    machine: Machine,
    replicas: u64,
    compile_ms: Vec<f64>,
    predict_ms: Vec<f64>,
    text_bytes: usize,
}

fn row(what: String, tiles: u32, replicas: u64) -> Row {
    let mut machine = pando_machine::load("mk2").expect("built in");
    machine.chip.tiles = tiles;
    Row { what, machine, replicas, compile_ms: Vec::new(), predict_ms: Vec::new(), text_bytes: 0 }
}

fn main() {
    let module = pando_graph::parse(MODEL, "mlp.graph").expect("the repository's model");
    let mut rows: Vec<Row> =
        [64, 256, 736, 1472, 4096, 16384].map(|tiles| row(format!("{tiles} tiles"), tiles, 1)).into();
    rows.extend([64, 64_000].map(|replicas| row(format!("1472 tiles, {replicas} replicas"), 1472, replicas)));
    for _ in 0..ROUNDS {
        for row in &mut rows {
            let options = Options { replicas: row.replicas, ..Options::default() };
            let start = Instant::now();
            let compiled = compile(&module, &row.machine, &options).expect("the model lowers");
            row.compile_ms.push(start.elapsed().as_secs_f64() * 1e3);
            let start = Instant::now();
            let program = &compiled.emitted.program;
            pando_sim::profile(
                program,
                &row.machine,
                Some(&compiled.placed.placement),
                compiled.fit.clone(),
                256,
            );
            row.predict_ms.push(start.elapsed().as_secs_f64() * 1e3);
            row.text_bytes = pando_tile::print(program).len();
        }
    }
    report(&mut rows);
}

/// Median and least.
fn summary(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0])
}

fn report(rows: &mut [Row]) {
    let json_wanted = std::env::args().any(|argument| argument == "--json");
    let mut out = Vec::new();
    if !json_wanted {
        println!(
            "{:<28} {:>20} {:>20} {:>14}",
            "machine", "compile ms (best)", "predict ms (best)", "program bytes"
        );
    }
    for row in rows {
        let (compile, predict) = (summary(&mut row.compile_ms), summary(&mut row.predict_ms));
        if !json_wanted {
            let text = |(median, best): (f64, f64)| format!("{median:.2} ({best:.2})");
            println!("{:<28} {:>20} {:>20} {:>14}", row.what, text(compile), text(predict), row.text_bytes);
        }
        out.push(json!({
            "machine": row.what, "compile_ms": compile.0, "compile_ms_best": compile.1,
            "predict_ms": predict.0, "predict_ms_best": predict.1, "program_bytes": row.text_bytes,
        }));
    }
    if json_wanted {
        println!("{}", json!({ "rows": out }));
    }
}

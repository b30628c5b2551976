//! How long do whole models take? A stack of 12 layers with BERT-base's sizes (sequence 128, f32, no embeddings)
//! and ResNet-50 (224 × 224), seeded weights, built with the graph's builder. Medians of `ROUNDS` runs after
//! one warm-up, one thread and all; time by kind of step beside them.
//!
//! The limit is the multiply-add units, as GFLOP/s says against the roofline that `gemm` prints: BERT spends
//! 22 GFLOP, ResNet-50 8.2 (6.6 by Winograd's method: 3.0 GFLOP of 3 × 3 convolutions take 4/9 of that, and 0.58 where
//! 7 × 7 images fill no whole tiles). Small batches also read every weight once: 340 MB and 100 MB.
//! The blocks of EfficientNet-B0 spend 0.8 GFLOP, 7 ms of a core of Zen 4, and 6 million sigmoids, 1.7 ms.
//!
//! `cargo bench -p pando-cpu --bench models -- --json [NAME]` prints one JSON object.

#[path = "models/mod.rs"]
mod zoo;

use pando_base::Tensor;
use pando_cpu::{CompileOptions, compile};
use pando_graph::Module;
use std::collections::BTreeMap;
use std::time::Instant;

const ROUNDS: usize = 9;

struct Row {
    name: &'static str,
    threads: usize,
    compile_ms: f64,
    median_ms: f64,
    best_ms: f64,
    gflops: f64,
    kinds: BTreeMap<&'static str, f64>,
}

fn measure(name: &'static str, module: &Module, input: &Tensor, gflop: f64, threads: usize) -> Row {
    let start = Instant::now();
    let model = compile(module, &CompileOptions { threads, ..CompileOptions::default() })
        .expect("the model compiles");
    let compile_ms = start.elapsed().as_secs_f64() * 1e3;
    let inputs = std::slice::from_ref(input);
    let mut outputs = model.run(inputs).expect("the model runs");
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            model.run_into(inputs, &mut outputs).expect("the model runs");
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (_, steps) = model.profile(inputs).expect("the model runs");
    let mut kinds = BTreeMap::new();
    for step in steps {
        *kinds.entry(step.kind).or_insert(0.0) += step.seconds * 1e3;
    }
    let median_ms = times[ROUNDS / 2];
    Row { name, threads, compile_ms, median_ms, best_ms: times[0], gflops: gflop / median_ms * 1e3, kinds }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let json = args.iter().any(|arg| arg == "--json");
    let wanted = args.iter().find(|arg| !arg.starts_with('-'));
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut rows = Vec::new();
    for model in zoo::models() {
        if wanted.is_some_and(|wanted| !model.name.contains(wanted.as_str())) {
            continue;
        }
        for threads in [1, all] {
            rows.push(measure(model.name, &model.module, &model.input, model.gflop, threads));
        }
    }
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                serde_json::json!({
                    "model": row.name, "threads": row.threads, "compile_ms": row.compile_ms,
                    "median_ms": row.median_ms, "best_ms": row.best_ms, "gflops": row.gflops, "kinds_ms": row.kinds,
                })
            })
            .collect();
        println!("{}", serde_json::json!({ "rows": rows }));
        return;
    }
    println!(
        "{:<16} {:>7} {:>11} {:>10} {:>8} {:>8}  ms by kind",
        "model", "threads", "compile ms", "median ms", "best ms", "GFLOP/s"
    );
    for row in rows {
        let mut kinds: Vec<_> = row.kinds.into_iter().collect();
        kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
        let kinds: Vec<String> = kinds.iter().map(|(kind, ms)| format!("{kind} {ms:.1}")).collect();
        println!(
            "{:<16} {:>7} {:>11.0} {:>10.1} {:>8.1} {:>8.1}  {}",
            row.name,
            row.threads,
            row.compile_ms,
            row.median_ms,
            row.best_ms,
            row.gflops,
            kinds.join(", ")
        );
    }
}

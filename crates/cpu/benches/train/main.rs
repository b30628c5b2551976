//! How long is a training step? ResNet-50 (batch 16, SGD with momentum), BERT-base (batch 8, sequence 128, AdamW) and
//! a two-layer LSTM (512 wide, sequence 64, batch 32, SGD), forward, backward and update as one program whose state
//! is updated in place. Medians of `ROUNDS` steps after two for warming up, by kind of step, and the memory beside
//! the state.
//!
//! The limit is the multiply-add units: the GFLOP/s of the products against the roofline that `gemm` prints.
//!
//! `cargo bench -p pando-cpu --bench train -- [NAME] [--threads N] [--steps]`; `--steps` lists the slowest ones.

mod models;

use models::Training;
use pando_cpu::{CompileOptions, Input, StepTime, Variable, compile_stateful, medians};
use std::collections::BTreeMap;
use std::time::Instant;

const ROUNDS: usize = 5;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let threads =
        args.iter().position(|arg| arg == "--threads").map_or(2, |at| args[at + 1].parse().unwrap_or(2));
    let steps = args.iter().any(|arg| arg == "--steps");
    let wanted = args.first().filter(|arg| !arg.starts_with('-'));
    for (name, build) in models::MODELS {
        if wanted.is_none_or(|wanted| name.contains(wanted.as_str())) {
            measure(name, build(), threads, steps);
        }
    }
}

fn measure(name: &str, training: Training, threads: usize, list: bool) {
    let start = Instant::now();
    let options = CompileOptions { threads, ..CompileOptions::default() };
    let count = training.state.len();
    let shapes: Vec<_> =
        training.state.iter().chain(&training.inputs).map(|tensor| tensor.shape().clone()).collect();
    let model = compile_stateful(training.module, count, &training.aliases, &options).expect("it compiles");
    let compile_seconds = start.elapsed().as_secs_f64();
    let mut state: Vec<Variable> = training.state.into_iter().map(Variable::new).collect();
    let inputs: Vec<Input> = training.inputs.iter().map(Input::from).collect();
    let mut times = Vec::new();
    let mut losses = Vec::new();
    for _ in 0..ROUNDS + 2 {
        let start = Instant::now();
        let results =
            model.run_in_place(&mut state.iter_mut().collect::<Vec<_>>(), &inputs).expect("it runs");
        times.push(start.elapsed().as_secs_f64() * 1e3);
        losses.push(results[0].get_f64(0));
    }
    let mut warm = times.split_off(2);
    warm.sort_by(f64::total_cmp);
    let runs: Vec<Vec<StepTime>> = (0..3)
        .map(|_| {
            model.profile_in_place(&mut state.iter_mut().collect::<Vec<_>>(), &inputs).expect("it runs").1
        })
        .collect();
    let profile = medians(&runs);
    let (arena, kept) = model.memory_bytes(&shapes).expect("it is planned");
    let mib = |bytes: usize| bytes >> 20;
    println!(
        "{name}: {threads} threads, median {:.0} ms, best {:.0} ms; compiled in {compile_seconds:.1} s; arena {} MiB, prepared {} MiB; loss {:.4} to {:.4}",
        warm[ROUNDS / 2],
        warm[0],
        mib(arena),
        mib(kept),
        losses[0],
        losses[ROUNDS + 1]
    );
    kinds(&profile);
    if list {
        slowest(profile);
    }
}

fn kinds(profile: &[StepTime]) {
    let mut kinds: BTreeMap<&str, (f64, u64, u64, usize)> = BTreeMap::new();
    for step in profile {
        let kind = kinds.entry(step.kind).or_default();
        *kind = (kind.0 + step.seconds, kind.1 + step.flops, kind.2 + step.bytes, kind.3 + 1);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    for (kind, (seconds, flops, bytes, count)) in kinds {
        let rate = |work: u64| work as f64 / seconds / 1e9;
        println!(
            "  {kind:<22} {count:>5} x {:>8.1} ms {:>6.0} GFLOP/s {:>6.1} GB/s",
            seconds * 1e3,
            rate(flops),
            rate(bytes)
        );
    }
}

fn slowest(mut profile: Vec<StepTime>) {
    profile.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for step in profile.iter().take(40) {
        let rate = |work: u64| work as f64 / step.seconds / 1e9;
        println!(
            "    {:>7.2} ms {:>5.0} GFLOP/s {:>5.1} GB/s {} {:?} {}",
            step.seconds * 1e3,
            rate(step.flops),
            rate(step.bytes),
            step.kind,
            step.sizes,
            step.name
        );
    }
}

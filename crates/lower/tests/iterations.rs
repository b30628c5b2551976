//! Goal: a call of several iterations gives every iteration's values, whether transfers wait for work or run beside it on
//! tiles of their own. Method: random modules, compiled for calls of several iterations with and without I/O tiles,
//! other inputs in each iteration; the tiles' values in the machine's order against the evaluator's, one iteration at a
//! time. Every checker looks at each program. `PANDO_SEEDS` sets how many.

mod common;

use pando_base::{DType, Tensor};
use pando_graph::generate::{Family, GenerateOptions, Source, generate};
use pando_graph::testing::compare;
use pando_lower::{Compiled, Options, compile};

/// Whole numbers, so that any order of sums gives the same.
fn options() -> GenerateOptions {
    GenerateOptions {
        families: vec![
            Family::Elementwise,
            Family::Layout,
            Family::Indexing,
            Family::Dot,
            Family::Conv,
            Family::Reduce,
            Family::Control,
        ],
        dtypes: vec![DType::I32, DType::U8, DType::Bool],
        max_nodes: 8,
        max_dim: 9,
        max_elements: 4096,
        special_values: false,
        ..GenerateOptions::default()
    }
}

#[test]
fn every_iteration_has_its_own_values() {
    let seeds: u64 = std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let machines = [2, 4, 9].map(common::spreading_machine);
    let (mut loops, mut streams) = (0, 0);
    for seed in 0..seeds {
        let program = generate(&mut Source::new(&Source::seeded_bytes(seed, 300)), &options());
        let machine = &machines[(seed % 3) as usize];
        let io_tiles = [0, 1, 1, 2][(seed / 3 % 4) as usize].min(machine.chip.tiles - 1);
        let iterations = 1 + seed % 4;
        let lower = Options { min_tile_bytes: 1, iterations, io_tiles, ..Options::default() };
        let Ok(compiled) = compile(&program.module, machine, &lower) else { continue };
        let what = format!(
            "seed {seed}, {iterations} iterations, {io_tiles} I/O tiles\n{}",
            pando_tile::print(&compiled.emitted.program)
        );
        common::assert_sound(&compiled, machine, &what);
        let main = program.module.main().expect("generated");
        let items: Vec<Vec<Tensor>> = (0..iterations).map(|item| rotated(&program.inputs, item)).collect();
        let actual = run(&compiled, &items).unwrap_or_else(|error| panic!("{what}: {error}"));
        for (item, args) in items.iter().enumerate() {
            let expected = pando_graph::eval(&program.module, main, args).expect("valid programs evaluate");
            let actual: Vec<Tensor> = actual.iter().map(|tensors| tensors[item].clone()).collect();
            compare(&actual, &expected, 0.0).unwrap_or_else(|error| panic!("{what}: item {item}: {error}"));
        }
        let first: Vec<Tensor> = actual.iter().map(|tensors| tensors[0].clone()).collect();
        if iterations == 1 {
            assert_eq!(common::simulate(&compiled, &items[0]).as_ref(), Ok(&first), "{what}");
        }
        common::assert_expansion_agrees(&compiled, machine, &items[0], &first, &what);
        let has_ends = !program.inputs.is_empty();
        streams += u64::from(io_tiles > 0 && has_ends);
        loops += u64::from(io_tiles == 0 && iterations > 1);
    }
    println!("{loops} loops and {streams} streams of {seeds}");
    assert!(loops * 12 > seeds && streams * 4 > seeds, "{loops} loops, {streams} streams of {seeds}");
}

/// The same elements in another order.
fn rotated(inputs: &[Tensor], by: u64) -> Vec<Tensor> {
    let rotate = |tensor: &Tensor| {
        let mut elements = tensor.to_f64();
        let len = elements.len().max(1);
        elements.rotate_left(by as usize % len);
        Tensor::from_f64(tensor.dtype(), tensor.shape().clone(), &elements)
    };
    inputs.iter().map(rotate).collect()
}

/// For each output its tensor of each iteration.
fn run(compiled: &Compiled, items: &[Vec<Tensor>]) -> pando_base::Result<Vec<Vec<Tensor>>> {
    let emitted = &compiled.emitted;
    let value = |var, item: u64| match emitted.inputs.iter().position(|&input| input == var) {
        Some(index) => Some(items[item as usize][index].clone()),
        None => emitted.constants[var].map(|id| compiled.module.consts[id].materialize()),
    };
    let options = pando_sim::RunOptions { strict: true, keep_all: true, ..Default::default() };
    let outputs = pando_sim::run_items(&emitted.program, value, &options)?;
    Ok(emitted.outputs.iter().map(|&var| outputs.tensors(var)).collect())
}

/// An iteration begins with the state that the one before left, with and without I/O tiles.
#[test]
fn state_goes_from_iteration_to_iteration() {
    let text = "func @main(%x: i32[6,8], %w: i32[8,4]) -> i32[8,4], i32[6,4] {
  %y = dot %x, %w contract=[1:0] : i32[6,4]
  %g = dot %x, %y contract=[0:0] : i32[8,4]
  %next = sub %w, %g : i32[8,4]
  return %next, %y
}";
    let module = pando_graph::parse(text, "training").expect("a valid module");
    let machine = common::spreading_machine(5);
    for io_tiles in [0, 1] {
        let state = vec![(1, 0)];
        let options = Options { min_tile_bytes: 1, iterations: 3, io_tiles, state, ..Options::default() };
        let compiled = compile(&module, &machine, &options).expect("dots lower");
        common::assert_sound(&compiled, &machine, text);
        let tensor = |seed: u64, shape: [u64; 2]| {
            let values = (0..shape[0] * shape[1]).map(|i| ((i * 5 + seed) % 7) as f64 - 3.0);
            Tensor::from_f64(DType::I32, shape, &values.collect::<Vec<_>>())
        };
        let items: Vec<Vec<Tensor>> =
            (0..3).map(|item| vec![tensor(item, [6, 8]), tensor(9, [8, 4])]).collect();
        let actual = run(&compiled, &items).expect("it runs");
        let (main, mut weights) = (module.main().expect("there is a main"), items[0][1].clone());
        for (item, args) in items.iter().enumerate() {
            let args = [args[0].clone(), weights];
            let expected = pando_graph::eval(&module, main, &args).expect("valid programs evaluate");
            assert_eq!(actual[1][item], expected[1], "{io_tiles} I/O tiles, iteration {item}");
            weights = expected[0].clone();
        }
        assert_eq!(actual[0], [weights], "{io_tiles} I/O tiles");
    }
}

/// A period is the longer of the work between I/O tiles and the transfers; without I/O tiles it is their sum.
#[test]
fn transfers_hide_behind_work() {
    let text = "func @main(%x: f32[64,64]) -> f32[64,64] {\n  %y = dot %x, %x contract=[1:0] : f32[64,64]\n  \
                %z = dot %y, %y contract=[1:0] : f32[64,64]\n  return %z\n}\n";
    let module = pando_graph::parse(text, "dots").expect("a valid module");
    let mut machine = pando_machine::load("tiny4").expect("built in");
    machine.host.callback_latency_s = 0.0;
    let cycles = |io_tiles: u32, iterations: u64| {
        let options = Options { io_tiles, iterations, ..Options::default() };
        let compiled = compile(&module, &machine, &options).expect("dots lower");
        let timeline = pando_sim::time(&compiled.emitted.program, &machine);
        (timeline.cycles(), timeline.pace.expect("a loop"))
    };
    let (total, pace) = cycles(0, 10);
    assert_eq!((total, pace.period), (10 * pace.period, pace.host + pace.chip));
    let (total, pace) = cycles(1, 10);
    assert_eq!(pace.period, pace.chip, "the work is longer than the transfers");
    assert_eq!(
        total,
        10 * pace.period + pace.host,
        "the first load and the last store have nothing to hide behind"
    );
    // A host a thousand times slower decides alone.
    machine.host.bytes_to_chip_per_s /= 1e3;
    machine.host.bytes_from_chip_per_s /= 1e3;
    let options = Options { io_tiles: 1, iterations: 10, ..Options::default() };
    let compiled = compile(&module, &machine, &options).expect("dots lower");
    let pace = pando_sim::time(&compiled.emitted.program, &machine).pace.expect("a loop");
    assert!(pace.period > pace.host && pace.period < pace.host + pace.chip, "{pace:?}");
}

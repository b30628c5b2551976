//! Goal: lowering keeps meaning. Method: random modules of the operators that can be lowered, compiled for
//! machines of several sizes, half of them with so little memory for an operation that products are computed in slices,
//! computed tile by tile and compared with the evaluator; every checker looks at
//! each program, and the explicit form must agree in values, cycles and bytes. `PANDO_SEEDS` sets how many.

mod common;

use pando_base::{DType, Tensor};
use pando_graph::generate::{Family, GenerateOptions, Source, generate};
use pando_lower::{Options, compile, print_plan};

/// Sorting decides between almost equal floats, so that a rounding may move everything behind it; integers
/// are exact.
fn options(dtypes: Vec<DType>) -> GenerateOptions {
    let exact = !dtypes.iter().any(|dtype| dtype.is_float());
    let sort = if exact { [Family::Sort; 2].as_slice() } else { &[] };
    let families = [
        Family::Elementwise,
        Family::Cast,
        Family::Layout,
        Family::Indexing,
        Family::Dot,
        Family::Conv,
        Family::Reduce,
        Family::Window,
        Family::Source,
        Family::Control,
    ];
    GenerateOptions {
        families: [families.as_slice(), sort].concat(),
        dtypes,
        max_nodes: 8,
        max_dim: 9,
        max_elements: 4096,
        special_values: false,
        ..GenerateOptions::default()
    }
}

#[test]
fn lowered_programs_agree_with_the_evaluator() {
    let seeds: u64 = std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let machines = [1, 3, 4, 16, 23].map(common::spreading_machine);
    let (mut compiled_count, mut serial_count) = (0, 0);
    for seed in 0..seeds {
        let bytes = Source::seeded_bytes(seed, 400);
        let dtypes = match seed % 4 {
            0 => vec![DType::F32],
            1 => vec![DType::F32, DType::I32, DType::Bool],
            2 => vec![DType::F16, DType::F32],
            _ => vec![DType::I32, DType::Bool, DType::U8],
        };
        let mut drawn = options(dtypes);
        let in_little_memory = seed / 4 % 2 == 1;
        if in_little_memory && seed % 3 == 0 {
            // Products that find no room at once.
            drawn.families =
                vec![Family::Dot, Family::Dot, Family::Conv, Family::Elementwise, Family::Control];
            (drawn.max_nodes, drawn.max_dim) = (4, 24);
        }
        let program = generate(&mut Source::new(&bytes), &drawn);
        let machine = &machines[(seed % machines.len() as u64) as usize];
        let lower = Options {
            min_tile_bytes: 1,
            available_memory_proportion: if in_little_memory { 0.0001 } else { 0.6 },
            ..Options::default()
        };
        let Ok(compiled) = compile(&program.module, machine, &lower) else { continue };
        compiled_count += 1;
        let in_slices = print_plan(&compiled.module, &compiled.plan).contains(" slices of ");
        serial_count += u64::from(in_slices);
        let what =
            format!("seed {seed} on {} tiles\n{}", machine.chip.tiles, pando_graph::print(&program.module));
        common::assert_sound(&compiled, machine, &what);
        let main = program.module.main().expect("generated");
        let expected =
            pando_graph::eval(&program.module, main, &program.inputs).expect("valid programs evaluate");
        let actual =
            common::simulate(&compiled, &program.inputs).unwrap_or_else(|error| panic!("{what}: {error}"));
        for (a, e) in actual.iter().zip(&expected) {
            assert_close(a, e, &what);
        }
        common::assert_expansion_agrees(&compiled, machine, &program.inputs, &actual, &what);
    }
    println!("{compiled_count} of {seeds} programs were lowered, {serial_count} with products in slices");
    assert!(serial_count * 25 > seeds, "only {serial_count} of {seeds} programs have products in slices");
    assert!(compiled_count * 3 > seeds, "only {compiled_count} of {seeds} programs could be lowered");
}

/// Intermediate roundings may be amplified by later operations (divisions, exponentials, discontinuities),
/// so this compares what survives: most elements must be close, and types and shapes equal. The operators'
/// own precision is judged by their files, one operator at a time.
fn assert_close(actual: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!((actual.dtype(), actual.shape()), (expected.dtype(), expected.shape()), "{what}");
    let (a, e) = (actual.to_f64(), expected.to_f64());
    let close = |a: f64, e: f64| {
        a == e
            || (a.is_nan() && e.is_nan())
            || (a - e).abs() <= 0.02 * (1.0 + e.abs())
            || !a.is_finite()
            || !e.is_finite()
    };
    let far = a.iter().zip(&e).filter(|&(&a, &e)| !close(a, e)).count();
    assert!(
        far * 10 <= a.len(),
        "{what}: {far} of {} elements differ: {actual:?} instead of {expected:?}",
        a.len()
    );
}

//! Goal: printing, parsing, binding and rebuilding lose nothing. Method: random programs (a plain loop
//! over seeds; PANDO_SEEDS sets how many), each judged by the evaluator before and after.

use pando_base::{DType, Tensor};
use pando_graph::generate::{GenerateOptions, Program, Source, generate};
use pando_graph::{Module, bind_dims, eval, parse, print, rebuild, validate};

fn seeds() -> u64 {
    std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4000)
}

fn for_programs(options: &GenerateOptions, property: impl Fn(&Program)) {
    for seed in 0..seeds() {
        let bytes = Source::seeded_bytes(seed, 64 + seed as usize % 512);
        let program = generate(&mut Source::new(&bytes), options);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| property(&program)));
        if result.is_err() {
            panic!("seed {seed}:\n{}\n{:?}", print(&program.module), program.inputs);
        }
    }
}

fn run(module: &Module, inputs: &[Tensor]) -> Vec<Tensor> {
    eval(module, module.main().unwrap(), inputs).unwrap()
}

/// Bit for bit, but for the payloads of NaN, which text does not keep.
fn assert_same(actual: &[Tensor], expected: &[Tensor]) {
    pando_graph::testing::compare(actual, expected, 0.0).unwrap();
}

#[test]
fn programs_are_valid_and_evaluate() {
    for_programs(&GenerateOptions::default(), |program| {
        validate(&program.module).unwrap();
        run(&program.module, &program.inputs);
    });
}

/// A generator that never proposes an op, or has all its proposals refused, would test nothing.
#[test]
fn programs_reach_every_op() {
    let mut counts: std::collections::BTreeMap<&str, u32> =
        pando_graph::text::op_names().map(|op| (op, 0)).collect();
    for seed in 0..2000 {
        let bytes = Source::seeded_bytes(seed, 600);
        let program = generate(&mut Source::new(&bytes), &GenerateOptions::default());
        for node in program.module.funcs.values().flat_map(|func| func.nodes.values()) {
            *counts.get_mut(node.op.name()).unwrap() += 1;
        }
    }
    let rare: Vec<_> = counts.iter().filter(|(_, count)| **count < 10).collect();
    assert!(rare.is_empty(), "hardly ever generated: {rare:?}");
}

#[test]
fn printing_is_a_fixed_point() {
    for_programs(&GenerateOptions::default(), |program| {
        let text = print(&program.module);
        let again = parse(&text, "printed").unwrap();
        assert_eq!(print(&again), text);
        assert_same(&run(&again, &program.inputs), &run(&program.module, &program.inputs));
    });
}

#[test]
fn rebuilding_changes_no_bit() {
    for_programs(&GenerateOptions::default(), |program| {
        let rebuilt = rebuild(&program.module).unwrap();
        validate(&rebuilt).unwrap();
        assert_same(&run(&rebuilt, &program.inputs), &run(&program.module, &program.inputs));
        let twice = rebuild(&rebuilt).unwrap();
        assert_eq!(twice.funcs.len(), rebuilt.funcs.len());
    });
}

#[test]
fn binding_names_changes_no_bit() {
    let options = GenerateOptions { named_dims: true, ..GenerateOptions::default() };
    let named = std::cell::Cell::new(0);
    for_programs(&options, |program| {
        let text = print(&program.module);
        let Some(size) = program.inputs[0].shape().first().copied().filter(|_| text.contains("[N")) else {
            return;
        };
        named.set(named.get() + 1);
        let bound = bind_dims(&program.module, &[("N", size)]).unwrap();
        assert!(!print(&bound).contains("[N"), "{}", print(&bound));
        let reread = parse(&print(&bound), "printed").unwrap();
        assert_same(&run(&reread, &program.inputs), &run(&program.module, &program.inputs));
    });
    assert!(named.get() * 8 > seeds(), "only {} programs have a name", named.get());
}

#[test]
fn options_are_kept() {
    let options = GenerateOptions { dtypes: vec![DType::F32], special_values: false, ..Default::default() };
    for_programs(&options, |program| {
        for value in program.module.funcs.values().flat_map(|func| func.values.values()) {
            let dtype = value.ty.dtype;
            assert!(matches!(dtype, DType::F32 | DType::I32 | DType::Bool | DType::U32), "{dtype}");
        }
    });
}

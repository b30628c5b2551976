//! Goal: programs compute what the evaluator computes. Method: random programs, a plain loop over seeds
//! (PANDO_SEEDS sets how many).
//!
//! Rounding differs, and a program may blow up a difference without bound (a comparison, 1e30 - 1e30), so
//! the judgement has three parts: each node of a program on the evaluator's own operands, within the rounding
//! error that the op may have; whole programs of integers exactly; and whole fused programs of all types
//! bit for bit against the same programs one op at a time.

mod common;

use common::{options, run};
use pando_base::{DType, Id, Tensor};
use pando_cpu::Isa;
use pando_graph::generate::{Family, GenerateOptions, Program, Source, generate};
use pando_graph::testing::compare;
use pando_graph::{Func, Module, Op, ValueId, eval, print, rebuild};

fn seeds(default: u64) -> u64 {
    std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn for_programs(count: u64, options: &GenerateOptions, property: impl Fn(u64, &Program)) {
    for seed in 0..seeds(count) {
        let bytes = Source::seeded_bytes(seed, 64 + seed as usize % 512);
        let program = generate(&mut Source::new(&bytes), options);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| property(seed, &program)));
        if result.is_err() {
            panic!("seed {seed}:\n{}\n{:?}", print(&program.module), program.inputs);
        }
    }
}

/// The levels in turn: all of them over a few seeds.
fn isa_of(seed: u64) -> Isa {
    let isas: Vec<Isa> = Isa::available().collect();
    isas[seed as usize % isas.len()]
}

/// The program with every value of `main` as a result.
fn with_all_results(module: &Module) -> Module {
    let mut module = module.clone();
    let main = module.main().unwrap();
    module.funcs[main].results = module.funcs[main].values.ids().collect();
    module
}

/// A module whose `main` is one node of another's.
fn node_module(module: &Module, func: &Func, node: &pando_graph::Node) -> Module {
    let mut module = module.clone();
    let mut main = Func::new("one.node");
    let operands: Vec<ValueId> =
        node.operands.iter().map(|&value| main.push_param("", func.ty(value).clone())).collect();
    let types: Vec<_> = node.results.iter().map(|&value| func.ty(value).clone()).collect();
    let pushed = main.push_node(node.op.clone(), operands, types);
    main.results = main.nodes[pushed].results.to_vec();
    let old = module.main().unwrap();
    module.funcs[old].name = "old.main".into();
    main.name = "main".into();
    module.funcs.push(main);
    module
}

/// Error that a node's f32 arithmetic may have, relative to 1 + |result|: sums of products of numbers that
/// cancel are judged by the sum of their magnitudes.
fn tolerance(op: &Op, operands: &[Tensor], results: &[Tensor]) -> f64 {
    let half = results.iter().any(|tensor| matches!(tensor.dtype(), DType::F16 | DType::BF16));
    let unit = if half { 1e-2 } else { 1e-5 };
    let largest = |tensor: &Tensor| {
        let finite = tensor.to_f64().into_iter().filter(|value| value.is_finite());
        finite.fold(0f64, |most, value| most.max(value.abs()))
    };
    match op {
        Op::Dot(_) | Op::Conv(_) => unit * (1.0 + largest(&operands[0]) * largest(&operands[1])),
        Op::Reduce { .. } | Op::ReduceWindow(_) | Op::Scan(_) => {
            let most = largest(&operands[0]);
            unit * (1.0 + most)
        }
        Op::Scatter { .. } => unit * (1.0 + largest(&operands[0]) + largest(&operands[2])),
        _ => unit,
    }
}

/// Bits are compared where the evaluator says so, NaN aside.
fn is_exact(op: &Op) -> bool {
    use pando_base::UnaryFn::{Erf, Exp, Expm1, Log, Log1p, Tanh};
    let smooth = matches!(op, Op::Unary(Exp | Expm1 | Log | Log1p | Tanh | Erf));
    let sums = matches!(op, Op::Dot(_) | Op::Conv(_) | Op::Reduce { .. } | Op::ReduceWindow(_))
        || matches!(op, Op::Scan(_) | Op::Scatter { .. } | Op::Binary(_));
    !smooth && !sums && op.funcs().is_empty()
}

#[test]
fn every_node_is_right_on_its_own() {
    for_programs(600, &GenerateOptions::default(), |seed, program| {
        let module = with_all_results(&program.module);
        let main = module.main().unwrap();
        let values = eval(&module, main, &program.inputs).unwrap();
        let func = &program.module.funcs[program.module.main().unwrap()];
        for node in func.nodes.values().filter(|node| node.op.funcs().is_empty()) {
            let of = |ids: &[ValueId]| -> Vec<Tensor> {
                ids.iter().map(|&value| values[value.index()].clone()).collect()
            };
            let (operands, expected) = (of(&node.operands), of(&node.results));
            // Padding counts as zeros here, and as nothing in the evaluator: 0 × infinity tells.
            if matches!(node.op, Op::Conv(_)) && !operands[1].to_f64().iter().all(|w| w.is_finite()) {
                continue;
            }
            let one = node_module(&program.module, func, node);
            let actual = run(&one, &operands, &options(isa_of(seed), 1, true));
            let tolerance = if is_exact(&node.op) { 0.0 } else { tolerance(&node.op, &operands, &expected) };
            compare(&actual, &expected, tolerance).unwrap_or_else(|error| panic!("{:?}: {error}", node.op));
        }
    });
}

/// Fused or not, one thread or two: the same bits.
#[test]
fn fusion_and_threads_change_no_bit() {
    for_programs(600, &GenerateOptions { max_nodes: 24, ..Default::default() }, |seed, program| {
        let isa = isa_of(seed);
        // Small constants are computed by the evaluator, in f64: in both.
        let module = rebuild(&program.module).unwrap();
        let plain = run(&module, &program.inputs, &options(isa, 1, false));
        for threads in [1, 2] {
            let fused = run(&module, &program.inputs, &options(isa, threads, true));
            compare(&fused, &plain, 0.0).unwrap();
        }
    });
}

#[test]
fn programs_of_integers_are_exact() {
    let options_of = GenerateOptions {
        dtypes: vec![DType::I32, DType::U8, DType::I64, DType::Bool, DType::I8, DType::U16, DType::U64],
        ..Default::default()
    };
    for_programs(600, &options_of, |seed, program| {
        let expected = eval(&program.module, program.module.main().unwrap(), &program.inputs).unwrap();
        let actual = run(&program.module, &program.inputs, &options(isa_of(seed), 2, true));
        compare(&actual, &expected, 0.0).unwrap();
    });
}

/// Programs whose ops are exact in f32 give the evaluator's bits.
#[test]
fn programs_that_move_elements_are_exact() {
    let families = vec![Family::Layout, Family::Indexing, Family::Sort, Family::Source, Family::Control];
    let options_of = GenerateOptions { families, named_dims: true, ..Default::default() };
    let exact = |module: &Module| {
        let mut nodes = module.funcs.values().flat_map(|func| func.nodes.values());
        nodes.all(|node| !matches!(node.op, Op::Scatter { combine: Some(_), .. }))
    };
    for_programs(600, &options_of, |seed, program| {
        if exact(&program.module) {
            let expected = eval(&program.module, program.module.main().unwrap(), &program.inputs).unwrap();
            let actual = run(&program.module, &program.inputs, &options(isa_of(seed), 2, true));
            compare(&actual, &expected, 0.0).unwrap();
        }
    });
}

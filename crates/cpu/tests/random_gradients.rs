//! Goal: gradients are what the evaluator says they are, in the graphs that `Builder::gradients` makes. Method: random
//! programs of floats with their gradients, a plain loop over seeds (PANDO_SEEDS sets how many). Whole programs blow up
//! differences of rounding, so those whose values are large are left out.

mod common;

use common::{options, run};
use pando_base::{DType, Tensor};
use pando_cpu::Isa;
use pando_graph::generate::{Family, GenerateOptions, Program, Source, generate};
use pando_graph::testing::compare;
use pando_graph::{Builder, Module, ValueId, eval, print, random};

/// The float results, then the gradients of the parameters, of which the last ones are the results' gradients.
/// `None` if there are none.
fn with_gradients(module: &Module) -> Option<Module> {
    let (mut b, params, results) = Builder::reopen(module).unwrap();
    let outputs: Vec<ValueId> = results.into_iter().filter(|&value| b.ty(value).dtype.is_float()).collect();
    let mut seeded = Vec::new();
    for &output in &outputs {
        seeded.push((output, b.param("", b.ty(output).clone())));
    }
    let gradients: Vec<ValueId> = b.gradients(&seeded, &params).ok()?.into_iter().flatten().collect();
    b.end(&[outputs.as_slice(), &gradients].concat());
    (!gradients.is_empty()).then(|| b.finish())
}

fn args(module: &Module, program: &Program, seed: u64) -> Vec<Tensor> {
    let types = module.funcs[module.main().unwrap()].param_types();
    let arg = |(position, ty): (usize, &&pando_graph::TensorType)| {
        let shape = ty.shape().unwrap();
        if !ty.dtype.is_float() {
            return program.inputs[position].clone();
        }
        let number = |index| random::normal(seed * 64 + position as u64, index);
        let values: Vec<f64> = (0..shape.num_elements()).map(number).collect();
        Tensor::from_f64(ty.dtype, shape, &values)
    };
    types.iter().enumerate().map(arg).collect()
}

fn generated(seed: u64) -> Program {
    let families = GenerateOptions::default().families;
    let without = [Family::Cast, Family::Source];
    let options = GenerateOptions {
        families: families.into_iter().filter(|family| !without.contains(family)).collect(),
        dtypes: [[DType::F32; 6].as_slice(), &[DType::Bool, DType::I32]].concat(),
        special_values: false,
        max_nodes: 8,
        ..GenerateOptions::default()
    };
    let bytes = Source::seeded_bytes(seed, 64 + seed as usize % 512);
    generate(&mut Source::new(&bytes), &options)
}

/// Whether there was something to compare.
fn check(seed: u64) -> bool {
    let program = generated(seed);
    let Some(module) = with_gradients(&program.module) else { return false };
    let args = args(&module, &program, seed);
    let expected = eval(&module, module.main().unwrap(), &args).unwrap();
    if expected.iter().flat_map(Tensor::to_f64).any(|value| value.is_nan() || value.abs() > 100.0) {
        return false;
    }
    let isas: Vec<Isa> = Isa::available().collect();
    let isa = isas[seed as usize % isas.len()];
    let actual = run(&module, &args, &options(isa, 1 + seed as usize % 2, true));
    compare(&actual, &expected, 1e-3)
        .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", print(&module)));
    true
}

#[test]
fn gradients_are_the_evaluators() {
    let count = std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let compared = (0..count).filter(|&seed| check(seed)).count() as u64;
    assert!(compared * 4 > count, "only {compared} programs compared");
}

/// Seeds at which something was wrong once: groups whose channels share a block.
#[test]
fn gradients_that_were_wrong_once() {
    for seed in [5565, 29855, 46371] {
        check(seed);
    }
}

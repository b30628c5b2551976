//! Random programs of floats. PANDO_SEEDS sets how many.

use super::differences::{Differentiated, Outcome};
use pando_base::{DType, F8Format};
use pando_graph::generate::{Family, GenerateOptions, Program, Source, generate};
use pando_graph::{Builder, Module, eval, print, validate};

fn seeds() -> u64 {
    std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4000)
}

fn options() -> GenerateOptions {
    let without = [Family::Cast, Family::Source];
    let families = GenerateOptions::default().families;
    GenerateOptions {
        families: families.into_iter().filter(|family| !without.contains(family)).collect(),
        // Folded constants are rounded even here: those of f16 would be too coarse.
        dtypes: [[DType::F32; 6].as_slice(), &[DType::Bool, DType::I32]].concat(),
        special_values: false,
        max_nodes: 10,
        max_elements: 128,
        ..GenerateOptions::default()
    }
}

/// `main` with its gradients. `None` if a while loop stands between parameters and outputs.
fn differentiated(module: &Module, outputs: std::ops::Range<usize>) -> Option<Differentiated> {
    let mut module = module.clone();
    let main = module.main().unwrap();
    let func = &mut module.funcs[main];
    func.results.drain(outputs.end..);
    func.results.extend(func.values.ids());
    let (b, params, values) = Builder::reopen(&module).unwrap();
    match Differentiated::new(b, &params, &values[outputs.clone()], &values[outputs.end..]) {
        Err(error) if error.to_string().contains("while has no gradient") => None,
        made => Some(made.unwrap()),
    }
}

fn check(program: &Program, seed: u64) -> Option<Outcome> {
    let results = program.module.funcs[program.module.main().unwrap()].results.len();
    Some(differentiated(&program.module, 0..results)?.check(seed, &program.inputs))
}

/// The gradients of the gradients.
fn check_twice(program: &Program, seed: u64) -> Option<Outcome> {
    let results = program.module.funcs[program.module.main().unwrap()].results.len();
    let once = differentiated(&program.module, 0..results)?;
    Some(differentiated(&once.module, once.gradients())?.check(seed, &program.inputs))
}

fn count(seeds: u64, check: fn(&Program, u64) -> Option<Outcome>) {
    let mut counts = [0u64; 5];
    for seed in 0..seeds {
        let bytes = Source::seeded_bytes(seed, 64 + seed as usize % 512);
        let program = generate(&mut Source::new(&bytes), &options());
        match std::panic::catch_unwind(|| check(&program, seed)) {
            Err(_) => panic!("seed {seed}:\n{}", print(&program.module)),
            Ok(outcome) => counts[outcome.map_or(4, |outcome| outcome as usize)] += 1,
        }
    }
    let [right, _, _, singular, _] = counts;
    let message = format!("right, constant, not smooth, singular, refused: {counts:?}");
    assert!(right * 5 > seeds && singular * 50 < seeds, "{message}");
    println!("{message}");
}

#[test]
fn gradients_are_central_differences() {
    count(seeds(), check);
}

#[test]
fn gradients_of_gradients_are_central_differences() {
    count(seeds() / 4, check_twice);
}

/// Of all types and ops, with special values: whatever comes out is valid and can be run.
#[test]
fn gradients_of_any_program_are_valid() {
    let all = GenerateOptions::default();
    let dtypes = [all.dtypes.as_slice(), &[DType::F8(F8Format::F143, 1), DType::F32, DType::F32]].concat();
    for named_dims in [false, true] {
        let options = GenerateOptions { dtypes: dtypes.clone(), named_dims, ..all.clone() };
        for seed in 0..seeds() / 2 {
            let bytes = Source::seeded_bytes(seed, 64 + seed as usize % 512);
            let program = generate(&mut Source::new(&bytes), &options);
            let result = std::panic::catch_unwind(|| run_with_gradients(&program));
            assert!(result.is_ok(), "seed {seed}:\n{}", print(&program.module));
        }
    }
}

/// The gradient of each float result by itself.
fn run_with_gradients(program: &Program) {
    let (mut b, params, results) = Builder::reopen(&program.module).unwrap();
    let mut gradients = Vec::new();
    for result in results.into_iter().filter(|&value| b.ty(value).dtype.is_float()).collect::<Vec<_>>() {
        match b.gradients(&[(result, result)], &params) {
            Ok(found) => {
                for (gradient, &param) in found.into_iter().zip(&params) {
                    assert!(gradient.is_none_or(|gradient| b.ty(gradient) == b.ty(param)));
                    gradients.extend(gradient);
                }
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("has no gradient") || text.contains("without a number"), "{text}");
            }
        }
    }
    let main = b.end(&gradients);
    let module = b.finish();
    validate(&module).unwrap();
    eval(&module, main, &program.inputs).unwrap();
}

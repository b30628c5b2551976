//! Goal: gradients are right. Method: random programs of floats, evaluated in f64 without rounding; the derivative
//! along a random direction, from the gradients, against central differences. PANDO_SEEDS sets how many.

use pando_base::{DType, Result, Tensor};
use pando_graph::generate::{Family, GenerateOptions, Program, Source, generate};
use pando_graph::{Builder, Module, ValueId, eval_wide, print, random, validate, wide, wide_values};

fn seeds() -> u64 {
    std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4000)
}

fn options() -> GenerateOptions {
    let without = [Family::Cast, Family::Source];
    let families = GenerateOptions::default().families;
    GenerateOptions {
        families: families.into_iter().filter(|family| !without.contains(family)).collect(),
        // Folded constants are rounded even here: those of f16 would be too coarse.
        dtypes: vec![DType::F32],
        special_values: false,
        max_nodes: 10,
        max_elements: 128,
        ..GenerateOptions::default()
    }
}

/// The program's `main` with seeds as further parameters. Results: its float outputs, then the gradients of
/// `params`, then all float values.
struct Differentiated {
    module: Module,
    outputs: usize,
    params: Vec<usize>,
}

fn differentiate(program: &Program) -> Result<Differentiated> {
    let mut module = program.module.clone();
    let main = module.main().unwrap();
    let func = &mut module.funcs[main];
    let count = func.results.len();
    func.results.extend(func.values.ids());
    let (mut b, params, values) = Builder::reopen(&module)?;
    let floats_of = |b: &Builder, values: &[ValueId]| -> Vec<ValueId> {
        values.iter().copied().filter(|&value| b.ty(value).dtype.is_float()).collect()
    };
    let (outputs, floats) = (floats_of(&b, &values[..count]), floats_of(&b, &values[count..]));
    let mut seeded = Vec::new();
    for &output in &outputs {
        seeded.push((output, b.param("", b.ty(output).clone())));
    }
    let gradients = b.gradients(&seeded, &params)?;
    let found = (0..params.len()).filter(|&param| gradients[param].is_some()).collect();
    let results: Vec<ValueId> =
        outputs.iter().copied().chain(gradients.into_iter().flatten()).chain(floats).collect();
    b.end(&results);
    Ok(Differentiated { module: b.finish(), outputs: outputs.len(), params: found })
}

/// Numbers from a normal distribution, no two alike.
fn draw(seed: u64, count: usize) -> Vec<f64> {
    (0..count as u64).map(|index| random::normal(seed, index)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// What a program was found to be.
#[derive(Debug, PartialEq)]
enum Outcome {
    Right,
    /// No parameter has a gradient.
    Constant,
    /// A value is too large, or a function has a step or corner nearby: differences say nothing.
    NotSmooth,
    /// A slope on the way is infinite, as that of a root is at zero, though nothing depends on it.
    Singular,
    /// It has a while loop between parameters and outputs.
    Refused,
}

fn check(program: &Program, seed: u64) -> Outcome {
    let made = match differentiate(program) {
        Err(error) if error.to_string().contains("while has no gradient") => return Outcome::Refused,
        made => made.unwrap(),
    };
    validate(&made.module).unwrap_or_else(|error| panic!("{error}\n{}", print(&made.module)));
    if made.params.is_empty() {
        return Outcome::Constant;
    }
    let main = &made.module.funcs[made.module.main().unwrap()];
    // Arguments of floats are drawn anew, so that no two are equal; the others stay.
    let types = main.param_types();
    let mut args: Vec<Tensor> = Vec::new();
    for (position, ty) in types.iter().enumerate() {
        let shape = ty.shape().unwrap();
        args.push(match ty.dtype.is_float() {
            true => wide(shape.clone(), &draw(seed * 64 + position as u64, shape.num_elements() as usize)),
            false => program.inputs[position].clone(),
        });
    }
    let directions: Vec<Vec<f64>> = made
        .params
        .iter()
        .map(|&param| draw(seed ^ 1 << 40 | param as u64, wide_values(&args[param]).len()))
        .collect();
    let run = |step: f64| -> Vec<Vec<f64>> {
        let mut moved = args.clone();
        for (&param, direction) in made.params.iter().zip(&directions) {
            let from = wide_values(&args[param]);
            let to: Vec<f64> = from.iter().zip(direction).map(|(x, d)| x + step * d).collect();
            moved[param] = wide(args[param].shape().clone(), &to);
        }
        eval_wide(&made.module, made.module.main().unwrap(), &moved)
            .unwrap()
            .iter()
            .map(wide_values)
            .collect()
    };
    let seeds: Vec<Vec<f64>> = args[args.len() - made.outputs..].iter().map(wide_values).collect();
    let value =
        |results: &[Vec<f64>]| -> f64 { results.iter().zip(&seeds).map(|(r, seed)| dot(r, seed)).sum() };
    let difference = |h: f64| (value(&run(h)) - value(&run(-h))) / (2.0 * h);
    let here = run(0.0);
    let analytic: f64 = here[made.outputs..].iter().zip(&directions).map(|(g, d)| dot(g, d)).sum();
    let (coarse, fine) = (difference(2e-5), difference(1e-5));
    let largest =
        here.iter().flatten().fold(0.0f64, |largest, x| if x.abs() <= largest { largest } else { x.abs() });
    let scale = 1.0 + fine.abs() + largest;
    if scale.is_nan() || scale > 1e5 || (coarse - fine).abs() > 1e-5 * scale {
        return Outcome::NotSmooth;
    }
    if !analytic.is_finite() {
        return Outcome::Singular;
    }
    assert!((analytic - fine).abs() < 1e-4 * scale, "{analytic} instead of {fine}\n{}", print(&made.module));
    Outcome::Right
}

#[test]
fn gradients_are_central_differences() {
    let mut counts = [0u64; 5];
    for seed in 0..seeds() {
        let bytes = Source::seeded_bytes(seed, 64 + seed as usize % 512);
        let program = generate(&mut Source::new(&bytes), &options());
        let result = std::panic::catch_unwind(|| check(&program, seed));
        match result {
            Err(_) => panic!("seed {seed}:\n{}", print(&program.module)),
            Ok(outcome) => counts[outcome as usize] += 1,
        }
    }
    let [right, _, _, singular, _] = counts;
    assert!(right * 3 > seeds(), "right, constant, not smooth, singular, refused: {counts:?}");
    assert!(singular * 50 < seeds(), "right, constant, not smooth, singular, refused: {counts:?}");
    eprintln!("{counts:?}");
}

//! Goal: the stages of a model compute what the model does, and every stage has work. Method: random modules cut in
//! two to four, evaluated stage by stage; and a chain whose cuts are known.

use pando_base::Tensor;
use pando_graph::generate::{GenerateOptions, Source, generate};
use pando_graph::{Module, ValueId};
use pando_lower::{End, Stage, inline_calls, rebalance, split, split_after};
use std::collections::BTreeMap;

fn machine() -> pando_machine::Machine {
    pando_machine::load("m2000").unwrap()
}

/// The model's outputs from its stages, each evaluated with what earlier ones gave.
fn through(stages: &[Stage], args: &[Tensor], outputs: usize) -> Vec<Tensor> {
    let mut passed: BTreeMap<ValueId, Tensor> = BTreeMap::new();
    let mut results = vec![None; outputs];
    for stage in stages {
        let inputs: Vec<Tensor> = stage
            .inputs
            .iter()
            .map(|end| match end {
                End::Host(index) => args[*index].clone(),
                End::Stage { value, .. } => passed[value].clone(),
            })
            .collect();
        pando_graph::validate(&stage.module).unwrap();
        let main = stage.module.main().unwrap();
        for (end, tensor) in
            stage.outputs.iter().zip(pando_graph::eval(&stage.module, main, &inputs).unwrap())
        {
            match end {
                End::Host(index) => results[*index] = Some(tensor),
                End::Stage { value, .. } => drop(passed.insert(*value, tensor)),
            }
        }
    }
    results.into_iter().map(|tensor| tensor.expect("a stage gives every output")).collect()
}

fn check(module: &Module, args: &[Tensor], stages: &[Stage], what: &str) {
    let main = module.main().unwrap();
    let expected = pando_graph::eval(module, main, args).unwrap();
    let actual = through(stages, args, expected.len());
    for (a, e) in actual.iter().zip(&expected) {
        assert_eq!((a.dtype(), a.shape(), a.bytes()), (e.dtype(), e.shape(), e.bytes()), "{what}");
    }
}

#[test]
fn stages_compute_what_the_model_does() {
    let mut checked = 0;
    for seed in 0..600 {
        let program =
            generate(&mut Source::new(&Source::seeded_bytes(seed, 400)), &GenerateOptions::default());
        let Ok(module) = inline_calls(&program.module) else { continue };
        let count = 2 + seed as usize % 3;
        let Ok(stages) = split(&module, &machine(), count) else { continue };
        let what = format!("seed {seed}\n{}", pando_graph::print(&module));
        assert_eq!(stages.len(), count);
        check(&module, &program.inputs, &stages, &what);
        // Whatever the stages take, cutting anew keeps the meaning.
        let timed: Vec<_> = stages.iter().zip([1.0, 5.0, 0.1, 2.0]).collect();
        check(&module, &program.inputs, &rebalance(&module, &machine(), &timed).unwrap(), &what);
        checked += 1;
    }
    assert!(checked * 3 > 600, "only {checked} programs have stages");
}

#[test]
fn equal_layers_are_shared_out_evenly() {
    let layer = |at: usize| {
        format!(
            "  %w{at} = constant @w{at} : f16[8192,8192]\n  %x{} = dot %x{at}, %w{at} contract=[1:0] : f16[512,8192]\n",
            at + 1
        )
    };
    let consts: String = (0..6)
        .map(|at| format!("const @w{at}: f16[8192,8192] = normal(seed={at}, mean=0, std=0.2)\n"))
        .collect();
    let body: String = (0..6).map(layer).collect();
    let text =
        format!("{consts}func @main(%x0: f16[512,8192]) -> f16[512,8192] {{\n{body}  return %x6\n}}\n");
    let module = inline_calls(&pando_graph::parse(&text, "test").unwrap()).unwrap();
    let dots = |stage: &Stage| pando_graph::print(&stage.module).matches(" = dot ").count();
    let stages = split(&module, &machine(), 3).unwrap();
    assert_eq!(stages.iter().map(dots).collect::<Vec<_>>(), [2, 2, 2]);
    assert_eq!(stages[1].inputs.len(), 1);
    assert!(matches!(stages[1].outputs[..], [End::Stage { stage: 2, .. }]));
    // The first stage was four times as slow as the others: it gives one of its layers away.
    let timed: Vec<_> = stages.iter().zip([8.0, 2.0, 2.0]).collect();
    let again = rebalance(&module, &machine(), &timed).unwrap();
    assert_eq!(again.iter().map(dots).collect::<Vec<_>>(), [1, 1, 4]);
    // Where the user says.
    let told = split_after(&module, &["x1".into(), "x5".into()]).unwrap();
    assert_eq!(told.iter().map(dots).collect::<Vec<_>>(), [1, 4, 1]);
    for ends in [&["x5", "x1"][..], &["x6"], &["x"]] {
        let ends: Vec<String> = ends.iter().map(ToString::to_string).collect();
        assert!(split_after(&module, &ends).is_err_and(|error| error.to_string().contains("--stage-end x")));
    }
    assert!(split(&module, &machine(), 7).is_err_and(|error| error.to_string().contains("--stages 7")));
}

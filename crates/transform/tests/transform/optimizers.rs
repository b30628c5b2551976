//! Steps of every optimizer, and what it refuses.

use crate::common::*;
use pando_base::{DType, Tensor};
use pando_graph::{Builder, TensorType, ValueId};
use pando_transform::Optimizer;
use pando_transform::optimizer::{Adam, Rounding, Rule, Sgd, Slot, Update};
use pando_transform::random;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Start { weight: Vec<Value>, gradients: Vec<Vec<Value>> },
    Case { rule: String, settings: BTreeMap<String, f64>, weights: Vec<Vec<Value>> },
}

const DIMS: [u64; 2] = [2, 3];

fn hyperparameters(optimizer: &Optimizer) -> Vec<Tensor> {
    let hyper = optimizer.hyperparameters().into_iter();
    hyper.map(|hyper| Tensor::scalar(DType::F32, hyper.value)).collect()
}

/// Weight and state after each gradient.
fn trajectory(optimizer: &Optimizer, weight: &Tensor, gradients: &[Tensor], seed: bool) -> Vec<Vec<Tensor>> {
    let slots = optimizer.slots(&types(std::slice::from_ref(weight))[0]);
    let mut state = vec![weight.clone()];
    state.extend(slots.iter().map(|slot| slot.tensor(weight)));
    let hyper = hyperparameters(optimizer);
    let mut states = Vec::new();
    for (step, gradient) in gradients.iter().enumerate() {
        let mut inputs = state.clone();
        inputs.push(gradient.clone());
        inputs.extend(hyper.iter().cloned());
        inputs.extend(seed.then(|| random::seed(step as u64)));
        state = results_of(&inputs, |b, params| {
            let (old, rest) = params.split_at(1 + slots.len());
            let (hyper, seed) = rest[1..].split_at(hyper.len());
            let update = Update {
                weight: old[0],
                gradient: Some(rest[0]),
                state: &old[1..],
                hyper,
                seed: seed.first().copied(),
            };
            let updated = optimizer.update(b, &update)?;
            Ok(std::iter::once(updated.weight).chain(updated.state).collect())
        });
        states.push(state.clone());
    }
    states
}

/// An optimizer, and the weight after each step.
type Trajectory = (Optimizer, Vec<Tensor>);

/// The weight before, its gradients, and what optimizers make of them.
fn start_and_cases() -> (Tensor, Vec<Tensor>, Vec<Trajectory>) {
    let mut entries: Vec<Entry> = golden(include_str!("../golden/optimizers.json"));
    let Entry::Start { weight, gradients } = entries.remove(0) else { panic!("the start comes first") };
    let tensor = |values: &[Value]| f32s(&DIMS, &numbers(values));
    let cases = entries.iter().map(|entry| {
        let Entry::Case { rule, settings, weights } = entry else { panic!("one start only") };
        let settings: Vec<(&str, f64)> =
            settings.iter().map(|(name, &value)| (name.as_str(), value)).collect();
        let weights = weights.iter().map(|values| tensor(values)).collect();
        (Optimizer::named(rule, &settings).unwrap(), weights)
    });
    (tensor(&weight), gradients.iter().map(|values| tensor(values)).collect(), cases.collect())
}

#[test]
fn every_rule_steps_as_pytorch_does() {
    let (weight, gradients, cases) = start_and_cases();
    assert_eq!(cases.len(), 29);
    for (optimizer, expected) in cases {
        let states = trajectory(&optimizer, &weight, &gradients, false);
        for (step, (state, expected)) in states.iter().zip(&expected).enumerate() {
            pando_graph::testing::compare(&state[..1], std::slice::from_ref(expected), 2e-6)
                .map_err(|error| error.context(format!("{optimizer:?}, step {step}")))
                .unwrap();
        }
    }
}

/// With a combined velocity, gradients that come one by one are their sum.
#[test]
fn a_combined_velocity_accumulates() {
    let sgd = Sgd { lr: 0.1, momentum: Some(0.9), velocity_scaling: Some(16.0), ..Sgd::default() };
    let sgd = Sgd { dampening: Some(0.25), weight_decay: Some(0.1), ..sgd };
    let optimizer = Optimizer::new(Rule::Sgd(sgd));
    let (weight, gradients, _) = start_and_cases();
    let inputs = [vec![weight, f32s(&DIMS, &[0.5; 6])], gradients[..2].to_vec(), hyperparameters(&optimizer)];
    let results = results_of(&inputs.concat(), |b, params| {
        let (weight, velocity, first, second, hyper) =
            (params[0], params[1], params[2], params[3], &params[4..]);
        let update = |b: &mut Builder, velocity, gradient| {
            let state = [velocity];
            let updated =
                optimizer.update(b, &Update { weight, gradient, state: &state, hyper, seed: None })?;
            Ok::<_, pando_base::Error>([updated.weight, updated.state[0]])
        };
        let sum = b.add(first, second)?;
        let at_once = update(b, velocity, Some(sum))?;
        let mut combined = optimizer.add_to_velocity(b, velocity, first, hyper)?;
        combined = optimizer.add_to_velocity(b, combined, second, hyper)?;
        let one_by_one = update(b, combined, None)?;
        Ok([at_once, one_by_one].concat())
    });
    pando_graph::testing::compare(&results[2..], &results[..2], 1e-6).unwrap();
    assert_ne!(results[0].to_f64(), vec![0.0; 6]);
}

/// Weights in f16 are the rounded copies of weights that move in f32.
#[test]
fn master_weights_keep_what_f16_drops() {
    let weight = Tensor::from_f64(DType::F16, [2], &[1.0, -2.0]);
    let gradients = vec![Tensor::from_f64(DType::F16, [2], &[0.01, -0.01]); 40];
    let sgd = Rule::Sgd(Sgd { lr: 0.01, ..Sgd::default() });
    let plain = Optimizer::new(sgd.clone());
    let with_master = Optimizer { master: true, ..Optimizer::new(sgd) };
    let last = |optimizer: &Optimizer| trajectory(optimizer, &weight, &gradients, false).pop().unwrap();
    // Steps of 0.0001 are below half a step of f16 at 1.
    assert_eq!(last(&plain)[0].to_f64(), [1.0, -2.0]);
    let state = last(&with_master);
    assert_eq!((state[0].dtype(), state[1].dtype()), (DType::F16, DType::F32));
    let moved = 1.0 - 40.0 * 0.01 * DType::F16.round(0.01);
    assert!((state[1].get_f64(0) - moved).abs() < 1e-5, "{:?}", state[1]);
    assert_eq!(state[0].get_f64(0), DType::F16.round(state[1].get_f64(0)));
}

/// Without master weights, stochastic rounding moves them by as much on average.
#[test]
fn stochastic_rounding_moves_f16_weights() {
    let weight = Tensor::from_f64(DType::F16, [2000], &[1.0; 2000]);
    let gradients = vec![Tensor::from_f64(DType::F16, [2000], &[0.01; 2000]); 10];
    let sgd = Rule::Sgd(Sgd { lr: 0.01, ..Sgd::default() });
    let optimizer = Optimizer { rounding: Rounding::Stochastic, ..Optimizer::new(sgd) };
    let last = trajectory(&optimizer, &weight, &gradients, true).pop().unwrap();
    let mean = last[0].to_f64().iter().sum::<f64>() / 2000.0;
    let expected = 1.0 - 10.0 * 0.01 * DType::F16.round(0.01);
    // One rounding has a deviation of at most 2.5e-4; the mean of 2000 of the sum of ten, below 2e-5.
    assert!((mean - expected).abs() < 1e-4, "{mean} instead of {expected}");
}

#[test]
fn moments_have_types_of_their_own() {
    let optimizer = Optimizer {
        first: DType::F16,
        master: true,
        ..Optimizer::named("adamw", &[("amsgrad", 1.0)]).unwrap()
    };
    let ty = TensorType::new(DType::F16, [3u64]);
    let slots: Vec<String> = optimizer
        .slots(&ty)
        .iter()
        .map(|Slot { name, ty, shared, .. }| format!("{name} {ty} {shared}"))
        .collect();
    let expected = [
        "master f32[3] false",
        "exp_avg f16[3] false",
        "exp_avg_sq f32[3] false",
        "max_exp_avg_sq f32[3] false",
        "step f32[] true",
    ];
    assert_eq!(slots, expected);
    let names: Vec<&str> = optimizer.hyperparameters().iter().map(|hyper| hyper.name).collect();
    assert_eq!(names, ["lr", "1-beta1", "1-beta2", "eps", "weight_decay"]);
    let weight = Tensor::from_f64(DType::F16, [3], &[1.0, 2.0, 3.0]);
    let states = trajectory(&optimizer, &weight, &[Tensor::from_f64(DType::F16, [3], &[1.0; 3])], false);
    assert_eq!(states[0].iter().map(Tensor::dtype).collect::<Vec<_>>()[2], DType::F16);
}

/// One step of every rule on weights without dimensions, without elements, and of every float type that is trained:
/// the engine agrees with the evaluator, and types stay.
#[test]
fn weights_of_any_shape_and_type() {
    let rules = ["sgd", "adam", "adamw", "adamax", "lamb", "rmsprop", "adagrad", "adadelta"];
    let shapes: [&[u64]; 4] = [&[], &[0], &[5], &[2, 1, 3]];
    for (rule, dims) in rules.into_iter().flat_map(|rule| shapes.map(|dims| (rule, dims))) {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let count: u64 = dims.iter().product();
            let values: Vec<f64> = (0..count).map(|i| i as f64 * 0.25 - 0.5).collect();
            let weight = Tensor::from_f64(dtype, dims.to_vec(), &values);
            let optimizer = Optimizer { first: dtype, ..Optimizer::named(rule, &[("lr", 0.125)]).unwrap() };
            let gradients = [f32s(dims, &values), weight.clone()];
            let states = trajectory(&optimizer, &weight, &gradients, false);
            let ty = types(std::slice::from_ref(&weight)).remove(0);
            let mut expected = vec![ty.clone()];
            expected.extend(optimizer.slots(&ty).into_iter().map(|slot| slot.ty));
            assert_eq!(types(&states[1]), expected, "{rule}");
            let finite = states[1].iter().flat_map(Tensor::to_f64).all(f64::is_finite);
            assert!(finite, "{rule} {ty}: {states:?}");
        }
    }
}

#[test]
fn what_is_left_out_leaves_no_trace() {
    let nodes = |settings: &[(&str, f64)]| {
        let optimizer = Optimizer::named("sgd", settings).unwrap();
        let scalar = TensorType::scalar(DType::F32);
        let ty = TensorType::new(DType::F32, [3u64]);
        let slots = optimizer.slots(&ty);
        let mut params = vec![ty.clone(), ty];
        params.extend(slots.iter().map(|slot| slot.ty.clone()));
        params.extend(vec![scalar; optimizer.hyperparameters().len()]);
        let module = module(&params, |b, params| {
            let (state, hyper) = params[2..].split_at(slots.len());
            let update = Update { weight: params[0], gradient: Some(params[1]), state, hyper, seed: None };
            Ok(vec![optimizer.update(b, &update)?.weight])
        });
        module.unwrap().funcs.values().next().unwrap().nodes.len()
    };
    // The learning rate's broadcast, the product, the difference.
    assert_eq!(nodes(&[]), 3);
    assert!(nodes(&[("weight_decay", 0.0)]) > 3);
}

fn refused_update(optimizer: &Optimizer, params: &[TensorType], gradient: bool) -> String {
    refused(params, |b, params: &[ValueId]| {
        let hyper = &params[2..];
        let gradient = gradient.then_some(params[1]);
        optimizer
            .update(b, &Update { weight: params[0], gradient, state: &[], hyper, seed: None })
            .map(|u| u.weight)
    })
}

#[test]
fn bad_updates_are_refused() {
    let (f32, scalar) = (TensorType::new(DType::F32, [3u64]), TensorType::scalar(DType::F32));
    let ints = TensorType::new(DType::I32, [3u64]);
    let sgd = Optimizer::new(Rule::Sgd(Sgd::default()));
    let adam = Optimizer::new(Rule::Adam(Adam::default()));
    let check = |optimizer: &Optimizer, params: &[&TensorType], gradient, expect: &str| {
        let params: Vec<TensorType> = params.iter().map(|&ty| ty.clone()).collect();
        assert_eq!(refused_update(optimizer, &params, gradient), expect);
    };
    check(&sgd, &[&ints, &f32, &scalar], true, "a weight i32[3] cannot be trained; weights are floats");
    check(
        &sgd,
        &[&f32, &scalar, &scalar],
        true,
        "the gradient is f32[], the weight is f32[3]; a gradient is of floats in the weight's dimensions",
    );
    check(&sgd, &[&f32, &f32], true, "the optimizer takes hyperparameters (f32[]), found ()");
    check(
        &sgd,
        &[&f32, &f32, &scalar],
        false,
        "the update has no gradient; only a combined velocity can hold it already",
    );
    check(
        &adam,
        &[&f32, &f32, &scalar, &scalar, &scalar, &scalar],
        true,
        "the optimizer takes state (f32[3], f32[3], f32[]), found ()",
    );
    let stochastic = Optimizer { rounding: Rounding::Stochastic, ..sgd };
    let f16 = TensorType::new(DType::F16, [3u64]);
    check(&stochastic, &[&f16, &f32, &scalar], true, "stochastic rounding needs a seed, u32[2]");
    let error = |rule, settings: &[(&str, f64)]| Optimizer::named(rule, settings).unwrap_err().to_string();
    assert!(error("sdg", &[]).starts_with("there is no optimizer 'sdg'; there are: sgd, adam, "));
    assert_eq!(
        error("adadelta", &[("beta1", 0.9)]),
        "adadelta has no setting 'beta1'; it has: lr, rho, eps, weight_decay"
    );
}

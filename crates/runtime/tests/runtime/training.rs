//! Training steps: PyTorch's losses, and what must be equal to what.

use crate::network::*;
use pando_base::{DType, Tensor};
use pando_graph::{Builder, TensorType};
use pando_runtime::Input;
use pando_transform::loss::{Classes, Reduction, cross_entropy, mse};
use pando_transform::loss_scaling::Automatic;
use pando_transform::optimizer::Rounding;
use pando_transform::train::{self, Forward, Group, LossScale, Network, Scope, Training};
use pando_transform::{Accumulation, GradientReduction, MeanStrategy, Optimizer};
use std::collections::BTreeMap;

fn optimizer(rule: &str, settings: &[(&str, f64)]) -> Optimizer {
    Optimizer::named(rule, settings).unwrap()
}

fn sgd() -> Training {
    Training::new(optimizer("sgd", &[("lr", 0.5), ("momentum", 0.9)]))
}

fn groups() -> Training {
    let weights = |names: [&str; 2]| Some(names.map(String::from).to_vec());
    let decayed = optimizer("adam", &[("lr", 0.01), ("weight_decay", 0.1)]);
    let biases = optimizer("adam", &[("lr", 0.05)]);
    Training {
        groups: vec![
            Group {
                name: "matrices".into(),
                optimizer: decayed,
                weights: weights(["hidden.weight", "out.weight"]),
            },
            Group { name: "biases".into(), optimizer: biases, weights: None },
        ],
        ..sgd()
    }
}

fn accumulated(reduction: GradientReduction, micro_batches: u64, replicas: u64) -> Training {
    let accumulation = Accumulation { reduction, micro_batches, replicas, dtype: DType::F32 };
    Training { accumulation, max_grad_norm: Some(0.1), ..Training::new(optimizer("adamw", &[("lr", 0.01)])) }
}

fn check(name: &str, training: &Training, micro_batches: u64) {
    let golden: BTreeMap<String, Vec<f64>> =
        serde_json::from_str(include_str!("../golden/losses.json")).unwrap();
    let found = losses(&mut session(training), 0..20, micro_batches);
    assert_eq!(found.len(), golden[name].len());
    for (step, (found, expected)) in found.iter().zip(&golden[name]).enumerate() {
        assert!((found - expected).abs() <= 1e-5 * expected, "{name}, {step}: {found} instead of {expected}");
    }
}

#[test]
fn losses_fall_as_in_pytorch() {
    check("sgd", &sgd(), 1);
    check("adamw", &Training::new(optimizer("adamw", &[("lr", 0.01)])), 1);
    check("groups", &groups(), 1);
    check(
        "clipped",
        &Training { max_grad_norm: Some(0.1), ..Training::new(optimizer("sgd", &[("lr", 1.0)])) },
        1,
    );
}

#[test]
fn accumulation_trains_as_in_pytorch() {
    for strategy in [MeanStrategy::Running, MeanStrategy::Post, MeanStrategy::PostAndLoss] {
        check("accumulated", &accumulated(GradientReduction::Mean(strategy), 4, 1), 4);
        check("accumulated", &accumulated(GradientReduction::Mean(strategy), 2, 2), 4);
    }
}

/// Scales that are powers of two change no bit of f32.
#[test]
fn loss_scaling_changes_nothing_but_the_scale() {
    for scale in [LossScale::Static(1024.0), LossScale::Automatic(1024.0, Automatic::default())] {
        check("sgd", &Training { loss_scale: scale, ..sgd() }, 1);
    }
}

/// One tensor for velocity and gradients, or two.
#[test]
fn combined_velocities_train_as_separate_ones() {
    let settings = [("lr", 0.5), ("momentum", 0.9), ("velocity_scaling", 8.0)];
    check("sgd", &Training::new(optimizer("sgd", &settings)), 1);
    let accumulation = Accumulation { micro_batches: 4, ..Accumulation::default() };
    let train = |settings: &[(&str, f64)]| {
        let training = Training { accumulation, ..Training::new(optimizer("sgd", settings)) };
        let mut session = session(&training);
        let names: Vec<String> = session.state_names().map(String::from).collect();
        (losses(&mut session, 0..5, 4), names.iter().any(|name| name == "hidden.weight.accumulator"))
    };
    let (separate, has_accumulators) = train(&settings[..2]);
    let (combined, has_none) = train(&settings);
    assert!(has_accumulators && !has_none);
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * a;
    assert!(separate.iter().zip(&combined).all(close), "{separate:?} {combined:?}");
}

/// Hyperparameters are state: changed between steps, they count from the next one on.
#[test]
fn learning_rates_change_between_steps() {
    let mut session = session(&Training::new(optimizer("sgd", &[("lr", 0.5)])));
    losses(&mut session, 0..1, 1);
    let before = session.state("out.weight").unwrap();
    session.set_state("optimizer.lr", Tensor::scalar(DType::F32, 0.0)).unwrap();
    losses(&mut session, 1..2, 1);
    assert_eq!(session.state("out.weight").unwrap(), before);
}

#[test]
fn evaluation_gives_the_loss_and_changes_nothing() {
    let mut session = session_of(&network(), &sgd(), |b, at| forward_with_dropout(b, at, 0.5));
    losses(&mut session, 0..3, 1);
    let before = snapshot(&session);
    let inputs = batch(7);
    let inputs = inputs.each_ref().map(Input::from);
    let first = session.evaluate(&inputs).unwrap();
    assert_eq!(session.evaluate(&inputs).unwrap(), first);
    assert_eq!(snapshot(&session), before);
    assert_eq!(session.outputs("eval").unwrap(), ["loss", "scores"]);
    // Training goes on with other masks every time.
    let step = |session: &mut pando_runtime::Session| session.run("step", &inputs).unwrap()[1].clone();
    session.set_state("optimizer.lr", Tensor::scalar(DType::F32, 0.0)).unwrap();
    let momentum = |session: &mut pando_runtime::Session| {
        session.set_state("optimizer.momentum", Tensor::scalar(DType::F32, 0.0)).unwrap();
    };
    momentum(&mut session);
    assert_ne!(step(&mut session), step(&mut session));
}

/// Batch sizes are named: each size is planned when it comes.
#[test]
fn batches_of_any_size() {
    let mut session = session(&sgd());
    for size in [1, 5, 16] {
        let x = made(3, &[size, FEATURES]);
        let labels = Tensor::zeros(DType::I64, [size]);
        let outputs = session.run("step", &[(&x).into(), (&labels).into()]).unwrap();
        assert_eq!(outputs[1].shape()[0], size);
    }
}

/// `loss = mean((scale · x)²)` with a weight in f16; a buffer keeps the running mean of the inputs.
fn scaled_square(b: &mut Builder, at: &mut Scope) -> pando_base::Result<Forward> {
    let (x, scale, mean) = (at.get("x")?, at.get("scale")?, at.get("mean")?);
    let spread = b.broadcast(scale, b.ty(x).dims.clone(), &[])?;
    let y = b.mul(x, spread)?;
    let zeros = b.splat_like(y, 0.0)?;
    let loss = mse(b, y, zeros, Reduction::Mean)?;
    let sum = b.reduce(pando_base::ReduceFn::Sum, x, &[0])?;
    let sum = b.convert(sum, DType::F32)?;
    let quarter = b.binary_scalar(pando_base::BinaryFn::Mul, sum, 0.25)?;
    let half = b.binary_scalar(pando_base::BinaryFn::Mul, mean, 0.5)?;
    let new = b.add(half, quarter)?;
    Ok(Forward { buffers: vec![("mean".into(), new)], ..Forward::new(loss) })
}

fn half_network() -> Network {
    Network {
        weights: vec![("scale".into(), Tensor::scalar(DType::F16, 1.0))],
        buffers: vec![("mean".into(), Tensor::scalar(DType::F32, 0.0))],
        inputs: vec![("x".into(), TensorType::new(DType::F16, [2u64]))],
    }
}

/// A step whose gradient overflows is left out and halves the scale; the buffers see it.
#[test]
fn steps_that_overflow_are_left_out() {
    let automatic = Automatic { growth_interval: 2, ..Automatic::default() };
    let training = Training {
        loss_scale: LossScale::Automatic(65536.0, automatic),
        ..Training::new(optimizer("adamw", &[("lr", 0.01), ("weight_decay", 0.0)]))
    };
    let mut session = session_of(&half_network(), &training, scaled_square);
    let x = Tensor::from_f64(DType::F16, [2], &[1.0, 1.0]);
    let mut run = || {
        session.run("step", &[(&x).into()]).unwrap();
        let number = |name: &str| session.state(name).unwrap().get_f64(0);
        ["loss_scale", "optimizer.step", "scale", "mean", "scale.exp_avg"].map(number)
    };
    // The gradient is 2: times 65536, 32768 it is infinite in f16 (131072 and 65536), times 16384 it is not.
    assert_eq!(run(), [32768.0, 0.0, 1.0, 0.5, 0.0]);
    assert_eq!(run(), [16384.0, 0.0, 1.0, 0.75, 0.0]);
    let third = run();
    assert_eq!(third[..2], [16384.0, 1.0]);
    assert!((third[2] - 0.99).abs() < 1e-3 && (third[4] - 0.2).abs() < 1e-3, "{third:?}");
    assert_eq!(run()[0], 32768.0);
}

/// Weights, activations and gradients in f16, scaled, with exact weights kept or rounded at random: the losses of
/// f32 within the precision of f16.
#[test]
fn half_precision_trains_as_single() {
    let mut half = network();
    half.weights.iter_mut().for_each(|(_, weight)| *weight = weight.rounded_to(DType::F16));
    let in_half = |b: &mut Builder, at: &mut Scope| {
        let x = b.convert(at.get("x")?, DType::F16)?;
        let hidden = dense(b, at, x, "hidden")?;
        let hidden = b.tanh(hidden)?;
        let scores = dense(b, at, hidden, "out")?;
        assert_eq!(b.ty(scores).dtype, DType::F16);
        let labels = at.get("labels")?;
        Ok(Forward::new(cross_entropy(b, scores, labels, &Classes::default())?))
    };
    let single = losses(&mut session(&sgd()), 0..20, 1);
    for (master, rounding, tolerance) in
        [(true, Rounding::Nearest, 0.01), (false, Rounding::Stochastic, 0.03)]
    {
        let mut training = Training { loss_scale: LossScale::Static(256.0), seed: 5, ..sgd() };
        let optimizer = &mut training.groups[0].optimizer;
        (optimizer.master, optimizer.rounding) = (master, rounding);
        let found = losses(&mut session_of(&half, &training, in_half), 0..20, 1);
        for (found, single) in found.iter().zip(&single) {
            assert!((found - single).abs() < tolerance, "{found} instead of {single}, master: {master}");
        }
    }
}

#[test]
fn weights_without_a_gradient_stay() {
    let mut network = network();
    network.weights.push(("unused".into(), made(9, &[3])));
    let training = Training::new(optimizer("adamw", &[("lr", 0.1)]));
    let mut session = session_of(&network, &training, forward);
    losses(&mut session, 0..2, 1);
    assert_eq!(session.state("unused").unwrap(), made(9, &[3]));
}

#[test]
fn bad_jobs_are_refused() {
    let error = |network: &Network, training: &Training| {
        train::job(network, training, forward).map(|_| ()).unwrap_err().to_string()
    };
    let of = |training: Training| error(&network(), &training);
    let group = |name: &str, weights: Option<&[&str]>| Group {
        name: name.into(),
        optimizer: optimizer("sgd", &[]),
        weights: weights.map(|names| names.iter().map(|name| name.to_string()).collect()),
    };
    let with_groups = |groups: Vec<Group>| of(Training { groups, ..sgd() });
    assert_eq!(
        with_groups(vec![group("a", Some(&["hidden"]))]),
        "a group trains 'hidden', which is no weight of the network"
    );
    assert_eq!(
        with_groups(vec![group("a", Some(&["out.bias"])), group("b", Some(&["out.bias"]))]),
        "the weight 'out.bias' is listed twice; one group trains it"
    );
    assert_eq!(
        with_groups(vec![group("a", None), group("b", None)]),
        "two groups take the weights that no group lists; list those of one of them"
    );
    assert_eq!(
        with_groups(vec![group("a", None), group("a", Some(&["out.bias"]))]),
        "there are two groups 'a'; give them different names"
    );
    let accumulation = Accumulation { micro_batches: 0, ..Accumulation::default() };
    assert_eq!(
        of(Training { accumulation, ..sgd() }),
        "an update of no gradients; use 1 micro-batch and 1 replica or more"
    );
    let combined = Training::new(optimizer("sgd", &[("velocity_scaling", 2.0)]));
    assert_eq!(
        of(Training { max_grad_norm: Some(1.0), ..combined }),
        "the group 'optimizer' has a combined velocity, whose gradients clipping cannot reach; leave out its \
         velocity scaling"
    );
    let mut small = network();
    small.weights.pop();
    assert_eq!(
        error(&small, &sgd()),
        "there is no weight, buffer or input 'out.bias' in this program; list it in the network"
    );
    let job = |build: &dyn Fn(&mut Builder, &mut Scope) -> pando_base::Result<Forward>| {
        train::job(&half_network(), &sgd(), build).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(
        job(&|_, at| Ok(Forward::new(at.get("x")?))),
        "the loss is f16[2], not a single float; reduce it with a mean or a sum"
    );
    let replacing = |name: &str, with: &str| {
        let (name, with) = (name.to_string(), with.to_string());
        job(&move |_, at| {
            let buffers = vec![(name.clone(), at.get(&with)?)];
            Ok(Forward { buffers, ..Forward::new(at.get("scale")?) })
        })
    };
    assert_eq!(
        replacing("scale", "scale"),
        "the forward function replaces 'scale', which is no buffer of the network"
    );
    assert_eq!(
        replacing("mean", "scale"),
        "the new value of the buffer 'mean' is f16[], the buffer is f32[]"
    );
}

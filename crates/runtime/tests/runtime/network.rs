//! A network of two layers, its data, and sessions that train it.

use pando_base::{DType, Result, Tensor};
use pando_graph::{Builder, TensorType, ValueId};
use pando_runtime::{CompileOptions, Input, Session};
use pando_transform::loss::{Classes, cross_entropy};
use pando_transform::train::{self, Forward, Network, Scope, Training};

pub const FEATURES: u64 = 8;
pub const HIDDEN: u64 = 16;
pub const CLASSES: u64 = 4;
pub const BATCH: u64 = 16;

/// The same numbers as in `make.py`.
pub fn made(seed: u64, dims: &[u64]) -> Tensor {
    let number = |i: u64| (((i + 1) * 7919 * (2 * seed + 1) + i * i * 31) % 1009) as f64 / 1009.0 - 0.5;
    let values: Vec<f64> = (0..dims.iter().product()).map(number).collect();
    Tensor::from_f64(DType::F32, dims.to_vec(), &values)
}

/// Features, and which of the first ones is the largest.
pub fn batch(number: u64) -> [Tensor; 2] {
    let x = made(100 + number, &[BATCH, FEATURES]);
    let label = |row: &[f64]| {
        let largest = |best: usize, at: usize| if row[at] > row[best] { at } else { best };
        (0..CLASSES as usize).fold(0, largest) as i128
    };
    let labels: Vec<i128> = x.to_f64().chunks(FEATURES as usize).map(label).collect();
    [x, Tensor::from_ints(DType::I64, [BATCH], &labels)]
}

pub fn network() -> Network {
    let weight = |(seed, (name, dims)): (usize, (&str, &[u64]))| (name.into(), made(seed as u64 + 1, dims));
    let weights: [(&str, &[u64]); 4] = [
        ("hidden.weight", &[FEATURES, HIDDEN]),
        ("hidden.bias", &[HIDDEN]),
        ("out.weight", &[HIDDEN, CLASSES]),
        ("out.bias", &[CLASSES]),
    ];
    Network {
        weights: weights.into_iter().enumerate().map(weight).collect(),
        buffers: Vec::new(),
        inputs: vec![
            ("x".into(), TensorType::new(DType::F32, ["N".into(), pando_graph::Dim::Known(FEATURES)])),
            ("labels".into(), TensorType::new(DType::I64, ["N"])),
        ],
    }
}

pub fn dense(b: &mut Builder, at: &Scope, x: ValueId, layer: &str) -> Result<ValueId> {
    let (weight, bias) = (at.get(&format!("{layer}.weight"))?, at.get(&format!("{layer}.bias"))?);
    let weight = b.convert(weight, b.ty(x).dtype)?;
    let product = b.matmul(x, weight)?;
    let bias = b.broadcast_trailing(bias, b.ty(product).dims.clone())?;
    b.add(product, bias)
}

pub fn forward(b: &mut Builder, at: &mut Scope) -> Result<Forward> {
    forward_with_dropout(b, at, 0.0)
}

pub fn forward_with_dropout(b: &mut Builder, at: &mut Scope, probability: f64) -> Result<Forward> {
    let x = at.get("x")?;
    let hidden = dense(b, at, x, "hidden")?;
    let hidden = b.tanh(hidden)?;
    let hidden = at.dropout(b, hidden, probability)?;
    let scores = dense(b, at, hidden, "out")?;
    let labels = at.get("labels")?;
    let loss = cross_entropy(b, scores, labels, &Classes::default())?;
    Ok(Forward { outputs: vec![("scores".into(), scores)], ..Forward::new(loss) })
}

pub fn options() -> CompileOptions {
    CompileOptions { threads: 1, ..CompileOptions::default() }
}

pub fn session(training: &Training) -> Session {
    session_of(&network(), training, forward)
}

pub fn session_of(
    network: &Network,
    training: &Training,
    forward: impl Fn(&mut Builder, &mut Scope) -> Result<Forward>,
) -> Session {
    Session::of_job(train::job(network, training, forward).unwrap(), &options()).unwrap()
}

/// The loss of each micro-batch of some steps.
pub fn losses(session: &mut Session, steps: std::ops::Range<u64>, micro_batches: u64) -> Vec<f64> {
    let mut losses = Vec::new();
    for step in steps {
        let batches: Vec<[Tensor; 2]> =
            (0..micro_batches).map(|part| batch(step * micro_batches + part)).collect();
        let inputs: Vec<[Input; 2]> = batches.iter().map(|batch| batch.each_ref().map(Input::from)).collect();
        let inputs: Vec<&[Input]> = inputs.iter().map(|inputs| inputs.as_slice()).collect();
        let outputs = session.train(&inputs).unwrap();
        losses.extend(outputs.iter().map(|outputs| outputs[0].get_f64(0)));
    }
    losses
}

/// All state, to compare.
pub fn snapshot(session: &Session) -> Vec<(String, Tensor)> {
    session.state_names().map(|name| (name.to_string(), session.state(name).unwrap())).collect()
}

//! Trains a small network to read digits, and stops and resumes on the way. The digits are those of a clock radio:
//! seven segments, each of which fails to light, or lights by mistake, now and then.
//!
//! ```text
//! cargo run --release -p pando-runtime --example digits [FOLDER FOR THE CHECKPOINT]
//! ```

use pando_base::{DType, Result, Tensor};
use pando_graph::{Builder, Dim, TensorType, ValueId};
use pando_runtime::{CompileOptions, Session};
use pando_transform::Optimizer;
use pando_transform::loss::{self, Classes};
use pando_transform::train::{self, Forward, Network, Scope, Training};
use std::path::Path;

const SEGMENTS: u64 = 7;
const DIGITS: u64 = 10;
const BATCH: u64 = 64;
const STEPS: u64 = 600;

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/digits-checkpoint".into());
    println!("{:.1} % of digits never seen are read right", 100.0 * train(folder.as_ref())?);
    Ok(())
}

/// The part of unseen digits that are read right after the training.
pub fn train(folder: &Path) -> Result<f64> {
    let mut session = session()?;
    for step in 0..STEPS {
        let [x, labels] = batch(step, BATCH);
        let outputs = session.train(&[&[(&x).into(), (&labels).into()]])?;
        if step % 100 == 0 {
            println!("step {step}: loss {:.3}", outputs[0][0].get_f64(0));
        }
        if step == STEPS / 2 {
            // Hyperparameters are state like any other, and checkpoints hold all state.
            session.set_state("optimizer.lr", Tensor::scalar(DType::F32, 0.002))?;
            session.save(folder)?;
            session = self::session()?;
            session.load(folder)?;
        }
    }
    accuracy(&mut session)
}

/// Two layers with dropout between them, trained by AdamW.
fn session() -> Result<Session> {
    let network = Network {
        weights: vec![
            ("hidden.weight".into(), random_weight(1, &[SEGMENTS, 32])),
            ("hidden.bias".into(), Tensor::zeros(DType::F32, [32])),
            ("out.weight".into(), random_weight(2, &[32, DIGITS])),
            ("out.bias".into(), Tensor::zeros(DType::F32, [DIGITS])),
        ],
        inputs: vec![
            ("x".into(), TensorType::new(DType::F32, [Dim::named("N"), Dim::Known(SEGMENTS)])),
            ("labels".into(), TensorType::new(DType::I32, ["N"])),
        ],
        ..Network::default()
    };
    let optimizer = Optimizer::named("adamw", &[("lr", 0.01)])?;
    let training = Training { max_grad_norm: Some(1.0), ..Training::new(optimizer) };
    Session::of_job(train::job(&network, &training, forward)?, &CompileOptions::default())
}

fn forward(b: &mut Builder, at: &mut Scope) -> Result<Forward> {
    let x = at.get("x")?;
    let hidden = dense(b, at, x, "hidden")?;
    let hidden = b.relu(hidden)?;
    let hidden = at.dropout(b, hidden, 0.1)?;
    let scores = dense(b, at, hidden, "out")?;
    let labels = at.get("labels")?;
    let loss = loss::cross_entropy(b, scores, labels, &Classes::default())?;
    Ok(Forward { outputs: vec![("scores".into(), scores)], ..Forward::new(loss) })
}

/// `x · weight + bias`
fn dense(b: &mut Builder, at: &Scope, x: ValueId, layer: &str) -> Result<ValueId> {
    let (weight, bias) = (at.get(&format!("{layer}.weight"))?, at.get(&format!("{layer}.bias"))?);
    let product = b.matmul(x, weight)?;
    let bias = b.broadcast_trailing(bias, b.ty(product).dims.clone())?;
    b.add(product, bias)
}

fn accuracy(session: &mut Session) -> Result<f64> {
    let [x, labels] = batch(STEPS, 1000);
    let outputs = session.evaluate(&[(&x).into(), (&labels).into()])?;
    let scores = outputs[1].to_f64();
    let guess = |scores: &[f64]| (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    let guesses = scores.chunks(DIGITS as usize).map(guess);
    let right =
        guesses.zip(labels.to_ints()).filter(|(guess, label)| guess.map(|at| at as i128) == Some(*label));
    Ok(right.count() as f64 / 1000.0)
}

fn random_weight(seed: u64, dims: &[u64]) -> Tensor {
    let scale = 1.0 / (dims[0] as f64).sqrt();
    let values: Vec<f64> =
        (0..dims.iter().product()).map(|i| scale * pando_base::random::normal(seed, i)).collect();
    Tensor::from_f64(DType::F32, dims.to_vec(), &values)
}

/// Digits drawn at random, and their segments, of which one in fifty is wrong.
fn batch(number: u64, size: u64) -> [Tensor; 2] {
    // Bits from the top: upper bar, upper left and right, middle bar, lower left and right, lower bar.
    const LIT: [u8; 10] = [119, 18, 93, 91, 58, 107, 111, 82, 127, 123];
    let uniform = |index: u64| pando_base::random::uniform(1000 + number, index);
    let labels: Vec<i128> = (0..size).map(|i| (uniform(i) * DIGITS as f64) as i128).collect();
    let segment = |i: u64| {
        let lit = LIT[labels[(i / SEGMENTS) as usize] as usize] >> (SEGMENTS - 1 - i % SEGMENTS) & 1;
        if uniform(size + i) < 0.02 { 1.0 - f64::from(lit) } else { f64::from(lit) }
    };
    let x: Vec<f64> = (0..size * SEGMENTS).map(segment).collect();
    [Tensor::from_f64(DType::F32, [size, SEGMENTS], &x), Tensor::from_ints(DType::I32, [size], &labels)]
}

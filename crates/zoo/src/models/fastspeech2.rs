//! Text to speech without recurrence, after FastSpeech 2 (Ren et al. 2021): transformer blocks, predictors of
//! duration, pitch and energy, frames by given durations, and a net that refines them.

use crate::layers::Convolution;
use crate::net::Net;
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result};
use pando_graph::{Dot, Scan, TensorType, ValueId, known_dims};

const PHONEMES: u64 = 360;
const HIDDEN: u64 = 256;
const HEADS: u64 = 2;
const ENCODER_LAYERS: u64 = 4;
const DECODER_LAYERS: u64 = 6;
const FILTERS: u64 = 1024;
const BINS: u64 = 256;
/// Pitch and energy are counted in bins between these.
const RANGE: (f64, f64) = (-3.0, 3.0);
const MELS: u64 = 80;
const POSTNET_CHANNELS: u64 = 512;
const POSTNET_LAYERS: u64 = 5;
const EPSILON: f64 = 1e-5;

pub(crate) fn build(n: &mut Net) -> Result<Vec<ValueId>> {
    let (batch, sequence, frames) = (n.size("batch"), n.size("sequence"), n.size("frames"));
    let phonemes = n.input_ids("phonemes", &[batch, sequence]);
    let durations = n.input_ids("durations", &[batch, sequence]);
    let x = n.embedding("encoder.embedding", phonemes, PHONEMES, HIDDEN)?;
    let x = transformer(n, "encoder", x, ENCODER_LAYERS)?;
    let log_durations = n.scope("duration_predictor", |n| predictor(n, x))?;
    let (x, pitch) = n.scope("pitch", |n| variance(n, x))?;
    let (x, energy) = n.scope("energy", |n| variance(n, x))?;
    let x = stretched(n, x, durations, frames)?;
    let x = transformer(n, "decoder", x, DECODER_LAYERS)?;
    let mel = n.linear("mel", x, MELS)?;
    let refined = n.scope("postnet", |n| postnet(n, mel))?;
    Ok(vec![refined, mel, log_durations, pitch, energy])
}

fn transformer(n: &mut Net, name: &str, x: ValueId, layers: u64) -> Result<ValueId> {
    let positions = n.sinusoids(0.0, 1.0, n.dim(x, 1), HIDDEN)?;
    let mut x = n.plus(x, positions)?;
    for index in 0..layers {
        x = n.scope(&format!("{name}.layers.{index}"), |n| block(n, x))?;
    }
    Ok(x)
}

/// Attention, then two convolutions in place of products.
fn block(n: &mut Net, x: ValueId) -> Result<ValueId> {
    let q = n.linear("query", x, HIDDEN)?;
    let k = n.linear("key", x, HIDDEN)?;
    let v = n.linear("value", x, HIDDEN)?;
    let attended = n.attend([q, k, v], HEADS, &[])?;
    let y = n.linear("output", attended, HIDDEN)?;
    let sum = n.b.add(y, x)?;
    let x = n.layer_norm("norm1", sum, EPSILON)?;
    let y = n.b.transpose(x, &[0, 2, 1])?;
    let y = n.conv("conv1", y, &Convolution::new(FILTERS, &[9]).bias())?;
    let y = n.relu("relu", y)?;
    let y = n.conv("conv2", y, &Convolution::new(HIDDEN, &[1]).bias())?;
    let y = n.b.transpose(y, &[0, 2, 1])?;
    let sum = n.b.add(y, x)?;
    n.layer_norm("norm2", sum, EPSILON)
}

/// One number per phoneme.
fn predictor(n: &mut Net, x: ValueId) -> Result<ValueId> {
    let (batch, sequence) = (n.dim(x, 0), n.dim(x, 1));
    let mut x = x;
    for index in 1..=2 {
        let y = n.b.transpose(x, &[0, 2, 1])?;
        let y = n.conv(&format!("conv{index}"), y, &Convolution::new(HIDDEN, &[3]).bias())?;
        let y = n.relu(&format!("relu{index}"), y)?;
        let y = n.b.transpose(y, &[0, 2, 1])?;
        x = n.layer_norm(&format!("norm{index}"), y, EPSILON)?;
    }
    let x = n.linear("linear", x, 1)?;
    n.reshape(x, &[batch, sequence])
}

/// Adds to `x` the embedding of the bin that its prediction falls into; also the prediction.
fn variance(n: &mut Net, x: ValueId) -> Result<(ValueId, ValueId)> {
    let prediction = n.scope("predictor", |n| predictor(n, x))?;
    let dims = n.dims(prediction);
    let shape = known_dims(&[dims[0], dims[1], BINS - 1]);
    let ty = TensorType { dtype: n.dtype, dims: shape.clone() };
    let counter = n.b.iota(ty, 2)?;
    let scaled = n.scaled(counter, (RANGE.1 - RANGE.0) / (BINS - 2) as f64)?;
    let edges = n.b.binary_scalar(BinaryFn::Add, scaled, RANGE.0)?;
    let wide = n.b.broadcast(prediction, shape, &[0, 1])?;
    let below = n.b.compare(CompareFn::Lt, edges, wide)?;
    let below = n.b.convert(below, DType::I32)?;
    let bin = n.b.reduce(ReduceFn::Sum, below, &[2])?;
    n.named("bin", bin);
    let embedded = n.embedding("embedding", bin, BINS, HIDDEN)?;
    let sum = n.b.add(x, embedded)?;
    Ok((n.named("add", sum), prediction))
}

/// Each phoneme repeated as often as its duration says, cut or filled up with zeros to `frames`: a product
/// with the matrix of which frame belongs to which phoneme.
fn stretched(n: &mut Net, x: ValueId, durations: ValueId, frames: u64) -> Result<ValueId> {
    let dims = n.dims(durations);
    let scan = Scan { func: ReduceFn::Sum, axis: 1, exclusive: false, reverse: false };
    let ends = n.b.scan(durations, scan)?;
    let starts = n.b.sub(ends, durations)?;
    let shape = known_dims(&[dims[0], frames, dims[1]]);
    let frame = n.b.iota(TensorType { dtype: DType::I32, dims: shape.clone() }, 1)?;
    let ends = n.b.broadcast(ends, shape.clone(), &[0, 2])?;
    let starts = n.b.broadcast(starts, shape, &[0, 2])?;
    let before = n.b.compare(CompareFn::Lt, frame, ends)?;
    let after = n.b.compare(CompareFn::Ge, frame, starts)?;
    let inside = n.b.and(before, after)?;
    let alignment = n.b.convert(inside, n.dtype)?;
    n.named("alignment", alignment);
    let dot = Dot { batch: vec![(0, 0)], contract: vec![(2, 1)], dtype: None };
    let stretched = n.b.dot(alignment, x, dot)?;
    Ok(n.named("stretched", stretched))
}

/// Convolutions over time whose result corrects the frames.
fn postnet(n: &mut Net, mel: ValueId) -> Result<ValueId> {
    let mut y = n.b.transpose(mel, &[0, 2, 1])?;
    for index in 0..POSTNET_LAYERS {
        let last = index == POSTNET_LAYERS - 1;
        let outputs = if last { MELS } else { POSTNET_CHANNELS };
        y = n.conv(&format!("convs.{index}"), y, &Convolution::new(outputs, &[5]).bias())?;
        y = n.batch_norm(&format!("norms.{index}"), y, EPSILON, if last { 0.3 } else { 1.0 })?;
        if !last {
            y = n.b.tanh(y)?;
        }
    }
    let y = n.b.transpose(y, &[0, 2, 1])?;
    let sum = n.b.add(mel, y)?;
    Ok(n.named("add", sum))
}

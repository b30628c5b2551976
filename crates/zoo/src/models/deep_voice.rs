//! Text to speech by convolutions, after Deep Voice 3 (Ping et al. 2018): encoder, decoder with attention at
//! every layer, converter. The decoder sees all frames at once, as in training.

use crate::layers::Convolution;
use crate::net::Net;
use pando_base::Result;
use pando_graph::ValueId;

const CHARACTERS: u64 = 149;
const EMBEDDING: u64 = 256;
const ENCODER_CHANNELS: u64 = 64;
const ENCODER_LAYERS: u64 = 7;
const DECODER_CHANNELS: u64 = 256;
const DECODER_LAYERS: u64 = 4;
const ATTENTION: u64 = 128;
const CONVERTER_CHANNELS: u64 = 256;
const CONVERTER_LAYERS: u64 = 5;
const KERNEL: u64 = 5;
const MELS: u64 = 80;
/// Frames that a decoder step makes.
const REDUCTION: u64 = 4;
/// Frequencies of the linear spectrogram.
const LINEAR: u64 = 513;

pub(crate) fn build(n: &mut Net) -> Result<Vec<ValueId>> {
    let (batch, sequence, steps) = (n.size("batch"), n.size("sequence"), n.size("steps"));
    let text = n.input_ids("text", &[batch, sequence]);
    let frames = n.input("frames", &[batch, steps, MELS * REDUCTION]);
    let (keys, values) = n.scope("encoder", |n| encoder(n, text))?;
    let hidden = n.scope("decoder", |n| decoder(n, frames, keys, values))?;
    let mel = n.linear("decoder.mel", hidden, MELS * REDUCTION)?;
    let done = n.linear("decoder.done", hidden, 1)?;
    let done = n.b.sigmoid(done)?;
    n.named("done", done);
    let linear = n.scope("converter", |n| converter(n, hidden))?;
    Ok(vec![mel, done, linear])
}

fn encoder(n: &mut Net, text: ValueId) -> Result<(ValueId, ValueId)> {
    let embedded = n.embedding("embedding", text, CHARACTERS, EMBEDDING)?;
    let mut x = n.linear("input", embedded, ENCODER_CHANNELS)?;
    for index in 0..ENCODER_LAYERS {
        x = n.scope(&format!("blocks.{index}"), |n| gated_block(n, x, false))?;
    }
    let keys = n.linear("output", x, EMBEDDING)?;
    let values = half_power_sum(n, keys, embedded)?;
    Ok((keys, n.named("values", values)))
}

fn decoder(n: &mut Net, frames: ValueId, keys: ValueId, values: ValueId) -> Result<ValueId> {
    let mut x = frames;
    for (index, width) in [128, DECODER_CHANNELS].into_iter().enumerate() {
        x = n.linear(&format!("prenet.{index}"), x, width)?;
        x = n.relu(&format!("prenet.relu{index}"), x)?;
    }
    let key_positions = n.sinusoids(0.0, 1.0, n.dim(keys, 1), EMBEDDING)?;
    let keys = n.plus(keys, key_positions)?;
    let positions = n.sinusoids(0.0, 1.0, n.dim(frames, 1), DECODER_CHANNELS)?;
    for index in 0..DECODER_LAYERS {
        x = n.scope(&format!("blocks.{index}"), |n| gated_block(n, x, true))?;
        x = n.scope(&format!("attentions.{index}"), |n| attend(n, x, positions, keys, values))?;
    }
    Ok(x)
}

/// Queries know their position.
fn attend(n: &mut Net, x: ValueId, positions: ValueId, keys: ValueId, values: ValueId) -> Result<ValueId> {
    let placed = n.plus(x, positions)?;
    let q = n.linear("query", placed, ATTENTION)?;
    let k = n.linear("key", keys, ATTENTION)?;
    let v = n.linear("value", values, ATTENTION)?;
    let context = n.attend([q, k, v], 1, &[])?;
    let y = n.linear("output", context, DECODER_CHANNELS)?;
    let sum = half_power_sum(n, y, x)?;
    Ok(n.named("add", sum))
}

/// Each step's channels become `REDUCTION` frames of fewer.
fn converter(n: &mut Net, hidden: ValueId) -> Result<ValueId> {
    let (batch, steps) = (n.dim(hidden, 0), n.dim(hidden, 1));
    let x = n.reshape(hidden, &[batch, steps * REDUCTION, DECODER_CHANNELS / REDUCTION])?;
    let mut x = n.linear("input", x, CONVERTER_CHANNELS)?;
    for index in 0..CONVERTER_LAYERS {
        x = n.scope(&format!("blocks.{index}"), |n| gated_block(n, x, false))?;
    }
    n.linear("output", x, LINEAR)
}

/// A gated convolution over time and its residual. A causal one sees no later frames.
fn gated_block(n: &mut Net, x: ValueId, causal: bool) -> Result<ValueId> {
    let channels = n.dim(x, 2);
    let turned = n.b.transpose(x, &[0, 2, 1])?;
    let mut conv = Convolution::new(2 * channels, &[KERNEL]).bias();
    if causal {
        conv = conv.padding(&[(KERNEL as i64 - 1, 0)]);
    }
    let y = n.conv("conv", turned, &conv)?;
    let y = n.glu(y, 1)?;
    let y = n.b.transpose(y, &[0, 2, 1])?;
    n.named("glu", y);
    let sum = half_power_sum(n, y, x)?;
    Ok(n.named("add", sum))
}

/// `(x + y) · √½`, which is as large as each of them.
fn half_power_sum(n: &mut Net, x: ValueId, y: ValueId) -> Result<ValueId> {
    let sum = n.b.add(x, y)?;
    n.scaled(sum, std::f64::consts::FRAC_1_SQRT_2)
}

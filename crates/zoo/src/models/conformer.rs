//! Conformer encoder (Gulati et al. 2020, size M) as in transformers (`Wav2Vec2ConformerEncoder` with relative
//! positions and SiLU), over frames that are features already.

use crate::layers::Convolution;
use crate::net::{Init, Net};
use pando_base::{BinaryFn, Result};
use pando_graph::{Dot, Pad, ValueId};

const LAYERS: u64 = 16;
const HIDDEN: u64 = 256;
const HEADS: u64 = 4;
const KERNEL: u64 = 31;
const EPSILON: f64 = 1e-5;

pub(crate) fn build(n: &mut Net) -> Result<Vec<ValueId>> {
    let (batch, sequence) = (n.size("batch"), n.size("sequence"));
    let mut x = n.input("frames", &[batch, sequence, HIDDEN]);
    // Distances from `sequence - 1` down to `1 - sequence`.
    let distances = n.sinusoids(sequence as f64 - 1.0, -1.0, 2 * sequence - 1, HIDDEN)?;
    n.named("distances", distances);
    for index in 0..LAYERS {
        x = n.scope(&format!("layers.{index}"), |n| block(n, x, distances))?;
    }
    Ok(vec![n.layer_norm("layer_norm", x, EPSILON)?])
}

fn block(n: &mut Net, x: ValueId, distances: ValueId) -> Result<ValueId> {
    let x = half_feed_forward(n, x, "ffn1")?;
    let normal = n.layer_norm("self_attn_layer_norm", x, EPSILON)?;
    let attended = n.scope("self_attn", |n| attention(n, normal, distances))?;
    let sum = n.b.add(attended, x)?;
    let x = n.named("add_attention", sum);
    let convolved = n.scope("conv_module", |n| convolution(n, x))?;
    let sum = n.b.add(x, convolved)?;
    let x = n.named("add_convolution", sum);
    let x = half_feed_forward(n, x, "ffn2")?;
    n.layer_norm("final_layer_norm", x, EPSILON)
}

/// Half of a feed-forward layer's result on top of its input.
fn half_feed_forward(n: &mut Net, x: ValueId, name: &str) -> Result<ValueId> {
    let normal = n.layer_norm(&format!("{name}_layer_norm"), x, EPSILON)?;
    let y = n.scope(name, |n| {
        let inner = n.linear("intermediate_dense", normal, 4 * HIDDEN)?;
        let silu = n.b.silu(inner)?;
        n.named("silu", silu);
        n.linear("output_dense", silu, HIDDEN)
    })?;
    let half = n.b.binary_scalar(BinaryFn::Mul, y, 0.5)?;
    let sum = n.b.add(half, x)?;
    Ok(n.named(&format!("add_{name}"), sum))
}

/// Scores are (q + u)·k and (q + v)·(projected distance), as in Transformer-XL.
fn attention(n: &mut Net, x: ValueId, distances: ValueId) -> Result<ValueId> {
    let size = HIDDEN / HEADS;
    let q = n.linear("linear_q", x, HIDDEN)?;
    let k = n.linear("linear_k", x, HIDDEN)?;
    let v = n.linear("linear_v", x, HIDDEN)?;
    let projected = n.linear_no_bias("linear_pos", distances, HIDDEN)?;
    let (q, k, v) = (n.split_heads(q, HEADS)?, n.split_heads(k, HEADS)?, n.split_heads(v, HEADS)?);
    let by_content = biased(n, q, "pos_bias_u")?;
    let by_distance = biased(n, q, "pos_bias_v")?;
    let positions = n.dim(projected, 0);
    let projected = n.reshape(projected, &[positions, HEADS, size])?;
    let dot = Dot { batch: vec![(1, 1)], contract: vec![(3, 2)], dtype: None };
    // [H, B, S, 2S - 1]
    let scores = n.b.dot(by_distance, projected, dot)?;
    n.named("distance_scores", scores);
    let scores = n.b.transpose(scores, &[1, 0, 2, 3])?;
    let scores = shifted(n, scores)?;
    let bias = n.scaled(scores, 1.0 / (size as f64).sqrt())?;
    n.named("distance_bias", bias);
    let attended = n.attention([by_content, k, v], &[bias])?;
    let merged = n.merge_heads(attended)?;
    n.linear("linear_out", merged, HIDDEN)
}

/// `[B, H, S, D]` with a number per head and element added.
fn biased(n: &mut Net, q: ValueId, name: &str) -> Result<ValueId> {
    let bias = n.weight(name, &[HEADS, HIDDEN / HEADS], Init::Normal { mean: 0.0, std: 0.1 })?;
    let dims = n.b.ty(q).dims.clone();
    let bias = n.b.broadcast(bias, dims, &[1, 3])?;
    n.b.add(q, bias)
}

/// From scores by distance `[B, H, S, 2S - 1]` to scores by key `[B, H, S, S]`: row `i` moves left by
/// `S - 1 - i`. Padding a column and reading rows one element shorter does it for all rows at once.
fn shifted(n: &mut Net, scores: ValueId) -> Result<ValueId> {
    let dims = n.dims(scores);
    let [batch, heads, length, width] = dims[..] else { unreachable!("scores have four dimensions") };
    let zero = n.b.scalar(n.dtype, 0.0);
    let pad = Pad { low: vec![0, 0, 0, 1], high: vec![0; 4], interior: vec![0; 4] };
    let padded = n.b.pad(scores, zero, pad)?;
    let turned = n.reshape(padded, &[batch, heads, width + 1, length])?;
    let cut = n.part(turned, 2, 1, width + 1)?;
    let back = n.reshape(cut, &[batch, heads, length, width])?;
    n.part(back, 3, 0, length)
}

/// Pointwise, gated, depthwise over time, pointwise.
fn convolution(n: &mut Net, x: ValueId) -> Result<ValueId> {
    let x = n.layer_norm("layer_norm", x, EPSILON)?;
    let x = n.b.transpose(x, &[0, 2, 1])?;
    let x = n.conv("pointwise_conv1", x, &Convolution::new(2 * HIDDEN, &[1]))?;
    let glu = n.glu(x, 1)?;
    let x = n.named("glu", glu);
    let x = n.conv("depthwise_conv", x, &Convolution::new(HIDDEN, &[KERNEL]).groups(HIDDEN))?;
    let x = n.batch_norm("batch_norm", x, EPSILON, 1.0)?;
    let silu = n.b.silu(x)?;
    let x = n.named("silu", silu);
    let x = n.conv("pointwise_conv2", x, &Convolution::new(HIDDEN, &[1]))?;
    n.b.transpose(x, &[0, 2, 1])
}

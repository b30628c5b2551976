//! CLIP's text encoder as in transformers (`CLIPTextModel`), at the size that Stable Diffusion 1 guides with.

use crate::layers::quick_gelu;
use crate::net::Net;
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result};
use pando_graph::{TensorType, ValueId};

const LAYERS: u64 = 12;
const HIDDEN: u64 = 768;
const HEADS: u64 = 12;
const VOCABULARY: u64 = 49408;
const MOST_POSITIONS: u64 = 77;
const EPSILON: f64 = 1e-5;

/// The states of all tokens, and that of each text's last one.
pub(crate) fn text(n: &mut Net) -> Result<Vec<ValueId>> {
    let (batch, sequence) = (n.size("batch"), n.size_within("sequence", 1, MOST_POSITIONS)?);
    let ids = n.input_ids("input_ids", &[batch, sequence]);
    let mut x = n.scope("embeddings", |n| {
        let words = n.embedding("token_embedding", ids, VOCABULARY, HIDDEN)?;
        let positions = n.first_positions("position_embedding", sequence, MOST_POSITIONS, HIDDEN)?;
        let sum = n.plus(words, positions)?;
        Ok(n.named("", sum))
    })?;
    let bias = n.causal_bias(sequence)?;
    for index in 0..LAYERS {
        x = n.scope(&format!("encoder.layers.{index}"), |n| layer(n, x, bias))?;
    }
    let x = n.layer_norm("final_layer_norm", x, EPSILON)?;
    let pooled = of_last_token(n, x, ids)?;
    Ok(vec![x, pooled])
}

fn layer(n: &mut Net, x: ValueId, bias: ValueId) -> Result<ValueId> {
    let normal = n.layer_norm("layer_norm1", x, EPSILON)?;
    let attended = n.scope("self_attn", |n| {
        let q = n.linear("q_proj", normal, HIDDEN)?;
        let k = n.linear("k_proj", normal, HIDDEN)?;
        let v = n.linear("v_proj", normal, HIDDEN)?;
        let attended = n.attend([q, k, v], HEADS, &[bias])?;
        n.linear("out_proj", attended, HIDDEN)
    })?;
    let sum = n.b.add(x, attended)?;
    let x = n.named("add1", sum);
    let normal = n.layer_norm("layer_norm2", x, EPSILON)?;
    let inner = n.mlp(normal, 4 * HIDDEN, quick_gelu)?;
    let sum = n.b.add(x, inner)?;
    Ok(n.named("add2", sum))
}

/// The token that ends a text has the largest number; its first place counts.
fn of_last_token(n: &mut Net, x: ValueId, ids: ValueId) -> Result<ValueId> {
    let (batch, sequence) = (n.dim(ids, 0), n.dim(ids, 1));
    let largest = n.b.reduce_last_like(ReduceFn::Max, ids)?;
    let found = n.b.compare(CompareFn::Eq, ids, largest)?;
    let places = n.b.iota(TensorType::new(DType::I32, [batch, sequence]), 1)?;
    let nowhere = n.b.splat_like(places, sequence as f64)?;
    let places = n.b.select(found, places, nowhere)?;
    let place = n.b.reduce(ReduceFn::Min, places, &[1])?;
    let first = n.b.iota(TensorType::new(DType::I32, [batch]), 0)?;
    let first = n.b.binary_scalar(BinaryFn::Mul, first, sequence as f64)?;
    let row = n.b.add(first, place)?;
    let rows = n.reshape(x, &[batch * sequence, HIDDEN])?;
    let pooled = n.b.gather(rows, row, 0)?;
    Ok(n.named("pooler_output", pooled))
}

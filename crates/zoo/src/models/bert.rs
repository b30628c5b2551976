//! BERT as in transformers: the encoder and the pooler without a head (`BertModel`), and the encoder with the head that finds
//! answers in texts (`BertForQuestionAnswering`).

use crate::net::Net;
use pando_base::Result;
use pando_graph::ValueId;

pub(crate) struct Bert {
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    /// GELU by tanh, as TensorFlow's BERT has it.
    pub by_tanh: bool,
}

pub(crate) const BASE: Bert = Bert { layers: 12, hidden: 768, heads: 12, by_tanh: false };
pub(crate) const LARGE: Bert = Bert { layers: 24, hidden: 1024, heads: 16, by_tanh: false };
pub(crate) const THREE_LAYERS: Bert = Bert { layers: 3, ..BASE };

pub(crate) const BASE_BY_TANH: Bert = Bert { by_tanh: true, ..BASE };

const VOCABULARY: u64 = 30522;
const MOST_POSITIONS: u64 = 512;
const EPSILON: f64 = 1e-12;

pub(crate) fn build(n: &mut Net, config: &Bert) -> Result<Vec<ValueId>> {
    let x = encoder(n, config)?;
    let pooled = n.scope("pooler", |n| pooler(n, x, config.hidden))?;
    Ok(vec![x, pooled])
}

/// Scores of each token as the first and as the last of the answer.
pub(crate) fn question_answering(n: &mut Net, config: &Bert) -> Result<Vec<ValueId>> {
    let x = n.scope("bert", |n| encoder(n, config))?;
    let scores = n.linear("qa_outputs", x, 2)?;
    let sizes = [n.dim(x, 0), n.dim(x, 1)];
    ["start_logits", "end_logits"]
        .into_iter()
        .enumerate()
        .map(|(at, name)| {
            let scores = n.part(scores, 2, at as u64, at as u64 + 1)?;
            let scores = n.reshape(scores, &sizes)?;
            Ok(n.named(name, scores))
        })
        .collect()
}

fn encoder(n: &mut Net, config: &Bert) -> Result<ValueId> {
    let (batch, sequence) = (n.size("batch"), n.size_within("sequence", 1, MOST_POSITIONS)?);
    let ids = n.input_ids("input_ids", &[batch, sequence]);
    let mask = n.input_ids("attention_mask", &[batch, sequence]);
    let types = n.input_ids("token_type_ids", &[batch, sequence]);
    let mut x = n.scope("embeddings", |n| embeddings(n, config, ids, types))?;
    let bias = n.padding_bias(mask)?;
    for index in 0..config.layers {
        x = n.scope(&format!("encoder.layer.{index}"), |n| layer(n, config, x, bias))?;
    }
    Ok(x)
}

fn embeddings(n: &mut Net, config: &Bert, ids: ValueId, types: ValueId) -> Result<ValueId> {
    let words = n.embedding("word_embeddings", ids, VOCABULARY, config.hidden)?;
    let types = n.embedding("token_type_embeddings", types, 2, config.hidden)?;
    let sum = n.b.add(words, types)?;
    let positions = n.first_positions("position_embeddings", n.dim(ids, 1), MOST_POSITIONS, config.hidden)?;
    let sum = n.plus(sum, positions)?;
    n.named("sum", sum);
    n.layer_norm("LayerNorm", sum, EPSILON)
}

fn layer(n: &mut Net, config: &Bert, x: ValueId, bias: ValueId) -> Result<ValueId> {
    let attended = n.scope("attention", |n| {
        let attended = n.scope("self", |n| {
            let q = n.linear("query", x, config.hidden)?;
            let k = n.linear("key", x, config.hidden)?;
            let v = n.linear("value", x, config.hidden)?;
            n.attend([q, k, v], config.heads, &[bias])
        })?;
        n.scope("output", |n| project(n, attended, x, config.hidden))
    })?;
    let inner = n.scope("intermediate", |n| {
        let inner = n.linear("dense", attended, 4 * config.hidden)?;
        let gelu = if config.by_tanh { n.b.gelu_tanh(inner)? } else { n.b.gelu(inner)? };
        Ok(n.named("gelu", gelu))
    })?;
    n.scope("output", |n| project(n, inner, attended, config.hidden))
}

/// A product, the residual, and the normalisation after it.
fn project(n: &mut Net, x: ValueId, residual: ValueId, hidden: u64) -> Result<ValueId> {
    let x = n.linear("dense", x, hidden)?;
    let sum = n.b.add(x, residual)?;
    n.named("add", sum);
    n.layer_norm("LayerNorm", sum, EPSILON)
}

/// Of the first token.
fn pooler(n: &mut Net, x: ValueId, hidden: u64) -> Result<ValueId> {
    let batch = n.dim(x, 0);
    let first = n.part(x, 1, 0, 1)?;
    let first = n.reshape(first, &[batch, hidden])?;
    let dense = n.linear("dense", first, hidden)?;
    let pooled = n.b.tanh(dense)?;
    Ok(n.named("activation", pooled))
}

//! GPT-2 as in transformers (`GPT2LMHeadModel`): logits for every position; the head shares its weight with
//! the embedding.

use crate::net::{Init, Net};
use pando_base::Result;
use pando_graph::{Dot, ValueId};

pub(crate) struct Gpt2 {
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
}

pub(crate) const SMALL: Gpt2 = Gpt2 { layers: 12, hidden: 768, heads: 12 };
pub(crate) const MEDIUM: Gpt2 = Gpt2 { layers: 24, hidden: 1024, heads: 16 };
pub(crate) const LARGE: Gpt2 = Gpt2 { layers: 36, hidden: 1280, heads: 20 };

const VOCABULARY: u64 = 50257;
const MOST_POSITIONS: u64 = 1024;
const EPSILON: f64 = 1e-5;

pub(crate) fn build(n: &mut Net, config: &Gpt2) -> Result<Vec<ValueId>> {
    let (batch, sequence) = (n.size("batch"), n.size_within("sequence", 1, MOST_POSITIONS)?);
    let ids = n.input_ids("input_ids", &[batch, sequence]);
    let x = n.scope("transformer", |n| {
        let words = n.embedding("wte", ids, VOCABULARY, config.hidden)?;
        let positions = n.first_positions("wpe", sequence, MOST_POSITIONS, config.hidden)?;
        let sum = n.plus(words, positions)?;
        let mut x = n.named("embeddings", sum);
        let bias = n.causal_bias(sequence)?;
        for index in 0..config.layers {
            x = n.scope(&format!("h.{index}"), |n| block(n, config, x, bias))?;
        }
        n.layer_norm("ln_f", x, EPSILON)
    })?;
    let table = n.scope("transformer.wte", |n| {
        n.weight("weight", &[VOCABULARY, config.hidden], Init::FanIn { gain: 1.0 })
    })?;
    let logits = n.b.dot(x, table, Dot { contract: vec![(2, 1)], ..Dot::default() })?;
    Ok(vec![n.named("lm_head", logits)])
}

fn block(n: &mut Net, config: &Gpt2, x: ValueId, bias: ValueId) -> Result<ValueId> {
    // Residual branches begin small, as the authors have it: 0.02/√(2·layers) for their last products.
    let small = 0.02 / (2.0 * config.layers as f64).sqrt();
    let normal = n.layer_norm("ln_1", x, EPSILON)?;
    let attended = n.scope("attn", |n| {
        let joined = conv1d(n, "c_attn", normal, 3 * config.hidden, 0.02)?;
        let parts = n.parts(joined, 2, 3)?;
        let attended = n.attend([parts[0], parts[1], parts[2]], config.heads, &[bias])?;
        conv1d(n, "c_proj", attended, config.hidden, small)
    })?;
    let sum = n.b.add(attended, x)?;
    let x = n.named("add1", sum);
    let normal = n.layer_norm("ln_2", x, EPSILON)?;
    let inner = n.scope("mlp", |n| {
        let inner = conv1d(n, "c_fc", normal, 4 * config.hidden, 0.02)?;
        let gelu = n.b.gelu_tanh(inner)?;
        n.named("act", gelu);
        conv1d(n, "c_proj", gelu, config.hidden, small)
    })?;
    let sum = n.b.add(inner, x)?;
    Ok(n.named("add2", sum))
}

/// A product whose weight is stored inputs first.
fn conv1d(n: &mut Net, name: &str, x: ValueId, outputs: u64, std: f64) -> Result<ValueId> {
    n.scope(name, |n| {
        let weight = n.weight("weight", &[n.dim(x, 2), outputs], Init::Normal { mean: 0.0, std })?;
        let product = n.b.dot(x, weight, Dot { contract: vec![(2, 0)], ..Dot::default() })?;
        n.named("product", product);
        let bias = n.weight("bias", &[outputs], Init::Normal { mean: 0.0, std: 0.02 })?;
        let sum = n.plus(product, bias)?;
        Ok(n.named("", sum))
    })
}

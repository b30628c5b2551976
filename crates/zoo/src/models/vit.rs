//! Vision transformer as in timm (`vit_base_patch16_224`).

use crate::layers::Convolution;
use crate::net::{Init, Net};
use pando_base::Result;
use pando_graph::{ValueId, known_dims};

const PATCH: u64 = 16;
const HIDDEN: u64 = 768;
const HEADS: u64 = 12;
const LAYERS: u64 = 12;
const EPSILON: f64 = 1e-6;

pub(crate) fn build(n: &mut Net) -> Result<Vec<ValueId>> {
    let (batch, image) = (n.size("batch"), n.multiple("image", PATCH)?);
    let x = n.input("image", &[batch, 3, image, image]);
    let patches = (image / PATCH).pow(2);
    let kernel = Convolution::square(HIDDEN, PATCH).stride(PATCH).padding(&[(0, 0); 2]).bias();
    let x = n.conv("patch_embed.proj", x, &kernel)?;
    let x = n.reshape(x, &[batch, HIDDEN, patches])?;
    let x = n.b.transpose(x, &[0, 2, 1])?;
    let token = n.weight("cls_token", &[1, 1, HIDDEN], Init::Normal { mean: 0.0, std: 0.02 })?;
    let token = n.b.broadcast(token, known_dims(&[batch, 1, HIDDEN]), &[0, 1, 2])?;
    let x = n.b.concat(&[token, x], 1)?;
    let positions =
        n.weight("pos_embed", &[1, patches + 1, HIDDEN], Init::Normal { mean: 0.0, std: 0.02 })?;
    let sum = n.plus(x, positions)?;
    let mut x = n.named("embeddings", sum);
    for index in 0..LAYERS {
        x = n.scope(&format!("blocks.{index}"), |n| block(n, x))?;
    }
    let x = n.layer_norm("norm", x, EPSILON)?;
    let first = n.part(x, 1, 0, 1)?;
    let first = n.reshape(first, &[batch, HIDDEN])?;
    Ok(vec![n.linear("head", first, 1000)?])
}

fn block(n: &mut Net, x: ValueId) -> Result<ValueId> {
    let normal = n.layer_norm("norm1", x, EPSILON)?;
    let attended = n.scope("attn", |n| {
        let joined = n.linear("qkv", normal, 3 * HIDDEN)?;
        let parts = n.parts(joined, 2, 3)?;
        let attended = n.attend([parts[0], parts[1], parts[2]], HEADS, None)?;
        n.linear("proj", attended, HIDDEN)
    })?;
    let sum = n.b.add(x, attended)?;
    let x = n.named("add1", sum);
    let normal = n.layer_norm("norm2", x, EPSILON)?;
    let inner = n.scope("mlp", |n| {
        let inner = n.linear("fc1", normal, 4 * HIDDEN)?;
        let gelu = n.b.gelu(inner)?;
        n.named("act", gelu);
        n.linear("fc2", gelu, HIDDEN)
    })?;
    let sum = n.b.add(x, inner)?;
    Ok(n.named("add2", sum))
}

//! Vision transformers as in timm: a classifier that looks at a token of its own (`vit_base_patch16_224`), and an
//! encoder whose result a learned query gathers from all patches (`vit_so400m_patch14_siglip_384`).

use crate::layers::Convolution;
use crate::net::{Init, Net};
use pando_base::Result;
use pando_graph::{Builder, ValueId, known_dims};

const EPSILON: f64 = 1e-6;
const POSITION: Init = Init::Normal { mean: 0.0, std: 0.02 };

struct Widths {
    patch: u64,
    hidden: u64,
    heads: u64,
    /// Of the two products of a block.
    inner: u64,
}

const BASE: Widths = Widths { patch: 16, hidden: 768, heads: 12, inner: 4 * 768 };
const BASE_LAYERS: u64 = 12;
const SO400M: Widths = Widths { patch: 14, hidden: 1152, heads: 16, inner: 4304 };

pub(crate) fn base(n: &mut Net) -> Result<Vec<ValueId>> {
    let (batch, image) = (n.size("batch"), n.multiple("image", BASE.patch)?);
    let x = patches(n, image, BASE.patch, BASE.hidden)?;
    let token = n.weight("cls_token", &[1, 1, BASE.hidden], POSITION)?;
    let token = n.b.broadcast(token, known_dims(&[batch, 1, BASE.hidden]), &[0, 1, 2])?;
    let x = n.b.concat(&[token, x], 1)?;
    let x = encoder(n, x, BASE_LAYERS, &BASE)?;
    let first = n.part(x, 1, 0, 1)?;
    let first = n.reshape(first, &[batch, BASE.hidden])?;
    Ok(vec![n.linear("head", first, 1000)?])
}

/// What is left of an image beside whole patches is not looked at.
pub(crate) fn siglip_so400m(n: &mut Net) -> Result<Vec<ValueId>> {
    let image = n.size_within("image", SO400M.patch, 1 << 24)?;
    let layers = n.size_within("layers", 1, 1000)?;
    let x = patches(n, image, SO400M.patch, SO400M.hidden)?;
    let x = encoder(n, x, layers, &SO400M)?;
    Ok(vec![n.scope("attn_pool", |n| attention_pool(n, x, &SO400M))?])
}

/// Each patch of an image by a product: `[B, patches, hidden]`.
pub(super) fn patches(n: &mut Net, image: u64, patch: u64, hidden: u64) -> Result<ValueId> {
    let batch = n.size("batch");
    let x = n.input("image", &[batch, 3, image, image]);
    let kernel = Convolution::square(hidden, patch).stride(patch).padding(&[(0, 0); 2]).bias();
    let x = n.conv("patch_embed.proj", x, &kernel)?;
    let x = n.reshape(x, &[batch, hidden, (image / patch).pow(2)])?;
    n.b.transpose(x, &[0, 2, 1])
}

fn encoder(n: &mut Net, x: ValueId, layers: u64, w: &Widths) -> Result<ValueId> {
    let length = n.dim(x, 1);
    let positions = n.weight("pos_embed", &[1, length, w.hidden], POSITION)?;
    let sum = n.plus(x, positions)?;
    let mut x = n.named("embeddings", sum);
    for index in 0..layers {
        x = n.scope(&format!("blocks.{index}"), |n| block(n, x, w))?;
    }
    n.layer_norm("norm", x, EPSILON)
}

fn block(n: &mut Net, x: ValueId, w: &Widths) -> Result<ValueId> {
    let normal = n.layer_norm("norm1", x, EPSILON)?;
    let attended = n.scope("attn", |n| {
        let joined = n.linear("qkv", normal, 3 * w.hidden)?;
        let parts = n.parts(joined, 2, 3)?;
        let attended = n.attend([parts[0], parts[1], parts[2]], w.heads, &[])?;
        n.linear("proj", attended, w.hidden)
    })?;
    let sum = n.b.add(x, attended)?;
    let x = n.named("add1", sum);
    let normal = n.layer_norm("norm2", x, EPSILON)?;
    let inner = n.mlp(normal, w.inner, Builder::gelu)?;
    let sum = n.b.add(x, inner)?;
    Ok(n.named("add2", sum))
}

/// A learned query attends to all patches: `[B, patches, hidden]` to `[B, hidden]`.
fn attention_pool(n: &mut Net, x: ValueId, w: &Widths) -> Result<ValueId> {
    let batch = n.size("batch");
    let latent = n.weight("latent", &[1, 1, w.hidden], POSITION)?;
    let query = n.linear("q", latent, w.hidden)?;
    let query = n.b.broadcast(query, known_dims(&[batch, 1, w.hidden]), &[0, 1, 2])?;
    let joined = n.linear("kv", x, 2 * w.hidden)?;
    let parts = n.parts(joined, 2, 2)?;
    let attended = n.attend([query, parts[0], parts[1]], w.heads, &[])?;
    let x = n.linear("proj", attended, w.hidden)?;
    let normal = n.layer_norm("norm", x, EPSILON)?;
    let inner = n.mlp(normal, w.inner, Builder::gelu)?;
    let sum = n.b.add(x, inner)?;
    n.reshape(sum, &[batch, w.hidden])
}

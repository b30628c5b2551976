//! UNet (Ronneberger et al. 2015) with normalisation and padded convolutions, for segmenting grey images into two
//! classes.

use crate::layers::Convolution;
use crate::net::{Init, Net};
use pando_base::Result;
use pando_graph::{Dot, ValueId};

const CHANNELS: [u64; 5] = [64, 128, 256, 512, 1024];
const CLASSES: u64 = 2;
const EPSILON: f64 = 1e-5;

pub(crate) fn build(n: &mut Net) -> Result<Vec<ValueId>> {
    // Four halvings.
    let (batch, image) = (n.size("batch"), n.multiple("image", 16)?);
    let image = n.input("image", &[batch, 1, image, image]);
    let mut x = n.scope("inc.double_conv", |n| double_conv(n, image, CHANNELS[0]))?;
    let mut left = Vec::new();
    for (index, &channels) in CHANNELS.iter().enumerate().skip(1) {
        left.push(x);
        x = n.scope(&format!("down{index}.maxpool_conv"), |n| {
            let pooled = n.max_pool(x, 2, 2, 0)?;
            let pooled = n.named("0", pooled);
            n.scope("1.double_conv", |n| double_conv(n, pooled, channels))
        })?;
    }
    for (index, skipped) in (1..).zip(left.into_iter().rev()) {
        x = n.scope(&format!("up{index}"), |n| {
            let channels = n.dim(skipped, 1);
            let up = n.scope("up", |n| doubled(n, x, channels))?;
            let joined = n.b.concat(&[skipped, up], 1)?;
            n.named("concat", joined);
            n.scope("conv.double_conv", |n| double_conv(n, joined, channels))
        })?;
    }
    Ok(vec![n.conv("outc.conv", x, &Convolution::square(CLASSES, 1).bias())?])
}

fn double_conv(n: &mut Net, x: ValueId, channels: u64) -> Result<ValueId> {
    let mut x = x;
    for first in [0, 3] {
        x = n.conv(&first.to_string(), x, &Convolution::square(channels, 3))?;
        x = n.batch_norm(&(first + 1).to_string(), x, EPSILON, 1.0)?;
        x = n.relu(&(first + 2).to_string(), x)?;
    }
    Ok(x)
}

/// `nn.ConvTranspose2d` of 2x2 windows that do not overlap: a product gives each pixel the four it becomes.
fn doubled(n: &mut Net, x: ValueId, channels: u64) -> Result<ValueId> {
    let dims = n.dims(x);
    let [batch, inputs, height, width] = dims[..] else { unreachable!("images have four dimensions") };
    let std = (1.0 / inputs as f64).sqrt();
    let weight = n.weight("weight", &[inputs, channels, 2, 2], Init::Normal { mean: 0.0, std })?;
    // [B, H, W, channels, 2, 2]
    let product = n.b.dot(x, weight, Dot { contract: vec![(1, 0)], ..Dot::default() })?;
    n.named("product", product);
    let moved = n.b.transpose(product, &[0, 3, 1, 4, 2, 5])?;
    let image = n.reshape(moved, &[batch, channels, 2 * height, 2 * width])?;
    let bias = n.weight("bias", &[channels], Init::Normal { mean: 0.0, std: 0.02 })?;
    let sum = n.plus_per_channel(image, bias)?;
    Ok(n.named("", sum))
}

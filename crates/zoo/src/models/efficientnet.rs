//! EfficientNet B0…B7 as in torchvision, and the variants with group convolutions of "Making EfficientNet
//! More Efficient" (arXiv 2106.03640): groups of 16 channels in place of single ones, and blocks that widen
//! by 4 in place of 6.

use crate::layers::Convolution;
use crate::net::Net;
use pando_base::Result;
use pando_graph::ValueId;

#[derive(Clone, Copy)]
pub(crate) struct EfficientNet {
    width: f64,
    depth: f64,
    epsilon: f64,
    /// Channels that a spatial convolution mixes.
    group: u64,
    expansion: u64,
}

const fn depthwise(width: f64, depth: f64, epsilon: f64) -> EfficientNet {
    EfficientNet { width, depth, epsilon, group: 1, expansion: 6 }
}

/// B0 to B7.
pub(crate) const DEPTHWISE: [EfficientNet; 8] = [
    depthwise(1.0, 1.0, 1e-5),
    depthwise(1.0, 1.1, 1e-5),
    depthwise(1.1, 1.2, 1e-5),
    depthwise(1.2, 1.4, 1e-5),
    depthwise(1.4, 1.8, 1e-5),
    depthwise(1.6, 2.2, 1e-3),
    depthwise(1.8, 2.6, 1e-3),
    depthwise(2.0, 3.1, 1e-3),
];

/// The variant of a model with group convolutions.
pub(crate) const fn grouped(model: EfficientNet) -> EfficientNet {
    EfficientNet { group: 16, expansion: 4, ..model }
}

struct Stage {
    expands: bool,
    kernel: u64,
    stride: u64,
    outputs: u64,
    blocks: u64,
}

const fn stage(expands: bool, kernel: u64, stride: u64, outputs: u64, blocks: u64) -> Stage {
    Stage { expands, kernel, stride, outputs, blocks }
}

const STAGES: [Stage; 7] = [
    stage(false, 3, 1, 16, 1),
    stage(true, 3, 2, 24, 2),
    stage(true, 5, 2, 40, 2),
    stage(true, 3, 2, 80, 3),
    stage(true, 5, 1, 112, 3),
    stage(true, 5, 2, 192, 4),
    stage(true, 3, 1, 320, 1),
];

/// Scale of the last normalisation of a residual branch.
const BRANCH: f64 = 0.5;

impl EfficientNet {
    /// A number of channels scaled to this model: a multiple of 8, at most a tenth less.
    fn channels(&self, channels: u64) -> u64 {
        let scaled = channels as f64 * self.width;
        let rounded = ((scaled + 4.0) as u64 / 8 * 8).max(8);
        if (rounded as f64) < 0.9 * scaled { rounded + 8 } else { rounded }
    }

    /// Groups of a spatial convolution. Where 16 does not divide the channels (the first stage of some
    /// models), groups are as large as divides both.
    fn groups(&self, channels: u64) -> u64 {
        channels / greatest_common_divisor(channels, self.group)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

pub(crate) fn build(n: &mut Net, config: &EfficientNet) -> Result<Vec<ValueId>> {
    let (batch, image) = (n.size("batch"), n.size("image"));
    let x = n.input("image", &[batch, 3, image, image]);
    let mut x = n.scope("features.0", |n| {
        conv_norm(n, config, x, &Convolution::square(config.channels(32), 3).stride(2), Some("2"), 1.0)
    })?;
    for (index, stage) in STAGES.iter().enumerate() {
        let blocks = (stage.blocks as f64 * config.depth).ceil() as u64;
        for block in 0..blocks {
            let stride = if block == 0 { stage.stride } else { 1 };
            let name = format!("features.{}.{block}", index + 1);
            x = n.scope(&name, |n| inverted_bottleneck(n, config, stage, stride, x))?;
        }
    }
    let last = Convolution::square(4 * config.channels(320), 1);
    let x = n.scope("features.8", |n| conv_norm(n, config, x, &last, Some("2"), 1.0))?;
    let pooled = n.mean(x, &[2, 3])?;
    let x = n.named("avgpool", pooled);
    Ok(vec![n.linear("classifier.1", x, 1000)?])
}

/// Widen, convolve, weigh the channels, narrow; around it the residual where the shapes agree.
fn inverted_bottleneck(
    n: &mut Net,
    config: &EfficientNet,
    stage: &Stage,
    stride: u64,
    x: ValueId,
) -> Result<ValueId> {
    let (inputs, outputs) = (n.dim(x, 1), config.channels(stage.outputs));
    let wide = if stage.expands { inputs * config.expansion } else { inputs };
    let first = u64::from(stage.expands);
    let y = n.scope("block", |n| {
        let mut y = x;
        if stage.expands {
            y = n.scope("0", |n| conv_norm(n, config, y, &Convolution::square(wide, 1), Some("2"), 1.0))?;
        }
        let spatial = Convolution::square(wide, stage.kernel).stride(stride).groups(config.groups(wide));
        y = n.scope(&first.to_string(), |n| conv_norm(n, config, y, &spatial, Some("2"), 1.0))?;
        y = n.scope(&(first + 1).to_string(), |n| squeeze_excitation(n, y, (inputs / 4).max(1)))?;
        let narrow = Convolution::square(outputs, 1);
        n.scope(&(first + 2).to_string(), |n| conv_norm(n, config, y, &narrow, None, BRANCH))
    })?;
    if stride != 1 || inputs != outputs {
        return Ok(y);
    }
    let sum = n.b.add(y, x)?;
    Ok(n.named("add", sum))
}

/// A convolution, its normalisation, and SiLU under the name given.
fn conv_norm(
    n: &mut Net,
    config: &EfficientNet,
    x: ValueId,
    conv: &Convolution,
    activation: Option<&str>,
    mean_scale: f64,
) -> Result<ValueId> {
    let x = n.conv("0", x, conv)?;
    let x = n.batch_norm("1", x, config.epsilon, mean_scale)?;
    let Some(name) = activation else { return Ok(x) };
    let silu = n.b.silu(x)?;
    Ok(n.named(name, silu))
}

/// Each channel weighed by a function of all channels' means.
fn squeeze_excitation(n: &mut Net, x: ValueId, squeezed: u64) -> Result<ValueId> {
    let dims = n.dims(x);
    let mean = n.mean(x, &[2, 3])?;
    n.named("avgpool", mean);
    let mean = n.reshape(mean, &[dims[0], dims[1], 1, 1])?;
    let y = n.conv("fc1", mean, &Convolution::square(squeezed, 1).bias())?;
    let y = n.b.silu(y)?;
    let y = n.conv("fc2", y, &Convolution::square(dims[1], 1).bias())?;
    let gate = n.b.sigmoid(y)?;
    n.named("gate", gate);
    let gate = n.b.broadcast(gate, n.b.ty(x).dims.clone(), &[0, 1, 2, 3])?;
    let result = n.b.mul(x, gate)?;
    Ok(n.named("", result))
}

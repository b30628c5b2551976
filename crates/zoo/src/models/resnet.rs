//! ResNet and ResNeXt as in torchvision (the stride is in the 3x3 convolution: "v1.5").

use crate::layers::Convolution;
use crate::net::Net;
use pando_base::Result;
use pando_graph::ValueId;

pub(crate) struct ResNet {
    pub blocks: [u64; 4],
    /// Blocks of three convolutions whose last one has four times the width.
    pub bottleneck: bool,
    pub groups: u64,
    /// Channels of a group of the 3x3 convolution in the first stage.
    pub group_width: u64,
}

const fn plain(blocks: [u64; 4], bottleneck: bool) -> ResNet {
    ResNet { blocks, bottleneck, groups: 1, group_width: 64 }
}

pub(crate) const RESNET18: ResNet = plain([2, 2, 2, 2], false);
pub(crate) const RESNET34: ResNet = plain([3, 4, 6, 3], false);
pub(crate) const RESNET50: ResNet = plain([3, 4, 6, 3], true);
pub(crate) const RESNET101: ResNet = plain([3, 4, 23, 3], true);
pub(crate) const RESNET152: ResNet = plain([3, 8, 36, 3], true);
pub(crate) const RESNEXT50: ResNet = ResNet { groups: 32, group_width: 4, ..RESNET50 };
pub(crate) const RESNEXT101: ResNet = ResNet { groups: 32, group_width: 8, ..RESNET101 };

const EPSILON: f64 = 1e-5;
/// Scale of the last normalisation of a residual branch.
const BRANCH: f64 = 0.3;

pub(crate) fn build(n: &mut Net, config: &ResNet) -> Result<Vec<ValueId>> {
    let (batch, image) = (n.size("batch"), n.size("image"));
    let x = n.input("image", &[batch, 3, image, image]);
    let x = n.conv("conv1", x, &Convolution::square(64, 7).stride(2))?;
    let x = n.batch_norm("bn1", x, EPSILON, 1.0)?;
    let x = n.relu("relu", x)?;
    let pooled = n.max_pool(x, 3, 2, 1)?;
    let mut x = n.named("maxpool", pooled);
    for (stage, &count) in config.blocks.iter().enumerate() {
        let width = 64 << stage;
        for index in 0..count {
            let stride = if stage > 0 && index == 0 { 2 } else { 1 };
            let name = format!("layer{}.{index}", stage + 1);
            x = n.scope(&name, |n| block(n, config, x, width, stride))?;
        }
    }
    let pooled = n.mean(x, &[2, 3])?;
    let x = n.named("avgpool", pooled);
    Ok(vec![n.linear("fc", x, 1000)?])
}

fn block(n: &mut Net, config: &ResNet, x: ValueId, width: u64, stride: u64) -> Result<ValueId> {
    let (branch, outputs) = if config.bottleneck {
        let inner = width * config.group_width / 64 * config.groups;
        let y = conv_norm_relu(n, x, 1, &Convolution::square(inner, 1))?;
        let middle = Convolution::square(inner, 3).stride(stride).groups(config.groups);
        let y = conv_norm_relu(n, y, 2, &middle)?;
        let y = n.conv("conv3", y, &Convolution::square(4 * width, 1))?;
        (n.batch_norm("bn3", y, EPSILON, BRANCH)?, 4 * width)
    } else {
        let y = conv_norm_relu(n, x, 1, &Convolution::square(width, 3).stride(stride))?;
        let y = n.conv("conv2", y, &Convolution::square(width, 3))?;
        (n.batch_norm("bn2", y, EPSILON, BRANCH)?, width)
    };
    let shortcut = if stride != 1 || n.dim(x, 1) != outputs {
        n.scope("downsample", |n| {
            let y = n.conv("0", x, &Convolution::square(outputs, 1).stride(stride))?;
            n.batch_norm("1", y, EPSILON, 1.0)
        })?
    } else {
        x
    };
    let sum = n.b.add(branch, shortcut)?;
    n.named("add", sum);
    n.relu("relu", sum)
}

fn conv_norm_relu(n: &mut Net, x: ValueId, index: u64, conv: &Convolution) -> Result<ValueId> {
    let x = n.conv(&format!("conv{index}"), x, conv)?;
    let x = n.batch_norm(&format!("bn{index}"), x, EPSILON, 1.0)?;
    n.relu(&format!("relu{index}"), x)
}

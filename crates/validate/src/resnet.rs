//! ResNet-50 as it was measured: exported for inference, with normalisation folded into the convolutions. The
//! built-in model keeps its normalisations, as its PyTorch definition has them.

use pando_base::{BinaryFn, DType, ReduceFn, Result, Shape};
use pando_graph::{Builder, ConstData, Conv, Dim, Dims, Module, ReduceWindow, TensorType, ValueId};

/// ResNet-50 v1.5 for 224 × 224 images: the stride is in the 3 × 3 convolutions.
pub fn resnet50(batch: u64) -> Result<Module> {
    let mut b = Builder::new();
    b.begin("main");
    let dims = [batch, 3, 224, 224].map(Dim::from).into_iter().collect();
    let image = b.param("image", TensorType { dtype: DType::F16, dims });
    let x = convolution(&mut b, "stem", image, [3, 64], 7, 2)?;
    let x = b.relu(x)?;
    let mut x = b.reduce_window(x, max_pool())?;
    let mut channels = 64;
    for (stage, (blocks, width)) in [(3, 64), (4, 128), (6, 256), (3, 512)].into_iter().enumerate() {
        for block in 0..blocks {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            x = bottleneck(&mut b, &format!("stage{stage}.{block}"), x, [channels, width], stride)?;
            channels = 4 * width;
        }
    }
    let sum = b.reduce(ReduceFn::Sum, x, &[2, 3])?;
    let mean = b.binary_scalar(BinaryFn::Mul, sum, 1.0 / 49.0)?;
    let classes = dense(&mut b, "classes", mean, channels, 1000)?;
    b.end(&[classes]);
    Ok(b.finish())
}

fn max_pool() -> ReduceWindow {
    ReduceWindow {
        func: ReduceFn::Max,
        window: vec![1, 1, 3, 3],
        strides: vec![1, 1, 2, 2],
        padding: vec![(0, 0), (0, 0), (1, 1), (1, 1)],
        dilation: vec![1; 4],
    }
}

fn bottleneck(
    b: &mut Builder,
    name: &str,
    x: ValueId,
    [inputs, width]: [u64; 2],
    stride: u64,
) -> Result<ValueId> {
    let y = convolution(b, &format!("{name}.a"), x, [inputs, width], 1, 1)?;
    let y = b.relu(y)?;
    let y = convolution(b, &format!("{name}.b"), y, [width, width], 3, stride)?;
    let y = b.relu(y)?;
    let y = convolution(b, &format!("{name}.c"), y, [width, 4 * width], 1, 1)?;
    let shortcut = if inputs == 4 * width && stride == 1 {
        x
    } else {
        convolution(b, &format!("{name}.shortcut"), x, [inputs, 4 * width], 1, stride)?
    };
    let sum = b.add(y, shortcut)?;
    b.relu(sum)
}

/// A convolution that keeps the field's size but for the stride, and its bias.
fn convolution(
    b: &mut Builder,
    name: &str,
    x: ValueId,
    [inputs, outputs]: [u64; 2],
    kernel: u64,
    stride: u64,
) -> Result<ValueId> {
    let w = weight(b, &format!("{name}.w"), &[outputs, inputs, kernel, kernel]);
    let bias = weight(b, &format!("{name}.b"), &[outputs]);
    let pad = (kernel as i64 - 1) / 2;
    let conv = Conv { strides: vec![stride; 2], padding: vec![(pad, pad); 2], ..Conv::plain(2) };
    let y = b.conv(x, w, conv)?;
    let dims: Dims = b.ty(y).dims.clone();
    let bias = b.broadcast(bias, dims, &[1])?;
    b.add(y, bias)
}

fn weight(b: &mut Builder, name: &str, dims: &[u64]) -> ValueId {
    let data = ConstData::Normal { seed: 1, mean: 0.0, std: 0.02 };
    b.weight(name, DType::F16, Shape::new(dims), data)
}

fn dense(b: &mut Builder, name: &str, x: ValueId, inputs: u64, outputs: u64) -> Result<ValueId> {
    let w = weight(b, &format!("{name}.w"), &[inputs, outputs]);
    let bias = weight(b, &format!("{name}.b"), &[outputs]);
    let y = b.matmul(x, w)?;
    let dims: Dims = b.ty(y).dims.clone();
    let bias = b.broadcast_trailing(bias, dims)?;
    b.add(y, bias)
}

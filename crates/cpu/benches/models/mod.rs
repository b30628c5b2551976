//! Models with seeded weights.

use pando_base::{BinaryFn, DType, ReduceFn, Result, Shape, Tensor};
use pando_graph::{Builder, ConstData, Conv, Dot, Module, ReduceWindow, TensorType, ValueId};

pub struct Model {
    pub name: &'static str,
    pub module: Module,
    pub input: Tensor,
    pub gflop: f64,
}

pub fn models() -> Vec<Model> {
    let image = |batch: u64| filled(&[batch, 3, 224, 224]);
    vec![
        Model { name: "bert-12x-b1", module: bert(1, 128, 12), input: filled(&[1, 128, 768]), gflop: 22.4 },
        Model { name: "resnet50-b1", module: resnet50(1), input: image(1), gflop: 8.2 },
        Model { name: "bert-12x-b8", module: bert(8, 128, 12), input: filled(&[8, 128, 768]), gflop: 179.0 },
        Model { name: "resnet50-b16", module: resnet50(16), input: image(16), gflop: 131.0 },
        Model { name: "mbconv-b1", module: mobile(1), input: image(1), gflop: 0.6 },
    ]
}

fn filled(sizes: &[u64]) -> Tensor {
    let data = ConstData::Normal { seed: 1, mean: 0.0, std: 1.0 };
    data.materialize(DType::F32, &Shape::new(sizes))
}

struct Net {
    b: Builder,
    seed: u64,
}

impl Net {
    fn new() -> Net {
        let mut b = Builder::new();
        b.begin("main");
        Net { b, seed: 0 }
    }

    fn weight(&mut self, sizes: &[u64], std: f64) -> ValueId {
        self.seed += 1;
        let data = ConstData::Normal { seed: self.seed, mean: 0.0, std };
        self.b.weight(&format!("w{}", self.seed), DType::F32, Shape::new(sizes), data)
    }

    fn finish(mut self, result: ValueId) -> Module {
        self.b.end(&[result]);
        self.b.finish()
    }

    fn linear(&mut self, x: ValueId, from: u64, to: u64) -> Result<ValueId> {
        let weight = self.weight(&[from, to], 0.02);
        let bias = self.weight(&[to], 0.02);
        let last = self.b.ty(x).rank() - 1;
        let y = self.b.dot(x, weight, Dot { contract: vec![(last, 0)], ..Dot::default() })?;
        let dims = self.b.ty(y).dims.clone();
        let bias = self.b.broadcast_trailing(bias, dims)?;
        self.b.add(y, bias)
    }

    fn norm(&mut self, x: ValueId, size: u64) -> Result<ValueId> {
        let (scale, bias) = (self.weight(&[size], 0.02), self.weight(&[size], 0.02));
        self.b.layer_norm(x, scale, bias, 1e-12)
    }

    fn heads(&mut self, x: ValueId, sizes: [u64; 4]) -> Result<ValueId> {
        let x = self.b.reshape(x, sizes)?;
        self.b.transpose(x, &[0, 2, 1, 3])
    }

    fn bert_layer(&mut self, x: ValueId, batch: u64, sequence: u64) -> Result<ValueId> {
        let sizes = [batch, sequence, 12, 64];
        let (q, k, v) = (self.linear(x, 768, 768)?, self.linear(x, 768, 768)?, self.linear(x, 768, 768)?);
        let (q, k, v) = (self.heads(q, sizes)?, self.heads(k, sizes)?, self.heads(v, sizes)?);
        let k = self.b.transpose(k, &[0, 1, 3, 2])?;
        let scores = self.b.matmul(q, k)?;
        let scores = self.b.binary_scalar(BinaryFn::Mul, scores, 0.125)?;
        let weights = self.b.softmax(scores, 3)?;
        let mixed = self.b.matmul(weights, v)?;
        let mixed = self.b.transpose(mixed, &[0, 2, 1, 3])?;
        let mixed = self.b.reshape(mixed, [batch, sequence, 768])?;
        let attended = self.linear(mixed, 768, 768)?;
        let x = self.b.add(x, attended)?;
        let x = self.norm(x, 768)?;
        let wide = self.linear(x, 768, 3072)?;
        let wide = self.b.gelu(wide)?;
        let narrow = self.linear(wide, 3072, 768)?;
        let y = self.b.add(x, narrow)?;
        self.norm(y, 768)
    }

    /// Convolution and a scale and shift per channel, as batch norm leaves them.
    fn conv(&mut self, x: ValueId, sizes: [u64; 3], stride: u64, groups: u64) -> Result<ValueId> {
        let [from, to, window] = sizes;
        let std = (2.0 / (from / groups * window * window) as f64).sqrt();
        let kernel = self.weight(&[to, from / groups, window, window], std);
        let pad = (window / 2) as i64;
        let conv = Conv { strides: vec![stride; 2], padding: vec![(pad, pad); 2], groups, ..Conv::plain(2) };
        let y = self.b.conv(x, kernel, conv)?;
        let dims = self.b.ty(y).dims.clone();
        let (scale, bias) = (self.weight(&[to], 1.0), self.weight(&[to], 0.1));
        let scale = self.b.broadcast(scale, dims.clone(), &[1])?;
        let bias = self.b.broadcast(bias, dims, &[1])?;
        let y = self.b.mul(y, scale)?;
        self.b.add(y, bias)
    }

    fn bottleneck(&mut self, x: ValueId, from: u64, width: u64, stride: u64) -> Result<ValueId> {
        let y = self.conv(x, [from, width, 1], 1, 1)?;
        let y = self.b.relu(y)?;
        let y = self.conv(y, [width, width, 3], stride, 1)?;
        let y = self.b.relu(y)?;
        let y = self.conv(y, [width, width * 4, 1], 1, 1)?;
        let same = from == width * 4 && stride == 1;
        let x = if same { x } else { self.conv(x, [from, width * 4, 1], stride, 1)? };
        let sum = self.b.add(y, x)?;
        self.b.relu(sum)
    }

    /// EfficientNet's block: expand, depthwise, squeeze and excite, project.
    fn mbconv(&mut self, x: ValueId, from: u64, to: u64, window: u64, stride: u64) -> Result<ValueId> {
        let wide = from * 6;
        let y = self.conv(x, [from, wide, 1], 1, 1)?;
        let y = self.b.silu(y)?;
        let y = self.conv(y, [wide, wide, window], stride, wide)?;
        let y = self.b.silu(y)?;
        let pooled = self.b.reduce(ReduceFn::Sum, y, &[2, 3])?;
        let dims = self.b.ty(y).dims.clone();
        let pixels = dims[2].known().unwrap_or(1) * dims[3].known().unwrap_or(1);
        let pooled = self.b.binary_scalar(BinaryFn::Mul, pooled, 1.0 / pixels as f64)?;
        let squeezed = self.linear(pooled, wide, from / 4)?;
        let squeezed = self.b.silu(squeezed)?;
        let gate = self.linear(squeezed, from / 4, wide)?;
        let gate = self.b.sigmoid(gate)?;
        let gate = self.b.broadcast(gate, dims, &[0, 1])?;
        let y = self.b.mul(y, gate)?;
        let y = self.conv(y, [wide, to, 1], 1, 1)?;
        if from == to && stride == 1 { self.b.add(x, y) } else { Ok(y) }
    }
}

fn bert(batch: u64, sequence: u64, layers: usize) -> Module {
    let mut net = Net::new();
    let mut x = net.b.param("x", TensorType::new(DType::F32, [batch, sequence, 768]));
    for _ in 0..layers {
        x = net.bert_layer(x, batch, sequence).expect("the sizes agree");
    }
    net.finish(x)
}

fn head(net: &mut Net, x: ValueId, channels: u64, pixels: f64) -> Result<ValueId> {
    let pooled = net.b.reduce(ReduceFn::Sum, x, &[2, 3])?;
    let pooled = net.b.binary_scalar(BinaryFn::Mul, pooled, 1.0 / pixels)?;
    net.linear(pooled, channels, 1000)
}

fn image_input(net: &mut Net, batch: u64) -> ValueId {
    net.b.param("x", TensorType::new(DType::F32, [batch, 3, 224, 224]))
}

fn resnet50(batch: u64) -> Module {
    let mut net = Net::new();
    let x = image_input(&mut net, batch);
    let mut layers = || -> Result<ValueId> {
        let x = net.conv(x, [3, 64, 7], 2, 1)?;
        let x = net.b.relu(x)?;
        let pool = ReduceWindow {
            func: ReduceFn::Max,
            window: vec![1, 1, 3, 3],
            strides: vec![1, 1, 2, 2],
            padding: vec![(0, 0), (0, 0), (1, 1), (1, 1)],
            dilation: vec![1; 4],
        };
        let mut x = net.b.reduce_window(x, pool)?;
        let mut from = 64;
        for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
            let width = 64 << stage;
            for block in 0..blocks {
                x = net.bottleneck(x, from, width, if block == 0 && stage > 0 { 2 } else { 1 })?;
                from = width * 4;
            }
        }
        head(&mut net, x, 2048, 49.0)
    };
    let result = layers().expect("the sizes agree");
    net.finish(result)
}

/// Blocks with EfficientNet-B0's sizes.
fn mobile(batch: u64) -> Module {
    let mut net = Net::new();
    let x = image_input(&mut net, batch);
    let mut layers = || -> Result<ValueId> {
        let x = net.conv(x, [3, 32, 3], 2, 1)?;
        let x = net.b.silu(x)?;
        let mut x = net.conv(x, [32, 16, 1], 1, 1)?;
        let mut from = 16;
        let stages =
            [(24, 2, 3, 2), (40, 2, 5, 2), (80, 3, 3, 2), (112, 3, 5, 1), (192, 4, 5, 2), (320, 1, 3, 1)];
        for (to, blocks, window, stride) in stages {
            for block in 0..blocks {
                x = net.mbconv(x, from, to, window, if block == 0 { stride } else { 1 })?;
                from = to;
            }
        }
        let x = net.conv(x, [320, 1280, 1], 1, 1)?;
        let x = net.b.silu(x)?;
        head(&mut net, x, 1280, 49.0)
    };
    let result = layers().expect("the sizes agree");
    net.finish(result)
}

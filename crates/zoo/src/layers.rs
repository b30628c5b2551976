//! Layers with the meaning and the weight names of PyTorch's: products, convolutions, normalisations,
//! pooling, embeddings; and arithmetic that broadcasts.

use crate::net::{Init, Net};
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result, UnaryFn};
use pando_graph::{Builder, Conv, Dot, ReduceWindow, Slice, TensorType, ValueId, known_dims};

/// A convolution. Padding keeps the size of the image at stride 1, if the kernel is odd.
#[derive(Clone, Debug)]
pub(crate) struct Convolution {
    pub outputs: u64,
    pub kernel: Vec<u64>,
    pub strides: Vec<u64>,
    pub padding: Vec<(i64, i64)>,
    pub dilation: u64,
    pub groups: u64,
    pub bias: bool,
}

impl Convolution {
    pub fn new(outputs: u64, kernel: &[u64]) -> Self {
        Convolution {
            outputs,
            kernel: kernel.to_vec(),
            strides: vec![1; kernel.len()],
            padding: kernel.iter().map(|&size| ((size / 2) as i64, (size / 2) as i64)).collect(),
            dilation: 1,
            groups: 1,
            bias: false,
        }
    }

    pub fn square(outputs: u64, kernel: u64) -> Self {
        Convolution::new(outputs, &[kernel, kernel])
    }

    pub fn stride(mut self, stride: u64) -> Self {
        self.strides.fill(stride);
        self
    }

    pub fn groups(mut self, groups: u64) -> Self {
        self.groups = groups;
        self
    }

    pub fn padding(mut self, padding: &[(i64, i64)]) -> Self {
        self.padding = padding.to_vec();
        self
    }

    pub fn bias(mut self) -> Self {
        self.bias = true;
        self
    }
}

/// Of each number by itself.
pub(crate) type Activation = fn(&mut Builder, ValueId) -> Result<ValueId>;

impl Net<'_> {
    /// `nn.Linear`: the last axis becomes `outputs`.
    pub fn linear(&mut self, name: &str, x: ValueId, outputs: u64) -> Result<ValueId> {
        self.scope(name, |n| {
            let product = n.product(x, outputs)?;
            let bias = n.weight("bias", &[outputs], Init::Normal { mean: 0.0, std: 0.02 })?;
            n.named("product", product);
            let sum = n.plus(product, bias)?;
            Ok(n.named("", sum))
        })
    }

    /// `nn.Linear(bias=False)`.
    pub fn linear_no_bias(&mut self, name: &str, x: ValueId, outputs: u64) -> Result<ValueId> {
        self.scope(name, |n| {
            let product = n.product(x, outputs)?;
            Ok(n.named("", product))
        })
    }

    fn product(&mut self, x: ValueId, outputs: u64) -> Result<ValueId> {
        let last = self.rank(x) - 1;
        let weight = self.weight("weight", &[outputs, self.dim(x, last)], Init::FanIn { gain: 1.0 })?;
        self.b.dot(x, weight, Dot { contract: vec![(last, 1)], ..Dot::default() })
    }

    /// `nn.Conv1d` and `nn.Conv2d` on `[N, C, spatial…]`.
    pub fn conv(&mut self, name: &str, x: ValueId, conv: &Convolution) -> Result<ValueId> {
        self.scope(name, |n| {
            let inputs = n.dim(x, 1) / conv.groups;
            let shape: Vec<u64> = [conv.outputs, inputs].iter().chain(&conv.kernel).copied().collect();
            let kernel = n.weight("weight", &shape, Init::FanIn { gain: 2.0 })?;
            let op = Conv {
                strides: conv.strides.clone(),
                padding: conv.padding.clone(),
                kernel_dilation: vec![conv.dilation; conv.kernel.len()],
                groups: conv.groups,
                ..Conv::plain(conv.kernel.len())
            };
            let result = n.b.conv(x, kernel, op)?;
            if !conv.bias {
                return Ok(n.named("", result));
            }
            n.named("product", result);
            let bias = n.weight("bias", &[conv.outputs], Init::Normal { mean: 0.0, std: 0.02 })?;
            let sum = n.plus_per_channel(result, bias)?;
            Ok(n.named("", sum))
        })
    }

    /// `nn.BatchNorm` with its running statistics: one factor and one offset per channel, as a composite.
    /// `mean_scale` is around what a seeded scale is drawn; below 1 where residual branches end, so that
    /// deep models stay within f16.
    pub fn batch_norm(&mut self, name: &str, x: ValueId, epsilon: f64, mean_scale: f64) -> Result<ValueId> {
        self.scope(name, |n| {
            let shape = [n.dim(x, 1)];
            let around = |mean| Init::Normal { mean, std: 0.1 * mean_scale };
            let scale = n.weight("weight", &shape, around(mean_scale))?;
            let bias = n.weight("bias", &shape, around(0.0))?;
            let mean = n.statistic("running_mean", &shape, around(0.0))?;
            let variance = n.statistic("running_var", &shape, Init::Variance)?;
            let args = [x, scale, bias, mean, variance];
            let result = n.b.composite("batch_norm", &epsilon.to_string(), &args, |b, args| {
                let raised = b.binary_scalar(BinaryFn::Add, args[4], epsilon)?;
                let root = b.sqrt(raised)?;
                let factor = b.div(args[1], root)?;
                b.name(factor, "factor");
                let moved = b.mul(args[3], factor)?;
                let offset = b.sub(args[2], moved)?;
                b.name(offset, "offset");
                let dims = b.ty(args[0]).dims.clone();
                let factor = b.broadcast(factor, dims.clone(), &[1])?;
                let offset = b.broadcast(offset, dims, &[1])?;
                let scaled = b.mul(args[0], factor)?;
                b.name(scaled, "scaled");
                b.add(scaled, offset)
            })?;
            Ok(n.named("", result))
        })
    }

    /// `nn.LayerNorm` of the last axis.
    pub fn layer_norm(&mut self, name: &str, x: ValueId, epsilon: f64) -> Result<ValueId> {
        self.scope(name, |n| {
            let shape = [n.dim(x, n.rank(x) - 1)];
            let scale = n.weight("weight", &shape, Init::Normal { mean: 1.0, std: 0.05 })?;
            let bias = n.weight("bias", &shape, Init::Normal { mean: 0.0, std: 0.05 })?;
            let result = n.b.layer_norm(x, scale, bias, epsilon)?;
            Ok(n.named("", result))
        })
    }

    /// Two products with an activation between them, as timm and transformers name them.
    pub fn mlp(&mut self, x: ValueId, inner: u64, activation: Activation) -> Result<ValueId> {
        let outputs = self.dim(x, self.rank(x) - 1);
        self.scope("mlp", |n| {
            let x = n.linear("fc1", x, inner)?;
            let x = activation(&mut n.b, x)?;
            n.named("act", x);
            n.linear("fc2", x, outputs)
        })
    }

    /// `nn.Embedding`: a row of the table for each number.
    pub fn embedding(&mut self, name: &str, ids: ValueId, rows: u64, width: u64) -> Result<ValueId> {
        self.scope(name, |n| {
            let table = n.weight("weight", &[rows, width], Init::Normal { mean: 0.0, std: 0.02 })?;
            let result = n.b.gather(table, ids, 0)?;
            Ok(n.named("", result))
        })
    }

    /// The first rows of an embedding of positions: `[length, width]`.
    pub fn first_positions(&mut self, name: &str, length: u64, most: u64, width: u64) -> Result<ValueId> {
        self.scope(name, |n| {
            let table = n.weight("weight", &[most, width], Init::Normal { mean: 0.0, std: 0.02 })?;
            let rows = n.part(table, 0, 0, length)?;
            Ok(n.named("", rows))
        })
    }

    /// `nn.MaxPool2d` of a square window.
    pub fn max_pool(&mut self, x: ValueId, size: u64, stride: u64, pad: i64) -> Result<ValueId> {
        let pads = (pad, pad);
        self.b.reduce_window(
            x,
            ReduceWindow {
                func: ReduceFn::Max,
                window: vec![1, 1, size, size],
                strides: vec![1, 1, stride, stride],
                padding: vec![(0, 0), (0, 0), pads, pads],
                dilation: vec![1; 4],
            },
        )
    }

    /// The mean over the axes, which are dropped.
    pub fn mean(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        let count: u64 = axes.iter().map(|&axis| self.dim(x, axis)).product();
        let sum = self.b.reduce(ReduceFn::Sum, x, axes)?;
        self.b.binary_scalar(BinaryFn::Div, sum, count as f64)
    }

    /// `x + y`, the last dimensions of `y` aligned with those of `x`; 1 fits everything.
    pub fn plus(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        let dims = self.b.ty(x).dims.clone();
        let y = self.b.broadcast_trailing(y, dims)?;
        self.b.add(x, y)
    }

    pub fn scaled(&mut self, x: ValueId, factor: f64) -> Result<ValueId> {
        self.b.binary_scalar(BinaryFn::Mul, x, factor)
    }

    /// `x` with a number per channel (axis 1) added.
    pub fn plus_per_channel(&mut self, x: ValueId, bias: ValueId) -> Result<ValueId> {
        let dims = self.b.ty(x).dims.clone();
        let bias = self.b.broadcast(bias, dims, &[1])?;
        self.b.add(x, bias)
    }

    /// `from..to` of an axis.
    pub fn part(&mut self, x: ValueId, axis: usize, from: u64, to: u64) -> Result<ValueId> {
        part(&mut self.b, x, axis, from, to)
    }

    /// An axis in equal parts.
    pub fn parts(&mut self, x: ValueId, axis: usize, count: u64) -> Result<Vec<ValueId>> {
        let size = self.dim(x, axis) / count;
        (0..count).map(|i| self.part(x, axis, i * size, (i + 1) * size)).collect()
    }

    /// A dimension of 1 in front of `axis`.
    pub fn unsqueeze(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        let mut dims = self.dims(x);
        dims.insert(axis, 1);
        self.b.reshape(x, dims)
    }

    pub fn reshape(&mut self, x: ValueId, dims: &[u64]) -> Result<ValueId> {
        self.b.reshape(x, dims.iter().copied())
    }

    pub fn relu(&mut self, name: &str, x: ValueId) -> Result<ValueId> {
        let result = self.b.relu(x)?;
        Ok(self.named(name, result))
    }

    /// `nn.GLU`: the first half of an axis, gated by the second.
    pub fn glu(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        let halves = self.parts(x, axis, 2)?;
        let gate = self.b.sigmoid(halves[1])?;
        self.b.mul(halves[0], gate)
    }

    /// `log(1 + exp(x))` without overflow.
    pub fn softplus(&mut self, x: ValueId) -> Result<ValueId> {
        let magnitude = self.b.abs(x)?;
        let negative = self.b.neg(magnitude)?;
        let power = self.b.exp(negative)?;
        let log = self.b.unary(UnaryFn::Log1p, power)?;
        let positive = self.b.relu(x)?;
        self.b.add(log, positive)
    }

    /// `x` where positive, `slope · x` elsewhere.
    pub fn leaky_relu(&mut self, x: ValueId, slope: f64) -> Result<ValueId> {
        let low = self.scaled(x, slope)?;
        let zero = self.b.splat_like(x, 0.0)?;
        let positive = self.b.compare(CompareFn::Ge, x, zero)?;
        self.b.select(positive, x, low)
    }

    /// Sines (even columns) and cosines (odd ones) of positions, whose frequencies fall from 1 to 1/10000:
    /// `[positions, width]`. Computed in f32: f16 has no fractions of large positions.
    pub fn sinusoids(&mut self, first: f64, step: f64, positions: u64, width: u64) -> Result<ValueId> {
        let half = width / 2;
        let ty = TensorType { dtype: DType::F32, dims: known_dims(&[positions, half]) };
        let counter = self.b.iota(ty.clone(), 0)?;
        let counter = self.scaled(counter, step)?;
        let position = self.b.binary_scalar(BinaryFn::Add, counter, first)?;
        let column = self.b.iota(ty, 1)?;
        let exponent = self.scaled(column, -(10000f64.ln()) * 2.0 / width as f64)?;
        let frequency = self.b.exp(exponent)?;
        let angle = self.b.mul(position, frequency)?;
        let (sine, cosine) = (self.b.sin(angle)?, self.b.cos(angle)?);
        let pair = [self.unsqueeze(sine, 2)?, self.unsqueeze(cosine, 2)?];
        let pairs = self.b.concat(&pair, 2)?;
        let table = self.reshape(pairs, &[positions, 2 * half])?;
        self.b.convert(table, self.dtype)
    }
}

/// `x · sigmoid(1.702 x)`, which is close to GELU.
pub(crate) fn quick_gelu(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let scaled = b.binary_scalar(BinaryFn::Mul, x, 1.702)?;
    let gate = b.sigmoid(scaled)?;
    b.mul(x, gate)
}

/// `from..to` of an axis.
pub(crate) fn part(b: &mut Builder, x: ValueId, axis: usize, from: u64, to: u64) -> Result<ValueId> {
    let mut end = b.ty(x).dims.clone();
    let mut begin = vec![0; end.len()];
    begin[axis] = from;
    end[axis] = to.into();
    b.slice(x, Slice { step: vec![1; begin.len()], begin, end })
}

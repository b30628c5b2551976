//! Training steps over the graph's builder, weights drawn from seeds.

use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result, Shape, Tensor};
use pando_graph::{
    Builder, ConstData, Conv, Distribution, Dot, FuncId, Module, Op, ReduceWindow, Slice, TensorType,
    ValueId, known_dims,
};

/// A program whose first parameters are state, replaced by its last results; the first result is the loss.
pub struct Training {
    pub module: Module,
    pub state: Vec<Tensor>,
    pub inputs: Vec<Tensor>,
    pub aliases: Vec<(usize, usize)>,
}

/// Names, and what makes them.
pub type Models = [(&'static str, fn() -> Training); 4];

pub const MODELS: Models = [
    ("resnet50-b16", resnet50),
    ("bert-base-b8", || bert_base(0.0)),
    ("bert-dropout-b8", || bert_base(0.1)),
    ("lstm-2x512", lstm),
];

#[derive(Clone, Copy)]
enum Optimizer {
    Sgd { momentum: f64 },
    AdamW,
}

fn normal(seed: u64, sizes: &[u64], mean: f64, std: f64) -> Tensor {
    ConstData::Normal { seed, mean, std }.materialize(DType::F32, &Shape::new(sizes))
}

fn ty(sizes: &[u64]) -> TensorType {
    TensorType::new(DType::F32, sizes.iter().copied())
}

/// What a network asks for while it is built: weights are parameters, so all of them are declared before.
struct Net {
    b: Builder,
    /// Of the first pass, which only counts weights.
    weights: Vec<Tensor>,
    params: Vec<ValueId>,
    next: usize,
    /// The seed of random numbers, the probability with which elements are dropped, and how often that was.
    noise: Option<(ValueId, f64)>,
    drops: u64,
}

impl Net {
    /// Drops elements where the network says so.
    fn dropout(&mut self, x: ValueId) -> Result<ValueId> {
        let Some((seed, probability)) = self.noise else { return Ok(x) };
        self.drops += 1;
        let b = &mut self.b;
        let number = b.constant(Tensor::from_ints(DType::U32, [2], &[self.drops.into(), 0]));
        let seed = b.binary(BinaryFn::Xor, seed, number)?;
        let dims = b.ty(x).dims.clone();
        let random = Op::Random { distribution: Distribution::Uniform, dtype: DType::F32, dims };
        let noise = b.op(random, &[seed])?;
        let limit = b.splat_like(noise, probability)?;
        let kept = b.compare(CompareFn::Ge, noise, limit)?;
        let scaled = b.binary_scalar(BinaryFn::Mul, x, 1.0 / (1.0 - probability))?;
        let zeros = b.splat_like(x, 0.0)?;
        b.select(kept, scaled, zeros)
    }

    fn weight(&mut self, sizes: &[u64], mean: f64, std: f64) -> ValueId {
        let seed = self.next as u64 + 1;
        self.next += 1;
        match self.params.get(self.next - 1) {
            Some(&param) => param,
            None => {
                self.weights.push(normal(seed, sizes, mean, std));
                self.b.param("", ty(sizes))
            }
        }
    }

    fn linear(&mut self, x: ValueId, to: u64) -> Result<ValueId> {
        let last = self.b.ty(x).rank() - 1;
        let from = self.b.ty(x).dims[last].known().expect("sizes are numbers");
        let weight = self.weight(&[to, from], 0.0, (1.0 / from as f64).sqrt());
        let y = self.b.dot(x, weight, Dot { contract: vec![(last, 1)], ..Dot::default() })?;
        let bias = self.weight(&[to], 0.0, 0.02);
        let bias = self.b.broadcast_trailing(bias, self.b.ty(y).dims.clone())?;
        self.b.add(y, bias)
    }

    fn layer_norm(&mut self, x: ValueId) -> Result<ValueId> {
        let dims = self.b.ty(x).dims.clone();
        let size = dims[dims.len() - 1].known().expect("sizes are numbers");
        let (scale, bias) = (self.weight(&[size], 1.0, 0.0), self.weight(&[size], 0.0, 0.0));
        self.b.layer_norm(x, scale, bias, 1e-12)
    }

    fn conv(&mut self, x: ValueId, to: u64, window: u64, stride: u64, relu: bool) -> Result<ValueId> {
        let from = self.b.ty(x).dims[1].known().expect("sizes are numbers");
        let kernel =
            self.weight(&[to, from, window, window], 0.0, (2.0 / (from * window * window) as f64).sqrt());
        let pad = (window / 2) as i64;
        let conv = Conv { strides: vec![stride; 2], padding: vec![(pad, pad); 2], ..Conv::plain(2) };
        let y = self.b.conv(x, kernel, conv)?;
        let (scale, bias) = (self.weight(&[to], 1.0, 0.0), self.weight(&[to], 0.0, 0.0));
        let [y, ..] = self.b.batch_norm_training(y, scale, bias, 1e-5)?;
        if relu { self.b.relu(y) } else { Ok(y) }
    }
}

/// Makes a step of a loss: once to learn the weights, once with them, their gradients and updates.
fn training(
    inputs: Vec<Tensor>,
    optimizer: Optimizer,
    loss: impl Fn(&mut Net, &[ValueId]) -> Result<ValueId>,
) -> Training {
    let declare = |b: &mut Builder| -> Vec<ValueId> {
        let types = inputs.iter().map(|input| TensorType::new(input.dtype(), input.shape().iter().copied()));
        types.map(|ty| b.param("", ty)).collect()
    };
    let mut net =
        Net { b: Builder::new(), weights: Vec::new(), params: Vec::new(), next: 0, noise: None, drops: 0 };
    net.b.begin("main");
    let args = declare(&mut net.b);
    loss(&mut net, &args).expect("the network is valid");
    let weights = net.weights;

    let mut net =
        Net { b: Builder::new(), weights: Vec::new(), params: Vec::new(), next: 0, noise: None, drops: 0 };
    net.b.begin("main");
    net.params = weights.iter().map(|weight| net.b.param("", ty(weight.shape()))).collect();
    let slots = match optimizer {
        Optimizer::Sgd { .. } => 1,
        Optimizer::AdamW => 2,
    };
    let mut state = weights.clone();
    let mut moments = Vec::new();
    for _ in 0..slots {
        for weight in &weights {
            moments.push(net.b.param("", ty(weight.shape())));
            state.push(Tensor::zeros(DType::F32, weight.shape().clone()));
        }
    }
    let args = declare(&mut net.b);
    let loss = loss(&mut net, &args).expect("the network is valid");
    let params = net.params.clone();
    let b = &mut net.b;
    let one = b.scalar(DType::F32, 1.0);
    let gradients = b.gradients(&[(loss, one)], &params).expect("the network has gradients");
    let (mut results, mut aliases) = (vec![loss], Vec::new());
    for (index, (&param, gradient)) in params.iter().zip(gradients).enumerate() {
        let Some(gradient) = gradient else { continue };
        let own: Vec<ValueId> = (0..slots).map(|slot| moments[slot * params.len() + index]).collect();
        let new = update(b, optimizer, param, &own, gradient).expect("the update is valid");
        for (slot, new) in new.into_iter().enumerate() {
            aliases.push((slot * params.len() + index, results.len()));
            results.push(new);
        }
    }
    net.b.end(&results);
    Training { module: net.b.finish(), state, inputs, aliases }
}

/// The new weight and moments.
fn update(
    b: &mut Builder,
    optimizer: Optimizer,
    weight: ValueId,
    moments: &[ValueId],
    gradient: ValueId,
) -> Result<Vec<ValueId>> {
    const RATE: f64 = 1e-3;
    let scaled = |b: &mut Builder, x, factor| b.binary_scalar(BinaryFn::Mul, x, factor);
    match optimizer {
        Optimizer::Sgd { momentum } => {
            let kept = scaled(b, moments[0], momentum)?;
            let velocity = b.add(kept, gradient)?;
            let change = scaled(b, velocity, RATE)?;
            Ok(vec![b.sub(weight, change)?, velocity])
        }
        Optimizer::AdamW => {
            let (kept, new) = (scaled(b, moments[0], 0.9)?, scaled(b, gradient, 0.1)?);
            let first = b.add(kept, new)?;
            let square = b.mul(gradient, gradient)?;
            let (kept, new) = (scaled(b, moments[1], 0.999)?, scaled(b, square, 0.001)?);
            let second = b.add(kept, new)?;
            let root = b.sqrt(second)?;
            let root = b.binary_scalar(BinaryFn::Add, root, 1e-8)?;
            let change = b.div(first, root)?;
            let change = scaled(b, change, RATE)?;
            let decayed = scaled(b, weight, 1.0 - RATE * 0.01)?;
            Ok(vec![b.sub(decayed, change)?, first, second])
        }
    }
}

/// The mean over rows of the cross entropy between `[rows, classes]` and rows of ones and zeros.
fn cross_entropy(b: &mut Builder, x: ValueId, targets: ValueId) -> Result<ValueId> {
    let logs = b.log_softmax(x, 1)?;
    let taken = b.mul(logs, targets)?;
    let sum = b.reduce(ReduceFn::Sum, taken, &[0, 1])?;
    let rows = b.ty(x).dims[0].known().expect("sizes are numbers");
    b.binary_scalar(BinaryFn::Div, sum, -(rows as f64))
}

fn one_hot(rows: u64, classes: u64) -> Tensor {
    let mut tensor = Tensor::zeros(DType::F32, [rows, classes]);
    (0..rows).for_each(|row| tensor.set_f64((row * classes + (row * 37 + 11) % classes) as usize, 1.0));
    tensor
}

fn resnet50() -> Training {
    let batch = 16;
    let inputs = vec![normal(1000, &[batch, 3, 224, 224], 0.0, 1.0), one_hot(batch, 1000)];
    training(inputs, Optimizer::Sgd { momentum: 0.9 }, |n, args| {
        let x = n.conv(args[0], 64, 7, 2, true)?;
        let pool = ReduceWindow {
            window: vec![1, 1, 3, 3],
            strides: vec![1, 1, 2, 2],
            padding: vec![(0, 0), (0, 0), (1, 1), (1, 1)],
            dilation: vec![1; 4],
            func: ReduceFn::Max,
        };
        let mut x = n.b.reduce_window(x, pool)?;
        let mut from = 64;
        for (width, blocks, stride) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
            for block in 0..blocks {
                let stride = if block == 0 { stride } else { 1 };
                let y = n.conv(x, width, 1, 1, true)?;
                let y = n.conv(y, width, 3, stride, true)?;
                let y = n.conv(y, width * 4, 1, 1, false)?;
                let short = if from == width * 4 { x } else { n.conv(x, width * 4, 1, stride, false)? };
                let sum = n.b.add(y, short)?;
                x = n.b.relu(sum)?;
                from = width * 4;
            }
        }
        let x = n.b.reduce(ReduceFn::Sum, x, &[2, 3])?;
        let x = n.b.binary_scalar(BinaryFn::Div, x, 49.0)?;
        let x = n.linear(x, 1000)?;
        cross_entropy(&mut n.b, x, args[1])
    })
}

fn bert_base(dropped: f64) -> Training {
    let (batch, sequence, hidden, heads) = (8, 128, 768, 12);
    let ids: Vec<i128> = (0..batch * sequence).map(|at| i128::from(at * 7919 % 30522)).collect();
    let ids = Tensor::from_ints(DType::I32, [batch, sequence], &ids);
    let seed = Tensor::from_ints(DType::U32, [2], &[7, 0]);
    let inputs = vec![ids, one_hot(batch, 2), seed];
    training(inputs, Optimizer::AdamW, |n, args| {
        n.noise = (dropped > 0.0).then_some((args[2], dropped));
        let words = n.weight(&[30522, hidden], 0.0, 0.02);
        let positions = n.weight(&[512, hidden], 0.0, 0.02);
        let words = n.b.gather(words, args[0], 0)?;
        let slice = Slice { begin: vec![0, 0], end: known_dims(&[sequence, hidden]), step: vec![1, 1] };
        let positions = n.b.slice(positions, slice)?;
        let positions = n.b.broadcast_trailing(positions, n.b.ty(words).dims.clone())?;
        let x = n.b.add(words, positions)?;
        let x = n.layer_norm(x)?;
        let mut x = n.dropout(x)?;
        for _ in 0..12 {
            x = bert_layer(n, x, [batch, sequence, heads, hidden / heads])?;
        }
        let first = Slice { begin: vec![0; 3], end: known_dims(&[batch, 1, hidden]), step: vec![1; 3] };
        let first = n.b.slice(x, first)?;
        let first = n.b.reshape(first, [batch, hidden])?;
        let pooled = n.linear(first, hidden)?;
        let pooled = n.b.tanh(pooled)?;
        let logits = n.linear(pooled, 2)?;
        cross_entropy(&mut n.b, logits, args[1])
    })
}

fn bert_layer(n: &mut Net, x: ValueId, sizes: [u64; 4]) -> Result<ValueId> {
    let [batch, sequence, heads, size] = sizes;
    let mut parts = Vec::new();
    for _ in 0..3 {
        let part = n.linear(x, heads * size)?;
        let part = n.b.reshape(part, sizes)?;
        parts.push(n.b.transpose(part, &[0, 2, 1, 3])?);
    }
    let keys = n.b.transpose(parts[1], &[0, 1, 3, 2])?;
    let scores = n.b.matmul(parts[0], keys)?;
    let scores = n.b.binary_scalar(BinaryFn::Mul, scores, (size as f64).powf(-0.5))?;
    let weights = n.b.softmax(scores, 3)?;
    let weights = n.dropout(weights)?;
    let mixed = n.b.matmul(weights, parts[2])?;
    let mixed = n.b.transpose(mixed, &[0, 2, 1, 3])?;
    let mixed = n.b.reshape(mixed, [batch, sequence, heads * size])?;
    let attended = n.linear(mixed, heads * size)?;
    let attended = n.dropout(attended)?;
    let x = n.b.add(x, attended)?;
    let x = n.layer_norm(x)?;
    let wide = n.linear(x, 4 * heads * size)?;
    let wide = n.b.gelu(wide)?;
    let narrow = n.linear(wide, heads * size)?;
    let narrow = n.dropout(narrow)?;
    let sum = n.b.add(x, narrow)?;
    n.layer_norm(sum)
}

fn lstm() -> Training {
    let (steps, batch, size) = (64, 32, 512);
    let inputs = vec![normal(1000, &[batch, steps, size], 0.0, 1.0)];
    training(inputs, Optimizer::Sgd { momentum: 0.9 }, |n, args| {
        let mut x = n.b.transpose(args[0], &[1, 0, 2])?;
        for _ in 0..2 {
            x = lstm_layer(n, x, [steps, batch, size])?;
        }
        let square = n.b.mul(x, x)?;
        let sum = n.b.reduce(ReduceFn::Sum, square, &[0, 1, 2])?;
        n.b.binary_scalar(BinaryFn::Div, sum, (steps * batch * size) as f64)
    })
}

/// `[steps, batch, size]` to the states of all steps: the input's products at once, then a repeat.
fn lstm_layer(n: &mut Net, x: ValueId, [steps, batch, size]: [u64; 3]) -> Result<ValueId> {
    let products = n.linear(x, 4 * size)?;
    let weight = n.weight(&[4 * size, size], 0.0, (1.0 / size as f64).sqrt());
    let bias = n.weight(&[4 * size], 0.0, 0.02);
    let stack = n.b.splat(&ty(&[steps, batch, size]), 0.0)?;
    let state = n.b.splat(&ty(&[batch, size]), 0.0)?;
    let carried = [products, weight, bias, stack, state, state];
    let body = lstm_step(&mut n.b, &carried)?;
    Ok(n.b.insert(Op::Repeat { count: steps, body }, &carried)?[3])
}

fn lstm_step(b: &mut Builder, carried: &[ValueId]) -> Result<FuncId> {
    let types: Vec<TensorType> = carried.iter().map(|&value| b.ty(value).clone()).collect();
    b.begin(&b.unique_func_name("lstm_step"));
    let counter = b.param("step", TensorType::scalar(DType::I32));
    let params: Vec<ValueId> = types.into_iter().map(|ty| b.param("", ty)).collect();
    let &[products, weight, bias, stack, hidden, memory] = params.as_slice() else { unreachable!("six") };
    let product = b.dot(hidden, weight, Dot { contract: vec![(1, 1)], ..Dot::default() })?;
    let bias = b.broadcast_trailing(bias, b.ty(product).dims.clone())?;
    let product = b.add(product, bias)?;
    let x = b.gather(products, counter, 0)?;
    let sum = b.add(x, product)?;
    let dims = b.ty(hidden).dims.clone();
    let [batch, size] = [0, 1].map(|axis| dims[axis].known().expect("sizes are numbers"));
    let mut gates = Vec::new();
    for which in 0..4 {
        let slice = Slice {
            begin: vec![0, which * size],
            end: known_dims(&[batch, (which + 1) * size]),
            step: vec![1, 1],
        };
        let gate = b.slice(sum, slice)?;
        gates.push(if which == 2 { b.tanh(gate)? } else { b.sigmoid(gate)? });
    }
    let kept = b.mul(gates[1], memory)?;
    let new = b.mul(gates[0], gates[2])?;
    let memory = b.add(kept, new)?;
    let shown = b.tanh(memory)?;
    let hidden = b.mul(gates[3], shown)?;
    let row = b.reshape(counter, [1u64])?;
    let update = b.reshape(hidden, [1, batch, size])?;
    let stack = b.scatter(stack, row, update, 0, None)?;
    Ok(b.end(&[products, params[1], params[2], stack, hidden, memory]))
}

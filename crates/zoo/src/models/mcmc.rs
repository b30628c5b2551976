//! Markov chain Monte Carlo: Hamiltonian dynamics sample the posterior of a logistic regression with normal
//! priors. Many chains side by side, every draw on the device.

use crate::net::Net;
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result};
use pando_graph::{Builder, Distribution, Dot, FuncId, Op, TensorType, ValueId};

const LEAPFROG_STEPS: u64 = 10;
const STEP_SIZE: f64 = 0.05;

/// The labelled points, `[N, D]` and `[N]`.
type Data = [ValueId; 2];

/// Position and momentum, `[chains, D]` each.
type Phase = [ValueId; 2];

pub(crate) fn build(n: &mut Net) -> Result<Vec<ValueId>> {
    let [points, features, chains, samples] =
        ["points", "features", "chains", "samples"].map(|name| n.size(name));
    let data = [n.input("points", &[points, features]), n.input("labels", &[points])];
    let position = n.input("start", &[chains, features]);
    let seed = n.b.param("seed", TensorType::new(DType::U32, [2u64]));
    let stack = n.b.splat(&TensorType::new(n.dtype, [samples, chains, features]), 0.0)?;
    let accepted = n.b.splat(&TensorType::new(n.dtype, [chains]), 0.0)?;
    let carried = [data[0], data[1], seed, position, stack, accepted];
    let body = sample(&mut n.b, &carried)?;
    let results = n.b.insert(Op::Repeat { count: samples, body }, &carried)?;
    let (stack, accepted) = (results[4], results[5]);
    let mean = n.mean(stack, &[0, 1])?;
    let rate = n.scaled(accepted, 1.0 / samples as f64)?;
    Ok(vec![n.named("samples", stack), n.named("mean", mean), n.named("acceptance", rate)])
}

/// A function of the types of the values that a repeat carries, after the iteration number.
fn body(
    b: &mut Builder,
    name: &str,
    carried: &[ValueId],
    f: impl FnOnce(&mut Builder, ValueId, &[ValueId]) -> Result<Vec<ValueId>>,
) -> Result<FuncId> {
    let types: Vec<TensorType> = carried.iter().map(|&value| b.ty(value).clone()).collect();
    b.begin(&b.unique_func_name(name));
    let counter = b.param("iteration", TensorType::scalar(DType::I32));
    let params: Vec<ValueId> = types.into_iter().map(|ty| b.param("", ty)).collect();
    let results = f(b, counter, &params).inspect_err(|_| b.abandon())?;
    Ok(b.end(&results))
}

/// One sample of every chain: a random momentum, a path, and whether its end is taken.
fn sample(b: &mut Builder, carried: &[ValueId]) -> Result<FuncId> {
    body(b, "sample", carried, |b, counter, params| {
        let [x, y, seed, position, stack, accepted] = params[..] else { unreachable!("six are carried") };
        let dtype = b.ty(position).dtype;
        let momentum_dims = b.ty(position).dims.clone();
        let chance_dims = b.ty(accepted).dims.clone();
        let normal = Op::Random { distribution: Distribution::Normal, dtype, dims: momentum_dims };
        let uniform = Op::Random { distribution: Distribution::Uniform, dtype, dims: chance_dims };
        let seeds = [draw_seed(b, seed, counter, 0)?, draw_seed(b, seed, counter, 1)?];
        let momentum = b.op(normal, &[seeds[0]])?;
        let chance = b.op(uniform, &[seeds[1]])?;
        let end = path(b, [x, y], [position, momentum])?;
        let before = energy(b, [x, y], [position, momentum])?;
        let after = energy(b, [x, y], end)?;
        let gain = b.sub(before, after)?;
        b.name(gain, "gain");
        let chance = b.log(chance)?;
        let taken = b.compare(CompareFn::Lt, chance, gain)?;
        let wide = b.broadcast(taken, b.ty(position).dims.clone(), &[0])?;
        let position = b.select(wide, end[0], position)?;
        b.name(position, "position");
        let taken = b.convert(taken, dtype)?;
        let accepted = b.add(accepted, taken)?;
        let row = b.reshape(counter, [1u64])?;
        let mut dims = b.ty(position).dims.clone();
        dims.insert(0, 1.into());
        let update = b.reshape(position, dims)?;
        let stack = b.scatter(stack, row, update, 0, None)?;
        Ok(vec![x, y, seed, position, stack, accepted])
    })
}

/// A seed for each use in each iteration: the low word plus `2 · iteration + which`.
fn draw_seed(b: &mut Builder, seed: ValueId, counter: ValueId, which: u64) -> Result<ValueId> {
    let counter = b.convert(counter, DType::U32)?;
    let twice = b.binary_scalar(BinaryFn::Mul, counter, 2.0)?;
    let offset = b.binary_scalar(BinaryFn::Add, twice, which as f64)?;
    let low = b.reshape(offset, [1u64])?;
    let zero = b.splat_like(low, 0.0)?;
    let offset = b.concat(&[low, zero], 0)?;
    b.add(seed, offset)
}

/// Leapfrog: half a step of the momentum, then steps of both, the last of the momentum by half again.
fn path(b: &mut Builder, data: Data, [position, momentum]: Phase) -> Result<Phase> {
    let momentum = pushed(b, data, [position, momentum], STEP_SIZE / 2.0)?;
    let carried = [data[0], data[1], position, momentum];
    let body = body(b, "leapfrog", &carried, |b, _, params| {
        let [x, y, position, momentum] = params[..] else { unreachable!("four are carried") };
        let moved = b.binary_scalar(BinaryFn::Mul, momentum, STEP_SIZE)?;
        let position = b.add(position, moved)?;
        let momentum = pushed(b, [x, y], [position, momentum], STEP_SIZE)?;
        Ok(vec![x, y, position, momentum])
    })?;
    let results = b.insert(Op::Repeat { count: LEAPFROG_STEPS, body }, &carried)?;
    let momentum = pushed(b, data, [results[2], results[3]], -STEP_SIZE / 2.0)?;
    Ok([results[2], momentum])
}

/// The momentum after a time under the force: the gradient of the log posterior,
/// `(labels - sigmoid(position · pointsᵀ)) · points - position`.
fn pushed(b: &mut Builder, [x, y]: Data, [position, momentum]: Phase, time: f64) -> Result<ValueId> {
    let logits = logits(b, x, position)?;
    let probability = b.sigmoid(logits)?;
    let labels = b.broadcast(y, b.ty(logits).dims.clone(), &[1])?;
    let rest = b.sub(labels, probability)?;
    let force = b.dot(rest, x, Dot { contract: vec![(1, 0)], ..Dot::default() })?;
    b.name(force, "force");
    let force = b.sub(force, position)?;
    let change = b.binary_scalar(BinaryFn::Mul, force, time)?;
    b.add(momentum, change)
}

/// `[chains, N]`
fn logits(b: &mut Builder, x: ValueId, position: ValueId) -> Result<ValueId> {
    let logits = b.dot(position, x, Dot { contract: vec![(1, 1)], ..Dot::default() })?;
    b.name(logits, "logits");
    Ok(logits)
}

/// Of each chain: `Σ (softplus(logits) - labels · logits) + (|position|² + |momentum|²) / 2`.
fn energy(b: &mut Builder, [x, y]: Data, [position, momentum]: Phase) -> Result<ValueId> {
    let logits = logits(b, x, position)?;
    let labels = b.broadcast(y, b.ty(logits).dims.clone(), &[1])?;
    // softplus(l) = max(l, 0) + log(1 + exp(-|l|))
    let magnitude = b.abs(logits)?;
    let negative = b.neg(magnitude)?;
    let power = b.exp(negative)?;
    let log = b.unary(pando_base::UnaryFn::Log1p, power)?;
    let positive = b.relu(logits)?;
    let softplus = b.add(positive, log)?;
    let agreed = b.mul(labels, logits)?;
    let loss = b.sub(softplus, agreed)?;
    let loss = b.reduce(ReduceFn::Sum, loss, &[1])?;
    let squares = [squared(b, position)?, squared(b, momentum)?];
    let squares = b.add(squares[0], squares[1])?;
    let half = b.binary_scalar(BinaryFn::Mul, squares, 0.5)?;
    b.add(loss, half)
}

fn squared(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let square = b.mul(x, x)?;
    b.reduce(ReduceFn::Sum, square, &[1])
}

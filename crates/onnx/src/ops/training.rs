//! Optimiser steps of `ai.onnx.preview.training`. Inputs: rate, count of updates, then all parameters,
//! gradients and states; outputs: new parameters, then new states.

use crate::ctx::Ctx;
use crate::errors;
use crate::import::Value;
use pando_base::{BinaryFn, CompareFn, Result};
use pando_graph::ValueId;

/// One parameter's operands: itself, its gradient, its states.
type Update = fn(&mut Ctx, ValueId, ValueId, &[ValueId]) -> Result<Vec<ValueId>>;

fn each(c: &mut Ctx, states: usize, update: Update) -> Result<Vec<Value>> {
    let all = c.all()?;
    let groups = states + 2;
    if all.len() < 2 || (all.len() - 2) % groups != 0 {
        return Err(errors::invalid("the number of inputs does not fit"));
    }
    let (count, operands) = ((all.len() - 2) / groups, &all[2..]);
    let mut columns: Vec<Vec<ValueId>> = vec![vec![]; states + 1];
    for parameter in 0..count {
        let own: Vec<ValueId> = (0..groups).map(|group| operands[group * count + parameter]).collect();
        let x = own[0];
        let norm = c.times_n(x, c.float("norm_coefficient", 0.0))?;
        let gradient = c.b.add(norm, own[1])?;
        let results = update(c, x, gradient, &own[2..])?;
        columns.iter_mut().zip(results).for_each(|(column, result)| column.push(result));
    }
    Ok(columns.into_iter().flatten().map(|id| Value::tensor(c.b, id)).collect())
}

/// `a · x + b · y`
fn blend(c: &mut Ctx, a: f64, x: ValueId, b: f64, y: ValueId) -> Result<ValueId> {
    let (x, y) = (c.times_n(x, a)?, c.times_n(y, b)?);
    c.b.add(x, y)
}

pub(super) fn adagrad(c: &mut Ctx) -> Result<Vec<Value>> {
    each(c, 1, |c, x, gradient, states| {
        let (rate, count) = (c.x(0)?, c.x(1)?);
        let count = c.b.convert(count, c.dtype(rate))?;
        let decay = c.times_n(count, c.float("decay_factor", 0.0))?;
        let below = c.plus_n(decay, 1.0)?;
        let rate = c.over(rate, below)?;
        let square = c.b.mul(gradient, gradient)?;
        let state = c.b.add(states[0], square)?;
        let root = c.b.sqrt(state)?;
        let root = c.plus_n(root, c.float("epsilon", 0.0))?;
        let step = c.times(rate, gradient)?;
        let step = c.b.div(step, root)?;
        Ok(vec![c.b.sub(x, step)?, state])
    })
}

pub(super) fn momentum(c: &mut Ctx) -> Result<Vec<Value>> {
    each(c, 1, |c, x, gradient, states| {
        let (rate, count) = (c.x(0)?, c.x(1)?);
        let alpha = c.float("alpha", 0.0);
        let started = c.cmp_n(CompareFn::Gt, count, 0.0)?;
        let (beta, one) = (c.b.splat_like(rate, c.float("beta", 0.0))?, c.b.splat_like(rate, 1.0)?);
        let beta = c.choose(started, beta, one)?;
        let (kept, new) = (c.times_n(states[0], alpha)?, c.times(gradient, beta)?);
        let state = c.b.add(kept, new)?;
        let direction = match c.string("mode", "standard").as_str() {
            "nesterov" => blend(c, 1.0, gradient, alpha, state)?,
            _ => state,
        };
        let step = c.times(rate, direction)?;
        Ok(vec![c.b.sub(x, step)?, state])
    })
}

pub(super) fn adam(c: &mut Ctx) -> Result<Vec<Value>> {
    each(c, 2, |c, x, gradient, states| {
        let (rate, count) = (c.x(0)?, c.x(1)?);
        let (alpha, beta) = (c.float("alpha", 0.9), c.float("beta", 0.999));
        let mean = blend(c, alpha, states[0], 1.0 - alpha, gradient)?;
        let square = c.b.mul(gradient, gradient)?;
        let spread = blend(c, beta, states[1], 1.0 - beta, square)?;
        let exponent = c.b.convert(count, c.dtype(rate))?;
        let rest = |c: &mut Ctx, base: f64| -> Result<ValueId> {
            let base = c.b.splat_like(exponent, base)?;
            let power = c.bin(BinaryFn::Pow, base, exponent)?;
            c.n_minus(1.0, power)
        };
        let (above, below) = (rest(c, beta)?, rest(c, alpha)?);
        let root = c.b.sqrt(above)?;
        let corrected = c.times(rate, root)?;
        let corrected = c.over(corrected, below)?;
        let started = c.cmp_n(CompareFn::Gt, count, 0.0)?;
        let rate = c.choose(started, corrected, rate)?;
        let root = c.b.sqrt(spread)?;
        let root = c.plus_n(root, c.float("epsilon", 0.0))?;
        let step = c.times(rate, mean)?;
        let step = c.b.div(step, root)?;
        let moved = c.b.sub(x, step)?;
        let moved = c.times_n(moved, 1.0 - c.float("norm_coefficient_post", 0.0))?;
        Ok(vec![moved, mean, spread])
    })
}

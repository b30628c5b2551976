//! Operators that carry a state from call to call: linear attention and the causal convolution.

use super::attention::split_heads;
use crate::ctx::Ctx;
use crate::elem::Elem;
use crate::errors;
use crate::import::subgraph::outline;
use crate::import::{TensorValue, Value};
use pando_base::{DType, Result};
use pando_graph::{Conv, Dim, Dot, Op, TensorType, ValueId};

/// A convolution per channel that sees the past only; the state is what it needs of the past.
pub(super) fn causal_conv(c: &mut Ctx) -> Result<Vec<Value>> {
    let (x, w, bias) = (c.x(0)?, c.x(1)?, c.opt(2)?);
    c.need_rank(x, 3..=3)?;
    c.need_rank(w, 3..=3)?;
    let (dtype, taps, channels) = (c.dtype(x), c.size(w, 2)?, c.size(x, 1)?);
    let dims = c.dims(x);
    let past = match c.opt(3)? {
        Some(past) => past,
        None => {
            let ty =
                TensorType::new(dtype, [dims[0].clone(), channels.into(), taps.saturating_sub(1).into()]);
            c.b.splat(&ty, 0.0)?
        }
    };
    let padded = c.b.concat(&[past, x], 2)?;
    let result = c.b.conv(padded, w, Conv { groups: channels, ..Conv::plain(1) })?;
    let mut result = super::conv::with_bias(c, result, bias)?;
    if matches!(c.string("activation", "none").as_str(), "silu" | "swish") {
        let precise = c.b.convert(result, DType::F32)?;
        let active = c.b.silu(precise)?;
        result = c.b.convert(active, dtype)?;
    }
    let length = c.size(padded, 2)?;
    let state = c.part(padded, 2, length + 1 - taps, length)?;
    Ok([result, state].map(|id| Value::tensor(c.b, id)).to_vec())
}

/// A state per head, `[B, H, D, E]`, that decays, forgets what a key held, and takes in key and value.
pub(super) fn linear_attention(c: &mut Ctx) -> Result<Vec<Value>> {
    let heads = |c: &Ctx, name: &str| {
        c.int_opt(name)
            .and_then(|n| u64::try_from(n).ok())
            .filter(|&n| n > 0)
            .ok_or_else(|| errors::missing_attribute(name))
    };
    let (heads, shared) = (heads(c, "q_num_heads")?, heads(c, "kv_num_heads")?);
    let dtype = c.dtype(c.x(0)?);
    let by_step = |c: &mut Ctx, position: usize, heads: u64| -> Result<ValueId> {
        let x = c.x(position)?;
        let x = c.b.convert(x, DType::F32)?;
        let split = split_heads(c, x, heads)?;
        c.b.transpose(split, &[2, 0, 1, 3])
    };
    let (q, k, v) = (by_step(c, 0, heads)?, by_step(c, 1, shared)?, by_step(c, 2, shared)?);
    let (size, width, steps) = (c.size(q, 3)?, c.size(v, 3)?, c.size(q, 0)?);
    let batch = c.dims(q)[1].clone();
    let mut fixed = vec![q, k, v];
    let has_decay = c.opt(4)?.is_some();
    if has_decay {
        fixed.push(by_step(c, 4, shared)?);
    }
    if let Some(beta) = c.opt(5)? {
        let own = c.size(beta, 2)?;
        fixed.push(by_step(c, 5, own)?);
    }
    let state_ty = TensorType::new(DType::F32, [batch.clone(), shared.into(), size.into(), width.into()]);
    let (state, state_dtype) = match c.opt(3)? {
        Some(past) => (c.b.convert(past, DType::F32)?, c.dtype(past)),
        None => (c.b.splat(&state_ty, 0.0)?, dtype),
    };
    let stack = TensorType::new(DType::F32, [steps.into(), batch, heads.into(), width.into()]);
    let stack = c.b.splat(&stack, 0.0)?;
    let scale = c.float_opt("scale").filter(|&s| s != 0.0).unwrap_or(1.0 / (size as f64).sqrt());
    let operands: Vec<ValueId> = fixed.iter().copied().chain([state, stack]).collect();
    let step = Step { fixed: fixed.len(), has_decay, heads, scale };
    let body = step.body(c, &operands)?;
    let results = c.b.insert(Op::Repeat { count: steps, body }, &operands)?;
    let (state, stack) = (results[fixed.len()], results[fixed.len() + 1]);
    let moved = c.b.transpose(stack, &[1, 0, 2, 3])?;
    let output = c.flatten(moved, 2, 4)?;
    let (output, state) = (c.b.convert(output, dtype)?, c.b.convert(state, state_dtype)?);
    Ok([output, state].map(|id| Value::tensor(c.b, id)).to_vec())
}

/// One step of linear attention over queries, keys, values, and perhaps decays and strengths.
struct Step {
    fixed: usize,
    has_decay: bool,
    heads: u64,
    scale: f64,
}

impl Step {
    fn body(&self, c: &mut Ctx, operands: &[ValueId]) -> Result<pando_graph::FuncId> {
        let mut types = vec![TensorType::scalar(DType::I32)];
        types.extend(operands.iter().map(|&id| c.b.ty(id).clone()));
        let (scope, node, version) = (c.scope, c.node, c.version);
        let built = outline(c.b, "linear_attention_step", &types, |b, params| {
            let mut c = Ctx { b, scope, node, inputs: vec![], version };
            let (counter, params) = (params[0], &params[1..]);
            let mut rows = Vec::new();
            for &value in &params[..self.fixed] {
                rows.push(c.b.gather(value, counter, 0)?);
            }
            let (state, output) = self.once(&mut c, &rows, params[self.fixed])?;
            let row = c.b.reshape(counter, [1u64])?;
            let update = c.unsqueeze(output, &[0])?;
            let stack = c.b.scatter(params[self.fixed + 1], row, update, 0, None)?;
            let results = params[..self.fixed].iter().copied().chain([state, stack]);
            Ok(results.map(|id| TensorValue::new(id, Elem::FLOAT)).collect())
        })?;
        Ok(built.func)
    }

    fn once(&self, c: &mut Ctx, rows: &[ValueId], state: ValueId) -> Result<(ValueId, ValueId)> {
        let (q, k, mut v, mut state) = (rows[0], rows[1], rows[2], state);
        let batch = vec![(0, 0), (1, 1)];
        if self.has_decay {
            let factor = c.b.exp(rows[3])?;
            let factor = c.unsqueeze(factor, &[3])?;
            state = c.times(state, factor)?;
        }
        if self.fixed > 3 + usize::from(self.has_decay) {
            let held =
                c.b.dot(k, state, Dot { batch: batch.clone(), contract: vec![(2, 2)], dtype: None })?;
            let missing = c.b.sub(v, held)?;
            v = c.times(missing, rows[self.fixed - 1])?;
        }
        let (column, row) = (c.unsqueeze(k, &[3])?, c.unsqueeze(v, &[2])?);
        let more = c.times(column, row)?;
        state = c.b.add(state, more)?;
        let read = super::attention::repeat_heads(c, state, self.heads)?;
        let output = c.b.dot(q, read, Dot { batch, contract: vec![(2, 2)], dtype: None })?;
        debug_assert_ne!(c.dims(output).first(), Some(&Dim::Known(0)));
        Ok((state, c.times_n(output, self.scale)?))
    }
}

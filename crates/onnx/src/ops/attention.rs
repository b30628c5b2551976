//! Attention and rotary embeddings.

use crate::ctx::Ctx;
use crate::elem::Elem;
use crate::errors;
use crate::import::{Size, Value, product, sizes_value};
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result};
use pando_graph::{Dim, Dims, Dot, TensorType, ValueId};

/// Operands by head: queries `[B, H, S, D]`, keys `[B, H, T, D]`, values `[B, H, T, E]`, and what is added
/// to the scores, `[…, S, T]`, where minus infinity masks.
pub(super) struct Heads {
    pub q: ValueId,
    pub k: ValueId,
    pub v: ValueId,
    pub bias: Option<ValueId>,
    pub scale: f64,
    pub softcap: f64,
    /// Type of the softmax if it is another.
    pub precision: Option<DType>,
}

/// The result and the scores at each stage.
pub(super) struct Attended {
    pub output: ValueId,
    scores: ValueId,
    capped: ValueId,
    biased: ValueId,
    weights: ValueId,
}

/// `softmax(q · kᵀ · scale + bias) · v`. Both factors carry half of the scale, as the standard demands; rows
/// in which everything is masked give zeros.
fn attend(c: &mut Ctx, heads: &Heads) -> Result<Attended> {
    let dtype = c.dtype(heads.q);
    for operand in [heads.q, heads.k, heads.v] {
        c.need_rank(operand, 4..=4)?;
    }
    let half = heads.scale.abs().sqrt();
    let q = c.times_n(heads.q, half * heads.scale.signum())?;
    let k = c.times_n(heads.k, half)?;
    let batch = vec![(0, 0), (1, 1)];
    let scores = c.b.dot(q, k, Dot { batch: batch.clone(), contract: vec![(3, 3)], dtype: None })?;
    let capped = if heads.softcap > 0.0 { softcap(c, scores, heads.softcap)? } else { scores };
    let biased = match heads.bias {
        Some(bias) => c.plus(capped, bias)?,
        None => capped,
    };
    let precise = c.b.convert(biased, heads.precision.unwrap_or(dtype))?;
    let mut weights = c.b.softmax(precise, 3)?;
    if let Some(bias) = heads.bias {
        weights = without_masked_rows(c, weights, bias)?;
    }
    let weights = c.b.convert(weights, dtype)?;
    let output = c.b.dot(weights, heads.v, Dot { batch, contract: vec![(3, 2)], dtype: None })?;
    Ok(Attended { output, scores, capped, biased, weights })
}

fn softcap(c: &mut Ctx, scores: ValueId, cap: f64) -> Result<ValueId> {
    let scaled = c.over_n(scores, cap)?;
    let tanh = c.b.tanh(scaled)?;
    c.times_n(tanh, cap)
}

fn without_masked_rows(c: &mut Ctx, weights: ValueId, bias: ValueId) -> Result<ValueId> {
    let last = c.rank(bias) - 1;
    let most = c.reduce_keep(ReduceFn::Max, bias, &[last])?;
    let masked = c.cmp_n(CompareFn::Eq, most, f64::NEG_INFINITY)?;
    let zero = c.b.splat_like(weights, 0.0)?;
    c.choose(masked, zero, weights)
}

/// As a composite that other back ends may know: `attention` of q, k, v and perhaps a bias.
pub(super) fn attend_as_composite(c: &mut Ctx, heads: Heads) -> Result<ValueId> {
    let args: Vec<ValueId> = [heads.q, heads.k, heads.v].into_iter().chain(heads.bias).collect();
    let key = format!("scale={} softcap={} precision={:?}", heads.scale, heads.softcap, heads.precision);
    let (scope, node, version) = (c.scope, c.node, c.version);
    c.b.composite("attention", &key, &args, |b, params| {
        let mut inner = Ctx { b, scope, node, inputs: vec![], version };
        let bias = params.get(3).copied();
        let heads = Heads { q: params[0], k: params[1], v: params[2], bias, ..heads };
        Ok(attend(&mut inner, &heads)?.output)
    })
}

/// `[B, S, H·D]` to `[B, H, S, D]`.
pub(super) fn split_heads(c: &mut Ctx, x: ValueId, heads: u64) -> Result<ValueId> {
    c.need_rank(x, 3..=3)?;
    let (dims, hidden) = (c.dims(x), c.size(x, 2)?);
    if heads == 0 || hidden % heads != 0 {
        return Err(errors::invalid(format!("{heads} heads do not divide {hidden}")));
    }
    let split = c.b.reshape(x, [dims[0].clone(), dims[1].clone(), heads.into(), (hidden / heads).into()])?;
    c.b.transpose(split, &[0, 2, 1, 3])
}

/// `[B, H, S, D]` to `[B, S, H·D]`.
pub(super) fn merge_heads(c: &mut Ctx, x: ValueId) -> Result<ValueId> {
    c.need_rank(x, 4..=4)?;
    let moved = c.b.transpose(x, &[0, 2, 1, 3])?;
    c.flatten(moved, 2, 4)
}

/// Each head several times in a row, where queries have more heads than keys.
pub(super) fn repeat_heads(c: &mut Ctx, x: ValueId, heads: u64) -> Result<ValueId> {
    c.need_rank(x, 4..=4)?;
    let (dims, own) = (c.dims(x), c.size(x, 1)?);
    if own == heads || own == 0 || !heads.is_multiple_of(own) {
        return Ok(x);
    }
    let wide = Dims::from_iter([
        dims[0].clone(),
        own.into(),
        (heads / own).into(),
        dims[2].clone(),
        dims[3].clone(),
    ]);
    let spread = c.b.broadcast(x, wide, &[0, 1, 3, 4])?;
    c.flatten(spread, 1, 3)
}

/// `0` where allowed, minus infinity elsewhere.
pub(super) fn bias_of(c: &mut Ctx, allowed: ValueId, dtype: DType) -> Result<ValueId> {
    let ty = TensorType { dtype, dims: c.dims(allowed) };
    let (zero, never) = (c.b.splat(&ty, 0.0)?, c.b.splat(&ty, f64::NEG_INFINITY)?);
    c.b.select(allowed, zero, never)
}

/// Query positions in the order of the keys, and key positions; `offset` comes before the first query.
pub(super) fn positions(c: &mut Ctx, s: &Dim, t: &Dim, offset: ValueId) -> Result<(ValueId, ValueId)> {
    let rows = c.b.iota(TensorType::new(DType::I64, [s.clone(), Dim::Known(1)]), 0)?;
    let columns = c.b.iota(TensorType::new(DType::I64, [Dim::Known(1), t.clone()]), 1)?;
    Ok((c.plus(rows, offset)?, columns))
}

pub(super) fn attention(c: &mut Ctx) -> Result<Vec<Value>> {
    let (mut q, mut k, mut v) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let flat = c.rank(q) == 3;
    if flat {
        let heads = |c: &Ctx, name: &str| {
            c.int_opt(name).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| errors::missing_attribute(name))
        };
        let (own, shared) = (heads(c, "q_num_heads")?, heads(c, "kv_num_heads")?);
        (q, k, v) = (split_heads(c, q, own)?, split_heads(c, k, shared)?, split_heads(c, v, shared)?);
    }
    for operand in [q, k, v] {
        c.need_rank(operand, 4..=4)?;
    }
    if let (Some(past_k), Some(past_v)) = (c.opt(4)?, c.opt(5)?) {
        (k, v) = (c.b.concat(&[past_k, k], 2)?, c.b.concat(&[past_v, v], 2)?);
    }
    let presents = [k, v];
    let bias = attention_bias(c, q, k)?;
    let (heads, size) = (c.size(q, 1)?, c.size(q, 3)?);
    (k, v) = (repeat_heads(c, k, heads)?, repeat_heads(c, v, heads)?);
    let precision = c.int_opt("softmax_precision").and_then(|code| Elem(code as i32).dtype());
    let scale = c.float_opt("scale").unwrap_or(1.0 / (size as f64).sqrt());
    let operands = Heads { q, k, v, bias, scale, softcap: c.float("softcap", 0.0), precision };
    let (output, scores) = if c.has_output(3) {
        let all = attend(c, &operands)?;
        let scores = match c.int("qk_matmul_output_mode", 0) {
            0 => all.scores,
            1 => all.capped,
            2 => all.biased,
            _ => all.weights,
        };
        (all.output, Some(scores))
    } else {
        (attend_as_composite(c, operands)?, None)
    };
    let output = if flat { merge_heads(c, output)? } else { output };
    let results = [Some(output), Some(presents[0]), Some(presents[1]), scores];
    Ok(results.into_iter().flatten().map(|id| Value::tensor(c.b, id)).collect())
}

/// Mask, causality, window and padding as one summand.
fn attention_bias(c: &mut Ctx, q: ValueId, k: ValueId) -> Result<Option<ValueId>> {
    if let Some(past) = c.opt(4)? {
        c.need_rank(past, 4..=4)?;
    }
    let (dtype, s, t) = (c.dtype(q), c.dims(q)[2].clone(), c.dims(k)[2].clone());
    let mut bias = match c.opt(3)? {
        Some(mask) => Some(mask_bias(c, mask, &t, dtype)?),
        None => None,
    };
    let lengths = match c.opt(6)? {
        Some(lengths) => {
            let lengths = c.b.convert(lengths, DType::I64)?;
            let count = product(&c.dims(lengths));
            Some(c.b.reshape(lengths, [count, Dim::Known(1), Dim::Known(1), Dim::Known(1)])?)
        }
        None => None,
    };
    let offset = match (c.opt(4)?, lengths) {
        (Some(past), _) => {
            let before = Size::of(&c.dims(past)[2]);
            sizes_value(c.b, &[before], true)?
        }
        (None, Some(lengths)) => {
            let queries = sizes_value(c.b, &[Size::of(&s)], true)?;
            c.minus(lengths, queries)?
        }
        (None, None) => c.ints_const(DType::I64, &[], &[0]),
    };
    let (rows, columns) = positions(c, &s, &t, offset)?;
    let mut conditions = Vec::new();
    if c.flag("is_causal", false) {
        conditions.push(c.cmp(CompareFn::Le, columns, rows)?);
    }
    let (left, right) = (c.int("left_window_size", -1), c.int("right_window_size", -1));
    if left >= 0 {
        let first = c.plus_n(rows, -(left as f64))?;
        conditions.push(c.cmp(CompareFn::Ge, columns, first)?);
    }
    if right >= 0 {
        let last = c.plus_n(rows, right as f64)?;
        conditions.push(c.cmp(CompareFn::Le, columns, last)?);
    }
    if let Some(lengths) = lengths {
        conditions.push(c.cmp(CompareFn::Lt, columns, lengths)?);
    }
    for allowed in conditions {
        let more = bias_of(c, allowed, dtype)?;
        bias = Some(match bias {
            Some(bias) => c.plus(bias, more)?,
            None => more,
        });
    }
    Ok(bias)
}

/// A mask as a summand, its last axis filled up with masked columns.
fn mask_bias(c: &mut Ctx, mask: ValueId, t: &Dim, dtype: DType) -> Result<ValueId> {
    let bias = match c.dtype(mask) {
        DType::Bool => bias_of(c, mask, dtype)?,
        _ => c.b.convert(mask, dtype)?,
    };
    let last = c.rank(bias).checked_sub(1).ok_or_else(|| errors::invalid("the mask is a scalar"))?;
    let missing = match (c.dims(bias)[last].known(), t.known()) {
        (Some(own), Some(t)) if own < t => t - own,
        _ => return Ok(bias),
    };
    let (low, mut high) = (vec![0; last + 1], vec![0; last + 1]);
    high[last] = missing as i64;
    c.pad_with(bias, &low, &high, f64::NEG_INFINITY)
}

/// How rotary embeddings are applied.
pub(super) struct Rotary {
    pub cos: ValueId,
    pub sin: ValueId,
    pub interleaved: bool,
    /// How many of a head's elements turn; 0 is all.
    pub turned: u64,
}

pub(super) fn rotary_embedding(c: &mut Ctx) -> Result<ValueId> {
    let (x, cos, sin, places) = (c.x(0)?, c.x(1)?, c.x(2)?, c.opt(3)?);
    let flat = c.rank(x) == 3;
    let heads = u64::try_from(c.int("num_heads", 0)).unwrap_or(0);
    let split = if flat { split_heads(c, x, heads)? } else { x };
    let (cos, sin) = match places {
        Some(places) => (c.b.gather(cos, places, 0)?, c.b.gather(sin, places, 0)?),
        None => (cos, sin),
    };
    // [B, S, D/2], the same for all heads.
    let (cos, sin) = (c.unsqueeze(cos, &[1])?, c.unsqueeze(sin, &[1])?);
    let turned = u64::try_from(c.int("rotary_embedding_dim", 0)).unwrap_or(0);
    let rotary = Rotary { cos, sin, interleaved: c.flag("interleaved", false), turned };
    let result = rotate(c, split, &rotary)?;
    if flat { merge_heads(c, result) } else { Ok(result) }
}

/// Pairs of elements of `[B, H, S, D]` turned by the angles in `[B or 1, 1, S, turned/2]`.
pub(super) fn rotate(c: &mut Ctx, x: ValueId, rotary: &Rotary) -> Result<ValueId> {
    c.need_rank(x, 4..=4)?;
    let size = c.size(x, 3)?;
    let turned = if rotary.turned == 0 { size } else { rotary.turned.min(size) };
    let part = c.part(x, 3, 0, turned)?;
    let dims = c.dims(part);
    let half = Dim::Known(turned / 2);
    let pairs = match rotary.interleaved {
        true => [half.clone(), Dim::Known(2)],
        false => [Dim::Known(2), half.clone()],
    };
    let axis = if rotary.interleaved { 4 } else { 3 };
    let split = c.b.reshape(part, dims[..3].iter().cloned().chain(pairs).collect::<Dims>())?;
    let (x1, x2) = (c.pick(split, axis, 0)?, c.pick(split, axis, 1)?);
    let mut turn = |a: ValueId, b: ValueId, func: BinaryFn| -> Result<ValueId> {
        let (left, right) = (c.times(a, rotary.cos)?, c.times(b, rotary.sin)?);
        c.bin(func, left, right)
    };
    let real = turn(x1, x2, BinaryFn::Sub)?;
    let imaginary = turn(x2, x1, BinaryFn::Add)?;
    let (real, imaginary) = (c.unsqueeze(real, &[axis])?, c.unsqueeze(imaginary, &[axis])?);
    let joined = c.b.concat(&[real, imaginary], axis)?;
    let joined = c.b.reshape(joined, dims)?;
    if turned == size {
        return Ok(joined);
    }
    let rest = c.part(x, 3, turned, size)?;
    c.b.concat(&[joined, rest], 3)
}

/// Attention whose scores and weights subgraphs change.
pub(super) fn flex_attention(c: &mut Ctx) -> Result<ValueId> {
    let (q, k, v) = (c.x(0)?, c.x(1)?, c.x(2)?);
    for operand in [q, k, v] {
        c.need_rank(operand, 4..=4)?;
    }
    let (dtype, heads, size) = (c.dtype(q), c.size(q, 1)?, c.size(q, 3)?);
    let (k, v) = (repeat_heads(c, k, heads)?, repeat_heads(c, v, heads)?);
    let scale = c.float_opt("scale").unwrap_or(1.0 / (size as f64).sqrt());
    let precision =
        c.int_opt("softmax_precision").and_then(|code| Elem(code as i32).dtype()).unwrap_or(DType::F32);
    let batch = vec![(0, 0), (1, 1)];
    let scores = c.b.dot(q, k, Dot { batch: batch.clone(), contract: vec![(3, 3)], dtype: None })?;
    let scores = c.times_n(scores, scale)?;
    let precise = c.b.convert(scores, precision)?;
    let changed = modified(c, precise, "score_mod")?;
    let weights = c.b.softmax(changed, 3)?;
    let weights = modified(c, weights, "prob_mod")?;
    let weights = c.b.convert(weights, dtype)?;
    c.b.dot(weights, v, Dot { batch, contract: vec![(3, 2)], dtype: None })
}

fn modified(c: &mut Ctx, x: ValueId, name: &str) -> Result<ValueId> {
    if c.attr(name).is_none() {
        return Ok(x);
    }
    let graph = c.graph(name)?;
    let input = Value::tensor(c.b, x);
    match crate::import::subgraph::inline(c.b, c.scope, graph, vec![input])?.first() {
        Some(Value::Tensor(result)) => Ok(result.id),
        _ => Err(errors::wrong_attribute(name, "it gives no tensor")),
    }
}

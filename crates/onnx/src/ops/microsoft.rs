//! Fused operators of `com.microsoft`, as ONNX Runtime's optimiser and exporters write them.

use super::attention::{
    Heads, Rotary, attend_as_composite, bias_of, merge_heads, positions, repeat_heads, rotate, split_heads,
};
use super::norm::{layer_norm_with, rms_norm_with};
use crate::ctx::Ctx;
use crate::errors;
use crate::import::{Size, Value, sizes_value};
use pando_base::{BinaryFn, CompareFn, DType, Result};
use pando_graph::{Dim, Dims, TensorType, ValueId, known_dims};

fn values(c: &Ctx, ids: &[ValueId]) -> Vec<Value> {
    ids.iter().map(|&id| Value::tensor(c.b, id)).collect()
}

/// The sum of an operand, its skip connection and perhaps a bias.
fn skip_sum(c: &mut Ctx, bias: usize) -> Result<ValueId> {
    let (x, skip) = (c.x(0)?, c.x(1)?);
    let sum = c.plus(x, skip)?;
    match c.opt(bias)? {
        Some(bias) => c.plus(sum, bias),
        None => Ok(sum),
    }
}

/// Outputs: the normalised sum, mean and inverse deviation (for training; the sum stands in their place if
/// it is asked for alone), and the sum.
pub(super) fn skip_layer_normalization(c: &mut Ctx) -> Result<Vec<Value>> {
    let sum = skip_sum(c, 4)?;
    let (scale, bias, epsilon) = (c.x(2)?, c.opt(3)?, c.float("epsilon", 1e-12));
    let axis = c.rank(sum).saturating_sub(1);
    let mut results = layer_norm_with(c, sum, Some(scale), bias, axis, epsilon)?;
    results.resize(3, Value::Absent);
    results.push(Value::tensor(c.b, sum));
    Ok(results)
}

pub(super) fn skip_simplified_layer_normalization(c: &mut Ctx) -> Result<Vec<Value>> {
    let sum = skip_sum(c, 3)?;
    let (scale, epsilon) = (c.x(2)?, c.float("epsilon", 1e-6));
    let axis = c.rank(sum).saturating_sub(1);
    let result = rms_norm_with(c, sum, scale, axis, epsilon)?;
    Ok(vec![Value::tensor(c.b, result), Value::Absent, Value::Absent, Value::tensor(c.b, sum)])
}

/// The sum of word, position and segment embeddings, normalised.
pub(super) fn embed_layer_normalization(c: &mut Ctx) -> Result<Vec<Value>> {
    let (places, norm) = (c.opt(8)?, (c.x(5)?, c.opt(6)?));
    embed_layer_norm_of(c, places, norm, |c, table, ids| {
        let table = c.x(table)?;
        c.b.gather(table, ids, 0)
    })
}

/// With ids of places (counted if there are none), the norm's scale and bias, and what looks up rows of the table at an
/// input.
pub(super) fn embed_layer_norm_of(
    c: &mut Ctx,
    places: Option<ValueId>,
    (scale, bias): (ValueId, Option<ValueId>),
    rows: impl Fn(&mut Ctx, usize, ValueId) -> Result<ValueId>,
) -> Result<Vec<Value>> {
    let (ids, words) = (c.x(0)?, c.x(2)?);
    c.need_rank(ids, 2..=2)?;
    c.need_rank(words, 2..=2)?;
    let mut sum = rows(c, 2, ids)?;
    let place_ids = match places {
        Some(ids) => ids,
        None => {
            let length = c.dims(ids)[1].clone();
            let counts = c.b.iota(TensorType::new(DType::I64, [length]), 0)?;
            c.unsqueeze(counts, &[0])?
        }
    };
    let places = rows(c, 3, place_ids)?;
    sum = c.plus(sum, places)?;
    if let (Some(ids), Some(_)) = (c.opt(1)?, c.opt(4)?) {
        let segments = rows(c, 4, ids)?;
        sum = c.plus(sum, segments)?;
    }
    let epsilon = c.float("epsilon", 1e-12);
    let mut results = layer_norm_with(c, sum, Some(scale), bias, 2, epsilon)?;
    results.truncate(1);
    let counts = match c.opt(7)? {
        Some(mask) => {
            let mask = c.b.convert(mask, DType::I32)?;
            c.b.reduce(pando_base::ReduceFn::Sum, mask, &[1])?
        }
        None => c.b.splat(&TensorType::new(DType::I32, [c.dims(ids)[0].clone()]), 0.0)?,
    };
    results.extend(values(c, &[counts, sum]));
    Ok(results)
}

/// A mask of ones and zeros, or lengths, as a summand of `[B, 1 or H, S or 1, T]`.
fn mask_bias(c: &mut Ctx, mask: ValueId, t: &Dim, dtype: DType) -> Result<ValueId> {
    let mask = c.b.convert(mask, DType::I64)?;
    let (allowed, axes): (ValueId, &[usize]) = match c.rank(mask) {
        1 => {
            let counts = c.b.iota(TensorType::new(DType::I64, [Dim::Known(1), t.clone()]), 1)?;
            let lengths = c.unsqueeze(mask, &[1])?;
            (c.cmp(CompareFn::Lt, counts, lengths)?, &[1, 2])
        }
        2 => (c.cmp_n(CompareFn::Ne, mask, 0.0)?, &[1, 2]),
        3 => (c.cmp_n(CompareFn::Ne, mask, 0.0)?, &[1]),
        _ => (c.cmp_n(CompareFn::Ne, mask, 0.0)?, &[]),
    };
    let allowed = c.unsqueeze(allowed, axes)?;
    let ty = TensorType { dtype, dims: c.dims(allowed) };
    let (zero, filled) = (c.b.splat(&ty, 0.0)?, c.b.splat(&ty, c.float("mask_filter_value", -10000.0))?);
    c.b.select(allowed, zero, filled)
}

fn joined(c: &mut Ctx, a: Option<ValueId>, b: ValueId) -> Result<ValueId> {
    match a {
        Some(a) => c.plus(a, b),
        None => Ok(b),
    }
}

/// Queries see keys up to their own place, counted from the end.
fn causal_bias(c: &mut Ctx, q: ValueId, k: ValueId, dtype: DType, window: i64) -> Result<ValueId> {
    c.need_rank(q, 4..=4)?;
    c.need_rank(k, 4..=4)?;
    let (s, t) = (c.dims(q)[2].clone(), c.dims(k)[2].clone());
    let (queries, keys) =
        (sizes_value(c.b, &[Size::of(&s)], true)?, sizes_value(c.b, &[Size::of(&t)], true)?);
    let offset = c.minus(keys, queries)?;
    let (rows, columns) = positions(c, &s, &t, offset)?;
    let mut allowed = c.cmp(CompareFn::Le, columns, rows)?;
    if window > 0 {
        let first = c.plus_n(rows, -(window as f64))?;
        let near = c.cmp(CompareFn::Gt, columns, first)?;
        allowed = c.b.and(allowed, near)?;
    }
    bias_of(c, allowed, dtype)
}

fn heads_attribute(c: &Ctx, name: &str) -> Result<u64> {
    c.int_opt(name).and_then(|heads| u64::try_from(heads).ok()).ok_or_else(|| errors::missing_attribute(name))
}

fn scale_of(c: &Ctx, q: ValueId) -> Result<f64> {
    let size = c.size(q, 3)?;
    Ok(c.float_opt("scale").filter(|&scale| scale != 0.0).unwrap_or(1.0 / (size as f64).sqrt()))
}

/// Attention by head with what the operators say alike: input 5 is added to the scores, a mask is another input, and
/// `unidirectional` hides what comes later. The heads of the result are joined.
fn masked_attention(c: &mut Ctx, [q, k, v]: [ValueId; 3], mask_input: usize) -> Result<ValueId> {
    let (dtype, t) = (c.dtype(q), c.dims(k)[2].clone());
    let mut bias = c.opt(5)?;
    if let Some(mask) = c.opt(mask_input)? {
        let mask = mask_bias(c, mask, &t, dtype)?;
        bias = Some(joined(c, bias, mask)?);
    }
    if c.flag("unidirectional", false) {
        let causal = causal_bias(c, q, k, dtype, 0)?;
        bias = Some(joined(c, bias, causal)?);
    }
    let scale = scale_of(c, q)?;
    let output = attend_as_composite(c, Heads { q, k, v, bias, scale, softcap: 0.0, precision: None })?;
    merge_heads(c, output)
}

/// One projection for queries, keys and values.
pub(super) fn attention(c: &mut Ctx) -> Result<Vec<Value>> {
    let (x, weights) = (c.x(0)?, c.x(1)?);
    let mut all = super::matmul::product(c, x, weights, None)?;
    if let Some(bias) = c.opt(2)? {
        all = c.plus(all, bias)?;
    }
    attention_of(c, all)
}

/// Of queries, keys and values in one.
pub(super) fn attention_of(c: &mut Ctx, all: ValueId) -> Result<Vec<Value>> {
    c.need_rank(all, 3..=3)?;
    let heads = heads_attribute(c, "num_heads")?;
    let total = c.size(all, 2)?;
    let sizes = c.ints("qkv_hidden_sizes").unwrap_or_else(|| vec![total as i64 / 3; 3]);
    let mut begin = 0;
    let mut parts = Vec::new();
    for size in sizes.iter().map(|&size| size.max(0) as u64) {
        let part = c.part(all, 2, begin, begin + size)?;
        parts.push(split_heads(c, part, heads)?);
        begin += size;
    }
    let [q, mut k, mut v] = parts[..] else {
        return Err(errors::wrong_attribute("qkv_hidden_sizes", "needs 3"));
    };
    if let Some(past) = c.opt(4)? {
        let (past_k, past_v) = (c.pick(past, 0, 0)?, c.pick(past, 0, 1)?);
        (k, v) = (c.b.concat(&[past_k, k], 2)?, c.b.concat(&[past_v, v], 2)?);
    }
    let merged = masked_attention(c, [q, k, v], 3)?;
    let mut results = vec![merged];
    if c.has_output(1) {
        let (k, v) = (c.unsqueeze(k, &[0])?, c.unsqueeze(v, &[0])?);
        results.push(c.b.concat(&[k, v], 0)?);
    }
    Ok(values(c, &results))
}

/// Keys or values by head; with rank 4 they are already.
fn by_head(c: &mut Ctx, x: ValueId, heads: u64, bias: Option<ValueId>) -> Result<ValueId> {
    if c.rank(x) == 4 {
        return Ok(x);
    }
    let x = match bias {
        Some(bias) => c.plus(x, bias)?,
        None => x,
    };
    split_heads(c, x, heads)
}

pub(super) fn multi_head_attention(c: &mut Ctx) -> Result<Vec<Value>> {
    let heads = heads_attribute(c, "num_heads")?;
    let (q, k, v) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let hidden = c.size(q, 2)?;
    let mut biases = [None; 3];
    if let Some(bias) = c.opt(3)? {
        let total = c.size(bias, 0)?;
        let ends = [0, hidden, 2 * hidden, total];
        for (part, slot) in biases.iter_mut().enumerate() {
            *slot = Some(c.part(bias, 0, ends[part], ends[part + 1])?);
        }
    }
    let q = by_head(c, q, heads, biases[0])?;
    let (mut k, mut v) = (by_head(c, k, heads, biases[1])?, by_head(c, v, heads, biases[2])?);
    if let (Some(past_k), Some(past_v)) = (c.opt(6)?, c.opt(7)?) {
        (k, v) = (c.b.concat(&[past_k, k], 2)?, c.b.concat(&[past_v, v], 2)?);
    }
    let merged = masked_attention(c, [q, k, v], 4)?;
    Ok(values(c, &[merged, k, v]))
}

/// Fewer heads of keys than of queries, causal, with a cache that grows. All rows of a batch have as many
/// past keys as the cache is long; `seqlens_k` (the last key's place per row) masks what is beyond.
pub(super) fn group_query_attention(c: &mut Ctx) -> Result<Vec<Value>> {
    let (heads, shared) = (heads_attribute(c, "num_heads")?, heads_attribute(c, "kv_num_heads")?);
    let (mut q, mut k, mut v) = match (c.opt(1)?, c.opt(2)?) {
        (Some(k), Some(v)) => (c.x(0)?, k, v),
        _ => packed(c, heads, shared)?,
    };
    (q, k, v) = (split_heads(c, q, heads)?, split_heads(c, k, shared)?, split_heads(c, v, shared)?);
    let past = (c.opt(3)?, c.opt(4)?);
    if c.flag("do_rotary", false) {
        (q, k) = turned(c, q, k, past.0)?;
    }
    if let (Some(past_k), Some(past_v)) = past {
        (k, v) = (c.b.concat(&[past_k, k], 2)?, c.b.concat(&[past_v, v], 2)?);
    }
    let presents = [k, v];
    let (dtype, t) = (c.dtype(q), c.dims(k)[2].clone());
    let mut bias = causal_bias(c, q, k, dtype, c.int("local_window_size", -1))?;
    if let Some(last) = c.opt(5)? {
        let last = c.b.convert(last, DType::I64)?;
        let last = c.b.reshape(last, [c.dims(q)[0].clone(), Dim::Known(1), Dim::Known(1), Dim::Known(1)])?;
        let columns = c.b.iota(TensorType::new(DType::I64, [Dim::Known(1), t]), 1)?;
        let allowed = c.cmp(CompareFn::Le, columns, last)?;
        let padding = bias_of(c, allowed, dtype)?;
        bias = c.plus(bias, padding)?;
    }
    (k, v) = (repeat_heads(c, k, heads)?, repeat_heads(c, v, heads)?);
    let (scale, softcap) = (scale_of(c, q)?, c.float("softcap", 0.0));
    let output =
        attend_as_composite(c, Heads { q, k, v, bias: Some(bias), scale, softcap, precision: None })?;
    let merged = merge_heads(c, output)?;
    Ok(values(c, &[merged, presents[0], presents[1]]))
}

/// Queries, keys and values side by side in one operand.
fn packed(c: &mut Ctx, heads: u64, shared: u64) -> Result<(ValueId, ValueId, ValueId)> {
    let all = c.x(0)?;
    let size = c.size(all, 2)? / (heads + 2 * shared).max(1);
    let (q_end, k_end) = (heads * size, (heads + shared) * size);
    let end = k_end + shared * size;
    Ok((c.part(all, 2, 0, q_end)?, c.part(all, 2, q_end, k_end)?, c.part(all, 2, k_end, end)?))
}

/// Rotary embeddings at the places after the cache's.
fn turned(c: &mut Ctx, q: ValueId, k: ValueId, past: Option<ValueId>) -> Result<(ValueId, ValueId)> {
    let (cos, sin) = (c.x(7)?, c.x(8)?);
    let length = c.dims(q)[2].clone();
    let mut places = c.b.iota(TensorType::new(DType::I64, [length]), 0)?;
    if let Some(past) = past {
        c.need_rank(past, 4..=4)?;
        let before = sizes_value(c.b, &[Size::of(&c.dims(past)[2])], true)?;
        places = c.plus(places, before)?;
    }
    let (cos, sin) = (c.b.gather(cos, places, 0)?, c.b.gather(sin, places, 0)?);
    let (cos, sin) = (c.unsqueeze(cos, &[0, 1])?, c.unsqueeze(sin, &[0, 1])?);
    let turned = 2 * c.size(cos, 3)?;
    let rotary = Rotary { cos, sin, interleaved: c.flag("rotary_interleaved", false), turned };
    Ok((rotate(c, q, &rotary)?, rotate(c, k, &rotary)?))
}

/// Places come second here; a single one is the first's.
pub(super) fn rotary_embedding(c: &mut Ctx) -> Result<ValueId> {
    let (x, mut places, cos, sin) = (c.x(0)?, c.x(1)?, c.x(2)?, c.x(3)?);
    let flat = c.rank(x) == 3;
    let turned = u64::try_from(c.int("rotary_embedding_dim", 0)).unwrap_or(0);
    c.need_rank(x, 3..=4)?;
    let split = if flat {
        let hidden = c.size(x, 2)?;
        let size = if turned > 0 && c.int("num_heads", 0) == 0 { turned } else { 2 * c.size(cos, 1)? };
        let heads = u64::try_from(c.int("num_heads", 0)).ok().filter(|&heads| heads > 0);
        split_heads(c, x, heads.unwrap_or(hidden / size.max(1)))?
    } else {
        x
    };
    if c.rank(places) == 1 {
        let length = c.dims(split)[2].clone();
        let counts = c.b.iota(TensorType::new(c.dtype(places), [Dim::Known(1), length]), 1)?;
        places = c.plus(counts, places)?;
    }
    let (cos, sin) = (c.b.gather(cos, places, 0)?, c.b.gather(sin, places, 0)?);
    let (cos, sin) = (c.unsqueeze(cos, &[1])?, c.unsqueeze(sin, &[1])?);
    let rotary = Rotary { cos, sin, interleaved: c.flag("interleaved", false), turned };
    let result = rotate(c, split, &rotary)?;
    if flat { merge_heads(c, result) } else { Ok(result) }
}

/// Bytes `[…, m]` as numbers of `bits` bits, lowest first: `[…, m · 8/bits]`.
fn unpacked(c: &mut Ctx, bytes: ValueId, bits: u64) -> Result<ValueId> {
    if bits == 8 {
        return Ok(bytes);
    }
    c.need_rank(bytes, 1..=usize::MAX)?;
    let rank = c.rank(bytes);
    let mut parts = Vec::new();
    for part in 0..8 / bits {
        let moved = c.b.binary_scalar(BinaryFn::Shr, bytes, (part * bits) as f64)?;
        let mask = c.b.splat_like(moved, ((1u64 << bits) - 1) as f64)?;
        let code = c.b.and(moved, mask)?;
        parts.push(c.unsqueeze(code, &[rank])?);
    }
    let joined = c.b.concat(&parts, rank)?;
    c.flatten(joined, rank - 1, rank + 1)
}

/// A product with a matrix of a few bits per element, scaled block by block along its rows.
pub(super) fn matmul_nbits(c: &mut Ctx) -> Result<ValueId> {
    let (x, bytes, scales) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let attribute = |c: &Ctx, name: &str, default: i64| u64::try_from(c.int(name, default)).unwrap_or(0);
    let (k, n) = (attribute(c, "K", 0), attribute(c, "N", 0));
    let (bits, block) = (attribute(c, "bits", 4), attribute(c, "block_size", 32));
    if !matches!(bits, 2 | 4 | 8) || block == 0 {
        return Err(errors::wrong_attribute("bits", "2, 4 and 8 are supported, with a block size"));
    }
    if c.opt(4)?.is_some() {
        return Err(errors::invalid("a group index is not supported"));
    }
    let dtype = c.dtype(x);
    let blocks = k.div_ceil(block);
    let codes = unpacked(c, bytes, bits)?;
    let codes = c.reshape_to(codes, &[n, blocks, block])?;
    let codes = c.b.convert(codes, dtype)?;
    let dims: Dims = known_dims(&[n, blocks, block]);
    let zeros = match c.opt(3)? {
        Some(zeros) if c.dtype(zeros).is_float() => c.reshape_to(zeros, &[n, blocks])?,
        Some(zeros) => {
            let per_row = (blocks * bits).div_ceil(8);
            let rows = c.reshape_to(zeros, &[n, per_row])?;
            let codes = unpacked(c, rows, bits)?;
            let codes = c.part(codes, 1, 0, blocks)?;
            c.b.convert(codes, dtype)?
        }
        None => c.b.splat(&TensorType::new(dtype, [n, blocks]), (1u64 << (bits - 1)) as f64)?,
    };
    let zeros = c.b.broadcast(zeros, dims.clone(), &[0, 1])?;
    let scales = c.reshape_to(scales, &[n, blocks])?;
    let scales = c.b.convert(scales, dtype)?;
    let scales = c.b.broadcast(scales, dims, &[0, 1])?;
    let centred = c.b.sub(codes, zeros)?;
    let weights = c.b.mul(centred, scales)?;
    let weights = c.reshape_to(weights, &[n, blocks * block])?;
    let weights = c.part(weights, 1, 0, k)?;
    let weights = c.b.transpose(weights, &[1, 0])?;
    let result = super::matmul::product(c, x, weights, None)?;
    match c.opt(5)? {
        Some(bias) => c.plus(result, bias),
        None => Ok(result),
    }
}

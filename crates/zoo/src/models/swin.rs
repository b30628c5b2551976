//! Swin transformers as in timm: attention within windows of an image, which every second block shifts by half
//! of their size, and four stages, each of half the last one's height and width.

use crate::models::vit::patches;
use crate::net::{Init, Net};
use pando_base::{BinaryFn, CompareFn, DType, Result};
use pando_graph::{Builder, TensorType, ValueId};

pub(crate) struct Swin {
    /// Of the first stage; each doubles it, and the heads.
    hidden: u64,
    heads: u64,
    window: u64,
    layers: [u64; 4],
}

pub(crate) const TINY: Swin = Swin { hidden: 96, heads: 3, window: 7, layers: [2, 2, 6, 2] };
pub(crate) const LARGE: Swin = Swin { hidden: 192, heads: 6, window: 12, layers: [2, 2, 18, 2] };

const PATCH: u64 = 4;
const EPSILON: f64 = 1e-5;
/// What the definition adds to scores of positions that may not see each other.
const HIDDEN_SCORE: f64 = -100.0;

/// What the blocks of a stage share.
struct Stage {
    /// Height and width.
    size: u64,
    window: u64,
    heads: u64,
}

impl Stage {
    /// How far every second block shifts its windows: not at all if there is one.
    fn shift(&self) -> u64 {
        if self.size > self.window { self.window / 2 } else { 0 }
    }
}

pub(crate) fn build(n: &mut Net, config: &Swin) -> Result<Vec<ValueId>> {
    let batch = n.size("batch");
    let size = n.multiple("image", PATCH)? / PATCH;
    let x = patches(n, PATCH * size, PATCH, config.hidden)?;
    let x = n.layer_norm("patch_embed.norm", x, EPSILON)?;
    let mut x = n.reshape(x, &[batch, size, size, config.hidden])?;
    for (index, &layers) in config.layers.iter().enumerate() {
        x = n.scope(&format!("layers.{index}"), |n| {
            let x = if index > 0 { n.scope("downsample", |n| merged(n, x))? } else { x };
            let (size, heads) = (n.dim(x, 1), config.heads << index);
            stage(n, x, &Stage { size, window: config.window.min(size), heads }, layers)
        })?;
    }
    let x = n.layer_norm("norm", x, EPSILON)?;
    let mean = n.mean(x, &[1, 2])?;
    Ok(vec![n.linear("head.fc", mean, 1000)?])
}

/// Four neighbours become one of twice the width.
fn merged(n: &mut Net, x: ValueId) -> Result<ValueId> {
    let (batch, width) = (n.dim(x, 0), n.dim(x, 3));
    let half = n.whole("the height of a stage", n.dim(x, 1), 2)?;
    let x = n.reshape(x, &[batch, half, 2, half, 2, width])?;
    let x = n.b.transpose(x, &[0, 1, 3, 4, 2, 5])?;
    let x = n.reshape(x, &[batch, half, half, 4 * width])?;
    let x = n.layer_norm("norm", x, EPSILON)?;
    n.linear_no_bias("reduction", x, 2 * width)
}

fn stage(n: &mut Net, mut x: ValueId, stage: &Stage, layers: u64) -> Result<ValueId> {
    let shift = stage.shift();
    let mask = if shift > 0 { Some(n.scope("attn_mask", |n| mask(n, stage))?) } else { None };
    for index in 0..layers {
        let (shift, mask) = if index % 2 == 1 { (shift, mask) } else { (0, None) };
        x = n.scope(&format!("blocks.{index}"), |n| block(n, x, stage, shift, mask))?;
    }
    Ok(x)
}

fn block(n: &mut Net, x: ValueId, stage: &Stage, shift: u64, mask: Option<ValueId>) -> Result<ValueId> {
    let (size, width) = (stage.size, n.dim(x, 3));
    let normal = n.layer_norm("norm1", x, EPSILON)?;
    let turned = rolled(n, normal, shift)?;
    let windows = in_windows(n, turned, stage.window)?;
    let attended = n.scope("attn", |n| {
        let joined = n.linear("qkv", windows, 3 * width)?;
        let parts = n.parts(joined, 3, 3)?;
        let bias = position_bias(n, stage)?;
        let biases: Vec<ValueId> = [bias].into_iter().chain(mask).collect();
        let attended = n.attend([parts[0], parts[1], parts[2]], stage.heads, &biases)?;
        n.linear("proj", attended, width)
    })?;
    let whole = out_of_windows(n, attended, size, stage.window)?;
    let attended = rolled(n, whole, if shift > 0 { size - shift } else { 0 })?;
    let sum = n.b.add(x, attended)?;
    let x = n.named("add1", sum);
    let normal = n.layer_norm("norm2", x, EPSILON)?;
    let inner = n.mlp(normal, 4 * width, Builder::gelu)?;
    let sum = n.b.add(x, inner)?;
    Ok(n.named("add2", sum))
}

/// `[B, H, W, C]` with what is at `by` moved to 0, in height and width.
fn rolled(n: &mut Net, x: ValueId, by: u64) -> Result<ValueId> {
    if by == 0 {
        return Ok(x);
    }
    [1, 2].into_iter().try_fold(x, |x, axis| {
        let parts = [n.part(x, axis, by, n.dim(x, axis))?, n.part(x, axis, 0, by)?];
        n.b.concat(&parts, axis)
    })
}

/// `[B, H, W, C]` to `[B, windows, positions, C]`.
fn in_windows(n: &mut Net, x: ValueId, window: u64) -> Result<ValueId> {
    let (batch, width) = (n.dim(x, 0), n.dim(x, 3));
    let count = n.whole("the height of a stage", n.dim(x, 1), window)?;
    let x = n.reshape(x, &[batch, count, window, count, window, width])?;
    let x = n.b.transpose(x, &[0, 1, 3, 2, 4, 5])?;
    n.reshape(x, &[batch, count * count, window * window, width])
}

/// The inverse of [`in_windows`].
fn out_of_windows(n: &mut Net, x: ValueId, size: u64, window: u64) -> Result<ValueId> {
    let (batch, width, count) = (n.dim(x, 0), n.dim(x, 3), size / window);
    let x = n.reshape(x, &[batch, count, count, window, window, width])?;
    let x = n.b.transpose(x, &[0, 1, 3, 2, 4, 5])?;
    n.reshape(x, &[batch, size, size, width])
}

/// A learned number for each head and distance between positions of a window: `[1, 1, heads, positions, positions]`.
fn position_bias(n: &mut Net, stage: &Stage) -> Result<ValueId> {
    let (window, positions) = (stage.window, stage.window.pow(2));
    let span = 2 * window - 1;
    let init = Init::Normal { mean: 0.0, std: 0.02 };
    let table = n.weight("relative_position_bias_table", &[span * span, stage.heads], init)?;
    let rows = distances(n, window, 0)?;
    let rows = n.b.binary_scalar(BinaryFn::Mul, rows, span as f64)?;
    let columns = distances(n, window, 1)?;
    let index = n.b.add(rows, columns)?;
    let index = n.reshape(index, &[positions, positions])?;
    let bias = n.b.gather(table, index, 0)?;
    let bias = n.b.transpose(bias, &[2, 0, 1])?;
    let bias = n.reshape(bias, &[1, 1, stage.heads, positions, positions])?;
    Ok(n.named("relative_position_bias", bias))
}

/// From 0, the distance along an axis between two positions of a window: `[window; 4]`.
fn distances(n: &mut Net, window: u64, axis: usize) -> Result<ValueId> {
    let ty = TensorType::new(DType::I32, [window; 4]);
    let (one, other) = (n.b.iota(ty.clone(), axis)?, n.b.iota(ty, 2 + axis)?);
    let distance = n.b.sub(one, other)?;
    n.b.binary_scalar(BinaryFn::Add, distance, (window - 1) as f64)
}

/// Shifted windows join what lies at opposite borders; positions from different sides may not see each other:
/// `[1, windows, 1, positions, positions]`.
fn mask(n: &mut Net, stage: &Stage) -> Result<ValueId> {
    let (rows, columns) = (sides(n, stage, 1)?, sides(n, stage, 2)?);
    let rows = n.b.binary_scalar(BinaryFn::Mul, rows, 3.0)?;
    let regions = n.b.add(rows, columns)?;
    let regions = in_windows(n, regions, stage.window)?;
    let (windows, positions) = (n.dim(regions, 1), n.dim(regions, 2));
    let pairs = TensorType::new(DType::I32, [1, windows, positions, positions]);
    let regions = n.reshape(regions, &[1, windows, positions])?;
    let one = n.b.broadcast(regions, pairs.dims.clone(), &[0, 1, 2])?;
    let other = n.b.broadcast(regions, pairs.dims.clone(), &[0, 1, 3])?;
    let same = n.b.compare(CompareFn::Eq, one, other)?;
    let ty = TensorType { dtype: n.dtype, dims: pairs.dims };
    let (seen, unseen) = (n.b.splat(&ty, 0.0)?, n.b.splat(&ty, HIDDEN_SCORE)?);
    let mask = n.b.select(same, seen, unseen)?;
    let mask = n.reshape(mask, &[1, windows, 1, positions, positions])?;
    Ok(n.named("", mask))
}

/// Along an axis of the shifted image: 0, then 1 in the last window, 2 where it came from the other border.
fn sides(n: &mut Net, stage: &Stage, axis: usize) -> Result<ValueId> {
    let ty = TensorType::new(DType::I32, [1, stage.size, stage.size, 1]);
    let place = n.b.iota(ty.clone(), axis)?;
    let (zero, one) = (n.b.splat(&ty, 0.0)?, n.b.splat(&ty, 1.0)?);
    let mut side = zero;
    for border in [stage.size - stage.window, stage.size - stage.shift()] {
        let border = n.b.splat(&ty, border as f64)?;
        let beyond = n.b.compare(CompareFn::Ge, place, border)?;
        let step = n.b.select(beyond, one, zero)?;
        side = n.b.add(side, step)?;
    }
    Ok(side)
}

//! A layer whose weight matrix is zero but for blocks at places known in advance: as many in each row of blocks.

use crate::net::{Init, Net};
use pando_base::{DType, Result, Tensor};
use pando_graph::{Dot, ValueId};

pub(crate) fn build(n: &mut Net) -> Result<Vec<ValueId>> {
    let block = n.size("block");
    let (batch, features) = (n.size("batch"), n.multiple("features", block)?);
    let count = features / block;
    let density = n.size_within("blocks", 1, count.min(1 << 10))?;
    let segment = n.whole("features / block", count, density)?;
    let x = n.input("x", &[batch, features]);
    let columns: Vec<i128> = columns(count, density, segment).into_iter().map(i128::from).collect();
    let columns = n.b.constant(Tensor::from_ints(DType::I32, [count, density], &columns));
    n.b.name(columns, "columns");
    let blocks = n.reshape(x, &[batch, count, block])?;
    // [B, rows, blocks of a row, inputs of a block]
    let gathered = n.b.gather(blocks, columns, 1)?;
    n.named("gathered", gathered);
    n.scope("fc", |n| {
        let std = (1.0 / (density * block) as f64).sqrt();
        let shape = [count, density, block, block];
        let weight = n.weight("weight", &shape, Init::Normal { mean: 0.0, std })?;
        let dot = Dot { batch: vec![(1, 0)], contract: vec![(2, 1), (3, 3)], dtype: None };
        let product = n.b.dot(gathered, weight, dot)?;
        n.named("product", product);
        let rows = n.b.transpose(product, &[1, 0, 2])?;
        let rows = n.reshape(rows, &[batch, features])?;
        let bias = n.weight("bias", &[features], Init::Normal { mean: 0.0, std: 0.02 })?;
        let sum = n.plus(rows, bias)?;
        Ok(vec![n.named("", sum)])
    })
}

/// Where the blocks of each row are: one in each of `density` segments of the row, at a place that a hash of
/// row and segment chooses.
fn columns(rows: u64, density: u64, segment: u64) -> Vec<u64> {
    let place = |row: u64, at: u64| {
        let mixed =
            (row as u32).wrapping_mul(2_654_435_761).wrapping_add((at as u32).wrapping_mul(2_246_822_519));
        at * segment + u64::from(mixed >> 16) % segment
    };
    (0..rows).flat_map(|row| (0..density).map(move |at| place(row, at))).collect()
}

//! A layer whose weight matrix is zero but for blocks at places known in advance: as many in each row of blocks.

use crate::net::{Init, Net};
use pando_base::Result;
use pando_graph::{Pattern, ValueId};

pub(crate) fn build(n: &mut Net) -> Result<Vec<ValueId>> {
    let block = n.size("block");
    let (batch, features) = (n.size("batch"), n.multiple("features", block)?);
    let count = features / block;
    let density = n.size_within("blocks", 1, count.min(1 << 10))?;
    let segment = n.whole("features / block", count, density)?;
    let x = n.input("x", &[batch, features]);
    let places = columns(count, density, segment);
    let places =
        places.into_iter().enumerate().map(|(at, column)| (at as u32 / density as u32, column as u32));
    let pattern = Pattern { rows: features, columns: features, block, places: places.collect() };
    n.scope("fc", |n| {
        let std = (1.0 / (density * block) as f64).sqrt();
        let shape = [count, density, block, block];
        let weight = n.weight("weight", &shape, Init::Normal { mean: 0.0, std })?;
        let weight = n.reshape(weight, &[count * density, block, block])?;
        let rows = n.b.sparse_matmul(x, weight, &pattern)?;
        n.named("product", rows);
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

//! Products with sparse matrices as a composite. Which blocks a matrix has is data: constants of a pattern that is known
//! (static), or operands (dynamic). Blocks may come in buckets, one for each part of the matrix that one worker of
//! many takes; their order and blocks of zeros change nothing.

use super::Builder;
use super::standard::is_built_by;
use crate::errors;
use crate::module::{Func, Module, ValueId};
use crate::op::Dot;
use crate::types::{Dim, Dims, TensorType};
use pando_base::{DType, ReduceFn, Result, Shape, Tensor};

/// Which blocks a matrix `[rows, columns]` has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    pub rows: u64,
    pub columns: u64,
    /// Side of a square block; 1 for single elements.
    pub block: u64,
    /// Row and column of every block, in blocks.
    pub places: Vec<(u32, u32)>,
}

/// The blocks of a pattern dealt to bands of rows and columns: `[row bands, column bands, capacity]` slots.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    pub shape: [u64; 3],
    /// For each slot the number of its block, if it has one.
    pub slots: Vec<Option<u32>>,
    pub rows: Tensor,
    pub columns: Tensor,
}

impl Pattern {
    /// Rows and columns are divided into bands of whole blocks, as evenly as possible. A bucket that needs more than
    /// `capacity` slots is an error; without one all have as many as the fullest needs.
    pub fn buckets(&self, row_bands: u64, column_bands: u64, capacity: Option<u64>) -> Result<Buckets> {
        let band = |at: u32, size: u64, bands: u64| band_of(u64::from(at), size / self.block, bands);
        let mut dealt = vec![Vec::new(); (row_bands * column_bands) as usize];
        for (number, &(row, column)) in self.places.iter().enumerate() {
            let (row, column) = (band(row, self.rows, row_bands), band(column, self.columns, column_bands));
            dealt[(row * column_bands + column) as usize].push(number as u32);
        }
        let fullest = dealt.iter().map(Vec::len).max().unwrap_or(0).max(1) as u64;
        let capacity = capacity.unwrap_or(fullest);
        if fullest > capacity {
            return Err(errors::constraint(
                "sparse_matmul",
                "buckets",
                format!(
                    "a bucket needs {fullest} slots and has {capacity}; give more capacity or fewer bands"
                ),
            ));
        }
        let shape = [row_bands, column_bands, capacity];
        let (mut slots, mut rows, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (bucket, blocks) in (0..).zip(&dealt) {
            // A slot without a block stands at the beginning of its bands.
            let empty = (
                first_of(bucket / column_bands, self.rows / self.block, row_bands),
                first_of(bucket % column_bands, self.columns / self.block, column_bands),
            );
            for slot in 0..capacity as usize {
                let block = blocks.get(slot).copied();
                let place = block.map_or(empty, |block| {
                    let (row, column) = self.places[block as usize];
                    (row.into(), column.into())
                });
                slots.push(block);
                rows.push(i128::from(place.0));
                columns.push(i128::from(place.1));
            }
        }
        let indices = |values: &[i128]| Tensor::from_ints(DType::I32, shape, values);
        Ok(Buckets { shape, slots, rows: indices(&rows), columns: indices(&columns) })
    }
}

impl Buckets {
    /// Values of blocks `[blocks, side, side]` in their slots, zeros elsewhere.
    pub fn values(&self, blocks: &Tensor) -> Tensor {
        let side = &blocks.shape()[1..];
        let shape: Shape = self.shape.iter().chain(side).copied().collect();
        let mut values = Tensor::zeros(blocks.dtype(), shape);
        let bytes = (side.iter().product::<u64>() * blocks.dtype().size_bytes()) as usize;
        let source = blocks.bytes();
        for (to, slot) in values.bytes_mut().chunks_exact_mut(bytes.max(1)).zip(&self.slots) {
            if let Some(block) = slot {
                to.copy_from_slice(&source[*block as usize * bytes..][..bytes]);
            }
        }
        values
    }
}

/// The band that an even split of `total` gives an index to: the first ones have one more.
fn band_of(index: u64, total: u64, bands: u64) -> u64 {
    let (quotient, remainder) = (total / bands, total % bands);
    let large = remainder * (quotient + 1);
    if index < large { index / (quotient + 1) } else { remainder + (index - large) / quotient.max(1) }
}

fn first_of(band: u64, total: u64, bands: u64) -> u64 {
    band * (total / bands) + band.min(total % bands)
}

impl Builder {
    /// `[N, columns]` times the transposed sparse matrix with these blocks `[blocks, side, side]`: `[N, rows]`.
    pub fn sparse_matmul(&mut self, x: ValueId, values: ValueId, pattern: &Pattern) -> Result<ValueId> {
        let inside = |&(row, column): &(u32, u32)| {
            u64::from(row) < pattern.rows / pattern.block
                && u64::from(column) < pattern.columns / pattern.block
        };
        let whole = pattern.block > 0
            && pattern.rows.is_multiple_of(pattern.block)
            && pattern.columns.is_multiple_of(pattern.block);
        if !whole || !pattern.places.iter().all(inside) {
            return Err(errors::constraint("sparse_matmul", "pattern", "a block lies outside the matrix"));
        }
        let count = pattern.places.len() as u64;
        let indices = |b: &mut Builder, at: fn(&(u32, u32)) -> u32| {
            let values: Vec<i128> = pattern.places.iter().map(|place| at(place).into()).collect();
            b.constant(Tensor::from_ints(DType::I32, [count], &values))
        };
        let (rows, columns) = (indices(self, |place| place.0), indices(self, |place| place.1));
        self.sparse_matmul_at(x, values, rows, columns, pattern.rows)
    }

    /// The same with the places as operands: of values `[…, side, side]` the rows and columns `[…]`, in blocks. Where
    /// these have three dimensions they are buckets, and their blocks have to lie in the buckets' bands.
    pub fn sparse_matmul_at(
        &mut self,
        x: ValueId,
        values: ValueId,
        block_rows: ValueId,
        block_columns: ValueId,
        rows: u64,
    ) -> Result<ValueId> {
        check(self.ty(x), self.ty(values), self.ty(block_rows), self.ty(block_columns), rows)?;
        let args = [x, values, block_rows, block_columns];
        self.composite(SPARSE, &rows.to_string(), &args, |b, args| body(b, args, rows))
    }
}

const SPARSE: &str = "sparse_matmul";

fn check(
    x: &TensorType,
    values: &TensorType,
    rows: &TensorType,
    columns: &TensorType,
    size: u64,
) -> Result<()> {
    let refuse = |what: String| Err(errors::constraint(SPARSE, "operands", what));
    let (Some(shape), Some(places)) = (values.shape(), rows.shape()) else {
        return refuse(format!("the sizes of {values} and {rows} have to be known"));
    };
    let blocks =
        shape.rank().checked_sub(2).filter(|&rank| shape[..rank] == *places && rows.dims == columns.dims);
    let side = shape.last().copied().unwrap_or(0);
    let width = x.dims.last().and_then(Dim::known);
    let fits = blocks.is_some()
        && side > 0
        && shape[shape.rank() - 2] == side
        && x.rank() == 2
        && width.is_some_and(|width| width.is_multiple_of(side))
        && size.is_multiple_of(side);
    if !fits || [rows.dtype, columns.dtype] != [DType::I32; 2] || x.dtype != values.dtype {
        return refuse(format!(
            "{x} with blocks {values} at rows {rows} and columns {columns} is no product with {size} rows"
        ));
    }
    Ok(())
}

/// Blocks of columns are looked up, multiplied, and added where their rows are.
fn body(b: &mut Builder, args: &[ValueId], rows: u64) -> Result<ValueId> {
    let [x, values, block_rows, block_columns] = *args else { unreachable!("four are given") };
    let shape = b.ty(values).shape().expect("checked before");
    let side = shape[shape.rank() - 1];
    let count: u64 = shape[..shape.rank() - 2].iter().product();
    let (batch, dtype) = (b.ty(x).dims[0].clone(), b.ty(x).dtype);
    let width = b.ty(x).dims[1].known().expect("checked before");
    let values = b.reshape(values, [count, side, side])?;
    let block_rows = b.reshape(block_rows, [count])?;
    let block_columns = b.reshape(block_columns, [count])?;
    let blocks: [Dim; 3] = [batch.clone(), (width / side).into(), side.into()];
    let x = b.reshape(x, blocks)?;
    let found = b.gather(x, block_columns, 1)?;
    let dot = Dot { batch: vec![(1, 0)], contract: vec![(2, 2)], ..Dot::default() };
    let products = b.dot(found, values, dot)?;
    let dims: Dims = [(rows / side).into(), batch.clone(), side.into()].into_iter().collect();
    let zeros = b.splat(&TensorType { dtype, dims }, 0.0)?;
    let sums = b.scatter(zeros, block_rows, products, 0, Some(ReduceFn::Sum))?;
    let sums = b.transpose(sums, &[1, 0, 2])?;
    b.reshape(sums, [batch, rows.into()])
}

/// Whether a function is the composite, whose meaning is its body. Results have as many columns as the matrix rows.
pub fn is_sparse_matmul(module: &Module, func: &Func) -> bool {
    if func.composite.as_deref() != Some(SPARSE) || func.params.len() != 4 || func.results.len() != 1 {
        return false;
    }
    let Some(rows) = func.ty(func.results[0]).dims.get(1).and_then(Dim::known) else { return false };
    is_built_by(module, func, |b, x| b.sparse_matmul_at(x[0], x[1], x[2], x[3], rows).map(drop))
}

//! How the results of a product are cut into tasks: columns in blocks that fill whole panels as well as they
//! can, enough blocks for all threads.

use super::{Gemm, Right};
use crate::kernel::gemm::{RowSplit, split_rows};

/// Panels of a block: its part of B (768 × 192 f32 with AVX-512, 576 KiB) stays in L2.
pub(super) const PANELS: usize = 6;
/// Rows of a block where B is packed already, so that a block of results stays in L2 too.
const ROWS: usize = 252;
/// As these, on a unit for tiles (see `unit.rs`).
const UNIT_PANELS: usize = 24;
const UNIT_ROWS: usize = 128;

/// Tiles of rows that make up for packing the right side again.
const ROW_TILES: usize = 16;

pub(super) struct Blocks {
    pub row_blocks: RowSplit,
    /// Units (columns, or rows of windows) per block.
    units: usize,
    pub column_blocks: usize,
}

/// A block of results: tiles of rows, columns with gaps (virtual) and without.
#[derive(Clone, Copy)]
pub struct Block {
    pub batch: usize,
    /// Tiles by `split`, the first and the one behind the last.
    pub split: RowSplit,
    pub tiles: (usize, usize),
    /// Where the rows of the first tile of `split` begin.
    pub origin: usize,
    /// First row and number of rows.
    pub rows: (usize, usize),
    /// First column and number of columns, gaps included.
    pub wide: (usize, usize),
    /// First column and number of columns of the result.
    pub columns: (usize, usize),
}

impl Block {
    /// All columns of some rows, in tiles of their own: for left sides that are not packed.
    pub fn of_rows(gemm: &Gemm, batch: usize, rows: (usize, usize)) -> Block {
        let split = split_rows(rows.1, gemm.tiles.rows);
        let all = (0, gemm.n);
        Block { batch, split, tiles: (0, split.tiles), origin: rows.0, rows, wide: all, columns: all }
    }
}

impl Blocks {
    pub fn of(gemm: &Gemm, threads: usize) -> Blocks {
        let panel = gemm.tiles.columns;
        let (units, width_of): (usize, &dyn Fn(usize) -> usize) = match &gemm.right {
            Right::Windows(windows) => (windows.runs.len(), &|units: usize| {
                windows.runs[units.min(windows.runs.len()) - 1] + windows.run_length
            }),
            _ => (gemm.n.div_ceil(panel), &|units: usize| units * panel),
        };
        let tiles = gemm.split().tiles;
        let on_unit = gemm.tiles.granule > 1;
        let (panels, rows) = if on_unit { (UNIT_PANELS, UNIT_ROWS) } else { (PANELS, ROWS) };
        let row_blocks = match gemm.right {
            Right::Packed => split_rows(tiles, rows / gemm.tiles.rows),
            // A side that is not packed yet is packed for every block: rather few blocks of rows than narrow ones of
            // columns, for which the left side is read again.
            Right::Strided(_) if threads > 1 => {
                let wide = gemm.batch * units.div_ceil(PANELS);
                let parts = (threads * 4).div_ceil(wide.max(1)).min(tiles / ROW_TILES).max(1);
                split_rows(tiles, tiles.div_ceil(parts))
            }
            _ => split_rows(tiles, usize::MAX),
        };
        let others = gemm.batch * row_blocks.tiles;
        let wanted = if threads == 1 { 1 } else { (threads * 4).div_ceil(others) };
        let most = units.div_ceil(wanted.min(units)).max(1);
        // The least half panels in all; of equals the largest block.
        let cost = |per: usize| units.div_ceil(per) * width_of(per).div_ceil(panel / 2);
        let fits = |per: &usize| *per == 1 || width_of(*per) <= panels * panel;
        let best = (1..=most).rev().filter(fits).min_by_key(|&per| cost(per)).unwrap_or(1);
        Blocks { row_blocks, units: best, column_blocks: units.div_ceil(best) }
    }

    pub fn block(&self, gemm: &Gemm, batch: usize, row: usize, column: usize) -> Block {
        let split = gemm.split();
        let first = self.row_blocks.begin(row);
        let last = first + self.row_blocks.height(row);
        let rows = (split.begin(first), split.begin(last) - split.begin(first));
        let (begin, end) = (column * self.units, (column + 1) * self.units);
        let (wide, columns) = match &gemm.right {
            Right::Windows(windows) => {
                let (runs, length) = (&windows.runs, windows.run_length);
                let end = end.min(runs.len());
                let wide = (runs[begin], runs[end - 1] + length - runs[begin]);
                (wide, (begin * length, (end - begin) * length))
            }
            _ => {
                let begin = begin * gemm.tiles.columns;
                let columns = (begin, (end * gemm.tiles.columns).min(gemm.n) - begin);
                (columns, columns)
            }
        };
        Block { batch, split, tiles: (first, last), origin: 0, rows, wide, columns }
    }
}

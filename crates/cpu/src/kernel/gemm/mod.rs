//! The tile of a matrix product: `rows × columns` results in registers, one step of `k` at a time. Both sides
//! are read where they lie if their strides allow ([`Tile`]); `pack.rs` copies what does not.
//!
//! Tiles: 14×32 with AVX-512 (28 of 32 registers hold sums), 6×16 with AVX2 (12 of 16), 4×8 portable. The
//! floor is the multiply-add units: per step of k a 14×32 tile does 28 multiply-adds and 16 loads, so loads
//! hide: 117.5 GFLOP/s of 118 (registers only) were measured on a Zen 4 core, with packed sides and strided
//! ones alike. Tiles of fewer rows take their share of the time, which is why rows are split evenly
//! ([`split_rows`]) rather than with a remainder.

mod pack;
mod pairs;
mod tiles;
#[cfg(target_arch = "x86_64")]
mod transpose;

pub use pack::{Source, copy_few, copy_row, copy_rows, interleave, pack_a, pack_b, prefetch};
pub use pairs::{Pairs, copy_pairs, pack_pairs, pair_tiles};

use crate::isa::Isa;

/// c += a · b, or c = a · b, for a tile of as many rows as the kernel was made for.
///
/// Row i and step s of a are at `a[i × a_row + s × a_step]`; step s of b is `columns` neighbours at
/// `b[s × b_step]`; row i of c is `columns` neighbours at `c[i × c_row]`. All of it lies in memory, c is the
/// caller's alone, and the processor has the instructions of the level.
#[derive(Clone, Copy)]
pub struct Tile {
    pub k: usize,
    pub a: *const f32,
    pub a_row: isize,
    pub a_step: isize,
    pub b: *const f32,
    pub b_step: isize,
    pub c: *mut f32,
    pub c_row: usize,
    /// At most a panel's.
    pub columns: usize,
    /// Whether c has sums already.
    pub add: bool,
}

pub type TileLoop = unsafe fn(&Tile);

/// The tiles of a level.
pub struct Tiles {
    /// Most rows of a tile.
    pub rows: usize,
    /// Columns of a panel.
    pub columns: usize,
    /// By rows, from 1.
    pub kernels: &'static [TileLoop],
    /// Elements are pairs of steps rather than f32.
    pub pairs: Option<Pairs>,
}

impl Tiles {
    /// Steps of the kernels for `k` steps of a product.
    pub fn steps(&self, k: usize) -> usize {
        if self.pairs.is_some() { k.div_ceil(2) } else { k }
    }
}

#[cfg(target_arch = "x86_64")]
pub fn tiles(isa: Isa) -> &'static Tiles {
    match isa {
        Isa::Portable => &tiles::PORTABLE,
        Isa::Avx2 => &tiles::AVX2,
        Isa::Avx512 => &tiles::AVX512,
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn tiles(_isa: Isa) -> &'static Tiles {
    &tiles::PORTABLE
}

/// `rows` cut into tiles of nearly equal height, each at most `most`.
#[derive(Clone, Copy, Debug)]
pub struct RowSplit {
    pub tiles: usize,
    base: usize,
    taller: usize,
}

pub fn split_rows(rows: usize, most: usize) -> RowSplit {
    let tiles = rows.div_ceil(most);
    RowSplit { tiles, base: rows / tiles.max(1), taller: rows % tiles.max(1) }
}

impl RowSplit {
    /// First row of a tile; of the tile after the last, the number of rows.
    pub fn begin(&self, tile: usize) -> usize {
        tile * self.base + tile.min(self.taller)
    }

    pub fn height(&self, tile: usize) -> usize {
        self.base + usize::from(tile < self.taller)
    }
}

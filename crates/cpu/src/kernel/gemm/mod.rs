//! The tile of a matrix product: `rows × columns` results in registers, one step of `k` at a time. Both sides
//! are read where they lie if their strides allow ([`Tile`]); `pack.rs` copies what does not.
//!
//! Tiles: 14×32 with AVX-512 (28 of 32 registers hold sums), 6×16 with AVX2 (12 of 16), 4×8 portable. The
//! floor is the multiply-add units: per step of k a 14×32 tile does 28 multiply-adds and 16 loads, so loads
//! hide: 117.5 GFLOP/s of 118 (registers only) were measured on a Zen 4 core, with packed sides and strided
//! ones alike. Tiles of fewer rows take their share of the time, which is why rows are split evenly
//! ([`split_rows`]) rather than with a remainder.

#![allow(unsafe_code)]

mod amx;
mod pack;
mod pairs;
mod tiles;
#[cfg(target_arch = "x86_64")]
mod transpose;
mod word_tiles;
mod words;

pub use amx::{
    CHANNELS, Found, ImageLoop, ImageTile, bf16_tiles, block_words, byte_tiles, bytes_pay,
    found as tile_unit_found, image_loop, is_there as has_tile_unit, pays, time_share,
};
pub use pack::{Source, copy_few, copy_row, copy_rows, interleave, pack_a, pack_b, pack_panels, prefetch};
pub use pairs::{pack_pairs, pairs_room};
pub use word_tiles::{window_tiles, word_tiles};
#[cfg(target_arch = "x86_64")]
use words::TAME;
pub use words::{Word, copy_words, is_tame, pack_words, unpack_words};

use crate::isa::Isa;

/// c += a · b, or c = a · b, for a tile of as many rows as the kernel was made for.
///
/// Elements are words ([`Word`]): row i and word s of a are at `a[i × a_row + s × a_step]`; word s of b is `columns` neighbours at
/// `b[s × b_step]`; row i of c is `columns` neighbours at `c[i × c_row]`. All of it lies in memory, c is the
/// caller's alone, and the processor has the instructions of the level.
#[derive(Clone, Copy)]
pub struct Tile {
    /// Words.
    pub k: usize,
    pub rows: usize,
    pub a: *const f32,
    pub a_row: isize,
    pub a_step: isize,
    /// Distances of the parts of a and b, where they have several.
    pub a_part: usize,
    pub b: *const f32,
    pub b_step: isize,
    pub b_part: usize,
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
    /// What elements of the sides are.
    pub word: Word,
    /// Panels hold f16 in place of words of f32.
    pub half: bool,
    /// Numbers whose sum an operand is: see `words.rs`.
    pub parts: usize,
    /// The words of k are a multiple of it, zeros if need be. Where it is more than one, words of a are neighbours,
    /// a tile of a has memory for 16 or 32 rows, and a panel all its columns.
    pub granule: usize,
    /// Words of k in a pass.
    pub pass_words: usize,
    pub session: Option<Session>,
}

/// What a thread does before it calls kernels, and when it has called them.
pub struct Session {
    pub begin: unsafe fn(),
    pub end: unsafe fn(),
}

/// Ends a session.
pub struct Guard(Option<&'static Session>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            // SAFETY: begun by this thread: a guard does not leave it.
            unsafe { (session.end)() };
        }
    }
}

impl Tiles {
    /// Words of `k` steps of a product.
    pub fn words(&self, k: usize) -> usize {
        k.div_ceil(self.word.steps()).next_multiple_of(self.granule)
    }

    /// Words between steps of a packed panel.
    pub fn step_words(&self) -> usize {
        if self.half { self.columns / 2 } else { self.columns }
    }

    /// Words of a packed panel.
    pub fn panel_words(&self, k: usize) -> usize {
        self.parts * self.words(k) * self.step_words()
    }

    /// Steps of k in a pass.
    pub fn pass(&self) -> usize {
        self.pass_words * self.word.steps()
    }

    /// Must be held while kernels run.
    pub fn begin(&'static self) -> Guard {
        if let Some(session) = &self.session {
            // SAFETY: tiles with sessions are handed out only where the unit may be used.
            unsafe { (session.begin)() };
        }
        Guard(self.session.as_ref())
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

/// The tiles of f32 whose panels are f16, if the level has them.
#[cfg(target_arch = "x86_64")]
pub fn f16_tiles(isa: Isa) -> Option<&'static Tiles> {
    match isa {
        Isa::Avx512 => Some(&tiles::AVX512_F16),
        Isa::Avx2 if is_x86_feature_detected!("f16c") => Some(&tiles::AVX2_F16),
        _ => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn f16_tiles(_isa: Isa) -> Option<&'static Tiles> {
    None
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

//! A block of a product on a unit for tiles. Some steps of A ([`Tiles::pass`](crate::kernel::gemm::Tiles::pass)) are
//! copied as words for all rows of the block, then panel by panel of B multiplied with all of it: a panel's words (24 KiB)
//! stay in the L1 cache, those of 128 rows (100 KB) and the results (400 KB) in L2.
//!
//! Rows with numbers that parts cannot hold (infinities, NaN, the very large and small) are multiplied as f32.

#![allow(unsafe_code)]

use super::product::{LeftSide, RightSide, Rooms, room};
use super::{Block, Gemm};
use crate::kernel::gemm::{Source, Tile, copy_rows, copy_words, split_rows, unpack_words};
use smallvec::SmallVec;

/// Where a pass is: its first step, the number of steps and of words.
#[derive(Clone, Copy)]
struct Pass {
    begin: usize,
    k: usize,
    words: usize,
    /// Of rows of A in words: no two rows of a tile share their sets in the L1 cache.
    distance: usize,
}

/// # Safety
/// As [`super::run_block`]; tiles have granules, the left side is strided and the right one packed.
pub(super) unsafe fn run_block(
    gemm: &Gemm,
    block: &Block,
    (left, right): (&LeftSide, &RightSide),
    rooms: &mut Rooms,
    c: *mut f32,
    stride: usize,
) {
    let (&LeftSide::Strided(left), &RightSide::Packed(right)) = (left, right) else {
        unreachable!("the planner takes these tiles for such sides only")
    };
    let tiles = gemm.tiles;
    let all = tiles.words(gemm.k);
    let _session = tiles.begin();
    let mut begin = 0;
    loop {
        let k = tiles.pass().min(gemm.k - begin);
        let words = tiles.words(k);
        let pass = Pass { begin, k, words, distance: words + 16 };
        // SAFETY: passed on.
        let tame = unsafe { copy_tiles(gemm, block, left, pass, rooms) };
        for first in (0..block.wide.1).step_by(tiles.columns) {
            let before = (block.wide.0 + first) * tiles.parts * all;
            let panel = right.wrapping_add(before + begin / tiles.word.steps() * tiles.columns);
            let mut wild = false;
            for (number, index) in (block.tiles.0..block.tiles.1).enumerate() {
                let (row, height) = (block.origin + block.split.begin(index), block.split.height(index));
                if !tame[number] {
                    wild = true;
                    continue;
                }
                let tile = Tile {
                    k: words,
                    rows: height,
                    a: rooms.tile.as_ptr().cast::<f32>().wrapping_add(number * tile_words(gemm, pass)),
                    a_row: pass.distance as isize,
                    a_step: 1,
                    a_part: tiles.rows * pass.distance,
                    b: panel,
                    b_step: tiles.columns as isize,
                    b_part: all * tiles.columns,
                    c: c.wrapping_add((row - block.rows.0) * stride + first),
                    c_row: stride,
                    columns: tiles.columns.min(block.wide.1 - first),
                    add: begin > 0,
                };
                // SAFETY: a tile of the left side, a panel of the right one, and their results.
                unsafe { tiles.kernels[height - 1](&tile) };
            }
            if wild {
                let c = c.wrapping_add(first);
                let columns = tiles.columns.min(block.wide.1 - first);
                // SAFETY: as above; the rows left out have results of their own.
                unsafe { as_f32(gemm, block, (left, panel), (pass, &tame), rooms, (c, stride, columns)) };
            }
        }
        begin += k;
        if begin >= gemm.k {
            break;
        }
    }
}

/// Words of memory of a tile of A.
fn tile_words(gemm: &Gemm, pass: Pass) -> usize {
    gemm.tiles.parts * gemm.tiles.rows * pass.distance
}

/// Copies the block's tiles of A; returns which are tame.
///
/// # Safety
/// The side lies in memory.
unsafe fn copy_tiles(
    gemm: &Gemm,
    block: &Block,
    left: Source,
    pass: Pass,
    rooms: &mut Rooms,
) -> SmallVec<[bool; 8]> {
    let tiles = block.tiles.0..block.tiles.1;
    let to = room(&mut rooms.tile, tiles.len() * tile_words(gemm, pass));
    let copied = tiles.enumerate().map(|(number, index)| {
        let (row, height) = (block.origin + block.split.begin(index), block.split.height(index));
        let to = to.wrapping_add(number * tile_words(gemm, pass));
        // SAFETY: the tile lies in the operand; the room is ours and large enough.
        unsafe { copy_words(left.at(row, pass.begin), gemm.tiles, height, pass.k, to, pass.distance) }
    });
    copied.collect()
}

/// The results of tiles that are not tame in a panel's columns, as plain products of f32 make them.
///
/// # Safety
/// As [`run_block`].
unsafe fn as_f32(
    gemm: &Gemm,
    block: &Block,
    (left, panel): (Source, *const f32),
    (pass, tame): (Pass, &[bool]),
    rooms: &mut Rooms,
    (c, stride, columns): (*mut f32, usize, usize),
) {
    let (plain, width) = (gemm.plain, gemm.tiles.columns);
    let wide = 2 * pass.words * width;
    let b = room(&mut rooms.plain, wide + gemm.tiles.rows * pass.k);
    let a = b.wrapping_add(wide);
    // SAFETY: the room has the panel as f32, and the rows of a tile behind it.
    unsafe {
        unpack_words(panel, gemm.tiles, pass.words, gemm.tiles.words(gemm.k) * width, b);
        for index in (block.tiles.0..block.tiles.1).filter(|index| !tame[index - block.tiles.0]) {
            let (row, height) = (block.origin + block.split.begin(index), block.split.height(index));
            copy_rows(left.at(row, pass.begin), height, pass.k, a, pass.k);
            let split = split_rows(height, plain.rows);
            for (part, first) in (0..split.tiles)
                .flat_map(|part| (0..columns).step_by(plain.columns).map(move |first| (part, first)))
            {
                let begin = split.begin(part);
                let tile = Tile {
                    k: pass.k,
                    rows: split.height(part),
                    a: a.add(begin * pass.k),
                    a_row: pass.k as isize,
                    a_step: 1,
                    a_part: 0,
                    b: b.add(first),
                    b_step: width as isize,
                    b_part: 0,
                    c: c.wrapping_add((row + begin - block.rows.0) * stride + first),
                    c_row: stride,
                    columns: plain.columns.min(columns - first),
                    add: pass.begin > 0,
                };
                plain.kernels[tile.rows - 1](&tile);
            }
        }
    }
}

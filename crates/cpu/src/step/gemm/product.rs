//! A block of a product: passes of k, in each the tiles of rows, for each tile the panels of columns. A side
//! is read where it lies if its strides allow and the caches do not object; otherwise a part of it is copied
//! into a thread's own room first.

#![allow(unsafe_code)]

use super::blocks::PANELS;
use super::{Block, Gemm, Left, Right, Shared};
use crate::allocation::Line;
use crate::exec::Memory;
use crate::kernel::gemm::{
    Source, Tile, Word, copy_few, copy_row, copy_rows, copy_words, pack_a, pack_b, prefetch,
};
use crate::pool::Pool;
use crate::step::windows::Windows;
use crate::view::View;
use pando_base::DType;
use std::cell::RefCell;

/// Rows this many f32 apart share their sets in the L1 cache: more than eight throw each other out.
const ALIAS: isize = 1024;
/// Bytes of a right side that stay in L2 beside all else, panels or not.
const SMALL_RIGHT: usize = 128 << 10;

/// Tiles of a transposed left side that are packed together: their rows are neighbours in memory, where a tile's alone
/// would not fill a cache line, and every step of k is in another page.
const TOGETHER: usize = 8;
/// Steps between asking for memory and copying it.
const PREFETCH_STEPS: usize = 6;

/// Words that [`copy_words`] may fill behind a row.
const SPARE_WORDS: usize = 8;
/// Words of a cache line.
const LINE_WORDS: usize = 16;

/// Memory of a thread.
type Lines = Vec<Line>;

#[derive(Default)]
pub struct Rooms {
    /// A block's part of B.
    pub right: Lines,
    /// A block's results before the epilogue.
    pub results: Lines,
    /// A tile of A.
    pub tile: Lines,
    /// Of attention.
    pub scores: Lines,
    pub weights: Lines,
    /// Of attention's right sides, packed.
    pub sides: [Lines; 2],
    /// Of rows and panels that become f32 again.
    pub plain: Lines,
}

thread_local! {
    static ROOMS: RefCell<Rooms> = RefCell::default();
}

pub fn with_rooms(work: impl FnOnce(&mut Rooms)) {
    ROOMS.with_borrow_mut(work);
}

pub fn room(lines: &mut Lines, elements: usize) -> *mut f32 {
    let needed = (elements * 4).div_ceil(64);
    if lines.len() < needed {
        lines.resize(needed, Line::ZERO);
    }
    lines.as_mut_ptr().cast()
}

/// Where the left side of one matrix of the batch is.
pub enum LeftSide {
    /// Tiles as `[k][height]`, one after the other.
    Packed(*const f32),
    Strided(Source),
    /// Rows of words so far apart: see [`copy_left`].
    Copied(*const f32, usize),
}

/// Where the right side of one matrix of the batch is.
pub enum RightSide<'a> {
    /// Panels as `[k][panel]`, one after the other.
    Packed(*const f32),
    Strided(Source),
    Windows(&'a Windows, *const f32),
}

impl LeftSide {
    pub fn of(gemm: &Gemm, memory: Memory, view: &View, batch: usize) -> LeftSide {
        match &gemm.left {
            Left::Packed(count) => {
                let offset = batch % count * gemm.m * gemm.k;
                LeftSide::Packed(memory.address(view).cast::<f32>().wrapping_add(offset))
            }
            Left::Strided(matrix) => LeftSide::Strided(matrix.source(memory, view, batch)),
        }
    }
}

impl<'a> RightSide<'a> {
    /// `planes`: where the windows' planes are, if the right side has some.
    pub fn of(
        gemm: &'a Gemm,
        memory: Memory,
        view: &View,
        batch: usize,
        planes: *const f32,
    ) -> RightSide<'a> {
        match &gemm.right {
            Right::Packed => RightSide::Packed(memory.address(view).cast()),
            Right::Strided(matrix) => RightSide::Strided(matrix.source(memory, view, batch)),
            Right::Windows(windows) => {
                let (image, group) = (batch / windows.groups, batch % windows.groups);
                let offset = image * windows.image_size + group * windows.group_size;
                RightSide::Windows(windows, planes.wrapping_add(offset))
            }
        }
    }
}

/// Words between the rows of a left side that is copied before the blocks are made, because each of several blocks of
/// columns would copy it anew; `None` if the tiles read it where it lies, or read it once. An odd number of cache
/// lines: rows do not share their sets.
pub fn copied_distance(gemm: &Gemm) -> Option<usize> {
    let Left::Strided(matrix) = &gemm.left else { return None };
    let as_words = match (gemm.tiles.word, matrix.dtype) {
        (Word::F32, _) | (Word::Bf16, DType::BF16) | (Word::I8, DType::U8) => false,
        (Word::Bf16 | Word::I16 | Word::I8, _) => true,
    };
    let again = gemm.batch == 1 && gemm.n > PANELS * gemm.tiles.columns && gemm.tiles.granule == 1;
    let lines = (gemm.tiles.words(gemm.k) + SPARE_WORDS).div_ceil(LINE_WORDS);
    (as_words && again).then_some((lines | 1) * LINE_WORDS)
}

/// Copies a left side as words, by tiles of rows.
///
/// # Safety
/// The side lies in memory; `to` has room for its rows, `distance` apart, and is the caller's alone.
pub unsafe fn copy_left(gemm: &Gemm, memory: Memory, view: &View, to: Shared, distance: usize, pool: &Pool) {
    let split = gemm.split();
    pool.run(split.tiles, &|tile| {
        let LeftSide::Strided(source) = LeftSide::of(gemm, memory, view, 0) else { return };
        let (row, height) = (split.begin(tile), split.height(tile));
        let to = to.address().wrapping_add(row * distance);
        // SAFETY: rows of the side; tasks write disjoint rows, each with room behind it.
        unsafe { copy_words(source.at(row, 0), gemm.tiles, height, gemm.k, to, distance) };
    });
}

/// # Safety
/// The sides lie in memory; `c` has room for the block at `stride` and is the caller's alone. The level is one
/// the processor has.
pub unsafe fn run_block(
    gemm: &Gemm,
    block: &Block,
    (left, right): (&LeftSide, &RightSide),
    rooms: &mut Rooms,
    c: *mut f32,
    stride: usize,
) {
    if gemm.tiles.granule > 1 {
        // SAFETY: passed on.
        return unsafe { super::unit::run_block(gemm, block, (left, right), rooms, c, stride) };
    }
    let panel = gemm.tiles.columns;
    let mut begin = 0;
    loop {
        let k = gemm.k_block().min(gemm.k - begin);
        // SAFETY: passed on.
        let panels = unsafe { panels(gemm, block, right, (begin, k), &mut rooms.right) };
        let together = packed_together(gemm, left);
        for index in block.tiles.0..block.tiles.1 {
            let (row, height) = (block.origin + block.split.begin(index), block.split.height(index));
            let number = (index - block.tiles.0) % TOGETHER;
            // SAFETY: passed on.
            let rows = unsafe {
                match together {
                    Some(source) => {
                        let first = block.split.begin(index - number);
                        if number == 0 {
                            pack_together(source.at(block.origin + first, begin), block, index, k, rooms);
                        }
                        let to = room(&mut rooms.tile, 0).add((block.split.begin(index) - first) * k);
                        (to.cast_const(), 1, height as isize)
                    }
                    None => rows(gemm, left, (row, height), (begin, k), &mut rooms.tile),
                }
            };
            let kernel = gemm.tiles.kernels[height - 1];
            for (index, first) in (0..block.wide.1).step_by(panel).enumerate() {
                let tile = Tile {
                    k: gemm.tiles.words(k),
                    rows: height,
                    a: rows.0,
                    a_row: rows.1,
                    a_step: rows.2,
                    a_part: 0,
                    b: panels.address.wrapping_add(index * panels.panel),
                    b_step: panels.step,
                    b_part: 0,
                    c: c.wrapping_add((row - block.rows.0) * stride + first),
                    c_row: stride,
                    columns: panel.min(block.wide.1 - first),
                    add: begin > 0 && !gemm.integers,
                };
                // SAFETY: a tile of the left side, a panel of the right one, and their results.
                unsafe { kernel(&tile) };
            }
        }
        if gemm.integers {
            // SAFETY: integers are never direct: the block's i32 totals follow its f32 sums.
            unsafe { add_as_integers(c, block.rows.1 * stride, begin > 0) };
        }
        begin += k;
        if begin >= gemm.k {
            break;
        }
    }
}

/// The left side if its tiles are to be packed together: each row's steps are far apart, those of neighbouring rows
/// neighbours.
fn packed_together(gemm: &Gemm, left: &LeftSide) -> Option<Source> {
    let LeftSide::Strided(source) = *left else { return None };
    let transposed = source.row == 1 && source.column > 1 && source.dtype == DType::F32;
    (transposed && gemm.tiles.word == Word::F32 && worth_a_copy(gemm)).then_some(source)
}

/// Whether a tile is read so often that it should lie well.
fn worth_a_copy(gemm: &Gemm) -> bool {
    gemm.n > 2 * gemm.tiles.columns
}

/// Packs the tiles from the block's tile `first` on: `source` is at the first one's first row.
///
/// # Safety
/// The rows of so many tiles and `k` steps lie in memory.
unsafe fn pack_together(source: Source, block: &Block, first: usize, k: usize, rooms: &mut Rooms) {
    let tiles = first..block.tiles.1.min(first + TOGETHER);
    let (begin, end) = (block.split.begin(tiles.start), block.split.begin(tiles.end));
    let to = room(&mut rooms.tile, (end - begin) * k);
    for step in 0..k {
        let ahead = (step + PREFETCH_STEPS).min(k - 1) as isize * source.column * 4;
        prefetch(source.address.wrapping_offset(ahead), (end - begin) * 4);
        for tile in tiles.clone() {
            let (row, height) = (block.split.begin(tile) - begin, block.split.height(tile));
            // SAFETY: rows of the source; the room holds those of all tiles.
            unsafe {
                let from = source.at(row, step).address.cast::<f32>();
                copy_few(from, to.add(row * k + step * height), height);
            }
        }
    }
}

/// A tile of the left side for `k` steps from `begin` on: its address, and the distances of rows and steps.
///
/// # Safety
/// The side lies in memory.
unsafe fn rows(
    gemm: &Gemm,
    left: &LeftSide,
    (row, height): (usize, usize),
    (begin, k): (usize, usize),
    lines: &mut Lines,
) -> (*const f32, isize, isize) {
    let source = match left {
        LeftSide::Packed(address) => {
            return (address.wrapping_add(row * gemm.k + begin * height), 1, height as isize);
        }
        &LeftSide::Copied(address, distance) => {
            let before = row * distance + begin / gemm.tiles.word.steps();
            return (address.wrapping_add(before), distance as isize, 1);
        }
        // SAFETY: the tile lies in the operand.
        LeftSide::Strided(source) => unsafe { source.at(row, begin) },
    };
    let distance = gemm.tiles.pass_words + 16;
    if gemm.tiles.word != Word::F32 {
        if let Some(tile) = words_in_place(gemm, source, k) {
            return tile;
        }
        let to = room(lines, gemm.tiles.rows * distance);
        // SAFETY: the tile lies in the operand; the room is ours and large enough.
        unsafe { copy_words(source, gemm.tiles, height, k, to, distance) };
        return (to, distance as isize, 1);
    }
    let near = |along: isize, across: isize| along == 1 && (across % ALIAS != 0 || !worth_a_copy(gemm));
    let direct = near(source.column, source.row) || near(source.row, source.column);
    if source.dtype == DType::F32 && (direct || k == 1 || height == 1) {
        return (source.address.cast(), source.row, source.column);
    }
    let to = room(lines, gemm.tiles.rows * distance);
    // SAFETY: the tile lies in the operand; the room is ours and large enough.
    unsafe {
        if source.column == 1 {
            copy_rows(source, height, k, to, distance);
            return (to, distance as isize, 1);
        }
        pack_a(source, height, k, to);
    }
    (to, 1, height as isize)
}

/// A tile whose elements are words as they lie: of 16 or 8 bits, neighbouring steps neighbours, whole words.
fn words_in_place(gemm: &Gemm, source: Source, k: usize) -> Option<(*const f32, isize, isize)> {
    let word = gemm.tiles.word;
    let same = matches!((word, source.dtype), (Word::Bf16, DType::BF16) | (Word::I8, DType::U8));
    let row = source.row / word.steps() as isize;
    let whole = k.is_multiple_of(word.steps()) && source.row % word.steps() as isize == 0;
    let far = row % ALIAS != 0 || !worth_a_copy(gemm);
    let fits = same && whole && far && source.column == 1 && source.address.cast::<f32>().is_aligned();
    fits.then_some((source.address.cast(), row, 1))
}

struct Panels {
    address: *const f32,
    /// Distances of panels and words.
    panel: usize,
    step: isize,
}

/// Whether the tiles read the right side as it lies: neighbouring columns, and either too few rows to make up
/// for a copy or so little that it stays in the cache.
fn is_direct(gemm: &Gemm, source: &Source) -> bool {
    let few = gemm.m <= 2 * gemm.tiles.rows;
    let small = gemm.k * gemm.n * 4 <= SMALL_RIGHT && source.row % ALIAS != 0;
    source.dtype == DType::F32 && source.column == 1 && (few || small)
}

/// The block's panels for `k` steps from `begin` on.
///
/// # Safety
/// The side lies in memory.
unsafe fn panels(
    gemm: &Gemm,
    block: &Block,
    right: &RightSide,
    (begin, k): (usize, usize),
    lines: &mut Lines,
) -> Panels {
    let panel = gemm.tiles.columns;
    let packed = |address| Panels { address, panel: k * panel, step: panel as isize };
    let firsts = (0..block.wide.1).step_by(panel).enumerate();
    let mut target = || room(lines, block.wide.1.div_ceil(panel) * panel * k.max(1));
    match right {
        RightSide::Packed(address) => {
            let (panels, step) = (block.wide.0 / panel, gemm.tiles.step_words());
            let (all, before) = (gemm.tiles.words(gemm.k), gemm.tiles.words(begin));
            let address = address.wrapping_add((panels * all + before) * step);
            Panels { address, panel: all * step, step: step as isize }
        }
        RightSide::Strided(source) if is_direct(gemm, source) => {
            // SAFETY: the block lies in the operand.
            let source = unsafe { source.at(begin, block.wide.0) };
            Panels { address: source.address.cast(), panel, step: source.row }
        }
        RightSide::Strided(source) => {
            let to = target();
            for (index, first) in firsts {
                let columns = panel.min(block.wide.1 - first);
                // SAFETY: rows and columns lie in the operand; the room is ours.
                unsafe {
                    let source = source.at(begin, block.wide.0 + first);
                    pack_b(source, k, columns, panel, to.add(index * k * panel));
                }
            }
            packed(to.cast_const())
        }
        RightSide::Windows(windows, planes) => {
            let to = target();
            for (index, first) in firsts {
                let columns = panel.min(block.wide.1 - first);
                for (step, &offset) in windows.offsets[begin..begin + k].iter().enumerate() {
                    let from = planes.wrapping_add(block.wide.0 + first + offset);
                    // SAFETY: the columns of this kernel element lie in the planes (see `plan/conv.rs`); the
                    // room is ours.
                    unsafe { copy_row(from, to.add((index * k + step) * panel), columns, panel) };
                }
            }
            packed(to.cast_const())
        }
    }
}

/// Adds `count` whole numbers in f32 to, or makes them, the i32 behind them.
///
/// # Safety
/// `sums` has room for twice as many elements.
unsafe fn add_as_integers(sums: *mut f32, count: usize, add: bool) {
    // SAFETY: as stated; the halves do not overlap.
    let (sums, totals) = unsafe {
        let totals = sums.add(count).cast::<i32>();
        (std::slice::from_raw_parts(sums, count), std::slice::from_raw_parts_mut(totals, count))
    };
    for (total, &sum) in totals.iter_mut().zip(sums) {
        *total = if add { total.wrapping_add(sum as i32) } else { sum as i32 };
    }
}

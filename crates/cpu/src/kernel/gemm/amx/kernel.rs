//! The tile loops over a unit: up to 32 × 32 results in four registers, two for rows of A, two for columns of B.
//! A side may be a sum of several numbers (parts); the products that count are all added to the same sums: of three
//! parts first the small ones of all steps, whose roundings are small, too. [`Tile`]s have A and C in rows; images ([`ImageTile`]) in
//! blocks of channels, with rows of A wherever a window's elements are.
//!
//! The floor is the unit. A product of registers takes it 16 cycles and is done after 52; a load takes the two load
//! ports 8 cycles if it hits the L1 cache (Intel's Optimization Reference Manual, on Intel AMX). Four registers of sums
//! hide the 52 cycles, and per granule of steps there are
//!
//! | parts | products | cycles | loads | cycles | lines from L2 a cycle |
//! |---|---|---|---|---|---|
//! | 1 | 4 | 64 | 4 | 32 | 1/2 |
//! | 2 | 12 | 192 | 8 | 64 | 1/3 |
//! | 3 | 24 | 384 | 16 | 128 | 1/3 |
//!
//! if B's words of a pass stay in L1 and A's come from L2 (the last column; an L2 cache gives at most 3/4 of a line a
//! cycle). So the unit is the bound by a factor of 1.5, and the rest is the ends: the sums of a pass go to memory and
//! back while the next tile is multiplied (at most 64 cycles of stores for the passes' 768, 1152 and 1536 of products).
//! Assumption: 80 % of the unit's rate where it is not shared. With loads alone, as vectors, ResNet-50 at two parts spends
//! two thirds of its time here on a core of Zen 4, whose L2 cache gives half as much.

#![allow(unsafe_code)]

use super::super::Tile;
use super::unit::{Product, SIDE, Unit};

/// Which parts of A and B are multiplied by going over all steps once, and then once more, by how many parts they have:
/// all whose products reach the last place of those of the first ones. Neighbours share a side: fewer loads. With two
/// parts what is left out is far larger than what is rounded, so that once is enough.
const PRODUCTS: [[&[(usize, usize)]; 2]; 4] = [
    [&[], &[]],
    [&[], &[(0, 0)]],
    [&[], &[(1, 0), (0, 0), (0, 1)]],
    [&[(0, 2), (0, 1), (1, 1), (1, 0), (2, 0)], &[(0, 0)]],
];

/// A tile of an image's convolution: some neighbouring pixels times one or two blocks of output channels.
pub struct ImageTile<'a> {
    /// At most 32; A and C have memory for 16 or 32.
    pub pixels: usize,
    /// Pixels are [`SIDE`] words apart.
    pub a: *const f32,
    pub a_part: usize,
    /// Where the words of each granule of steps begin, from `a` on.
    pub steps: &'a [u32],
    /// `[granule][part][SIDE][2 × SIDE]`
    pub b: *const f32,
    /// Pixels are [`SIDE`] elements apart, blocks `c_block`.
    pub c: *mut f32,
    pub c_block: usize,
    /// 1 or 2.
    pub blocks: usize,
    /// Whether c has sums already.
    pub add: bool,
}

/// # Safety
/// As of [`bf16`]; the words named and the sums lie in memory, which is the caller's.
pub type ImageLoop = unsafe fn(&ImageTile);

/// # Safety
/// See [`ImageLoop`].
pub unsafe fn image<U: Unit, const PARTS: usize>(tile: &ImageTile) {
    let work = Work {
        granules: tile.steps.len(),
        a: |granule: usize| tile.a.wrapping_add(tile.steps[granule] as usize),
        a_row: SIDE,
        a_part: tile.a_part,
        b: tile.b,
        b_granule: PARTS * SIDE * 2 * SIDE,
        b_row: 2 * SIDE,
        b_part: SIDE * 2 * SIDE,
        c: tile.c,
        c_row: SIDE,
        c_next: tile.c_block,
        rows: tile.pixels.next_multiple_of(SIDE),
        columns: tile.blocks * SIDE,
        add: tile.add,
    };
    // SAFETY: passed on.
    unsafe { of_size::<U, PARTS, _>(&work, Product::Bf16) };
}

/// # Safety
/// See [`Tile`]; the thread has begun to use the unit. Both sides have whole granules of words (see
/// [`Tiles`](super::super::Tiles)), A has 16 or 32 rows of memory, B all columns of the panel.
pub unsafe fn bf16<U: Unit, const PARTS: usize>(tile: &Tile) {
    // SAFETY: passed on.
    unsafe { of_rows::<U, PARTS>(tile, Product::Bf16) };
}

/// # Safety
/// As [`bf16`].
pub unsafe fn bytes<U: Unit>(tile: &Tile) {
    // SAFETY: passed on.
    unsafe { of_rows::<U, 1>(tile, Product::Bytes) };
}

/// # Safety
/// As [`bf16`].
#[inline(always)]
unsafe fn of_rows<U: Unit, const PARTS: usize>(tile: &Tile, product: Product) {
    let b_row = tile.b_step as usize;
    let work = Work {
        granules: tile.k.div_ceil(SIDE),
        a: |granule: usize| tile.a.wrapping_add(granule * SIDE),
        a_row: tile.a_row as usize,
        a_part: tile.a_part,
        b: tile.b,
        b_granule: SIDE * b_row,
        b_row,
        b_part: tile.b_part,
        c: tile.c,
        c_row: tile.c_row,
        c_next: SIDE,
        rows: tile.rows,
        columns: tile.columns,
        add: tile.add,
    };
    // SAFETY: passed on.
    unsafe { of_size::<U, PARTS, _>(&work, product) };
}

/// Where both sides and the sums are; distances are those of words.
struct Work<A> {
    /// Registers' worth of steps.
    granules: usize,
    /// The first row's words of a granule.
    a: A,
    a_row: usize,
    a_part: usize,
    b: *const f32,
    b_granule: usize,
    b_row: usize,
    b_part: usize,
    c: *mut f32,
    c_row: usize,
    /// From a register's columns to those of the one beside it.
    c_next: usize,
    rows: usize,
    columns: usize,
    add: bool,
}

/// # Safety
/// As [`bf16`].
#[inline(always)]
unsafe fn of_size<U: Unit, const PARTS: usize, A: Fn(usize) -> *const f32>(work: &Work<A>, product: Product) {
    // SAFETY: passed on.
    unsafe {
        match (work.rows > SIDE, work.columns > SIDE) {
            (false, false) => multiply::<U, PARTS, false, false, A>(work, product),
            (false, true) => multiply::<U, PARTS, false, true, A>(work, product),
            (true, false) => multiply::<U, PARTS, true, false, A>(work, product),
            (true, true) => multiply::<U, PARTS, true, true, A>(work, product),
        }
    }
}

/// # Safety
/// As [`bf16`]; TALL and WIDE say whether there are more than 16 rows and columns.
#[inline(always)]
unsafe fn multiply<
    U: Unit,
    const PARTS: usize,
    const TALL: bool,
    const WIDE: bool,
    A: Fn(usize) -> *const f32,
>(
    work: &Work<A>,
    product: Product,
) {
    // Earlier sums may be too small for the unit, where operands need not be: those of several parts are added to it
    // afterwards, which also rounds less.
    let (loads, adds) = (work.add && PARTS == 1, work.add && PARTS > 1);
    // SAFETY: passed on; each register's part of c.
    unsafe {
        sums::<U, 0, A>(work, (0, 0), loads);
        if WIDE {
            sums::<U, 1, A>(work, (0, SIDE), loads);
        }
        if TALL {
            sums::<U, 2, A>(work, (SIDE, 0), loads);
        }
        if TALL && WIDE {
            sums::<U, 3, A>(work, (SIDE, SIDE), loads);
        }
        if !PRODUCTS[PARTS][0].is_empty() {
            steps::<U, TALL, WIDE, A>(work, product, PRODUCTS[PARTS][0]);
        }
        steps::<U, TALL, WIDE, A>(work, product, PRODUCTS[PARTS][1]);
        results::<U, 0, A>(work, (0, 0), adds);
        if WIDE {
            results::<U, 1, A>(work, (0, SIDE), adds);
        }
        if TALL {
            results::<U, 2, A>(work, (SIDE, 0), adds);
        }
        if TALL && WIDE {
            results::<U, 3, A>(work, (SIDE, SIDE), adds);
        }
    }
}

/// Adds the products of some parts at all steps.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn steps<U: Unit, const TALL: bool, const WIDE: bool, A: Fn(usize) -> *const f32>(
    work: &Work<A>,
    product: Product,
    parts: &[(usize, usize)],
) {
    for granule in 0..work.granules {
        let a = (work.a)(granule);
        let b = work.b.wrapping_add(granule * work.b_granule);
        let mut held = (usize::MAX, usize::MAX);
        for &(a_part, b_part) in parts {
            // SAFETY: the rows, columns and steps of the tile; words of A are neighbours.
            unsafe {
                // Loads stand between products, so that the unit has work while they are under way.
                let (a_next, b_next) = (a.add(a_part * work.a_part), b.add(b_part * work.b_part));
                if held.0 != a_part {
                    U::load::<4>(a_next.cast(), work.a_row * 4);
                }
                if held.1 != b_part {
                    U::load::<6>(b_next.cast(), work.b_row * 4);
                }
                U::multiply::<0, 4, 6>(product);
                if WIDE {
                    if held.1 != b_part {
                        U::load::<7>(b_next.add(SIDE).cast(), work.b_row * 4);
                    }
                    U::multiply::<1, 4, 7>(product);
                }
                if TALL {
                    if held.0 != a_part {
                        U::load::<5>(a_next.add(SIDE * work.a_row).cast(), work.a_row * 4);
                    }
                    U::multiply::<2, 5, 6>(product);
                }
                if TALL && WIDE {
                    U::multiply::<3, 5, 7>(product);
                }
            }
            held = (a_part, b_part);
        }
    }
}

/// A register's part of c: how much of it there is, and where.
fn part<A>(work: &Work<A>, (row, column): (usize, usize)) -> (usize, usize, *mut f32) {
    let size = |all: usize, first: usize| (all - first).min(SIDE);
    let at = work.c.wrapping_add(row * work.c_row + column / SIDE * work.c_next);
    (size(work.rows, row), size(work.columns, column), at)
}

/// Where a register's part of c is cut off, it goes by way of this.
type Square = [[f32; SIDE]; SIDE];

/// # Safety
/// The register's part of c is the caller's.
#[inline(always)]
unsafe fn sums<U: Unit, const T: usize, A>(work: &Work<A>, first: (usize, usize), load: bool) {
    let (rows, columns, c) = part(work, first);
    // SAFETY: so many rows and columns lie in c.
    unsafe {
        if !load {
            return U::zero::<T>();
        }
        if (rows, columns) == (SIDE, SIDE) {
            return U::load::<T>(c.cast_const().cast(), work.c_row * 4);
        }
        let mut square: Square = [[0.0; SIDE]; SIDE];
        for (row, line) in square.iter_mut().enumerate().take(rows) {
            std::ptr::copy_nonoverlapping(c.add(row * work.c_row), line.as_mut_ptr(), columns);
        }
        U::load::<T>(square.as_ptr().cast(), SIDE * 4);
    }
}

/// # Safety
/// As [`sums`].
#[inline(always)]
unsafe fn results<U: Unit, const T: usize, A>(work: &Work<A>, first: (usize, usize), add: bool) {
    let (rows, columns, c) = part(work, first);
    // SAFETY: so many rows and columns lie in c.
    unsafe {
        if (rows, columns) == (SIDE, SIDE) && !add {
            return U::store::<T>(c.cast(), work.c_row * 4);
        }
        let mut square: Square = [[0.0; SIDE]; SIDE];
        U::store::<T>(square.as_mut_ptr().cast(), SIDE * 4);
        for (row, line) in square.iter().enumerate().take(rows) {
            let to = std::slice::from_raw_parts_mut(c.add(row * work.c_row), columns);
            match <&mut [f32; SIDE]>::try_from(&mut *to) {
                // Of a length that the compiler knows: a vector.
                Ok(to) if add => to.iter_mut().zip(line).for_each(|(to, x)| *to += x),
                Ok(to) => *to = *line,
                Err(_) => to.iter_mut().zip(line).for_each(|(to, x)| *to = if add { *to + x } else { *x }),
            }
        }
    }
}

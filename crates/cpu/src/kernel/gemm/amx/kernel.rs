//! The tile loop over a unit: up to 32 × 32 results in four registers, two for rows of A, two for columns of B.
//! A side may be a sum of several numbers ([`Tile::a_part`]); the products that count are all added to the same
//! sums: first the small ones of all steps, whose roundings are small, too.
//!
//! The floor is the unit: a product of registers takes it 16 cycles, in which the two loads that a product
//! needs on average fit if they hit the L1 cache.

#![allow(unsafe_code)]

use super::super::Tile;
use super::unit::{Product, SIDE, Unit};

/// Which parts of A and B are multiplied besides the first ones, by how many parts they have: all whose products reach
/// the last place of those.
const SMALL: [&[(usize, usize)]; 4] =
    [&[], &[], &[(1, 0), (0, 1)], &[(2, 0), (1, 1), (0, 2), (0, 1), (1, 0)]];

/// # Safety
/// See [`Tile`]; the thread has begun to use the unit. Both sides have whole granules of words (see
/// [`Tiles`](super::super::Tiles)), A has 16 or 32 rows of memory, B all columns of the panel.
pub unsafe fn bf16<U: Unit, const PARTS: usize>(tile: &Tile) {
    // SAFETY: passed on.
    unsafe { of_size::<U, PARTS>(tile, Product::Bf16) };
}

/// # Safety
/// As [`bf16`].
pub unsafe fn bytes<U: Unit>(tile: &Tile) {
    // SAFETY: passed on.
    unsafe { of_size::<U, 1>(tile, Product::Bytes) };
}

/// # Safety
/// As [`bf16`].
#[inline(always)]
unsafe fn of_size<U: Unit, const PARTS: usize>(tile: &Tile, product: Product) {
    // SAFETY: passed on.
    unsafe {
        match (tile.rows > SIDE, tile.columns > SIDE) {
            (false, false) => multiply::<U, PARTS, false, false>(tile, product),
            (false, true) => multiply::<U, PARTS, false, true>(tile, product),
            (true, false) => multiply::<U, PARTS, true, false>(tile, product),
            (true, true) => multiply::<U, PARTS, true, true>(tile, product),
        }
    }
}

/// # Safety
/// As [`bf16`]; TALL and WIDE say whether there are more than 16 rows and columns.
#[inline(always)]
unsafe fn multiply<U: Unit, const PARTS: usize, const TALL: bool, const WIDE: bool>(
    tile: &Tile,
    product: Product,
) {
    // Earlier sums may be too small for the unit, where operands need not be: those of several parts are added to it
    // afterwards, which also rounds less.
    let (loads, adds) = (tile.add && PARTS == 1, tile.add && PARTS > 1);
    // SAFETY: passed on; each register's part of c.
    unsafe {
        sums::<U, 0>(tile, (0, 0), loads);
        if WIDE {
            sums::<U, 1>(tile, (0, SIDE), loads);
        }
        if TALL {
            sums::<U, 2>(tile, (SIDE, 0), loads);
        }
        if TALL && WIDE {
            sums::<U, 3>(tile, (SIDE, SIDE), loads);
        }
        if PARTS > 1 {
            steps::<U, TALL, WIDE>(tile, product, SMALL[PARTS]);
        }
        steps::<U, TALL, WIDE>(tile, product, &[(0, 0)]);
        results::<U, 0>(tile, (0, 0), adds);
        if WIDE {
            results::<U, 1>(tile, (0, SIDE), adds);
        }
        if TALL {
            results::<U, 2>(tile, (SIDE, 0), adds);
        }
        if TALL && WIDE {
            results::<U, 3>(tile, (SIDE, SIDE), adds);
        }
    }
}

/// Adds the products of some parts at all steps.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn steps<U: Unit, const TALL: bool, const WIDE: bool>(
    tile: &Tile,
    product: Product,
    parts: &[(usize, usize)],
) {
    let (a_stride, b_stride) = (tile.a_row as usize * 4, tile.b_step as usize * 4);
    for step in (0..tile.k).step_by(SIDE) {
        let a = tile.a.wrapping_add(step);
        let b = tile.b.wrapping_offset(step as isize * tile.b_step);
        let mut held = (usize::MAX, usize::MAX);
        for &(a_part, b_part) in parts {
            // SAFETY: the rows, columns and steps of the tile; words of A are neighbours.
            unsafe {
                if held.0 != a_part {
                    let a = a.add(a_part * tile.a_part);
                    U::load::<4>(a.cast(), a_stride);
                    if TALL {
                        U::load::<5>(a.offset(SIDE as isize * tile.a_row).cast(), a_stride);
                    }
                }
                if held.1 != b_part {
                    let b = b.add(b_part * tile.b_part);
                    U::load::<6>(b.cast(), b_stride);
                    if WIDE {
                        U::load::<7>(b.add(SIDE).cast(), b_stride);
                    }
                }
                U::multiply::<0, 4, 6>(product);
                if WIDE {
                    U::multiply::<1, 4, 7>(product);
                }
                if TALL {
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
fn part(tile: &Tile, (row, column): (usize, usize)) -> (usize, usize, *mut f32) {
    let size = |all: usize, first: usize| (all - first).min(SIDE);
    let at = tile.c.wrapping_add(row * tile.c_row + column);
    (size(tile.rows, row), size(tile.columns, column), at)
}

/// Where a register's part of c is cut off, it goes by way of this.
type Square = [[f32; SIDE]; SIDE];

/// # Safety
/// The register's part of c is the caller's.
#[inline(always)]
unsafe fn sums<U: Unit, const T: usize>(tile: &Tile, first: (usize, usize), load: bool) {
    let (rows, columns, c) = part(tile, first);
    // SAFETY: so many rows and columns lie in c.
    unsafe {
        if !load {
            return U::zero::<T>();
        }
        if (rows, columns) == (SIDE, SIDE) {
            return U::load::<T>(c.cast_const().cast(), tile.c_row * 4);
        }
        let mut square: Square = [[0.0; SIDE]; SIDE];
        for (row, line) in square.iter_mut().enumerate().take(rows) {
            std::ptr::copy_nonoverlapping(c.add(row * tile.c_row), line.as_mut_ptr(), columns);
        }
        U::load::<T>(square.as_ptr().cast(), SIDE * 4);
    }
}

/// # Safety
/// As [`sums`].
#[inline(always)]
unsafe fn results<U: Unit, const T: usize>(tile: &Tile, first: (usize, usize), add: bool) {
    let (rows, columns, c) = part(tile, first);
    // SAFETY: so many rows and columns lie in c.
    unsafe {
        if (rows, columns) == (SIDE, SIDE) && !add {
            return U::store::<T>(c.cast(), tile.c_row * 4);
        }
        let mut square: Square = [[0.0; SIDE]; SIDE];
        U::store::<T>(square.as_mut_ptr().cast(), SIDE * 4);
        for (row, line) in square.iter().enumerate().take(rows) {
            let to = std::slice::from_raw_parts_mut(c.add(row * tile.c_row), columns);
            for (to, x) in to.iter_mut().zip(line) {
                *to = if add { *to + x } else { *x };
            }
        }
    }
}

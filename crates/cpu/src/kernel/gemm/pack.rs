//! Copies of matrices in the order in which tiles read them. A is packed as `[k][rows]` per tile of rows, B as
//! `[k][panel]` per panel of columns, zeros beyond the last column. What the tiles can read where it lies is
//! not packed, but for constants.
//!
//! The floor is a load and a store per element: transposing goes by squares in registers with AVX-512.

#![allow(unsafe_code)]

use super::Tiles;
use crate::kernel::half;
use pando_base::DType;

/// A strided matrix in memory.
#[derive(Clone, Copy)]
pub struct Source {
    pub address: *const u8,
    pub dtype: DType,
    /// Distances of neighbouring rows and columns in elements.
    pub row: isize,
    pub column: isize,
}

impl Source {
    /// # Safety
    /// The element lies in memory.
    #[inline(always)]
    pub(super) unsafe fn read(&self, row: usize, column: usize) -> f32 {
        let offset = row as isize * self.row + column as isize * self.column;
        // SAFETY: as stated.
        unsafe {
            match self.dtype {
                DType::F32 => *self.address.cast::<f32>().offset(offset),
                dtype => half::read(dtype, *self.address.cast::<u16>().offset(offset)),
            }
        }
    }

    /// The first columns of a row.
    ///
    /// # Safety
    /// The elements lie in memory.
    #[inline(always)]
    pub(super) unsafe fn read_row(&self, row: usize, to: &mut [f32]) {
        // SAFETY: as stated.
        unsafe {
            if let (DType::F32, 1) = (self.dtype, self.column) {
                let from = self.address.cast::<f32>().offset(row as isize * self.row);
                std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len());
                return;
            }
            for (column, to) in to.iter_mut().enumerate() {
                *to = self.read(row, column);
            }
        }
    }

    /// An integer of 8 or 32 bits.
    ///
    /// # Safety
    /// The element lies in memory.
    #[inline(always)]
    pub(super) unsafe fn read_int(&self, row: usize, column: usize) -> i32 {
        let offset = row as isize * self.row + column as isize * self.column;
        // SAFETY: as stated.
        unsafe {
            match self.dtype {
                DType::I8 => (*self.address.cast::<i8>().offset(offset)).into(),
                DType::U8 => (*self.address.offset(offset)).into(),
                _ => *self.address.cast::<i32>().offset(offset),
            }
        }
    }

    /// As f32 rows with neighbouring columns 1 apart, if so.
    fn rows(&self) -> Option<*const f32> {
        (self.dtype == DType::F32 && self.column == 1).then_some(self.address.cast())
    }

    pub fn transposed(self) -> Source {
        Source { row: self.column, column: self.row, ..self }
    }

    /// The matrix whose first element is this one's at a place.
    ///
    /// # Safety
    /// The place lies in memory or just behind.
    pub unsafe fn at(self, row: usize, column: usize) -> Source {
        let offset = row as isize * self.row + column as isize * self.column;
        Source { address: self.address.wrapping_offset(offset * self.dtype.size_bytes() as isize), ..self }
    }
}

/// Steps of k packed at a time: their part of a tile is 4 KiB.
const PACK_STEPS: usize = 64;

/// Packs a tile of A: `height` rows of `k` columns, as `[k][height]`.
///
/// # Safety
/// The elements lie in memory; `to` has room for them.
pub unsafe fn pack_a(from: Source, height: usize, k: usize, to: *mut f32) {
    // SAFETY: passed on.
    unsafe { interleave(from, height, k, height, to) }
}

/// Copies rows of A so that neighbouring columns are neighbours, rows `distance` apart.
///
/// # Safety
/// The elements lie in memory; `to` has room for them.
pub unsafe fn copy_rows(from: Source, height: usize, k: usize, to: *mut f32, distance: usize) {
    for row in 0..height {
        // SAFETY: indices are below height and k.
        unsafe {
            let to = to.add(row * distance);
            match from.rows() {
                Some(rows) => std::ptr::copy_nonoverlapping(rows.offset(row as isize * from.row), to, k),
                None => (0..k).for_each(|step| *to.add(step) = from.read(row, step)),
            }
        }
    }
}

/// Packs a panel of B: `k` rows of `columns` columns, as `[k][width]` with zeros behind.
///
/// # Safety
/// The elements lie in memory; `to` has room for `k × width`, and `columns` is at most `width`.
pub unsafe fn pack_b(from: Source, k: usize, columns: usize, width: usize, to: *mut f32) {
    // SAFETY: indices are below k, columns and width.
    unsafe {
        if let Some(rows) = from.rows() {
            for step in 0..k {
                let (source, target) = (rows.offset(step as isize * from.row), to.add(step * width));
                copy_row(source, target, columns, width);
            }
            return;
        }
        if columns < width {
            std::slice::from_raw_parts_mut(to, k * width).fill(0.0);
        }
        interleave(from.transposed(), columns, k, width, to);
    }
}

/// Packs B, `k` rows of `n` columns, in panels as f32.
///
/// # Safety
/// The elements lie in memory; `to` has room for the panels, and is the caller's.
pub unsafe fn pack_panels(from: Source, tiles: &Tiles, [k, n]: [usize; 2], to: *mut f32) {
    for first in (0..n).step_by(tiles.columns) {
        let columns = tiles.columns.min(n - first);
        // SAFETY: columns of B and their panel.
        unsafe { pack_b(from.at(0, first), k, columns, tiles.columns, to.add(first * k)) };
    }
}

/// `to[step × distance + row]` becomes element `step` of row `row`.
///
/// # Safety
/// The elements lie in memory; `to` has room for them.
pub unsafe fn interleave(from: Source, rows: usize, k: usize, distance: usize, to: *mut f32) {
    // SAFETY: indices are below rows and k.
    unsafe {
        if let Some(columns) = from.transposed().rows() {
            for step in 0..k {
                copy_few(columns.offset(step as isize * from.column), to.add(step * distance), rows);
            }
            return;
        }
        let Some(lines) = from.rows() else {
            for step in 0..k {
                for row in 0..rows {
                    *to.add(step * distance + row) = from.read(row, step);
                }
            }
            return;
        };
        #[cfg(target_arch = "x86_64")]
        if super::transpose::is_available() {
            return super::transpose::interleave(lines, from.row, rows, k, distance, to);
        }
        // In steps whose targets stay in the L1 cache while rows pass by.
        for first in (0..k).step_by(PACK_STEPS) {
            for row in 0..rows {
                let line = lines.offset(row as isize * from.row);
                for step in first..k.min(first + PACK_STEPS) {
                    *to.add(step * distance + row) = *line.add(step);
                }
            }
        }
    }
}

/// Copies the rows of a tile: too few for a call that finds out how many.
///
/// # Safety
/// `from` has so many elements, `to` room for them.
#[inline(always)]
pub unsafe fn copy_few(from: *const f32, to: *mut f32, count: usize) {
    // SAFETY: as stated; the parts of 8 at both ends may overlap.
    unsafe {
        match count {
            8..=16 => {
                let parts = [from.cast::<[f32; 8]>(), from.add(count - 8).cast::<[f32; 8]>()];
                let (low, high) = (parts[0].read_unaligned(), parts[1].read_unaligned());
                to.cast::<[f32; 8]>().write_unaligned(low);
                to.add(count - 8).cast::<[f32; 8]>().write_unaligned(high);
            }
            _ => std::ptr::copy_nonoverlapping(from, to, count),
        }
    }
}

/// Copies `columns` elements and fills up to `width` with zeros.
///
/// # Safety
/// `from` has `columns` elements, `to` room for `width`.
#[inline(always)]
pub unsafe fn copy_row(from: *const f32, to: *mut f32, columns: usize, width: usize) {
    // SAFETY: as stated. Whole panels are copied with vectors rather than by a call.
    unsafe {
        match (columns == width, width) {
            (true, 32) => *to.cast::<[f32; 32]>() = *from.cast::<[f32; 32]>(),
            (true, 16) => *to.cast::<[f32; 16]>() = *from.cast::<[f32; 16]>(),
            (true, 8) => *to.cast::<[f32; 8]>() = *from.cast::<[f32; 8]>(),
            _ => {
                std::ptr::copy_nonoverlapping(from, to, columns);
                std::slice::from_raw_parts_mut(to.add(columns), width - columns).fill(0.0);
            }
        }
    }
}

/// Asks for memory that is used soon. A hint: any address will do.
#[cfg(target_arch = "x86_64")]
pub fn prefetch(address: *const u8, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in (0..bytes).step_by(64) {
        // SAFETY: a prefetch reads nothing that a program could see, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(line).cast()) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn prefetch(_address: *const u8, _bytes: usize) {}

//! The tile of a matrix product: `m × n` results in registers, one step of `k` at a time, and the packing
//! that feeds it. A is packed as `[k][m]` per tile of rows, B as `[k][NR]` per panel of columns, zeros beyond
//! the last column.
//!
//! Tiles: 14×32 with AVX-512 (28 of 32 registers hold sums), 6×16 with AVX2 (12 of 16), 4×8 portable. The
//! floor is the multiply-add units: per step of k a 14×32 tile does 28 multiply-adds and 16 loads, so loads
//! hide. Tiles of fewer rows take their share of the time, which is why rows are split evenly
//! ([`split_rows`]) rather than with a remainder.

#![allow(unsafe_code)]
// Rows index registers: the loops over them are unrolled.
#![allow(clippy::needless_range_loop)]

use super::half;
use crate::isa::Isa;
use pando_base::DType;

/// `(k, a, b, c, row stride of c, columns, add to c)`: c += a · b for a tile of as many rows as the kernel
/// was made for and up to NR columns.
///
/// a has `k × rows` elements, b `k × NR`, c as stated by its row stride; c is the caller's alone. The
/// processor has the instructions of the level.
pub type TileLoop = unsafe fn(usize, *const f32, *const f32, *mut f32, usize, usize, bool);

/// The tiles of a level.
pub struct Tiles {
    /// Most rows of a tile.
    pub rows: usize,
    /// Columns of a panel.
    pub columns: usize,
    /// By rows, from 1.
    pub kernels: &'static [TileLoop],
}

static PORTABLE: Tiles =
    Tiles { rows: 4, columns: 8, kernels: &[portable::<1>, portable::<2>, portable::<3>, portable::<4>] };

#[cfg(target_arch = "x86_64")]
static AVX2: Tiles = Tiles {
    rows: 6,
    columns: 16,
    kernels: &[
        x86::avx2::<1>,
        x86::avx2::<2>,
        x86::avx2::<3>,
        x86::avx2::<4>,
        x86::avx2::<5>,
        x86::avx2::<6>,
    ],
};

#[cfg(target_arch = "x86_64")]
static AVX512: Tiles = Tiles {
    rows: 14,
    columns: 32,
    kernels: &[
        x86::avx512::<1>,
        x86::avx512::<2>,
        x86::avx512::<3>,
        x86::avx512::<4>,
        x86::avx512::<5>,
        x86::avx512::<6>,
        x86::avx512::<7>,
        x86::avx512::<8>,
        x86::avx512::<9>,
        x86::avx512::<10>,
        x86::avx512::<11>,
        x86::avx512::<12>,
        x86::avx512::<13>,
        x86::avx512::<14>,
    ],
};

#[cfg(target_arch = "x86_64")]
pub fn tiles(isa: Isa) -> &'static Tiles {
    match isa {
        Isa::Portable => &PORTABLE,
        Isa::Avx2 => &AVX2,
        Isa::Avx512 => &AVX512,
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn tiles(_isa: Isa) -> &'static Tiles {
    &PORTABLE
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

/// # Safety
/// See [`TileLoop`].
unsafe fn portable<const M: usize>(
    k: usize,
    a: *const f32,
    b: *const f32,
    c: *mut f32,
    stride: usize,
    columns: usize,
    add: bool,
) {
    const N: usize = 8;
    let mut sums = [[0f32; N]; M];
    for step in 0..k {
        // SAFETY: step is below k.
        let (a, b) = unsafe { (a.add(step * M), &*b.add(step * N).cast::<[f32; N]>()) };
        for row in 0..M {
            // SAFETY: a step of a has M elements.
            let x = unsafe { *a.add(row) };
            for column in 0..N {
                sums[row][column] += x * b[column];
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (column, &sum) in sums.iter().enumerate().take(columns) {
            // SAFETY: the tile's rows and columns lie in c.
            unsafe {
                let c = c.add(row * stride + column);
                *c = if add { *c + sum } else { sum };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// # Safety
    /// See [`super::TileLoop`].
    #[target_feature(enable = "avx512f")]
    pub unsafe fn avx512<const M: usize>(
        k: usize,
        a: *const f32,
        b: *const f32,
        c: *mut f32,
        stride: usize,
        columns: usize,
        add: bool,
    ) {
        // SAFETY: passed on. The last panel is often narrow: half of it takes half the time.
        unsafe {
            match columns {
                ..=16 => tile512::<M, 1>(k, a, b, c, stride, columns, add),
                _ => tile512::<M, 2>(k, a, b, c, stride, columns, add),
            }
        }
    }

    /// The first `V` vectors of a panel.
    ///
    /// # Safety
    /// See [`super::TileLoop`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn tile512<const M: usize, const V: usize>(
        k: usize,
        mut a: *const f32,
        mut b: *const f32,
        c: *mut f32,
        stride: usize,
        columns: usize,
        add: bool,
    ) {
        let mut sums = [[_mm512_setzero_ps(); V]; M];
        for _ in 0..k {
            // SAFETY: each of the k steps reads M elements of a and at most 32 of b.
            unsafe {
                let mut right = [_mm512_setzero_ps(); V];
                for vector in 0..V {
                    right[vector] = _mm512_loadu_ps(b.add(16 * vector));
                }
                for row in 0..M {
                    let x = _mm512_set1_ps(*a.add(row));
                    for vector in 0..V {
                        sums[row][vector] = _mm512_fmadd_ps(x, right[vector], sums[row][vector]);
                    }
                }
                a = a.add(M);
                b = b.add(32);
            }
        }
        let mask = ((1u64 << columns) - 1) as u32;
        for (row, sums) in sums.iter().enumerate() {
            for vector in 0..V {
                let mask = (mask >> (16 * vector)) as __mmask16;
                // SAFETY: masked lanes are not touched; the others lie in c.
                unsafe {
                    let c = c.add(row * stride).wrapping_add(vector * 16);
                    let old = if add { _mm512_maskz_loadu_ps(mask, c) } else { _mm512_setzero_ps() };
                    _mm512_mask_storeu_ps(c, mask, _mm512_add_ps(old, sums[vector]));
                }
            }
        }
    }

    /// # Safety
    /// See [`super::TileLoop`].
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn avx2<const M: usize>(
        k: usize,
        a: *const f32,
        b: *const f32,
        c: *mut f32,
        stride: usize,
        columns: usize,
        add: bool,
    ) {
        // SAFETY: passed on; as above.
        unsafe {
            match columns {
                ..=8 => tile256::<M, 1>(k, a, b, c, stride, columns, add),
                _ => tile256::<M, 2>(k, a, b, c, stride, columns, add),
            }
        }
    }

    /// As [`tile512`].
    ///
    /// # Safety
    /// See [`super::TileLoop`].
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn tile256<const M: usize, const V: usize>(
        k: usize,
        mut a: *const f32,
        mut b: *const f32,
        c: *mut f32,
        stride: usize,
        columns: usize,
        add: bool,
    ) {
        let mut sums = [[_mm256_setzero_ps(); V]; M];
        for _ in 0..k {
            // SAFETY: each of the k steps reads M elements of a and at most 16 of b.
            unsafe {
                let mut right = [_mm256_setzero_ps(); V];
                for vector in 0..V {
                    right[vector] = _mm256_loadu_ps(b.add(8 * vector));
                }
                for row in 0..M {
                    let x = _mm256_set1_ps(*a.add(row));
                    for vector in 0..V {
                        sums[row][vector] = _mm256_fmadd_ps(x, right[vector], sums[row][vector]);
                    }
                }
                a = a.add(M);
                b = b.add(16);
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for vector in 0..V {
                let lane = |i: usize| if vector * 8 + i < columns { -1 } else { 0 };
                let mask =
                    _mm256_setr_epi32(lane(0), lane(1), lane(2), lane(3), lane(4), lane(5), lane(6), lane(7));
                // SAFETY: masked lanes are not touched; the others lie in c.
                unsafe {
                    let c = c.add(row * stride).wrapping_add(vector * 8);
                    let old = if add { _mm256_maskload_ps(c, mask) } else { _mm256_setzero_ps() };
                    _mm256_maskstore_ps(c, mask, _mm256_add_ps(old, sums[vector]));
                }
            }
        }
    }
}

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
    unsafe fn read(&self, row: usize, column: usize) -> f32 {
        let offset = row as isize * self.row + column as isize * self.column;
        // SAFETY: as stated.
        unsafe {
            match self.dtype {
                DType::F32 => *self.address.cast::<f32>().offset(offset),
                dtype => half::read(dtype, *self.address.cast::<u16>().offset(offset)),
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
    // SAFETY: indices are below height and k.
    unsafe {
        match from.rows() {
            Some(rows) => {
                // In steps whose targets stay in the L1 cache while rows pass by.
                for first in (0..k).step_by(PACK_STEPS) {
                    for row in 0..height {
                        let source = rows.offset(row as isize * from.row);
                        for step in first..k.min(first + PACK_STEPS) {
                            *to.add(step * height + row) = *source.add(step);
                        }
                    }
                }
            }
            None => {
                for step in 0..k {
                    for row in 0..height {
                        *to.add(step * height + row) = from.read(row, step);
                    }
                }
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
        if let Some(columns_of) = from.transposed().rows() {
            for first in (0..k).step_by(PACK_STEPS) {
                for column in 0..columns {
                    let source = columns_of.offset(column as isize * from.column);
                    for step in first..k.min(first + PACK_STEPS) {
                        *to.add(step * width + column) = *source.add(step);
                    }
                }
            }
            return;
        }
        for step in 0..k {
            for column in 0..columns {
                *to.add(step * width + column) = from.read(step, column);
            }
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

//! What this computer's unit does: whether it is there and right, and whether six products on it are faster than
//! one of f32.

#![allow(unsafe_code)]

use super::super::{Source, Tile, Tiles, Word, copy_words, pack_words, split_rows, tiles};
use crate::isa::Isa;
use pando_base::DType;
use std::sync::OnceLock;
use std::time::Instant;

/// What there is of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// None, or none that vectors with AVX-512 BF16 stand beside.
    Nothing,
    /// One that the system does not let the process use.
    Refused,
    /// One whose products are not those of the emulation.
    Wrong,
    Good,
}

/// Looks once.
pub fn found() -> Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    *FOUND.get_or_init(find)
}

/// Whether the processor's unit may be used, and computes what it should.
pub fn is_there() -> bool {
    found() == Found::Good
}

#[cfg(target_arch = "x86_64")]
fn find() -> Found {
    let vectors = Isa::detect() == Isa::Avx512 && is_x86_feature_detected!("avx512bf16");
    match () {
        () if !vectors || !super::processor::has_unit() => Found::Nothing,
        () if !super::processor::is_permitted() => Found::Refused,
        () if !same_products(&super::PROCESSOR, &super::EMULATED) => Found::Wrong,
        () => Found::Good,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn find() -> Found {
    Found::Nothing
}

/// Whether products of three parts take less than [`WORTH`] of the time of f32, as measured once: a matter of the
/// processor, but also of who shares its units.
pub fn three_parts_pay() -> bool {
    static PAY: OnceLock<bool> = OnceLock::new();
    *PAY.get_or_init(|| {
        let Some(split) = super::bf16_tiles(crate::isa::TileUnit::Processor, 3) else { return false };
        is_there() && {
            let measured = Measured::new();
            measured.seconds(split) < WORTH * measured.seconds(tiles(Isa::detect()))
        }
    })
}

/// A gain worth other bits.
const WORTH: f64 = 0.8;
/// The best of so many runs: others have the unit at times.
const RUNS: usize = 5;

/// A product of the sizes of a block in the driver: everything stays in L2.
struct Measured {
    a: Vec<f32>,
    b: Vec<f32>,
}

impl Measured {
    const M: usize = 64;
    const N: usize = 512;
    const K: usize = 768;

    fn new() -> Measured {
        let numbers = |count: usize| (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
        Measured { a: numbers(Self::M * Self::K), b: numbers(Self::K * Self::N) }
    }

    fn seconds(&self, tiles: &'static Tiles) -> f64 {
        let a = source(&self.a, DType::F32, Self::K);
        let b = pack(source(&self.b, DType::F32, Self::N), [Self::K, Self::N], tiles);
        let run = |_| {
            let start = Instant::now();
            std::hint::black_box(multiply(a, &b, [Self::M, Self::N, Self::K], tiles));
            start.elapsed().as_secs_f64()
        };
        (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
    }
}

/// A matrix of dense rows.
fn source<T>(values: &[T], dtype: DType, row: usize) -> Source {
    Source { address: values.as_ptr().cast(), dtype, row: row as isize, column: 1 }
}

/// B in panels.
fn pack(b: Source, [k, n]: [usize; 2], tiles: &'static Tiles) -> Vec<f32> {
    let panel = tiles.parts * tiles.words(k) * tiles.columns;
    let mut packed = vec![0.0; n.div_ceil(tiles.columns) * panel];
    for (first, to) in (0..n).step_by(tiles.columns).zip(packed.chunks_exact_mut(panel)) {
        // SAFETY: the panel's columns lie in b, and `to` is as large as a panel.
        unsafe {
            let from = b.at(0, first);
            pack_words(from, tiles, k, tiles.columns.min(n - first), to.as_mut_ptr());
        }
    }
    packed
}

/// `a · b` of a pass of k at most, as the driver computes it.
fn multiply(a: Source, b: &[f32], [m, n, k]: [usize; 3], tiles: &'static Tiles) -> Vec<f32> {
    let (words, split) = (tiles.words(k), split_rows(m, tiles.rows));
    let distance = words + 16;
    let mut room = vec![0f32; tiles.parts * tiles.rows * distance];
    let mut c = vec![0f32; m * n];
    let _session = tiles.begin();
    for index in 0..split.tiles {
        let (row, height) = (split.begin(index), split.height(index));
        // SAFETY: rows of a; the room has those of a tile in all parts.
        unsafe { copy_words(a.at(row, 0), tiles, height, k, room.as_mut_ptr(), distance) };
        for first in (0..n).step_by(tiles.columns) {
            let tile = Tile {
                k: words,
                rows: height,
                a: room.as_ptr(),
                a_row: distance as isize,
                a_step: 1,
                a_part: tiles.rows * distance,
                b: b[first * tiles.parts * words..].as_ptr(),
                b_step: tiles.columns as isize,
                b_part: words * tiles.columns,
                c: c[row * n + first..].as_mut_ptr(),
                c_row: n,
                columns: tiles.columns.min(n - first),
                add: false,
            };
            // SAFETY: a tile of a, a panel of b, and their results; the level is this processor's.
            unsafe { tiles.kernels[height - 1](&tile) };
        }
    }
    c
}

/// Whether two units agree, bit for bit, on products of whole numbers that need no rounding, in all parts, of whole
/// tiles and their edges.
#[cfg(any(test, target_arch = "x86_64"))]
fn same_products(ours: &'static super::Set, theirs: &'static super::Set) -> bool {
    let sizes = [[64, 64, 96], [21, 43, 70], [5, 9, 3]];
    ours.0
        .iter()
        .zip(&theirs.0)
        .all(|(ours, theirs)| sizes.into_iter().all(|sizes| example(sizes, ours) == example(sizes, theirs)))
}

/// Bits of a product of whole numbers: at most 509 × 63 × 96 stay below 2^24, and some need two parts.
#[cfg(any(test, target_arch = "x86_64"))]
fn example([m, n, k]: [usize; 3], tiles: &'static Tiles) -> Vec<u32> {
    let a: Vec<i32> = (0..m * k).map(|i| (i * 29 % 509) as i32).collect();
    let b: Vec<i32> = (0..k * n).map(|i| (i * 53 % 127) as i32 - 63).collect();
    let floats = |values: &[i32]| values.iter().map(|&x| x as f32).collect::<Vec<_>>();
    let bytes = |values: &[i32]| values.iter().map(|&x| x as u8).collect::<Vec<_>>();
    let c = if tiles.word == Word::I8 {
        let (a, b) = (bytes(&a), bytes(&b));
        let b = pack(source(&b, DType::I8, n), [k, n], tiles);
        multiply(source(&a, DType::U8, k), &b, [m, n, k], tiles)
    } else {
        let (a, b) = (floats(&a), floats(&b));
        let b = pack(source(&b, DType::F32, n), [k, n], tiles);
        multiply(source(&a, DType::F32, k), &b, [m, n, k], tiles)
    };
    c.into_iter().map(f32::to_bits).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{EMULATED, byte_tiles};
    use super::*;
    use crate::isa::TileUnit;

    /// The product that the check is made of, where the numbers need no rounding.
    #[test]
    fn products_of_the_check_are_right() {
        let [m, n, k] = [21, 43, 70];
        let a = |row: usize, step: usize| ((row * k + step) * 29 % 509) as i32;
        let b = |step: usize, column: usize| ((step * n + column) * 53 % 127) as i32 - 63;
        let sum = |at: usize, a: &dyn Fn(usize, usize) -> i32| -> i32 {
            (0..k).map(|step| a(at / n, step) * b(step, at % n)).sum()
        };
        for tiles in &EMULATED.0[1..3] {
            let expected = (0..m * n).map(|at| (sum(at, &a) as f32).to_bits());
            assert!(example([m, n, k], tiles).into_iter().eq(expected), "{} parts", tiles.parts);
        }
        let bytes = byte_tiles(TileUnit::Emulated).unwrap();
        let expected = (0..m * n).map(|at| sum(at, &|row, step| a(row, step) & 255) as u32);
        assert!(example([m, n, k], bytes).into_iter().eq(expected));
    }
}

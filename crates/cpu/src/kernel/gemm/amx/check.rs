//! What this computer's unit does: whether it is there and right, and how much faster than vectors.

#![allow(unsafe_code)]

use super::super::{Source, Tile, Tiles, Word, copy_words, pack_words, split_rows, tiles, word_tiles};
use super::{bf16_tiles, byte_tiles};
use crate::isa::{Isa, TileUnit};
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

/// The time of products of one to three parts as a share of that of the best vectors: of bf16 for one part, of f32 for
/// more. Measured once: a matter of the processor, but also of who shares its units. The emulation passes for a unit of
/// the processor that does half of what it could.
pub fn time_share(unit: TileUnit, parts: usize) -> f64 {
    static SHARES: OnceLock<[f64; 3]> = OnceLock::new();
    match unit {
        TileUnit::None => f64::INFINITY,
        TileUnit::Emulated => [0.12, 0.36, 0.72][parts - 1],
        TileUnit::Processor if !is_there() => f64::INFINITY,
        TileUnit::Processor => SHARES.get_or_init(shares)[parts - 1],
    }
}

/// Whether products of so many parts are to be used where they take such a share of the time. At f32's own precision
/// the gain must be worth other bits.
pub fn pays(parts: usize, share: f64) -> bool {
    share < if parts == 3 { 0.8 } else { 0.95 }
}

fn shares() -> [f64; 3] {
    let (measured, isa) = (Measured::<f32>::new(DType::F32, DType::F32), Isa::detect());
    let plain = measured.seconds(tiles(isa));
    let halves = word_tiles(isa, Word::Bf16).map_or(plain, |tiles| measured.seconds(tiles));
    [(1, halves), (2, plain), (3, plain)].map(|(parts, without)| {
        bf16_tiles(TileUnit::Processor, parts)
            .map_or(f64::INFINITY, |tiles| measured.seconds(tiles) / without)
    })
}

/// Whether products of bytes are faster on a unit than in vectors.
pub fn bytes_pay(unit: TileUnit) -> bool {
    static PAY: OnceLock<bool> = OnceLock::new();
    let measured = || {
        let measured = Measured::<u8>::new(DType::U8, DType::I8);
        let seconds =
            |tiles: Option<&'static Tiles>| tiles.map_or(f64::INFINITY, |tiles| measured.seconds(tiles));
        seconds(byte_tiles(TileUnit::Processor)) < seconds(word_tiles(Isa::detect(), Word::I8))
    };
    match unit {
        TileUnit::None => false,
        TileUnit::Emulated => true,
        TileUnit::Processor => is_there() && *PAY.get_or_init(measured),
    }
}

/// The best of so many runs: others have the unit at times.
const RUNS: usize = 5;

/// A product of the sizes of a block in the driver: everything stays in L2.
struct Measured<T> {
    a: Vec<T>,
    b: Vec<T>,
    types: [DType; 2],
}

impl<T: From<u8>> Measured<T> {
    const M: usize = 128;
    const N: usize = 256;
    const K: usize = 768;

    fn new(a: DType, b: DType) -> Measured<T> {
        let numbers = |count: usize| (0..count).map(|i| T::from((i * 37 % 101) as u8)).collect();
        Measured { a: numbers(Self::M * Self::K), b: numbers(Self::K * Self::N), types: [a, b] }
    }

    fn seconds(&self, tiles: &'static Tiles) -> f64 {
        let a = source(&self.a, self.types[0], Self::K);
        let b = pack(source(&self.b, self.types[1], Self::N), [Self::K, Self::N], tiles);
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

/// `a · b` as the driver computes it: passes, in each the panels, for each all rows.
fn multiply(a: Source, b: &[f32], [m, n, k]: [usize; 3], tiles: &'static Tiles) -> Vec<f32> {
    let (all, split) = (tiles.words(k), split_rows(m, tiles.rows));
    let distance = tiles.words(tiles.pass().min(k)) + 16;
    let tile_words = tiles.parts * tiles.rows * distance;
    let mut room = vec![0f32; split.tiles * tile_words];
    let mut c = vec![0f32; m * n];
    let _session = tiles.begin();
    for begin in (0..k).step_by(tiles.pass()) {
        let k = tiles.pass().min(k - begin);
        for (index, room) in room.chunks_exact_mut(tile_words).enumerate() {
            let (row, height) = (split.begin(index), split.height(index));
            // SAFETY: rows of a; the room has those of a tile in all parts.
            unsafe { copy_words(a.at(row, begin), tiles, height, k, room.as_mut_ptr(), distance) };
        }
        for first in (0..n).step_by(tiles.columns) {
            let panel = first * tiles.parts * all + begin / tiles.word.steps() * tiles.columns;
            for index in 0..split.tiles {
                let (row, height) = (split.begin(index), split.height(index));
                let tile = Tile {
                    k: tiles.words(k),
                    rows: height,
                    a: room[index * tile_words..].as_ptr(),
                    a_row: distance as isize,
                    a_step: 1,
                    a_part: tiles.rows * distance,
                    b: b[panel..].as_ptr(),
                    b_step: tiles.columns as isize,
                    b_part: all * tiles.columns,
                    c: c[row * n + first..].as_mut_ptr(),
                    c_row: n,
                    columns: tiles.columns.min(n - first),
                    add: begin > 0,
                };
                // SAFETY: a tile of a, a panel of b, and their results; the level is this processor's.
                unsafe { tiles.kernels[height - 1](&tile) };
            }
        }
    }
    c
}

/// Whether two units agree, bit for bit, on products of whole numbers that need no rounding, in all parts, of whole
/// tiles and their edges.
#[cfg(any(test, target_arch = "x86_64"))]
fn same_products(ours: &'static super::Set, theirs: &'static super::Set) -> bool {
    ours.tiles
        .iter()
        .zip(&theirs.tiles)
        .all(|(ours, theirs)| SIZES.into_iter().all(|sizes| example(sizes, ours) == example(sizes, theirs)))
}

/// Whole tiles, edges, and several passes.
#[cfg(any(test, target_arch = "x86_64"))]
const SIZES: [[usize; 3]; 4] = [[64, 64, 96], [21, 43, 70], [5, 9, 3], [37, 40, 450]];

/// Bits of a product of whole numbers: at most 509 × 63 × 450 stay below 2^24, and some need two parts.
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
    use super::super::EMULATED;
    use super::*;

    /// What the check compares, where there is a unit, with what differs.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_processor_computes_as_the_emulation_does() {
        use super::super::{PROCESSOR, processor};
        if !processor::has_unit() || !processor::is_permitted() {
            return;
        }
        for (unit, emulation) in PROCESSOR.tiles.iter().zip(&EMULATED.tiles) {
            for sizes in SIZES {
                let (ours, theirs) = (example(sizes, unit), example(sizes, emulation));
                let differs = ours.iter().zip(&theirs).position(|(a, b)| a != b);
                let what = differs.map(|at| (at, f32::from_bits(ours[at]), f32::from_bits(theirs[at])));
                assert_eq!(what, None, "{:?}, {} parts, {sizes:?}", unit.word, unit.parts);
            }
        }
    }

    /// The product that the check is made of, where the numbers need no rounding.
    #[test]
    fn products_of_the_check_are_right() {
        let [m, n, k] = [21, 43, 70];
        let a = |row: usize, step: usize| ((row * k + step) * 29 % 509) as i32;
        let b = |step: usize, column: usize| ((step * n + column) * 53 % 127) as i32 - 63;
        let sum = |at: usize, a: &dyn Fn(usize, usize) -> i32| -> i32 {
            (0..k).map(|step| a(at / n, step) * b(step, at % n)).sum()
        };
        for tiles in &EMULATED.tiles[1..3] {
            let expected = (0..m * n).map(|at| (sum(at, &a) as f32).to_bits());
            assert!(example([m, n, k], tiles).into_iter().eq(expected), "{} parts", tiles.parts);
        }
        let bytes = byte_tiles(TileUnit::Emulated).unwrap();
        let expected = (0..m * n).map(|at| sum(at, &|row, step| a(row, step) & 255) as u32);
        assert!(example([m, n, k], bytes).into_iter().eq(expected));
    }
}

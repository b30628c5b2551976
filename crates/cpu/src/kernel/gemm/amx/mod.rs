//! Products on the processor's unit for tiles (AMX): bf16 with f32 sums, and bytes with i32 sums. f32 goes there
//! as sums of up to three bf16 (`words.rs`). Kernels are written over [`unit::Unit`], whose second implementation
//! (`emulation.rs`) runs anywhere.
//!
//! The processor's unit is used only if it exists, the system saves its registers, the process may have them, and
//! products on it are the emulation's (`check.rs`): some 20 ms, once in a process, where there is a unit. It is used
//! for what it does faster than the vectors beside it, as measured then.
//!
//! The floor is the unit: Intel documents 1024 operations of bf16 a cycle (a product of registers in 16), 16 times
//! what the AVX-512 units of such a core do in f32. So two parts (3 products) leave 5.3 times, three (6) 2.7.
//! `kernel.rs` says what share of it the loops should reach.

//!
//! Proof without such a processor: statically linked tests of this crate (the check, `tests/tile_unit.rs`,
//! `tests/unit_conv.rs`, `tests/quantised.rs`) run in the emulator Bochs (sources of 2026-08-22, `--enable-amx`, CPU model
//! `sapphire_rapids`) with the unit found by CPUID and XCR0, and give the emulation's results. Two of that emulator's own
//! instructions had to be mended first: the signs of bytes in TDPBUSD, and the upper half of VCVTNE2PS2BF16 (which real
//! processors without AMX have, too, and compute as the tests expect).

#![allow(unsafe_code)]

mod blocks;
mod check;
mod emulation;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod processor;
mod unit;

pub use blocks::{CHANNELS, block_words};
pub use check::{Found, bytes_pay, found, is_there, pays, time_share};
pub use kernel::{ImageLoop, ImageTile};

use super::{Session, TileLoop, Tiles, Word};
use crate::isa::TileUnit;
use emulation::Emulation;
use unit::{SIDE, Unit};

/// Words of k in a pass, by parts: a panel of B has 24 KiB and stays in the L1 cache (of a core with such a unit 48 KiB,
/// which two threads may share) while all rows of a block go past it.
const PASS_WORDS: [usize; 4] = [0, 192, 96, 64];

const fn tiles_of<U: Unit>(kernels: &'static [TileLoop], word: Word, parts: usize) -> Tiles {
    Tiles {
        rows: 2 * SIDE,
        columns: 2 * SIDE,
        kernels,
        word,
        half: false,
        parts,
        granule: SIDE,
        pass_words: PASS_WORDS[parts],
        session: Some(Session { begin: U::begin, end: U::end }),
    }
}

struct Set {
    /// By parts of bf16, then bytes.
    tiles: [Tiles; 4],
    /// By parts.
    images: [ImageLoop; 3],
}

macro_rules! set_of {
    ($unit:ty) => {
        Set {
            tiles: [
                tiles_of::<$unit>(&[kernel::bf16::<$unit, 1> as TileLoop; 2 * SIDE], Word::Bf16, 1),
                tiles_of::<$unit>(&[kernel::bf16::<$unit, 2> as TileLoop; 2 * SIDE], Word::Bf16, 2),
                tiles_of::<$unit>(&[kernel::bf16::<$unit, 3> as TileLoop; 2 * SIDE], Word::Bf16, 3),
                tiles_of::<$unit>(&[kernel::bytes::<$unit> as TileLoop; 2 * SIDE], Word::I8, 1),
            ],
            images: [kernel::image::<$unit, 1>, kernel::image::<$unit, 2>, kernel::image::<$unit, 3>],
        }
    };
}

static EMULATED: Set = set_of!(Emulation);
#[cfg(target_arch = "x86_64")]
static PROCESSOR: Set = set_of!(processor::Processor);

fn set(unit: TileUnit) -> Option<&'static Set> {
    match unit {
        TileUnit::None => None,
        TileUnit::Emulated => Some(&EMULATED),
        #[cfg(target_arch = "x86_64")]
        TileUnit::Processor => Some(&PROCESSOR),
        #[cfg(not(target_arch = "x86_64"))]
        TileUnit::Processor => None,
    }
}

/// The tiles over sums of so many bf16, from 1 to 3.
pub fn bf16_tiles(unit: TileUnit, parts: usize) -> Option<&'static Tiles> {
    Some(&set(unit)?.tiles[parts - 1])
}

/// The loop over images for as many parts.
pub fn image_loop(unit: TileUnit, parts: usize) -> Option<ImageLoop> {
    Some(set(unit)?.images[parts - 1])
}

/// The tiles over bytes: unsigned ones on the left, signed ones on the right.
pub fn byte_tiles(unit: TileUnit) -> Option<&'static Tiles> {
    Some(&set(unit)?.tiles[3])
}

//! Floats of 16 bits to and from f32. Arithmetic on them is f32 arithmetic rounded after every op, which
//! gives the bits that one rounding would for + - × ÷ √: f32 has more than twice their precision plus two.

use super::elementwise::{Map, UnaryLoop, map_of};
use super::number::Number;
use crate::isa::Isa;
use half::{bf16, f16};
use pando_base::DType;
use std::marker::PhantomData;

/// How a 16-bit float is written.
pub trait Half {
    fn widen(bits: u16) -> f32;
    fn narrow(value: f32) -> u16;
}

pub struct F16;
pub struct BF16;

impl Half for F16 {
    /// Branch-free, for the vectoriser: shifts the exponent, and lets one subtraction normalise the
    /// subnormal numbers.
    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        let sign = u32::from(bits & 0x8000) << 16;
        let magnitude = u32::from(bits & 0x7fff) << 13;
        let normal = f32::from_bits(magnitude + (112 << 23));
        let special = f32::from_bits(magnitude | (0xff << 23));
        let subnormal = f32::from_bits(magnitude + (113 << 23)) - f32::from_bits(113 << 23);
        let value = if magnitude >= 0x0f80_0000 { special } else { normal };
        let value = if magnitude < 0x0080_0000 { subnormal } else { value };
        f32::from_bits(value.to_bits() | sign)
    }

    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        let bits = value.to_bits();
        let (sign, magnitude) = ((bits >> 16) as u16 & 0x8000, bits & 0x7fff_ffff);
        // Rounds to nearest even while cutting 13 bits; a carry runs into the exponent as it should.
        let normal = (magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + (magnitude >> 13 & 1))) >> 13;
        // Adding this aligns the last place of a subnormal number with that of the sum.
        let magic = f32::from_bits(126 << 23);
        let subnormal = (f32::from_bits(magnitude) + magic).to_bits().wrapping_sub(126 << 23);
        let result = if magnitude < 113 << 23 { subnormal } else { normal };
        let result = if magnitude >= 0x477f_f000 { 0x7c00 } else { result };
        let result = if magnitude > 0x7f80_0000 { 0x7e00 } else { result };
        result as u16 | sign
    }
}

impl Half for BF16 {
    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let quiet = bits >> 16 | 0x40;
        (if value.is_nan() { quiet } else { rounded }) as u16
    }
}

struct Widen<H>(PhantomData<H>);
struct Narrow<H>(PhantomData<H>);
struct Round<H>(PhantomData<H>);
struct FromInt<H, T>(PhantomData<(H, T)>);

impl<H: Half> Map for Widen<H> {
    type In = u16;
    type Out = f32;
    #[inline(always)]
    fn apply(x: u16) -> f32 {
        H::widen(x)
    }
}

impl<H: Half> Map for Narrow<H> {
    type In = f32;
    type Out = u16;
    #[inline(always)]
    fn apply(x: f32) -> u16 {
        H::narrow(x)
    }
}

impl<H: Half> Map for Round<H> {
    type In = f32;
    type Out = f32;
    #[inline(always)]
    fn apply(x: f32) -> f32 {
        H::widen(H::narrow(x))
    }
}

impl<H: Half, T: Number> Map for FromInt<H, T> {
    type In = T;
    type Out = f32;
    #[inline(always)]
    fn apply(x: T) -> f32 {
        H::widen(H::narrow(round_to_odd(x.to_i128())))
    }
}

/// The f32 itself if exact, otherwise of the two around the integer the one with an odd last bit: what
/// rounding on to fewer bits must know.
fn round_to_odd(value: i128) -> f32 {
    let nearest = value as f32;
    let back = nearest as i128;
    if back == value {
        return nearest;
    }
    let beyond = back.unsigned_abs() > value.unsigned_abs();
    f32::from_bits((nearest.to_bits() - u32::from(beyond)) | 1)
}

fn pick<M16: Map, MB16: Map>(isa: Isa, dtype: DType) -> Option<UnaryLoop> {
    match dtype {
        DType::F16 => Some(map_of::<M16>(isa)),
        DType::BF16 => Some(map_of::<MB16>(isa)),
        _ => None,
    }
}

/// From memory to registers; `None` for types that are the same in both.
pub fn widen(isa: Isa, dtype: DType) -> Option<UnaryLoop> {
    pick::<Widen<F16>, Widen<BF16>>(isa, dtype)
}

/// From registers to memory.
pub fn narrow(isa: Isa, dtype: DType) -> Option<UnaryLoop> {
    pick::<Narrow<F16>, Narrow<BF16>>(isa, dtype)
}

/// In registers, to the nearest value of the type.
pub fn round(isa: Isa, dtype: DType) -> Option<UnaryLoop> {
    pick::<Round<F16>, Round<BF16>>(isa, dtype)
}

/// From an integer to the nearest value of a 16-bit float, rounded once.
pub fn from_int(isa: Isa, from: DType, to: DType) -> Option<UnaryLoop> {
    use super::elementwise::with_type;
    with_type!(from, T => pick::<FromInt<F16, T>, FromInt<BF16, T>>(isa, to), else None)
}

/// One element of a float type as f32.
pub fn read(dtype: DType, bits: u16) -> f32 {
    match dtype {
        DType::F16 => f16::from_bits(bits).to_f32(),
        _ => bf16::from_bits(bits).to_f32(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_round_trips() {
        for bits in 0..=u16::MAX {
            let (wide, wide_b) = (F16::widen(bits), BF16::widen(bits));
            let (expected, expected_b) = (f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32());
            assert!(wide.to_bits() == expected.to_bits() || wide.is_nan() && expected.is_nan(), "{bits:x}");
            assert!(wide_b == expected_b || wide_b.is_nan() && expected_b.is_nan());
            assert!(wide.is_nan() || F16::narrow(wide) == bits);
            assert!(wide_b.is_nan() || BF16::narrow(wide_b) == bits);
        }
    }

    #[test]
    fn narrowing_rounds_as_half_does() {
        for bits in (0..u32::MAX).step_by(1009) {
            let x = f32::from_bits(bits);
            let same = |a: u16, b: u16| a == b || x.is_nan();
            assert!(same(F16::narrow(x), f16::from_f32(x).to_bits()), "{x}");
            assert!(same(BF16::narrow(x), bf16::from_f32(x).to_bits()), "{x}");
        }
    }

    #[test]
    fn integers_round_once() {
        assert_eq!(BF16::narrow(round_to_odd((1 << 40) + (1 << 32) + 1)), 0x5381);
        assert_eq!(round_to_odd(12345), 12345.0);
    }
}

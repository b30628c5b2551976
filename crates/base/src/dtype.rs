//! Element types and their exact conversions. Everything that rounds to a type goes through
//! [`DType::round`] or [`DType::write_f64`], so there is one definition of each format.

use crate::float8::F8Format;
use half::{bf16, f16};
use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    F32,
    F16,
    BF16,
    /// An 8-bit float whose value is `code × 2^scale`. Text: `f143`, `f152`, `f143(-3)`.
    F8(F8Format, i8),
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

impl DType {
    /// Every type, the 8-bit floats unscaled.
    pub const ALL: [DType; 14] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F8(F8Format::F143, 0),
        DType::F8(F8Format::F152, 0),
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
    ];

    /// Size of an element in bytes. A bool takes one byte.
    pub const fn size_bytes(self) -> u64 {
        match self {
            DType::F8(..) | DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::I64 | DType::U64 => 8,
        }
    }

    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16 | DType::F8(..))
    }

    pub const fn is_signed_int(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    pub const fn is_unsigned_int(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    pub const fn is_int(self) -> bool {
        self.is_signed_int() || self.is_unsigned_int()
    }

    /// The type of an unscaled name in the text formats (`f32`, `f143`, `i8`, …).
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The name without a scale.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F8(F8Format::F143, _) => "f143",
            DType::F8(F8Format::F152, _) => "f152",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
        }
    }

    /// The smallest and largest value of an integer type.
    pub fn int_range(self) -> Option<(i128, i128)> {
        match self {
            DType::Bool => Some((0, 1)),
            _ if self.is_signed_int() => {
                let half = 1i128 << (8 * self.size_bytes() - 1);
                Some((-half, half - 1))
            }
            _ if self.is_unsigned_int() => Some((0, (1i128 << (8 * self.size_bytes())) - 1)),
            _ => None,
        }
    }

    /// The most negative value, infinities included: where a maximum starts.
    pub fn lowest(self) -> f64 {
        match self {
            DType::F8(format, scale) => -format.max_value() * 2f64.powi(scale.into()),
            _ => self.int_range().map_or(f64::NEG_INFINITY, |(low, _)| low as f64),
        }
    }

    /// The most positive value, infinities included: where a minimum starts.
    pub fn highest(self) -> f64 {
        match self {
            DType::F8(format, scale) => format.max_value() * 2f64.powi(scale.into()),
            _ => self.int_range().map_or(f64::INFINITY, |(_, high)| high as f64),
        }
    }

    /// Rounds to the nearest value of a float type (ties to even, one rounding from f64); for integer
    /// types truncates toward zero and saturates; for bool anything but zero is one.
    pub fn round(self, value: f64) -> f64 {
        match self {
            DType::F32 => f64::from(value as f32),
            DType::F16 => to_f16(value).to_f64(),
            DType::BF16 => to_bf16(value).to_f64(),
            DType::F8(format, scale) => {
                let unit = 2f64.powi(scale.into());
                format.decode(format.encode(value / unit)) * unit
            }
            DType::Bool => f64::from(value != 0.0),
            _ => saturate(self, value) as f64,
        }
    }

    /// Reads one element; `bytes` has the element's size, little-endian. Exact but for 64-bit integers
    /// beyond 2^53.
    pub fn read_f64(self, bytes: &[u8]) -> f64 {
        match self {
            DType::F32 => f64::from(f32::from_le_bytes(array(bytes))),
            DType::F16 => f16::from_le_bytes(array(bytes)).to_f64(),
            DType::BF16 => bf16::from_le_bytes(array(bytes)).to_f64(),
            DType::F8(format, scale) => format.decode(bytes[0]) * 2f64.powi(scale.into()),
            _ => self.read_int(bytes) as f64,
        }
    }

    /// Writes one element with the rounding of [`DType::round`].
    pub fn write_f64(self, value: f64, bytes: &mut [u8]) {
        match self {
            DType::F32 => bytes.copy_from_slice(&(value as f32).to_le_bytes()),
            DType::F16 => bytes.copy_from_slice(&to_f16(value).to_le_bytes()),
            DType::BF16 => bytes.copy_from_slice(&to_bf16(value).to_le_bytes()),
            DType::F8(format, scale) => bytes[0] = format.encode(value / 2f64.powi(scale.into())),
            DType::Bool => bytes[0] = u8::from(value != 0.0),
            _ => self.write_int(saturate(self, value), bytes),
        }
    }

    /// Reads one element of an integer type or bool exactly.
    pub fn read_int(self, bytes: &[u8]) -> i128 {
        match self {
            DType::I8 => i8::from_le_bytes(array(bytes)).into(),
            DType::I16 => i16::from_le_bytes(array(bytes)).into(),
            DType::I32 => i32::from_le_bytes(array(bytes)).into(),
            DType::I64 => i64::from_le_bytes(array(bytes)).into(),
            DType::U8 | DType::Bool => bytes[0].into(),
            DType::U16 => u16::from_le_bytes(array(bytes)).into(),
            DType::U32 => u32::from_le_bytes(array(bytes)).into(),
            DType::U64 => u64::from_le_bytes(array(bytes)).into(),
            _ => unreachable!("{self} is no integer type"),
        }
    }

    /// Writes one element of an integer type, wrapping as two's complement.
    pub fn write_int(self, value: i128, bytes: &mut [u8]) {
        assert!(!self.is_float(), "{self} is no integer type");
        if self == DType::Bool {
            bytes[0] = u8::from(value != 0);
        } else {
            bytes.copy_from_slice(&value.to_le_bytes()[..self.size_bytes() as usize]);
        }
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the slice is one element long")
}

/// `half` converts from f64 in two roundings. Rounding to odd in between keeps what the second one must
/// know about the bits that the first one drops, so the result is rounded once.
fn to_f16(value: f64) -> f16 {
    f16::from_f32(round_to_odd(value))
}

fn to_bf16(value: f64) -> bf16 {
    bf16::from_f32(round_to_odd(value))
}

/// The f32 itself if exact, otherwise of the two around the value the one with an odd last bit.
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || !nearest.is_finite() {
        return nearest;
    }
    let beyond = f64::from(nearest).abs() > value.abs();
    f32::from_bits((nearest.to_bits() - u32::from(beyond)) | 1)
}

/// Truncation toward zero, saturating; NaN becomes 0.
fn saturate(dtype: DType, value: f64) -> i128 {
    let (low, high) = dtype.int_range().expect("only integer types saturate");
    // The cast itself saturates and maps NaN to 0.
    (value as i128).clamp(low, high)
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DType::F8(_, scale) if *scale != 0 => write!(f, "{}({scale})", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(DType::F8(F8Format::F143, -3).to_string(), "f143(-3)");
    }

    #[test]
    fn rounding() {
        assert_eq!(DType::F16.round(2049.0), 2048.0);
        assert_eq!(DType::F16.round(70000.0), f64::INFINITY);
        assert_eq!(DType::BF16.round(257.0), 256.0);
        // One rounding: just above a tie goes up, however little.
        assert_eq!(DType::F16.round(1.0 + 2f64.powi(-11) + 2f64.powi(-40)), 1.0 + 2f64.powi(-10));
        assert_eq!(DType::F16.round(1.0 + 2f64.powi(-11)), 1.0);
        assert_eq!(DType::BF16.round(-1.0 - 2f64.powi(-8) - 2f64.powi(-40)), -1.0 - 2f64.powi(-7));
        assert_eq!(DType::F16.round(2f64.powi(-25) + 2f64.powi(-60)), 2f64.powi(-24));
        assert_eq!(DType::F8(F8Format::F143, -3).round(31.0), 30.0);
        assert_eq!(DType::I8.round(-1e9), -128.0);
        assert_eq!(DType::U8.round(-1.0), 0.0);
        assert_eq!(DType::I32.round(-2.9), -2.0);
        assert_eq!(DType::I64.round(f64::NAN), 0.0);
        assert_eq!(DType::Bool.round(0.5), 1.0);
    }

    #[test]
    fn integers_wrap_and_read_back_exactly() {
        let mut bytes = [0u8; 8];
        DType::I64.write_int(i128::from(i64::MIN) - 1, &mut bytes);
        assert_eq!(DType::I64.read_int(&bytes), i128::from(i64::MAX));
        DType::U64.write_int(u64::MAX.into(), &mut bytes);
        assert_eq!(DType::U64.read_int(&bytes), u64::MAX.into());
    }
}

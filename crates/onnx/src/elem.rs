//! ONNX's element types and how the graph holds each: the graph's own type where there is one; doubles as
//! f32; the small integers in a byte; the small floats that the graph lacks as the exact values in f16 or
//! bf16, which are rounded to their format wherever a Cast or a quantisation writes them.

use pando_base::{DType, F8Format};
use std::fmt;

/// A code of the format's `TensorProto.DataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Elem(pub i32);

/// An element format of a few bits: sign, exponent, mantissa.
#[derive(Clone, Copy, Debug)]
pub struct MiniFloat {
    pub exponent_bits: u32,
    pub mantissa_bits: u32,
    pub bias: i32,
    pub max: f64,
    pub infinity: bool,
    /// NaN is the code of all ones (with infinity: any mantissa but zero with the largest exponent).
    pub nan: bool,
}

impl Elem {
    pub const FLOAT: Elem = Elem(1);
    pub const STRING: Elem = Elem(8);
    pub const BOOL: Elem = Elem(9);
    pub const DOUBLE: Elem = Elem(11);
    pub const UINT8: Elem = Elem(2);
    pub const INT64: Elem = Elem(7);
    pub const FLOAT8E4M3FN: Elem = Elem(17);
    pub const FLOAT8E4M3FNUZ: Elem = Elem(18);
    pub const FLOAT8E5M2: Elem = Elem(19);
    pub const FLOAT8E5M2FNUZ: Elem = Elem(20);
    pub const FLOAT8E8M0: Elem = Elem(24);

    const NAMES: [&str; 29] = [
        "undefined",
        "float",
        "uint8",
        "int8",
        "uint16",
        "int16",
        "int32",
        "int64",
        "string",
        "bool",
        "float16",
        "double",
        "uint32",
        "uint64",
        "complex64",
        "complex128",
        "bfloat16",
        "float8e4m3fn",
        "float8e4m3fnuz",
        "float8e5m2",
        "float8e5m2fnuz",
        "uint4",
        "int4",
        "float4e2m1",
        "float8e8m0",
        "uint2",
        "int2",
        "float6e2m3",
        "float6e3m2",
    ];

    /// The type in the graph; `None` for strings, complex numbers and unknown codes.
    pub fn dtype(self) -> Option<DType> {
        Some(match self.0 {
            1 | 11 => DType::F32,
            2 | 21 | 25 => DType::U8,
            3 | 22 | 26 => DType::I8,
            4 => DType::U16,
            5 => DType::I16,
            6 => DType::I32,
            7 => DType::I64,
            9 => DType::Bool,
            10 | 17 | 19 | 23 | 27 | 28 => DType::F16,
            12 => DType::U32,
            13 => DType::U64,
            16 | 24 => DType::BF16,
            18 => DType::F8(F8Format::F143, 0),
            20 => DType::F8(F8Format::F152, 0),
            _ => return None,
        })
    }

    /// The element type that a graph type stands for unless it is known better.
    pub fn of(dtype: DType) -> Elem {
        Elem(match dtype {
            DType::F32 => 1,
            DType::U8 => 2,
            DType::I8 => 3,
            DType::U16 => 4,
            DType::I16 => 5,
            DType::I32 => 6,
            DType::I64 => 7,
            DType::Bool => 9,
            DType::F16 => 10,
            DType::U32 => 12,
            DType::U64 => 13,
            DType::BF16 => 16,
            DType::F8(F8Format::F143, _) => 18,
            DType::F8(F8Format::F152, _) => 20,
        })
    }

    /// Bits per element in raw data.
    pub fn bits(self) -> Option<u64> {
        Some(match self.0 {
            25 | 26 => 2,
            21..=23 => 4,
            27 | 28 => 6,
            17..=20 | 24 => 8,
            11 => 64,
            _ => 8 * self.dtype()?.size_bytes(),
        })
    }

    /// The range of an integer type narrower than what holds it.
    pub fn small_int_range(self) -> Option<(i128, i128)> {
        match self.0 {
            21 => Some((0, 15)),
            22 => Some((-8, 7)),
            25 => Some((0, 3)),
            26 => Some((-2, 1)),
            _ => None,
        }
    }

    /// The values an integer type can take.
    pub fn int_range(self) -> Option<(i128, i128)> {
        self.small_int_range().or_else(|| self.dtype().and_then(DType::int_range))
    }

    /// The format of a float that the graph has no type of its own for.
    pub fn mini_float(self) -> Option<MiniFloat> {
        let format = |exponent_bits, mantissa_bits, bias, max, infinity, nan| {
            Some(MiniFloat { exponent_bits, mantissa_bits, bias, max, infinity, nan })
        };
        match self.0 {
            17 => format(4, 3, 7, 448.0, false, true),
            19 => format(5, 2, 15, 57344.0, true, true),
            23 => format(2, 1, 1, 6.0, false, false),
            27 => format(2, 3, 1, 7.5, false, false),
            28 => format(3, 2, 3, 28.0, false, false),
            _ => None,
        }
    }

    pub fn is_float8(self) -> bool {
        (17..=20).contains(&self.0)
    }
}

impl MiniFloat {
    pub fn decode(self, code: u8) -> f64 {
        let (e_bits, m_bits) = (self.exponent_bits, self.mantissa_bits);
        let exponent = i32::from(code >> m_bits) & ((1 << e_bits) - 1);
        let mantissa = i32::from(code) & ((1 << m_bits) - 1);
        let negative = (code >> (e_bits + m_bits)) & 1 == 1;
        let top = exponent == (1 << e_bits) - 1;
        let magnitude = match mantissa {
            0 if top && self.infinity => f64::INFINITY,
            _ if top && self.infinity => f64::NAN,
            _ if top && self.nan && mantissa == (1 << m_bits) - 1 => f64::NAN,
            _ if exponent == 0 => f64::from(mantissa) * 2f64.powi(1 - self.bias - m_bits as i32),
            _ => f64::from(mantissa + (1 << m_bits)) * 2f64.powi(exponent - self.bias - m_bits as i32),
        };
        if negative { -magnitude } else { magnitude }
    }
}

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match usize::try_from(self.0).ok().and_then(|code| Elem::NAMES.get(code)) {
            Some(name) => f.write_str(name),
            None => write!(f, "element type {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_floats_decode() {
        let decode = |code: i32, bits| Elem(code).mini_float().unwrap().decode(bits);
        assert_eq!(decode(17, 0x7e), 448.0);
        assert!(decode(17, 0x7f).is_nan());
        assert_eq!(decode(17, 0x38), 1.0);
        assert_eq!(decode(19, 0x7b), 57344.0);
        assert_eq!(decode(19, 0xfc), f64::NEG_INFINITY);
        assert_eq!(decode(23, 0xf), -6.0);
        assert_eq!(decode(23, 1), 0.5);
        assert_eq!((decode(27, 0x1f), decode(28, 0x1f)), (7.5, 28.0));
    }
}

//! The IPU's two 8-bit float formats. One sign bit, no infinities, one NaN (the code of negative
//! zero). The bias is one more than IEEE's habit: 8 for F143 and 16 for F152, so that the ranges are
//! ±240 and ±57344.
//! Source: "8-bit Numerical Formats for Deep Neural Networks" (Noune et al. 2022, arXiv:2206.02915);
//! the same codes as ONNX's FLOAT8E4M3FNUZ and FLOAT8E5M2FNUZ.
//! The power-of-two scale is part of the type ([`crate::DType::F8`]), not of these codes.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum F8Format {
    /// 4 exponent bits, 3 mantissa bits.
    F143,
    /// 5 exponent bits, 2 mantissa bits.
    F152,
}

const NAN: u8 = 0x80;

impl F8Format {
    const fn mantissa_bits(self) -> u32 {
        match self {
            F8Format::F143 => 3,
            F8Format::F152 => 2,
        }
    }

    const fn bias(self) -> i32 {
        match self {
            F8Format::F143 => 8,
            F8Format::F152 => 16,
        }
    }

    /// The largest finite value: 240 and 57344.
    pub fn max_value(self) -> f64 {
        self.decode(0x7f)
    }

    pub fn decode(self, code: u8) -> f64 {
        if code == NAN {
            return f64::NAN;
        }
        let bits = self.mantissa_bits();
        let (exponent, mantissa) = (i32::from(code & 0x7f) >> bits, i32::from(code) & ((1 << bits) - 1));
        let magnitude = if exponent == 0 {
            f64::from(mantissa) * 2f64.powi(1 - self.bias() - bits as i32)
        } else {
            f64::from(mantissa + (1 << bits)) * 2f64.powi(exponent - self.bias() - bits as i32)
        };
        if code & 0x80 == 0 { magnitude } else { -magnitude }
    }

    /// Round to nearest, ties to even; beyond the range saturates to the largest finite value (the
    /// IPU's default; infinities too); NaN stays NaN; negative zero becomes zero, which has no code.
    pub fn encode(self, value: f64) -> u8 {
        if value.is_nan() {
            return NAN;
        }
        let bits = self.mantissa_bits();
        let magnitude = value.abs().min(self.max_value());
        let exponent = exponent_of(magnitude).max(1 - self.bias());
        // In units of the last place; exact, since scaling is by a power of two.
        let units = (magnitude * 2f64.powi(bits as i32 - exponent)).round_ties_even() as u32;
        // `units` may have rounded up into the next binade: adding carries into the exponent field.
        let code = ((exponent - (1 - self.bias())) as u32 * (1 << bits) + units).min(0x7f) as u8;
        if value.is_sign_negative() && code != 0 { code | 0x80 } else { code }
    }
}

/// floor(log2) of a positive value; very small for zero and subnormals, which the caller clamps.
fn exponent_of(magnitude: f64) -> i32 {
    ((magnitude.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

impl fmt::Display for F8Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            F8Format::F143 => "f143",
            F8Format::F152 => "f152",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes() {
        assert_eq!((F8Format::F143.max_value(), F8Format::F152.max_value()), (240.0, 57344.0));
        assert_eq!(F8Format::F143.encode(1.0), 0x40);
        assert_eq!(F8Format::F152.encode(1.0), 0x40);
        assert_eq!(F8Format::F143.encode(f64::INFINITY), 0x7f);
        assert_eq!(F8Format::F143.encode(-1e9), 0xff);
        assert_eq!(F8Format::F143.encode(-0.0), 0);
        assert_eq!(F8Format::F143.decode(0x01), 2f64.powi(-10));
    }

    /// Against the definition of rounding: every value goes to its nearest code, ties to even.
    #[test]
    fn encodes_to_the_nearest_code() {
        for format in [F8Format::F143, F8Format::F152] {
            let codes: Vec<f64> = (0..0x80u8).map(|code| format.decode(code)).collect();
            for (code, pair) in codes.windows(2).enumerate() {
                let (low, high, middle) = (pair[0], pair[1], (pair[0] + pair[1]) / 2.0);
                let even = if code % 2 == 0 { code } else { code + 1 } as u8;
                assert_eq!(format.encode(low), code as u8);
                assert_eq!(format.encode(middle), even);
                assert_eq!(format.encode(middle - (high - low) / 64.0), code as u8);
                assert_eq!(format.encode(middle + (high - low) / 64.0), code as u8 + 1);
                assert_eq!(format.encode(-high), (code as u8 + 1) | 0x80);
            }
        }
    }
}

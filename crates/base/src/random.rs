//! Counter-based random numbers: element `i` is a pure function of the seed and `i`, so neither order
//! nor threads matter. Every engine that draws random elements computes these numbers.

use crate::{DType, F8Format};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// `[0, 1)` for floats, every value equally likely for integers.
    Uniform,
    /// Mean 0, standard deviation 1; floats only.
    Normal,
}

impl Distribution {
    pub const ALL: [Distribution; 2] = [Distribution::Uniform, Distribution::Normal];

    /// The spelling in the text formats.
    pub const fn name(self) -> &'static str {
        match self {
            Distribution::Uniform => "uniform",
            Distribution::Normal => "normal",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|distribution| distribution.name() == name)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// 64 random bits: the `index`-th output of SplitMix64 (Steele, Lea, Flood 2014) started at a state
/// that is itself mixed from the seed, so that neighbouring seeds are unrelated.
#[inline]
pub fn bits(seed: u64, index: u64) -> u64 {
    mix(mix(seed ^ GOLDEN).wrapping_add(GOLDEN.wrapping_mul(index.wrapping_add(1))))
}

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Uniform on `[0, 1)` with 53 bits.
pub fn uniform(seed: u64, index: u64) -> f64 {
    (bits(seed, index) >> 11) as f64 * 2f64.powi(-53)
}

/// Uniform on `[0, 1)` on a grid that the type holds exactly: rounding never gives 1.
pub fn uniform_in(dtype: DType, seed: u64, index: u64) -> f64 {
    let precision = match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F8(F8Format::F143, _) => 4,
        DType::F8(F8Format::F152, _) => 3,
        _ => 24,
    };
    (bits(seed, index) >> (64 - precision)) as f64 * 2f64.powi(-precision)
}

/// Standard normal: Box–Muller on two 32-bit halves of one draw. `libm` rather than std, whose results
/// differ between platforms.
pub fn normal(seed: u64, index: u64) -> f64 {
    let bits = bits(seed, index);
    // The half keeps the logarithm's argument above zero.
    let radius = ((bits >> 32) as f64 + 0.5) * 2f64.powi(-32);
    let angle = (bits & 0xffff_ffff) as f64 * 2f64.powi(-32);
    libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(std::f64::consts::TAU * angle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let mean = |f: fn(u64, u64) -> f64, power| (0..20000).map(|i| f(7, i).powi(power)).sum::<f64>() / 2e4;
        assert!((mean(uniform, 1) - 0.5).abs() < 0.01);
        assert!(mean(normal, 1).abs() < 0.03);
        assert!((mean(normal, 2) - 1.0).abs() < 0.03);
        assert_ne!(bits(1, 0), bits(2, 0));
    }

    #[test]
    fn uniform_is_exact_and_below_one() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            for index in 0..2000 {
                let value = uniform_in(dtype, 3, index);
                assert!(value < 1.0 && dtype.round(value) == value, "{dtype} {value}");
            }
        }
    }
}

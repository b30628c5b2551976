//! Uniform random f32: each a function of the seed and its position, so that the compiler makes vectors of it. The
//! floor is two 64-bit products an element, some 10 cycles for 8 elements with AVX-512.

#![allow(unsafe_code)]

use crate::isa::Isa;
use pando_graph::random;

/// `(seed, position of the first, numbers)`.
///
/// # Safety
/// The processor has the level.
pub type UniformLoop = unsafe fn(u64, u64, &mut [f32]);

#[inline(always)]
fn uniform(seed: u64, first: u64, to: &mut [f32]) {
    for (index, to) in to.iter_mut().enumerate() {
        // The upper 24 bits: what `random::uniform_in` takes for f32, which holds them exactly.
        let bits = (random::bits(seed, first.wrapping_add(index as u64)) >> 40) as i32;
        *to = bits as f32 * (1.0 / (1 << 24) as f32);
    }
}

/// # Safety
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn uniform_avx2(seed: u64, first: u64, to: &mut [f32]) {
    uniform(seed, first, to);
}

/// # Safety
/// The processor has AVX-512 F, BW, DQ and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn uniform_avx512(seed: u64, first: u64, to: &mut [f32]) {
    uniform(seed, first, to);
}

pub fn uniform_loop(isa: Isa) -> UniformLoop {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => uniform_avx2,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => uniform_avx512,
        _ => uniform,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_base::DType;

    #[test]
    fn numbers_are_the_evaluators() {
        for isa in Isa::available() {
            let mut numbers = [0.0; 100];
            // SAFETY: the level is available.
            unsafe { uniform_loop(isa)(7, 3, &mut numbers) };
            for (index, &number) in numbers.iter().enumerate() {
                assert_eq!(f64::from(number), random::uniform_in(DType::F32, 7, 3 + index as u64), "{isa:?}");
            }
        }
    }
}

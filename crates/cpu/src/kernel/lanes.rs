//! Sixteen f32 as one value: what kernels over blocks of channels are written in, once for all levels. A level
//! has registers of 16, 8 or (portable) however many lanes the compiler finds; results of one level do not
//! depend on that, since lanes never mix.

#![allow(unsafe_code)]
// Arrays of lanes: the loops over them are vectorised.
#![allow(clippy::needless_range_loop)]

/// Lanes of a [`Lanes`], and channels of a block in memory.
pub const LANES: usize = 16;

/// Adding and subtracting it rounds to an integer: 1.5 · 2^23.
const ROUNDER: f32 = 12_582_912.0;

/// Methods are inlined into functions compiled for the level.
///
/// # Safety
/// Of all methods: the processor has the level's instructions; pointers lead to [`LANES`] elements of any
/// alignment.
pub trait Lanes: Copy {
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// To the nearest integer, halves to even, of magnitudes below 2^22.
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: passed on.
        unsafe { self.add(Self::splat(ROUNDER)).sub(Self::splat(ROUNDER)) }
    }
    /// `self × 2^n` for an integer n, rounded once.
    unsafe fn times_power_of_two(self, n: Self) -> Self;
    /// `self × factor + sum`, rounded once where the level has such an instruction.
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self;
    /// The larger; NaN lanes of `self` stay, those of `bound` do not occur, and a bound of zero is +0.
    unsafe fn at_least(self, bound: Self) -> Self;
    /// The smaller; as above, and the bound is not zero.
    unsafe fn at_most(self, bound: Self) -> Self;
    /// Between bounds that are not zero; NaN lanes stay.
    unsafe fn clamp(self, low: f32, high: f32) -> Self;
    /// The larger; NaN if either is; -0 below +0.
    unsafe fn max(self, other: Self) -> Self;
    /// The lanes whose bits in `mask` are set from `other`.
    unsafe fn blend(self, mask: u16, other: Self) -> Self;
}

#[derive(Clone, Copy)]
pub struct Portable([f32; LANES]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let mut result = self.0;
        for lane in 0..LANES {
            result[lane] = f(self.0[lane], other.0[lane]);
        }
        Portable(result)
    }
}

impl Lanes for Portable {
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Portable([x; LANES])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as the trait says.
        Portable(unsafe { from.cast::<[f32; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as the trait says.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }

    #[inline(always)]
    unsafe fn times_power_of_two(self, n: Self) -> Self {
        self.zip(n, super::math::times_power_of_two)
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
        self.zip(factor, |a, b| a * b).zip(sum, |product, sum| product + sum)
    }

    #[inline(always)]
    unsafe fn at_least(self, bound: Self) -> Self {
        self.zip(bound, |x, bound| if x <= bound { bound } else { x })
    }

    #[inline(always)]
    unsafe fn at_most(self, bound: Self) -> Self {
        self.zip(bound, |x, bound| if x >= bound { bound } else { x })
    }

    #[inline(always)]
    unsafe fn clamp(self, low: f32, high: f32) -> Self {
        // SAFETY: the level is everywhere.
        unsafe { self.at_most(Self::splat(high)).at_least(Self::splat(low)) }
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.zip(other, super::math::max)
    }

    #[inline(always)]
    unsafe fn blend(self, mask: u16, other: Self) -> Self {
        let mut result = self;
        for lane in 0..LANES {
            if mask >> lane & 1 == 1 {
                result.0[lane] = other.0[lane];
            }
        }
        result
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{LANES, Lanes};
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub struct Avx2([__m256; 2]);

    impl Avx2 {
        #[inline(always)]
        fn zip(self, other: Self, f: impl Fn(__m256, __m256) -> __m256) -> Self {
            Avx2([f(self.0[0], other.0[0]), f(self.0[1], other.0[1])])
        }
    }

    // SAFETY, of all blocks below: as the trait says.
    impl Lanes for Avx2 {
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { Avx2([_mm256_set1_ps(x); 2]) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { Avx2([_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))]) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe {
                _mm256_storeu_ps(to, self.0[0]);
                _mm256_storeu_ps(to.add(8), self.0[1]);
            }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            self.zip(other, |a, b| unsafe { _mm256_add_ps(a, b) })
        }

        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            self.zip(other, |a, b| unsafe { _mm256_sub_ps(a, b) })
        }

        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            self.zip(other, |a, b| unsafe { _mm256_mul_ps(a, b) })
        }

        #[inline(always)]
        unsafe fn div(self, other: Self) -> Self {
            self.zip(other, |a, b| unsafe { _mm256_div_ps(a, b) })
        }

        /// In two factors: 2^n alone may be below the normal numbers, or above the finite ones.
        #[inline(always)]
        unsafe fn times_power_of_two(self, n: Self) -> Self {
            unsafe {
                let half = n.mul(Self::splat(0.5)).round();
                let power = |n: Self| {
                    n.zip(n, |n, _| {
                        let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
                        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
                    })
                };
                self.mul(power(half)).mul(power(n.sub(half)))
            }
        }

        #[inline(always)]
        unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
            unsafe {
                Avx2([
                    _mm256_fmadd_ps(self.0[0], factor.0[0], sum.0[0]),
                    _mm256_fmadd_ps(self.0[1], factor.0[1], sum.0[1]),
                ])
            }
        }

        #[inline(always)]
        unsafe fn at_least(self, bound: Self) -> Self {
            self.zip(bound, |x, bound| unsafe {
                _mm256_blendv_ps(x, bound, _mm256_cmp_ps::<_CMP_LE_OQ>(x, bound))
            })
        }

        #[inline(always)]
        unsafe fn at_most(self, bound: Self) -> Self {
            self.zip(bound, |x, bound| unsafe {
                _mm256_blendv_ps(x, bound, _mm256_cmp_ps::<_CMP_GE_OQ>(x, bound))
            })
        }

        #[inline(always)]
        unsafe fn clamp(self, low: f32, high: f32) -> Self {
            // Of NaN and a number these give the second.
            self.zip(self, |x, _| unsafe {
                _mm256_max_ps(_mm256_set1_ps(low), _mm256_min_ps(_mm256_set1_ps(high), x))
            })
        }

        #[inline(always)]
        unsafe fn max(self, other: Self) -> Self {
            self.zip(other, |a, b| unsafe {
                // Equal numbers differ at most in the sign of zero; NaN is never equal, nor larger.
                let larger = _mm256_blendv_ps(b, a, _mm256_cmp_ps::<_CMP_GT_OQ>(a, b));
                let larger = _mm256_blendv_ps(larger, _mm256_and_ps(a, b), _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b));
                _mm256_blendv_ps(larger, a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a))
            })
        }

        #[inline(always)]
        unsafe fn blend(self, mask: u16, other: Self) -> Self {
            let mut result = self;
            for half in 0..2 {
                let bit = |lane: usize| -i32::from(mask >> (8 * half + lane) & 1);
                unsafe {
                    let mask =
                        _mm256_setr_epi32(bit(0), bit(1), bit(2), bit(3), bit(4), bit(5), bit(6), bit(7));
                    result.0[half] = _mm256_blendv_ps(self.0[half], other.0[half], _mm256_castsi256_ps(mask));
                }
            }
            result
        }
    }

    #[derive(Clone, Copy)]
    pub struct Avx512(__m512);

    const _: () = assert!(LANES == 16, "a register of AVX-512 holds a block");

    // SAFETY, of all blocks below: as the trait says.
    impl Lanes for Avx512 {
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { Avx512(_mm512_set1_ps(x)) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { Avx512(_mm512_loadu_ps(from)) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm512_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { Avx512(_mm512_add_ps(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            unsafe { Avx512(_mm512_sub_ps(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { Avx512(_mm512_mul_ps(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn div(self, other: Self) -> Self {
            unsafe { Avx512(_mm512_div_ps(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn round(self) -> Self {
            unsafe {
                Avx512(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0))
            }
        }

        #[inline(always)]
        unsafe fn times_power_of_two(self, n: Self) -> Self {
            unsafe { Avx512(_mm512_scalef_ps(self.0, n.0)) }
        }

        #[inline(always)]
        unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
            unsafe { Avx512(_mm512_fmadd_ps(self.0, factor.0, sum.0)) }
        }

        #[inline(always)]
        unsafe fn at_least(self, bound: Self) -> Self {
            unsafe {
                let below = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(self.0, bound.0);
                Avx512(_mm512_mask_blend_ps(below, self.0, bound.0))
            }
        }

        #[inline(always)]
        unsafe fn at_most(self, bound: Self) -> Self {
            unsafe {
                let above = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(self.0, bound.0);
                Avx512(_mm512_mask_blend_ps(above, self.0, bound.0))
            }
        }

        #[inline(always)]
        unsafe fn clamp(self, low: f32, high: f32) -> Self {
            // Of NaN and a number these give the second.
            unsafe { Avx512(_mm512_max_ps(_mm512_set1_ps(low), _mm512_min_ps(_mm512_set1_ps(high), self.0))) }
        }

        #[inline(always)]
        unsafe fn max(self, other: Self) -> Self {
            unsafe {
                let (a, b) = (self.0, other.0);
                let larger = _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), b, a);
                let equal = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b);
                let both =
                    _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), _mm512_castps_si512(b)));
                let larger = _mm512_mask_blend_ps(equal, larger, both);
                Avx512(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), larger, a))
            }
        }

        #[inline(always)]
        unsafe fn blend(self, mask: u16, other: Self) -> Self {
            unsafe { Avx512(_mm512_mask_blend_ps(mask, self.0, other.0)) }
        }
    }
}

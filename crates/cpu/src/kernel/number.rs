//! Element types that loops are written for, and what scalar functions mean on them. Floats of 16 bits are
//! not among them: registers hold their values as f32.

use super::math;
use pando_base::{BinaryFn, ReduceFn, UnaryFn};

/// A type of registers.
pub trait Number: Reduced + PartialOrd {
    fn unary(func: UnaryFn, x: Self) -> Self;
    fn binary(func: BinaryFn, a: Self, b: Self) -> Self;
    /// As an integer; bits beyond do not exist in the type.
    fn to_i128(self) -> i128;
}

/// A type of operands of reductions.
pub trait Reduced: Copy {
    /// What reductions are computed in: f64 for floats, the type itself for integers.
    type Total: Copy + Send + Sync;
    /// The neutral element.
    fn neutral(func: ReduceFn) -> Self;
    fn widen(self) -> Self::Total;
    fn narrow(total: Self::Total) -> Self;
    fn combine(func: ReduceFn, a: Self::Total, b: Self::Total) -> Self::Total;
}

/// An f32 of which the largest or smallest is wanted: needs no f64.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Extreme(f32);

impl Reduced for Extreme {
    type Total = f32;

    fn neutral(func: ReduceFn) -> Extreme {
        Extreme(f32::neutral(func))
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        self.0
    }

    #[inline(always)]
    fn narrow(total: f32) -> Extreme {
        Extreme(total)
    }

    #[inline(always)]
    fn combine(func: ReduceFn, a: f32, b: f32) -> f32 {
        if func == ReduceFn::Max { math::max(a, b) } else { math::min(a, b) }
    }
}

impl Number for f32 {
    #[inline(always)]
    fn unary(func: UnaryFn, x: f32) -> f32 {
        let exactly = |f: fn(f64) -> f64| f(x.into()) as f32;
        match func {
            UnaryFn::Neg => -x,
            UnaryFn::Abs => x.abs(),
            UnaryFn::Sign => math::sign(x),
            UnaryFn::Floor => x.floor(),
            UnaryFn::Ceil => x.ceil(),
            UnaryFn::Round => x.round_ties_even(),
            UnaryFn::Exp => math::exp(x),
            UnaryFn::Expm1 => math::expm1(x),
            UnaryFn::Log => math::log(x),
            UnaryFn::Log1p => math::log1p(x),
            UnaryFn::Sqrt => x.sqrt(),
            UnaryFn::Sin => exactly(libm::sin),
            UnaryFn::Cos => exactly(libm::cos),
            UnaryFn::Tanh => math::tanh(x),
            UnaryFn::Erf => math::erf(x),
            UnaryFn::Not => unreachable!("not of floats does not pass inference"),
        }
    }

    #[inline(always)]
    fn binary(func: BinaryFn, a: f32, b: f32) -> f32 {
        match func {
            BinaryFn::Add => a + b,
            BinaryFn::Sub => a - b,
            BinaryFn::Mul => a * b,
            BinaryFn::Div => a / b,
            BinaryFn::Rem => a % b,
            BinaryFn::Pow => math::pow(a, b),
            BinaryFn::Atan2 => libm::atan2(a.into(), b.into()) as f32,
            BinaryFn::Max => math::max(a, b),
            BinaryFn::Min => math::min(a, b),
            _ => unreachable!("{func} of floats does not pass inference"),
        }
    }

    fn to_i128(self) -> i128 {
        self as i128
    }
}

impl Reduced for f32 {
    fn neutral(func: ReduceFn) -> f32 {
        match func {
            ReduceFn::Sum => 0.0,
            ReduceFn::Prod => 1.0,
            ReduceFn::Max => f32::NEG_INFINITY,
            ReduceFn::Min => f32::INFINITY,
            ReduceFn::And | ReduceFn::Or => unreachable!("{func} of floats does not pass inference"),
        }
    }

    type Total = f64;

    #[inline(always)]
    fn widen(self) -> f64 {
        self.into()
    }

    #[inline(always)]
    fn narrow(total: f64) -> f32 {
        total as f32
    }

    #[inline(always)]
    fn combine(func: ReduceFn, a: f64, b: f64) -> f64 {
        match func {
            ReduceFn::Sum => a + b,
            ReduceFn::Prod => a * b,
            // Both are f32 in f64's clothes: exact.
            ReduceFn::Max => math::max(a as f32, b as f32).into(),
            ReduceFn::Min => math::min(a as f32, b as f32).into(),
            ReduceFn::And | ReduceFn::Or => unreachable!("{func} of floats does not pass inference"),
        }
    }
}

macro_rules! integers {
    ($($int:ty),*) => { $(
        impl Number for $int {
            #[inline(always)]
            fn unary(func: UnaryFn, x: $int) -> $int {
                match func {
                    UnaryFn::Neg => x.wrapping_neg(),
                    UnaryFn::Abs => if is_negative(x.to_i128()) { x.wrapping_neg() } else { x },
                    UnaryFn::Sign => ((x > 0) as $int).wrapping_sub(is_negative(x.to_i128()) as $int),
                    UnaryFn::Not => !x,
                    _ => unreachable!("{func} of integers does not pass inference"),
                }
            }

            #[inline(always)]
            fn binary(func: BinaryFn, a: $int, b: $int) -> $int {
                match func {
                    BinaryFn::Add => a.wrapping_add(b),
                    BinaryFn::Sub => a.wrapping_sub(b),
                    BinaryFn::Mul => a.wrapping_mul(b),
                    BinaryFn::Div => if b == 0 { 0 } else { a.wrapping_div(b) },
                    BinaryFn::Rem => if b == 0 { 0 } else { a.wrapping_rem(b) },
                    BinaryFn::Pow => int_pow(a.to_i128(), b.to_i128()) as $int,
                    BinaryFn::Max => if a > b { a } else { b },
                    BinaryFn::Min => if a < b { a } else { b },
                    BinaryFn::And => a & b,
                    BinaryFn::Or => a | b,
                    BinaryFn::Xor => a ^ b,
                    BinaryFn::Shl => if in_width(b.to_i128(), <$int>::BITS) { a << b } else { 0 },
                    BinaryFn::Shr => if in_width(b.to_i128(), <$int>::BITS) {
                        a >> b
                    } else {
                        // Every bit is the sign's: -1 or 0.
                        (0 as $int).wrapping_sub(is_negative(a.to_i128()) as $int)
                    },
                    BinaryFn::Atan2 => unreachable!("{func} of integers does not pass inference"),
                }
            }

            #[inline(always)]
            fn to_i128(self) -> i128 {
                self.into()
            }
        }

        impl Reduced for $int {
            fn neutral(func: ReduceFn) -> $int {
                match func {
                    ReduceFn::Sum | ReduceFn::Or => 0,
                    ReduceFn::Prod => 1,
                    ReduceFn::Max => <$int>::MIN,
                    ReduceFn::Min => <$int>::MAX,
                    ReduceFn::And => !0,
                }
            }

            type Total = $int;

            #[inline(always)]
            fn widen(self) -> $int {
                self
            }

            #[inline(always)]
            fn narrow(total: $int) -> $int {
                total
            }

            #[inline(always)]
            fn combine(func: ReduceFn, a: $int, b: $int) -> $int {
                match func {
                    ReduceFn::Sum => a.wrapping_add(b),
                    ReduceFn::Prod => a.wrapping_mul(b),
                    ReduceFn::Max => a.max(b),
                    ReduceFn::Min => a.min(b),
                    ReduceFn::And => a & b,
                    ReduceFn::Or => a | b,
                }
            }
        }
    )* };
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

#[inline(always)]
fn is_negative(x: i128) -> bool {
    x < 0
}

#[inline(always)]
fn in_width(distance: i128, width: u32) -> bool {
    (0..i128::from(width)).contains(&distance)
}

/// Wraps; with a negative exponent the truncated 1 / a^|b|, where a division by zero gives zero.
fn int_pow(a: i128, b: i128) -> i128 {
    match (a, b) {
        (1, _) => 1,
        (-1, _) if b % 2 == 0 => 1,
        (-1, _) => -1,
        (_, ..0) => 0,
        _ => wrapping_pow(a, b),
    }
}

fn wrapping_pow(mut base: i128, mut exponent: i128) -> i128 {
    let mut power = 1i128;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    power
}

//! Loops over dense elements: one function at a time, vectorised by the compiler once per [`Isa`]. Floats of
//! 16 bits are f32 here; see `half.rs`.
//!
//! The floor is the L1 cache: an operand loaded or a result stored per element and instruction.

#![allow(unsafe_code)]

use super::math;
use super::number::Number;
use super::smooth;
use super::waves;
use crate::isa::Isa;
use crate::recognise::Activation;
use pando_base::{BinaryFn, CompareFn, DType, UnaryFn};
use std::marker::PhantomData;

/// `(operand, result, elements)`. Pointers are aligned to their elements and hold as many; the result may be
/// the operand itself if both types have one size, and does not overlap it otherwise.
pub type UnaryLoop = unsafe fn(*const u8, *mut u8, usize);
/// `(operand, operand, result, elements)`; as [`UnaryLoop`].
pub type BinaryLoop = unsafe fn(*const u8, *const u8, *mut u8, usize);
/// `(condition, if true, if false, result, elements)`; as [`UnaryLoop`].
pub type SelectLoop = unsafe fn(*const u8, *const u8, *const u8, *mut u8, usize);

/// A function of one element, known at compile time.
pub trait Map {
    type In: Copy;
    type Out;
    fn apply(x: Self::In) -> Self::Out;
}

/// A function of two elements, known at compile time.
trait Zip {
    type In: Copy;
    type Out;
    fn apply(a: Self::In, b: Self::In) -> Self::Out;
}

/// Generates a loop for every level and the function that picks one.
macro_rules! levels {
    ($pick:ident, $base:ident, $avx2:ident, $avx512:ident, $bound:ident, $ty:ty, ($($arg:ident: $arg_ty:ty),*)) => {
        /// # Safety
        /// As the type of the loop says; the processor has AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $avx2<M: $bound>($($arg: $arg_ty),*) {
            // SAFETY: passed on.
            unsafe { $base::<M>($($arg),*) }
        }

        /// # Safety
        /// As the type of the loop says; the processor has AVX-512 F, BW, DQ and VL.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn $avx512<M: $bound>($($arg: $arg_ty),*) {
            // SAFETY: passed on.
            unsafe { $base::<M>($($arg),*) }
        }

        fn $pick<M: $bound>(isa: Isa) -> $ty {
            match isa {
                Isa::Portable => $base::<M>,
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => $avx2::<M>,
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => $avx512::<M>,
                #[cfg(not(target_arch = "x86_64"))]
                _ => $base::<M>,
            }
        }
    };
}
levels!(pick_map, map_loop, map_avx2, map_avx512, Map, UnaryLoop, (x: *const u8, y: *mut u8, n: usize));
levels!(pick_zip, zip_loop, zip_avx2, zip_avx512, Zip, BinaryLoop, (a: *const u8, b: *const u8, y: *mut u8, n: usize));

/// # Safety
/// See [`UnaryLoop`].
#[inline(always)]
unsafe fn map_loop<M: Map>(x: *const u8, y: *mut u8, n: usize) {
    let (x, y) = (x.cast::<M::In>(), y.cast::<M::Out>());
    for i in 0..n {
        // SAFETY: i is below n, the number of elements behind both pointers.
        unsafe { y.add(i).write(M::apply(x.add(i).read())) };
    }
}

/// # Safety
/// See [`BinaryLoop`].
#[inline(always)]
unsafe fn zip_loop<M: Zip>(a: *const u8, b: *const u8, y: *mut u8, n: usize) {
    let (a, b, y) = (a.cast::<M::In>(), b.cast::<M::In>(), y.cast::<M::Out>());
    for i in 0..n {
        // SAFETY: i is below n, the number of elements behind all pointers.
        unsafe { y.add(i).write(M::apply(a.add(i).read(), b.add(i).read())) };
    }
}

/// Integers, comparisons of them and conversions are compiled once, for every level: they are rare in models,
/// and three times 500 loops take a minute to compile.
fn one_map<M: Map>(_isa: Isa) -> UnaryLoop {
    map_loop::<M>
}

/// As [`one_map`].
fn one_zip<M: Zip>(_isa: Isa) -> BinaryLoop {
    zip_loop::<M>
}

/// The loop of a map that another file defines.
pub fn map_of<M: Map>(isa: Isa) -> UnaryLoop {
    pick_map::<M>(isa)
}

struct Unary<T, const F: u8>(PhantomData<T>);

impl<T: Number, const F: u8> Map for Unary<T, F> {
    type In = T;
    type Out = T;
    #[inline(always)]
    fn apply(x: T) -> T {
        T::unary(const { UnaryFn::ALL[F as usize] }, x)
    }
}

struct Binary<T, const F: u8>(PhantomData<T>);

impl<T: Number, const F: u8> Zip for Binary<T, F> {
    type In = T;
    type Out = T;
    #[inline(always)]
    fn apply(a: T, b: T) -> T {
        T::binary(const { BinaryFn::ALL[F as usize] }, a, b)
    }
}

struct Compare<T, const F: u8>(PhantomData<T>);

impl<T: Number, const F: u8> Zip for Compare<T, F> {
    type In = T;
    type Out = u8;
    #[inline(always)]
    fn apply(a: T, b: T) -> u8 {
        match const { CompareFn::ALL[F as usize] } {
            CompareFn::Eq => (a == b).into(),
            CompareFn::Ne => (a != b).into(),
            CompareFn::Lt => (a < b).into(),
            CompareFn::Le => (a <= b).into(),
            CompareFn::Gt => (a > b).into(),
            CompareFn::Ge => (a >= b).into(),
        }
    }
}

struct Sigmoid;
struct Silu;
struct Gelu;
struct GeluTanh;

macro_rules! activations {
    ($($name:ident($x:ident) => $body:expr;)*) => { $(
        impl Map for $name {
            type In = f32;
            type Out = f32;
            #[inline(always)]
            fn apply($x: f32) -> f32 {
                $body
            }
        }
    )* };
}
// Op by op what the bodies of the composites say, so that the bits are theirs.
activations! {
    Sigmoid(x) => 1.0 / (math::exp(-x) + 1.0);
    Silu(x) => x * Sigmoid::apply(x);
    Gelu(x) => (x * 0.5) * (math::erf(x * std::f32::consts::FRAC_1_SQRT_2) + 1.0);
    GeluTanh(x) => {
        let sum = x + x * x * x * 0.044715;
        (x * 0.5) * (math::tanh(sum * 0.797_884_6) + 1.0)
    };
}

pub fn activation(isa: Isa, activation: Activation) -> UnaryLoop {
    match activation {
        Activation::Sigmoid => smooth::smooth::<smooth::Sigmoid>(isa).unwrap_or(pick_map::<Sigmoid>(isa)),
        Activation::Silu => smooth::smooth::<smooth::Silu>(isa).unwrap_or(pick_map::<Silu>(isa)),
        Activation::Gelu => smooth::smooth::<smooth::Gelu>(isa).unwrap_or(pick_map::<Gelu>(isa)),
        Activation::GeluTanh => smooth::smooth::<smooth::GeluTanh>(isa).unwrap_or(pick_map::<GeluTanh>(isa)),
    }
}

struct Square;
struct Cube;
struct SquareRoot;
struct ThreeQuarters;

activations! {
    Square(x) => math::pow(x, 2.0);
    Cube(x) => math::pow(x, 3.0);
    SquareRoot(x) => math::square_root_power(x);
    ThreeQuarters(x) => math::three_quarters_power(x);
}

/// x to a constant power, where that is a product, also of roots.
pub fn power(isa: Isa, exponent: f64) -> Option<UnaryLoop> {
    match exponent {
        2.0 => Some(pick_map::<Square>(isa)),
        3.0 => Some(pick_map::<Cube>(isa)),
        0.5 => Some(pick_map::<SquareRoot>(isa)),
        0.75 => Some(pick_map::<ThreeQuarters>(isa)),
        _ => None,
    }
}

struct NotBool;

impl Map for NotBool {
    type In = u8;
    type Out = u8;
    #[inline(always)]
    fn apply(x: u8) -> u8 {
        x ^ 1
    }
}

/// Runs `$body` with `$T` the register type of an element type; 16-bit floats are f32.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        match $dtype {
            DType::F32 | DType::F16 | DType::BF16 => {
                type $T = f32;
                $body
            }
            DType::I8 => {
                type $T = i8;
                $body
            }
            DType::I16 => {
                type $T = i16;
                $body
            }
            DType::I32 => {
                type $T = i32;
                $body
            }
            DType::I64 => {
                type $T = i64;
                $body
            }
            DType::U8 | DType::Bool => {
                type $T = u8;
                $body
            }
            DType::U16 => {
                type $T = u16;
                $body
            }
            DType::U32 => {
                type $T = u32;
                $body
            }
            DType::U64 => {
                type $T = u64;
                $body
            }
            DType::F8(..) => $other,
        }
    };
}
pub(crate) use with_type;

macro_rules! by_func {
    ($pick:ident, $op:ident<$T:ident>, $enum:ident, $isa:expr, $func:expr, [$($name:ident),*]) => {
        match $func {
            $($enum::$name => Some($pick::<$op<$T, { $enum::$name as u8 }>>($isa)),)*
            #[allow(unreachable_patterns)]
            _ => None,
        }
    };
}

/// `None` where inference refuses the function, and for 8-bit floats.
pub fn unary(isa: Isa, func: UnaryFn, dtype: DType) -> Option<UnaryLoop> {
    if dtype == DType::Bool {
        return Some(pick_map::<NotBool>(isa));
    }
    if dtype.is_float() {
        type T = f32;
        let smooth = match func {
            UnaryFn::Exp => smooth::smooth::<smooth::Exp>(isa),
            UnaryFn::Tanh => smooth::smooth::<smooth::Tanh>(isa),
            UnaryFn::Erf => smooth::smooth::<smooth::Erf>(isa),
            UnaryFn::Sin => Some(waves::sin(isa)),
            UnaryFn::Cos => Some(waves::cos(isa)),
            _ => None,
        };
        let all = smooth.or(by_func!(
            pick_map,
            Unary<T>,
            UnaryFn,
            isa,
            func,
            [Neg, Abs, Sign, Floor, Ceil, Round, Exp, Expm1, Log, Log1p, Sqrt, Tanh, Erf]
        ));
        return all.filter(|_| !matches!(dtype, DType::F8(..)));
    }
    with_type!(dtype, T => by_func!(one_map, Unary<T>, UnaryFn, isa, func, [Neg, Abs, Sign, Not]), else None)
}

/// As [`unary`].
pub fn binary(isa: Isa, func: BinaryFn, dtype: DType) -> Option<BinaryLoop> {
    if dtype.is_float() {
        type T = f32;
        let all = by_func!(
            pick_zip,
            Binary<T>,
            BinaryFn,
            isa,
            func,
            [Add, Sub, Mul, Div, Rem, Pow, Atan2, Max, Min]
        );
        return all.filter(|_| !matches!(dtype, DType::F8(..)));
    }
    with_type!(dtype, T => by_func!(one_zip, Binary<T>, BinaryFn, isa, func, [
        Add, Sub, Mul, Div, Rem, Pow, Max, Min, And, Or, Xor, Shl, Shr
    ]), else None)
}

/// Results are bools. `None` for 8-bit floats.
pub fn compare(isa: Isa, func: CompareFn, dtype: DType) -> Option<BinaryLoop> {
    if dtype.is_float() {
        type T = f32;
        let all = by_func!(pick_zip, Compare<T>, CompareFn, isa, func, [Eq, Ne, Lt, Le, Gt, Ge]);
        return all.filter(|_| !matches!(dtype, DType::F8(..)));
    }
    with_type!(dtype, T => by_func!(one_zip, Compare<T>, CompareFn, isa, func, [Eq, Ne, Lt, Le, Gt, Ge]), else None)
}

/// By the size of an element in bytes.
pub fn select(isa: Isa, size: usize) -> SelectLoop {
    match size {
        1 => select_at::<u8>(isa),
        2 => select_at::<u16>(isa),
        4 => select_at::<u32>(isa),
        _ => select_at::<u64>(isa),
    }
}

fn select_at<T: Copy>(isa: Isa) -> SelectLoop {
    match isa {
        Isa::Portable => select_loop::<T>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => select_avx2::<T>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => select_avx512::<T>,
        #[cfg(not(target_arch = "x86_64"))]
        _ => select_loop::<T>,
    }
}

/// # Safety
/// See [`SelectLoop`]; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn select_avx2<T: Copy>(c: *const u8, a: *const u8, b: *const u8, y: *mut u8, n: usize) {
    // SAFETY: passed on.
    unsafe { select_loop::<T>(c, a, b, y, n) }
}

/// # Safety
/// See [`SelectLoop`]; the processor has AVX-512 F, BW, DQ and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn select_avx512<T: Copy>(c: *const u8, a: *const u8, b: *const u8, y: *mut u8, n: usize) {
    // SAFETY: passed on.
    unsafe { select_loop::<T>(c, a, b, y, n) }
}

/// # Safety
/// See [`SelectLoop`].
#[inline(always)]
unsafe fn select_loop<T: Copy>(c: *const u8, a: *const u8, b: *const u8, y: *mut u8, n: usize) {
    let (a, b, y) = (a.cast::<T>(), b.cast::<T>(), y.cast::<T>());
    for i in 0..n {
        // SAFETY: i is below n, the number of elements behind all pointers.
        unsafe {
            let (on_true, on_false) = (a.add(i).read(), b.add(i).read());
            y.add(i).write(if c.add(i).read() != 0 { on_true } else { on_false });
        }
    }
}

struct Cast<A, B>(PhantomData<(A, B)>);
struct ToBool<A>(PhantomData<A>);

impl<A: Number> Map for ToBool<A> {
    type In = A;
    type Out = u8;
    #[inline(always)]
    fn apply(x: A) -> u8 {
        (x != A::neutral(pando_base::ReduceFn::Sum)).into()
    }
}

macro_rules! casts {
    ($($from:ty => [$($to:ty),*];)*) => { $($(
        impl Map for Cast<$from, $to> {
            type In = $from;
            type Out = $to;
            /// From floats truncates and saturates, NaN to 0; between integers wraps: Rust's own rules.
            #[inline(always)]
            fn apply(x: $from) -> $to {
                x as $to
            }
        }
    )*)* };
}
casts! {
    f32 => [f32, i16, i32, i64, u16, u32, u64];
    i8 => [f32, i8, i16, i32, i64, u8, u16, u32, u64];
    i16 => [f32, i8, i16, i32, i64, u8, u16, u32, u64];
    i32 => [f32, i8, i16, i32, i64, u8, u16, u32, u64];
    i64 => [f32, i8, i16, i32, i64, u8, u16, u32, u64];
    u8 => [f32, i8, i16, i32, i64, u8, u16, u32, u64];
    u16 => [f32, i8, i16, i32, i64, u8, u16, u32, u64];
    u32 => [f32, i8, i16, i32, i64, u8, u16, u32, u64];
    u64 => [f32, i8, i16, i32, i64, u8, u16, u32, u64];
}

macro_rules! casts_to_bytes {
    ($($to:ty),*) => { $(
        impl Map for Cast<f32, $to> {
            type In = f32;
            type Out = $to;
            /// As the others; in a form that is vectorised.
            #[inline(always)]
            fn apply(x: f32) -> $to {
                let (low, high) = (f32::from(<$to>::MIN), f32::from(<$to>::MAX));
                let x = if x.is_nan() { 0.0 } else { x };
                let x = if x > high { high } else { x };
                let x = if x < low { low } else { x };
                // SAFETY: a number between the bounds.
                let whole: i32 = unsafe { x.to_int_unchecked() };
                whole as $to
            }
        }
    )*};
}
casts_to_bytes!(i8, u8);

/// Between register types. From an integer to a 16-bit float see `half.rs`. `None` for 8-bit floats.
pub fn convert(isa: Isa, from: DType, to: DType) -> Option<UnaryLoop> {
    // What quantised models do all the time.
    match (from, to) {
        (DType::F32, DType::U8) => return Some(pick_map::<Cast<f32, u8>>(isa)),
        (DType::F32, DType::I8) => return Some(pick_map::<Cast<f32, i8>>(isa)),
        (DType::I32, DType::F32) => return Some(pick_map::<Cast<i32, f32>>(isa)),
        (DType::U8, DType::U32) => return Some(pick_map::<Cast<u8, u32>>(isa)),
        _ => {}
    }
    with_type!(from, A => match to {
        DType::Bool => Some(one_map::<ToBool<A>>(isa)),
        _ => with_type!(to, B => Some(one_map::<Cast<A, B>>(isa)), else None),
    }, else None)
}

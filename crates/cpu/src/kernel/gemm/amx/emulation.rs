//! The unit's operations as Intel documents them (Software Developer's Manual, volume 2, TILELOADD, TDPBF16PS,
//! TDPBUSD), in software: the same registers, layout, order of sums and treatment of tiny numbers. So kernels,
//! packing and drivers are tested on computers without the unit; far too slow for anything else.

#![allow(unsafe_code)]

use super::unit::{Product, SIDE, Unit};
use crate::kernel::half::{BF16, Half};
use std::cell::RefCell;

/// Words of a register, by rows.
type Register = [[u32; SIDE]; SIDE];

thread_local! {
    /// `None` as long as they have no shape: the processor's would fault.
    static REGISTERS: RefCell<Option<Box<[Register; 8]>>> = const { RefCell::new(None) };
}

fn with_registers<R>(work: impl FnOnce(&mut [Register; 8]) -> R) -> R {
    REGISTERS.with_borrow_mut(|registers| work(registers.as_mut().expect("registers have a shape")))
}

pub struct Emulation;

impl Unit for Emulation {
    unsafe fn begin() {
        REGISTERS.set(Some(Box::new([[[0; SIDE]; SIDE]; 8])));
    }

    unsafe fn end() {
        REGISTERS.set(None);
    }

    unsafe fn zero<const T: usize>() {
        with_registers(|registers| registers[T] = [[0; SIDE]; SIDE]);
    }

    unsafe fn load<const T: usize>(from: *const u8, stride: usize) {
        with_registers(|registers| {
            for (row, words) in registers[T].iter_mut().enumerate() {
                // SAFETY: the caller's rows lie in memory.
                *words = unsafe { from.add(row * stride).cast::<[u32; SIDE]>().read_unaligned() };
            }
        });
    }

    unsafe fn store<const T: usize>(to: *mut u8, stride: usize) {
        with_registers(|registers| {
            for (row, words) in registers[T].iter().enumerate() {
                // SAFETY: the caller's rows are its own.
                unsafe { to.add(row * stride).cast::<[u32; SIDE]>().write_unaligned(*words) };
            }
        });
    }

    unsafe fn multiply<const C: usize, const A: usize, const B: usize>(product: Product) {
        with_registers(|registers| {
            let (a, b) = (registers[A], registers[B]);
            for (sums, a) in registers[C].iter_mut().zip(&a) {
                match product {
                    Product::Bf16 => add_pairs(sums, a, &b),
                    Product::Bytes => add_fours(sums, a, &b),
                }
            }
        });
    }
}

/// Numbers below the least normal one are zeros, results and operands alike.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// A row of sums: first and second numbers of pairs are summed on their own, each product and sum rounded
/// once; then their sum is added.
fn add_pairs(sums: &mut [u32; SIDE], a: &[u32; SIDE], b: &Register) {
    let halves = |word: u32| [word as u16, (word >> 16) as u16].map(|half| flushed(BF16::widen(half)));
    for (column, sum) in sums.iter_mut().enumerate() {
        let mut totals = [0f32; 2];
        for (&a, b) in a.iter().zip(b) {
            let (a, b) = (halves(a), halves(b[column]));
            for (half, total) in totals.iter_mut().enumerate() {
                *total = flushed(a[half].mul_add(b[half], *total));
            }
        }
        let total = flushed(totals[0] + totals[1]);
        *sum = flushed(flushed(f32::from_bits(*sum)) + total).to_bits();
    }
}

/// A row of wrapping sums of products of u8 (of `a`) and i8.
fn add_fours(sums: &mut [u32; SIDE], a: &[u32; SIDE], b: &Register) {
    for (column, sum) in sums.iter_mut().enumerate() {
        for (&a, b) in a.iter().zip(b) {
            let products = a.to_le_bytes().into_iter().zip(b[column].to_le_bytes());
            let products = products.map(|(a, b)| i32::from(a) * i32::from(b as i8));
            *sum = sum.wrapping_add(products.sum::<i32>() as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(low: f32, high: f32) -> u32 {
        u32::from(BF16::narrow(low)) | u32::from(BF16::narrow(high)) << 16
    }

    #[test]
    fn first_and_second_numbers_are_summed_apart() {
        let (mut a, mut b) = ([0; SIDE], [[0; SIDE]; SIDE]);
        // 2^30 + 1 would be rounded; the 1 among the second numbers is not, until both are added.
        (a[0], a[1]) = (pair(1.0, 1.0), pair(-1.0, 0.0));
        (b[0][3], b[1][3]) = (pair(1_073_741_824.0, 1.0), pair(1_073_741_824.0, 5.0));
        let mut sums = [2f32.to_bits(); SIDE];
        add_pairs(&mut sums, &a, &b);
        assert_eq!(f32::from_bits(sums[3]), 3.0);
        assert_eq!(f32::from_bits(sums[4]), 2.0);
    }

    #[test]
    fn tiny_numbers_are_zeros() {
        let (mut a, mut b) = ([0; SIDE], [[0; SIDE]; SIDE]);
        (a[0], b[0][0]) = (pair(1.0, f32::MIN_POSITIVE), pair(f32::MIN_POSITIVE / 2.0, 0.5));
        let mut sums = [f32::from_bits(1).to_bits(); SIDE];
        add_pairs(&mut sums, &a, &b);
        assert_eq!(f32::from_bits(sums[0]), 0.0);
    }

    #[test]
    fn bytes_have_a_sign_on_the_right_only() {
        let mut b = [[0; SIDE]; SIDE];
        b[2][1] = u32::from_le_bytes([0x80, 1, 0, 0xff]);
        let mut a = [0; SIDE];
        a[2] = u32::from_le_bytes([0xff, 0x80, 9, 2]);
        let mut sums = [5; SIDE];
        add_fours(&mut sums, &a, &b);
        assert_eq!(sums[1] as i32, 5 - 128 * 255 + 128 - 2);
        assert_eq!(sums[0], 5);
    }
}

//! The operations on tiles that kernels are written in. A unit has eight registers per thread, here always of
//! 16 rows of 64 bytes. Units: the processor's (`processor.rs`) and its emulation (`emulation.rs`).

#![allow(unsafe_code)]

/// Rows of a register, and words of a row.
pub const SIDE: usize = 16;

/// What products of two words add to a word of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Pairs of bf16 to f32.
    Bf16,
    /// Fours of u8 and i8 to i32.
    Bytes,
}

/// # Safety
/// Of all operations but [`Unit::begin`]: the thread has begun and not ended. Registers are numbered below 8;
/// of `begin` and all others: the processor, and the process, may use the unit.
pub trait Unit {
    /// Gives all registers of the calling thread their shape, and zeros.
    unsafe fn begin();
    /// Lets the registers go: threads without them switch faster, and the core may rest.
    unsafe fn end();
    unsafe fn zero<const T: usize>();
    /// Row i is the 64 bytes at `from + i × stride`, which lie in memory.
    unsafe fn load<const T: usize>(from: *const u8, stride: usize);
    /// Row i goes to the 64 bytes at `to + i × stride`, which are the caller's alone.
    unsafe fn store<const T: usize>(to: *mut u8, stride: usize);
    /// Register C, rows of sums, gets the products of the rows of A and the columns of words of B.
    unsafe fn multiply<const C: usize, const A: usize, const B: usize>(product: Product);
}

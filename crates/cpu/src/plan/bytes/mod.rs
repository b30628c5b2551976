//! Quantised networks: convolutions and products of bytes with all that follows them as one node each, images with their
//! channels last. `known.rs` says what values are, `chain.rs` which nodes make a product, `commute.rs` moves what can work
//! on codes in front of reals, `share.rs` gives each reader
//! its own reals, `layout.rs` rewrites, `emit.rs` makes steps.
//!
//! Before: any flat function. After: one with the same results; `chain.rs` says which may differ, and by how much. Cost:
//! linear in the nodes.

mod chain;
mod commute;
mod emit;
mod known;
mod layout;
mod share;

use crate::flat::Flat;
use crate::kernel::bytes::{Output, Residual};
use known::Known;

/// A product of bytes. Operands: x in u8 (an image `[images, height, width, channels]`, a line is one of height 1, or rows
/// for a dot), weights in
/// `i8[outputs, inputs of a group, height, width]`, the zero point of x in i32, what is added to sums (i32), scales, shifts
/// (f32), perhaps bytes as the results (u8).
#[derive(Clone, Debug)]
pub struct ByteConv {
    /// Images, channels, height, width.
    pub from: [usize; 4],
    pub to: [usize; 4],
    pub window: [usize; 2],
    pub strides: [u64; 2],
    pub dilation: [u64; 2],
    pub padding: [(i64, i64); 2],
    pub groups: usize,
    pub low: f32,
    pub high: f32,
    pub residual: Option<Residual>,
    pub output: Output,
}

/// The function with products of bytes. `has_unit`: whether dots of integers have a unit for tiles, which is faster.
pub fn bytes(flat: Flat, has_unit: bool) -> Flat {
    let of_bytes = flat.values.iter().any(|ty| known::range_of(ty.dtype).is_some());
    if !of_bytes {
        return flat;
    }
    let flat = share::reals_for_each(commute::commute(flat));
    let products = chain::products(&Known::of(&flat), has_unit);
    if products.is_empty() { flat } else { layout::channels_last(flat, products) }
}

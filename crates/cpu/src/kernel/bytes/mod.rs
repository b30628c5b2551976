//! Products of bytes: u8 pixels, their channels neighbours, times i8 weights that were packed as fours of steps (words),
//! summed in i32 and finished while they are in registers: scaled, cut to a range, rounded, another tensor's bytes added.
//!
//! Every level gives the same bits: sums of integers are exact, and the finish is made of the same f32 operations, products
//! and sums fused. The floor
//! is the multiply-add units: with AVX-512 VNNI an instruction does 64 products, four times those of f32.

#![allow(unsafe_code)]

mod finish;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use finish::{Finish, Output, Residual};

use crate::isa::Isa;

/// Columns of a panel of weights; the last panel may have half of them.
pub const PANEL: usize = 32;
pub const HALF_PANEL: usize = 16;

/// Neighbouring bytes of a pixel's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// From the pixel's first byte, in bytes.
    pub offset: usize,
    /// Fours of bytes. What is behind the window has weights of zero.
    pub words: usize,
}

/// Some pixels times a panel of weights.
pub struct Tile<'a> {
    pub x: *const u8,
    /// Bytes from pixel to pixel.
    pub pixel: usize,
    pub runs: &'a [Run],
    /// `[words][width][4]`.
    pub w: *const i8,
    /// Columns that the panel has room for: [`PANEL`] or [`HALF_PANEL`].
    pub width: usize,
    /// Columns that it has, at most `width`.
    pub columns: usize,
    pub finish: &'a Finish<'a>,
    /// The first result, and elements from pixel to pixel.
    pub y: *mut u8,
    pub y_pixel: usize,
    /// As the results, where the finish has a residual.
    pub residual: *const u8,
}

/// # Safety
/// All words of the runs of all pixels, the panel, the results and the residual lie in memory; results are the caller's
/// alone. The processor has the level.
pub type TileLoop = unsafe fn(&Tile);

/// One per number of pixels, from 1 on.
pub struct Tiles {
    pub kernels: &'static [TileLoop],
    pub depthwise: DepthwiseLoop,
}

/// Pixels whose channels are each multiplied with weights of their own.
pub struct Depthwise<'a> {
    pub x: *const u8,
    /// Bytes from pixel to pixel of the operand, and pixels.
    pub pixel: usize,
    pub pixels: usize,
    /// Of the window's elements.
    pub offsets: &'a [usize],
    /// `[elements][channels rounded up to HALF_PANEL]`, at the first channel.
    pub w: *const i8,
    pub w_step: usize,
    /// At most [`HALF_PANEL`].
    pub channels: usize,
    pub finish: &'a Finish<'a>,
    pub y: *mut u8,
    pub y_pixel: usize,
    pub residual: *const u8,
}

/// # Safety
/// As [`TileLoop`]; operand and weights have [`HALF_PANEL`] bytes wherever they are read.
pub type DepthwiseLoop = unsafe fn(&Depthwise);

pub fn tiles(isa: Isa) -> &'static Tiles {
    #[cfg(target_arch = "x86_64")]
    match isa {
        Isa::Avx512 if is_x86_feature_detected!("avx512vnni") => return &x86::VNNI,
        Isa::Avx512 | Isa::Avx2 => return &x86::AVX2,
        Isa::Portable => {}
    }
    let _ = isa;
    &PORTABLE
}

static PORTABLE: Tiles = Tiles {
    kernels: &[portable::<1>, portable::<2>, portable::<3>, portable::<4>],
    depthwise: portable_depthwise,
};

/// # Safety
/// See [`TileLoop`].
unsafe fn portable<const M: usize>(tile: &Tile) {
    for pixel in 0..M {
        let mut sums = [0i32; PANEL];
        let mut w = tile.w;
        for run in tile.runs {
            let x = tile.x.wrapping_add(pixel * tile.pixel + run.offset);
            for word in 0..run.words {
                // SAFETY: a word of the run, and one of each column of the panel.
                let (x, weights) = unsafe {
                    (x.add(4 * word).cast::<[u8; 4]>().read(), std::slice::from_raw_parts(w, 4 * tile.width))
                };
                for (sum, w) in sums.iter_mut().zip(weights.chunks_exact(4)) {
                    let products = x.iter().zip(w).map(|(&x, &w)| i32::from(x) * i32::from(w));
                    *sum = sum.wrapping_add(products.sum::<i32>());
                }
                w = w.wrapping_add(4 * tile.width);
            }
        }
        let at = pixel * tile.y_pixel;
        // SAFETY: the pixel's results, and the residual's.
        unsafe { tile.finish.run(&sums[..tile.columns], 0, tile.y, at, tile.residual) };
    }
}

/// # Safety
/// See [`DepthwiseLoop`].
unsafe fn portable_depthwise(d: &Depthwise) {
    for pixel in 0..d.pixels {
        let mut sums = [0i32; HALF_PANEL];
        let x = d.x.wrapping_add(pixel * d.pixel);
        for (element, &offset) in d.offsets.iter().enumerate() {
            // SAFETY: both have so many bytes.
            let (x, w) = unsafe {
                let w = d.w.add(element * d.w_step).cast::<[i8; HALF_PANEL]>().read();
                (x.add(offset).cast::<[u8; HALF_PANEL]>().read(), w)
            };
            for ((sum, x), w) in sums.iter_mut().zip(x).zip(w) {
                *sum = sum.wrapping_add(i32::from(x) * i32::from(w));
            }
        }
        // SAFETY: the pixel's results, and the residual's.
        unsafe { d.finish.run(&sums[..d.channels], 0, d.y, pixel * d.y_pixel, d.residual) };
    }
}

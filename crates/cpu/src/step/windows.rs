//! Convolution as a matrix product without im2col. The input is copied once into padded planes, one per
//! phase of the strides; then, for a kernel element, the inputs of neighbouring output columns are neighbours
//! in memory, and so are those of neighbouring rows but for a gap of the same width in input and result. So
//! row `k` of the product's right side is the memory at `offsets[k]`, and results carry gaps, which are
//! closed when a block of them is done.
//!
//! Cost: the copy (a load and a store per input element), and the gaps: (width + kernel - 1) / width.

#![allow(unsafe_code)]

use crate::exec::Memory;
use crate::pool::Pool;
use crate::view::View;

/// Spatial dimensions are always three; missing ones have size 1.
pub const SPATIAL: usize = 3;

/// How padded planes are made of an input `[n, channels, spatial…]`, dense f32.
#[derive(Clone, Debug)]
pub struct Planes {
    /// Images × channels.
    pub channels: usize,
    pub from: [usize; SPATIAL],
    pub low: [i64; SPATIAL],
    pub dilation: [usize; SPATIAL],
    pub strides: [usize; SPATIAL],
    /// Sizes of one phase's plane.
    pub plane: [usize; SPATIAL],
}

#[derive(Clone, Debug)]
pub struct Windows {
    /// `None`: the input serves as it is.
    pub planes: Option<Planes>,
    pub groups: usize,
    /// Elements of a group's channels (planes included) and of an image.
    pub group_size: usize,
    pub image_size: usize,
    /// For each channel of a group and kernel element.
    pub offsets: Vec<usize>,
    /// Where each row of the result begins, gaps included.
    pub runs: Vec<usize>,
    /// Result columns in a row.
    pub run_length: usize,
}

impl Planes {
    pub fn phases(&self) -> usize {
        self.strides.iter().product()
    }

    /// Elements of all planes of a channel.
    pub fn channel_size(&self) -> usize {
        self.phases() * self.plane.iter().product::<usize>()
    }

    /// The position of padded coordinates inside a channel's planes.
    pub fn position(&self, at: [usize; SPATIAL]) -> usize {
        let (mut phase, mut position) = (0, 0);
        for (axis, &at) in at.iter().enumerate() {
            phase = phase * self.strides[axis] + at % self.strides[axis];
            position = position * self.plane[axis] + at / self.strides[axis];
        }
        phase * self.plane.iter().product::<usize>() + position
    }

    /// Fills the planes at `to`.
    pub fn fill(&self, memory: Memory, input: &View, to: &View, pool: &Pool) {
        let from_size: usize = self.from.iter().product();
        let channel_size = self.channel_size();
        pool.run(self.channels, &|channel| {
            let from = memory.address(input).cast::<f32>().wrapping_add(channel * from_size);
            let to = memory.address(to).cast::<f32>().wrapping_add(channel * channel_size);
            // SAFETY: a channel of the dense input, and this channel's part of the step's scratch.
            let (from, to) = unsafe {
                (
                    std::slice::from_raw_parts(from, from_size),
                    std::slice::from_raw_parts_mut(to, channel_size),
                )
            };
            to.fill(0.0);
            self.fill_channel(from, to);
        });
    }

    /// Where an input coordinate goes, if it is not cropped away.
    fn padded(&self, axis: usize, at: usize) -> Option<usize> {
        let at = at as i64 * self.dilation[axis] as i64 + self.low[axis];
        let room = (self.plane[axis] * self.strides[axis]) as i64;
        (0..room).contains(&at).then_some(at as usize)
    }

    fn fill_channel(&self, from: &[f32], to: &mut [f32]) {
        let [depth, height, width] = self.from;
        for z in 0..depth {
            for y in 0..height {
                let (Some(pz), Some(py)) = (self.padded(0, z), self.padded(1, y)) else { continue };
                let row = &from[(z * height + y) * width..][..width];
                self.fill_row(row, pz, py, to);
            }
        }
    }

    /// Every stride-th element of a padded row, from the phase-th on.
    fn fill_phase(&self, row: &[f32], phase: usize, to: &mut [f32]) {
        let (stride, low) = (self.strides[2] as i64, self.low[2]);
        // Element i of the phase is input i × stride + phase - low.
        let begin = (low - phase as i64).max(0).unsigned_abs().div_ceil(stride.unsigned_abs()) as usize;
        let first = begin as i64 * stride + phase as i64 - low;
        let row = usize::try_from(first).ok().and_then(|first| row.get(first..));
        let (Some(row), Some(to)) = (row, to.get_mut(begin..)) else { return };
        if stride == 2 {
            // The common case, in a form that is vectorised.
            for (to, pair) in to.iter_mut().zip(row.chunks_exact(2)) {
                *to = pair[0];
            }
            if let (1, Some(to)) = (row.len() % 2, to.get_mut(row.len() / 2)) {
                *to = row[row.len() - 1];
            }
            return;
        }
        to.iter_mut().zip(row.iter().step_by(stride as usize)).for_each(|(to, &x)| *to = x);
    }

    fn fill_row(&self, row: &[f32], z: usize, y: usize, to: &mut [f32]) {
        let stride = self.strides[2];
        if self.dilation[2] == 1 && stride == 1 {
            let first = (-self.low[2]).max(0) as usize;
            let begin = self.low[2].max(0) as usize;
            let room = self.plane[2].saturating_sub(begin).min(row.len().saturating_sub(first));
            if room > 0 {
                let target = self.position([z, y, begin]);
                to[target..target + room].copy_from_slice(&row[first..first + room]);
            }
            return;
        }
        let base = self.position([z, y, 0]);
        let plane_size: usize = self.plane.iter().product();
        if self.dilation[2] == 1 {
            for phase in 0..stride {
                let to = &mut to[base + phase * plane_size..][..self.plane[2]];
                self.fill_phase(row, phase, to);
            }
            return;
        }
        for (x, &value) in row.iter().enumerate() {
            if let Some(px) = self.padded(2, x) {
                to[base + px % stride * plane_size + px / stride] = value;
            }
        }
    }
}

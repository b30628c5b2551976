//! Where a convolution's taps are: in the image as it lies, or in padded planes of some of its rows, one plane
//! per phase of the strides, so that the inputs of neighbouring output pixels are neighbours whatever the
//! stride.

#![allow(unsafe_code)]

use std::ops::Range;

#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// Planes of an image: channel blocks, or channels.
    pub channels: usize,
    /// Elements of a pixel.
    pub lanes: usize,
    /// Height and width of the image.
    pub from: [usize; 2],
    /// Padding before.
    pub low: [i64; 2],
    pub strides: [usize; 2],
    /// Those that taps touch.
    pub phases: Vec<[usize; 2]>,
    /// Rows and columns of a phase's plane.
    pub plane: [usize; 2],
    /// Output rows of a task, which the plane has room for.
    pub task_rows: usize,
    /// Whether planes are copies; otherwise the plane is the image.
    pub copies: bool,
}

impl Stage {
    pub fn image_elements(&self) -> usize {
        self.channels * self.from[0] * self.from[1] * self.lanes
    }

    pub fn row_elements(&self) -> usize {
        self.plane[1] * self.lanes
    }

    /// From one channel's planes to the next's.
    pub fn channel_elements(&self) -> usize {
        self.phases.len() * self.plane[0] * self.row_elements()
    }

    /// Of all channels of a pixel.
    pub fn pixel_bytes(&self) -> usize {
        self.channels * self.lanes * 4
    }

    /// Where the padded pixel that an output pixel at the origin meets is, in channel 0.
    pub fn position(&self, at: [usize; 2]) -> usize {
        let phase = [at[0] % self.strides[0], at[1] % self.strides[1]];
        let index = self.phases.iter().position(|known| *known == phase);
        let index = index.expect("phases are those of all taps");
        let row = index * self.plane[0] + at[0] / self.strides[0];
        row * self.row_elements() + at[1] / self.strides[1] * self.lanes
    }

    /// Copies the rows that output rows from `first` on need.
    ///
    /// # Safety
    /// `image` has the image's elements, `to` room for the channels' planes.
    pub unsafe fn fill(&self, image: *const f32, channels: Range<usize>, first: usize, to: *mut f32) {
        let [height, width] = self.from;
        let mut to = to;
        for channel in channels {
            let image = image.wrapping_add(channel * height * width * self.lanes);
            for &[phase_y, phase_x] in &self.phases {
                for row in 0..self.plane[0] {
                    let y = ((first + row) * self.strides[0] + phase_y) as i64 - self.low[0];
                    let from = usize::try_from(y).ok().filter(|&y| y < height);
                    let from = from.map(|y| image.wrapping_add(y * width * self.lanes));
                    // SAFETY: a row of the image, and one of the planes.
                    unsafe {
                        match self.lanes {
                            1 => self.fill_row::<1>(from, phase_x, to),
                            _ => self.fill_row::<16>(from, phase_x, to),
                        }
                        to = to.add(self.row_elements());
                    }
                }
            }
        }
    }

    /// # Safety
    /// `from` is a row of the image, `to` one of a plane.
    #[inline(always)]
    unsafe fn fill_row<const N: usize>(&self, from: Option<*const f32>, phase: usize, to: *mut f32) {
        let (stride, columns) = (self.strides[1] as i64, self.plane[1]);
        let to = to.cast::<[f32; N]>();
        // Column c is the image's column c × stride + shift.
        let shift = phase as i64 - self.low[1];
        let width = self.from[1] as i64;
        let begin = ((-shift).max(0) as u64).div_ceil(stride as u64) as usize;
        let end = (width - shift + stride - 1).div_euclid(stride).clamp(0, columns as i64) as usize;
        let (begin, end) = if from.is_some() && begin < end { (begin, end) } else { (columns, columns) };
        // SAFETY: columns below `end` lie in the row, all columns in the plane.
        unsafe {
            std::slice::from_raw_parts_mut(to, begin).fill([0.0; N]);
            std::slice::from_raw_parts_mut(to.add(end), columns - end).fill([0.0; N]);
            let Some(from) = from.filter(|_| begin < end) else { return };
            let from = from.cast::<[f32; N]>().offset(begin as isize * stride as isize + shift as isize);
            if stride == 1 {
                std::ptr::copy_nonoverlapping(from, to.add(begin), end - begin);
                return;
            }
            for column in 0..end - begin {
                *to.add(begin + column) = *from.add(column * stride as usize);
            }
        }
    }
}

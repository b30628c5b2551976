//! Where windows are: in the image as it lies, or in a copy of some of its rows with the padding around them.

#![allow(unsafe_code)]

/// Bytes behind the last row of a copy, which kernels may read and which meet weights of zero.
const SLACK: usize = 64;

#[derive(Clone, Debug)]
pub struct Stage {
    /// Channels of a pixel.
    pub channels: usize,
    /// Height and width of the image.
    pub from: [usize; 2],
    /// Padding before.
    pub low: [i64; 2],
    pub strides: [usize; 2],
    /// Rows that a row of windows covers.
    pub reach: usize,
    /// Pixels of a row: the image's, or the padded ones.
    pub width: usize,
    /// Whether rows are copied.
    pub copies: bool,
}

impl Stage {
    pub fn pixel_bytes(&self) -> usize {
        self.channels
    }

    pub fn image_bytes(&self) -> usize {
        self.from[0] * self.from[1] * self.channels
    }

    fn row_bytes(&self) -> usize {
        self.width * self.channels
    }

    /// From a row of windows to the next.
    pub fn row_step(&self) -> usize {
        self.strides[0] * self.row_bytes()
    }

    pub fn pixel_step(&self) -> usize {
        self.strides[1] * self.channels
    }

    /// What one more row of windows takes.
    pub fn task_row_bytes(&self) -> usize {
        self.row_step()
    }

    pub fn room_bytes(&self, rows: usize) -> usize {
        ((rows.max(1) - 1) * self.strides[0] + self.reach) * self.row_bytes() + SLACK
    }

    /// Copies the rows that so many rows of windows from `first` on need.
    ///
    /// # Safety
    /// `image` has the image's bytes, `to` room for the rows.
    pub unsafe fn fill(&self, image: *const u8, filler: u8, (first, count): (usize, usize), to: *mut u8) {
        let bytes = self.row_bytes();
        for row in 0..(count.max(1) - 1) * self.strides[0] + self.reach {
            let y = (first * self.strides[0] + row) as i64 - self.low[0];
            let from = usize::try_from(y).ok().filter(|&y| y < self.from[0]);
            // SAFETY: a row of the image, and one of the room.
            unsafe {
                let to = std::slice::from_raw_parts_mut(to.add(row * bytes), bytes);
                match from {
                    Some(y) => {
                        let length = self.from[1] * self.channels;
                        self.fill_row(std::slice::from_raw_parts(image.add(y * length), length), filler, to);
                    }
                    None => to.fill(filler),
                }
            }
        }
    }

    fn fill_row(&self, from: &[u8], filler: u8, to: &mut [u8]) {
        let low = self.low[1] * self.channels as i64;
        // What is cropped, and what is padded.
        let from = &from[((-low).max(0) as usize).min(from.len())..];
        let (before, rest) = to.split_at_mut((low.max(0) as usize).min(to.len()));
        before.fill(filler);
        let copied = from.len().min(rest.len());
        let (inside, after) = rest.split_at_mut(copied);
        inside.copy_from_slice(&from[..copied]);
        after.fill(filler);
    }
}

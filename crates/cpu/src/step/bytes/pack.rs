//! Weights of bytes as kernels read them: panels of columns, each `[words][width][4]`, the panels of a group one after the
//! other; behind all of them a sum per column, in i32. Depthwise ones are `[elements][channels]`, whole half panels.

#![allow(unsafe_code)]

use crate::kernel::bytes::{HALF_PANEL, PANEL};
use crate::step::gemm::Shared;
use crate::view::View;

#[derive(Clone, Debug)]
pub struct Pack {
    /// In all.
    pub outputs: usize,
    /// Of a group as it is defined.
    pub inputs: usize,
    pub groups: usize,
    /// How many groups are packed as one, zeros where they do not meet.
    pub merged: usize,
    /// Height and width.
    pub window: [usize; 2],
    /// Whether the rows of a window are one run.
    pub whole_rows: bool,
    pub depthwise: bool,
}

/// Where a weight of (output, input, row, column) is.
struct Weights {
    address: *const i8,
    strides: [isize; 4],
}

impl Weights {
    /// # Safety
    /// The indices are inside the view.
    unsafe fn at(&self, index: [usize; 4]) -> i8 {
        let offset: isize = index.iter().zip(&self.strides).map(|(&at, &stride)| at as isize * stride).sum();
        // SAFETY: passed on.
        unsafe { *self.address.offset(offset) }
    }
}

impl Pack {
    /// What tells packings of one view apart.
    pub fn key(&self) -> [usize; 5] {
        let form = usize::from(self.whole_rows) * 2 + usize::from(self.depthwise);
        [4, self.outputs, self.groups * 4 + form, self.merged, self.window[0] * 65_536 + self.window[1]]
    }

    fn packed_groups(&self) -> usize {
        self.groups / self.merged
    }

    fn outputs_per_group(&self) -> usize {
        self.outputs / self.packed_groups()
    }

    fn panels_per_group(&self) -> usize {
        let width = if self.depthwise { HALF_PANEL } else { PANEL };
        self.outputs_per_group().div_ceil(width)
    }

    pub fn panels(&self) -> usize {
        if self.depthwise {
            self.outputs.div_ceil(HALF_PANEL)
        } else {
            self.packed_groups() * self.panels_per_group()
        }
    }

    /// The packed group that a panel belongs to.
    pub fn group(&self, panel: usize) -> usize {
        panel / self.panels_per_group()
    }

    /// A panel's first column and the number of its columns.
    pub fn columns(&self, panel: usize) -> (usize, usize) {
        if self.depthwise {
            let first = panel * HALF_PANEL;
            return (first, HALF_PANEL.min(self.outputs - first));
        }
        let (group, index) = (self.group(panel), panel % self.panels_per_group());
        let first = index * PANEL;
        let columns = PANEL.min(self.outputs_per_group() - first);
        (group * self.outputs_per_group() + first, columns)
    }

    /// Bytes and words of each run of a window.
    pub fn run_words(&self) -> usize {
        let row = if self.whole_rows { self.window[1] } else { 1 };
        (self.inputs * self.merged * row).div_ceil(4)
    }

    /// Runs of a window.
    pub fn num_runs(&self) -> usize {
        if self.whole_rows { self.window[0] } else { self.window[0] * self.window[1] }
    }

    fn group_columns(&self) -> usize {
        let outputs = self.outputs_per_group();
        let rest = outputs % PANEL;
        let last = if rest > HALF_PANEL { PANEL } else { rest.next_multiple_of(HALF_PANEL) };
        outputs - rest + last
    }

    /// Where a panel's weights are, in bytes.
    pub fn offset(&self, panel: usize) -> usize {
        let (group, index) = (self.group(panel), panel % self.panels_per_group());
        (group * self.group_columns() + index * PANEL) * 4 * self.run_words() * self.num_runs()
    }

    /// Bytes before the sums.
    pub fn weight_bytes(&self) -> usize {
        let columns = match self.depthwise {
            true => return self.outputs.next_multiple_of(HALF_PANEL) * self.window[0] * self.window[1],
            false => self.packed_groups() * self.group_columns(),
        };
        columns * 4 * self.run_words() * self.num_runs()
    }

    /// Room for all of it, in elements of four bytes.
    pub fn elements(&self) -> usize {
        self.weight_bytes() / 4 + self.outputs
    }

    /// Packs a dense or strided `i8[outputs, inputs, height, width]`.
    ///
    /// # Safety
    /// `address` is the view's, which lies in memory; `to` has room and is the caller's alone.
    pub unsafe fn run(&self, address: *const u8, view: &View, to: Shared, pool: &crate::pool::Pool) {
        let strides: [isize; 4] = view.strides.as_slice().try_into().expect("weights have four dimensions");
        let from = Shared(address.cast_mut().cast());
        pool.run(self.panels(), &|panel| {
            let weights = Weights { address: from.address().cast_const().cast(), strides };
            let to = to.address().cast::<i8>();
            let (first, columns) = self.columns(panel);
            // SAFETY: panels and their sums are disjoint and lie in the room.
            unsafe {
                match self.depthwise {
                    true => self.depthwise_panel(&weights, first, columns, to.add(first)),
                    false => self.panel(&weights, panel, to.add(self.offset(panel))),
                }
                for column in first..first + columns {
                    *to.add(self.weight_bytes()).cast::<i32>().add(column) = self.sum(&weights, column);
                }
            }
        });
    }

    /// # Safety
    /// The weights lie in memory.
    unsafe fn sum(&self, weights: &Weights, column: usize) -> i32 {
        let mut sum = 0i32;
        for input in 0..self.inputs {
            for y in 0..self.window[0] {
                for x in 0..self.window[1] {
                    // SAFETY: passed on.
                    sum = sum.wrapping_add(unsafe { weights.at([column, input, y, x]) }.into());
                }
            }
        }
        sum
    }

    /// # Safety
    /// As [`Pack::run`].
    unsafe fn depthwise_panel(&self, weights: &Weights, first: usize, columns: usize, to: *mut i8) {
        let step = self.outputs.next_multiple_of(HALF_PANEL);
        for y in 0..self.window[0] {
            for x in 0..self.window[1] {
                for column in 0..HALF_PANEL {
                    let at = (y * self.window[1] + x) * step + column;
                    // SAFETY: passed on.
                    unsafe {
                        *to.add(at) =
                            if column < columns { weights.at([first + column, 0, y, x]) } else { 0 };
                    }
                }
            }
        }
    }

    /// # Safety
    /// As [`Pack::run`].
    unsafe fn panel(&self, weights: &Weights, panel: usize, to: *mut i8) {
        let (first, columns) = self.columns(panel);
        let width = if columns > HALF_PANEL { PANEL } else { HALF_PANEL };
        let channels = self.inputs * self.merged;
        let mut to = to;
        for run in 0..self.num_runs() {
            for byte in 0..4 * self.run_words() {
                let (y, x) = match self.whole_rows {
                    true => (run, byte / channels),
                    false => (run / self.window[1], run % self.window[1] + byte / channels * self.window[1]),
                };
                let channel = byte % channels;
                for column in 0..width {
                    let inside = x < self.window[1] && column < columns;
                    let at = (byte / 4 * width + column) * 4 + byte % 4;
                    let input = if inside { self.input(first + column, channel) } else { None };
                    // SAFETY: passed on.
                    unsafe {
                        *to.add(at) = input.map_or(0, |input| weights.at([first + column, input, y, x]));
                    }
                }
            }
            to = to.wrapping_add(4 * self.run_words() * width);
        }
    }

    /// The input of an output's own group that a channel of the packed group is.
    fn input(&self, output: usize, channel: usize) -> Option<usize> {
        let own = output / (self.outputs / self.groups) % self.merged;
        (channel / self.inputs == own).then_some(channel % self.inputs)
    }
}

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
        let window = self.window[0] * 65_536 + self.window[1];
        [usize::MAX - 1, self.outputs, self.groups * 4 + form, self.merged, window]
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
                let sums = to.add(self.weight_bytes()).cast::<i32>().add(first);
                let place = match self.depthwise {
                    true => self.depthwise_panel(to.add(first)),
                    false => self.panel(panel, to.add(self.offset(panel))),
                };
                for column in 0..columns {
                    *sums.add(column) = self.column(&weights, first + column, column, &place);
                }
            }
        });
    }

    /// Fills a depthwise panel with zeros.
    ///
    /// # Safety
    /// As [`Pack::run`].
    unsafe fn depthwise_panel(&self, to: *mut i8) -> Place {
        let step = self.outputs.next_multiple_of(HALF_PANEL);
        for element in 0..self.window[0] * self.window[1] {
            // SAFETY: passed on.
            unsafe { to.add(element * step).write_bytes(0, HALF_PANEL) };
        }
        Place { to, y: self.window[1] * step, x: step, channel: 0, column: 1, width: 0 }
    }

    /// Fills a panel with zeros.
    ///
    /// # Safety
    /// As [`Pack::run`].
    unsafe fn panel(&self, panel: usize, to: *mut i8) -> Place {
        let (_, columns) = self.columns(panel);
        let width = if columns > HALF_PANEL { PANEL } else { HALF_PANEL };
        let run = 4 * self.run_words() * width;
        // SAFETY: passed on.
        unsafe { to.write_bytes(0, run * self.num_runs()) };
        let (y, x) =
            if self.whole_rows { (run, self.inputs * self.merged) } else { (run * self.window[1], run) };
        Place { to, y, x, channel: 1, column: 4, width }
    }

    /// Packs the weights of an output, and returns their sum.
    ///
    /// # Safety
    /// As [`Pack::run`].
    unsafe fn column(&self, weights: &Weights, output: usize, column: usize, place: &Place) -> i32 {
        let own = output / (self.outputs / self.groups) % self.merged * self.inputs;
        let (mut sum, [height, width]) = (0i32, self.window);
        for input in 0..self.inputs {
            for y in 0..height {
                for x in 0..width {
                    let at = place.at(own + input, [y, x], column, self.whole_rows);
                    // SAFETY: passed on.
                    unsafe {
                        let weight = weights.at([output, input, y, x]);
                        *place.to.add(at) = weight;
                        sum = sum.wrapping_add(weight.into());
                    }
                }
            }
        }
        sum
    }
}

/// Where weights of a panel go: distances of rows, columns of the window (in channels, where rows are one run), and lanes.
struct Place {
    to: *mut i8,
    y: usize,
    x: usize,
    channel: usize,
    column: usize,
    /// Lanes of a word; none where channels are lanes themselves.
    width: usize,
}

impl Place {
    fn at(&self, channel: usize, [y, x]: [usize; 2], column: usize, whole_rows: bool) -> usize {
        let byte = channel * self.channel + if whole_rows { x * self.x } else { 0 };
        let run = y * self.y + if whole_rows { 0 } else { x * self.x };
        run + byte / 4 * 4 * self.width + byte % 4 + column * self.column
    }
}

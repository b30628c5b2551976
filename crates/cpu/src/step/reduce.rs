//! Reductions over axes, sliding windows and scans. Floats total in f64 and are rounded once, integers wrap.
//! The floor is memory: each operand element is read once per reduction, once per window it is in.

#![allow(unsafe_code)]

use super::Step;
use super::program::Program;
use crate::exec::Run;
use crate::kernel::elementwise::with_type;
use crate::kernel::number::{Extreme, Reduced};
use crate::view::{Sizes, Strides, View, collapse};
use pando_base::{DType, ReduceFn};
use smallvec::SmallVec;

pub enum Reduction {
    /// Collapsed sizes and strides of the axes that stay and of those that go.
    Axes { kept: (Sizes, Strides), gone: (Sizes, Strides) },
    /// Lines of so many elements, which a program makes.
    Lines { length: usize, program: Program },
    /// Per dimension; the operand is dense.
    Window { window: Vec<usize>, strides: Vec<i64>, low: Vec<i64>, dilation: Vec<i64> },
    /// Along an axis of `length` elements `stride` apart; the operand is dense.
    Scan { length: usize, stride: usize, exclusive: bool, reverse: bool },
}

/// Elements below which a second thread is not worth it.
const ALONE: usize = 16 << 10;

pub fn axes_of(view: &View, axes: &[usize]) -> Reduction {
    let pick = |inside: bool| {
        let axes = (0..view.sizes.len()).filter(|axis| axes.contains(axis) == inside);
        let (sizes, strides): (Sizes, Strides) =
            axes.map(|axis| (view.sizes[axis], view.strides[axis])).unzip();
        collapse(&sizes, &strides)
    };
    Reduction::Axes { kept: pick(false), gone: pick(true) }
}

pub fn run(reduction: &Reduction, func: ReduceFn, step: &Step, run: &mut Run) {
    let dtype = step.outputs[0].dtype;
    if dtype.is_float() {
        return match func {
            ReduceFn::Sum => run_as::<f32, { ReduceFn::Sum as u8 }>(reduction, step, run),
            ReduceFn::Prod => run_as::<f32, { ReduceFn::Prod as u8 }>(reduction, step, run),
            ReduceFn::Max => run_as::<Extreme, { ReduceFn::Max as u8 }>(reduction, step, run),
            ReduceFn::Min => run_as::<Extreme, { ReduceFn::Min as u8 }>(reduction, step, run),
            ReduceFn::And | ReduceFn::Or => unreachable!("{func} of floats does not pass inference"),
        };
    }
    with_type!(dtype, T => match func {
        ReduceFn::Sum => run_as::<T, { ReduceFn::Sum as u8 }>(reduction, step, run),
        ReduceFn::Prod => run_as::<T, { ReduceFn::Prod as u8 }>(reduction, step, run),
        ReduceFn::Max => run_as::<T, { ReduceFn::Max as u8 }>(reduction, step, run),
        ReduceFn::Min => run_as::<T, { ReduceFn::Min as u8 }>(reduction, step, run),
        ReduceFn::And => run_as::<T, { ReduceFn::And as u8 }>(reduction, step, run),
        ReduceFn::Or => run_as::<T, { ReduceFn::Or as u8 }>(reduction, step, run),
    }, else unreachable!("8-bit floats go to the evaluator"));
}

/// With the function known at compile time, so that loops hold no choice.
fn run_as<T: Reduced, const F: u8>(reduction: &Reduction, step: &Step, run: &Run) {
    match reduction {
        Reduction::Axes { kept, gone } => axes::<T, F>(kept, gone, step, run),
        Reduction::Lines { length, program } => lines::<T, F>(*length, program, step, run),
        Reduction::Window { window, strides, low, dilation } => {
            let windows = Windows { window, strides, low, dilation, from: &step.inputs[0].sizes };
            windows.run::<T, F>(step, run);
        }
        Reduction::Scan { .. } => scan::<T, F>(reduction, step, run),
    }
}

#[inline(always)]
fn combine<T: Reduced, const F: u8>(a: T::Total, b: T::Total) -> T::Total {
    T::combine(const { ReduceFn::ALL[F as usize] }, a, b)
}

/// The neutral element; of `and` over bools, which are bytes here, one.
fn neutral<T: Reduced>(func: ReduceFn, dtype: DType) -> T::Total {
    if dtype == DType::Bool && func == ReduceFn::And {
        return T::neutral(ReduceFn::Prod).widen();
    }
    T::neutral(func).widen()
}

/// Parts to cut `count` results into, for an operand of `elements`.
fn parts(count: usize, elements: usize, run: &Run) -> usize {
    if elements <= ALONE { 1 } else { (run.pool.threads() * 4).min(count.max(1)) }
}

/// The offset of a row-major position.
fn offset(mut position: usize, sizes: &[usize], strides: &[isize]) -> isize {
    let mut offset = 0;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        offset += (position % size) as isize * stride;
        position /= size;
    }
    offset
}

fn axes<T: Reduced, const F: u8>(kept: &(Sizes, Strides), gone: &(Sizes, Strides), step: &Step, run: &Run) {
    let (input, output) = (&step.inputs[0], &step.outputs[0]);
    let count = output.num_elements();
    let gone_count: usize = gone.0.iter().product();
    let memory = run.memory;
    let parts = parts(count, input.num_elements(), run);
    let start = neutral::<T>(const { ReduceFn::ALL[F as usize] }, input.dtype);
    run.pool.run(if count == 0 { 0 } else { parts }, &|part| {
        let from = memory.address(input).cast::<T>().cast_const();
        let to = memory.address(output).cast::<T>();
        let mut at = part * count / parts;
        let end = (part + 1) * count / parts;
        let (columns, column_stride) = (kept.0[kept.0.len() - 1], kept.1[kept.1.len() - 1]);
        while at < end {
            let base = from.wrapping_offset(offset(at, &kept.0, &kept.1));
            // Neighbouring results whose operands are neighbours go together.
            let together = column_stride == 1 && gone.1[gone.1.len() - 1] != 1;
            let n = if together { COLUMNS.min(end - at).min(columns - at % columns) } else { 1 };
            // SAFETY: positions are inside the operand; each result is written by one task.
            unsafe {
                if together {
                    columns_of::<T, F>(base, gone, gone_count, start, to.add(at), n);
                } else {
                    *to.add(at) = T::narrow(line::<T, F>(base, gone, gone_count, start));
                }
            }
            at += n;
        }
    });
}

fn lines<T: Reduced, const F: u8>(length: usize, program: &Program, step: &Step, run: &Run) {
    let output = &step.outputs[0];
    let (memory, count) = (run.memory, output.num_elements());
    let parts = parts(count, count * length, run);
    let start = neutral::<T>(const { ReduceFn::ALL[F as usize] }, output.dtype);
    run.pool.run(if count == 0 { 0 } else { parts }, &|part| {
        let inputs: SmallVec<[*const u8; 8]> =
            step.inputs.iter().map(|view| memory.address(view).cast_const()).collect();
        let mut room = vec![0f32; length];
        for at in part * count / parts..(part + 1) * count / parts {
            let begin = at * length;
            let first = room.as_mut_ptr().cast::<u8>().wrapping_sub(begin * size_of::<f32>());
            let gone = (Sizes::from_slice(&[length]), Strides::from_slice(&[1]));
            // SAFETY: the planner made the program for these inputs and a result of f32; each result is written by one
            // task.
            unsafe {
                program.run(&inputs, first, begin, length);
                let total = line::<T, F>(room.as_ptr().cast(), &gone, length, start);
                *memory.address(output).cast::<T>().add(at) = T::narrow(total);
            }
        }
    });
}

/// Results that are totalled side by side.
const COLUMNS: usize = 256;

/// # Safety
/// All elements named lie in memory.
unsafe fn columns_of<T: Reduced, const F: u8>(
    from: *const T,
    gone: &(Sizes, Strides),
    count: usize,
    start: T::Total,
    to: *mut T,
    n: usize,
) {
    let mut totals = [start; COLUMNS];
    for position in 0..count {
        // SAFETY: as stated.
        let row = unsafe { from.offset(offset(position, &gone.0, &gone.1)) };
        for (column, total) in totals[..n].iter_mut().enumerate() {
            // SAFETY: as stated.
            *total = combine::<T, F>(*total, unsafe { (*row.add(column)).widen() });
        }
    }
    for (column, &total) in totals[..n].iter().enumerate() {
        // SAFETY: as stated.
        unsafe { *to.add(column) = T::narrow(total) };
    }
}

/// The total of one result's operands, in [`LANES`] partial totals.
///
/// # Safety
/// All elements named lie in memory.
unsafe fn line<T: Reduced, const F: u8>(
    from: *const T,
    gone: &(Sizes, Strides),
    count: usize,
    start: T::Total,
) -> T::Total {
    const LANES: usize = 16;
    let mut lanes = [start; LANES];
    let last = gone.0.len() - 1;
    let (length, stride) = (gone.0[last], gone.1[last]);
    for outer in 0..count.checked_div(length).unwrap_or(0) {
        let row = from.wrapping_offset(offset(outer, &gone.0[..last], &gone.1[..last]));
        let mut at = 0;
        while stride == 1 && at + LANES <= length {
            for (lane, total) in lanes.iter_mut().enumerate() {
                // SAFETY: as stated.
                *total = combine::<T, F>(*total, unsafe { (*row.add(at + lane)).widen() });
            }
            at += LANES;
        }
        for at in at..length {
            // SAFETY: as stated.
            let x = unsafe { (*row.offset(at as isize * stride)).widen() };
            lanes[at % LANES] = combine::<T, F>(lanes[at % LANES], x);
        }
    }
    lanes.into_iter().fold(start, |total, lane| combine::<T, F>(total, lane))
}

struct Windows<'a> {
    window: &'a [usize],
    strides: &'a [i64],
    low: &'a [i64],
    dilation: &'a [i64],
    from: &'a [usize],
}

impl Windows<'_> {
    fn run<T: Reduced, const F: u8>(&self, step: &Step, run: &Run) {
        let (input, output) = (&step.inputs[0], &step.outputs[0]);
        let last = output.sizes.len() - 1;
        let width = output.sizes[last];
        let rows = output.num_elements().checked_div(width).unwrap_or(0);
        let memory = run.memory;
        let taps: usize = self.window[..last].iter().product();
        let parts = parts(rows, output.num_elements() * taps, run);
        let start = neutral::<T>(const { ReduceFn::ALL[F as usize] }, input.dtype);
        run.pool.run(if rows == 0 { 0 } else { parts }, &|part| {
            let (mut columns, mut totals) = (vec![start; self.from[last]], vec![start; width]);
            for row in part * rows / parts..(part + 1) * rows / parts {
                // First across rows, where neighbours are neighbours; then along the row.
                columns.fill(start);
                for tap in 0..taps {
                    let Some(offset) = self.row(row, tap, &output.sizes) else { continue };
                    let from = memory.address(input).cast::<T>().wrapping_add(offset);
                    for (column, total) in columns.iter_mut().enumerate() {
                        // SAFETY: the row lies in the dense operand.
                        *total = combine::<T, F>(*total, unsafe { (*from.add(column)).widen() });
                    }
                }
                totals.fill(start);
                self.add_row::<T, F>(&columns, &mut totals);
                let to = memory.address(output).cast::<T>().wrapping_add(row * width);
                for (column, &total) in totals.iter().enumerate() {
                    // SAFETY: each row of the result is written by one task.
                    unsafe { *to.add(column) = T::narrow(total) };
                }
            }
        });
    }

    /// Where the input row under a window row begins, unless it is padding.
    fn row(&self, mut row: usize, mut tap: usize, sizes: &[usize]) -> Option<usize> {
        let last = sizes.len() - 1;
        let (mut offset, mut stride) = (0, self.from[last]);
        for axis in (0..last).rev() {
            let (at, within) = (row % sizes[axis], tap % self.window[axis]);
            (row, tap) = (row / sizes[axis], tap / self.window[axis]);
            let position =
                at as i64 * self.strides[axis] + within as i64 * self.dilation[axis] - self.low[axis];
            let position = usize::try_from(position).ok().filter(|&position| position < self.from[axis])?;
            offset += position * stride;
            stride *= self.from[axis];
        }
        Some(offset)
    }

    /// Slides the window along a row.
    fn add_row<T: Reduced, const F: u8>(&self, from: &[T::Total], totals: &mut [T::Total]) {
        let last = self.from.len() - 1;
        let (stride, size) = (self.strides[last], self.from[last] as i64);
        for within in 0..self.window[last] as i64 {
            let shift = within * self.dilation[last] - self.low[last];
            // Columns whose position, column × stride + shift, is inside the row.
            let first = ((-shift).max(0) as u64).div_ceil(stride as u64) as i64;
            let end = (size - shift + stride - 1).div_euclid(stride).clamp(0, totals.len() as i64);
            if first < end {
                let sources = from[(first * stride + shift) as usize..].iter().step_by(stride as usize);
                for (total, &x) in totals[first as usize..end as usize].iter_mut().zip(sources) {
                    *total = combine::<T, F>(*total, x);
                }
            }
        }
    }
}

fn scan<T: Reduced, const F: u8>(reduction: &Reduction, step: &Step, run: &Run) {
    let &Reduction::Scan { length, stride, exclusive, reverse } = reduction else { return };
    let (input, output) = (&step.inputs[0], &step.outputs[0]);
    let lines = output.num_elements().checked_div(length).unwrap_or(0);
    let memory = run.memory;
    let parts = parts(lines, output.num_elements(), run);
    let start = neutral::<T>(const { ReduceFn::ALL[F as usize] }, input.dtype);
    run.pool.run(if lines == 0 { 0 } else { parts }, &|part| {
        let from = memory.address(input).cast::<T>();
        let to = memory.address(output).cast::<T>();
        for line in part * lines / parts..(part + 1) * lines / parts {
            let base = line / stride * stride * length + line % stride;
            let mut total = start;
            for step in 0..length {
                let at = base + if reverse { length - 1 - step } else { step } * stride;
                // SAFETY: the position is inside both dense tensors; each line is one task's.
                unsafe {
                    let next = combine::<T, F>(total, (*from.add(at)).widen());
                    *to.add(at) = T::narrow(if exclusive { total } else { next });
                    total = next;
                }
            }
        }
    });
}

//! Steps that move elements: copies of strided views, concatenation, padding, rows by index, counting. Bits
//! are copied. The floor is memory bandwidth: each byte read and written once.

#![allow(unsafe_code)]

use super::Step;
use super::program::{fill, gather};
use crate::exec::Run;
use crate::view::{View, collapse, dense_strides};
use pando_base::DType;

pub enum Movement {
    /// The input's elements, dense.
    Copy,
    Concat {
        axis: usize,
    },
    /// Inputs: data, filler. Which part of the data goes where.
    Pad(Box<(View, View)>),
    /// Inputs: dense data, dense indices; `rows` of `row` elements in each of `outer` blocks.
    Gather {
        outer: usize,
        rows: usize,
        row: usize,
    },
    /// 0, 1, 2, …
    Iota,
}

/// Fewer bytes are not worth a second thread.
const ALONE_BYTES: usize = 24 << 10;

impl Movement {
    pub fn name(&self) -> &'static str {
        match self {
            Movement::Copy => "copy",
            Movement::Concat { .. } => "concat",
            Movement::Pad(_) => "pad",
            Movement::Gather { .. } => "gather",
            Movement::Iota => "iota",
        }
    }
}

pub fn run(movement: &Movement, step: &Step, run: &mut Run) {
    match movement {
        Movement::Copy => copy(&step.inputs[0], &step.outputs[0], run),
        Movement::Concat { axis } => concat(*axis, step, run),
        Movement::Pad(parts) => pad(&parts.0, &parts.1, step, run),
        Movement::Gather { outer, rows, row } => gather_rows(*outer, *rows, *row, step, run),
        Movement::Iota => iota(&step.outputs[0], run),
    }
}

/// Parts to cut `bytes` into.
fn parts(bytes: usize, run: &Run) -> usize {
    if bytes <= ALONE_BYTES { 1 } else { run.pool.threads() * 2 }
}

/// The elements of a view, to a dense one that nobody else uses.
pub fn copy(from: &View, to: &View, run: &Run) {
    if to.num_elements() == 0 {
        return;
    }
    let size = to.dtype.size_bytes() as usize;
    let (sizes, strides) = collapse(&from.sizes, &from.strides);
    let last = sizes.len() - 1;
    if strides[last] != 1
        && let Some(along) = (0..last).rev().find(|&dim| strides[dim] == 1)
    {
        return transpose(from, to, &sizes, &strides, along, run);
    }
    let memory = run.memory;
    let (count, parts) = (to.num_elements(), parts(to.num_bytes(), run));
    let length = count.div_ceil(parts);
    run.pool.run(parts, &|part| {
        let begin = (part * length).min(count);
        let n = length.min(count - begin);
        let target = memory.address(to).wrapping_add(begin * size);
        // SAFETY: positions are inside the views; parts write disjoint positions of the step's output.
        unsafe { gather(memory.address(from), &sizes, &strides, size, begin, n, target) };
    });
}

/// A copy whose source runs along dimension `along` and whose target along the last: in squares, so that
/// both stay in the cache.
fn transpose(from: &View, to: &View, sizes: &[usize], strides: &[isize], along: usize, run: &Run) {
    let last = sizes.len() - 1;
    let targets = dense_strides(sizes);
    let outer: Vec<usize> = (0..last).filter(|&dim| dim != along).collect();
    let outer_count: usize = outer.iter().map(|&dim| sizes[dim]).product();
    const SQUARE: usize = 16;
    let bands = sizes[along].div_ceil(SQUARE);
    let memory = run.memory;
    let size = to.dtype.size_bytes() as usize;
    let tasks = outer_count * bands;
    let parts = parts(to.num_bytes(), run).min(tasks);
    run.pool.run(parts, &|part| {
        for task in part * tasks / parts..(part + 1) * tasks / parts {
            let (mut rest, band) = (task / bands, task % bands);
            let (mut source, mut target) = (0isize, 0isize);
            for &dim in outer.iter().rev() {
                let index = (rest % sizes[dim]) as isize;
                rest /= sizes[dim];
                source += index * strides[dim];
                target += index * targets[dim];
            }
            let first = band * SQUARE;
            let rows = SQUARE.min(sizes[along] - first);
            let source = memory.address(from).wrapping_offset((source + first as isize) * size as isize);
            let target = memory
                .address(to)
                .wrapping_offset((target + first as isize * targets[along]) * size as isize);
            let band =
                Band { rows, columns: sizes[last], from_column: strides[last], to_row: targets[along] };
            // SAFETY: the band lies inside both views; tasks write disjoint bands.
            unsafe {
                match size {
                    1 => band.run::<u8>(source, target),
                    2 => band.run::<u16>(source, target),
                    4 => band.run::<u32>(source, target),
                    _ => band.run::<u64>(source, target),
                }
            }
        }
    });
}

/// Some rows of a transposition; the source's rows and the target's columns are 1 apart.
struct Band {
    rows: usize,
    columns: usize,
    from_column: isize,
    to_row: isize,
}

impl Band {
    /// # Safety
    /// Both addresses have all elements of the band; the target is this call's alone.
    unsafe fn run<T: Copy>(&self, from: *const u8, to: *mut u8) {
        let (from, to) = (from.cast::<T>(), to.cast::<T>());
        for column in 0..self.columns {
            for row in 0..self.rows {
                // SAFETY: as stated.
                unsafe {
                    let value = from.offset(column as isize * self.from_column + row as isize).read();
                    to.offset(row as isize * self.to_row + column as isize).write(value);
                }
            }
        }
    }
}

fn concat(axis: usize, step: &Step, run: &Run) {
    let to = &step.outputs[0];
    let size = to.dtype.size_bytes() as usize;
    let outer: usize = to.sizes[..axis].iter().product();
    let inner: usize = to.sizes[axis + 1..].iter().product();
    let stride = to.sizes[axis] * inner;
    let memory = run.memory;
    // Of operands that lie one after the other, too.
    let pieces = if outer == 1 { run.pool.threads() } else { 1 };
    let parts = parts(to.num_bytes(), run).min(outer * pieces);
    run.pool.run(if to.num_elements() == 0 { 0 } else { parts }, &|part| {
        let mut begin = 0;
        for from in &step.inputs {
            let length = from.sizes[axis] * inner;
            let (sizes, strides) = collapse(&from.sizes, &from.strides);
            for task in part * outer * pieces / parts..(part + 1) * outer * pieces / parts {
                let (block, piece) = (task / pieces, task % pieces);
                let first = piece * length / pieces;
                let count = (piece + 1) * length / pieces - first;
                let target = memory.address(to).wrapping_add((block * stride + begin + first) * size);
                let source = block * length + first;
                if count > 0 {
                    // SAFETY: the piece lies inside the operand; pieces are disjoint parts of the output.
                    unsafe {
                        gather(memory.address(from), &sizes, &strides, size, source, count, target);
                    }
                }
            }
            begin += length;
        }
    });
}

fn pad(from: &View, to: &View, step: &Step, run: &Run) {
    let output = &step.outputs[0];
    let filler = &step.inputs[1];
    let size = output.dtype.size_bytes() as usize;
    // SAFETY: the filler is one element, the output is this step's own; nothing runs beside it.
    unsafe { fill(run.memory.address(filler), run.memory.address(output), size, output.num_elements()) };
    if from.num_elements() == 0 {
        return;
    }
    let target = View { buffer: output.buffer, ..to.clone() };
    let rows: usize = from.sizes[..from.sizes.len().saturating_sub(1)].iter().product();
    for row in 0..rows {
        let (source, target) = (row_of(from, row), row_of(&target, row));
        let (columns, steps) = (source.0, [source.2, target.2]);
        let (source, target) = (source.1 * size as isize, target.1 * size as isize);
        let source = run.memory.address(from).wrapping_offset(source);
        let target =
            run.memory.address(&View { buffer: output.buffer, ..to.clone() }).wrapping_offset(target);
        for column in 0..columns as isize {
            let [a, b] = steps.map(|step| column * step * size as isize);
            // SAFETY: the views hold the elements that the planner found inside both operands.
            unsafe { std::ptr::copy_nonoverlapping(source.offset(a), target.offset(b), size) };
        }
    }
}

/// Columns, offset relative to the view's own, and stride of a row of a view.
fn row_of(view: &View, row: usize) -> (usize, isize, isize) {
    let Some(last) = view.sizes.len().checked_sub(1) else { return (1, 0, 0) };
    let (mut rest, mut offset) = (row, 0);
    for dim in (0..last).rev() {
        offset += (rest % view.sizes[dim]) as isize * view.strides[dim];
        rest /= view.sizes[dim];
    }
    (view.sizes[last], offset, view.strides[last])
}

/// The part of padded data that stays, and where it goes in a dense result of `sizes`.
pub fn pad_views(pad: &pando_graph::Pad, data: &View, output: &View) -> (View, View) {
    let (mut from, mut to) = (data.clone(), output.clone());
    for axis in 0..data.sizes.len() {
        let step = i128::from(pad.interior[axis]) + 1;
        let low = i128::from(pad.low[axis]);
        let inside = |i: &i128| (0..output.sizes[axis] as i128).contains(&(i * step + low));
        // The positions inside are neighbours: the first is at or above -low / step.
        let first = (0i128.max((-low).div_euclid(step))..data.sizes[axis] as i128).find(inside);
        let (first, count) = first.map_or((0, 0), |first| {
            let room = (output.sizes[axis] as i128 - 1 - (first * step + low)).div_euclid(step) + 1;
            (first, room.min(data.sizes[axis] as i128 - first))
        });
        from.offset += first as isize * data.strides[axis];
        from.sizes[axis] = count as usize;
        to.sizes[axis] = count as usize;
        if count > 0 {
            to.offset += (first * step + low) as isize * output.strides[axis];
        }
        to.strides[axis] = if count > 1 { output.strides[axis] * step as isize } else { 0 };
    }
    (from, to)
}

/// Reads an integer of any type.
pub fn read_index(dtype: DType, bytes: &[u8], position: usize) -> i128 {
    let size = dtype.size_bytes() as usize;
    dtype.read_int(&bytes[position * size..][..size])
}

fn gather_rows(outer: usize, rows: usize, row: usize, step: &Step, run: &Run) {
    let [data, indices] = [&step.inputs[0], &step.inputs[1]];
    let output = &step.outputs[0];
    let memory = run.memory;
    // SAFETY: both are dense and other steps do not run beside this one.
    let (from, index_bytes) = unsafe { (memory.bytes(data), memory.bytes(indices)) };
    let count = indices.num_elements();
    let row_bytes = row * data.dtype.size_bytes() as usize;
    // A few long rows are cut.
    let pieces = if outer * count < run.pool.threads() { run.pool.threads() } else { 1 };
    let tasks = outer * count * pieces;
    let parts = parts(output.num_bytes(), run).min(tasks.max(1));
    run.pool.run(parts, &|part| {
        for task in part * tasks / parts..(part + 1) * tasks / parts {
            let (row, piece) = (task / pieces, task % pieces);
            let (block, position) = (row / count, row % count);
            let index = read_index(indices.dtype, index_bytes, position).clamp(0, rows as i128 - 1) as usize;
            let (begin, end) = (piece * row_bytes / pieces, (piece + 1) * row_bytes / pieces);
            let source = &from[(block * rows + index) * row_bytes..][begin..end];
            let target = memory.address(output).wrapping_add(row * row_bytes + begin);
            // SAFETY: each task writes its own part of a row of the output.
            unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) };
        }
    });
}

fn iota(output: &View, run: &Run) {
    let dtype = output.dtype;
    // SAFETY: the output is this step's own; nothing runs beside it.
    let bytes = unsafe { run.memory.bytes_mut(output) };
    for (index, element) in bytes.chunks_exact_mut(dtype.size_bytes() as usize).enumerate() {
        match dtype.is_float() {
            true => dtype.write_f64(index as f64, element),
            false => dtype.write_int(index as i128, element),
        }
    }
}

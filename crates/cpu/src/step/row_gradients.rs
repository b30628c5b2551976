//! Gradients of functions of rows, each row in one go: elementwise work that makes the incoming gradient and that
//! follows is done on the way. Sums over rows are made of parts of so many rows, whatever the number of threads.
//! Results may lie where what was kept does.

#![allow(unsafe_code)]

use super::Step;
use super::program::Program;
use crate::exec::{Memory, Run};
use crate::kernel::row_gradients::{GradientLoop, Row};
use crate::view::View;
use smallvec::SmallVec;
use std::cell::RefCell;

/// Inputs: what was kept, the scale if there is one, the gradient or what the prologue makes it of, and the further
/// inputs of the epilogue. Outputs: rows, then sums over all rows, whose parts the scratch holds.
pub struct RowGradient {
    pub kernel: GradientLoop,
    pub name: &'static str,
    pub rows: usize,
    pub length: usize,
    pub epsilon: f32,
    pub has_scale: bool,
    pub sums: usize,
    pub prologue: Option<Program>,
    /// Elementwise work on the result, its first input.
    pub epilogue: Option<Program>,
}

/// Elements of the rows of a task.
const TASK: usize = 24 << 10;

thread_local! {
    static ROOM: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl RowGradient {
    fn task_rows(&self) -> usize {
        (TASK / self.length.max(1)).max(1)
    }

    /// Room for the parts of the sums.
    pub fn scratch_elements(&self) -> usize {
        self.rows.div_ceil(self.task_rows()) * self.sums * self.length
    }

    fn first_gradient(&self) -> usize {
        1 + usize::from(self.has_scale)
    }

    fn first_extra(&self) -> usize {
        self.first_gradient() + self.prologue.as_ref().map_or(1, |program| program.inputs.len())
    }
}

pub fn run(gradient: &RowGradient, step: &Step, run: &mut Run) {
    if gradient.rows * gradient.length == 0 {
        let bytes = |view: &View| (run.memory.address(view), view.num_bytes());
        for (address, bytes) in step.outputs.iter().map(bytes) {
            // SAFETY: the step's own dense outputs.
            unsafe { address.write_bytes(0, bytes) };
        }
        return;
    }
    let task = Task { gradient, step, memory: run.memory };
    let rows = gradient.task_rows();
    let tasks = gradient.rows.div_ceil(rows);
    run.pool.run(tasks, &|index| {
        ROOM.with_borrow_mut(|room| {
            room.resize(2 * gradient.length, 0.0);
            // SAFETY: tasks have rows, and parts of the sums, of their own.
            unsafe { task.run(index, index * rows..gradient.rows.min((index + 1) * rows), room) }
        });
    });
    let columns = gradient.sums * gradient.length;
    let parts = if columns * tasks <= TASK { 1 } else { run.pool.threads() };
    run.pool.run(if columns == 0 { 0 } else { parts }, &|part| {
        // SAFETY: the parts of the sums are made, and each column is one task's.
        (part * columns / parts..(part + 1) * columns / parts)
            .for_each(|at| unsafe { task.total(at, tasks) });
    });
}

struct Task<'a> {
    gradient: &'a RowGradient,
    step: &'a Step,
    memory: Memory<'a>,
}

impl Task<'_> {
    fn floats(&self, view: &View) -> *mut f32 {
        self.memory.address(view).cast()
    }

    fn part(&self, index: usize) -> *mut f32 {
        let size = self.gradient.sums * self.gradient.length;
        let scratch = self.step.scratch.as_ref();
        scratch.map_or(std::ptr::NonNull::dangling().as_ptr(), |view| {
            self.floats(view).wrapping_add(index * size)
        })
    }

    /// # Safety
    /// The rows and this part of the sums are the caller's alone; the room has two rows.
    unsafe fn run(&self, index: usize, rows: std::ops::Range<usize>, room: &mut [f32]) {
        let &RowGradient { kernel, length, epsilon, has_scale, sums, .. } = self.gradient;
        let (kept_room, gradient_room) = room.split_at_mut(length);
        let (kept, result) = (self.floats(&self.step.inputs[0]), self.floats(&self.step.outputs[0]));
        // SAFETY: as stated; inputs are dense, the level is one the processor has.
        unsafe {
            let sums = std::slice::from_raw_parts_mut(self.part(index), sums * length);
            sums.fill(0.0);
            let scale: &[f32] = match has_scale {
                true => std::slice::from_raw_parts(self.floats(&self.step.inputs[1]), length),
                false => &[],
            };
            for row in rows {
                let at = row * length;
                let mut x = std::slice::from_raw_parts(kept.add(at), length);
                if kept == result {
                    kept_room.copy_from_slice(x);
                    x = kept_room;
                }
                let result = std::slice::from_raw_parts_mut(result.add(at), length);
                let gradient = self.incoming(at, gradient_room);
                kernel(Row { kept: x, scale, gradient, result, sums: &mut *sums, epsilon });
                self.epilogue(at);
            }
        }
    }

    /// A row of the gradient of the function's result.
    ///
    /// # Safety
    /// The room has a row; the row that begins at `at` exists.
    unsafe fn incoming<'r>(&self, at: usize, room: &'r mut [f32]) -> &'r [f32] {
        let first = self.gradient.first_gradient();
        let Some(program) = &self.gradient.prologue else {
            // SAFETY: the gradient is dense.
            return unsafe {
                std::slice::from_raw_parts(self.floats(&self.step.inputs[first]).add(at), room.len())
            };
        };
        let views = &self.step.inputs[first..self.gradient.first_extra()];
        let inputs: SmallVec<[*const u8; 8]> =
            views.iter().map(|view| self.memory.address(view).cast_const()).collect();
        let output = room.as_mut_ptr().cast::<u8>().wrapping_sub(at * 4);
        // SAFETY: the planner made the program for these inputs.
        unsafe { program.run(&inputs, output, at, room.len()) };
        room
    }

    /// # Safety
    /// The row that begins at `at` is made, and the caller's.
    unsafe fn epilogue(&self, at: usize) {
        let Some(program) = &self.gradient.epilogue else { return };
        let output = self.memory.address(&self.step.outputs[0]);
        let mut inputs: SmallVec<[*const u8; 8]> = SmallVec::from_elem(output.cast_const(), 1);
        let extras = &self.step.inputs[self.gradient.first_extra()..];
        inputs.extend(extras.iter().map(|view| self.memory.address(view).cast_const()));
        // SAFETY: the planner made the program for these inputs; the first one is the output.
        unsafe { program.run(&inputs, output, at, self.gradient.length) };
    }

    /// Adds up one column of the parts.
    ///
    /// # Safety
    /// All `parts` are made, and the column of the outputs is the caller's.
    unsafe fn total(&self, column: usize, parts: usize) {
        let length = self.gradient.length;
        // SAFETY: as stated.
        unsafe {
            let sum: f64 = (0..parts).map(|part| f64::from(*self.part(part).add(column))).sum();
            let output = &self.step.outputs[1 + column / length];
            *self.floats(output).add(column % length) = sum as f32;
        }
    }
}

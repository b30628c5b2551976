//! What happens to a block of results before it leaves the cache: gaps are closed, the epilogue runs.

#![allow(unsafe_code)]

use super::{Block, Gemm, LeftSide, Right, RightSide, Rooms, room, run_block};
use crate::exec::Memory;
use crate::kernel::gemm::prefetch;
use crate::step::program::Runs;
use crate::view::View;
use smallvec::SmallVec;

/// Where the results of a product go.
pub struct Results<'a> {
    pub gemm: &'a Gemm,
    pub memory: Memory<'a>,
    pub output: &'a View,
    /// What the epilogue reads besides the product.
    pub extras: &'a [View],
}

impl Results<'_> {
    /// Computes a block of results.
    ///
    /// # Safety
    /// The sides lie in memory, the block's results are the caller's alone, and the level is one the processor
    /// has.
    pub unsafe fn make(&self, block: &Block, sides: (&LeftSide, &RightSide), rooms: &mut Rooms) {
        let gemm = self.gemm;
        if gemm.epilogue.is_none() && block.wide.1 == block.columns.1 {
            let stride = gemm.target.as_ref().map_or(gemm.n, |target| target.row as usize);
            let c = self.address(block.batch, block.rows.0, block.columns.0).cast();
            // SAFETY: passed on.
            return unsafe { run_block(gemm, block, sides, rooms, c, stride) };
        }
        let count = block.rows.1 * block.wide.1;
        let c = room(&mut rooms.results, count * (1 + usize::from(gemm.integers)));
        // SAFETY: c has the block's rows and columns and is ours; totals of integers, which are i32 and have the
        // size of f32, follow their sums.
        unsafe {
            run_block(gemm, block, sides, rooms, c, block.wide.1);
            self.finish(block, if gemm.integers { c.add(count) } else { c });
        }
    }

    /// Asks for the memory of a block's results, some time before they are made.
    pub fn prefetch(&self, block: &Block) {
        for row in block.rows.0..block.rows.0 + block.rows.1 {
            let address = self.address(block.batch, row, block.columns.0);
            prefetch(address.cast_const(), block.columns.1 * self.gemm.output_bytes());
        }
    }

    /// The address of a result.
    fn address(&self, batch: usize, row: usize, column: usize) -> *mut u8 {
        let gemm = self.gemm;
        let position = match &gemm.target {
            Some(target) => target.offset(batch) + row as isize * target.row,
            None => ((batch * gemm.m + row) * gemm.n) as isize,
        };
        let bytes = (position + column as isize) * gemm.output_bytes() as isize;
        self.memory.address(self.output).wrapping_offset(bytes)
    }

    /// Closes the gaps of a block of results, and runs the epilogue from it into the output.
    ///
    /// # Safety
    /// `c` holds the block, gaps included.
    unsafe fn finish(&self, block: &Block, c: *mut f32) {
        let (rows, wide, columns) = (block.rows.1, block.wide.1, block.columns.1);
        if wide != columns {
            // SAFETY: runs move towards the front, in order: none is overwritten before it has moved.
            unsafe { self.close_gaps(block, c) };
        }
        let gemm = self.gemm;
        let Some(epilogue) = &gemm.epilogue else {
            for row in 0..rows {
                let to = self.address(block.batch, block.rows.0 + row, block.columns.0);
                // SAFETY: a row of the block and its place in the output, which is this task's alone.
                unsafe { std::ptr::copy_nonoverlapping(c.add(row * columns), to.cast::<f32>(), columns) };
            }
            return;
        };
        let mut inputs: SmallVec<[*const u8; 8]> = SmallVec::from_elem(c.cast::<u8>().cast_const(), 1);
        inputs.extend(self.extras.iter().map(|view| self.memory.address(view).cast_const()));
        let begin = (block.batch * gemm.m + block.rows.0) * gemm.n + block.columns.0;
        inputs[0] = c.cast::<u8>().wrapping_sub(begin * 4);
        let output = self.address(block.batch, block.rows.0, block.columns.0);
        let output = output.wrapping_sub(begin * epilogue.output_bytes);
        // Rows that follow each other in the output are one run.
        let whole = columns == gemm.n && gemm.target.is_none();
        let (count, length) = if whole { (1, rows * columns) } else { (rows, columns) };
        let row = gemm.target.as_ref().map_or(gemm.n as isize, |target| target.row);
        let runs = Runs {
            begin,
            length,
            count,
            distance: gemm.n,
            input_shift: (length as isize - gemm.n as isize) * 4,
            output_shift: (row - gemm.n as isize) * epilogue.output_bytes as isize,
        };
        // SAFETY: the program was made for these inputs; position `begin` of the first input and of the
        // output is the first run's first element. Positions are this task's alone.
        unsafe { epilogue.run_all(&inputs, output, &runs) };
    }

    /// # Safety
    /// As [`Results::finish`].
    unsafe fn close_gaps(&self, block: &Block, c: *mut f32) {
        let Right::Windows(windows) = &self.gemm.right else { return };
        let length = windows.run_length;
        let first = block.columns.0 / length;
        let runs = &windows.runs[first..first + block.columns.1 / length];
        for row in 0..block.rows.1 {
            for (index, run) in runs.iter().enumerate() {
                // SAFETY: both lie in the block; the target never lies behind the source.
                unsafe {
                    let from = c.add(row * block.wide.1 + run - runs[0]);
                    std::ptr::copy(from, c.add(row * block.columns.1 + index * length), length);
                }
            }
        }
    }
}

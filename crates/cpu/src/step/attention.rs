//! Attention in one pass: softmax(q · k, and elementwise work around it) · v. A task packs both right sides for some rows of
//! one matrix of the batch, then computes the scores of few rows at a time, their softmax, and the rows' results: scores
//! and weights stay in the L1 cache. The parts are those of separate steps, and so are the bits; but where the products are
//! of bf16 (at medium precision), which products of two operands that change are nowhere else.
//!
//! The floor is that of the two products; the softmax adds an exponential per score. On a Zen 4 core, 128 rows and keys and
//! 12 heads of 64 (BERT-base) take 0.6 ms with products of bf16, of which the products alone need 0.22, and 0.8 ms with
//! those of f32, which need 0.43: the rest is softmax (0.09), the elementwise work around it (0.19) and packing (0.06).

#![allow(unsafe_code)]

use super::Step;
use super::gemm::{Block, Gemm, LeftSide, Results, RightSide, Rooms, room, run_block, with_rooms};
use super::program::Program;
use super::rows::Rows;
use crate::exec::{Memory, Run};
use crate::kernel::gemm::{Source, Word, pack_pairs, pack_panels, pairs_room, split_rows};
use crate::view::View;
use pando_base::DType;
use smallvec::SmallVec;

/// Inputs: q, k, v, then the further inputs of the epilogue of `scores`, of `weights`, and of the epilogue of
/// `mix`.
pub struct Attention {
    /// `[batch, rows, keys]`.
    pub scores: Gemm,
    pub softmax: Rows,
    /// Elementwise work on the softmax's result, its first input.
    pub weights: Option<Program>,
    /// Its left side is the weights.
    pub mix: Gemm,
}

/// Bytes of scores at a time: with as many weights they fill an L1 cache of 32 KiB.
const SCORES_BYTES: usize = 16 << 10;

struct Task<'a> {
    attention: &'a Attention,
    step: &'a Step,
    memory: Memory<'a>,
}

pub fn run(attention: &Attention, step: &Step, run: &mut Run) {
    let scores = &attention.scores;
    if scores.batch * scores.m * attention.mix.n == 0 {
        return;
    }
    let wanted = if run.pool.threads() == 1 { 1 } else { (run.pool.threads() * 4).div_ceil(scores.batch) };
    let blocks = split_rows(scores.m, scores.m.div_ceil(wanted));
    let task = Task { attention, step, memory: run.memory };
    run.pool.run(scores.batch * blocks.tiles, &|index| {
        let (batch, block) = (index / blocks.tiles, index % blocks.tiles);
        with_rooms(|rooms| task.run(batch, (blocks.begin(block), blocks.height(block)), rooms));
    });
}

impl Task<'_> {
    /// The views from the position on that an epilogue reads besides its first input.
    fn extras(&self, part: usize) -> &[View] {
        let count =
            |program: &Option<Program>| program.as_ref().map_or(0, |program| program.inputs.len() - 1);
        let Attention { scores, weights, .. } = self.attention;
        let first = 3 + count(&scores.epilogue);
        let second = first + count(weights);
        match part {
            0 => &self.step.inputs[3..first],
            1 => &self.step.inputs[first..second],
            _ => &self.step.inputs[second..],
        }
    }

    fn run(&self, batch: usize, (begin, count): (usize, usize), rooms: &mut Rooms) {
        let Attention { scores, .. } = self.attention;
        let few = (SCORES_BYTES / (scores.n * 4).max(1) / scores.tiles.rows).max(1) * scores.tiles.rows;
        // SAFETY: the sides lie in memory; rows of the output are this task's.
        unsafe {
            let left = LeftSide::of(scores, self.memory, &self.step.inputs[0], batch);
            let rights = [0, 1].map(|part| self.right(part, batch, count, rooms));
            let parts = split_rows(count, few);
            for part in 0..parts.tiles {
                self.few_rows(
                    batch,
                    (begin + parts.begin(part), parts.height(part)),
                    (&left, &rights),
                    rooms,
                );
            }
        }
    }

    /// # Safety
    /// The sides lie in memory; the output's rows are the caller's alone.
    unsafe fn few_rows(
        &self,
        batch: usize,
        rows: (usize, usize),
        (left, rights): (&LeftSide, &[RightSide; 2]),
        rooms: &mut Rooms,
    ) {
        let Attention { scores, mix, .. } = self.attention;
        let elements = rows.1 * scores.n;
        let product = room(&mut rooms.scores, elements);
        let weights = room(&mut rooms.weights, elements);
        let (output, extras) = (&self.step.outputs[0], self.extras(2));
        let results = Results { gemm: mix, memory: self.memory, output, extras };
        let made = Block::of_rows(mix, batch, rows);
        results.prefetch(&made);
        // SAFETY: sides lie in memory, the rooms are large enough and ours, rows of the output the caller's.
        unsafe {
            let block = Block::of_rows(scores, batch, rows);
            run_block(scores, &block, (left, &rights[0]), rooms, product, scores.n);
            let begin = (batch * scores.m + rows.0) * scores.n;
            self.elementwise(&scores.epilogue, 0, product, begin, elements);
            self.softmax(product, weights, rows.1);
            self.elementwise(&self.attention.weights, 1, weights, begin, elements);
            let left = Source {
                address: weights.cast::<u8>().cast_const().wrapping_sub(rows.0 * scores.n * 4),
                dtype: DType::F32,
                row: scores.n as isize,
                column: 1,
            };
            results.make(&made, (&LeftSide::Strided(left), &rights[1]), rooms);
        }
    }

    /// A right side for so many rows: packed, unless they are too few to make up for it.
    ///
    /// # Safety
    /// The side lies in memory.
    unsafe fn right(&self, part: usize, batch: usize, rows: usize, rooms: &mut Rooms) -> RightSide<'_> {
        let gemm = if part == 0 { &self.attention.scores } else { &self.attention.mix };
        let (view, tiles) = (&self.step.inputs[1 + part], gemm.tiles);
        let side = RightSide::of(gemm, self.memory, view, batch, std::ptr::null_mut());
        let RightSide::Strided(source) = side else { return side };
        if tiles.word == Word::F32 && rows <= 2 * tiles.rows {
            return side;
        }
        let panels = gemm.n.div_ceil(tiles.columns) * tiles.panel_words(gemm.k);
        let to = room(&mut rooms.sides[part], panels);
        // SAFETY: the side, and rooms of ours.
        unsafe {
            if tiles.word == Word::F32 {
                pack_panels(source, tiles, [gemm.k, gemm.n], to);
            } else {
                let spare = room(&mut rooms.tile, pairs_room(tiles, gemm.k));
                pack_pairs(source, tiles, [gemm.k, gemm.n], to, spare);
            }
        }
        RightSide::Packed(to)
    }

    /// Runs a program in place.
    ///
    /// # Safety
    /// `at` has `count` elements, which are the caller's alone: those at positions from `begin` on.
    unsafe fn elementwise(
        &self,
        program: &Option<Program>,
        part: usize,
        at: *mut f32,
        begin: usize,
        count: usize,
    ) {
        let Some(program) = program else { return };
        let first = at.cast::<u8>().wrapping_sub(begin * 4);
        let mut inputs: SmallVec<[*const u8; 8]> = SmallVec::from_elem(first.cast_const(), 1);
        inputs.extend(self.extras(part).iter().map(|view| self.memory.address(view).cast_const()));
        // SAFETY: the planner made the program for these inputs; the first one is the output.
        unsafe { program.run(&inputs, first, begin, count) };
    }

    /// # Safety
    /// Both have so many rows of scores; they do not overlap.
    unsafe fn softmax(&self, from: *const f32, to: *mut f32, rows: usize) {
        let Rows { kernel, length, epsilon, .. } = self.attention.softmax;
        for row in 0..rows {
            // SAFETY: as stated; the level is one the processor has.
            unsafe {
                let x = std::slice::from_raw_parts(from.add(row * length), length);
                let y = std::slice::from_raw_parts_mut(to.add(row * length), length);
                kernel(x, &[], &[], y, epsilon);
            }
        }
    }
}

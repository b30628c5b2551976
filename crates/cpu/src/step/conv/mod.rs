//! Direct convolutions over blocks of channels (`kernel/conv.rs`). A task takes some rows of an image; its
//! input is used where it lies, or copied once into padded planes that stay in the L2 cache (`stage.rs`); its
//! output blocks are done one or two at a time, each with all that follows ([`Conv::finish`], then
//! [`Conv::epilogue`] while the results are in the L1 cache).
//!
//! The floor is the multiply-add units; kernels reach 92 to 99 % of them (ResNet-50's layers on one core of Zen
//! 4). Copying costs a load and a store per input element. Sums do not depend on how rows are cut.

#![allow(unsafe_code)]

pub mod finish;
pub mod interleave;
pub mod kernel_gradient;
pub mod norm;
pub mod pack;
pub mod pool;
pub mod pool_gradient;
pub mod shuffle;
pub mod stage;
pub mod unit;
pub mod winograd;

use super::Step;
use super::program::Program;
use crate::allocation::Line;
use crate::exec::{Memory, Run};
use crate::kernel::conv::{Tap, Tile, TileLoop, Tiles};
use crate::kernel::finish::Finish;
use crate::kernel::gemm::split_rows;
use crate::kernel::lanes::LANES;
use finish::FinishSpec;
use pack::Piece;
use stage::Stage;
use std::cell::RefCell;

/// Which kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Blocked,
    /// Planes of pixels.
    Plain,
    /// Blocks, each output channel of its own input channel.
    Depthwise,
}

pub struct Conv {
    pub images: usize,
    /// Rows and columns of the result; one row where rows need not be told apart.
    pub rows: usize,
    pub columns: usize,
    /// Output blocks.
    pub blocks: usize,
    pub input: Input,
    pub stage: Stage,
    pub pieces: Vec<Piece>,
    /// Of each group.
    pub taps: Vec<Vec<Tap>>,
    pub tiles: &'static Tiles,
    /// Of the sums as the convolution is defined.
    pub multiply_adds: u64,
    pub finish: FinishSpec,
    /// Its first input is the result, which it overwrites; the others follow the finish's operands.
    pub epilogue: Option<Program>,
}

/// Bytes of input that a task goes over once per piece: a quarter of a usual L2 cache.
const TASK_BYTES: usize = 256 << 10;
/// Pixels between runs of the epilogue: with two blocks 8 KiB of results.
const EPILOGUE_PIXELS: usize = 64;

thread_local! {
    static STAGED: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// How rows become tasks: `units` are rows, or tiles where there is one row only.
#[derive(Clone, Copy)]
struct Cut {
    units: usize,
    /// Most units of a task.
    per_task: usize,
    /// Parts of the pieces.
    pieces: usize,
}

impl Conv {
    pub fn name(&self) -> &'static str {
        match self.input {
            Input::Depthwise => "depthwise",
            _ if self.taps.iter().all(|taps| taps.len() == self.stage.channels) => "conv 1x1",
            _ => "conv",
        }
    }

    /// Most rows of a task, for a stage that holds `row_bytes` per row.
    pub fn rows_per_task(rows: usize, row_bytes: usize) -> usize {
        let most = (TASK_BYTES / row_bytes.max(1)).clamp(1, rows.max(1));
        rows.div_ceil(rows.div_ceil(most).max(1)).max(1)
    }

    fn cut(&self, threads: usize) -> Cut {
        let tiles = split_rows(self.columns, self.tiles.pixels).tiles;
        let (units, per_task) = match (self.rows, self.stage.copies) {
            (1, false) => {
                let tile_bytes = self.tiles.pixels * self.stage.pixel_bytes();
                (tiles, Conv::rows_per_task(tiles, tile_bytes))
            }
            _ => (self.rows, self.stage.task_rows),
        };
        let tasks = self.images * units.div_ceil(per_task);
        // Pieces that share a block belong to one task.
        let separate = self.pieces.iter().all(|piece| piece.mask == u16::MAX);
        let wanted = if threads == 1 { 1 } else { (threads * 4).div_ceil(tasks.max(1)) };
        let own = if self.input == Input::Depthwise { self.pieces.len() } else { wanted };
        let pieces = if separate { own.clamp(1, self.pieces.len().max(1)) } else { 1 };
        Cut { units, per_task, pieces }
    }
}

pub fn run(conv: &Conv, step: &Step, run: &mut Run) {
    if step.outputs[0].num_elements() == 0 {
        return;
    }
    let cut = conv.cut(run.pool.threads());
    let parts = cut.units.div_ceil(cut.per_task);
    let memory = run.memory;
    run.pool.run(conv.images * parts * cut.pieces, &|index| {
        let (rest, piece) = (index / cut.pieces, index % cut.pieces);
        let count = conv.pieces.len();
        let task = Task {
            conv,
            step,
            memory,
            image: rest / parts,
            pieces: &conv.pieces[piece * count / cut.pieces..(piece + 1) * count / cut.pieces],
        };
        let first = rest % parts * cut.per_task;
        let units = (first, cut.per_task.min(cut.units - first));
        STAGED.with_borrow_mut(|room| task.run(units, room));
    });
}

struct Task<'a> {
    conv: &'a Conv,
    step: &'a Step,
    memory: Memory<'a>,
    image: usize,
    pieces: &'a [Piece],
}

/// Pixels of a task: rows from `first` on, and of each row a run of columns.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub first: usize,
    pub rows: usize,
    pub column: usize,
    pub columns: usize,
}

impl Task<'_> {
    fn run(&self, (first, count): (usize, usize), room: &mut Vec<Line>) {
        let (conv, stage) = (self.conv, &self.conv.stage);
        let x = self.memory.address(&self.step.inputs[1]).cast::<f32>().cast_const();
        let x = x.wrapping_add(self.image * stage.image_elements());
        let split = split_rows(conv.columns, conv.tiles.pixels);
        if !stage.copies {
            let area = if conv.rows == 1 {
                let begin = split.begin(first);
                Area { first: 0, rows: 1, column: begin, columns: split.begin(first + count) - begin }
            } else {
                Area { first, rows: count, column: 0, columns: conv.columns }
            };
            for piece in self.pieces {
                let channel = if conv.input == Input::Depthwise { piece.block } else { 0 };
                self.piece(piece, area, x.wrapping_add(channel * stage.channel_elements()));
            }
            return;
        }
        let area = Area { first, rows: count, column: 0, columns: conv.columns };
        let per_piece = conv.input == Input::Depthwise;
        let channels = if per_piece { 1 } else { stage.channels };
        let lines = (channels * stage.channel_elements() * 4).div_ceil(64);
        if room.len() < lines {
            room.resize(lines, Line::ZERO);
        }
        let to = room.as_mut_ptr().cast::<f32>();
        // The tasks' rows begin at the stage's first; `piece` counts from the image's.
        let base = to.cast_const().wrapping_sub(first * stage.row_elements());
        if !per_piece {
            // SAFETY: the room holds all channels' planes; the image lies in the operand.
            unsafe { stage.fill(x, 0..channels, first, to) };
        }
        for piece in self.pieces {
            if per_piece {
                // SAFETY: as above, for one channel block.
                unsafe { stage.fill(x, piece.block..piece.block + 1, first, to) };
            }
            self.piece(piece, area, base);
        }
    }

    fn kernel(&self, piece: &Piece, pixels: usize) -> TileLoop {
        let tiles = self.conv.tiles;
        match self.conv.input {
            Input::Blocked => tiles.blocked[piece.blocks - 1][pixels - 1],
            Input::Plain => tiles.plain[piece.blocks - 1][pixels - 1],
            Input::Depthwise => tiles.depthwise[pixels - 1],
        }
    }

    /// One or two output blocks of the area. `x` is where the taps of the image's first pixel begin.
    fn piece(&self, piece: &Piece, area: Area, x: *const f32) {
        let (conv, stage) = (self.conv, &self.conv.stage);
        let split = split_rows(area.columns, conv.tiles.pixels);
        let pixels = conv.rows * conv.columns;
        let weights = self.memory.address(&self.step.inputs[0]).cast::<f32>().cast_const();
        let output = self.memory.address(&self.step.outputs[0]).cast::<f32>();
        let block = (self.image * conv.blocks + piece.block) * pixels;
        let (mut done, mut reached) = (area.first * conv.columns + area.column, 0);
        for row in area.first..area.first + area.rows {
            for tile in 0..split.tiles {
                let (column, width) = (area.column + split.begin(tile), split.height(tile));
                let at = (block + row * conv.columns + column) * LANES;
                let x = x.wrapping_add(row * stage.row_elements() + column * stage.lanes);
                let call = Tile {
                    x,
                    taps: &conv.taps[piece.group],
                    weights: weights.wrapping_add(piece.weights),
                    y: output.wrapping_add(at),
                    block: pixels * LANES,
                    mask: piece.mask,
                    finish: self.finish(piece, at),
                };
                // SAFETY: taps and stage were made for each other (`plan/blocked.rs`): those of all pixels of
                // the area lie in the operand or the room. The results are this task's alone, the level is
                // one the processor has.
                unsafe { self.kernel(piece, width)(&call) };
                reached = row * conv.columns + column + width;
                if reached - done >= EPILOGUE_PIXELS {
                    self.epilogue(piece, block, done, reached);
                    done = reached;
                }
            }
        }
        self.epilogue(piece, block, done, reached.max(done));
    }

    /// Whether a later piece writes other lanes of the same block: what follows waits for it.
    fn shares_with_later(&self, piece: &Piece) -> bool {
        self.pieces.iter().any(|later| later.block == piece.block && later.group > piece.group)
    }

    fn finish(&self, piece: &Piece, at: usize) -> Finish {
        self.conv.finish.finish(self.step, self.memory, self.image, piece.block, at)
    }

    /// What follows for pixels `begin..end` of the blocks from `block` pixels on.
    fn epilogue(&self, piece: &Piece, block: usize, begin: usize, end: usize) {
        let nothing = self.conv.epilogue.is_none() && self.conv.finish.activation.is_none();
        if nothing || self.shares_with_later(piece) {
            return;
        }
        for index in 0..piece.blocks {
            let block = block + index * self.conv.rows * self.conv.columns;
            let positions = (block + begin) * LANES..(block + end) * LANES;
            let (program, first) = (self.conv.epilogue.as_ref(), 2 + self.conv.finish.operands());
            self.conv.finish.run_after(program, self.step, self.memory, positions, first);
        }
    }
}

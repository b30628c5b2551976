//! Convolutions over blocks of channels on a unit for tiles (`kernel/gemm/amx`): a product of matrices whose rows are
//! pixels and whose steps are channels, 32 at a time, of each of the window's elements in turn. A task takes some rows of an
//! image, or some small images. Its inputs become words once (bf16, in as many parts as the precision asks for), in
//! padded planes where a window or a stride needs them (`stage.rs`); rows of a plane follow each other, so that pixels
//! of neighbouring rows share a tile, with a few in the gaps that nobody wants. Then for two output blocks at a time:
//! products of a pass of steps with all pixels, and at the last pass all that follows.
//!
//! Images with numbers that parts cannot hold are convolved as f32, from the same weights.
//!
//! The floor is the unit's (`kernel/gemm/amx/kernel.rs`): the words of a task (up to 512 KB) and the sums of two
//! blocks are in the L2 cache, those of a pass of weights in L1. Making words costs two loads and some stores per 32
//! inputs, where each is used by all output channels and elements of the window.

#![allow(unsafe_code)]

use super::finish::FinishSpec;
use super::pack::Weights;
use super::stage::Stage;
use crate::allocation::Line;
use crate::exec::{Memory, Run};
use crate::kernel::conv::{self, Tap};
use crate::kernel::finish::{Finish, PassLoop};
use crate::kernel::gemm::{
    CHANNELS, ImageLoop, ImageTile, Source, Tiles, block_words, pack_words, split_rows, unpack_words,
};
use crate::kernel::lanes::LANES;
use crate::pool::Pool;
use crate::step::Step;
use crate::step::gemm::{Shared, room};
use crate::step::program::Program;
use pando_base::DType;
use std::cell::RefCell;
use std::ops::Range;

/// Pixels of a tile, at most.
const PIXELS: usize = 32;
/// Pixels that make up for reading the weights: small images go together.
const ENOUGH_PIXELS: usize = 256;
/// Bytes of words of images that do: half of the L2 cache of a core with such a unit.
const IMAGES_BYTES: usize = 1 << 20;

pub struct UnitConv {
    pub images: usize,
    /// Input and output channels.
    pub inputs: usize,
    pub outputs: usize,
    /// Height and width of the result.
    pub to: [usize; 2],
    pub stage: Stage,
    /// Where the window's elements are in a plane, in pixels.
    pub window: Vec<usize>,
    /// Of the words.
    pub tiles: &'static Tiles,
    pub image_loop: ImageLoop,
    /// For images as f32.
    pub plain: &'static conv::Tiles,
    pub pass: PassLoop,
    /// Of the sums as the convolution is defined.
    pub multiply_adds: u64,
    pub finish: FinishSpec,
    /// As of [`super::Conv`].
    pub epilogue: Option<Program>,
}

/// How weights `[outputs, inputs, height, width]` are packed: `[panel][element][32 inputs][part][word][32 outputs]`.
#[derive(Clone)]
pub struct Packing {
    pub outputs: usize,
    pub inputs: usize,
    /// Height × width.
    pub window: usize,
    pub tiles: &'static Tiles,
}

impl Packing {
    fn granules(&self) -> usize {
        self.window * self.inputs.div_ceil(CHANNELS)
    }

    fn panel(&self) -> usize {
        self.granules() * self.tiles.panel_words(CHANNELS)
    }

    pub fn elements(&self) -> usize {
        self.outputs.div_ceil(self.tiles.columns) * self.panel()
    }

    pub fn key(&self) -> [usize; 5] {
        [usize::MAX, self.outputs, self.inputs, self.window, self.tiles.parts]
    }

    /// # Safety
    /// The weights lie in memory; `to` has room for [`Packing::elements`].
    pub unsafe fn run(&self, from: Weights, to: Shared, pool: &Pool) {
        let tiles = self.tiles;
        pool.run(self.outputs.div_ceil(tiles.columns), &|panel| {
            let output = panel * tiles.columns;
            let mut to = to.address().wrapping_add(panel * self.panel());
            for tap in 0..self.window {
                for input in (0..self.inputs).step_by(CHANNELS) {
                    let (row, column) = from.channel_strides();
                    let address = from.at(output, input, tap).cast();
                    let source = Source { address, dtype: DType::F32, row, column };
                    let (k, columns) =
                        (CHANNELS.min(self.inputs - input), tiles.columns.min(self.outputs - output));
                    // SAFETY: inputs and outputs of the weights; a granule's words.
                    unsafe { pack_words(source, tiles, k, columns, to) };
                    to = to.wrapping_add(tiles.panel_words(CHANNELS));
                }
            }
        });
    }
}

#[derive(Default)]
struct Rooms {
    /// Planes of f32.
    planes: Vec<Line>,
    words: Vec<Line>,
    /// Sums of two output blocks.
    sums: Vec<Line>,
    /// Weights that have become f32 again.
    weights: Vec<Line>,
}

thread_local! {
    static ROOMS: RefCell<Rooms> = RefCell::default();
}

/// How the work is cut into tasks; does not depend on threads but for `shares`.
struct Cut {
    rows: usize,
    row_parts: usize,
    images: usize,
    image_parts: usize,
    /// Parts of the panels.
    shares: usize,
}

impl UnitConv {
    fn panels(&self) -> usize {
        self.outputs.div_ceil(self.tiles.columns)
    }

    /// Granules of channels.
    fn depth(&self) -> usize {
        self.inputs.div_ceil(CHANNELS)
    }

    /// Pixels from the first to the last of so many rows of results, gaps included.
    fn pixels(&self, rows: usize) -> usize {
        (rows - 1) * self.stage.plane[1] + self.to[1]
    }

    /// Pixels of a plane that the results of so many rows read.
    fn span(&self, rows: usize) -> usize {
        match self.stage.copies {
            true => self.stage.channel_elements() / self.stage.lanes,
            false => self.pixels(rows) + self.window.last().copied().unwrap_or(0),
        }
    }

    fn cut(&self, threads: usize) -> Cut {
        let rows = self.stage.task_rows;
        let row_parts = self.to[0].div_ceil(rows);
        let bytes = self.span(rows) * self.inputs * 2 * self.tiles.parts;
        let together = (ENOUGH_PIXELS / self.pixels(rows)).min(IMAGES_BYTES / bytes.max(1));
        let images = if row_parts > 1 { 1 } else { together.clamp(1, self.images.max(1)) };
        let image_parts = self.images.div_ceil(images);
        let wanted = if threads == 1 { 1 } else { (threads * 4).div_ceil(image_parts * row_parts) };
        Cut { rows, row_parts, images, image_parts, shares: wanted.clamp(1, self.panels()) }
    }
}

pub fn run(conv: &UnitConv, step: &Step, run: &mut Run) {
    if step.outputs[0].num_elements() == 0 {
        return;
    }
    let (cut, panels, memory) = (conv.cut(run.pool.threads()), conv.panels(), run.memory);
    run.pool.run(cut.image_parts * cut.row_parts * cut.shares, &|index| {
        let (rest, share) = (index / cut.shares, index % cut.shares);
        let (image, row) = (rest / cut.row_parts * cut.images, rest % cut.row_parts * cut.rows);
        let task = Task {
            conv,
            step,
            memory,
            images: image..(image + cut.images).min(conv.images),
            rows: row..(row + cut.rows).min(conv.to[0]),
            padded: conv.span(cut.rows) + PIXELS,
            panels: share * panels / cut.shares..(share + 1) * panels / cut.shares,
        };
        ROOMS.with_borrow_mut(|rooms| task.run(rooms));
    });
}

struct Task<'a> {
    conv: &'a UnitConv,
    step: &'a Step,
    memory: Memory<'a>,
    images: Range<usize>,
    rows: Range<usize>,
    /// Pixels of a granule of channels in the words, as many as a tile reaches beyond the last among them.
    padded: usize,
    panels: Range<usize>,
}

impl Task<'_> {
    fn run(&self, rooms: &mut Rooms) {
        let (conv, depth) = (self.conv, self.conv.depth());
        let granules = (0..conv.window.len() * depth).map(|index| {
            let (place, depth) = (conv.window[index / depth], index % depth);
            ((depth * self.padded + place) * CHANNELS / 2) as u32
        });
        let granules: smallvec::SmallVec<[u32; 64]> = granules.collect();
        let words = room(&mut rooms.words, self.images.len() * self.image_words());
        // Images that have become words.
        let mut tame: smallvec::SmallVec<[bool; 32]> = smallvec::SmallVec::new();
        for index in 0..self.images.len() {
            let to = words.wrapping_add(index * self.image_words());
            tame.push(self.make_words(self.images.start + index, to, &mut rooms.planes));
        }
        let sums = room(&mut rooms.sums, self.images.len() * self.image_sums());
        let session = conv.tiles.begin();
        for panel in self.panels.clone() {
            self.panel(panel, &granules, &tame, words, sums);
        }
        drop(session);
        for (index, _) in tame.iter().enumerate().filter(|(_, tame)| !**tame) {
            for panel in self.panels.clone() {
                self.as_f32(self.images.start + index, panel, rooms);
            }
        }
    }

    /// Words of an image in all parts.
    fn image_words(&self) -> usize {
        self.conv.tiles.parts * self.part_words()
    }

    fn part_words(&self) -> usize {
        self.conv.depth() * self.padded * CHANNELS / 2
    }

    /// Pixels of the task's results in an image, gaps included, in whole tiles.
    fn block_pixels(&self) -> usize {
        self.conv.pixels(self.rows.len()).next_multiple_of(PIXELS)
    }

    /// Sums of two blocks of an image.
    fn image_sums(&self) -> usize {
        2 * self.block_pixels() * LANES
    }

    /// The planes of an image's blocks of channels from `block` on, and the distance of a block from the next.
    fn planes(&self, image: usize, blocks: Range<usize>, room_for: &mut Vec<Line>) -> (*const f32, usize) {
        let stage = &self.conv.stage;
        let x = self.memory.address(&self.step.inputs[1]).cast::<f32>().cast_const();
        let x = x.wrapping_add(image * stage.image_elements());
        let block = stage.channel_elements();
        if !stage.copies {
            let first = self.rows.start * stage.row_elements();
            return (x.wrapping_add(blocks.start * block + first), block);
        }
        let to = room(room_for, blocks.len() * block);
        // SAFETY: the image lies in the operand; the room is ours.
        unsafe { stage.fill(x, blocks, self.rows.start, to) };
        (to.cast_const(), block)
    }

    /// Returns whether the image is tame.
    fn make_words(&self, image: usize, to: *mut f32, room: &mut Vec<Line>) -> bool {
        let (conv, mut tame) = (self.conv, true);
        for depth in 0..conv.depth() {
            let blocks = 2 * depth..(2 * depth + 2).min(conv.stage.channels);
            let (first, block) = self.planes(image, blocks, room);
            let channels = CHANNELS.min(conv.inputs - depth * CHANNELS);
            let to = to.wrapping_add(depth * self.padded * CHANNELS / 2);
            let (parts, distance) = (conv.tiles.parts, self.part_words());
            // SAFETY: planes of the blocks that there are; the granule's words in each part.
            tame &= unsafe {
                block_words(first, block, channels, conv.span(self.rows.len()), parts, to, distance)
            };
        }
        tame
    }

    /// The products of two output blocks with all images, and what follows.
    fn panel(&self, panel: usize, steps: &[u32], tame: &[bool], words: *const f32, sums: *mut f32) {
        let conv = self.conv;
        let granule = conv.tiles.panel_words(CHANNELS);
        let weights = self.memory.address(&self.step.inputs[0]).cast::<f32>().cast_const();
        let weights = weights.wrapping_add(panel * steps.len() * granule);
        let blocks = self.blocks(panel).len();
        let (pass, pixels) = (conv.tiles.pass() / CHANNELS, conv.pixels(self.rows.len()));
        for (begin, steps) in steps.chunks(pass).enumerate().map(|(index, chunk)| (index * pass, chunk)) {
            let last = begin + steps.len() == conv.window.len() * conv.depth();
            for index in (0..self.images.len()).filter(|&index| tame[index]) {
                let sums = sums.wrapping_add(index * self.image_sums());
                let mut done = 0;
                for first in (0..pixels).step_by(PIXELS) {
                    let tile = ImageTile {
                        pixels: PIXELS.min(pixels - first),
                        a: words.wrapping_add(index * self.image_words() + first * CHANNELS / 2),
                        a_part: self.part_words(),
                        steps,
                        b: weights.wrapping_add(begin * granule),
                        c: sums.wrapping_add(first * LANES),
                        c_block: self.block_pixels() * LANES,
                        blocks,
                        add: begin > 0,
                    };
                    // SAFETY: words of the image's pixels at all steps, which reach less than a tile beyond the last;
                    // weights of the pass; sums of ours.
                    unsafe { (conv.image_loop)(&tile) };
                    let ready = self.rows_before(first + tile.pixels);
                    if last && ready > done {
                        self.finish(self.images.start + index, panel, sums, done..ready);
                        done = ready;
                    }
                }
            }
        }
    }

    /// Rows of results, of the task's, that end before a pixel.
    fn rows_before(&self, pixel: usize) -> usize {
        let (row, columns) = (self.conv.stage.plane[1], self.conv.to[1]);
        if pixel < columns { 0 } else { (pixel - columns) / row + 1 }
    }

    fn blocks(&self, panel: usize) -> Range<usize> {
        2 * panel..(2 * panel + 2).min(self.conv.outputs.div_ceil(LANES))
    }

    /// Moves sums of some of the task's rows to the result, with all that follows.
    fn finish(&self, image: usize, panel: usize, sums: *const f32, rows: Range<usize>) {
        let (conv, [height, width]) = (self.conv, self.conv.to);
        let row_pixels = conv.stage.plane[1];
        let output = self.memory.address(&self.step.outputs[0]).cast::<f32>();
        for (index, block) in self.blocks(panel).enumerate() {
            let plane = (image * conv.outputs.div_ceil(LANES) + block) * height * width;
            let first = plane + (self.rows.start + rows.start) * width;
            let from = sums.wrapping_add((index * self.block_pixels() + rows.start * row_pixels) * LANES);
            // Rows without gaps are one.
            let (count, pixels) =
                if row_pixels == width { (1, rows.len() * width) } else { (rows.len(), width) };
            for row in 0..count {
                let at = (first + row * width) * LANES;
                let finish = conv.finish.finish(self.step, self.memory, image, block, at);
                let from = from.wrapping_add(row * row_pixels * LANES);
                // SAFETY: sums of the pixels, and their results, which are this task's alone.
                unsafe { (conv.pass)(from, output.add(at), pixels, &finish) };
            }
            let positions = first * LANES..(first + rows.len() * width) * LANES;
            let (program, operands) = (conv.epilogue.as_ref(), 2 + conv.finish.operands());
            conv.finish.run_after(program, self.step, self.memory, positions, operands);
        }
    }

    /// An image's results of two blocks, as plain convolutions of f32 make them.
    fn as_f32(&self, image: usize, panel: usize, rooms: &mut Rooms) {
        let (conv, depth) = (self.conv, self.conv.depth());
        let (x, block) = self.planes(image, 0..conv.stage.channels, &mut rooms.planes);
        let taps: Vec<Tap> = (0..conv.window.len() * conv.stage.channels)
            .map(|index| {
                let (tap, channel) = (index / conv.stage.channels, index % conv.stage.channels);
                let lanes = LANES.min(conv.inputs - channel * LANES) as u32;
                Tap { offset: (channel * block + conv.window[tap] * LANES) as u32, lanes }
            })
            .collect();
        let steps = conv.window.len() * conv.inputs;
        let granule = conv.tiles.panel_words(CHANNELS);
        let packed = self.memory.address(&self.step.inputs[0]).cast::<f32>().cast_const();
        let packed = packed.wrapping_add(panel * conv.window.len() * depth * granule);
        let weights = room(&mut rooms.weights, 2 * steps * LANES);
        let sums = room(&mut rooms.sums, self.image_sums());
        // SAFETY: the panel's words; room for its numbers.
        unsafe { self.unpack(packed, weights) };
        let pixels = conv.pixels(self.rows.len());
        let split = split_rows(pixels, conv.plain.pixels);
        for index in 0..self.blocks(panel).len() {
            for tile in 0..split.tiles {
                let first = split.begin(tile);
                let call = conv::Tile {
                    x: x.wrapping_add(first * LANES),
                    taps: &taps,
                    weights: weights.wrapping_add(index * steps * LANES),
                    y: sums.wrapping_add((index * self.block_pixels() + first) * LANES),
                    block: 0,
                    mask: u16::MAX,
                    finish: Finish::NONE,
                };
                // SAFETY: the taps of the pixels lie in the planes, and the sums are ours.
                unsafe { conv.plain.blocked[0][split.height(tile) - 1](&call) };
            }
        }
        self.finish(image, panel, sums, 0..self.rows.len());
    }

    /// A panel's words as f32, `[block][element][input][LANES]`.
    ///
    /// # Safety
    /// The panel lies in memory; `to` has room.
    unsafe fn unpack(&self, panel: *const f32, to: *mut f32) {
        let (conv, depth) = (self.conv, self.conv.depth());
        let (words, granule) = (CHANNELS / 2, conv.tiles.panel_words(CHANNELS));
        let mut numbers = [0f32; CHANNELS * CHANNELS];
        for index in 0..conv.window.len() * depth {
            // SAFETY: a granule of the panel.
            unsafe {
                let from = panel.add(index * granule);
                unpack_words(from, conv.tiles, words, words * conv.tiles.columns, numbers.as_mut_ptr());
            }
            let first = index % depth * CHANNELS;
            let step = index / depth * conv.inputs + first;
            for (input, numbers) in numbers.chunks_exact(CHANNELS).enumerate().take(conv.inputs - first) {
                for (block, numbers) in numbers.chunks_exact(LANES).enumerate() {
                    let at = (block * conv.window.len() * conv.inputs + step + input) * LANES;
                    // SAFETY: a step of a block.
                    unsafe { std::ptr::copy_nonoverlapping(numbers.as_ptr(), to.add(at), LANES) };
                }
            }
        }
    }
}

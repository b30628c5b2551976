//! Weights of convolutions in the order kernels read them, and which output blocks a kernel makes at once.

#![allow(unsafe_code)]

use crate::kernel::gemm::{Source, interleave};
use crate::kernel::lanes::LANES;
use crate::pool::Pool;
use crate::step::gemm::Shared;
use crate::view::View;
use pando_base::DType;
use std::ops::Range;

/// Weights `[outputs, inputs of a group, height, width]` in memory, as they lie or reversed and transposed.
#[derive(Clone, Copy)]
pub struct Weights {
    /// Of the first element.
    address: Shared,
    strides: [isize; 4],
    /// Of the window.
    width: usize,
}

impl Weights {
    /// A view of four dimensions at an address.
    pub fn new(address: *mut u8, view: &View) -> Weights {
        let strides = [0, 1, 2, 3].map(|axis| view.strides[axis]);
        Weights { address: Shared(address.cast()), strides, width: view.sizes[3].max(1) }
    }

    /// Distances of inputs and of outputs.
    pub fn channel_strides(&self) -> (isize, isize) {
        (self.strides[1], self.strides[0])
    }

    /// The addresses of the taps, by row and column, of an output and an input.
    pub fn window(&self, output: usize, input: usize) -> impl Fn(usize, usize) -> *const f32 + use<> {
        let (first, [_, _, row, column]) = (self.at(output, input, 0), self.strides);
        move |y, x| first.wrapping_offset(y as isize * row + x as isize * column)
    }

    /// The address of a weight; taps are those of the window in rows.
    pub fn at(&self, output: usize, input: usize, tap: usize) -> *const f32 {
        let index = [output, input, tap / self.width, tap % self.width];
        let offset = index.iter().zip(self.strides).map(|(&index, stride)| index as isize * stride);
        self.address.address().cast_const().wrapping_offset(offset.sum())
    }
}

/// Output blocks made together, of one group of channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub block: usize,
    pub blocks: usize,
    pub group: usize,
    /// Lanes of this group; all of them but where groups share a block.
    pub mask: u16,
    /// Where the weights begin, in elements.
    pub weights: usize,
}

/// How weights `[outputs, inputs of a group, height, width]` are packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Channels in all.
    pub outputs: usize,
    /// Of a group.
    pub inputs: usize,
    pub groups: usize,
    /// Height × width.
    pub window: usize,
    /// Lanes of an input block; 1 for planes.
    pub lanes: usize,
    /// Most blocks of a piece.
    pub blocks: usize,
    pub depthwise: bool,
}

impl Packing {
    /// A group's input channels, cut where blocks begin: block, first lane, lanes.
    pub fn input_blocks(&self, group: usize) -> Vec<(usize, usize, usize)> {
        cut(group * self.inputs..(group + 1) * self.inputs, self.lanes)
    }

    pub fn pieces(&self) -> Vec<Piece> {
        if self.depthwise {
            let taps = self.window * LANES;
            let blocks = 0..self.outputs.div_ceil(LANES);
            let piece = |block| Piece { block, blocks: 1, group: 0, mask: u16::MAX, weights: block * taps };
            return blocks.map(piece).collect();
        }
        let mut pieces: Vec<Piece> = Vec::new();
        let mut weights = 0;
        let steps = self.inputs * self.window;
        let per_group = self.outputs / self.groups.max(1);
        for group in 0..self.groups {
            for (block, first, lanes) in cut(group * per_group..(group + 1) * per_group, LANES) {
                // The last lanes of all are nobody's.
                let last = block * LANES + first + lanes == self.outputs;
                let whole = first == 0 && (lanes == LANES || last);
                let mask = if whole { u16::MAX } else { (((1u32 << lanes) - 1) << first) as u16 };
                let joins = pieces.last_mut().filter(|piece| {
                    let follows = piece.group == group && piece.block + piece.blocks == block;
                    follows && whole && piece.mask == u16::MAX && piece.blocks < self.blocks
                });
                match joins {
                    Some(piece) => piece.blocks += 1,
                    None => pieces.push(Piece { block, blocks: 1, group, mask, weights }),
                }
                weights += steps * LANES;
            }
        }
        pieces
    }

    pub fn elements(&self) -> usize {
        if self.depthwise {
            return self.outputs.next_multiple_of(LANES) * self.window;
        }
        let steps = self.inputs * self.window;
        self.pieces().iter().map(|piece| piece.blocks * LANES * steps).sum()
    }

    pub fn key(&self) -> [usize; 5] {
        let kind = 2 + usize::from(self.depthwise) + 2 * self.blocks;
        [kind, self.outputs, self.inputs, self.groups, self.window * 32 + self.lanes]
    }

    /// # Safety
    /// The weights lie in memory; `to` has room for [`Packing::elements`].
    pub unsafe fn run(&self, from: Weights, to: Shared, pool: &Pool) {
        if self.depthwise {
            // SAFETY: passed on.
            return unsafe { self.pack_depthwise(from, to.address()) };
        }
        let pieces = self.pieces();
        pool.run(pieces.len(), &|index| {
            let piece = &pieces[index];
            // SAFETY: passed on; pieces have parts of their own.
            unsafe { self.pack_piece(piece, from, to.address().add(piece.weights)) };
        });
    }

    /// # Safety
    /// As [`Packing::run`].
    unsafe fn pack_depthwise(&self, from: Weights, to: *mut f32) {
        for channel in 0..self.outputs.next_multiple_of(LANES) {
            for tap in 0..self.window {
                let at = (channel / LANES * self.window + tap) * LANES + channel % LANES;
                // SAFETY: channels and taps are those of the weights.
                unsafe {
                    let inside = channel < self.outputs;
                    *to.add(at) = if inside { *from.at(channel, 0, tap) } else { 0.0 };
                }
            }
        }
    }

    /// # Safety
    /// As [`Packing::run`], for a piece.
    unsafe fn pack_piece(&self, piece: &Piece, from: Weights, mut to: *mut f32) {
        let per_group = self.outputs / self.groups;
        let own = piece.group * per_group..(piece.group + 1) * per_group;
        for (block, first, lanes) in self.input_blocks(piece.group) {
            let channel = block * self.lanes + first - piece.group * self.inputs;
            for tap in 0..self.window {
                let outputs = own.end.saturating_sub(piece.block * LANES).min(piece.blocks * LANES);
                if outputs == piece.blocks * LANES && own.contains(&(piece.block * LANES)) {
                    let [row, column, ..] = from.strides;
                    let address = from.at(piece.block * LANES, channel, tap).cast();
                    let source = Source { address, dtype: DType::F32, row, column };
                    // SAFETY: as below.
                    unsafe { interleave(source, outputs, lanes, outputs, to) };
                    to = to.wrapping_add(lanes * outputs);
                    continue;
                }
                for input in channel..channel + lanes {
                    for lane in 0..piece.blocks * LANES {
                        let output = piece.block * LANES + lane;
                        // SAFETY: outputs of the group, inputs of a group and taps are those of the weights.
                        unsafe {
                            let inside = own.contains(&output);
                            *to.add(lane) = if inside { *from.at(output, input, tap) } else { 0.0 };
                        }
                    }
                    to = to.wrapping_add(piece.blocks * LANES);
                }
            }
        }
    }
}

/// A range cut where blocks of `lanes` begin: block, first lane, lanes.
fn cut(range: Range<usize>, lanes: usize) -> Vec<(usize, usize, usize)> {
    let mut parts = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let end = (at / lanes * lanes + lanes).min(range.end);
        parts.push((at / lanes, at % lanes, end - at));
        at = end;
    }
    parts
}

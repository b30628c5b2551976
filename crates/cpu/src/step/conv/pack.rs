//! Weights of convolutions in the order kernels read them, and which output blocks a kernel makes at once.

#![allow(unsafe_code)]

use crate::kernel::lanes::LANES;
use std::ops::Range;

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
    /// `from` has the weights, dense; `to` has room for [`Packing::elements`].
    pub unsafe fn run(&self, from: *const f32, to: *mut f32) {
        // SAFETY: passed on.
        unsafe {
            if self.depthwise {
                return self.pack_depthwise(from, to);
            }
            for piece in self.pieces() {
                self.pack_piece(&piece, from, to.add(piece.weights));
            }
        }
    }

    /// # Safety
    /// As [`Packing::run`].
    unsafe fn pack_depthwise(&self, from: *const f32, to: *mut f32) {
        for channel in 0..self.outputs.next_multiple_of(LANES) {
            for tap in 0..self.window {
                let at = (channel / LANES * self.window + tap) * LANES + channel % LANES;
                // SAFETY: channels and taps are those of the weights.
                unsafe {
                    let inside = channel < self.outputs;
                    *to.add(at) = if inside { *from.add(channel * self.window + tap) } else { 0.0 };
                }
            }
        }
    }

    /// # Safety
    /// As [`Packing::run`], for a piece.
    unsafe fn pack_piece(&self, piece: &Piece, from: *const f32, mut to: *mut f32) {
        let per_group = self.outputs / self.groups;
        let own = piece.group * per_group..(piece.group + 1) * per_group;
        for (block, first, lanes) in self.input_blocks(piece.group) {
            let channel = block * self.lanes + first - piece.group * self.inputs;
            for tap in 0..self.window {
                for input in channel..channel + lanes {
                    for lane in 0..piece.blocks * LANES {
                        let output = piece.block * LANES + lane;
                        // SAFETY: outputs of the group, inputs of a group and taps are those of the weights.
                        unsafe {
                            let at = (output * self.inputs + input) * self.window + tap;
                            *to.add(lane) = if own.contains(&output) { *from.add(at) } else { 0.0 };
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

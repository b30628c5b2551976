//! Which convolutions over blocks go to a unit for tiles, and how they are planned.

use super::Planner;
use super::blocked::{stage_of, window_taps};
use super::layout::BlockedConv;
use super::precision::STEPS_FOR_PARTS;
use crate::kernel::conv::tiles;
use crate::kernel::finish::pass_loop;
use crate::kernel::gemm::{bf16_tiles, image_loop, pays, time_share};
use crate::kernel::lanes::LANES;
use crate::step::Kind;
use crate::step::conv::Input;
use crate::step::conv::finish::FinishSpec;
use crate::step::conv::unit::{Packing as Pack, UnitConv};
use crate::step::conv::winograd::suits;
use crate::step::packing::Packing;
use crate::view::View;

/// Fewer pixels leave most of a register's rows idle.
const LEAST_PIXELS: usize = 16;
/// Gain of Winograd's convolutions over direct ones, transforms included.
const WINOGRAD_GAIN: f64 = 2.0;

impl Planner<'_> {
    /// The convolution on a unit for tiles, with its packed weights, if that is as exact as asked for, and faster.
    pub(super) fn unit_conv(&mut self, conv: &BlockedConv, kernel: &View) -> Option<(Kind, View)> {
        let (unit, parts) = (self.options.tile_unit.usable(), self.options.matmul_precision.parts());
        let (window, [inputs, outputs]) = (conv.window[0] * conv.window[1], [conv.from[1], conv.to[1]]);
        let short = parts == 3 && inputs * window < STEPS_FOR_PARTS;
        let fills = inputs >= LANES && outputs >= LANES && conv.to[2] * conv.to[3] >= LEAST_PIXELS;
        if !conv.blocked_input || conv.conv.groups != 1 || window == 0 || short || !fills {
            return None;
        }
        let winograd = suits(&conv.conv, conv.window, [inputs, outputs], [conv.to[2], conv.to[3]]);
        let share = time_share(unit, parts) * if winograd { WINOGRAD_GAIN } else { 1.0 };
        let constant = self.buffers[kernel.buffer].constant.is_some();
        if !pays(parts, share) || !constant || parts > 1 && !self.is_tame(kernel) {
            return None;
        }
        let (tiles_of_words, image_loop) = (bf16_tiles(unit, parts)?, image_loop(unit, parts)?);
        let pack = Pack { outputs, inputs, window, tiles: tiles_of_words };
        let elements = pack.elements();
        let kernel = self.packed(Packing::UnitConv(pack), kernel.clone(), elements);
        // Two bytes a part, of which twice as many may stay: the planes of f32 do not.
        let stage = stage_of(conv, Input::Blocked, parts);
        let taps = window_taps(conv, &stage, (0, 0, LANES));
        let kind = Kind::UnitConv(Box::new(UnitConv {
            images: conv.to[0],
            inputs,
            outputs,
            to: [conv.to[2], conv.to[3]],
            window: taps.iter().map(|tap| tap.offset as usize / LANES).collect(),
            stage,
            tiles: tiles_of_words,
            image_loop,
            plain: tiles(self.options.isa),
            pass: pass_loop(self.options.isa),
            multiply_adds: conv.multiply_adds(),
            finish: FinishSpec::default(),
            epilogue: None,
        }));
        Some((kind, kernel))
    }
}

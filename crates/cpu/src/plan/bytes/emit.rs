//! Steps of products of bytes.

use super::ByteConv;
use crate::flat::FlatNode;
use crate::kernel::bytes::{HALF_PANEL, Output, Run, tiles};
use crate::plan::Planner;
use crate::step::Kind;
use crate::step::bytes::Bytes;
use crate::step::bytes::pack::Pack;
use crate::step::bytes::stage::Stage;
use crate::step::packing::Packing;
use crate::view::View;
use pando_base::DType;

impl Planner<'_> {
    pub(in crate::plan) fn bytes(&mut self, conv: &ByteConv, node: &FlatNode) -> View {
        let operands = self.operands(node);
        let pack = pack(conv);
        let elements = pack.elements();
        let weights = self.packed(Packing::Bytes(pack.clone()), operands[1].clone(), elements);
        let mut inputs = vec![weights, operands[0].clone()];
        inputs.extend(operands.into_iter().skip(2));
        let inputs = inputs.into_iter().map(|view| self.dense(view)).collect();
        let (dtype, sizes) =
            (self.flat.values[node.results[0]].dtype, self.flat.values[node.results[0]].sizes.clone());
        let step = step(conv, pack, tiles(self.options.isa));
        self.emit(Kind::Bytes(Box::new(step)), inputs, dtype, &sizes)
    }
}

impl ByteConv {
    fn reach(&self, axis: usize) -> usize {
        // Steps that are never taken may be absurdly large.
        let dilation = if self.window[axis] > 1 { self.dilation[axis] as usize } else { 1 };
        (self.window[axis] - 1) * dilation + 1
    }

    fn stride(&self, axis: usize) -> usize {
        if self.to[axis + 2] > 1 { self.strides[axis] as usize } else { 1 }
    }

    fn dilation(&self, axis: usize) -> usize {
        if self.window[axis] > 1 { self.dilation[axis] as usize } else { 1 }
    }

    pub fn dtype(&self) -> DType {
        match self.output {
            Output::U8(_) => DType::U8,
            Output::F32 => DType::F32,
            Output::I32 => DType::I32,
        }
    }
}

fn pack(conv: &ByteConv) -> Pack {
    let (inputs, outputs) = (conv.from[1] / conv.groups, conv.to[1]);
    let depthwise = conv.groups > 1 && inputs == 1 && outputs == conv.groups;
    // Lanes are filled with several groups, where one does not do it.
    let fills =
        |merged: &usize| conv.groups.is_multiple_of(*merged) && outputs / conv.groups * merged >= HALF_PANEL;
    let merged = (1..=conv.groups).find(fills).unwrap_or(conv.groups);
    let merged = if depthwise { 1 } else { merged };
    let whole_rows = !depthwise && merged == conv.groups && conv.dilation(1) == 1;
    Pack { outputs, inputs, groups: conv.groups, merged, window: conv.window, whole_rows, depthwise }
}

fn step(conv: &ByteConv, pack: Pack, tiles: &'static crate::kernel::bytes::Tiles) -> Bytes {
    let [images, channels, height, width] = conv.from;
    let strides = [conv.stride(0), conv.stride(1)];
    let inside = |axis: usize| {
        let covered = (conv.to[axis + 2] - 1) * strides[axis] + conv.reach(axis);
        conv.padding[axis].0 == 0 && covered <= conv.from[axis + 2]
    };
    // Words behind a window would lie behind the image.
    let run_bytes = pack.inputs * pack.merged * if pack.whole_rows { conv.window[1] } else { 1 };
    let whole = run_bytes.is_multiple_of(4) && !pack.depthwise;
    let copies = !(whole && inside(0) && inside(1));
    let mut stage = Stage {
        channels,
        from: [height, width],
        low: [conv.padding[0].0, conv.padding[1].0],
        strides,
        reach: conv.reach(0),
        width: if copies { (conv.to[3] - 1) * strides[1] + conv.reach(1) } else { width },
        copies,
    };
    let (mut sizes, element) = ([images, conv.to[2], conv.to[3]], conv.window == [1, 1] && strides == [1, 1]);
    if !copies && element && conv.to[2..] == conv.from[2..] {
        // Pixels of all rows and images are alike.
        let pixels = images * height * width;
        (stage.from, stage.width, sizes) = ([1, pixels], pixels, [1, 1, pixels]);
    }
    Bytes {
        images: sizes[0],
        rows: sizes[1],
        columns: sizes[2],
        runs: runs(conv, &pack, &stage),
        stage,
        tiles,
        low: conv.low,
        high: conv.high,
        residual: conv.residual,
        output: conv.output,
        multiply_adds: conv.to.iter().product::<usize>() as u64
            * (pack.inputs * conv.window[0] * conv.window[1]) as u64,
        pack,
    }
}

/// Of each packed group.
fn runs(conv: &ByteConv, pack: &Pack, stage: &Stage) -> Vec<Vec<Run>> {
    let groups = if pack.depthwise { 1 } else { pack.groups / pack.merged };
    let of_group = |group: usize| {
        let columns = if pack.whole_rows { 1 } else { conv.window[1] };
        let places = (0..conv.window[0]).flat_map(|y| (0..columns).map(move |x| [y, x]));
        let run = |[y, x]: [usize; 2]| {
            let pixel = y * conv.dilation(0) * stage.width + x * conv.dilation(1);
            Run {
                offset: pixel * stage.channels + group * pack.inputs * pack.merged,
                words: pack.run_words(),
            }
        };
        places.map(run).collect()
    };
    (0..groups).map(of_group).collect()
}

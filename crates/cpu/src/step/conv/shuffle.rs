//! Channels of images in blocks in another order: `[groups, each]` to `[each, groups]`, between convolutions of
//! groups. The floor is a load and a store per element: lanes come from as many places.

#![allow(unsafe_code)]

use crate::exec::Run;
use crate::kernel::lanes::LANES;
use crate::step::Step;

#[derive(Clone, Debug)]
pub struct Shuffle {
    pub channels: usize,
    pub groups: usize,
    pub pixels: usize,
}

impl Shuffle {
    /// Where a channel comes from.
    fn source(&self, channel: usize) -> usize {
        channel % self.groups * (self.channels / self.groups) + channel / self.groups
    }
}

pub fn run(shuffle: &Shuffle, step: &Step, run: &mut Run) {
    let blocks = shuffle.channels.div_ceil(LANES);
    let block = shuffle.pixels * LANES;
    let planes = step.outputs[0].num_elements().checked_div(block).unwrap_or(0);
    let memory = run.memory;
    run.pool.run(planes, &|plane| {
        let image = memory.address(&step.inputs[0]).cast::<f32>().cast_const();
        let image = image.wrapping_add(plane / blocks * blocks * block);
        // Lanes behind the last channel repeat it.
        let sources: [*const f32; LANES] = std::array::from_fn(|lane| {
            let channel = (plane % blocks * LANES + lane).min(shuffle.channels - 1);
            let source = shuffle.source(channel);
            image.wrapping_add(source / LANES * block + source % LANES)
        });
        let to = memory.address(&step.outputs[0]).cast::<f32>().wrapping_add(plane * block);
        for at in (0..block).step_by(LANES) {
            // SAFETY: pixels of the dense operand, and of a plane of the output, which is this task's alone.
            unsafe {
                let pixel: [f32; LANES] = std::array::from_fn(|lane| *sources[lane].add(at));
                to.add(at).cast::<[f32; LANES]>().write(pixel);
            }
        }
    });
}

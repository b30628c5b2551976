//! Random layouts: which dimensions are split over which axes, in which order the axes lie on the tiles, with
//! copies, gaps, grains and windows.

use super::Generator;
use pando_tile::{Axis, Grid, Layout, Part, Region, Span, Var};
use smallvec::SmallVec;

/// What a layout may be used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Every element once.
    Partition,
    /// Blocks are disjoint, but may be repeated.
    Copies,
    /// Blocks may also overlap.
    Any,
}

/// What has been decided about an axis: its extent, and the dimension it splits, if any.
struct Plan {
    extent: u32,
    dim: Option<(usize, u64)>,
}

impl Generator {
    pub fn layout(&mut self, shape: &[u64], kind: Kind) -> Layout {
        let mut plans = self.splits(shape);
        if kind != Kind::Partition && self.source.chance(4) {
            let most = u64::from(self.program.tiles / plans.iter().map(|plan| plan.extent).product::<u32>());
            let extent = self.source.within(1, most.min(4)) as u32;
            plans.insert(self.source.below(plans.len() + 1), Plan { extent, dim: None });
        }
        let grid = self.grid(&plans);
        let mut region: Region = shape.iter().map(|&dim| Span::full(dim)).collect();
        for (axis, plan) in plans.iter().enumerate() {
            if let Some((dim, grain)) = plan.dim {
                region[dim] = Span::Part(Part::even(axis, shape[dim], grain));
            }
        }
        if kind == Kind::Any && self.source.chance(3) {
            self.widen(&mut region, shape);
        }
        Layout { grid, region }
    }

    /// Splits some dimensions over at most as many tiles as there are.
    fn splits(&mut self, shape: &[u64]) -> Vec<Plan> {
        let mut left = u64::from(self.program.tiles);
        let mut plans = Vec::new();
        for dim in self.source.order(shape.len()) {
            if self.source.chance(5) {
                let grain = self.source.within(1, 3);
                let extent = self.source.within(1, shape[dim].div_ceil(grain).min(left));
                left /= extent;
                plans.push(Plan { extent: extent as u32, dim: Some((dim, grain)) });
            }
        }
        plans
    }

    /// Places the axes on the tiles in a random order of strides, with gaps where there is room.
    fn grid(&mut self, plans: &[Plan]) -> Grid {
        let tiles = self.program.tiles;
        let mut axes: SmallVec<[Axis; 4]> =
            plans.iter().map(|p| Axis { extent: p.extent, stride: 0 }).collect();
        let (mut reach, mut room) = (1, tiles / plans.iter().map(|plan| plan.extent).product::<u32>());
        for axis in self.source.order(plans.len()) {
            let gap = if room > 1 && self.source.chance(2) { room } else { 1 };
            room /= gap;
            axes[axis].stride = reach * gap;
            reach = axes[axis].stride * axes[axis].extent;
        }
        let end: u32 = axes.iter().map(|axis| (axis.extent - 1) * axis.stride).sum::<u32>() + 1;
        Grid { base: self.source.below((tiles - end + 1) as usize) as u32, axes }
    }

    /// Makes the parts of one split dimension overlap.
    fn widen(&mut self, region: &mut Region, shape: &[u64]) {
        let split = (0..shape.len()).find(|&dim| matches!(region[dim], Span::Part(_)));
        let Some(Span::Part(part)) = split.map(|dim| &mut region[dim]) else { return };
        part.lo = -(self.source.below(3) as i64);
        part.hi = 1 + self.source.below(3) as i64;
    }
}

/// Whether exchanges may read from the variable.
pub fn is_source(var: &Var) -> bool {
    var.home.is_partition(&var.shape)
}

//! Reductions: on the tile where blocks hold all of the reduced dimensions, otherwise partial results that
//! are gathered and combined in one or more stages.

use super::Emitter;
use crate::layouts::{balanced, without_copies};
use crate::plan::{stages_for_axes, total_dtype};
use pando_base::{DType, ReduceFn, Shape};
use pando_graph::Node;
use pando_tile::{Axis, Copy, CopyMap, Grid, Kernel, Layout, Part, Region, Span, VarId};
use smallvec::SmallVec;

impl Emitter<'_> {
    pub(super) fn reduce(&mut self, func: ReduceFn, axes: &[usize], node: &Node) {
        let operand = node.operands[0];
        let shape = self.shape(operand);
        let source = without_copies(&self.layout(operand), &shape);
        let src = self.fetch(operand, &source);
        let label = self.label(node);
        let parts =
            |dim: usize| source.region[dim].axis().map_or(1, |axis| u64::from(source.grid.axes[axis].extent));
        let kernel = Kernel::Reduce { func, axes: axes.iter().map(|&axis| axis as u8).collect() };
        if axes.iter().all(|&axis| parts(axis) == 1) {
            let out = self.result(node);
            let kept = (0..shape.rank()).filter(|dim| !axes.contains(dim));
            let out_region = kept.map(|dim| source.region[dim]).collect();
            return self.compute(
                &label,
                kernel,
                &source.grid,
                vec![(src, source.region.clone()), (out, out_region)],
            );
        }
        // One partial result for every part of the reduced dimensions, which stay as dimensions.
        let partial_shape: Shape =
            (0..shape.rank()).map(|dim| if axes.contains(&dim) { parts(dim) } else { shape[dim] }).collect();
        let partial_region: Region = source
            .region
            .iter()
            .enumerate()
            .map(|(dim, span)| match span {
                Span::Part(part) if axes.contains(&dim) => {
                    Span::Part(Part::even(part.axis.into(), parts(dim), 1))
                }
                _ if axes.contains(&dim) => Span::full(1),
                _ => *span,
            })
            .collect();
        let layout = Layout { grid: source.grid.clone(), region: partial_region.clone() };
        let dtype = total_dtype(func, self.dtype(operand));
        let name = format!("{}.partials", self.base_name(node.results[0]));
        let partial = self.temp(&name, dtype, partial_shape, &layout);
        self.compute(
            &label,
            kernel,
            &source.grid,
            vec![(src, source.region.clone()), (partial, partial_region)],
        );
        let split: Vec<u64> = axes.iter().map(|&axis| parts(axis)).collect();
        self.combine(partial, axes, func, &stages_for_axes(&split), node);
    }

    /// Combines partial results over `axes` into the node's result.
    pub(super) fn combine(
        &mut self,
        partial: VarId,
        axes: &[usize],
        func: ReduceFn,
        stages: &[u64],
        node: &Node,
    ) {
        self.combine_into(partial, axes, func, stages, node, |emitter| emitter.result(node));
    }

    /// Combines partial results over `axes` into a variable laid out as the node's result is. After each
    /// stage but the last, the longest of the axes has as many partial results as the stage says.
    pub(super) fn combine_into(
        &mut self,
        partial: VarId,
        axes: &[usize],
        func: ReduceFn,
        stages: &[u64],
        node: &Node,
        out: impl FnOnce(&mut Self) -> VarId,
    ) -> VarId {
        let mut current = partial;
        for &groups in &stages[..stages.len().saturating_sub(1)] {
            current = self.combine_stage(current, axes, func, groups, node);
        }
        let (dtype, shape) = (self.program.vars[current].dtype, self.program.vars[current].shape.clone());
        let layout = self.layout(node.results[0]);
        let mut kept = layout.region.iter().copied();
        let region: Region = (0..shape.rank())
            .map(|dim| {
                if axes.contains(&dim) {
                    Span::full(shape[dim])
                } else {
                    kept.next().expect("one span a kept dimension")
                }
            })
            .collect();
        let gathered = self.gathered(current, dtype, &shape, &layout.grid, &region);
        let kernel = Kernel::Reduce { func, axes: axes.iter().map(|&axis| axis as u8).collect() };
        let out = out(self);
        let label = format!("{}:reduce", self.label(node));
        self.compute(&label, kernel, &layout.grid, vec![(gathered, region), (out, layout.region.clone())]);
        out
    }

    fn combine_stage(
        &mut self,
        partial: VarId,
        axes: &[usize],
        func: ReduceFn,
        groups: u64,
        node: &Node,
    ) -> VarId {
        let (dtype, shape) = (self.program.vars[partial].dtype, self.program.vars[partial].shape.clone());
        let longest = axes.iter().copied().max_by_key(|&axis| shape[axis]).expect("a reduction has axes");
        let rest: Shape =
            (0..shape.rank()).map(|dim| if axes.contains(&dim) { 1 } else { shape[dim] }).collect();
        let share = (u64::from(self.working_tiles()) / groups).max(1) as u32;
        let inner = balanced(&rest, dtype, share, self.options.min_tile_bytes);
        let mut grid = Grid { base: 0, axes: SmallVec::new() };
        grid.axes.push(Axis { extent: groups as u32, stride: inner.grid.len() as u32 });
        grid.axes.extend(inner.grid.axes.iter().copied());
        let region = |size: &dyn Fn(usize) -> u64| -> Region {
            (0..shape.rank())
                .map(|dim| match inner.region[dim] {
                    _ if dim == longest => Span::Part(Part::even(0, size(dim), 1)),
                    _ if axes.contains(&dim) => Span::full(size(dim)),
                    Span::Part(part) => Span::Part(Part { axis: part.axis + 1, ..part }),
                    fixed => fixed,
                })
                .collect()
        };
        let in_region = region(&|dim| shape[dim]);
        let out_size = |dim: usize| {
            if dim == longest {
                groups
            } else if axes.contains(&dim) {
                1
            } else {
                shape[dim]
            }
        };
        let out_region = region(&out_size);
        let gathered = self.gathered(partial, dtype, &shape, &grid, &in_region);
        let name = format!("{}.partials", self.base_name(node.results[0]));
        let out_shape: Shape = (0..shape.rank()).map(out_size).collect();
        let out =
            self.temp(&name, dtype, out_shape, &Layout { grid: grid.clone(), region: out_region.clone() });
        let kernel = Kernel::Reduce { func, axes: axes.iter().map(|&axis| axis as u8).collect() };
        let label = format!("{}:reduce", self.label(node));
        self.compute(&label, kernel, &grid, vec![(gathered, in_region), (out, out_region)]);
        out
    }

    /// A copy of partial results in the layout that the next stage reads.
    fn gathered(
        &mut self,
        partial: VarId,
        dtype: DType,
        shape: &Shape,
        grid: &Grid,
        region: &Region,
    ) -> VarId {
        let name = format!("{}.gathered", self.program.vars[partial].name);
        let layout = Layout { grid: grid.clone(), region: region.clone() };
        let var = self.temp(&name, dtype, shape.clone(), &layout);
        self.pending.push(Copy {
            src: partial,
            dsts: SmallVec::from_slice(&[var]),
            map: CopyMap::identity(shape),
        });
        var
    }
}

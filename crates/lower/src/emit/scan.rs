//! Scans: along whole lines, or blocks of lines whose totals are scanned first.

use super::Emitter;
use crate::layouts::{normalize, without_copies};
use crate::plan::{scan_attrs, total_dtype};
use pando_base::{Id, Shape};
use pando_graph::{Node, Scan};
use pando_tile::kernel::ScanAttrs;
use pando_tile::{Copy, CopyMap, Kernel, Layout, Part, Region, Span, VarId};
use smallvec::SmallVec;

impl Emitter<'_> {
    pub(super) fn scan(&mut self, scan: &Scan, node: &Node) {
        let operand = node.operands[0];
        let layout = self.layout(node.results[0]);
        let input = self.fetch(operand, &layout);
        let mut operands = vec![(input, layout.region.clone())];
        let attrs = scan_attrs(scan);
        let label = self.label(node);
        let start = match layout.region[scan.axis] {
            Span::Part(part) if layout.grid.axes[part.axis as usize].extent > 1 => {
                let start = self.block_starts(scan, input, &layout, part.axis.into(), node);
                operands.insert(0, start);
                true
            }
            _ => false,
        };
        let out = self.result(node);
        operands.push((out, layout.region.clone()));
        self.compute(&label, Kernel::Scan(ScanAttrs { start, ..attrs }), &layout.grid, operands);
    }

    /// What comes before each block: the totals of blocks go to one tile a line, are scanned there, and come
    /// back.
    fn block_starts(
        &mut self,
        scan: &Scan,
        input: VarId,
        layout: &Layout,
        axis: usize,
        node: &Node,
    ) -> (VarId, Region) {
        let parts = u64::from(layout.grid.axes[axis].extent);
        let shape = self.shape(node.operands[0]);
        let with = |sizes: &Shape, size: u64| {
            let mut sizes = sizes.clone();
            sizes[scan.axis] = size;
            sizes
        };
        let totals_shape = with(&shape, parts);
        let region_with = |span: Span| {
            let mut region = layout.region.clone();
            region[scan.axis] = span;
            region
        };
        let block = region_with(Span::Part(Part::even(axis, parts, 1)));
        let blocks = Layout { grid: layout.grid.clone(), region: block.clone() };
        let dtype = total_dtype(scan.func, self.dtype(node.operands[0]));
        let (name, label) = (self.base_name(node.results[0]), format!("{}:totals", self.label(node)));
        let totals = self.temp(&format!("{name}.totals"), dtype, totals_shape.clone(), &blocks);
        let reduce = Kernel::Reduce { func: scan.func, axes: [scan.axis as u8].into_iter().collect() };
        let operands = vec![(input, layout.region.clone()), (totals, block.clone())];
        self.compute(&label, reduce, &layout.grid, operands);

        let line = Layout { grid: layout.grid.clone(), region: region_with(Span::full(parts)) };
        let line = without_copies(&normalize(&line, &totals_shape), &totals_shape);
        let gathered = self.moved(totals, &line);
        let starts = self.temp(&format!("{name}.starts"), dtype, totals_shape, &line);
        let attrs = ScanAttrs { exclusive: true, start: false, ..scan_attrs(scan) };
        let operands = vec![(gathered, line.region.clone()), (starts, line.region.clone())];
        self.compute(&label, Kernel::Scan(attrs), &line.grid, operands);
        (self.moved(starts, &blocks), block)
    }

    /// A copy of a variable in another layout, made by the next exchange.
    pub(super) fn moved(&mut self, var: VarId, layout: &Layout) -> VarId {
        let (dtype, shape) = (self.program.vars[var].dtype, self.program.vars[var].shape.clone());
        if self.program.vars[var].home == normalize(layout, &shape) {
            return var;
        }
        let name = format!("{}.at", self.program.vars[var].name);
        let moved = self.temp(&name, dtype, shape.clone(), layout);
        let dsts = SmallVec::from_slice(&[moved]);
        self.pending.push(Copy { src: var, dsts, map: CopyMap::identity(&shape) });
        debug_assert!(moved.index() > var.index());
        moved
    }
}

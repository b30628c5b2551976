//! What can be had where its source lies, without an exchange: slices of dimensions that no tile shares,
//! dimensions of size 1 that come and go, one row of a table, and one row's replacement.

use super::{Method, Planner};
use crate::layouts::{balanced, normalize, unit_dims, without_copies};
use pando_graph::{Node, Slice, ValueId};
use pando_tile::{Layout, Region, Span};

/// The layout of a slice where its source lies; none if tiles share a dimension that is cut.
pub(crate) fn sliced(source: &Layout, from: &[u64], to: &[u64]) -> Option<Layout> {
    let source = without_copies(source, from);
    let span = |dim: usize| match (from[dim] == to[dim], source.region[dim]) {
        (true, span) => Some(span),
        (false, Span::Fixed { .. }) => Some(Span::full(to[dim])),
        (false, Span::Part(_)) => None,
    };
    let region = (0..from.len()).map(span).collect::<Option<Region>>()?;
    Some(normalize(&Layout { grid: source.grid, region }, to))
}

/// The layout of a reshape that only drops or adds dimensions of size 1, where its source lies.
pub(crate) fn reshaped(source: &Layout, from: &[u64], to: &[u64]) -> Option<Layout> {
    let dims = unit_dims(from, to)?;
    let source = without_copies(source, from);
    let region = dims.iter().map(|dim| dim.map_or(Span::full(1), |dim| source.region[dim])).collect();
    Some(normalize(&Layout { grid: source.grid, region }, to))
}

/// A tile's part of a table may take one in so many of its bytes where one row is used: beyond it there is little room
/// for anything else, and other tiles can look the row up.
const CROWDED: u64 = 8;

impl Planner<'_> {
    /// Where the source lies if that is spread as far as can be; otherwise where it is used.
    pub(super) fn slice(&mut self, node: &Node) -> Method {
        let (source, value) = (node.operands[0], node.results[0]);
        let (from, to, dtype) = (self.shape(source), self.shape(value), self.dtype(value));
        let planned = self.plan.layouts[source].as_ref().and_then(|layout| sliced(layout, &from, &to));
        let (tiles, min_bytes) = (self.tiles(), self.options.min_tile_bytes);
        let is_spread =
            |layout: &Layout| layout.grid.len() >= balanced(&to, dtype, tiles, min_bytes).grid.len();
        match planned.filter(is_spread) {
            Some(layout) => {
                self.set(node, layout);
                Method::Direct
            }
            None => self.free(node),
        }
    }

    /// One row of a table by its index, where the table lies. A table that lies nowhere yet goes where the row is
    /// used. Nothing if its rows lie on several tiles, or would crowd those where they are used.
    pub(super) fn row(&mut self, axis: usize, node: &Node) -> Option<Method> {
        let (data, index, out) = (node.operands[0], node.operands[1], node.results[0]);
        let (from, to) = (self.shape(data), self.shape(out));
        if self.shape(index).num_elements() != 1 {
            return None;
        }
        let mut row = from.to_vec();
        row[axis] = 1;
        let layout = match self.plan.layouts[data].clone() {
            Some(layout) => sliced(&layout, &from, &row)?,
            None => {
                let used = self.hint(out).or_else(|| self.peer(out));
                let used = used.unwrap_or_else(|| self.balanced(&to, self.dtype(out)));
                let layout = reshaped(&used, &to, &row)?;
                let table = with_rows(&layout, axis, &from);
                let bytes =
                    Self::largest_lens(&table, &from).iter().product::<u64>() * self.dtype(data).size_bytes();
                if bytes > self.machine.chip.sram.bytes_per_tile / CROWDED {
                    return None;
                }
                self.want(data, &table);
                layout
            }
        };
        self.settled(index);
        self.set(node, reshaped(&layout, &row, &to)?);
        Some(Method::Direct)
    }

    /// A table whose row is replaced by one that lies somewhere: there, if the table lies nowhere yet. Nothing if
    /// rows of the table lie on several tiles.
    pub(super) fn replaced_row(&mut self, axis: usize, node: &Node) -> Option<Method> {
        let [data, index, row] = [0, 1, 2].map(|at| node.operands[at]);
        let (shape, row_shape) = (self.shape(data), self.shape(row));
        if self.shape(index).num_elements() != 1 || shape[axis] == 1 {
            return None;
        }
        if self.plan.layouts[data].is_none() {
            let layout = without_copies(&self.settled(row), &row_shape);
            self.want(data, &with_rows(&layout, axis, &shape));
        }
        let home = without_copies(&self.settled(data), &shape);
        if matches!(home.region[axis], Span::Part(_)) {
            return None;
        }
        self.settled(index);
        self.want(row, &row_of(&home, axis, &row_shape));
        self.set(node, home);
        Some(Method::Direct)
    }

    /// Where the most spread of the values that are computed already and have this one's type lies.
    fn peer(&self, value: ValueId) -> Option<Layout> {
        let results = self.func.nodes.values().flat_map(|node| node.results.iter().copied());
        let alike: Vec<ValueId> =
            results.filter(|&other| self.func.ty(other) == self.func.ty(value)).collect();
        let peer = self.plan.layouts[self.most_spread(&alike)?].as_ref()?;
        Some(without_copies(peer, &self.shape(value)))
    }

    /// Whether a value lies nowhere yet.
    pub(super) fn is_open(&self, value: ValueId) -> bool {
        self.plan.layouts[value].is_none()
    }
}

/// The layout of a table whose row lies so.
fn with_rows(row: &Layout, axis: usize, shape: &[u64]) -> Layout {
    let mut layout = row.clone();
    layout.region[axis] = Span::full(shape[axis]);
    layout
}

/// The layout of a row of a table that lies so.
pub(crate) fn row_of(table: &Layout, axis: usize, row: &[u64]) -> Layout {
    let mut layout = table.clone();
    layout.region[axis] = Span::full(row[axis]);
    normalize(&layout, row)
}

/// Whether a slice takes every element between its bounds.
pub(crate) fn is_dense(slice: &Slice) -> bool {
    slice.step.iter().all(|&step| step == 1)
}

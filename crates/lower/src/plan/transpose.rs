//! Transpositions: where each tile's block of the result lies.

use super::cost::superstep_cycles;
use super::{Method, Planner};
use crate::layouts::{splits_words, transposable, without_copies};
use pando_graph::{Node, ValueId};
use pando_tile::{Layout, Region};

impl Planner<'_> {
    /// Each tile transposes its own block: what the operand's layout gives it, unless that would split words of
    /// the result, or unless it gets other blocks first that spare reductions an exchange.
    pub(super) fn transpose(&mut self, perm: &[usize], node: &Node) -> Method {
        let (operand, value) = (node.operands[0], node.results[0]);
        let source = without_copies(&self.settled(operand), &self.shape(operand));
        let (shape, dtype) = (self.shape(value), self.dtype(value));
        let region: Region = perm.iter().map(|&dim| source.region[dim]).collect();
        let last = perm.len().saturating_sub(1);
        let own = match perm.iter().position(|&dim| dim == last) {
            Some(column) if column != last && splits_words(&region[last], dtype) => {
                transposable(&shape, dtype, self.tiles(), self.options.min_tile_bytes, column)
            }
            _ => Layout { grid: source.grid, region },
        };
        let layout = self.unsplit_for_reductions(operand, perm, value, &own).unwrap_or(own);
        self.set(node, layout);
        Method::Direct
    }

    /// A layout that keeps whole what is reduced next of a transposed value and its own layout splits; nothing if to
    /// bring the operand there takes longer than what the reductions would have to gather and return, if far fewer
    /// tiles would have work, or if words would be divided.
    fn unsplit_for_reductions(
        &mut self,
        operand: ValueId,
        perm: &[usize],
        value: ValueId,
        own: &Layout,
    ) -> Option<Layout> {
        let is_split = |&axis: &usize| own.region[axis].axis().is_some_and(|at| own.grid.axes[at].extent > 1);
        let split: Vec<Vec<usize>> = self
            .reduced_axes(value)
            .into_iter()
            .filter(|axes| axes.iter().any(is_split))
            .map(<[usize]>::to_vec)
            .collect();
        let mut whole: Vec<usize> = split.iter().flatten().copied().collect();
        whole.sort_unstable();
        whole.dedup();
        if whole.is_empty() || self.families.layout(value).is_some() {
            return None;
        }
        let shape = self.shape(value);
        let layout = self.balanced_except(&shape, self.dtype(value), &whole);
        let largest = |layout: &Layout| Self::largest_lens(layout, &shape).iter().product::<u64>();
        let source = untransposed(&layout, perm);
        let splits =
            |layout: &Layout| layout.region.last().is_some_and(|span| splits_words(span, self.dtype(value)));
        if largest(&layout) >= 2 * largest(own) || splits(&layout) || splits(&source) {
            return None;
        }
        let spared = 2 * split.len() as u64 * superstep_cycles(self.machine);
        let brought = self.fetch_cycles(operand, &source);
        (brought < spared).then_some(layout)
    }
}

/// Where the operand of a transposition lies if each tile transposes its own block of the result.
pub(crate) fn untransposed(layout: &Layout, perm: &[usize]) -> Layout {
    let mut region = layout.region.clone();
    perm.iter().zip(&layout.region).for_each(|(&dim, span)| region[dim] = *span);
    Layout { grid: layout.grid.clone(), region }
}

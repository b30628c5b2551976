//! The order in which results lie in memory, where it is not that of their dimensions: transposes move to
//! whoever writes the result, instead of costing a copy.

use super::Planner;
use super::groups::is_view;
use crate::flat::{FlatType, Work};
use crate::view::{BufferId, View};
use pando_graph::Op;

pub fn inverse(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(position, &axis)| inverse[axis] = position);
    inverse
}

/// A value's view if its dimensions lie in memory in this order.
pub fn in_order(ty: &FlatType, order: &[usize]) -> View {
    let sizes: Vec<usize> = order.iter().map(|&axis| ty.sizes[axis]).collect();
    View::dense(BufferId::default(), ty.dtype, &sizes).transpose(&inverse(order))
}

/// The order of dimensions in which elementwise work goes through its inputs' memory from begin to end, if that
/// is not their own order: where no input runs along its last dimension, or rows of one lie in another order,
/// the order of the first that repeats no element.
pub fn memory_order(inputs: &[View]) -> Option<Vec<usize>> {
    let mut whole = inputs.iter().filter(|view| !repeats(view)).peekable();
    let first = *whole.peek()?;
    let mut order: Vec<usize> = (0..first.sizes.len()).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(if first.sizes[axis] > 1 { first.strides[axis] } else { 0 }));
    let better = whole.all(|view| !descends(view)) && descends(&first.transpose(&order));
    better.then_some(order)
}

fn repeats(view: &View) -> bool {
    view.sizes.iter().zip(&view.strides).any(|(&size, &stride)| size > 1 && stride == 0)
}

/// Whether elements lie in memory in the order of their positions, maybe with gaps between rows.
fn descends(view: &View) -> bool {
    let mut least = 1;
    for (&size, &stride) in view.sizes.iter().zip(&view.strides).rev().filter(|&(&size, _)| size > 1) {
        if stride < least {
            return false;
        }
        least = stride * size as isize;
    }
    true
}

impl Planner<'_> {
    /// The order in which the only user of a product's result, a transpose that leaves columns last, wants it;
    /// unless what follows would rather be the product's epilogue.
    pub(super) fn target_order(&self, node: usize, ty: &FlatType) -> Option<Vec<usize>> {
        let value = self.flat.nodes[node].results[0];
        let &[user] = self.users[value].as_slice() else { return None };
        let Work::Op(Op::Transpose { perm }) = &self.flat.nodes[user].work else { return None };
        let keeps_columns = perm.last() == Some(&(ty.sizes.len() - 1));
        let transposed = self.flat.nodes[user].results[0];
        let useful = self.options.fuse && keeps_columns && !self.flat.results.contains(&value);
        (useful && !self.meets_group(transposed)).then(|| perm.clone())
    }

    /// Whether elementwise work reads a value, views looked through.
    fn meets_group(&self, value: usize) -> bool {
        self.users[value].iter().any(|&user| {
            let node = &self.flat.nodes[user];
            self.groups.root(user).is_some() || is_view(node) && self.meets_group(node.results[0])
        })
    }
}

//! Families: state and the values of its shape that elementwise functions connect with it, such as a weight, its
//! moments, its gradient and its next value. A family has one layout, so that an update moves nothing; the first
//! product that uses a member decides, else whichever member is laid out first.

use super::{Method, Planner, untransposed};
use crate::layouts::without_copies;
use pando_base::SideTable;
use pando_graph::{Conv, Dot, Func, Node, NodeId, Op, ValueDef, ValueId};
use pando_tile::Layout;

/// Functions between two convolutions, such as a norm's and an activation's.
const MAX_CHAIN: usize = 8;

/// What decides where a value best lies.
enum Downstream<'a> {
    /// Another operand of a function that it meets.
    Partner(ValueId),
    /// A convolution whose input it becomes.
    Conv(&'a Conv, &'a Node),
    /// A product whose operand it becomes.
    Product(&'a Dot, &'a Node, usize),
}

#[derive(Default)]
pub(super) struct Families {
    /// Each value's family, named after one of its members.
    of: SideTable<ValueId, Option<ValueId>>,
    layouts: SideTable<ValueId, Option<Layout>>,
    /// Where the next small family begins, so that not all lie on the first tiles.
    next_tile: u32,
}

impl Families {
    /// The families of a function's parameters that are state.
    pub fn new(func: &Func, state: &[(usize, usize)]) -> Self {
        let mut parents: SideTable<ValueId, Option<ValueId>> = SideTable::default();
        for node in func.nodes.values().filter(|node| node.op.is_elementwise()) {
            let result = node.results[0];
            for &operand in &node.operands {
                if func.ty(operand).dims == func.ty(result).dims {
                    let (a, b) = (root(&parents, operand), root(&parents, result));
                    if a != b {
                        parents[a.max(b)] = Some(a.min(b));
                    }
                }
            }
        }
        let large = |value: ValueId| func.ty(value).shape().is_some_and(|shape| shape.num_elements() > 1);
        let params = state.iter().map(|&(param, _)| func.params[param]).filter(|&param| large(param));
        let mut is_family: SideTable<ValueId, bool> = SideTable::default();
        params.for_each(|param| is_family[root(&parents, param)] = true);
        let mut families = Families::default();
        for value in func.values.ids() {
            let root = root(&parents, value);
            families.of[value] = is_family[root].then_some(root);
        }
        families
    }

    pub fn layout(&self, value: ValueId) -> Option<&Layout> {
        self.layouts[self.of[value]?].as_ref()
    }

    /// The layout for the family of a value, if it has one without a layout.
    pub fn decide(&mut self, value: ValueId, layout: &Layout, shape: &[u64], tiles: u32) {
        if !self.is_undecided(value) {
            return;
        }
        let mut layout = without_copies(layout, shape);
        let end = layout.grid.end_tile() as u32;
        if end <= tiles / 2 {
            let begin = if self.next_tile + end <= tiles { self.next_tile } else { 0 };
            layout.grid.base += begin;
            self.next_tile = begin + end;
        }
        let family = self.of[value].expect("undecided families exist");
        self.layouts[family] = Some(layout);
    }

    /// The family of a value, if it has one.
    pub fn of(&self, value: ValueId) -> Option<ValueId> {
        self.of[value]
    }

    /// Whether two values are of one family.
    pub fn are_one(&self, a: ValueId, b: ValueId) -> bool {
        self.of[a].is_some() && self.of[a] == self.of[b]
    }

    fn is_undecided(&self, value: ValueId) -> bool {
        self.of[value].is_some_and(|family| self.layouts[family].is_none())
    }
}

/// The representative of a value's set.
fn root(parents: &SideTable<ValueId, Option<ValueId>>, mut value: ValueId) -> ValueId {
    while let Some(parent) = parents[value] {
        value = parent;
    }
    value
}

impl<'a> Planner<'a> {
    /// Lays out the families that products use before anything else is: weights of matrix products as suits all of
    /// them, others as the first convolution wants them.
    pub(super) fn decide_families(&mut self) {
        let products = self.products_of_families();
        for (id, node) in self.func.nodes.iter() {
            let decides = |&operand: &ValueId| self.families.is_undecided(operand);
            let Some(&value) = node.operands.iter().rev().find(|v| decides(v)) else { continue };
            match &node.op {
                Op::Dot(_) => {
                    let family = self.families.of(value).expect("undecided families exist");
                    self.share_weights(value, &products[&family]);
                }
                Op::Conv(conv) => {
                    let method = Method::Conv(Box::new(self.conv_plan(conv, node)));
                    let wanted = self.operand_layout(&method, node, usize::from(value == node.operands[1]));
                    let home = self.shared_out(&wanted, value);
                    self.families.decide(value, &home, &self.shape(value), self.tiles());
                    self.preplanned.insert(id, method);
                }
                _ => {}
            }
        }
    }

    /// The layout of the family of a value, which gets the one at hand, divided further if that is uneven: its members
    /// are kept for good. The one at hand if there is no family.
    pub(super) fn family_layout(&mut self, value: ValueId, layout: Layout) -> Layout {
        if self.families.is_undecided(value) {
            let shape = self.shape(value);
            let largest = |layout: &Layout| Self::largest_lens(layout, &shape).iter().product::<u64>();
            let even = self.balanced(&shape, self.dtype(value));
            let uneven = largest(&layout) * 4 > largest(&even) * 5;
            let layout = if uneven { self.shared_out(&layout, value) } else { layout.clone() };
            self.families.decide(value, &layout, &shape, self.tiles());
        }
        self.families.layout(value).cloned().unwrap_or(layout)
    }

    /// Where a result would best lie that could lie anywhere: as the family does to which it, or what it becomes by
    /// transposing, belongs; else as what it is added to lies, as the other branch of a residual does; else so that the
    /// tiles of the next convolution, or product with a batch, have few messages.
    pub(super) fn wish(&mut self, value: ValueId) -> Option<Layout> {
        if let Some(layout) = self.family_wish(value) {
            return Some(layout);
        }
        match self.downstream(value, MAX_CHAIN)? {
            Downstream::Partner(partner) => {
                let layout = self.plan.layouts[partner].as_ref().expect("partners are laid out");
                Some(without_copies(layout, &self.shape(partner)))
            }
            Downstream::Conv(conv, node) => {
                let plan = self.conv_plan(conv, node);
                let blocks = plan.input_blocks(&self.shape(node.operands[0]), &self.shape(node.results[0]));
                Some(self.shared_out(&blocks, value))
            }
            Downstream::Product(dot, node, operand) => {
                let method = Method::Matmul(Box::new(self.matmul_plan(dot, node)));
                let blocks = self.operand_layout(&method, node, operand);
                Some(self.shared_out(&blocks, value))
            }
        }
    }

    fn family_wish(&self, value: ValueId) -> Option<Layout> {
        if let Some(layout) = self.families.layout(value) {
            return Some(layout.clone());
        }
        let user = &self.func.nodes[*self.users[value].first()?];
        let Op::Transpose { perm } = &user.op else { return None };
        Some(untransposed(&self.family_wish(user.results[0])?, perm))
    }

    /// What a value first meets at the end of up to so many elementwise functions.
    fn downstream(&self, value: ValueId, steps: usize) -> Option<Downstream<'a>> {
        let func = self.func;
        let dims = &func.ty(value).dims;
        self.users[value].iter().find_map(|&id| {
            let node = &func.nodes[id];
            match &node.op {
                Op::Conv(conv) if node.operands[0] == value => Some(Downstream::Conv(conv, node)),
                Op::Dot(dot) if !dot.batch.is_empty() => {
                    let operand = node.operands.iter().position(|&operand| operand == value)?;
                    Some(Downstream::Product(dot, node, operand))
                }
                op if op.is_elementwise() && func.ty(node.results[0]).dims == *dims => {
                    let laid_out = |&&other: &&ValueId| {
                        other != value && func.ty(other).dims == *dims && self.plan.layouts[other].is_some()
                    };
                    match node.operands.iter().find(laid_out) {
                        Some(&partner) => Some(Downstream::Partner(partner)),
                        None if steps > 0 => self.downstream(node.results[0], steps - 1),
                        None => None,
                    }
                }
                _ => None,
            }
        })
    }

    /// Whether a value can be stored wherever its first user wants it.
    pub(super) fn is_free(&self, value: ValueId) -> bool {
        let source = match self.func.values[value].def {
            ValueDef::Param(_) => true,
            ValueDef::Node(node, _) => matches!(self.func.nodes[node].op, Op::Constant(_)),
        };
        let lies = self.plan.layouts[value].is_some() || self.families.layout(value).is_some();
        (source && !lies) || self.families.is_undecided(value)
    }
}

/// Nodes whose plans were made early.
pub(super) type Preplanned = rustc_hash::FxHashMap<NodeId, Method>;

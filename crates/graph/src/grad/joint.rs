//! A loop's body joined with its gradients, and what of it is worth keeping from the forward loop for the backward
//! one.

use super::later::{Body, Term};
use crate::builder::{Builder, Map};
use crate::module::{Func, FuncId, Module, Node, NodeId, ValueDef, ValueId};
use crate::op::Op;
use pando_base::{BinaryFn, IdSet, Result, UnaryFn};
use smallvec::SmallVec;

/// The body with its gradients: a function of the iteration number, the carried values, and gradients of the
/// carried values after the iteration. Its results are those before the iteration, in the same order.
pub(super) struct Joint {
    pub(super) func: Func,
    /// The carried values whose gradients are carried back.
    pub(super) carried: Vec<usize>,
    /// Their gradients after the iteration: parameters.
    pub(super) seeds: Vec<ValueId>,
    /// Terms of the gradients of carried values that are added up after the loop.
    pub(super) later: Vec<(usize, Vec<Term>)>,
    /// Carried values of whose gradient, a parameter, each iteration looks at its own row only.
    pub(super) by_row: Vec<(usize, ValueId)>,
    /// The body's results.
    pub(super) outputs: Vec<ValueId>,
}

/// Values of the joint function that the gradients need from the forward side.
pub(super) struct Kept {
    pub(super) stacked: Vec<ValueId>,
    /// Those of them that the backward loop reads; later sums alone need the others.
    pub(super) read: Vec<ValueId>,
    /// Carried values that are the same in all iterations, by position.
    pub(super) same: Vec<usize>,
    /// Factors of later sums that are computed on the way back, where they are kept then.
    pub(super) written: Vec<ValueId>,
}

impl Joint {
    /// `active` and `given` grow until they hold for every iteration: a value that depends on an active one becomes
    /// active in the next one, and what such a value needs gets a gradient in the one before.
    pub(super) fn new(
        b: &mut Builder,
        body: FuncId,
        count: u64,
        wanted: &[bool],
        mut given: Vec<bool>,
    ) -> Result<Joint> {
        let source = b.module().funcs[body].clone();
        let mut active = wanted.to_vec();
        loop {
            b.begin(&b.unique_func_name("joint"));
            let attempt = Joint::attempt(b, &source, &mut active, &mut given);
            let func = b.take();
            if let Some((outputs, gradients)) = attempt? {
                let carried: Vec<usize> = (0..active.len()).filter(|&position| given[position]).collect();
                let seeds = func.params[func.params.len() - carried.len()..].to_vec();
                let func = Func { results: gradients, ..func };
                let joint = Joint { func, carried, seeds, later: vec![], by_row: vec![], outputs };
                return Ok(joint.with_later_sums(count, b.module()));
            }
        }
    }

    /// The body's results and the gradients; `None` if `active` or `given` has grown.
    fn attempt(
        b: &mut Builder,
        source: &Func,
        active: &mut [bool],
        given: &mut [bool],
    ) -> Result<Option<(Vec<ValueId>, Vec<ValueId>)>> {
        let params = b.params_of(source);
        let outputs = b.append(source, &params, |callee| callee)?;
        let carried = &params[1..];
        let chosen = |flags: &[bool]| -> Vec<usize> { (0..flags.len()).filter(|&i| flags[i]).collect() };
        let wrt: Vec<ValueId> = chosen(active).into_iter().map(|position| carried[position]).collect();
        let reached = b.depending_on(&wrt);
        if grow(active, |position| reached.contains(outputs[position])) {
            return Ok(None);
        }
        given.iter_mut().zip(&*active).for_each(|(given, active)| *given &= active);
        let mut seeds = Vec::new();
        for position in chosen(given) {
            seeds.push((outputs[position], b.param("", b.ty(outputs[position]).clone())));
        }
        let gradients = b.gradients(&seeds, &wrt)?;
        let mut by_position = vec![None; carried.len()];
        for (position, gradient) in chosen(active).into_iter().zip(gradients) {
            by_position[position] = gradient;
        }
        if grow(given, |position| by_position[position].is_some()) {
            return Ok(None);
        }
        let mut results = Vec::new();
        for position in chosen(given) {
            results.push(match by_position[position] {
                Some(gradient) => gradient,
                None => b.splat_like(carried[position], 0.0)?,
            });
        }
        Ok(Some((outputs, results)))
    }

    pub(super) fn num_carried(&self) -> usize {
        self.outputs.len()
    }

    /// Takes out of the loop what can wait until after it.
    fn with_later_sums(mut self, count: u64, module: &Module) -> Joint {
        let (mut carried, mut seeds, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for (index, position) in std::mem::take(&mut self.carried).into_iter().enumerate() {
            let (seed, mut result) = (self.seeds[index], self.func.results[index]);
            let body = Body { func: &self.func, count, module };
            if body.clears_own_row(result, seed) {
                self.by_row.push((position, seed));
                continue;
            }
            if let Some((terms, rest)) = body.split(result, seed)
                && !terms.iter().flat_map(|term| &term.factors).any(|&factor| self.is_same(factor))
            {
                self.later.push((position, terms));
                if rest.is_empty() {
                    continue;
                }
                result = rest.into_iter().fold(seed, |sum, term| self.plus(sum, term));
            }
            carried.push(position);
            seeds.push(seed);
            results.push(result);
        }
        self.func.results = results;
        Joint { carried, seeds, ..self }
    }

    fn plus(&mut self, x: ValueId, y: ValueId) -> ValueId {
        let ty = self.func.ty(x).clone();
        let node = self.func.push_node(Op::Binary(BinaryFn::Add), [x, y], [ty]);
        self.func.nodes[node].results[0]
    }

    /// The values that are computed from gradients.
    fn backward_values(&self) -> IdSet<ValueId> {
        let mut backward: IdSet<ValueId> =
            self.func.params[1 + self.num_carried()..].iter().copied().collect();
        for node in self.func.nodes.values() {
            if node.operands.iter().any(|&value| backward.contains(value)) {
                node.results.iter().for_each(|&value| {
                    backward.insert(value);
                });
            }
        }
        backward
    }

    /// Goes up from what the backward values are computed from to what is worth keeping.
    pub(super) fn kept(&self) -> Kept {
        let backward = self.backward_values();
        let mut factors: Vec<ValueId> =
            self.later.iter().flat_map(|(_, terms)| terms).flat_map(|term| &term.factors).copied().collect();
        let mut stack: Vec<ValueId> = self.func.results.iter().chain(&factors).copied().collect();
        let mut seen: IdSet<ValueId> = IdSet::default();
        let mut kept = Kept { stacked: vec![], read: vec![], same: vec![], written: vec![] };
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            match self.func.values[value].def {
                ValueDef::Param(0) => {}
                ValueDef::Param(_) if backward.contains(value) => {}
                ValueDef::Param(param) => match param as usize - 1 {
                    position if self.outputs[position] == value => kept.same.push(position),
                    _ => kept.stacked.push(value),
                },
                ValueDef::Node(node, _) => {
                    let node = &self.func.nodes[node];
                    match backward.contains(value) || self.is_cheap(node) {
                        true => stack.extend(&node.operands),
                        false => kept.stacked.push(value),
                    }
                }
            }
        }
        kept.stacked.sort();
        kept.same.sort();
        factors.sort();
        factors.dedup();
        kept.written = factors.into_iter().filter(|factor| !kept.stacked.contains(factor)).collect();
        let needed = self.above(&self.backward_results(&kept), |value| kept.stacked.contains(&value));
        kept.read = kept.stacked.iter().copied().filter(|&value| needed.values.contains(value)).collect();
        kept
    }

    /// Computing it again costs no more than keeping it. A part is as cheap as what it is a part of.
    fn is_cheap(&self, node: &Node) -> bool {
        match &node.op {
            Op::Unary(func) => matches!(
                func,
                UnaryFn::Neg
                    | UnaryFn::Abs
                    | UnaryFn::Sign
                    | UnaryFn::Floor
                    | UnaryFn::Ceil
                    | UnaryFn::Round
                    | UnaryFn::Not
            ),
            Op::Binary(func) => !matches!(func, BinaryFn::Pow | BinaryFn::Atan2 | BinaryFn::Rem),
            Op::Constant(_)
            | Op::Iota { .. }
            | Op::Compare(_)
            | Op::Select
            | Op::Convert(_)
            | Op::Bitcast(_) => true,
            Op::Reshape { .. } | Op::Transpose { .. } | Op::Broadcast { .. } | Op::Reverse { .. } => true,
            Op::Slice(_) | Op::Gather { .. } => self.is_same(node.operands[0]),
            _ => false,
        }
    }

    /// Whether a value is one of those carried that all iterations leave as they are.
    fn is_same(&self, value: ValueId) -> bool {
        self.outputs
            .iter()
            .zip(&self.func.params[1..])
            .any(|(output, param)| output == param && value == *param)
    }

    /// What a backward iteration computes: gradients, and rows to write.
    pub(super) fn backward_results(&self, kept: &Kept) -> Vec<ValueId> {
        [self.func.results.as_slice(), &kept.written].concat()
    }

    /// What `values` are computed from, up to what `is_known`.
    fn above(&self, values: &[ValueId], is_known: impl Fn(ValueId) -> bool) -> Above {
        let mut above = Above { nodes: IdSet::default(), values: IdSet::default() };
        let mut stack = values.to_vec();
        while let Some(value) = stack.pop() {
            if above.values.insert(value)
                && !is_known(value)
                && let ValueDef::Node(node, _) = self.func.values[value].def
            {
                above.nodes.insert(node);
                stack.extend(&self.func.nodes[node].operands);
            }
        }
        above
    }

    /// Appends the nodes that `values` need beyond what `map` has.
    pub(super) fn append_above(&self, b: &mut Builder, values: &[ValueId], map: &mut Map) -> Result<()> {
        let needed = self.above(values, |value| map[value].is_some()).nodes;
        for node in self.func.nodes.ids().filter(|&node| needed.contains(node)) {
            let known: SmallVec<[_; 2]> =
                self.func.nodes[node].results.iter().map(|&value| map[value]).collect();
            b.append_node(&self.func, node, &|callee| callee, map)?;
            // A kept result of a node with several stays the kept one.
            for (&value, known) in self.func.nodes[node].results.iter().zip(known) {
                map[value] = known.or(map[value]);
            }
        }
        Ok(())
    }
}

struct Above {
    nodes: IdSet<NodeId>,
    /// Those known included.
    values: IdSet<ValueId>,
}

/// Sets flags; whether any has changed.
fn grow(flags: &mut [bool], holds: impl Fn(usize) -> bool) -> bool {
    let mut grown = false;
    for (position, flag) in flags.iter_mut().enumerate() {
        grown |= !*flag && holds(position);
        *flag |= holds(position);
    }
    grown
}

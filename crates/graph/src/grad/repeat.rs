//! The rule of repeat: a repeat that goes backward. The forward one is replaced by one that also keeps, for every
//! iteration, what the gradients need: rows of tensors with one row an iteration. What is cheap is computed
//! again instead, and what stays the same in all iterations (weights) is not kept.

use super::later::{self, Term};
use super::{Gradients, Visit};
use crate::builder::{Builder, Map};
use crate::module::{Func, FuncId, Node, NodeId, ValueDef, ValueId};
use crate::op::Op;
use crate::types::TensorType;
use pando_base::{BinaryFn, DType, IdSet, Result, SideTable, UnaryFn};
use smallvec::SmallVec;

pub(super) fn repeat(b: &mut Builder, at: &Visit, count: u64, body: FuncId) -> Result<Gradients> {
    let given: Vec<bool> = at.results.iter().map(Option::is_some).collect();
    let joint = Joint::new(b, body, &at.wanted, given)?;
    let kept = joint.kept();
    let forward_stacks = append_forward_loop(b, at, &joint, &kept, count, body)?;
    append_backward_loop(b, at, &joint, &kept, count, body, &forward_stacks)
}

/// Replaces the repeat by one that also gives the stacks.
fn append_forward_loop(
    b: &mut Builder,
    at: &Visit,
    joint: &Joint,
    kept: &Kept,
    count: u64,
    body: FuncId,
) -> Result<Vec<ValueId>> {
    if kept.stacked.is_empty() {
        return Ok(vec![]);
    }
    let mut operands = at.node.operands.to_vec();
    operands.extend(empty_stacks(b, joint, &kept.stacked, count)?);
    let body = joint.forward(b, body, kept, count)?;
    let results = b.insert(Op::Repeat { count, body }, &operands)?;
    b.supersede(&at.node.results, &results);
    Ok(results[at.node.results.len()..].to_vec())
}

fn empty_stacks(b: &mut Builder, joint: &Joint, values: &[ValueId], count: u64) -> Result<Vec<ValueId>> {
    values.iter().map(|&value| b.splat(&stacked(joint.func.ty(value), count), 0.0)).collect()
}

fn append_backward_loop(
    b: &mut Builder,
    at: &Visit,
    joint: &Joint,
    kept: &Kept,
    count: u64,
    body: FuncId,
    forward_stacks: &[ValueId],
) -> Result<Gradients> {
    let mut gradients: Gradients = at.results.clone().into_iter().collect();
    let mut operands = Vec::new();
    for &position in &joint.carried {
        operands.push(match gradients[position] {
            Some(gradient) => gradient,
            None => b.splat_like(at.operand(position), 0.0)?,
        });
    }
    operands.extend(kept.same.iter().map(|&position| at.operand(position)));
    operands.extend_from_slice(forward_stacks);
    operands.extend(empty_stacks(b, joint, &kept.written, count)?);
    let results = if operands.is_empty() {
        operands.into()
    } else {
        let backward = joint.backward(b, body, kept, count)?;
        b.insert(Op::Repeat { count, body: backward }, &operands)?
    };
    for (position, gradient) in gradients.iter_mut().enumerate() {
        match joint.carried.iter().position(|&carried| carried == position) {
            Some(index) => *gradient = Some(results[index]),
            None if !joint.later.iter().any(|(later, _)| *later == position) => *gradient = None,
            None => {}
        }
    }
    let written = &results[results.len() - kept.written.len()..];
    for (position, terms) in &joint.later {
        for term in terms {
            let stack = |factor: &ValueId| match kept.written.iter().position(|value| value == factor) {
                Some(index) => written[index],
                None => forward_stacks[kept.stacked.iter().position(|value| value == factor).expect("kept")],
            };
            let stacks: Vec<ValueId> = term.factors.iter().map(stack).collect();
            let sum = term.sum(b, &stacks)?;
            gradients[*position] = Some(match gradients[*position] {
                Some(gradient) => b.add(gradient, sum)?,
                None => sum,
            });
        }
    }
    Ok(gradients)
}

/// The type of one row for each iteration.
fn stacked(ty: &TensorType, count: u64) -> TensorType {
    let dims = std::iter::once(count.into()).chain(ty.dims.iter().cloned());
    TensorType { dtype: ty.dtype, dims: dims.collect() }
}

/// The body with its gradients: a function of the iteration number, the carried values, and gradients of the
/// carried values after the iteration. Its results are those before the iteration, in the same order.
struct Joint {
    func: Func,
    /// The carried values whose gradients are carried back.
    carried: Vec<usize>,
    /// Their gradients after the iteration: parameters.
    seeds: Vec<ValueId>,
    /// Terms of the gradients of carried values that are added up after the loop.
    later: Vec<(usize, Vec<Term>)>,
    /// The body's results.
    outputs: Vec<ValueId>,
}

/// Values of the joint function that the gradients need from the forward side.
struct Kept {
    stacked: Vec<ValueId>,
    /// Carried values that are the same in all iterations, by position.
    same: Vec<usize>,
    /// Factors of later sums that are computed on the way back, where they are kept then.
    written: Vec<ValueId>,
}

impl Joint {
    /// `active` and `given` grow until they hold for every iteration: a value that depends on an active one becomes
    /// active in the next one, and what such a value needs gets a gradient in the one before.
    fn new(b: &mut Builder, body: FuncId, wanted: &[bool], mut given: Vec<bool>) -> Result<Joint> {
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
                return Ok(Joint { func, carried, seeds, later: vec![], outputs }.with_later_sums());
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

    fn num_carried(&self) -> usize {
        self.outputs.len()
    }

    /// Takes out of the loop what can wait until after it.
    fn with_later_sums(mut self) -> Joint {
        let (mut carried, mut seeds, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for (index, position) in std::mem::take(&mut self.carried).into_iter().enumerate() {
            let (seed, mut result) = (self.seeds[index], self.func.results[index]);
            if let Some((terms, rest)) = later::split(&self.func, result, seed)
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
    fn kept(&self) -> Kept {
        let backward = self.backward_values();
        let mut factors: Vec<ValueId> =
            self.later.iter().flat_map(|(_, terms)| terms).flat_map(|term| &term.factors).copied().collect();
        let mut stack: Vec<ValueId> = self.func.results.iter().chain(&factors).copied().collect();
        let mut seen: IdSet<ValueId> = IdSet::default();
        let mut kept = Kept { stacked: vec![], same: vec![], written: vec![] };
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

    /// The body that also writes row `i` of each stack.
    fn forward(&self, b: &mut Builder, body: FuncId, kept: &Kept, count: u64) -> Result<FuncId> {
        b.begin(&b.unique_func_name(&format!("{}.keep", b.module().funcs[body].name)));
        let result = self.append_forward(b, kept, count).inspect_err(|_| b.abandon())?;
        Ok(b.end(&result))
    }

    fn append_forward(&self, b: &mut Builder, kept: &Kept, count: u64) -> Result<Vec<ValueId>> {
        let mut map: Map = SideTable::with_default(None);
        for &param in &self.func.params[..1 + self.num_carried()] {
            map[param] = Some(b.param("", self.func.ty(param).clone()));
        }
        let stacks: Vec<ValueId> =
            kept.stacked.iter().map(|&value| b.param("", stacked(self.func.ty(value), count))).collect();
        let needed: Vec<ValueId> = self.outputs.iter().chain(&kept.stacked).copied().collect();
        self.append_above(b, &needed, &mut map)?;
        let here = |map: &Map, value| map[value].expect("appended above");
        let mut results: Vec<ValueId> = self.outputs.iter().map(|&value| here(&map, value)).collect();
        let rows = write_rows(b, here(&map, self.func.params[0]), &kept.stacked, &stacks, &map)?;
        results.extend(rows);
        Ok(results)
    }

    /// The body that goes backward: carries gradients, then what stays the same, then stacks, then those it writes.
    fn backward(&self, b: &mut Builder, body: FuncId, kept: &Kept, count: u64) -> Result<FuncId> {
        b.begin(&b.unique_func_name(&format!("{}.grad", b.module().funcs[body].name)));
        let result = self.append_backward(b, kept, count).inspect_err(|_| b.abandon())?;
        Ok(b.end(&result))
    }

    fn append_backward(&self, b: &mut Builder, kept: &Kept, count: u64) -> Result<Vec<ValueId>> {
        let mut map: Map = SideTable::with_default(None);
        let done = b.param("", TensorType::scalar(DType::I32));
        for &seed in &self.seeds {
            map[seed] = Some(b.param("", self.func.ty(seed).clone()));
        }
        let mut unchanged = Vec::new();
        for &position in &kept.same {
            let param = self.func.params[1 + position];
            map[param] = Some(b.param("", self.func.ty(param).clone()));
            unchanged.extend(map[param]);
        }
        let stacks: Vec<ValueId> =
            kept.stacked.iter().map(|&value| b.param("", stacked(self.func.ty(value), count))).collect();
        let last = b.scalar(DType::I32, (count - 1) as f64);
        let iteration = b.sub(last, done)?;
        map[self.func.params[0]] = Some(iteration);
        for (&value, &stack) in kept.stacked.iter().zip(&stacks) {
            map[value] = Some(b.gather(stack, iteration, 0)?);
        }
        let written: Vec<ValueId> =
            kept.written.iter().map(|&value| b.param("", stacked(self.func.ty(value), count))).collect();
        let needed: Vec<ValueId> = self.func.results.iter().chain(&kept.written).copied().collect();
        self.append_above(b, &needed, &mut map)?;
        let mut results: Vec<ValueId> =
            self.func.results.iter().map(|&value| map[value].expect("appended above")).collect();
        results.extend(unchanged.into_iter().chain(stacks));
        write_rows(b, iteration, &kept.written, &written, &map).map(|rows| [results, rows].concat())
    }

    /// Appends the nodes that `values` need beyond what `map` has.
    fn append_above(&self, b: &mut Builder, values: &[ValueId], map: &mut Map) -> Result<()> {
        let mut needed: IdSet<NodeId> = IdSet::default();
        let mut stack = values.to_vec();
        while let Some(value) = stack.pop() {
            if let ValueDef::Node(node, _) = self.func.values[value].def
                && map[value].is_none()
                && needed.insert(node)
            {
                stack.extend(&self.func.nodes[node].operands);
            }
        }
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

/// The stacks with the row of this iteration written.
fn write_rows(
    b: &mut Builder,
    iteration: ValueId,
    values: &[ValueId],
    stacks: &[ValueId],
    map: &Map,
) -> Result<Vec<ValueId>> {
    let place = b.reshape(iteration, [1u64])?;
    let write = |(&value, &stack): (&ValueId, &ValueId)| {
        let value = map[value].expect("appended above");
        let row = b.reshape(value, stacked(b.ty(value), 1).dims)?;
        b.scatter(stack, place, row, 0, None)
    };
    values.iter().zip(stacks).map(write).collect()
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

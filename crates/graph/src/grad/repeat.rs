//! The rule of repeat: a repeat that goes backward. The forward one is replaced by one that also keeps, for every
//! iteration, what the gradients need (`joint.rs`): rows of tensors with one row an iteration. What is cheap is
//! computed again instead, and what stays the same in all iterations (weights) is not kept. Sums that can wait are
//! made after the loop (`later.rs`).

use super::joint::{Joint, Kept};
use super::{Gradients, Visit};
use crate::builder::{Builder, Map};
use crate::module::{FuncId, ValueId};
use crate::op::Op;
use crate::types::TensorType;
use pando_base::{DType, Result, SideTable};

pub(super) fn repeat(b: &mut Builder, at: &Visit, count: u64, body: FuncId) -> Result<Gradients> {
    let given: Vec<bool> = at.results.iter().map(Option::is_some).collect();
    let joint = Joint::new(b, body, count, &at.wanted, given)?;
    let kept = joint.kept();
    let name = b.module().funcs[body].name.clone();
    let loops = Loops { joint, kept, count, name };
    let stacks = loops.append_forward(b, at)?;
    let (mut gradients, written) = loops.append_backward(b, at, &stacks)?;
    loops.append_later_sums(b, &mut gradients, &stacks, &written)?;
    Ok(gradients)
}

struct Loops {
    joint: Joint,
    kept: Kept,
    count: u64,
    /// The body's.
    name: String,
}

impl Loops {
    /// The type of a value's rows of all iterations.
    fn stacked(&self, value: ValueId) -> TensorType {
        rows(self.joint.func.ty(value), self.count)
    }

    fn empty_stacks(&self, b: &mut Builder, values: &[ValueId]) -> Result<Vec<ValueId>> {
        values.iter().map(|&value| b.splat(&self.stacked(value), 0.0)).collect()
    }

    fn stack_params(&self, b: &mut Builder, values: &[ValueId]) -> Vec<ValueId> {
        values.iter().map(|&value| b.param("", self.stacked(value))).collect()
    }

    /// A value of the joint function as a parameter.
    fn param(&self, b: &mut Builder, map: &mut Map, value: ValueId) -> ValueId {
        let param = b.param("", self.joint.func.ty(value).clone());
        map[value] = Some(param);
        param
    }

    /// Replaces the repeat by one that also gives the stacks of all that is kept.
    fn append_forward(&self, b: &mut Builder, at: &Visit) -> Result<Vec<ValueId>> {
        if self.kept.stacked.is_empty() {
            return Ok(vec![]);
        }
        let mut operands = at.node.operands.to_vec();
        operands.extend(self.empty_stacks(b, &self.kept.stacked)?);
        b.begin(&b.unique_func_name(&format!("{}.keep", self.name)));
        let results = self.append_forward_body(b).inspect_err(|_| b.abandon())?;
        let body = b.end(&results);
        let results = b.insert(Op::Repeat { count: self.count, body }, &operands)?;
        b.supersede(&at.node.results, &results);
        Ok(results[at.node.results.len()..].to_vec())
    }

    fn append_forward_body(&self, b: &mut Builder) -> Result<Vec<ValueId>> {
        let (joint, kept) = (&self.joint, &self.kept);
        let mut map: Map = SideTable::with_default(None);
        for &param in &joint.func.params[..1 + joint.num_carried()] {
            self.param(b, &mut map, param);
        }
        let stacks = self.stack_params(b, &kept.stacked);
        joint.append_above(b, &[joint.outputs.as_slice(), &kept.stacked].concat(), &mut map)?;
        let iteration = map[joint.func.params[0]].expect("a parameter");
        let rows = write_rows(b, iteration, &kept.stacked, &stacks, &map)?;
        Ok(values(&map, &joint.outputs).chain(rows).collect())
    }

    /// The gradients that the loop carries, and the stacks that it writes.
    fn append_backward(
        &self,
        b: &mut Builder,
        at: &Visit,
        stacks: &[ValueId],
    ) -> Result<(Gradients, Vec<ValueId>)> {
        let (joint, kept) = (&self.joint, &self.kept);
        let mut operands = Vec::new();
        for &position in &joint.carried {
            let zeros = b.splat_like(at.operand(position), 0.0)?;
            operands.push(at.results[position].unwrap_or(zeros));
        }
        for &(position, _) in &joint.by_row {
            let zeros = b.splat_like(at.operand(position), 0.0)?;
            operands.push(at.results[position].unwrap_or(zeros));
        }
        operands.extend(kept.same.iter().map(|&position| at.operand(position)));
        let read = kept.stacked.iter().zip(stacks).filter(|(value, _)| kept.read.contains(value));
        operands.extend(read.map(|(_, &stack)| stack));
        operands.extend(self.empty_stacks(b, &kept.written)?);
        let mut gradients: Gradients = at.node.operands.iter().map(|_| None).collect();
        for (position, _) in &joint.later {
            gradients[*position] = at.results[*position];
        }
        if joint.carried.is_empty() && kept.written.is_empty() {
            return Ok((gradients, vec![]));
        }
        b.begin(&b.unique_func_name(&format!("{}.grad", self.name)));
        let results = self.append_backward_body(b).inspect_err(|_| b.abandon())?;
        let body = b.end(&results);
        let results = b.insert(Op::Repeat { count: self.count, body }, &operands)?;
        for (&position, &result) in joint.carried.iter().zip(&results) {
            gradients[position] = Some(result);
        }
        Ok((gradients, results[results.len() - kept.written.len()..].to_vec()))
    }

    /// Carries gradients, then those that are read by row, then what stays the same, then the stacks it reads, then those it writes.
    fn append_backward_body(&self, b: &mut Builder) -> Result<Vec<ValueId>> {
        let (joint, kept) = (&self.joint, &self.kept);
        let mut map: Map = SideTable::with_default(None);
        let done = b.param("", TensorType::scalar(DType::I32));
        for &seed in &joint.seeds {
            self.param(b, &mut map, seed);
        }
        let mut unchanged = Vec::new();
        for &(_, seed) in &joint.by_row {
            unchanged.push(self.param(b, &mut map, seed));
        }
        for &position in &kept.same {
            unchanged.push(self.param(b, &mut map, joint.func.params[1 + position]));
        }
        let read = self.stack_params(b, &kept.read);
        let written = self.stack_params(b, &kept.written);
        let last = b.scalar(DType::I32, (self.count - 1) as f64);
        let iteration = b.sub(last, done)?;
        map[joint.func.params[0]] = Some(iteration);
        for (&value, &stack) in kept.read.iter().zip(&read) {
            map[value] = Some(b.gather(stack, iteration, 0)?);
        }
        joint.append_above(b, &joint.backward_results(kept), &mut map)?;
        let rows = write_rows(b, iteration, &kept.written, &written, &map)?;
        let gradients = values(&map, &joint.func.results);
        Ok(gradients.chain(unchanged).chain(read).chain(rows).collect())
    }

    fn append_later_sums(
        &self,
        b: &mut Builder,
        gradients: &mut Gradients,
        stacks: &[ValueId],
        written: &[ValueId],
    ) -> Result<()> {
        let kept = &self.kept;
        let stack_of = |factor: &ValueId| {
            let mut all = kept.stacked.iter().zip(stacks).chain(kept.written.iter().zip(written));
            *all.find(|(value, _)| *value == factor).expect("factors are kept or written").1
        };
        for (position, terms) in &self.joint.later {
            for term in terms {
                let factors: Vec<ValueId> = term.factors.iter().map(stack_of).collect();
                let sum = term.sum(b, &factors)?;
                gradients[*position] = Some(match gradients[*position] {
                    Some(gradient) => b.add(gradient, sum)?,
                    None => sum,
                });
            }
        }
        Ok(())
    }
}

/// The type of `count` of a type.
fn rows(ty: &TensorType, count: u64) -> TensorType {
    let dims = std::iter::once(count.into()).chain(ty.dims.iter().cloned());
    TensorType { dtype: ty.dtype, dims: dims.collect() }
}

fn values<'a>(map: &'a Map, of: &'a [ValueId]) -> impl Iterator<Item = ValueId> + 'a {
    of.iter().map(|&value| map[value].expect("appended before"))
}

/// The stacks with the row of this iteration written.
fn write_rows(
    b: &mut Builder,
    iteration: ValueId,
    of: &[ValueId],
    stacks: &[ValueId],
    map: &Map,
) -> Result<Vec<ValueId>> {
    let place = b.reshape(iteration, [1u64])?;
    let write = |(value, &stack): (ValueId, &ValueId)| {
        let row = b.reshape(value, rows(b.ty(value), 1).dims)?;
        b.scatter(stack, place, row, 0, None)
    };
    values(map, of).zip(stacks).map(write).collect()
}

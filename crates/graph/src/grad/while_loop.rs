//! The rule of while where the program says how often it runs: a carried integer starts at a constant, grows by a
//! constant in every iteration, and is compared with a constant. Such a loop is a repeat, and has its gradients.

use super::{Gradients, Visit, repeat};
use crate::builder::Builder;
use crate::errors;
use crate::module::{Func, FuncId, Node, ValueDef, ValueId};
use crate::op::Op;
use crate::types::TensorType;
use pando_base::{BinaryFn, CompareFn, DType, Result};

pub(super) fn while_loop(b: &mut Builder, at: &Visit, cond: FuncId, body: FuncId) -> Result<Gradients> {
    let Some(count) = (Loop { b, node: at.node, cond, body }).count() else {
        return Err(errors::not_differentiable(
            "while",
            "how often it runs is not known, as no integer counts from a constant by a constant to a constant; use \
             repeat, or detach its operands",
        ));
    };
    if count == 0 {
        return Ok(at.results.iter().copied().collect());
    }
    let body = counted(b, body)?;
    let node = Node { op: Op::Repeat { count, body }, ..at.node.clone() };
    let at = Visit { node: &node, results: at.results.clone(), wanted: at.wanted.clone() };
    repeat::repeat(b, &at, count, body)
}

/// The body with the number of the iteration as its first parameter, which it does not need.
fn counted(b: &mut Builder, body: FuncId) -> Result<FuncId> {
    let source = b.module().funcs[body].clone();
    b.begin(&b.unique_func_name(&format!("{}.counted", source.name)));
    b.param("", TensorType::scalar(DType::I32));
    let params = b.params_of(&source);
    let results = b.append(&source, &params, |callee| callee).inspect_err(|_| b.abandon())?;
    Ok(b.end(&results))
}

struct Loop<'a> {
    b: &'a Builder,
    node: &'a Node,
    cond: FuncId,
    body: FuncId,
}

impl Loop<'_> {
    /// How often the body runs, if a counter says so.
    fn count(&self) -> Option<u64> {
        let cond = self.func(self.cond);
        let node = maker(cond, cond.results[0])?;
        let &[x, y] = node.operands.as_slice() else { return None };
        let Op::Compare(compare) = node.op else { return None };
        self.count_of(compare, x, y).or_else(|| self.count_of(mirrored(compare), y, x))
    }

    /// While `counter` compares so with `bound`, two values of the condition.
    fn count_of(&self, compare: CompareFn, counter: ValueId, bound: ValueId) -> Option<u64> {
        let ValueDef::Param(position) = self.func(self.cond).values[counter].def else { return None };
        let position = position as usize;
        let (low, high) = self.func(self.cond).ty(counter).dtype.int_range()?;
        let start = self.b.known(self.node.operands[position])?.to_ints();
        let (start, bound) = (*start.first()?, self.number(self.cond, bound)?);
        let step = self.step(position)?;
        let count = iterations(compare, start, bound, step)?;
        let last = start.checked_add(count.checked_mul(step)?)?;
        ((low..=high).contains(&last) && count <= i128::from(i32::MAX)).then_some(count as u64)
    }

    /// What the body adds to a carried value.
    fn step(&self, position: usize) -> Option<i128> {
        let body = self.func(self.body);
        let (before, node) = (body.params[position], maker(body, body.results[position])?);
        let &[x, y] = node.operands.as_slice() else { return None };
        match node.op {
            Op::Binary(BinaryFn::Add) if x == before => self.number(self.body, y),
            Op::Binary(BinaryFn::Add) if y == before => self.number(self.body, x),
            Op::Binary(BinaryFn::Sub) if x == before => self.number(self.body, y).map(|step| -step),
            _ => None,
        }
    }

    /// A constant of one of the functions, or one that the loop carries unchanged.
    fn number(&self, func: FuncId, value: ValueId) -> Option<i128> {
        let tensor = match self.func(func).values[value].def {
            ValueDef::Param(position) => {
                let (body, position) = (self.func(self.body), position as usize);
                let unchanged = body.results[position] == body.params[position];
                self.b.known(self.node.operands[position]).filter(|_| unchanged)?
            }
            ValueDef::Node(..) => match maker(self.func(func), value)?.op {
                Op::Constant(id) if self.b.module().consts[id].shape.num_elements() == 1 => {
                    self.b.module().consts[id].materialize()
                }
                _ => return None,
            },
        };
        tensor.dtype().is_int().then(|| tensor.to_ints().first().copied())?
    }

    fn func(&self, id: FuncId) -> &Func {
        &self.b.module().funcs[id]
    }
}

fn maker(func: &Func, value: ValueId) -> Option<&Node> {
    match func.values[value].def {
        ValueDef::Node(node, _) => Some(&func.nodes[node]),
        ValueDef::Param(_) => None,
    }
}

/// The comparison with its sides changed.
fn mirrored(compare: CompareFn) -> CompareFn {
    match compare {
        CompareFn::Lt => CompareFn::Gt,
        CompareFn::Le => CompareFn::Ge,
        CompareFn::Gt => CompareFn::Lt,
        CompareFn::Ge => CompareFn::Le,
        same => same,
    }
}

/// How many of `start`, `start + step`, … compare so with `bound` before the first that does not; `None` if all do.
fn iterations(compare: CompareFn, start: i128, bound: i128, step: i128) -> Option<i128> {
    match compare {
        CompareFn::Lt if start >= bound => Some(0),
        CompareFn::Lt => (step > 0).then(|| (bound - start + step - 1) / step),
        CompareFn::Le => iterations(CompareFn::Lt, start, bound + 1, step),
        CompareFn::Gt => iterations(CompareFn::Lt, -start, -bound, -step),
        CompareFn::Ge => iterations(CompareFn::Le, -start, -bound, -step),
        CompareFn::Ne if start == bound => Some(0),
        CompareFn::Ne => {
            let meets = step != 0 && (bound - start) % step == 0 && (bound - start) / step > 0;
            meets.then(|| (bound - start) / step)
        }
        CompareFn::Eq if start != bound => Some(0),
        CompareFn::Eq => (step != 0).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_are_those_that_a_loop_makes() {
        for compare in CompareFn::ALL {
            for (start, bound, step) in (0..7 * 7 * 7).map(|i| (i % 7 - 3, i / 7 % 7 - 3, i / 49 - 3)) {
                let runs = |x: i128| match compare {
                    CompareFn::Lt => x < bound,
                    CompareFn::Le => x <= bound,
                    CompareFn::Gt => x > bound,
                    CompareFn::Ge => x >= bound,
                    CompareFn::Ne => x != bound,
                    CompareFn::Eq => x == bound,
                };
                let found = (0..100).find(|&count| !runs(start + count * step));
                assert_eq!(iterations(compare, start, bound, step), found, "{start} {compare} {bound} by {step}");
            }
        }
    }
}

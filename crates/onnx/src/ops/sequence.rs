//! Sequences and optionals: lists while importing, gone afterwards.

use super::layout;
use crate::ctx::Ctx;
use crate::errors;
use crate::import::{Value, subgraph};
use pando_base::{DType, Result, Tensor};
use std::rc::Rc;

fn list(values: Vec<Value>) -> Result<Vec<Value>> {
    Ok(vec![Value::List(Rc::new(values))])
}

pub(super) fn construct(c: &mut Ctx) -> Result<Vec<Value>> {
    list((0..c.inputs.len()).map(|position| c.value(position).cloned()).collect::<Result<_>>()?)
}

pub(super) fn empty(_: &mut Ctx) -> Result<Vec<Value>> {
    list(vec![])
}

/// A known position in a list of `length`; negative ones count from the end.
fn place(c: &Ctx, position: usize, length: usize) -> Result<usize> {
    let at = c.known_int(position)?;
    let from_start = if at < 0 { at.saturating_add(length as i64) } else { at };
    usize::try_from(from_start).map_err(|_| errors::invalid(format!("position {at} of {length} elements")))
}

pub(super) fn at(c: &mut Ctx) -> Result<Vec<Value>> {
    let items = c.list(0)?;
    let at = place(c, 1, items.len())?;
    let item =
        items.get(at).ok_or_else(|| errors::invalid(format!("position {at} of {} elements", items.len())))?;
    Ok(vec![item.clone()])
}

pub(super) fn insert(c: &mut Ctx) -> Result<Vec<Value>> {
    let mut items = c.list(0)?.to_vec();
    let at = if c.value_opt(2).is_some() { place(c, 2, items.len())? } else { items.len() };
    if at > items.len() {
        return Err(errors::invalid(format!("position {at} of {} elements", items.len())));
    }
    items.insert(at, c.value(1)?.clone());
    list(items)
}

pub(super) fn erase(c: &mut Ctx) -> Result<Vec<Value>> {
    let mut items = c.list(0)?.to_vec();
    let at = if c.value_opt(1).is_some() { place(c, 1, items.len())? } else { items.len().saturating_sub(1) };
    if at >= items.len() {
        return Err(errors::invalid(format!("position {at} of {} elements", items.len())));
    }
    items.remove(at);
    list(items)
}

pub(super) fn length(c: &mut Ctx) -> Result<Vec<Value>> {
    let length = c.list(0)?.len() as i64;
    let id = c.ints_const(DType::I64, &[], &[length]);
    Ok(vec![Value::tensor(c.b, id)])
}

pub(super) fn concat(c: &mut Ctx) -> Result<Vec<Value>> {
    let items = c.list(0)?;
    let mut parts = Vec::new();
    let stack = c.flag("new_axis", false);
    for item in items.iter() {
        let Value::Tensor(tensor) = item else {
            return Err(errors::invalid(format!("the sequence holds {}", item.kind())));
        };
        let id = if stack {
            let axis = c.axis_of(c.int("axis", 0), c.rank(tensor.id) + 1)?;
            c.unsqueeze(tensor.id, &[axis])?
        } else {
            tensor.id
        };
        parts.push(id);
    }
    let joined = layout::concat_of(c, &parts, c.int("axis", 0))?;
    Ok(vec![Value::tensor(c.b, joined)])
}

pub(super) fn split(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = c.tensor(0)?.clone();
    let axis = c.axis_of(c.int("axis", 0), c.rank(x.id))?;
    let size = c.size(x.id, axis)?;
    let (sizes, keep): (Vec<u64>, bool) = match c.opt(1)? {
        None => (vec![1; size.min(1 << 16) as usize], c.flag("keepdims", true)),
        Some(split) if c.rank(split) == 0 => {
            let each = u64::try_from(c.known_int(1)?).unwrap_or(0).max(1);
            let part = |i: u64| each.min(size - i * each);
            ((0..size.div_ceil(each)).map(part).collect(), true)
        }
        Some(_) => (c.known_ints(1)?.into_iter().map(|size| size.max(0) as u64).collect(), true),
    };
    let (mut begin, mut items) = (0u64, Vec::new());
    for size in sizes {
        let part = c.part(x.id, axis, begin, begin.saturating_add(size))?;
        let part = if keep { part } else { c.squeeze(part, &[axis])? };
        items.push(Value::typed(part, x.elem));
        begin = begin.saturating_add(size);
    }
    list(items)
}

/// The body once per element of the first input; other sequences go along, tensors stay.
pub(super) fn map(c: &mut Ctx) -> Result<Vec<Value>> {
    let graph = c.graph("body")?;
    let items = c.list(0)?;
    let mut outputs: Vec<Vec<Value>> = vec![vec![]; graph.output.len()];
    for at in 0..items.len() {
        let mut inputs = Vec::new();
        for position in 0..c.inputs.len() {
            inputs.push(match c.value(position)? {
                Value::List(list) => {
                    list.get(at).cloned().ok_or_else(|| errors::invalid("a sequence is too short"))?
                }
                other => other.clone(),
            });
        }
        let results = subgraph::inline(c.b, c.scope, graph, inputs)?;
        outputs.iter_mut().zip(results).for_each(|(output, result)| output.push(result));
    }
    Ok(outputs.into_iter().map(|items| Value::List(Rc::new(items))).collect())
}

pub(super) fn optional(c: &mut Ctx) -> Result<Vec<Value>> {
    Ok(vec![c.value_opt(0).cloned().unwrap_or(Value::Absent)])
}

pub(super) fn optional_has_element(c: &mut Ctx) -> Result<Vec<Value>> {
    let has = !matches!(c.value_opt(0), None | Some(Value::Absent));
    let id = c.b.constant(Tensor::from_ints(DType::Bool, [], &[has.into()]));
    Ok(vec![Value::tensor(c.b, id)])
}

pub(super) fn optional_get_element(c: &mut Ctx) -> Result<Vec<Value>> {
    match c.value(0)? {
        Value::Absent => Err(errors::invalid("the optional has no element")),
        value => Ok(vec![value.clone()]),
    }
}

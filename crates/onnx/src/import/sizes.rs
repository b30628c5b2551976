//! Arithmetic on vectors of sizes of which some are names: what Shape, Gather, Slice, Concat and their like
//! do to them, so that a Reshape at the end of such a chain knows its dimensions.

use super::value::{Size, TensorValue, Value};
use crate::ctx::Ctx;
use pando_base::Result;
use pando_graph::{Dim, dims};
use std::rc::Rc;

/// The product of dimensions; names in sorted order, so that the same product has the same name.
pub(crate) fn product(all: &[Dim]) -> Dim {
    let known = all.iter().filter_map(Dim::known).fold(1u64, u64::saturating_mul);
    let mut named: Vec<&Dim> = all.iter().filter(|dim| dim.known().is_none()).collect();
    named.sort();
    match (known, named.as_slice()) {
        (0, _) => Dim::Known(0),
        (known, []) => Dim::Known(known),
        (1, [one]) => (*one).clone(),
        (known, _) => {
            let known = Dim::Known(known);
            named.push(&known);
            dims::derive("times", &named)
        }
    }
}

/// `whole / part`, where equal names cancel.
pub(super) fn quotient(whole: &[Dim], part: &[Dim]) -> Option<Dim> {
    let mut left: Vec<Dim> = whole.iter().filter(|dim| dim.known().is_none()).cloned().collect();
    let mut under = Vec::new();
    for dim in part.iter().filter(|dim| dim.known().is_none()) {
        match left.iter().position(|other| other == dim) {
            Some(at) => drop(left.swap_remove(at)),
            None => under.push(dim.clone()),
        }
    }
    let known = |all: &[Dim]| all.iter().filter_map(Dim::known).try_fold(1u64, u64::checked_mul);
    let (above, below) = (known(whole)?, known(part)?);
    if below == 0 {
        return None;
    }
    if under.is_empty() && above % below == 0 {
        left.push(Dim::Known(above / below));
        return Some(product(&left));
    }
    if under.is_empty() && left.is_empty() {
        return None;
    }
    Some(dims::derive("over", &[&product(whole), &product(part)]))
}

/// The dimensions of a reshape: -1 is what is left, 0 (unless `allow_zero`) the operand's.
pub(crate) fn reshape_dims(operand: &[Dim], sizes: &[Size], allow_zero: bool) -> Option<Vec<Dim>> {
    let mut result = Vec::new();
    let mut inferred = None;
    for (axis, size) in sizes.iter().enumerate() {
        result.push(match size {
            Size::Int(0) if !allow_zero => operand.get(axis)?.clone(),
            Size::Int(-1) if inferred.is_none() => {
                inferred = Some(axis);
                Dim::Known(1)
            }
            other => other.dim()?,
        });
    }
    if let Some(axis) = inferred {
        result[axis] = quotient(operand, &result)?;
    }
    Some(result)
}

/// Puts sizes beside the results of the operators that handle them.
pub(super) fn attach(ctx: &mut Ctx, values: &mut [Value]) {
    let any_named = ctx.inputs.iter().flatten().any(|value| {
        matches!(value, Value::Tensor(TensorValue { sizes: Some(sizes), .. }) if sizes.iter().any(|s| s.int().is_none()))
    });
    let Some(Value::Tensor(result)) = values.first_mut() else { return };
    if !any_named || result.sizes.is_some() || !ctx.dtype(result.id).is_int() && ctx.node.op_type != "Equal" {
        return;
    }
    result.sizes = propagate(ctx).ok().flatten().map(Rc::new);
}

/// What an input says about sizes, known numbers included.
fn input(ctx: &Ctx, position: usize) -> Option<Vec<Size>> {
    let Value::Tensor(tensor) = ctx.value_opt(position)? else { return None };
    if let Some(sizes) = &tensor.sizes {
        return Some(sizes.to_vec());
    }
    let known =
        ctx.b.known(tensor.id).filter(|known| !known.dtype().is_float() && known.shape().rank() < 2)?;
    Some(known.to_ints().into_iter().map(|value| Size::Int(value as i64)).collect())
}

fn propagate(ctx: &Ctx) -> Result<Option<Vec<Size>>> {
    let first = || input(ctx, 0);
    Ok(match ctx.node.op_type.as_str() {
        "Identity" | "Cast" | "Squeeze" | "Unsqueeze" | "Reshape" => first(),
        "Concat" => {
            (0..ctx.inputs.len()).map(|i| input(ctx, i)).collect::<Option<Vec<_>>>().map(|v| v.concat())
        }
        "Gather" => first().zip(input(ctx, 1)).and_then(|(data, indices)| gather(&data, &indices)),
        "Slice" => first().and_then(|data| slice(ctx, &data)),
        "Add" | "Sub" | "Mul" | "Div" | "Min" | "Max" | "Equal" => {
            first().zip(input(ctx, 1)).and_then(|(a, b)| zip(&ctx.node.op_type, &a, &b))
        }
        "Where" => choose(input(ctx, 0), input(ctx, 1), input(ctx, 2)),
        "ReduceProd" => {
            first().map(|sizes| vec![product_of(&sizes)]).filter(|s| s[0].int() != Some(i64::MIN))
        }
        _ => None,
    })
}

fn product_of(sizes: &[Size]) -> Size {
    match sizes.iter().map(Size::dim).collect::<Option<Vec<Dim>>>() {
        Some(dims) => Size::of(&product(&dims)),
        None => Size::Int(i64::MIN),
    }
}

fn gather(data: &[Size], indices: &[Size]) -> Option<Vec<Size>> {
    let pick = |index: &Size| {
        let index = index.int()?;
        let from_start = if index < 0 { index + data.len() as i64 } else { index };
        data.get(usize::try_from(from_start).ok()?).cloned()
    };
    indices.iter().map(pick).collect()
}

fn slice(ctx: &Ctx, data: &[Size]) -> Option<Vec<Size>> {
    let one = |position: usize, name: &str| match input(ctx, position) {
        Some(sizes) => sizes.first().and_then(Size::int),
        None => ctx.ints(name).and_then(|ints| ints.first().copied()),
    };
    let (begin, end, step) = (one(1, "starts")?, one(2, "ends")?, one(4, "steps").unwrap_or(1));
    let length = data.len() as i64;
    let place = |at: i64| (if at < 0 { at + length } else { at }).clamp(0, length) as usize;
    let (begin, end) = (place(begin), place(end));
    (step == 1 && begin <= end).then(|| data[begin..end].to_vec())
}

fn zip(op: &str, a: &[Size], b: &[Size]) -> Option<Vec<Size>> {
    let length = a.len().max(b.len());
    let at = |sizes: &[Size], i: usize| if sizes.len() == 1 { sizes.first() } else { sizes.get(i) }.cloned();
    (0..length).map(|i| combine(op, &at(a, i)?, &at(b, i)?)).collect()
}

fn combine(op: &str, a: &Size, b: &Size) -> Option<Size> {
    if let (Size::Int(a), Size::Int(b)) = (a, b) {
        return combine_ints(op, *a, *b).map(Size::Int);
    }
    // Names stand for numbers that are not negative.
    match (op, a, b) {
        ("Equal", a, b) if a == b => Some(Size::Int(1)),
        ("Equal", Size::Int(number), _) | ("Equal", _, Size::Int(number)) if *number < 0 => {
            Some(Size::Int(0))
        }
        ("Add", Size::Named(dim), Size::Int(number)) | ("Add", Size::Int(number), Size::Named(dim)) => {
            dims::offset(dim, (*number).into()).map(|dim| Size::of(&dim))
        }
        ("Add", _, _) => dims::sum(&[a.dim()?, b.dim()?]).map(|dim| Size::of(&dim)),
        ("Sub", a, b) if a == b => Some(Size::Int(0)),
        ("Sub", Size::Named(dim), Size::Int(number)) => {
            dims::offset(dim, -i128::from(*number)).map(|dim| Size::of(&dim))
        }
        ("Mul", a, b) => Some(Size::of(&product(&[a.dim()?, b.dim()?]))),
        ("Div", a, b) => quotient(&[a.dim()?], &[b.dim()?]).map(|dim| Size::of(&dim)),
        ("Min" | "Max", a, b) if a == b => Some(a.clone()),
        _ => None,
    }
}

fn combine_ints(op: &str, a: i64, b: i64) -> Option<i64> {
    match op {
        "Add" => a.checked_add(b),
        "Sub" => a.checked_sub(b),
        "Mul" => a.checked_mul(b),
        "Div" => a.checked_div(b),
        "Min" => Some(a.min(b)),
        "Max" => Some(a.max(b)),
        "Equal" => Some((a == b).into()),
        _ => None,
    }
}

fn choose(condition: Option<Vec<Size>>, x: Option<Vec<Size>>, y: Option<Vec<Size>>) -> Option<Vec<Size>> {
    let (condition, x, y) = (condition?, x?, y?);
    let length = condition.len().max(x.len()).max(y.len());
    let at = |sizes: &[Size], i: usize| if sizes.len() == 1 { sizes.first() } else { sizes.get(i) }.cloned();
    (0..length)
        .map(|i| match at(&condition, i)?.int()? {
            0 => at(&y, i),
            _ => at(&x, i),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshapes_of_named_sizes() {
        let check = |operand: &[Dim], sizes: &[Size], expect: &str| {
            let dims = reshape_dims(operand, sizes, false);
            let text = dims.map(|dims| dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(" "));
            assert_eq!(text.as_deref().unwrap_or("none"), expect);
        };
        let (n, three, four) = (Dim::named("N"), Dim::Known(3), Dim::Known(4));
        let int = Size::Int;
        check(&[n.clone(), three.clone(), four.clone()], &[int(0), int(-1)], "N 12");
        check(&[n.clone(), three.clone(), four.clone()], &[int(-1), int(12)], "N 12");
        check(&[n.clone(), three.clone(), four.clone()], &[int(-1), int(4)], "N.times.3 4");
        check(&[n.clone(), four.clone()], &[Size::Named(n), int(2), int(-1)], "N 2 2");
        check(&[three, four], &[int(-1), int(5)], "none");
    }
}

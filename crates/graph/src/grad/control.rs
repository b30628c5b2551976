//! Rules of ops that run functions. A function's gradient is a function `NAME.grad` of its arguments and the
//! gradients of its results. It computes what it needs of the function again: the arguments are all that is kept
//! until then. A composite's is a composite of that name.

use super::{Gradients, Visit, composites};
use crate::builder::Builder;
use crate::module::{FuncId, ValueId};
use pando_base::Result;
use smallvec::SmallVec;

/// A function, the results whose gradients are given, the parameters whose gradients are wanted, and whether all
/// those are results even where they are zero.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct GradientKey {
    func: FuncId,
    given: Vec<bool>,
    wanted: Vec<bool>,
    all: bool,
}

/// A function of all parameters and the given gradients; its results are the gradients of `params`. `None` if
/// there are none.
#[derive(Clone)]
pub(crate) struct GradientFunc {
    func: Option<FuncId>,
    params: Vec<usize>,
}

pub(super) fn call(b: &mut Builder, at: &Visit, func: FuncId) -> Result<Gradients> {
    if let Some((name, key)) = b.composite_key(func)
        && let Some(gradients) = composites::rule(b, at, &name, &key)?
    {
        return Ok(gradients);
    }
    let key = key(at, func, at.wanted.to_vec(), false);
    let gradient = gradient_func(b, key)?;
    let mut gradients = none(at);
    let Some(func) = gradient.func else { return Ok(gradients) };
    let results = b.call(func, &arguments(at, 0))?;
    for (param, result) in gradient.params.into_iter().zip(results) {
        gradients[param] = Some(result);
    }
    Ok(gradients)
}

pub(super) fn if_else(
    b: &mut Builder,
    at: &Visit,
    then_func: FuncId,
    else_func: FuncId,
) -> Result<Gradients> {
    let gradient = |b: &mut Builder, func| gradient_func(b, key(at, func, at.wanted[1..].to_vec(), true));
    let (on_true, on_false) = (gradient(b, then_func)?, gradient(b, else_func)?);
    let mut gradients = none(at);
    let (Some(then_func), Some(else_func)) = (on_true.func, on_false.func) else { return Ok(gradients) };
    let mut operands = vec![at.operand(0)];
    operands.extend(arguments(at, 1));
    let results = b.insert(crate::Op::If { then_func, else_func }, &operands)?;
    for (param, result) in on_true.params.into_iter().zip(results) {
        gradients[param + 1] = Some(result);
    }
    Ok(gradients)
}

fn key(at: &Visit, func: FuncId, wanted: Vec<bool>, all: bool) -> GradientKey {
    GradientKey { func, given: at.results.iter().map(Option::is_some).collect(), wanted, all }
}

fn none(at: &Visit) -> Gradients {
    at.node.operands.iter().map(|_| None).collect()
}

/// The operands from `first` on, and the gradients of the results.
fn arguments(at: &Visit, first: usize) -> Vec<ValueId> {
    at.node.operands[first..].iter().copied().chain(at.results.iter().flatten().copied()).collect()
}

fn gradient_func(b: &mut Builder, key: GradientKey) -> Result<GradientFunc> {
    if let Some(found) = b.gradient_funcs.get(&key) {
        return Ok(found.clone());
    }
    let func = &b.module().funcs[key.func];
    let name = b.unique_func_name(&format!("{}.grad", func.name));
    let composite = func.composite.as_ref().map(|name| format!("{name}.grad"));
    b.begin_func(&name, composite);
    let gradients = append_gradients(b, &key).inspect_err(|_| b.abandon())?;
    let (params, results): (Vec<usize>, Vec<ValueId>) = gradients.into_iter().unzip();
    let func = if results.is_empty() {
        b.abandon();
        None
    } else {
        Some(b.end(&results))
    };
    let made = GradientFunc { func, params };
    b.gradient_funcs.insert(key, made.clone());
    Ok(made)
}

/// The body of a gradient function: pairs of a parameter and its gradient.
fn append_gradients(b: &mut Builder, key: &GradientKey) -> Result<Vec<(usize, ValueId)>> {
    let func = b.module().funcs[key.func].clone();
    let params = b.params_of(&func);
    let results: Vec<Option<ValueId>> = func
        .results
        .iter()
        .zip(&key.given)
        .map(|(&result, given)| given.then(|| b.param("", func.ty(result).clone())))
        .collect();
    let outputs = b.append(&func, &params, |callee| callee)?;
    let outputs: Vec<(ValueId, ValueId)> =
        outputs.into_iter().zip(results).filter_map(|(output, seed)| Some((output, seed?))).collect();
    let wanted: Vec<usize> = (0..params.len()).filter(|&position| key.wanted[position]).collect();
    let wrt: Vec<ValueId> = wanted.iter().map(|&position| params[position]).collect();
    let gradients = b.gradients(&outputs, &wrt)?;
    let mut found: SmallVec<[(usize, ValueId); 4]> = SmallVec::new();
    for ((position, param), gradient) in wanted.into_iter().zip(wrt).zip(gradients) {
        let gradient = match gradient {
            None if key.all => Some(b.splat_like(param, 0.0)?),
            gradient => gradient,
        };
        found.extend(gradient.map(|gradient| (position, gradient)));
    }
    Ok(found.into_vec())
}

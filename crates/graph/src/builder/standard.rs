//! Recognises the standard composites in a module that comes from elsewhere: a name is a hint, meaning is the
//! body, so it has to be node by node the one that the builder makes.

use super::Builder;
use crate::consts::Const;
use crate::module::{Func, FuncId, Module, ValueId};
use crate::op::Op;
use pando_base::{Result, Tensor};

impl Builder {
    /// Notes what a function is if it is a standard composite, as if it had been built here.
    pub(super) fn note_standard(&mut self, id: FuncId) {
        let func = &self.module.funcs[id];
        if let Some((name, key)) = recognised(&self.module, func) {
            let types = func.param_types().into_iter().cloned().collect();
            self.composites.entry((format!("{name} {key}"), types)).or_insert(id);
            self.composite_keys.insert(id, (name, key));
        }
    }
}

type Build = fn(&mut Builder, &[ValueId], f64) -> Result<()>;

fn recognised(module: &Module, func: &Func) -> Option<(String, String)> {
    let name = func.composite.as_deref()?;
    let (params, build): (usize, Build) = match name {
        "sigmoid" => (1, |b, x, _| b.sigmoid(x[0]).map(drop)),
        "silu" => (1, |b, x, _| b.silu(x[0]).map(drop)),
        "gelu" => (1, |b, x, _| b.gelu(x[0]).map(drop)),
        "gelu_tanh" => (1, |b, x, _| b.gelu_tanh(x[0]).map(drop)),
        "softmax" => (1, |b, x, _| b.softmax(x[0], b.ty(x[0]).rank().saturating_sub(1)).map(drop)),
        "log_softmax" => (1, |b, x, _| b.log_softmax(x[0], b.ty(x[0]).rank().saturating_sub(1)).map(drop)),
        "layer_norm" => (3, |b, x, epsilon| b.layer_norm(x[0], x[1], x[2], epsilon).map(drop)),
        "rms_norm" => (2, |b, x, epsilon| b.rms_norm(x[0], x[1], epsilon).map(drop)),
        "batch_norm_training" => {
            (3, |b, x, epsilon| b.batch_norm_training(x[0], x[1], x[2], epsilon).map(drop))
        }
        _ => return None,
    };
    if func.params.len() != params {
        return None;
    }
    if params == 1 {
        return is_built_by(module, func, |b, x| build(b, x, 0.0)).then(|| (name.into(), String::new()));
    }
    let is_epsilon = |&epsilon: &f64| is_built_by(module, func, |b, x| build(b, x, epsilon));
    let epsilon = scalars(module, func).into_iter().find(is_epsilon)?;
    Some((name.into(), epsilon.to_string()))
}

/// Numbers that are all of a small constant: candidates for an epsilon.
fn scalars(module: &Module, func: &Func) -> Vec<f64> {
    let splat = |constant: &Const| {
        let small = constant.shape.num_elements() <= super::MAX_FOLDED_ELEMENTS;
        let values = small.then(|| constant.materialize().to_f64())?;
        let first = *values.first()?;
        values.iter().all(|&value| value == first).then_some(first)
    };
    let constants = func.nodes.values().filter_map(|node| match node.op {
        Op::Constant(id) => Some(&module.consts[id]),
        _ => None,
    });
    constants.filter_map(splat).collect()
}

/// Whether a function is, node by node, the composite of its name that `build` makes of its parameters.
pub(crate) fn is_built_by(
    module: &Module,
    func: &Func,
    build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<()>,
) -> bool {
    let mut b = Builder::new();
    b.begin("main");
    let args = b.params_of(func);
    if build(&mut b, &args).is_err() {
        return false;
    }
    b.end(&[]);
    let built = b.module();
    let mut candidates = built.funcs.values().filter(|candidate| candidate.composite == func.composite);
    candidates.any(|expected| same_body(built, expected, module, func))
}

/// Whether two functions are node by node the same, constants compared by their elements. Names do not count.
pub fn same_body(a_module: &Module, a: &Func, b_module: &Module, b: &Func) -> bool {
    let constant = |module: &Module, op: &Op| -> Option<Tensor> {
        if let Op::Constant(id) = op { Some(module.consts[*id].materialize()) } else { None }
    };
    let same_op = |a: &Op, b: &Op| match (constant(a_module, a), constant(b_module, b), a, b) {
        (Some(a), Some(b), ..) => a == b,
        // Composites nest: silu calls sigmoid. Valid modules do not recurse.
        (_, _, Op::Call(a), Op::Call(b)) => {
            same_body(a_module, &a_module.funcs[*a], b_module, &b_module.funcs[*b])
        }
        _ => a == b,
    };
    let mut nodes = a.nodes.values().zip(b.nodes.values());
    let types = |func: &Func| func.values.values().map(|value| value.ty.clone()).collect::<Vec<_>>();
    a.nodes.len() == b.nodes.len()
        && nodes.all(|(a, b)| same_op(&a.op, &b.op) && a.operands == b.operands && a.results == b.results)
        && a.results == b.results
        && types(a) == types(b)
}

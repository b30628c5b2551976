//! Composites with a plan of their own. A name is a hint; meaning is the body: a composite is recognised
//! only if its body is, node by node, the one that the graph builder makes for that name.

use pando_base::{DType, Result, Tensor};
use pando_graph::{Builder, Func, Module, Op, TensorType, ValueId, same_body};

/// Over the last axis of f32, but for activations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Composite {
    Softmax,
    LogSoftmax,
    /// Operands: x, scale, bias.
    LayerNorm {
        epsilon: f32,
    },
    /// Operands: x, scale.
    RmsNorm {
        epsilon: f32,
    },
    /// Element by element; part of fused passes.
    Activation(Activation),
}

/// Functions of one element whose body is several ops: one loop computes the same bits in fewer passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    Sigmoid,
    Silu,
    Gelu,
    GeluTanh,
}

/// `widened`: floats of 16 bits are f32.
pub fn recognise(module: &Module, func: &Func, widened: bool) -> Option<Composite> {
    let types = func.param_types();
    let same_float = |dtype| types.iter().all(|ty| ty.dtype == dtype);
    let computed_in_f32 =
        same_float(DType::F32) || widened && [DType::F16, DType::BF16].into_iter().any(same_float);
    if !computed_in_f32 || func.params.is_empty() || func.results.len() != 1 {
        return None;
    }
    let same =
        |build: &dyn Fn(&mut Builder, &[ValueId]) -> Result<ValueId>| is_body_of(module, func, &types, build);
    let name = func.composite.as_deref()?;
    let activation = |activation| Some(Composite::Activation(activation));
    match name {
        "sigmoid" => return activation(Activation::Sigmoid).filter(|_| same(&|b, args| b.sigmoid(args[0]))),
        "silu" => return activation(Activation::Silu).filter(|_| same(&|b, args| b.silu(args[0]))),
        "gelu" => return activation(Activation::Gelu).filter(|_| same(&|b, args| b.gelu(args[0]))),
        "gelu_tanh" => {
            return activation(Activation::GeluTanh).filter(|_| same(&|b, args| b.gelu_tanh(args[0])));
        }
        _ => {}
    }
    let last = types[0].rank().checked_sub(1)?;
    let mut epsilons = scalars(module, func).into_iter();
    match name {
        "softmax" => same(&|b, args| b.softmax(args[0], last)).then_some(Composite::Softmax),
        "log_softmax" => same(&|b, args| b.log_softmax(args[0], last)).then_some(Composite::LogSoftmax),
        "layer_norm" if types.len() == 3 => epsilons
            .find(|&epsilon| same(&|b, args| b.layer_norm(args[0], args[1], args[2], epsilon.into())))
            .map(|epsilon| Composite::LayerNorm { epsilon }),
        "rms_norm" if types.len() == 2 => epsilons
            .find(|&epsilon| same(&|b, args| b.rms_norm(args[0], args[1], epsilon.into())))
            .map(|epsilon| Composite::RmsNorm { epsilon }),
        _ => None,
    }
}

/// Numbers that are all of a constant: candidates for an epsilon. The builder folds small broadcasts, so they
/// may have any shape.
pub fn scalars(module: &Module, func: &Func) -> Vec<f32> {
    const MOST: u64 = 1 << 16;
    let tensors = func.nodes.values().filter_map(|node| match node.op {
        Op::Constant(id) if module.consts[id].shape.num_elements() <= MOST => {
            Some(module.consts[id].materialize())
        }
        _ => None,
    });
    let splat = |tensor: Tensor| {
        let values = tensor.as_slice::<f32>()?;
        let first = *values.first()?;
        values.iter().all(|&value| value == first).then_some(first)
    };
    tensors.filter_map(splat).collect()
}

/// Whether `func` is node by node what `build` makes as the body of a composite.
pub fn is_body_of(
    module: &Module,
    func: &Func,
    types: &[&TensorType],
    build: &dyn Fn(&mut Builder, &[ValueId]) -> Result<ValueId>,
) -> bool {
    let mut b = Builder::new();
    b.begin("main");
    let args: Vec<ValueId> = types.iter().map(|&ty| b.param("", ty.clone())).collect();
    let Ok(result) = build(&mut b, &args) else { return false };
    b.end(&[result]);
    let built = b.finish();
    let found = built.funcs.values().find(|candidate| candidate.composite == func.composite);
    found.is_some_and(|expected| same_body(&built, expected, module, func))
}

//! What depends on constants alone is computed while compiling, where that takes no more room than what it is
//! computed from: the factors that a batch norm of an inference model comes down to, reshaped biases, indices.
//! Large tensors stay as they are but for their shape: their elements are not needed to plan, and rearranging them
//! costs the machine nothing that counts.

use pando_graph::{Const, ConstData, Func, Module, Op, TensorType, ValueDef, ValueId, eval};

const MAX_ELEMENTS: u64 = 1 << 16;

/// Appends the constant that `op` makes of constants, and returns it; nothing if it is not of that kind.
pub fn folded(module: &mut Module, op: &Op, operands: &[ValueId], target: &mut Func) -> Option<ValueId> {
    if operands.is_empty() || !op.funcs().is_empty() || matches!(op, Op::Random { .. } | Op::Sort(_)) {
        return None;
    }
    let sources: Vec<_> = operands.iter().map(|&value| constant(value, target)).collect::<Option<_>>()?;
    let shapes = sources.iter().map(|&id| &module.consts[id].shape);
    let room: u64 = shapes.map(|shape| shape.num_elements()).sum();
    let types = pando_graph::infer(op, &target.operand_types(operands), module).expect("a valid operation");
    let ty = types[0].clone();
    if let (Op::Reshape { .. }, [source]) = (op, sources.as_slice()) {
        // The same elements, however many they are.
        let shape = ty.shape()?;
        let source = &module.consts[*source];
        let data = match &source.data {
            ConstData::Dense(tensor) => ConstData::Dense(tensor.clone().reshaped(shape.clone())),
            rule => rule.clone(),
        };
        let name = format!("{}.{}", source.name, module.consts.len());
        let reshaped = Const { name, dtype: source.dtype, shape, data };
        return Some(pushed(module, reshaped, ty, target));
    }
    let elements = ty.shape()?.num_elements();
    if room > MAX_ELEMENTS || elements > room || elements == 0 {
        return None;
    }
    let mut single = Module::default();
    let mut func = Func::new("main");
    let params: Vec<ValueId> =
        operands.iter().map(|&value| func.push_param("", target.ty(value).clone())).collect();
    let node = func.push_node(op.clone(), params, types);
    func.results = func.nodes[node].results.to_vec();
    let main = single.funcs.push(func);
    let args: Vec<_> = sources.iter().map(|&id| module.consts[id].materialize()).collect();
    let tensor = eval(&single, main, &args).ok()?.swap_remove(0);
    let folded = Const {
        name: format!("folded.{}", module.consts.len()),
        dtype: ty.dtype,
        shape: tensor.shape().clone(),
        data: ConstData::Dense(tensor),
    };
    Some(pushed(module, folded, ty, target))
}

fn pushed(module: &mut Module, constant: Const, ty: TensorType, target: &mut Func) -> ValueId {
    let node = target.push_node(Op::Constant(module.consts.push(constant)), [], [ty]);
    target.nodes[node].results[0]
}

/// The constant that a value is.
fn constant(value: ValueId, func: &Func) -> Option<pando_graph::ConstId> {
    match func.values[value].def {
        ValueDef::Node(node, _) => match func.nodes[node].op {
            Op::Constant(id) => Some(id),
            _ => None,
        },
        ValueDef::Param(_) => None,
    }
}

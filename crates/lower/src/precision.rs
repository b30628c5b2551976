//! A model in other number formats than its own. In: a valid module. Out: one whose floats have the types of the
//! precision asked for; integers stay as they are.

use pando_base::{DType, F8Format, SideTable};
use pando_graph::{
    Const, ConstData, ConstId, Conv, Dot, Func, Module, Node, Op, TensorType, ValueDef, ValueId,
};
use rustc_hash::FxHashMap;

/// Number formats of a whole model: data type, and type of partial sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// As the model says.
    Unchanged,
    F32,
    /// f16 data and f16 partial sums (vendor's 16.16).
    F16,
    /// f16 data, f32 partial sums (16.32).
    F16F32,
    /// Operands of products in 8 bits (f143), f16 sums and everything else.
    F8,
}

/// The model in a precision.
pub fn with_precision(module: Module, precision: Precision) -> Module {
    let to = match precision {
        Precision::Unchanged => return module,
        Precision::F32 => DType::F32,
        Precision::F16 | Precision::F16F32 | Precision::F8 => DType::F16,
    };
    let module = with_floats(module, to);
    if precision == Precision::F8 { with_f8_products(module) } else { module }
}

/// Replaces f32 and f16 by one of them.
fn with_floats(module: Module, to: DType) -> Module {
    let convert = |dtype: &mut DType| {
        if matches!(dtype, DType::F32 | DType::F16) {
            *dtype = to;
        }
    };
    let mut out = module;
    for (_, constant) in out.consts.iter_mut() {
        if let pando_graph::ConstData::Dense(tensor) = &mut constant.data
            && matches!(tensor.dtype(), DType::F32 | DType::F16)
            && tensor.dtype() != to
        {
            *tensor = tensor.rounded_to(to);
        }
        convert(&mut constant.dtype);
    }
    for (_, func) in out.funcs.iter_mut() {
        retype(func, convert);
    }
    out
}

/// Changes the types of a function's values, and those that its operations name.
pub(crate) fn retype(func: &mut Func, change: impl Fn(&mut DType)) {
    func.values.iter_mut().for_each(|(_, value)| change(&mut value.ty.dtype));
    for (_, node) in func.nodes.iter_mut() {
        match &mut node.op {
            Op::Iota { dtype, .. } | Op::Random { dtype, .. } | Op::Convert(dtype) => change(dtype),
            Op::Dot(Dot { dtype: Some(dtype), .. }) | Op::Conv(Conv { dtype: Some(dtype), .. }) => {
                change(dtype)
            }
            _ => {}
        }
    }
}

/// Operands of products as f143. Each constant gets the power of two at which its largest element just fits;
/// computed values are taken as they are: up to ±240, 3 bits after the leading one down to 2^-7.
fn with_f8_products(mut module: Module) -> Module {
    let mut narrowed = FxHashMap::default();
    let ids: Vec<_> = module.funcs.ids().collect();
    for id in ids {
        let func = std::mem::take(&mut module.funcs[id]);
        module.funcs[id] = Narrower::new(&mut module, &mut narrowed, &func).run(&func);
    }
    module
}

struct Narrower<'a> {
    module: &'a mut Module,
    /// Constants in 8 bits, by the constant that they were.
    narrowed: &'a mut FxHashMap<ConstId, ConstId>,
    /// Values of the new function, as they were and in 8 bits.
    same: SideTable<ValueId, Option<ValueId>>,
    narrow: FxHashMap<ValueId, ValueId>,
    out: Func,
}

impl<'a> Narrower<'a> {
    fn new(module: &'a mut Module, narrowed: &'a mut FxHashMap<ConstId, ConstId>, func: &Func) -> Self {
        let out = Func { composite: func.composite.clone(), ..Func::new(&func.name) };
        Narrower { module, narrowed, same: SideTable::default(), narrow: FxHashMap::default(), out }
    }

    fn run(mut self, func: &Func) -> Func {
        for &param in &func.params {
            let value = &func.values[param];
            self.same[param] = Some(self.out.push_param(&value.name, value.ty.clone()));
        }
        for node in func.nodes.values() {
            self.node(func, node);
        }
        self.out.results = func.results.iter().map(|&value| self.kept(value)).collect();
        self.out
    }

    fn node(&mut self, func: &Func, node: &Node) {
        let is_half = |&value: &ValueId| func.ty(value).dtype == DType::F16;
        let product = matches!(node.op, Op::Dot(_) | Op::Conv(_)) && node.operands.iter().all(is_half);
        let operands: Vec<ValueId> = node
            .operands
            .iter()
            .map(|&value| if product { self.in_8_bits(value) } else { self.kept(value) })
            .collect();
        let mut op = node.op.clone();
        if let (true, Op::Dot(Dot { dtype, .. }) | Op::Conv(Conv { dtype, .. })) = (product, &mut op) {
            dtype.get_or_insert(DType::F16);
        }
        let new = self.out.push_node(op, operands, node.results.iter().map(|&value| func.ty(value).clone()));
        for (&old, &new) in node.results.iter().zip(&self.out.nodes[new].results.clone()) {
            self.out.values[new].name.clone_from(&func.values[old].name);
            self.same[old] = Some(new);
        }
    }

    fn kept(&self, value: ValueId) -> ValueId {
        self.same[value].expect("operands come first")
    }

    fn in_8_bits(&mut self, old: ValueId) -> ValueId {
        if let Some(&value) = self.narrow.get(&old) {
            return value;
        }
        let wide = self.kept(old);
        let dims = self.out.ty(wide).dims.clone();
        let (op, operands, dtype) = match self.constant(wide) {
            Some(id) => {
                let id = self.narrowed_constant(id);
                (Op::Constant(id), vec![], self.module.consts[id].dtype)
            }
            None => {
                let dtype = DType::F8(F8Format::F143, 0);
                (Op::Convert(dtype), vec![wide], dtype)
            }
        };
        let node = self.out.push_node(op, operands, [TensorType { dtype, dims }]);
        let value = self.out.nodes[node].results[0];
        self.narrow.insert(old, value);
        value
    }

    fn constant(&self, value: ValueId) -> Option<ConstId> {
        let ValueDef::Node(node, _) = self.out.values[value].def else { return None };
        let Op::Constant(id) = self.out.nodes[node].op else { return None };
        Some(id)
    }

    fn narrowed_constant(&mut self, id: ConstId) -> ConstId {
        if let Some(&narrow) = self.narrowed.get(&id) {
            return narrow;
        }
        let constant = &self.module.consts[id];
        let dtype = DType::F8(F8Format::F143, scale_for(largest(&constant.data)));
        let data = match &constant.data {
            ConstData::Dense(tensor) => ConstData::Dense(tensor.rounded_to(dtype)),
            rule => rule.clone(),
        };
        let name = if constant.name.is_empty() { String::new() } else { format!("{}.f8", constant.name) };
        let narrow = Const { name, dtype, shape: constant.shape.clone(), data };
        let narrow = self.module.consts.push(narrow);
        self.narrowed.insert(id, narrow);
        narrow
    }
}

/// The largest magnitude; of normal numbers one that is hardly ever passed.
fn largest(data: &ConstData) -> f64 {
    match *data {
        ConstData::Dense(ref tensor) => {
            tensor.to_f64().into_iter().fold(0.0, |max, x| f64::max(max, x.abs()))
        }
        ConstData::Splat(value) => value.abs(),
        ConstData::Normal { mean, std, .. } => mean.abs() + 6.0 * std.abs(),
        ConstData::Uniform { low, high, .. } => low.abs().max(high.abs()),
    }
}

/// The smallest exponent at which the format reaches a magnitude.
fn scale_for(magnitude: f64) -> i8 {
    let exponent = (magnitude / F8Format::F143.max_value()).log2().ceil();
    // Zeros and infinities have no exponent of their own.
    if exponent.is_finite() { exponent.clamp(-32.0, 31.0) as i8 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_reach_the_largest_element_and_no_further() {
        assert_eq!([240.0, 241.0, 480.0, 1.0, 0.02].map(scale_for), [0, 1, 1, -7, -13]);
        assert_eq!([0.0, f64::INFINITY, f64::NAN, 1e-30].map(scale_for), [0, 0, 0, -32]);
    }
}

//! Operands as the matrix unit reads them. It takes neighbouring elements along the summed dimension at once, of its
//! inputs as of its weights (hardware.md section 2: 64 bits of inputs a row and cycle; section 6.5: what lies otherwise
//! is rearranged before), and an exchange cannot pull halves of words apart (poplar.md section 2.5). So what is computed
//! in another order is transposed before it is used; what is stored for its products lies as the first one wants it.
//!
//! In: a function without calls. Out: one of the same meaning, whose products sum over the last dimension of their
//! operands.

use pando_base::SideTable;
use pando_graph::{Dot, Func, Module, Node, NodeId, Op, ValueDef, ValueId, infer};
use rustc_hash::FxHashMap;

pub fn arrange(module: &Module, func: &Func) -> Func {
    let mut out = Func { composite: func.composite.clone(), ..Func::new(&func.name) };
    let mut map: SideTable<ValueId, Option<ValueId>> = SideTable::default();
    for &param in &func.params {
        map[param] = Some(out.push_param(&func.values[param].name, func.ty(param).clone()));
    }
    let mut arranger = Arranger { module, out, stored: FxHashMap::default(), made: FxHashMap::default() };
    for node in func.nodes.values() {
        let operands: Vec<ValueId> =
            node.operands.iter().map(|&value| map[value].expect("operands come first")).collect();
        let new = match &node.op {
            Op::Dot(dot) if func.ty(node.operands[0]).dtype.is_float() => {
                arranger.dot(dot, node, operands, func)
            }
            _ => arranger.copy(node.op.clone(), node, operands, func),
        };
        for (&old, &new) in node.results.iter().zip(&arranger.out.nodes[new].results.clone()) {
            arranger.out.values[new].name.clone_from(&func.values[old].name);
            map[old] = Some(new);
        }
    }
    let results = func.results.iter().map(|&value| map[value].expect("a value of the function"));
    arranger.out.results = results.collect();
    arranger.out
}

struct Arranger<'a> {
    module: &'a Module,
    out: Func,
    /// The dimension that the first product of a stored value wants last.
    stored: FxHashMap<ValueId, usize>,
    /// Values in other orders.
    made: FxHashMap<(ValueId, Vec<usize>), ValueId>,
}

impl Arranger<'_> {
    fn copy(&mut self, op: Op, node: &Node, operands: Vec<ValueId>, func: &Func) -> NodeId {
        let types: Vec<_> = node.results.iter().map(|&value| func.ty(value).clone()).collect();
        self.out.push_node(op, operands, types)
    }

    fn dot(&mut self, dot: &Dot, node: &Node, mut operands: Vec<ValueId>, func: &Func) -> NodeId {
        let mut dot = dot.clone();
        let side = |pair: &(usize, usize), side: usize| if side == 0 { pair.0 } else { pair.1 };
        for (at, operand) in operands.iter_mut().enumerate() {
            let contracted: Vec<usize> = dot.contract.iter().map(|pair| side(pair, at)).collect();
            let Some(perm) = self.needed(*operand, &contracted) else { continue };
            *operand = self.transposed(*operand, &perm);
            let place = |dim: usize| perm.iter().position(|&from| from == dim).expect("a permutation");
            for pair in dot.batch.iter_mut().chain(&mut dot.contract) {
                let dim = if at == 0 { &mut pair.0 } else { &mut pair.1 };
                *dim = place(*dim);
            }
        }
        self.copy(Op::Dot(dot), node, operands, func)
    }

    /// The order with the contracted dimensions last, if another one is last that is longer than 1.
    fn needed(&mut self, value: ValueId, contracted: &[usize]) -> Option<Vec<usize>> {
        let shape = self.out.ty(value).shape()?;
        let is_long = |dim: &usize| shape[*dim] > 1;
        let last = (0..shape.rank()).rev().find(is_long)?;
        let wanted = contracted.iter().copied().filter(is_long).max()?;
        if self.is_stored(value) {
            let lies = *self.stored.entry(value).or_insert(wanted);
            if contracted.contains(&lies) {
                return None;
            }
        } else if contracted.contains(&last) {
            return None;
        }
        let others = (0..shape.rank()).filter(|dim| !contracted.contains(dim));
        Some(others.chain((0..shape.rank()).filter(|dim| contracted.contains(dim))).collect())
    }

    /// Whether the value's elements can be stored in any order: parameters and constants.
    fn is_stored(&self, value: ValueId) -> bool {
        match self.out.values[value].def {
            ValueDef::Param(_) => true,
            ValueDef::Node(node, _) => matches!(self.out.nodes[node].op, Op::Constant(_)),
        }
    }

    fn transposed(&mut self, value: ValueId, perm: &[usize]) -> ValueId {
        let key = (value, perm.to_vec());
        if let Some(&made) = self.made.get(&key) {
            return made;
        }
        let op = Op::Transpose { perm: perm.to_vec() };
        let types = infer(&op, &self.out.operand_types(&[value]), self.module).expect("a permutation");
        let node = self.out.push_node(op, [value], types);
        let made = self.out.nodes[node].results[0];
        self.made.insert(key, made);
        made
    }
}

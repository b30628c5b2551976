//! Transposes and reshapes that products take in: a dot's dimensions are any dimensions of its operands, so it reads
//! untransposed tensors, and its result need not be transposed if its operands can be exchanged; a reshape that splits
//! or joins dimensions, as that of attention's heads, is one of the weights instead, which costs nothing.
//!
//! In: a function without calls. Out: one of the same meaning, in which what became superfluous still stands.

use crate::append::append;
use crate::fold::folded;
use pando_base::{Id, SideTable};
use pando_graph::{Dot, Func, Module, Node, Op, ValueDef, ValueId, infer, known_dims};
use std::ops::Range;

/// For each dimension of one shape those of another that it is split into.
type Groups = Vec<Range<usize>>;

pub fn absorb(module: &mut Module, func: &Func) -> Func {
    let mut out = Func { composite: func.composite.clone(), ..Func::new(&func.name) };
    let mut map: SideTable<ValueId, Option<ValueId>> = SideTable::default();
    for &param in &func.params {
        map[param] = Some(out.push_param(&func.values[param].name, func.ty(param).clone()));
    }
    let mut uses: SideTable<ValueId, usize> = SideTable::default();
    let operands = func.nodes.values().flat_map(|node| &node.operands);
    operands.chain(&func.results).for_each(|&value| uses[value] += 1);
    let mut absorber = Absorber { module, out, uses: SideTable::default() };
    for node in func.nodes.values() {
        let operands: Vec<ValueId> =
            node.operands.iter().map(|&value| map[value].expect("operands come first")).collect();
        let count = node.results.iter().map(|&value| uses[value]).max().unwrap_or(0);
        let before = absorber.out.values.len();
        let results = match absorber.simplified(node, &operands, count) {
            Some(result) => vec![result],
            None => {
                let types = node.results.iter().map(|&value| func.ty(value).clone());
                let new = absorber.out.push_node(node.op.clone(), operands, types);
                absorber.out.nodes[new].results.to_vec()
            }
        };
        for (&old, &new) in node.results.iter().zip(&results) {
            absorber.uses[new] = absorber.uses[new].max(uses[old]);
            map[old] = Some(new);
            absorber.name(&func.values[old].name, new, before);
        }
    }
    let results = func.results.iter().map(|&value| map[value].expect("a value of the function"));
    absorber.out.results = results.collect();
    absorber.out
}

struct Absorber<'a> {
    module: &'a mut Module,
    out: Func,
    /// How often values are used, as far as they stand for those of the original.
    uses: SideTable<ValueId, usize>,
}

impl Absorber<'_> {
    /// What the node comes down to, if there is anything to absorb.
    fn simplified(&mut self, node: &Node, operands: &[ValueId], uses: usize) -> Option<ValueId> {
        match &node.op {
            Op::Transpose { perm } => self.transpose(perm, operands[0]),
            Op::Dot(dot) => self.dot(dot, operands),
            Op::Reshape { .. } => {
                let sizes = self.sizes_of(node, operands)?;
                self.is_private(operands[0]).then(|| self.reshaped(operands[0], &sizes))?
            }
            op if op.is_elementwise() => self.elementwise(op, operands, uses),
            _ => None,
        }
    }

    /// The name goes to what computes the value, behind a transpose that is to be absorbed.
    fn name(&mut self, name: &str, value: ValueId, before: usize) {
        let computed = match self.source(value) {
            Some(Node { op: Op::Transpose { .. }, operands, .. }) if operands[0].index() >= before => {
                operands[0]
            }
            _ => value,
        };
        let own = &mut self.out.values[computed].name;
        if own.is_empty() && computed.index() >= before {
            *own = name.into();
        }
    }

    fn source(&self, value: ValueId) -> Option<&Node> {
        match self.out.values[value].def {
            ValueDef::Node(node, _) => Some(&self.out.nodes[node]),
            ValueDef::Param(_) => None,
        }
    }

    fn is_private(&self, value: ValueId) -> bool {
        self.uses[value] <= 1
    }

    fn shape(&self, value: ValueId) -> Option<Vec<u64>> {
        self.out.ty(value).shape().map(|shape| shape.to_vec())
    }

    fn sizes_of(&self, node: &Node, operands: &[ValueId]) -> Option<Vec<u64>> {
        let types = infer(&node.op, &self.out.operand_types(operands), self.module).ok()?;
        types[0].shape().map(|shape| shape.to_vec())
    }

    fn push(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        if let Some(result) = folded(self.module, &op, operands, &mut self.out) {
            return result;
        }
        append(self.module, &mut self.out, op, operands)
    }

    fn transposed(&mut self, value: ValueId, perm: &[usize]) -> ValueId {
        if perm.is_sorted() { value } else { self.push(Op::Transpose { perm: perm.to_vec() }, &[value]) }
    }

    /// Of a transpose: one transpose. Of a product: the product that has its dimensions so, if there is one.
    fn transpose(&mut self, perm: &[usize], value: ValueId) -> Option<ValueId> {
        let node = self.source(value)?.clone();
        match &node.op {
            Op::Transpose { perm: inner } => {
                let both: Vec<usize> = perm.iter().map(|&dim| inner[dim]).collect();
                Some(self.transposed(node.operands[0], &both))
            }
            Op::Dot(dot) if self.is_private(value) => self.transposed_dot(dot, &node, perm),
            _ => None,
        }
    }

    /// Batch dimensions may have any order, rows and columns be exchanged.
    fn transposed_dot(&mut self, dot: &Dot, node: &Node, perm: &[usize]) -> Option<ValueId> {
        let (batch, rank) = (dot.batch.len(), perm.len());
        let rows = dot.lhs_free(self.out.ty(node.operands[0]).rank()).len();
        let (first, rest) = perm.split_at(batch);
        let plain = rest.iter().copied().eq(batch..rank);
        let swapped = rest.iter().copied().eq((batch + rows..rank).chain(batch..batch + rows));
        if first.iter().any(|&dim| dim >= batch) || !(plain || swapped) {
            return None;
        }
        let dtype = Some(self.out.ty(node.results[0]).dtype);
        let pairs: Vec<(usize, usize)> = first.iter().map(|&dim| dot.batch[dim]).collect();
        if plain {
            return Some(self.push(Op::Dot(Dot { batch: pairs, dtype, ..dot.clone() }), &node.operands));
        }
        let flip = |pairs: &[(usize, usize)]| pairs.iter().map(|&(lhs, rhs)| (rhs, lhs)).collect();
        let flipped = Dot { batch: flip(&pairs), contract: flip(&dot.contract), dtype };
        Some(self.push(Op::Dot(flipped), &[node.operands[1], node.operands[0]]))
    }

    /// A function of operands that are transposed alike: of what they are transposed from.
    fn elementwise(&mut self, op: &Op, operands: &[ValueId], uses: usize) -> Option<ValueId> {
        let perm = operands.iter().find_map(|&operand| match self.source(operand) {
            Some(Node { op: Op::Transpose { perm }, .. }) if self.is_private(operand) => Some(perm.clone()),
            _ => None,
        })?;
        let sources: Vec<ValueId> =
            operands.iter().map(|&operand| self.untransposed(operand, &perm)).collect::<Option<_>>()?;
        let result = self.push(op.clone(), &sources);
        self.uses[result] = uses;
        Some(self.transposed(result, &perm))
    }

    /// What gives the value if it is transposed so.
    fn untransposed(&mut self, value: ValueId, perm: &[usize]) -> Option<ValueId> {
        let node = self.source(value)?.clone();
        match &node.op {
            Op::Transpose { perm: own } if own == perm && self.is_private(value) => Some(node.operands[0]),
            Op::Broadcast { dims, axes } => {
                let mut before = dims.clone();
                perm.iter().zip(dims).for_each(|(&dim, size)| before[dim] = size.clone());
                // Axes rise, so what is repeated is transposed where these would not.
                let mut order: Vec<usize> = (0..axes.len()).collect();
                order.sort_by_key(|&at| perm[axes[at]]);
                let axes = order.iter().map(|&at| perm[axes[at]]).collect();
                let source = self.transposed(node.operands[0], &order);
                Some(self.push(Op::Broadcast { dims: before, axes }, &[source]))
            }
            _ => None,
        }
    }

    /// A product of what its operands are transposed or joined from.
    fn dot(&mut self, dot: &Dot, operands: &[ValueId]) -> Option<ValueId> {
        let (mut dot, mut operands) = (dot.clone(), [operands[0], operands[1]]);
        dot.dtype = Some(dot.dtype.unwrap_or(self.out.ty(operands[0]).dtype));
        let mut changed = false;
        for side in 0..2 {
            while self.without_transpose(&mut dot, &mut operands, side)
                || self.without_join(&mut dot, &mut operands, side)
            {
                changed = true;
            }
        }
        changed.then(|| self.push(Op::Dot(dot), &operands))
    }

    /// Takes what an operand is transposed from, if its free dimensions keep their order.
    fn without_transpose(&self, dot: &mut Dot, operands: &mut [ValueId; 2], side: usize) -> bool {
        let Some(Node { op: Op::Transpose { perm }, operands: sources, .. }) = self.source(operands[side])
        else {
            return false;
        };
        let free = if side == 0 { dot.lhs_free(perm.len()) } else { dot.rhs_free(perm.len()) };
        if !free.iter().map(|&dim| perm[dim]).is_sorted() {
            return false;
        }
        for pair in dot.batch.iter_mut().chain(&mut dot.contract) {
            *of_side(pair, side) = perm[*of_side(pair, side)];
        }
        operands[side] = sources[0];
        true
    }

    /// Takes what an operand's contracted dimensions are joined from, if the other one's can be split for nothing.
    fn without_join(&mut self, dot: &mut Dot, operands: &mut [ValueId; 2], side: usize) -> bool {
        let Some((source, groups)) = self.joined(operands[side]) else { return false };
        let is_contracted =
            |dim: usize| dot.contract.iter().any(|pair| *of_side(&mut pair.clone(), side) == dim);
        if !groups.iter().enumerate().all(|(dim, group)| group.len() == 1 || is_contracted(dim)) {
            return false;
        }
        let Some(sizes) = self.shape(source) else { return false };
        let Some(mut other) = self
            .shape(operands[1 - side])
            .map(|shape| shape.into_iter().map(|size| vec![size]).collect::<Vec<Vec<u64>>>())
        else {
            return false;
        };
        for pair in &mut dot.contract.clone() {
            other[*of_side(pair, 1 - side)] = sizes[groups[*of_side(pair, side)].clone()].to_vec();
        }
        let Some(split) = self.reshaped(operands[1 - side], &other.concat()) else { return false };
        let mut others = Groups::new();
        for sizes in &other {
            let begin = others.last().map_or(0, |group: &Range<usize>| group.end);
            others.push(begin..begin + sizes.len());
        }
        let renamed = |pair: &(usize, usize)| -> Vec<(usize, usize)> {
            let mut pair = *pair;
            let (own, other) =
                (groups[*of_side(&mut pair, side)].clone(), others[*of_side(&mut pair, 1 - side)].clone());
            let sorted = |(own, other): (usize, usize)| if side == 0 { (own, other) } else { (other, own) };
            own.zip(other).map(sorted).collect()
        };
        dot.batch = dot.batch.iter().flat_map(renamed).collect();
        dot.contract = dot.contract.iter().flat_map(renamed).collect();
        operands[side] = source;
        operands[1 - side] = split;
        true
    }

    /// What a reshape that joins dimensions makes a value of.
    fn joined(&self, value: ValueId) -> Option<(ValueId, Groups)> {
        let Some(Node { op: Op::Reshape { .. }, operands, .. }) = self.source(value) else { return None };
        let groups = split_groups(&self.shape(value)?, &self.shape(operands[0])?)?;
        Some((operands[0], groups))
    }

    /// The value with some dimensions split, if that takes no reshape but of constants.
    fn reshaped(&mut self, value: ValueId, sizes: &[u64]) -> Option<ValueId> {
        if self.shape(value)? == sizes {
            return Some(value);
        }
        let groups = split_groups(&self.shape(value)?, sizes)?;
        let node = self.source(value)?.clone();
        match &node.op {
            Op::Constant(_) => {
                folded(self.module, &Op::Reshape { dims: known_dims(sizes) }, &[value], &mut self.out)
            }
            Op::Broadcast { axes, .. } => self.reshaped_broadcast(node.operands[0], axes, sizes, &groups),
            Op::Dot(dot) if self.is_private(value) => self.reshaped_dot(dot, &node, sizes, &groups),
            op if op.is_elementwise() && self.is_private(value) => {
                let sources: Vec<ValueId> = node
                    .operands
                    .iter()
                    .map(|&operand| self.reshaped(operand, sizes))
                    .collect::<Option<_>>()?;
                let result = self.push(op.clone(), &sources);
                self.move_name(value, result);
                Some(result)
            }
            _ => None,
        }
    }

    fn move_name(&mut self, from: ValueId, to: ValueId) {
        let name = std::mem::take(&mut self.out.values[from].name);
        self.out.values[to].name = name;
    }

    fn reshaped_broadcast(
        &mut self,
        source: ValueId,
        axes: &[usize],
        sizes: &[u64],
        groups: &Groups,
    ) -> Option<ValueId> {
        let shape = self.shape(source)?;
        let (mut split, mut to) = (Vec::new(), Vec::new());
        for (&axis, &size) in axes.iter().zip(&shape) {
            let whole = sizes[groups[axis].clone()].iter().product::<u64>();
            let of = |dim: usize| if size == whole { sizes[dim] } else { 1 };
            split.extend(groups[axis].clone().map(of));
            to.extend(groups[axis].clone());
        }
        let source = self.push(Op::Reshape { dims: known_dims(&split) }, &[source]);
        Some(self.push(Op::Broadcast { dims: known_dims(sizes), axes: to }, &[source]))
    }

    /// Free dimensions of a product are those of an operand.
    fn reshaped_dot(&mut self, dot: &Dot, node: &Node, sizes: &[u64], groups: &Groups) -> Option<ValueId> {
        let shapes = [self.shape(node.operands[0])?, self.shape(node.operands[1])?];
        let free = [dot.lhs_free(shapes[0].len()), dot.rhs_free(shapes[1].len())];
        let batch = dot.batch.len();
        if groups[..batch].iter().any(|group| group.len() > 1) {
            return None;
        }
        let mut at = batch;
        let mut dot = dot.clone();
        dot.dtype = Some(self.out.ty(node.results[0]).dtype);
        let mut operands = [node.operands[0], node.operands[1]];
        for side in 0..2 {
            let mut split: Vec<Vec<u64>> = shapes[side].iter().map(|&size| vec![size]).collect();
            for &dim in &free[side] {
                split[dim] = sizes[groups[at].clone()].to_vec();
                at += 1;
            }
            let begin = |dim: usize| split[..dim].iter().map(Vec::len).sum::<usize>();
            for pair in dot.batch.iter_mut().chain(&mut dot.contract) {
                *of_side(pair, side) = begin(*of_side(pair, side));
            }
            operands[side] = self.reshaped(operands[side], &split.concat())?;
        }
        let result = self.push(Op::Dot(dot), &operands);
        self.move_name(node.results[0], result);
        Some(result)
    }
}

fn of_side(pair: &mut (usize, usize), side: usize) -> &mut usize {
    if side == 0 { &mut pair.0 } else { &mut pair.1 }
}

/// Into which dimensions of `to` each of `from` is split; nothing if the shapes differ in other ways. Dimensions of
/// size 1 belong to those before them.
fn split_groups(from: &[u64], to: &[u64]) -> Option<Groups> {
    let mut at = 0;
    let mut groups = Groups::new();
    for (place, &size) in from.iter().enumerate() {
        let (begin, mut product) = (at, 1u64);
        while at < to.len() && (product < size || at == begin) {
            product = product.checked_mul(to[at])?;
            at += 1;
        }
        if place + 1 == from.len() {
            while at < to.len() && to[at] == 1 {
                at += 1;
            }
        }
        if product != size || at == begin {
            return None;
        }
        groups.push(begin..at);
    }
    (at == to.len()).then_some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_are_split() {
        assert_eq!(split_groups(&[2, 12, 5], &[2, 3, 4, 5]), Some(vec![0..1, 1..3, 3..4]));
        assert_eq!(split_groups(&[2, 6], &[2, 6, 1]), Some(vec![0..1, 1..3]));
        assert_eq!(split_groups(&[1, 6], &[1, 2, 3]), Some(vec![0..1, 1..3]));
        assert_eq!(split_groups(&[4, 6], &[8, 3]), None);
        assert_eq!(split_groups(&[4, 6], &[24]), None);
        assert_eq!(split_groups(&[], &[1]), None);
    }
}

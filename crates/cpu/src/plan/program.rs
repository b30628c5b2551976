//! Makes the register program of a group of elementwise nodes. Values of 16-bit floats are f32 in registers.

use super::Planner;
use super::gelu;
use super::groups::is_reshape;
use crate::flat::{FlatNode, ValueIndex, Work};
use crate::isa::Isa;
use crate::kernel::elementwise::{self, UnaryLoop};
use crate::kernel::half;
use crate::recognise::{Activation, Composite};
use crate::step::program::{Input, Instr, Program, Slot};
use crate::view::View;
use pando_base::{BinaryFn, DType, UnaryFn};
use pando_graph::Op;
use rustc_hash::{FxHashMap, FxHashSet};

/// A program and what its inputs are.
pub(super) struct Drafted {
    pub program: Program,
    pub inputs: Vec<View>,
}

struct Builder<'a, 'b> {
    planner: &'a mut Planner<'b>,
    isa: Isa,
    root: usize,
    sizes: Vec<usize>,
    /// Values made in this group, by the node that makes them.
    slots: FxHashMap<ValueIndex, Slot>,
    makers: FxHashMap<ValueIndex, usize>,
    views: Vec<View>,
    instrs: Vec<Instr>,
    registers: usize,
}

/// The program of the group whose last node is `root`. `members` are its nodes, in order.
pub(super) fn draft(planner: &mut Planner, root: usize, members: &[usize]) -> Drafted {
    let flat = planner.flat;
    let result = flat.nodes[root].results[0];
    let ty = &flat.values[result];
    let makers = members.iter().map(|&node| (flat.nodes[node].results[0], node)).collect();
    let isa = planner.options.isa;
    let mut builder = Builder {
        planner,
        isa,
        root,
        sizes: ty.sizes.to_vec(),
        slots: FxHashMap::default(),
        makers,
        views: Vec::new(),
        instrs: Vec::new(),
        registers: 0,
    };
    // In program order every operand's slot exists before its use; recursion could be deep.
    for (node, gelu) in needed(builder.planner, &builder.makers, result, members) {
        match gelu {
            Some((activation, x)) => builder.activation(node, activation, x),
            None => builder.node(node),
        }
    }
    let slot = builder.slots[&result];
    builder.finish(slot, ty.dtype)
}

/// The members that are not a GELU's own, in order, with what GELUs are of.
fn needed<'a>(
    planner: &Planner<'a>,
    makers: &FxHashMap<ValueIndex, usize>,
    result: ValueIndex,
    members: &[usize],
) -> Vec<(&'a FlatNode, Option<(Activation, ValueIndex)>)> {
    let mut read = FxHashSet::from_iter([result]);
    let mut needed = Vec::new();
    for &member in members.iter().rev() {
        let node = &planner.flat.nodes[member];
        if read.contains(&node.results[0]) {
            let gelu = gelu::gelu_of(planner, makers, node.results[0]);
            match gelu {
                Some((_, x)) => read.extend([x]),
                None => read.extend(node.operands.iter().copied()),
            }
            needed.push((node, gelu));
        }
    }
    needed.reverse();
    needed
}

impl Builder<'_, '_> {
    fn register(&mut self) -> Slot {
        self.registers += 1;
        Slot::Register(self.registers - 1)
    }

    fn unary(&mut self, kernel: UnaryLoop, x: Slot) -> Slot {
        let y = self.register();
        self.instrs.push(Instr::Unary(kernel, x, y));
        y
    }

    /// The slot of a value: made before in this group, or an input.
    fn slot(&mut self, value: ValueIndex) -> Slot {
        if let Some(&slot) = self.slots.get(&value) {
            return slot;
        }
        assert!(!self.makers.contains_key(&value), "operands come before node {}", self.root);
        let view = self.planner.view(value);
        let view = self.planner.reshaped(&view, &self.sizes);
        let dtype = view.dtype;
        let index = self.views.iter().position(|known| *known == view).unwrap_or_else(|| {
            self.views.push(view);
            self.views.len() - 1
        });
        let slot = match half::widen(self.isa, dtype) {
            Some(kernel) => self.unary(kernel, Slot::Input(index)),
            None => Slot::Input(index),
        };
        self.slots.insert(value, slot);
        slot
    }

    /// A small constant power of a value: products instead of a logarithm.
    fn power(&mut self, node: &FlatNode) -> Option<Slot> {
        let &[x, mut exponent] = node.operands.as_slice() else { return None };
        let is_power = matches!(node.work, Work::Op(Op::Binary(BinaryFn::Pow)));
        let dtype = self.planner.flat.values[x].dtype;
        // A reshape in the group is a view outside: powers have the same bits, however nodes are grouped.
        while let Some(&maker) = self.makers.get(&exponent) {
            let maker = &self.planner.flat.nodes[maker];
            exponent = *maker.operands.first().filter(|_| is_reshape(maker))?;
        }
        if !is_power || !dtype.is_float() {
            return None;
        }
        let kernel = elementwise::power(self.isa, self.planner.constant_of(exponent)?)?;
        let x = self.slot(x);
        let y = self.unary(kernel, x);
        Some(self.rounded(y, dtype, false))
    }

    fn activation(&mut self, node: &FlatNode, activation: Activation, x: ValueIndex) {
        let x = self.slot(x);
        let y = self.unary(elementwise::activation(self.isa, activation), x);
        self.slots.insert(node.results[0], y);
    }

    fn node(&mut self, node: &FlatNode) {
        if let Some(slot) = self.power(node) {
            self.slots.insert(node.results[0], slot);
            return;
        }
        let operands: Vec<Slot> = node.operands.iter().map(|&value| self.slot(value)).collect();
        let op = match &node.work {
            Work::Op(op) => op,
            Work::Composite(Composite::Activation(activation)) => {
                return self.activation(node, *activation, node.operands[0]);
            }
            _ => unreachable!("groups hold elementwise nodes"),
        };
        let from = self.planner.flat.values[node.operands[0]].dtype;
        let slot = match op {
            Op::Reshape { .. } => operands[0],
            Op::Unary(func) => {
                let kernel =
                    elementwise::unary(self.isa, *func, from).expect("inference has checked the type");
                let y = self.unary(kernel, operands[0]);
                self.rounded(y, from, is_exact_unary(*func))
            }
            Op::Binary(func) => {
                let kernel =
                    elementwise::binary(self.isa, *func, from).expect("inference has checked the type");
                let y = self.register();
                self.instrs.push(Instr::Binary(kernel, [operands[0], operands[1]], y));
                self.rounded(y, from, matches!(func, BinaryFn::Max | BinaryFn::Min | BinaryFn::Rem))
            }
            Op::Compare(func) => {
                let kernel = elementwise::compare(self.isa, *func, from).expect("groups hold register types");
                let y = self.register();
                self.instrs.push(Instr::Binary(kernel, [operands[0], operands[1]], y));
                y
            }
            Op::Select => self.select(node, &operands),
            Op::Convert(to) => self.convert(operands[0], from, *to),
            _ => unreachable!("{op} is not elementwise"),
        };
        self.slots.insert(node.results[0], slot);
    }

    fn rounded(&mut self, x: Slot, dtype: DType, exact: bool) -> Slot {
        match half::round(self.isa, dtype).filter(|_| !exact) {
            Some(kernel) => self.unary(kernel, x),
            None => x,
        }
    }

    fn select(&mut self, node: &FlatNode, operands: &[Slot]) -> Slot {
        let kernel = elementwise::select(
            self.planner.options.isa,
            register_bytes(self.planner.flat.values[node.results[0]].dtype),
        );
        let y = self.register();
        self.instrs.push(Instr::Select(kernel, [operands[0], operands[1], operands[2]], y));
        y
    }

    fn convert(&mut self, x: Slot, from: DType, to: DType) -> Slot {
        let same_register = from == to || from.is_float() && to == DType::F32;
        if same_register {
            return x;
        }
        let kernel = match (from.is_float(), half::round(self.isa, to)) {
            (true, Some(round)) => Some(round),
            (false, Some(_)) => half::from_int(self.isa, from, to),
            (_, None) => elementwise::convert(self.isa, from, to),
        };
        self.unary(kernel.expect("groups hold register types"), x)
    }

    /// The value at `slot` becomes the output, in the type's own format.
    fn finish(mut self, slot: Slot, dtype: DType) -> Drafted {
        let to_memory = half::narrow(self.isa, dtype);
        let is_last = self.instrs.last().is_some_and(|last| written(last) == slot);
        match to_memory {
            Some(kernel) => self.instrs.push(Instr::Unary(kernel, slot, Slot::Output)),
            None if is_last => {
                let last = self.instrs.last_mut().expect("the last one exists");
                *written_mut(last) = Slot::Output;
            }
            None => {
                let copy = copy_of(self.isa, register_bytes(dtype));
                self.instrs.push(Instr::Unary(copy, slot, Slot::Output));
            }
        }
        let registers = share_registers(&mut self.instrs, self.registers);
        let program = Program {
            inputs: self.views.iter().map(Input::of).collect(),
            instrs: self.instrs,
            registers,
            output_bytes: dtype.size_bytes() as usize,
        };
        Drafted { program, inputs: self.views }
    }
}

/// Copies elements of so many bytes.
pub(super) fn copy_of(isa: Isa, bytes: usize) -> UnaryLoop {
    let bits = unsigned_of(bytes);
    elementwise::convert(isa, bits, bits).expect("integers have registers")
}

fn unsigned_of(bytes: usize) -> DType {
    match bytes {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

/// Bytes of an element in a register.
fn register_bytes(dtype: DType) -> usize {
    if dtype.is_float() { 4 } else { dtype.size_bytes() as usize }
}

/// Functions whose results are values of the type without rounding.
fn is_exact_unary(func: UnaryFn) -> bool {
    use UnaryFn::{Abs, Ceil, Floor, Neg, Round, Sign};
    matches!(func, Neg | Abs | Sign | Floor | Ceil | Round)
}

fn written(instr: &Instr) -> Slot {
    match *instr {
        Instr::Unary(_, _, y) | Instr::Binary(_, _, y) | Instr::Select(_, _, y) => y,
    }
}

fn written_mut(instr: &mut Instr) -> &mut Slot {
    match instr {
        Instr::Unary(_, _, y) | Instr::Binary(_, _, y) | Instr::Select(_, _, y) => y,
    }
}

fn read_mut(instr: &mut Instr) -> &mut [Slot] {
    match instr {
        Instr::Unary(_, x, _) => std::slice::from_mut(x),
        Instr::Binary(_, operands, _) => operands,
        Instr::Select(_, operands, _) => operands,
    }
}

/// Renumbers registers so that one that nothing reads any more is used again. An instruction's result never
/// takes a register it reads: loops over overlapping memory are not vectorised. Returns how many remain.
fn share_registers(instrs: &mut [Instr], count: usize) -> usize {
    let mut last_read = vec![0; count];
    for (index, instr) in instrs.iter_mut().enumerate() {
        for slot in read_mut(instr) {
            if let Slot::Register(register) = *slot {
                last_read[register] = index;
            }
        }
    }
    let (mut new, mut free, mut used) = (vec![usize::MAX; count], Vec::new(), 0);
    for (index, instr) in instrs.iter_mut().enumerate() {
        let mut released = Vec::new();
        for slot in read_mut(instr) {
            if let Slot::Register(register) = *slot {
                *slot = Slot::Register(new[register]);
                if last_read[register] == index && !released.contains(&new[register]) {
                    released.push(new[register]);
                }
            }
        }
        if let Slot::Register(register) = written(instr) {
            new[register] = free.pop().unwrap_or_else(|| {
                used += 1;
                used - 1
            });
            *written_mut(instr) = Slot::Register(new[register]);
        }
        free.append(&mut released);
    }
    used
}

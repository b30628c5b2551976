//! Makes steps of nodes. Layout ops become views; the rest becomes a step each, the cheapest that suits.

use super::product::is_summed_in_f32;
use super::reduce::is_small;
use super::state::Declared;
use super::{Changes, Draft, Place, Plan, Planner, program};
use crate::constants::Constant;
use crate::flat::{Flat, FlatNode, FlatType, Work};
use crate::kernel::elementwise::convert;
use crate::kernel::half;
use crate::step::control::Control;
use crate::step::conv::interleave::Interleave;
use crate::step::fallback::Fallback;
use crate::step::movement::{Movement, pad_views};
use crate::step::order::Order;
use crate::step::program::{Input, Instr, Program, Slot};
use crate::step::{Kind, Step};
use crate::view::View;
use pando_base::{DType, Result};
use pando_graph::{Dot, Op, Pad};
use std::sync::Arc;

impl Planner<'_> {
    pub(super) fn node(&mut self, index: usize, node: &FlatNode) -> Result<()> {
        match self.groups.root(index) {
            Some(root) if root == index => {
                self.name = node.name.clone();
                let view = self.group(root);
                self.views[node.results[0]] = Some(view);
                return Ok(());
            }
            Some(_) => return Ok(()),
            None => {}
        }
        self.name = node.name.clone();
        let results = match &node.work {
            Work::Op(op) => self.op(index, op, node),
            Work::BlockedConv(conv) => {
                self.blocked_conv(conv, node);
                return Ok(());
            }
            Work::Bytes(conv) => vec![self.bytes(conv, node)],
            Work::KernelGradient(conv) => vec![self.kernel_gradient(conv, node)],
            Work::Constant(constant) => vec![self.constant(constant, node.results[0])],
            Work::Composite(composite) => vec![self.rows(*composite, node)],
            Work::If { then, otherwise } => {
                let [then, otherwise] = self.stateless_children([then, otherwise])?;
                self.control(node, Control::If { then, otherwise }, None)
            }
            Work::While { cond, body } => {
                let [cond, body] = self.stateless_children([cond, body])?;
                self.control(node, Control::While { cond, body }, Some(DType::Bool))
            }
            Work::BatchNorm { .. } | Work::BatchNormGradient { .. } => unreachable!("rewritten in blocks"),
            &Work::Norm(what) => self.norm(what, node),
            &Work::RowGradient(gradient) => self.row_gradient(gradient, index, node),
            Work::PoolGradient(window) => vec![self.pool_gradient(window, node)],
            Work::Interleave { strides, phases } => {
                let inputs = self.operands(node).into_iter().map(|view| self.dense(view)).collect();
                let kind = Kind::Interleave(Interleave { strides: *strides, phases: phases.clone() });
                let ty = &self.flat.values[node.results[0]];
                vec![self.emit(kind, inputs, ty.dtype, &ty.sizes)]
            }
            &Work::Shuffle { channels, groups } => vec![self.shuffle(channels, groups, node)],
            &Work::Images { count, parts, ref body } => {
                let state =
                    Declared { steady: (parts..node.operands.len()).collect(), ..Declared::default() };
                let body = self.child(body, &state)?;
                self.control(node, Control::Images { count, parts, body }, None)
            }
            Work::Repeat { count, body } => self.repeat(*count, body, node)?,
        };
        for (&value, view) in node.results.iter().zip(results) {
            self.views[value] = Some(view);
        }
        Ok(())
    }

    fn constant(&mut self, constant: &Arc<Constant>, value: usize) -> View {
        let sizes: Vec<usize> = constant.shape.iter().map(|&size| size as usize).collect();
        let view = View::dense(crate::view::BufferId::default(), constant.dtype, &sizes);
        let draft = Draft {
            bytes: view.num_bytes(),
            place: constant.held().map(Place::Const),
            changes: Changes::Never,
            constant: Some((Arc::clone(constant), value)),
        };
        View { buffer: self.buffers.push(draft), ..view }
    }

    fn group(&mut self, root: usize) -> View {
        let members: Vec<usize> = (0..=root).filter(|&node| self.groups.root(node) == Some(root)).collect();
        if let Some(view) = self.pass(root, &members) {
            return view;
        }
        let drafted = program::draft(self, root, &members);
        self.attach(root, drafted.program, drafted.inputs)
    }

    /// Carried values are updated where they are; those that stay the same are the operands themselves.
    fn repeat(&mut self, count: u64, body: &Flat, node: &FlatNode) -> Result<Vec<View>> {
        let all = 0..node.operands.len();
        let is_carried = |&position: &usize| body.results[position] != body.params[1 + position];
        let carried: Vec<usize> = all.clone().filter(is_carried).collect();
        let steady = all.clone().filter(|position| !is_carried(position)).map(|position| 1 + position);
        let state = Declared {
            steady: steady.collect(),
            aliases: all.map(|position| (1 + position, position)).collect(),
            count: Some(count),
        };
        if carried.is_empty() {
            return Ok(self.operands(node));
        }
        let body = self.child(body, &state)?;
        let operands = self.operands(node).into_iter().enumerate();
        let inputs: Vec<View> = operands
            .map(|(position, view)| if carried.contains(&position) { view } else { self.dense(view) })
            .collect();
        let mut results = inputs.clone();
        let changes = self.changes_of(&inputs);
        for &position in &carried {
            let view = self.new_view(inputs[position].dtype, &inputs[position].sizes, changes);
            results[position] = view;
        }
        let outputs = carried.iter().map(|&position| results[position].clone()).collect();
        let scratch = Some(self.new_view(DType::I32, &[], Changes::EachRun));
        let kind = Kind::Control(Control::Repeat { count, body, carried });
        self.steps.push(Step { name: self.name.clone(), kind, inputs, outputs, scratch });
        Ok(results)
    }

    fn child(&mut self, flat: &Flat, state: &Declared) -> Result<usize> {
        let plan: Plan = super::plan(flat, state, self.options, self.pool, self.shared)?;
        self.children.push(plan);
        Ok(self.children.len() - 1)
    }

    fn stateless_children(&mut self, [a, b]: [&Flat; 2]) -> Result<[usize; 2]> {
        let state = Declared::default();
        Ok([self.child(a, &state)?, self.child(b, &state)?])
    }

    fn control(&mut self, node: &FlatNode, control: Control, scratch: Option<DType>) -> Vec<View> {
        let operands = self.operands(node);
        let inputs: Vec<View> = operands.into_iter().map(|view| self.dense(view)).collect();
        let scratch = scratch.map(|dtype| self.new_view(dtype, &[], Changes::EachRun));
        self.emit_several(Kind::Control(control), inputs, node, scratch)
    }

    pub(super) fn emit_several(
        &mut self,
        kind: Kind,
        inputs: Vec<View>,
        node: &FlatNode,
        scratch: Option<View>,
    ) -> Vec<View> {
        let flat = self.flat;
        let changes = self.changes_of(&inputs);
        let types = node.results.iter().map(|&value| &flat.values[value]);
        let outputs: Vec<View> = types.map(|ty| self.new_view(ty.dtype, &ty.sizes, changes)).collect();
        let name = self.name.clone();
        self.steps.push(Step { name, kind, inputs, outputs: outputs.clone(), scratch });
        outputs
    }

    fn op(&mut self, index: usize, op: &Op, node: &FlatNode) -> Vec<View> {
        let flat = self.flat;
        let ty = &flat.values[node.results[0]];
        let operands = self.operands(node);
        let first = || operands[0].clone();
        vec![match op {
            Op::Reshape { .. } => self.reshaped(&operands[0], &ty.sizes),
            Op::Transpose { perm } => first().transpose(perm),
            Op::Broadcast { axes, .. } => first().broadcast(&ty.sizes, axes),
            Op::Slice(slice) => first().slice(&slice.begin, &slice.step, &ty.sizes),
            Op::Reverse { axes } => first().reverse(axes),
            Op::Bitcast(dtype) => View { dtype: *dtype, ..first() },
            Op::Concat { axis } => {
                let kind = Kind::Movement(Movement::Concat { axis: *axis });
                self.emit(kind, operands, ty.dtype, &ty.sizes)
            }
            Op::Pad(pad) => self.pad(pad, operands, ty),
            Op::Iota { axis, .. } => {
                // One line of it; along the other axes it repeats, which takes no memory.
                let kind = Kind::Movement(Movement::Iota);
                let line = self.emit(kind, Vec::new(), ty.dtype, &[ty.sizes[*axis]]);
                line.broadcast(&ty.sizes, &[*axis])
            }
            Op::Random { distribution, .. } => {
                let seed = vec![self.dense(first())];
                self.emit(
                    Kind::Order(Order::Random(*distribution, self.options.isa)),
                    seed,
                    ty.dtype,
                    &ty.sizes,
                )
            }
            _ if operands.iter().any(|view| matches!(view.dtype, DType::F8(..))) => {
                return self.fallback(op, node, operands);
            }
            Op::Sort(sort) => return self.sort(sort, node, operands),
            Op::Scatter { axis, combine } => match self.row_written(*axis, *combine, node) {
                Some(stack) => stack,
                None => self.scatter(*axis, *combine, operands, ty),
            },
            Op::Reduce { func, axes } => self.reduce(index, *func, axes, first(), ty),
            Op::ReduceWindow(window) if is_small(&window.window) => self.reduce_window(window, first(), ty),
            Op::Scan(scan) => self.scan(scan, first(), ty),
            Op::Gather { axis } => match self.row_read(*axis, node, ty) {
                Some(row) => row,
                None => self.gather(*axis, operands, ty),
            },
            Op::Dot(dot) if all_summed_in_f32(&operands, ty) => self.dot(index, dot, operands, ty),
            Op::Dot(dot) if self.is_of_bytes(dot, &operands, ty) => self.dot(index, dot, operands, ty),
            Op::Dot(dot) if all_bytes(&operands, ty) => {
                let operands = operands.into_iter().map(|view| self.as_f32(view)).collect();
                self.dot(index, dot, operands, ty)
            }
            Op::Dot(dot) if self.fits_pairs(dot, node, &operands, ty) => self.dot(index, dot, operands, ty),
            Op::Dot(dot) if ty.dtype.is_int() => self.integer_dot(dot, operands, ty),
            Op::Conv(conv) if all_bytes(&operands, ty) && ty.sizes.len() <= 5 => {
                let operands = operands.into_iter().map(|view| self.as_f32(view)).collect();
                self.conv(conv, operands, ty)
            }
            Op::Conv(conv) if all_summed_in_f32(&operands, ty) && ty.sizes.len() <= 5 => {
                self.conv(conv, operands, ty)
            }
            Op::Conv(conv) if is_whole_conv(&operands, ty) => self.conv(conv, operands, ty),
            Op::Conv(conv) if is_word_conv(&operands, ty) => self.word_conv(conv, operands, ty),
            _ => return self.fallback(op, node, operands),
        }]
    }

    /// Whether a dot is of bytes and a constant that fits them: see `quantised.rs`.
    fn is_of_bytes(&self, dot: &Dot, operands: &[View], ty: &FlatType) -> bool {
        let [x, w] = operands else { return false };
        let types = x.dtype == DType::U8 && matches!(w.dtype, DType::I8 | DType::I32);
        types && ty.dtype == DType::I32 && dot.batch.is_empty() && self.is_const(w) && !self.is_const(x)
    }

    /// Converted element by element, dense.
    pub(super) fn converted(&mut self, view: View, dtype: DType) -> View {
        if view.dtype == dtype {
            return self.dense(view);
        }
        let kernel = convert(self.options.isa, view.dtype, dtype).expect("both have registers");
        let program = Program {
            inputs: vec![Input::of(&view)],
            instrs: vec![Instr::Unary(kernel, Slot::Input(0), Slot::Output)],
            registers: 0,
            output_bytes: dtype.size_bytes() as usize,
        };
        let sizes = view.sizes.clone();
        self.emit(Kind::Elementwise(program), vec![view], dtype, &sizes)
    }

    /// Floats of 16 bits and integers of 8 as f32: for steps that read nothing else.
    pub(super) fn as_f32(&mut self, view: View) -> View {
        let isa = self.options.isa;
        let is_byte = matches!(view.dtype, DType::I8 | DType::U8);
        let widen = half::widen(isa, view.dtype);
        let Some(kernel) = widen.or_else(|| convert(isa, view.dtype, DType::F32).filter(|_| is_byte)) else {
            return view;
        };
        let program = Program {
            inputs: vec![Input::of(&view)],
            instrs: vec![Instr::Unary(kernel, Slot::Input(0), Slot::Output)],
            registers: 0,
            output_bytes: 4,
        };
        let sizes = view.sizes.clone();
        self.emit(Kind::Elementwise(program), vec![view], DType::F32, &sizes)
    }

    fn pad(&mut self, pad: &Pad, operands: Vec<View>, ty: &FlatType) -> View {
        let output = View::dense(operands[0].buffer, ty.dtype, &ty.sizes);
        let parts = Box::new(pad_views(pad, &operands[0], &output));
        self.emit(Kind::Movement(Movement::Pad(parts)), operands, ty.dtype, &ty.sizes)
    }

    fn gather(&mut self, axis: usize, operands: Vec<View>, ty: &FlatType) -> View {
        let inputs: Vec<View> = operands.into_iter().map(|view| self.dense(view)).collect();
        let sizes = &inputs[0].sizes;
        let movement = Movement::Gather {
            outer: sizes[..axis].iter().product(),
            rows: sizes[axis],
            row: sizes[axis + 1..].iter().product(),
        };
        self.emit(Kind::Movement(movement), inputs, ty.dtype, &ty.sizes)
    }

    fn fallback(&mut self, op: &Op, node: &FlatNode, operands: Vec<View>) -> Vec<View> {
        let flat = self.flat;
        let types = |values: &[usize]| values.iter().map(|&value| &flat.values[value]).collect::<Vec<_>>();
        let fallback = Fallback::new(op, &types(&node.operands), &types(&node.results));
        let inputs = operands.into_iter().map(|view| self.dense(view)).collect();
        self.emit_several(Kind::Fallback(fallback), inputs, node, None)
    }
}

fn all_summed_in_f32(operands: &[View], result: &FlatType) -> bool {
    operands.iter().all(|view| is_summed_in_f32(view.dtype)) && is_summed_in_f32(result.dtype)
}

/// Integers of 8 bits, summed in at most 32: more bits would need more than i32 totals.
fn all_bytes(operands: &[View], result: &FlatType) -> bool {
    let bytes = operands.iter().all(|view| matches!(view.dtype, DType::I8 | DType::U8));
    bytes && result.dtype.is_int() && result.dtype.size_bytes() <= 4
}

/// Of whole numbers in f32: see `quantised.rs`.
fn is_whole_conv(operands: &[View], ty: &FlatType) -> bool {
    operands.iter().all(|view| view.dtype == DType::F32) && ty.dtype == DType::I32 && ty.sizes.len() <= 5
}

/// Of words of four channels: see `quantised.rs`.
fn is_word_conv(operands: &[View], ty: &FlatType) -> bool {
    operands.iter().all(|view| view.dtype == DType::U32) && ty.dtype == DType::I32 && ty.sizes.len() <= 5
}

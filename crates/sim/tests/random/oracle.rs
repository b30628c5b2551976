//! What a program computes, from the definition and without tiles: every variable is one whole tensor, a
//! step reads what was there before it and writes each element one by one. Shares only the kernels with the
//! simulator.

use pando_base::{DType, Id, Result, Shape, Tensor};
use pando_tile::liveness::Liveness;
use pando_tile::validate::operand_block;
use pando_tile::{Access, Arg, Block, Copy, CopyMap, Group, Init, Program, Role, SrcIndex, Step, VarId};
use std::collections::BTreeMap;

/// Small values that differ from element to element.
pub fn example(dtype: DType, shape: &Shape, salt: u64) -> Tensor {
    let mut tensor = Tensor::zeros(dtype, shape.clone());
    for position in 0..shape.num_elements() as usize {
        let mixed = (position as u64 + 1).wrapping_mul(2654435761).wrapping_add(salt.wrapping_mul(97)) >> 5;
        let small = (mixed % 13) as f64 - 6.0;
        tensor.set_f64(position, if dtype.is_float() { small / 4.0 } else { small });
    }
    tensor
}

/// The value of an input or extern constant: a function of its name.
pub fn given(program: &Program, var: VarId) -> Tensor {
    let var = &program.vars[var];
    example(var.dtype, &var.shape, var.name.bytes().map(u64::from).sum())
}

/// A whole tensor and which elements have been written.
#[derive(Clone)]
struct Whole {
    data: Tensor,
    written: Vec<bool>,
}

pub struct Oracle<'a> {
    program: &'a Program,
    vars: Vec<Whole>,
    outputs: BTreeMap<VarId, Tensor>,
    /// Whether something unwritten was read.
    unwritten: bool,
    /// If given, variables lose their contents at every point at which they do not live.
    live: Option<Liveness>,
}

/// The outputs, or that something was read before it was written.
pub fn outputs(program: &Program) -> Result<BTreeMap<VarId, Tensor>, String> {
    outputs_while(program, None)
}

/// The same when nothing keeps its contents longer than it lives.
pub fn outputs_while(program: &Program, live: Option<Liveness>) -> Result<BTreeMap<VarId, Tensor>, String> {
    let mut oracle = Oracle { live, ..Oracle::new(program) };
    oracle.steps(&program.body, 0);
    if oracle.unwritten { Err("reads what was never written".into()) } else { Ok(oracle.outputs) }
}

impl<'a> Oracle<'a> {
    fn new(program: &'a Program) -> Self {
        let whole = |(id, var): (VarId, &pando_tile::Var)| {
            let count = var.shape.num_elements() as usize;
            let written = |data| Whole { data, written: vec![true; count] };
            match &var.role {
                Role::Constant(Init::Dense(tensor)) => written(tensor.clone()),
                Role::Constant(Init::Extern) => written(given(program, id)),
                Role::Constant(Init::Splat(value)) => {
                    written(Tensor::from_f64(var.dtype, var.shape.clone(), &vec![*value; count]))
                }
                _ => Whole { data: Tensor::zeros(var.dtype, var.shape.clone()), written: vec![false; count] },
            }
        };
        let vars = program.vars.iter().map(whole).collect();
        Oracle { program, vars, outputs: BTreeMap::new(), unwritten: false, live: None }
    }

    /// Runs steps of which the first is at a point of the program.
    fn steps(&mut self, steps: &[Step], mut point: u32) {
        for step in steps {
            match step {
                Step::Repeat { count, body } => (0..*count).for_each(|_| self.steps(body, point)),
                Step::Stream { count, load, body, store } => (0..*count).for_each(|_| {
                    let mut at = point;
                    for part in [load, body, store] {
                        self.steps(part, at);
                        at += count_points(part);
                    }
                }),
                Step::If { flags, then_body, else_body } => match self.flag(flags) {
                    true => self.steps(then_body, point),
                    false => self.steps(else_body, point + count_points(then_body)),
                },
                Step::While { cond, flags, body, .. } => loop {
                    self.steps(cond, point);
                    if !self.flag(flags) {
                        break;
                    }
                    self.steps(body, point + count_points(cond));
                },
                _ => {
                    self.forget(point);
                    self.step(step);
                }
            }
            point += points_of(step);
        }
    }

    fn flag(&mut self, flags: &[VarId]) -> bool {
        let whole = &self.vars[flags[0].index()];
        self.unwritten |= !whole.written[0];
        whole.data.bytes()[0] != 0
    }

    fn forget(&mut self, point: u32) {
        let Some(live) = &self.live else { return };
        for (whole, id) in self.vars.iter_mut().zip(self.program.vars.ids()) {
            if !live.ranges[id].is_some_and(|(first, last)| (first..=last).contains(&point)) {
                whole.written.fill(false);
                whole.data.bytes_mut().fill(1);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let mut after = self.vars.clone();
        match step {
            Step::Repeat { .. } | Step::Stream { .. } | Step::If { .. } | Step::While { .. } => {
                unreachable!("loops and branches were taken apart")
            }
            Step::HostIn(var) => {
                let count = after[var.index()].written.len();
                after[var.index()] = Whole { data: given(self.program, *var), written: vec![true; count] };
            }
            Step::HostOut(var) => {
                self.unwritten |= after[var.index()].written.contains(&false);
                self.outputs.insert(*var, after[var.index()].data.clone());
            }
            Step::Compute(id) => {
                self.program.compute_sets[*id].groups.iter().for_each(|group| self.group(group, &mut after));
            }
            Step::Exchange(id) => {
                self.program.exchanges[*id].copies.iter().for_each(|copy| self.copy(copy, &mut after));
            }
        }
        self.vars = after;
    }

    fn group(&mut self, group: &Group, after: &mut [Whole]) {
        for coordinates in group.grid.coordinates() {
            let blocks: Vec<Block> =
                group.operands.iter().map(|o| operand_block(self.program, group, o, &coordinates)).collect();
            let mut args: Vec<Arg> = Vec::new();
            for ((operand, block), access) in group.operands.iter().zip(&blocks).zip(group.kernel.signature())
            {
                args.push(self.arg(operand.var, block, *access));
            }
            group.kernel.run(&mut args);
            for ((operand, arg), access) in group.operands.iter().zip(&args).zip(group.kernel.signature()) {
                if *access == Access::Out {
                    let whole = &mut after[operand.var.index()];
                    for (from, index) in indices(&arg.block).enumerate() {
                        whole.set(position(&arg.shape, &index), element(&arg.data, from));
                    }
                }
            }
        }
    }

    fn arg(&mut self, var: VarId, block: &Block, access: Access) -> Arg {
        let shape = self.program.vars[var].shape.clone();
        let mut data = Tensor::zeros(self.program.vars[var].dtype, Shape::new(&block.lens()));
        let whole = &self.vars[var.index()];
        for (to, index) in indices(block).enumerate() {
            let from = position(&shape, &index);
            self.unwritten |= access == Access::In && !whole.written[from];
            set_element(&mut data, to, element(&whole.data, from));
        }
        Arg::new(block.clone(), &shape, data)
    }

    fn copy(&mut self, copy: &Copy, after: &mut [Whole]) {
        let (src, dst_shape) = (&self.vars[copy.src.index()], &self.program.vars[copy.dsts[0]].shape);
        let pairs = pairs(&copy.map, &self.program.vars[copy.src].shape, dst_shape);
        for (from, to) in pairs {
            self.unwritten |= !src.written[from];
            for &dst in &copy.dsts {
                after[dst.index()].set(to, element(&src.data, from));
            }
        }
    }
}

fn points_of(step: &Step) -> u32 {
    let bodies = step.bodies();
    if bodies.is_empty() { 1 } else { bodies.iter().map(|(body, _)| count_points(body)).sum() }
}

fn count_points(steps: &[Step]) -> u32 {
    steps.iter().map(points_of).sum()
}

/// Row-major positions of the source and destination elements of a copy.
pub fn pairs(map: &CopyMap, src_shape: &[u64], dst_shape: &[u64]) -> Vec<(usize, usize)> {
    match map {
        CopyMap::Flat { src_begin, dst_begin, len } => {
            (0..*len).map(|at| ((src_begin + at) as usize, (dst_begin + at) as usize)).collect()
        }
        CopyMap::Affine { region, dims } => {
            let source = |index: &[u64]| -> Vec<u64> {
                let at = |dim: &SrcIndex| match *dim {
                    SrcIndex::At(at) => at,
                    SrcIndex::Dst { dim, step, offset } => {
                        (step * index[dim as usize] as i64 + offset) as u64
                    }
                };
                dims.iter().map(at).collect()
            };
            indices(region)
                .map(|index| (position(src_shape, &source(&index)), position(dst_shape, &index)))
                .collect()
        }
    }
}

/// Index tuples of a block in row-major order.
pub fn indices(block: &Block) -> impl Iterator<Item = Vec<u64>> + '_ {
    let inside = Shape::new(&block.lens());
    inside.indices().map(|index| index.iter().zip(&block.0).map(|(i, (begin, _))| i + begin).collect())
}

pub fn position(shape: &[u64], index: &[u64]) -> usize {
    shape.iter().zip(index).fold(0, |sum, (size, at)| sum * size + at) as usize
}

fn element(tensor: &Tensor, at: usize) -> &[u8] {
    let size = tensor.dtype().size_bytes() as usize;
    &tensor.bytes()[at * size..][..size]
}

fn set_element(tensor: &mut Tensor, at: usize, bytes: &[u8]) {
    tensor.bytes_mut()[at * bytes.len()..][..bytes.len()].copy_from_slice(bytes);
}

impl Whole {
    fn set(&mut self, at: usize, bytes: &[u8]) {
        set_element(&mut self.data, at, bytes);
        self.written[at] = true;
    }
}

//! Random sound programs: variables in random layouts, exchanges of every kind between them, vertex groups
//! over them, loops. Everything a step reads has been written before on every tile that holds it, no two
//! vertices of a set meet, and all numbers are small.

mod computes;
mod exchanges;
mod layouts;
mod recipes;

use crate::source::Source;
use layouts::Kind;
use pando_base::{DType, Shape};
use pando_tile::{ComputeSet, Copy, CopyMap, Exchange, Group, Init, Layout, Program, Role, Step, Var, VarId};

/// Deepest loop, and most steps besides the outputs.
const MAX_DEPTH: usize = 2;
const MAX_STEPS: usize = 12;
const MAX_OUTPUTS: usize = 8;

/// Variables larger than any input are not built upon, so that programs stay small.
const MAX_ELEMENTS: u64 = 729;

pub struct Generator {
    source: Source,
    program: Program,
    /// Variables that are written on all their tiles.
    readable: Vec<VarId>,
    /// Steps of the bodies being made, innermost last.
    bodies: Vec<Vec<Step>>,
    steps: usize,
}

/// The program that the bytes decide.
pub fn generate(bytes: &[u8]) -> Program {
    let mut source = Source::new(bytes);
    let tiles = source.within(1, 12) as u32;
    let mut program = Program::new("random", tiles);
    program.replicas = source.within(1, 3);
    let mut generator =
        Generator { source, program, readable: Vec::new(), bodies: vec![Vec::new()], steps: 0 };
    generator.input();
    while generator.steps < MAX_STEPS && !generator.source.is_used_up() {
        generator.step();
    }
    generator.outputs();
    generator.program.body = generator.bodies.pop().expect("the body of the program");
    generator.program
}

impl Generator {
    fn step(&mut self) {
        self.steps += 1;
        match self.source.below(13) {
            0 => self.input(),
            1 => self.constant(),
            2 => self.matmul(),
            10 => self.conv(),
            11 => self.rowdots(),
            12 => self.stencil(),
            3 if self.bodies.len() <= MAX_DEPTH => self.repeat(),
            4..=6 => self.exchange(),
            _ => self.compute(),
        }
    }

    fn repeat(&mut self) {
        let count = self.source.within(1, 3);
        self.bodies.push(Vec::new());
        for _ in 0..=self.source.below(3) {
            self.step();
        }
        let body = self.bodies.pop().expect("pushed above");
        self.push(Step::Repeat { count, body });
    }

    fn push(&mut self, step: Step) {
        self.bodies.last_mut().expect("there is always a body").push(step);
    }

    fn push_exchange(&mut self, copies: Vec<Copy>) {
        let name = format!("move/{}", self.program.exchanges.len());
        let id = self.program.exchanges.push(Exchange { name, copies });
        self.push(Step::Exchange(id));
    }

    fn push_compute(&mut self, groups: Vec<Group>) {
        let name = format!("work {}", self.program.compute_sets.len());
        let id = self.program.compute_sets.push(ComputeSet { name, groups });
        self.push(Step::Compute(id));
    }

    fn var(&mut self, dtype: DType, shape: &[u64], home: Layout, role: Role) -> VarId {
        let name = format!("v{}", self.program.vars.len());
        self.program.vars.push(Var { name, dtype, shape: Shape::new(shape), home, role })
    }

    fn input(&mut self) {
        let (dtype, shape) = (self.dtype(), self.shape());
        self.input_of(dtype, &shape);
    }

    fn input_of(&mut self, dtype: DType, shape: &[u64]) -> VarId {
        let home = self.layout(shape, Kind::Partition);
        let var = self.var(dtype, shape, home, Role::Input);
        self.push(Step::HostIn(var));
        self.readable.push(var);
        var
    }

    fn constant(&mut self) {
        let (dtype, shape) = (self.dtype(), self.shape());
        let home = self.layout(&shape, Kind::Any);
        let init = match self.source.below(3) {
            0 => Init::Splat(f64::from(self.source.below(4) as u32)),
            1 => Init::Extern,
            _ => Init::Dense(crate::oracle::example(dtype, &Shape::new(&shape), 5)),
        };
        let var = self.var(dtype, &shape, home, Role::Constant(init));
        self.readable.push(var);
    }

    /// Copies the newest variables out, which depend on most of the program, and has the host read them.
    fn outputs(&mut self) {
        let is_result = |var: &&VarId| {
            let var = &self.program.vars[**var];
            var.role == Role::Temp && layouts::is_source(var)
        };
        let mut results: Vec<VarId> = self.readable.iter().filter(is_result).copied().collect();
        results.drain(..results.len().saturating_sub(MAX_OUTPUTS));
        results.extend(results.is_empty().then(|| self.readable[0]));
        for var in results {
            let (dtype, shape) = (self.program.vars[var].dtype, self.program.vars[var].shape.clone());
            let home = self.layout(&shape, Kind::Partition);
            let out = self.var(dtype, &shape, home, Role::Output);
            let map = CopyMap::identity(&shape);
            self.push_exchange(vec![Copy { src: var, dsts: smallvec::smallvec![out], map }]);
            self.push(Step::HostOut(out));
        }
    }

    /// A variable that exchanges may read from.
    fn pick_source(&mut self) -> VarId {
        self.pick_readable(layouts::is_source).expect("the first input is never overwritten")
    }

    fn dtype(&mut self) -> DType {
        *self.source.pick(&[DType::F32, DType::F16, DType::I32])
    }

    fn shape(&mut self) -> Vec<u64> {
        let rank = *self.source.pick(&[1, 2, 2, 3, 0, 1]);
        (0..rank).map(|_| self.source.within(1, 9)).collect()
    }

    /// One of the newest readable variables that fulfil a condition and are small.
    fn pick_readable(&mut self, fits: impl Fn(&Var) -> bool) -> Option<VarId> {
        let small = |var: &Var| var.shape.num_elements() <= MAX_ELEMENTS && fits(var);
        let vars: Vec<VarId> =
            self.readable.iter().copied().filter(|&var| small(&self.program.vars[var])).collect();
        if vars.is_empty() {
            return None;
        }
        let recent = vars.len().min(6);
        Some(vars[vars.len() - 1 - self.source.below(recent)])
    }
}

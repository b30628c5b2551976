//! The values a program computes, tile by tile, as the machine would.
//!
//! In: a program, tensors for its inputs and extern constants. Out: the outputs that the host read. Vertices
//! of a set see what was there before, copies of an exchange happen at once; tiles run in parallel and share
//! nothing, so the thread count never changes a bit. Deliberately not here: time, and the kernels' values
//! ([`pando_tile::Kernel::run`]).

mod exchange;
mod host;
mod store;
mod strided;
mod vertex;
mod window;

pub use host::{Output, Outputs};

use crate::errors;
use exchange::Planned;
use pando_base::{Result, SideTable, Tensor};
use pando_tile::validate::validate;
use pando_tile::{ComputeSetId, ExchangeId, Program, Step, VarId};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use store::Tile;
use vertex::Work;

/// How values are computed.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Reading an element that was never written is an error; otherwise it is zero. For checking lowerings.
    pub strict: bool,
    /// Programs that need more bytes than this, by an estimate, are refused.
    pub max_bytes: u64,
    /// Keep what the host has read each time, not only the last.
    pub keep_all: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { strict: false, max_bytes: 8 << 30, keep_all: false }
    }
}

/// Runs the body once. The outputs hold what the host read, and what state is afterwards. `inputs` gives the whole
/// tensor of an input (whenever the host writes it), of an extern constant, or of state before the run; for a piece of an expanded program that is the tensor of the variable it is a piece of.
///
/// # Errors
/// If the program is not valid, an input is missing or of another type, a vertex touches what its tile does
/// not hold, an unwritten element is read (strict), or too much memory would be needed.
pub fn run(
    program: &Program,
    inputs: impl Fn(VarId) -> Option<Tensor>,
    options: &RunOptions,
) -> Result<Outputs> {
    run_items(program, |var, _| inputs(var), options)
}

/// The same for a host that writes something else each time: `inputs` is also told how often it has been asked for
/// this variable before.
///
/// # Errors
/// As [`run`].
pub fn run_items(
    program: &Program,
    inputs: impl Fn(VarId, u64) -> Option<Tensor>,
    options: &RunOptions,
) -> Result<Outputs> {
    validate(program)?;
    store::check_size(program, options)?;
    let mut runner = Runner {
        program,
        inputs: &inputs,
        asked: SideTable::default(),
        keep_all: options.keep_all,
        tiles: store::allocate(program, options.strict),
        works: FxHashMap::default(),
        plans: FxHashMap::default(),
        outputs: Outputs::default(),
    };
    runner.load_constants()?;
    runner.steps(&program.body)?;
    runner.keep_state()?;
    Ok(runner.outputs)
}

/// Loops that run more often than any tile program may count are taken to be endless.
const MAX_TRIPS: u64 = 1 << 32;

struct Runner<'a> {
    program: &'a Program,
    inputs: &'a dyn Fn(VarId, u64) -> Option<Tensor>,
    /// How often the host has written each variable.
    asked: SideTable<VarId, u64>,
    keep_all: bool,
    /// One per tile of the program.
    tiles: Vec<Tile>,
    /// Who does what in a compute set or exchange, kept for loops.
    works: FxHashMap<ComputeSetId, Arc<Work>>,
    plans: FxHashMap<ExchangeId, Arc<Planned>>,
    outputs: Outputs,
}

impl Runner<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|step| match step {
            Step::Compute(id) => self.compute(*id),
            Step::Exchange(id) => self.exchange(*id),
            Step::HostIn(var) => self.host_in(*var),
            Step::HostOut(var) => self.host_out(*var),
            Step::Repeat { count, body } => (0..*count).try_for_each(|_| self.steps(body)),
            Step::Stream { .. } => self.stream(step),
            Step::If { flags, then_body, else_body } => {
                let taken = if self.flag(flags)? { then_body } else { else_body };
                self.steps(taken)
            }
            Step::While { cond, flags, body, .. } => self.while_loop(cond, flags, body),
        })
    }

    /// In the order of the machine: the next item is there, and the last one gone, before the work in the window.
    fn stream(&mut self, step: &Step) -> Result<()> {
        let Step::Stream { count, load, body, store } = step else { unreachable!("only called for these") };
        let window = pando_tile::stream::window(self.program, step).expect("valid streams have one");
        self.steps(load)?;
        for item in 0..*count {
            self.steps(&body[..window.start])?;
            if item > 0 {
                self.steps(store)?;
            }
            if item + 1 < *count {
                self.steps(load)?;
            }
            self.steps(&body[window.start..])?;
        }
        self.steps(store)
    }

    fn while_loop(&mut self, cond: &[Step], flags: &[VarId], body: &[Step]) -> Result<()> {
        for _ in 0..MAX_TRIPS {
            self.steps(cond)?;
            if !self.flag(flags)? {
                return Ok(());
            }
            self.steps(body)?;
        }
        Err(errors::endless_loop(&self.program.vars[flags[0]]))
    }

    /// What all tiles find in their copy of a flag.
    fn flag(&self, flags: &[VarId]) -> Result<bool> {
        let mut values = Vec::new();
        for &id in flags {
            let var = &self.program.vars[id];
            for coordinates in var.home.grid.coordinates() {
                let tile = var.home.grid.tile(&coordinates);
                let piece = &self.tiles[tile as usize][&id];
                if !piece.is_block_written(&piece.block) {
                    return Err(errors::unwritten("a branch", var, tile));
                }
                values.push(piece.data.bytes()[0] != 0);
            }
        }
        match values.iter().all(|&value| value == values[0]) {
            true => Ok(values[0]),
            false => Err(errors::tiles_disagree(&self.program.vars[flags[0]])),
        }
    }

    fn compute(&mut self, id: ComputeSetId) -> Result<()> {
        let set = &self.program.compute_sets[id];
        let work = self.works.entry(id).or_insert_with(|| Arc::new(vertex::deal(self.program, set))).clone();
        vertex::run_set(self.program, set, &work, &mut self.tiles)
    }

    fn exchange(&mut self, id: ExchangeId) -> Result<()> {
        let exchange = &self.program.exchanges[id];
        let plan =
            self.plans.entry(id).or_insert_with(|| Arc::new(exchange::plan(self.program, exchange))).clone();
        exchange::run_exchange(self.program, exchange, &plan, &mut self.tiles)
    }
}

//! From a graph to a tile program: *plan* (which tile holds and does what), *emit* (compute sets and
//! exchanges), *place* (addresses, and whether it fits).
//!
//! The cost of compiling follows the number of operations and the unevenness of splits, not the number
//! of tiles or replicas. Knows nothing of how programs are simulated.

mod absorb;
mod append;
mod arrange;
mod emit;
pub mod errors;
mod fit;
mod flops;
mod fold;
mod layouts;
mod place;
mod plan;
mod precision;
mod prepare;
mod residues;
mod rewrite;
mod rooms;
mod share;
mod softmax;
mod sparse;
mod stages;
mod widen;

pub use emit::{Emitted, emit};
pub use fit::{Origin, fit};
pub use flops::model_flops;
pub use layouts::{balanced, flat, normalize};
pub use place::{Placed, place};
pub use plan::{Plan, plan, print_plan};
pub use precision::{Precision, with_precision};
pub use prepare::{inline_calls, prepare, supported};
pub use sparse::buckets_for;
pub use stages::{End, Stage, rebalance, split, split_after};
pub use widen::with_precision_but;

use pando_base::Result;
use pando_graph::{Module, Op};
use pando_machine::{Machine, Sram};
use pando_profile::Fit;
use plan::Planning;

/// What a user may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Share of a tile's memory that one operation's temporaries may take while planning. Default 0.6, as
    /// PopLibs documents (poplar.md section 3.3).
    pub available_memory_proportion: f64,
    /// Tensors are not split into pieces below this many bytes, unless work demands it.
    pub min_tile_bytes: u64,
    /// Type of partial sums where inputs are half precision: f32 unless the user asks for f16.
    pub half_partials: bool,
    /// Chips that run the same program on their own data.
    pub replicas: u64,
    /// How often a call of the program runs the model, each time on another item from the host.
    pub iterations: u64,
    /// Tiles that do nothing but the host's transfers, so that these run beside the work: the chip's last ones.
    pub io_tiles: u32,
    /// Items that the host has ready before they are asked for.
    pub prefetch: u32,
    /// Parameters and results that another chip gives or takes; all others are the host's.
    pub linked: Linked,
    /// State that stays on the chip: the parameter that holds it before a run, and the result that it becomes.
    pub state: Vec<(usize, usize)>,
}

/// Positions of a function's parameters and results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    pub params: Vec<usize>,
    pub results: Vec<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            available_memory_proportion: 0.6,
            min_tile_bytes: 128,
            half_partials: false,
            replicas: 1,
            iterations: 1,
            io_tiles: 0,
            prefetch: pando_tile::PREFETCH,
            linked: Linked::default(),
            state: Vec::new(),
        }
    }
}

/// A compiled model: the program, where its constants, inputs and outputs are, and whether it fits.
pub struct Compiled {
    pub module: Module,
    pub plan: Plan,
    pub emitted: Emitted,
    pub placed: Placed,
    pub fit: Fit,
}

/// How often what does not fit is planned anew, with less memory for the operations in whose time it lacks.
const ATTEMPTS: u64 = 4;
/// How often what fits at last is planned anew with what it leaves.
const LOOSER: u64 = 8;

/// Compiles the function named `main`. Every unsupported operation is reported in one error. What does not fit, but
/// would with less memory for some operations, is planned so.
pub fn compile(module: &Module, machine: &Machine, options: &Options) -> Result<Compiled> {
    compile_in_passes(module, machine, options, |_| {})
}

/// The same, saying what is going on.
pub fn compile_in_passes(
    module: &Module,
    machine: &Machine,
    options: &Options,
    pass: impl Fn(&str),
) -> Result<Compiled> {
    pass("compiling: preparing the graph");
    let mut module = prepare(module, machine, options)?;
    supported(&module)?;
    own_state(&mut module, &options.state);
    let mut planning = Planning::default();
    let attempt = |planning: &mut Planning| compile_planned(&module, machine, options, planning, &pass);
    let first = attempt(&mut planning)?;
    let mut last = None;
    for number in 1..=ATTEMPTS {
        let compiled = last.as_ref().unwrap_or(&first);
        if compiled.fit.fits || !rooms::tighten(&mut planning.rooms, compiled, &machine.chip.sram, number) {
            break;
        }
        last = Some(attempt(&mut planning)?);
    }
    match last.filter(|compiled| compiled.fit.fits) {
        Some(fitting) => with_what_is_left(fitting, &mut planning, &machine.chip.sram, attempt),
        // What fits in no way is rather fast.
        None => Ok(first),
    }
}

/// Less memory for some operations leaves more than they had to give: they get it back as long as the whole fits.
fn with_what_is_left(
    mut best: Compiled,
    planning: &mut Planning,
    sram: &Sram,
    mut attempt: impl FnMut(&mut Planning) -> Result<Compiled>,
) -> Result<Compiled> {
    let (mut share, mut rooms) = (1, planning.rooms.clone());
    for _ in 0..LOOSER {
        planning.rooms.clone_from(&rooms);
        if !rooms::loosen(&mut planning.rooms, &best, sram, share) {
            break;
        }
        let next = attempt(planning)?;
        if !next.fit.fits {
            share *= 2;
        } else if rooms::cycles(&next) < rooms::cycles(&best) {
            (best, share) = (next, 1);
            rooms.clone_from(&planning.rooms);
        } else {
            break;
        }
    }
    Ok(best)
}

fn compile_planned(
    module: &Module,
    machine: &Machine,
    options: &Options,
    planning: &mut Planning,
    pass: &impl Fn(&str),
) -> Result<Compiled> {
    let working = without_io_tiles(module, machine, options)?;
    pass("compiling: planning layouts and methods");
    let plan = planning.plan(module, &working, options);
    pass("compiling: emitting the tile program");
    let mut emitted = emit(module, &plan, machine, options);
    check_kernels(&emitted.program)?;
    share::share_code(&mut emitted, &machine.chip);
    pass("compiling: placing variables");
    let placed = place(&emitted.program, machine);
    let fit = fit(&emitted.program, machine, &placed, Origin::Model);
    Ok(Compiled { module: module.clone(), plan, emitted, placed, fit })
}

/// The machine with the tiles that work.
fn without_io_tiles(module: &Module, machine: &Machine, options: &Options) -> Result<Machine> {
    let mut working = machine.clone();
    if options.io_tiles == 0 {
        return Ok(working);
    }
    if options.io_tiles >= machine.chip.tiles {
        return Err(errors::too_many_io_tiles(options.io_tiles, machine));
    }
    let branches = |node: &pando_graph::Node| matches!(node.op, Op::If { .. } | Op::While { .. });
    if module.funcs.values().any(|func| func.nodes.values().any(branches)) {
        return Err(errors::branches_with_io_tiles());
    }
    working.chip.tiles -= options.io_tiles;
    Ok(working)
}

/// A result that is state and is another parameter becomes a value of its own, which outlives that parameter's update.
fn own_state(module: &mut Module, state: &[(usize, usize)]) {
    let main = module.funcs.ids().next().expect("an inlined module has a function");
    let func = &mut module.funcs[main];
    for &(param, result) in state {
        let value = func.results[result];
        if func.params.contains(&value) && func.params[param] != value {
            let ty = func.ty(value).clone();
            let node = func.push_node(Op::Reshape { dims: ty.dims.clone() }, [value], [ty]);
            func.results[result] = func.nodes[node].results[0];
        }
    }
}

/// Kernels know best which element types they take; what they refuse is the user's problem, anything else
/// that the validator finds is ours.
fn check_kernels(program: &pando_tile::Program) -> Result<()> {
    let Err(problem) = pando_tile::validate(program) else { return Ok(()) };
    match problem.place {
        pando_tile::validate::Place::Group(id, _) => {
            Err(errors::kernel_refuses(&program.compute_sets[id].name, &problem.message))
        }
        _ => panic!("lowering made an invalid program: {}\n{}", problem.message, pando_tile::print(program)),
    }
}

//! Structural rules of a program. Everything later may rely on them:
//!
//! (T1) Variable names are unique and not empty; shapes and element counts are bounded.
//! (T2) Grids are not empty and lie on the program's tiles; a variable's grid has at most one coordinate
//!      per tile, and at most one span per axis.
//! (T3) Regions have one span per dimension, in bounds; no axis has more coordinates than units to split.
//! (T4) Operands match the kernel's signature in type and size at every coordinate.
//! (T5) Outputs are not constants or inputs; inputs, outputs and exchange sources hold every element
//!      once (at copy 0), inputs and outputs without copies.
//! (T6) Copies: types agree, regions in bounds, each destination dimension used once; flat copies only
//!      between layouts whose blocks are contiguous; multicast only between single tiles.
//! (T7) Flags are one bool on every tile. Loop counts and the number of replicas are positive; nested loops run at most 2^32 times in all;
//!      nesting is bounded by the parser.
//! (T8) Streams load with host.in and store with host.out alone. Their bodies touch what is loaded before what is stored.

use crate::block::Block;
use crate::grid::{Class, Grid};
use crate::kernel::{Access, Kernel, OperandType};
use crate::message::is_flat;
use crate::program::{
    ComputeSetId, Copy, CopyMap, ExchangeId, Group, Init, Operand, Program, Role, SrcIndex, Step, Var, VarId,
};
use crate::span::Span;
use pando_base::{DType, Error, Ranges};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// What a finding is about; parsers know where it stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Program,
    Var(VarId),
    Group(ComputeSetId, usize),
    Copy(ExchangeId, usize),
}

/// The first rule that a program breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub place: Place,
    pub message: String,
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Error::new(problem.message)
    }
}

type Check = Result<(), String>;

/// Elements, tiles and offsets beyond this are refused so that no later sum can overflow.
const MAX_SIZE: u64 = 1 << 40;
const MAX_TILES: u32 = 1 << 24;
const MAX_AXES: usize = 16;

pub fn validate(program: &Program) -> Result<(), Problem> {
    let at = |place: Place| move |message: String| Problem { place, message };
    check_program(program).map_err(at(Place::Program))?;
    let mut names = FxHashSet::default();
    for (id, var) in program.vars.iter() {
        let named = if var.name.is_empty() || !names.insert(&var.name) {
            Err(format!("(T1) variable name '%{}' is empty or taken", var.name))
        } else {
            Ok(())
        };
        named.and_then(|()| check_var(program, var)).map_err(at(Place::Var(id)))?;
    }
    for (id, set) in program.compute_sets.iter() {
        for (index, group) in set.groups.iter().enumerate() {
            check_group(program, group).map_err(at(Place::Group(id, index)))?;
        }
    }
    for (id, exchange) in program.exchanges.iter() {
        for (index, copy) in exchange.copies.iter().enumerate() {
            check_copy(program, copy).map_err(at(Place::Copy(id, index)))?;
        }
    }
    check_steps(program, &program.body, 1).map_err(at(Place::Program))
}

fn require(holds: bool, message: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(message()) }
}

fn check_program(program: &Program) -> Check {
    require((1..=MAX_TILES).contains(&program.tiles), || {
        format!("(T2) a program uses 1 to {MAX_TILES} tiles")
    })?;
    require(program.replicas > 0, || "(T7) a program has at least one replica".into())
}

fn check_var(program: &Program, var: &Var) -> Check {
    let elements = var.shape.checked_num_elements().unwrap_or(u64::MAX);
    let largest = var.shape.iter().copied().max().unwrap_or(1);
    require(elements <= MAX_SIZE && largest <= MAX_SIZE, || {
        format!("(T1) %{} has more than 2^40 elements", var.name)
    })?;
    require(elements > 0, || format!("(T1) %{} has no elements", var.name))?;
    check_grid(program, &var.home.grid)?;
    check_region(&var.home.grid, &var.home.region, &var.shape)?;
    require(var.home.grid.is_injective(), || {
        format!("(T2) the layout of %{} puts two blocks on one tile", var.name)
    })?;
    let mut used: SmallVec<[usize; 4]> = SmallVec::new();
    for axis in var.home.region.iter().filter_map(Span::axis) {
        require(!used.contains(&axis), || {
            format!("(T2) the layout of %{} uses axis a{axis} twice", var.name)
        })?;
        used.push(axis);
    }
    match &var.role {
        Role::Input | Role::Output | Role::State => {
            require(var.home.copies() == 1 && holds_once(var), || {
                format!(
                    "(T5) %{} is exchanged with the host or kept between runs, so its layout must hold every element once",
                    var.name
                )
            })
        }
        Role::Constant(Init::Dense(tensor)) => {
            require(tensor.shape() == &var.shape && tensor.dtype() == var.dtype, || {
                format!("(T1) the values of %{} do not have its type", var.name)
            })
        }
        Role::Temp | Role::Constant(_) => Ok(()),
    }
}

/// Whether the blocks at copy 0 are disjoint. A variable on a single tile may hold a part of its shape:
/// it is a piece of an expanded one.
fn holds_once(var: &Var) -> bool {
    var.home.grid.axes.is_empty()
        || var.home.region.iter().all(|span| match span {
            Span::Fixed { .. } => true,
            Span::Part(part) => part.is_partition(),
        })
}

fn check_grid(program: &Program, grid: &Grid) -> Check {
    let count: u128 = grid.axes.iter().map(|axis| u128::from(axis.extent)).product();
    require(grid.axes.len() <= MAX_AXES && count <= u128::from(MAX_SIZE), || {
        "(T2) the grid is too large".into()
    })?;
    require(grid.axes.iter().all(|axis| axis.extent > 0), || {
        "(T2) an axis of a grid has no coordinates".into()
    })?;
    require(grid.end_tile() <= program.tiles.into(), || {
        format!("(T2) the grid reaches tile {}, the program has {}", grid.end_tile() - 1, program.tiles)
    })
}

fn check_region(grid: &Grid, region: &[Span], shape: &[u64]) -> Check {
    require(region.len() == shape.len(), || {
        format!("(T3) a region of {} spans for {} dimensions", region.len(), shape.len())
    })?;
    region.iter().zip(shape).try_for_each(|(span, &dim)| match *span {
        Span::Fixed { begin, end } => {
            require(begin <= end && end <= dim, || format!("(T3) {begin}..{end} is not within 0..{dim}"))
        }
        Span::Part(part) => {
            let axis = grid.axes.get(part.axis as usize);
            let axis = axis.ok_or_else(|| format!("(T3) the grid has no axis a{}", part.axis))?;
            require(part.grain > 0 && part.total > 0 && part.total <= MAX_SIZE, || {
                format!("(T3) '{span}' splits nothing")
            })?;
            let units = part.total.div_ceil(part.grain);
            require(u64::from(axis.extent) <= units, || {
                format!(
                    "(T3) axis a{} has {} coordinates for {units} units of '{span}'",
                    part.axis, axis.extent
                )
            })?;
            let offsets_fit = part.lo.unsigned_abs() <= MAX_SIZE && part.hi.unsigned_abs() <= MAX_SIZE;
            require(offsets_fit && part.mul <= MAX_SIZE, || {
                format!("(T3) the window of '{span}' is too large")
            })?;
            Ok(())
        }
    })
}

fn check_group(program: &Program, group: &Group) -> Check {
    check_grid(program, &group.grid)?;
    let signature = group.kernel.signature();
    require(signature.len() == group.operands.len(), || {
        format!("(T4) {} takes {} operands", group.kernel.name(), signature.len())
    })?;
    for (operand, access) in group.operands.iter().zip(signature) {
        let var = &program.vars[operand.var];
        check_region(&group.grid, &operand.region, &var.shape)?;
        let writable = var.role.is_writable();
        require(writable || *access == Access::In, || {
            format!("(T5) {} writes %{}, which is not temp, output or state", group.kernel.name(), var.name)
        })?;
    }
    if matches!(group.kernel, Kernel::Update { .. }) {
        let in_place = group.operands.first() == group.operands.last();
        require(in_place, || "(T4) update works in place: its first operand is its last".into())?;
    }
    for class in group_classes(program, group) {
        let lens = operand_lens(program, group, &class.representative());
        let types: SmallVec<[OperandType; 4]> = operand_types(program, group, &lens);
        group.kernel.check(&types).map_err(|message| format!("(T4) {message}"))?;
    }
    Ok(())
}

/// Classes of a group's coordinates with equal operand sizes.
pub fn group_classes(program: &Program, group: &Group) -> Vec<crate::grid::Class> {
    let regions = group.operands.iter().map(|o| (o.region.as_slice(), &*program.vars[o.var].shape));
    group.grid.classes(regions)
}

/// The block of each operand's variable at the coordinates.
pub fn operand_block(program: &Program, group: &Group, operand: &Operand, coordinates: &[u32]) -> Block {
    group.grid.block(&operand.region, &program.vars[operand.var].shape, coordinates)
}

/// Sizes of all operands at the coordinates.
pub fn operand_lens(
    program: &Program,
    group: &Group,
    coordinates: &[u32],
) -> SmallVec<[SmallVec<[u64; 4]>; 4]> {
    group.operands.iter().map(|operand| operand_block(program, group, operand, coordinates).lens()).collect()
}

pub fn operand_types<'a>(
    program: &Program,
    group: &Group,
    lens: &'a [SmallVec<[u64; 4]>],
) -> SmallVec<[OperandType<'a>; 4]> {
    let dtype = |operand: &Operand| program.vars[operand.var].dtype;
    group.operands.iter().zip(lens).map(|(o, lens)| OperandType { dtype: dtype(o), lens }).collect()
}

fn check_copy(program: &Program, copy: &Copy) -> Check {
    require(!copy.dsts.is_empty(), || "(T6) a copy needs a destination".into())?;
    let src = &program.vars[copy.src];
    require(holds_once(src), || {
        format!("(T5) %{} is copied from, so its blocks must be disjoint", src.name)
    })?;
    let single = |var: &Var| var.home.grid.axes.is_empty();
    for &id in &copy.dsts {
        let dst = &program.vars[id];
        require(id != copy.src, || format!("(T6) %{} is copied to itself", dst.name))?;
        require(dst.dtype == src.dtype, || {
            format!("(T6) %{} is {}, %{} is {}", dst.name, dst.dtype, src.name, src.dtype)
        })?;
        require(dst.role.is_writable(), || {
            format!("(T5) a copy writes %{}, which is not temp, output or state", dst.name)
        })?;
        let alone = copy.dsts.len() == 1 || (single(dst) && single(src));
        require(alone, || "(T6) several destinations are for variables on single tiles".into())?;
        let first = &program.vars[copy.dsts[0]];
        let alike =
            dst.shape == first.shape && (copy.dsts.len() == 1 || dst.home.region == first.home.region);
        require(alike, || "(T6) the destinations of a copy hold the same block".into())?;
    }
    check_map(src, &program.vars[copy.dsts[0]], &copy.map)
}

fn check_map(src: &Var, dst: &Var, map: &CopyMap) -> Check {
    match map {
        CopyMap::Flat { src_begin, dst_begin, len } => {
            let fits = |begin: &u64, var: &Var| {
                begin.checked_add(*len).is_some_and(|end| end <= var.shape.num_elements())
            };
            require(fits(src_begin, src) && fits(dst_begin, dst), || {
                "(T6) a flat copy exceeds its variables".into()
            })?;
            require(is_flat(&src.home, &src.shape) && is_flat(&dst.home, &dst.shape), || {
                "(T6) a flat copy needs layouts that split leading dimensions only".into()
            })
        }
        CopyMap::Affine { region, dims } => check_affine(src, dst, region, dims),
    }
}

fn check_affine(src: &Var, dst: &Var, region: &Block, dims: &[SrcIndex]) -> Check {
    require(region.rank() == dst.shape.rank() && dims.len() == src.shape.rank(), || {
        format!("(T6) the copy from %{} to %{} does not name every dimension once", src.name, dst.name)
    })?;
    require(Block::full(&dst.shape).contains(region), || format!("(T6) {region} exceeds %{}", dst.name))?;
    let mut used = vec![false; region.rank()];
    for (index, &size) in dims.iter().zip(src.shape.iter()) {
        match *index {
            SrcIndex::At(at) => require(at < size, || format!("(T6) index {at} exceeds %{}", src.name))?,
            SrcIndex::Dst { dim, step, offset } => {
                let seen = used
                    .get_mut(dim as usize)
                    .ok_or_else(|| format!("(T6) %{} has no dimension d{dim}", dst.name))?;
                require(!std::mem::replace(seen, true), || format!("(T6) dimension d{dim} is used twice"))?;
                require(step != 0, || "(T6) a step is not 0".into())?;
                let (begin, end) = region.0[dim as usize];
                let at = |d: u64| i128::from(step) * i128::from(d) + i128::from(offset);
                let inside = |d: u64| (0..i128::from(size)).contains(&at(d));
                require(begin >= end || (inside(begin) && inside(end - 1)), || {
                    format!("(T6) the copy reads outside %{}", src.name)
                })?;
            }
        }
    }
    require(used.iter().all(|&used| used), || {
        format!("(T6) a dimension of %{} has no source dimension; broadcasts are done on the tile", dst.name)
    })
}

/// Every tile must find the flag on itself: no tile waits for another to know where to go.
fn check_flags(program: &Program, flags: &[VarId]) -> Check {
    let mut tiles = Ranges::default();
    let mut count = 0;
    for &id in flags {
        let var = &program.vars[id];
        require(var.dtype == DType::Bool && var.shape.num_elements() == 1, || {
            format!("(T7) the flag %{} is {}{}, not one bool", var.name, var.dtype, var.shape)
        })?;
        let whole = Class { ranges: var.home.grid.axes.iter().map(|axis| (0, axis.extent)).collect() };
        for (first, length) in var.home.grid.tile_runs(&whole) {
            tiles.insert(first.into(), u64::from(first) + u64::from(length));
        }
        count += var.home.grid.len();
    }
    let all = u64::from(program.tiles);
    require(count == all && tiles.intervals() == [(0, all)], || {
        let names: Vec<String> = flags.iter().map(|&id| format!("%{}", program.vars[id].name)).collect();
        format!("(T7) the flag {} is not on each of {all} tiles once", names.join(", "))
    })
}

/// `times`: how often the steps run.
fn check_steps(program: &Program, steps: &[Step], times: u64) -> Check {
    steps.iter().try_for_each(|step| match step {
        Step::Repeat { count, body } => {
            require(*count > 0, || "(T7) a loop runs at least once".into())?;
            let times = times.saturating_mul(*count);
            require(times <= 1 << 32, || "(T7) nested loops run at most 2^32 times in all".into())?;
            check_steps(program, body, times)
        }
        Step::Stream { count, load, body, store } => {
            require(*count > 0, || "(T7) a loop runs at least once".into())?;
            let times = times.saturating_mul(*count);
            require(times <= 1 << 32, || "(T7) nested loops run at most 2^32 times in all".into())?;
            check_transfers(step)?;
            [load, body, store].into_iter().try_for_each(|steps| check_steps(program, steps, times))?;
            require(crate::stream::window(program, step).is_some(), || {
                "(T8) a stream's body uses what is loaded before it makes what is stored".into()
            })
        }
        Step::If { flags, then_body, else_body } => {
            check_flags(program, flags)?;
            check_steps(program, then_body, times)?;
            check_steps(program, else_body, times)
        }
        Step::While { cond, flags, body, trips } => {
            check_flags(program, flags)?;
            let times = times.saturating_mul(trips.saturating_add(1));
            require(times <= 1 << 32, || "(T7) nested loops run at most 2^32 times in all".into())?;
            check_steps(program, cond, times)?;
            check_steps(program, body, times)
        }
        Step::HostIn(var) => require(matches!(program.vars[*var].role, Role::Input), || {
            format!("(T5) host.in needs an input; %{} is none", program.vars[*var].name)
        }),
        Step::HostOut(var) => require(matches!(program.vars[*var].role, Role::Output), || {
            format!("(T5) host.out needs an output; %{} is none", program.vars[*var].name)
        }),
        Step::Compute(_) | Step::Exchange(_) => Ok(()),
    })
}

fn check_transfers(stream: &Step) -> Check {
    let Step::Stream { load, body, store, .. } = stream else { return Ok(()) };
    let loads = load.iter().all(|step| matches!(step, Step::HostIn(_)));
    let stores = store.iter().all(|step| matches!(step, Step::HostOut(_)));
    require(loads && stores, || "(T8) a stream loads with host.in and stores with host.out".into())?;
    let nested = body.iter().any(|step| matches!(step, Step::Stream { .. }));
    require(!nested, || "(T8) a stream has no stream inside".into())
}

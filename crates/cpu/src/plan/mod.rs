//! From a flat function to steps over buffers. `groups.rs` says which elementwise nodes are one pass,
//! `lower.rs` makes steps of nodes, `program.rs` makes register programs, `memory.rs` places buffers,
//! `check.rs` proves the placement.
//!
//! Steps whose operands are all constants run once, while planning. Cost: linear in the nodes, but for
//! placing buffers (quadratic in those live at a time) and for running the constant steps.

#![allow(unsafe_code)]

mod attention;
mod backward;
mod blocked;
pub mod bytes;
pub mod check;
mod conv;
mod gelu;
mod groups;
pub mod layout;
mod lower;
mod memory;
mod norms;
mod order;
mod phases;
mod precision;
mod product;
mod program;
pub mod quantised;
mod range;
mod reduce;
mod row_gradients;
mod schedule;
pub mod stacks;
pub mod state;
mod tables;
mod together;
mod unit_conv;

use crate::allocation::{Bytes, Chunks};
use crate::constants::{Constant, Panels};
use crate::errors;
use crate::exec::{Frame, Memory, prepare};
use crate::flat::{Flat, FlatNode, ValueIndex, Work};
use crate::kernel::gemm::Word;
use crate::options::CompileOptions;
use crate::pool::Pool;
use crate::step::movement::Movement;
use crate::step::packing::{self, Packing};
use crate::step::{Kind, Step};
use crate::view::{BufferId, Sizes, Strides, View};
use groups::Groups;
use pando_base::{Arena, DType, IdSet, Result, SideTable, Tensor};
use pando_graph::Op;
use rustc_hash::FxHashMap;
use state::Declared;
use std::sync::Arc;

/// Most bytes a plan may take: beyond, sizes are a mistake rather than a wish.
const MAX_BYTES: u128 = 1 << 42;

pub struct Plan {
    pub buffers: Arena<BufferId, Buffer>,
    pub steps: Vec<Step>,
    pub params: Vec<BufferId>,
    /// Dense, at the start of their buffers, none of which is a parameter. Those that replace a parameter are
    /// not among them.
    pub results: Vec<View>,
    /// Steps that read nothing but state and constants: run when state has changed.
    pub prepared: Vec<Step>,
    pub prepared_bytes: usize,
    /// Buffers that lie where parameters do.
    pub replacing: Vec<(BufferId, usize)>,
    /// Buffers that lie in a row of a parameter, by iteration.
    pub rows: Vec<(BufferId, stacks::Row)>,
    /// Parameters whose rows are all written before anybody reads them.
    pub overwritten: Vec<usize>,
    /// The parameters that those steps may read.
    pub steady: Vec<usize>,
    /// Bodies of branches and loops.
    pub children: Vec<Plan>,
    pub arena_bytes: usize,
    /// Bytes of constants computed while planning, packed weights among them.
    pub kept_bytes: usize,
}

pub struct Buffer {
    pub bytes: usize,
    pub place: Place,
}

#[derive(Clone)]
pub enum Place {
    Param,
    Const(Tensor),
    /// Computed while planning.
    Kept(Arc<Bytes>),
    /// Offset into the arena, in bytes.
    Arena(usize),
    /// Offset into the memory that keeps what is made from state.
    Prepared(usize),
    /// The memory of the parameter of this number, whose last reader comes no later than the writer.
    Replaces(usize),
    /// A row of a parameter: another one in each iteration of a loop.
    Row(stacks::Row),
}

/// When what a buffer holds changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Changes {
    Never,
    WithState,
    EachRun,
}

/// A buffer whose place is not known yet.
struct Draft {
    bytes: usize,
    place: Option<Place>,
    changes: Changes,
    /// The constant it holds and the value that is.
    constant: Option<(Arc<Constant>, ValueIndex)>,
}

struct Planner<'a> {
    flat: &'a Flat,
    state: &'a Declared,
    options: &'a CompileOptions,
    pool: &'a Pool,
    groups: Groups,
    /// The nodes that use each value.
    users: Vec<Vec<usize>>,
    /// The node that makes each value.
    makers: Vec<Option<usize>>,
    views: Vec<Option<View>>,
    buffers: Arena<BufferId, Draft>,
    steps: Vec<Step>,
    /// Of the node that steps are being made for.
    name: Arc<str>,
    children: Vec<Plan>,
    shared: &'a mut Packed,
}

/// Packed constants of all plans of a model: packed once.
pub struct Packed {
    known: FxHashMap<PackedKey, Arc<Bytes>>,
    memory: Chunks,
    /// Whether no other plan will follow.
    only_plan: bool,
}

impl Packed {
    pub fn new(only_plan: bool) -> Packed {
        Packed { known: FxHashMap::default(), memory: Chunks::default(), only_plan }
    }
}

/// A constant (by its address, which the model keeps), the view of it, and how it is packed.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PackedKey {
    address: usize,
    offset: isize,
    sizes: Sizes,
    strides: Strides,
    /// See [`Packing::key`].
    packing: ([usize; 5], Strides),
}

/// Plans a flat function.
pub fn plan(
    flat: &Flat,
    state: &Declared,
    options: &CompileOptions,
    pool: &Pool,
    shared: &mut Packed,
) -> Result<Plan> {
    let mut planner = Planner {
        flat,
        state,
        options,
        pool,
        shared,
        groups: Groups::of(flat, options.fuse),
        users: flat.users(),
        makers: flat.makers(),
        views: vec![None; flat.values.len()],
        buffers: Arena::new(),
        steps: Vec::new(),
        name: "".into(),
        children: Vec::new(),
    };
    let params = planner.params(state);
    for (index, node) in flat.nodes.iter().enumerate() {
        check_sizes(flat, node)?;
        // Some nodes are planned before their turn.
        if node.results.first().is_none_or(|&value| planner.views[value].is_none()) {
            planner.node(index, node)?;
        }
    }
    let results = planner.results(state);
    let replaced = planner.replace(state, &params, &results);
    let results = results.into_iter().enumerate().filter(|(index, _)| state.replaced_by(*index).is_none());
    let results = results.map(|(_, view)| view).collect();
    planner.finish(params, results, state.steady.clone(), &replaced)
}

impl Planner<'_> {
    fn params(&mut self, state: &Declared) -> Vec<BufferId> {
        let flat = self.flat;
        let buffers = flat.params.iter().enumerate().map(|(index, &value)| {
            let ty = &flat.values[value];
            let bytes = ty.sizes.iter().product::<usize>() * ty.dtype.size_bytes() as usize;
            let place = Some(Place::Param);
            let changes = if state.is_steady(index) { Changes::WithState } else { Changes::EachRun };
            let buffer = self.buffers.push(Draft { bytes, place, changes, constant: None });
            self.views[value] = Some(View::dense(buffer, ty.dtype, &ty.sizes));
            buffer
        });
        buffers.collect()
    }

    fn view(&self, value: ValueIndex) -> View {
        self.views[value].clone().expect("operands are planned before their uses")
    }

    fn operands(&self, node: &FlatNode) -> Vec<View> {
        node.operands.iter().map(|&value| self.view(value)).collect()
    }

    fn is_const(&self, view: &View) -> bool {
        self.changes(view) == Changes::Never
    }

    /// Whether it is worth while to prepare a value for those that read it.
    fn is_steady(&self, view: &View) -> bool {
        self.changes(view) != Changes::EachRun
    }

    fn changes(&self, view: &View) -> Changes {
        self.buffers[view.buffer].changes
    }

    /// When what is made of these changes.
    fn changes_of(&self, inputs: &[View]) -> Changes {
        inputs.iter().map(|view| self.changes(view)).max().unwrap_or(Changes::Never)
    }

    /// The number that every element of a constant is, if it is one by its strides.
    fn constant_of(&self, value: ValueIndex) -> Option<f64> {
        let view = self.view(value);
        let Some(Place::Const(tensor)) = &self.buffers[view.buffer].place else { return None };
        let uniform = view.sizes.iter().zip(&view.strides).all(|(&size, &stride)| size == 1 || stride == 0);
        (uniform && view.dtype == tensor.dtype()).then(|| tensor.get_f64(view.offset as usize))
    }

    fn new_view(&mut self, dtype: DType, sizes: &[usize], changes: Changes) -> View {
        let view = View::dense(BufferId::default(), dtype, sizes);
        let buffer =
            self.buffers.push(Draft { bytes: view.num_bytes(), place: None, changes, constant: None });
        View { buffer, ..view }
    }

    /// Room that a step needs while it runs.
    fn scratch(&mut self, bytes: usize) -> View {
        self.new_view(DType::U8, &[bytes], Changes::EachRun)
    }

    /// Packs a constant, or finds it packed.
    fn packed(&mut self, packing: Packing, view: View, elements: usize) -> View {
        let Some((constant, value)) = self.buffers[view.buffer].constant.clone() else {
            return self.emit(Kind::Packing(packing), vec![view], DType::F32, &[elements]);
        };
        let key = PackedKey {
            address: Arc::as_ptr(&constant) as usize,
            offset: view.offset,
            sizes: view.sizes.clone(),
            strides: view.strides.clone(),
            packing: packing.key(),
        };
        let known = self.shared.known.get(&key).cloned();
        let bytes = known.unwrap_or_else(|| {
            let bytes = Arc::new(self.shared.memory.take(elements * 4));
            let tensor = constant.tensor();
            let from = View { buffer: BufferId::default(), ..view.clone() };
            let pointers = [tensor.bytes().as_ptr().cast_mut()];
            // SAFETY: the view lies in the constant, which is only read; the bytes are new.
            unsafe {
                packing::pack(&packing, Memory::new(&pointers), &from, bytes.as_ptr().cast(), self.pool);
            }
            self.shared.known.insert(key, Arc::clone(&bytes));
            bytes
        });
        self.release(&constant, value, &view, &packing, &bytes);
        let packed = View::dense(BufferId::default(), DType::F32, &[elements]);
        let place = Some(Place::Kept(bytes));
        let draft = Draft { bytes: packed.num_bytes(), place, changes: Changes::Never, constant: None };
        View { buffer: self.buffers.push(draft), ..packed }
    }

    /// Lets a packed constant's elements go if nobody is known to want them as they are.
    fn release(
        &mut self,
        constant: &Arc<Constant>,
        value: ValueIndex,
        view: &View,
        packing: &Packing,
        bytes: &Arc<Bytes>,
    ) {
        let whole = view.num_elements() as u64 == constant.shape.num_elements() && view.offset == 0;
        let panels = match packing {
            &Packing::Right { ref matrix, k, n, tiles }
                if whole && constant.dtype == DType::F32 && tiles.word == Word::F32 && !tiles.half =>
            {
                let (bytes, row, column) = (Arc::clone(bytes), matrix.row, matrix.column);
                Some(Panels { bytes, k, n, columns: tiles.columns, row, column })
            }
            _ => None,
        };
        let read = self.products_reading(value);
        // Held by the table of constants, one flat function, one draft, and the caller.
        let alone = Arc::strong_count(constant) <= 4 && read == Some(1);
        let last = panels.is_some() || self.shared.only_plan && alone;
        if constant.is_large() && read.is_some() && last {
            constant.release(panels);
            self.buffers[view.buffer].place = None;
        }
    }

    /// How many products read a value, views looked through; `None` if others do, too.
    fn products_reading(&self, value: ValueIndex) -> Option<usize> {
        if self.flat.results.contains(&value) {
            return None;
        }
        let counts = self.users[value].iter().map(|&user| {
            let node = &self.flat.nodes[user];
            match &node.work {
                Work::Op(Op::Dot(_) | Op::Conv(_)) | Work::BlockedConv(_) | Work::Bytes(_) => Some(1),
                _ if groups::is_view(node) => self.products_reading(node.results[0]),
                _ => None,
            }
        });
        counts.sum()
    }

    /// Appends a step with one result.
    fn emit(&mut self, kind: Kind, inputs: Vec<View>, dtype: DType, sizes: &[usize]) -> View {
        let changes = self.changes_of(&inputs);
        let output = self.new_view(dtype, sizes, changes);
        let name = self.name.clone();
        self.steps.push(Step { name, kind, inputs, outputs: vec![output.clone()], scratch: None });
        output
    }

    /// The same elements, dense.
    fn dense(&mut self, view: View) -> View {
        if view.is_dense() {
            return View { strides: crate::view::dense_strides(&view.sizes), ..view };
        }
        let (dtype, sizes) = (view.dtype, view.sizes.clone());
        self.emit(Kind::Movement(Movement::Copy), vec![view], dtype, &sizes)
    }

    /// The same elements in the same order under other sizes.
    fn reshaped(&mut self, view: &View, sizes: &[usize]) -> View {
        match view.reshape(sizes) {
            Some(view) => view,
            None => self.dense(view.clone()).reshape(sizes).expect("dense views take any sizes"),
        }
    }

    /// Results as [`Plan::results`] promises.
    fn results(&mut self, state: &Declared) -> Vec<View> {
        let flat = self.flat;
        let results = flat.results.iter().enumerate().map(|(index, &value)| {
            let view = self.view(value);
            let stays = |param: usize| view == self.view(flat.params[param]);
            if state.replaced_by(index).is_some_and(stays) {
                return view;
            }
            let whole = view.is_dense() && view.offset == 0;
            if whole && !matches!(self.buffers[view.buffer].place, Some(Place::Param)) {
                return view;
            }
            let (dtype, sizes) = (view.dtype, view.sizes.clone());
            self.emit(Kind::Movement(Movement::Copy), vec![view], dtype, &sizes)
        });
        results.collect()
    }

    fn finish(
        self,
        params: Vec<BufferId>,
        results: Vec<View>,
        steady: Vec<usize>,
        replaced: &[state::Replaced],
    ) -> Result<Plan> {
        let total: u128 = self.buffers.values().map(|buffer| buffer.bytes as u128).sum();
        if total > MAX_BYTES {
            return Err(errors::too_large(total));
        }
        let drafts = &self.buffers;
        let changes = |step: &Step| step.outputs.iter().map(|view| drafts[view.buffer].changes).max();
        let (mut constant, mut prepared, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        for step in self.steps {
            match changes(&step) {
                Some(Changes::Never) | None => constant.push(step),
                Some(Changes::WithState) => prepared.push(step),
                Some(Changes::EachRun) => steps.push(step),
            }
        }
        let steps = schedule::schedule(steps, replaced, drafts);
        let replaces = |buffer: BufferId| match drafts[buffer].place {
            Some(Place::Replaces(param)) => Some(params[param]),
            _ => None,
        };
        let steps = if self.options.fuse { together::together(steps, &replaces) } else { steps };
        let read_later: Vec<View> =
            steps.iter().flat_map(|step| &step.inputs).chain(&results).cloned().collect();
        let taken = memory::taken_over(&steps, &results, drafts);
        let none = SideTable::with_default(None);
        let each_run = |changes: Changes| changes == Changes::EachRun;
        let with_state = |changes: Changes| changes == Changes::WithState;
        let (offsets, arena_bytes) = memory::place(&steps, &results, drafts, &each_run, &taken);
        let (constant_offsets, constant_bytes) = memory::place(&constant, &[], drafts, &each_run, &none);
        let (kept_offsets, prepared_bytes) =
            memory::place(&prepared, &read_later, drafts, &with_state, &none);
        let (scratch_offsets, scratch_bytes) = memory::place(&prepared, &[], drafts, &each_run, &none);
        let arena_bytes = arena_bytes.max(scratch_bytes);
        let used = used_buffers(constant.iter().chain(&prepared).chain(&steps), &results);
        // A constant step's scratch is no constant; it lies in the arena of the preparation.
        let place = |id: BufferId, draft: &Draft| match &draft.place {
            Some(place) => place.clone(),
            None if draft.constant.is_some() && !used.contains(id) => Place::Kept(Arc::new(Bytes::new(0))),
            None if let Some((constant, _)) = &draft.constant => Place::Const(constant.tensor()),
            None if draft.changes == Changes::Never => Place::Kept(Arc::new(Bytes::new(draft.bytes))),
            None if draft.changes == Changes::WithState => Place::Prepared(kept_offsets[id].unwrap_or(0)),
            None => {
                let offset = offsets[id].or(constant_offsets[id]).or(scratch_offsets[id]);
                Place::Arena(offset.unwrap_or(0))
            }
        };
        let buffers: Arena<BufferId, Buffer> =
            drafts.iter().map(|(id, draft)| Buffer { bytes: draft.bytes, place: place(id, draft) }).collect();
        let replacing = buffers.iter().filter_map(|(id, buffer)| match buffer.place {
            Place::Replaces(param) => Some((id, param)),
            _ => None,
        });
        let replacing = replacing.collect();
        let rows: Vec<(BufferId, stacks::Row)> = buffers
            .iter()
            .filter_map(
                |(id, buffer)| if let Place::Row(row) = buffer.place { Some((id, row)) } else { None },
            )
            .collect();
        let written = rows.iter().filter(|(_, row)| !steady.contains(&row.param));
        let overwritten = written.map(|(_, row)| row.param).collect();
        let mut plan = Plan {
            buffers,
            steps,
            params,
            results,
            prepared,
            prepared_bytes,
            replacing,
            rows,
            overwritten,
            steady,
            children: self.children,
            arena_bytes: arena_bytes.max(constant_bytes),
            kept_bytes: 0,
        };
        check::check(&plan);
        if !constant.is_empty() {
            prepare(&plan, &constant, &mut Frame::new(&plan), self.pool)?;
            plan.arena_bytes = arena_bytes;
        }
        drop_unused(&mut plan);
        Ok(plan)
    }
}

/// An error before anything of an absurd size is made.
fn check_sizes(flat: &Flat, node: &FlatNode) -> Result<()> {
    let bytes = |&value: &ValueIndex| {
        let ty = &flat.values[value];
        let elements: u128 = ty.sizes.iter().map(|&size| size as u128).product();
        elements * u128::from(ty.dtype.size_bytes())
    };
    // A broadcast is a view: only what steps read and write counts, but that is not known yet.
    let is_view = matches!(&node.work, Work::Op(op) if matches!(op, Op::Broadcast { .. }));
    let most = node.operands.iter().chain(&node.results).map(bytes).max().unwrap_or(0);
    if most > MAX_BYTES && !is_view { Err(errors::too_large(most)) } else { Ok(()) }
}

fn used_buffers<'a>(steps: impl Iterator<Item = &'a Step>, results: &[View]) -> IdSet<BufferId> {
    let mut used = IdSet::new();
    let views = steps.flat_map(|step| step.inputs.iter().chain(&step.outputs));
    views.chain(results).for_each(|view| {
        used.insert(view.buffer);
    });
    used
}

/// Frees constants that only the preparation has read.
fn drop_unused(plan: &mut Plan) {
    let used = used_buffers(plan.prepared.iter().chain(&plan.steps), &plan.results);
    for (id, buffer) in plan.buffers.iter_mut() {
        match &mut buffer.place {
            Place::Kept(bytes) if !used.contains(id) => *bytes = Arc::new(Bytes::new(0)),
            Place::Const(tensor) if !used.contains(id) => *tensor = Tensor::zeros(DType::U8, [0]),
            Place::Kept(_) => plan.kept_bytes += buffer.bytes,
            _ => {}
        }
    }
}

//! Running a plan: where its buffers are, and its steps in order. All memory is had before the first step; a
//! step gets pointers.
//!
//! The invariant behind every pointer (checked by [`crate::plan::check`] when a plan is made): a buffer's
//! bytes lie inside its storage; buffers that are live at the same time do not overlap; views stay inside
//! their buffers; constants are never written, and parameters only where results replace them.

#![allow(unsafe_code)]

use crate::allocation::Bytes;
use crate::model::Arguments;
use crate::plan::{Place, Plan};
use crate::pool::Pool;
use crate::view::{BufferId, View};
use pando_base::{Id, Result};

/// The memory of one run of a plan. Kept and used again; not shared by runs at the same time.
pub struct Frame {
    _arena: Bytes,
    _prepared: Bytes,
    /// The versions of the state that was prepared.
    versions: Vec<u64>,
    pointers: Vec<*mut u8>,
    children: Vec<Frame>,
}

// SAFETY: the pointers lead into the arena, which moves with the frame, and into constants, which are only
// read; those to parameters are set anew at the start of each run.
unsafe impl Send for Frame {}

impl Frame {
    pub fn new(plan: &Plan) -> Frame {
        let (arena, prepared) = (Bytes::new(plan.arena_bytes), Bytes::new(plan.prepared_bytes));
        let pointer = |place: &Place| match place {
            // SAFETY: offsets are inside the arena: the plan's size is the largest end of a buffer.
            Place::Arena(offset) => unsafe { arena.as_ptr().add(*offset) },
            // SAFETY: as above.
            Place::Prepared(offset) => unsafe { prepared.as_ptr().add(*offset) },
            Place::Const(tensor) => tensor.bytes().as_ptr().cast_mut(),
            Place::Kept(bytes) => bytes.as_ptr(),
            Place::Param | Place::Replaces(_) | Place::Row(_) => std::ptr::null_mut(),
        };
        let pointers = plan.buffers.values().map(|buffer| pointer(&buffer.place)).collect();
        let children = plan.children.iter().map(Frame::new).collect();
        Frame { _arena: arena, _prepared: prepared, versions: Vec::new(), pointers, children }
    }

    /// Sets where the parameters are, and what replaces them.
    fn bind(&mut self, plan: &Plan, addresses: impl Iterator<Item = *mut u8>) {
        for (address, &param) in addresses.zip(&plan.params) {
            self.pointers[param.index()] = address;
        }
        for &(buffer, param) in &plan.replacing {
            self.pointers[buffer.index()] = self.pointers[plan.params[param].index()];
        }
    }

    /// Sets where the rows of this iteration are.
    fn point_to_rows(&mut self, plan: &Plan, iteration: u64) {
        for &(buffer, row) in &plan.rows {
            let begin = row.index(iteration) as usize * plan.buffers[buffer].bytes;
            self.pointers[buffer.index()] = self.pointers[plan.params[row.param].index()].wrapping_add(begin);
        }
    }

    pub fn pointer(&self, buffer: BufferId) -> *mut u8 {
        self.pointers[buffer.index()]
    }
}

/// Where the buffers of a running plan are. Threads share it; what they may touch is the step's business.
#[derive(Clone, Copy)]
pub struct Memory<'a>(&'a [*mut u8]);

// SAFETY: only addresses; dereferencing them is guarded where it happens.
unsafe impl Sync for Memory<'_> {}
// SAFETY: as above.
unsafe impl Send for Memory<'_> {}

impl<'a> Memory<'a> {
    /// The addresses of buffers, by their numbers.
    pub fn new(pointers: &'a [*mut u8]) -> Memory<'a> {
        Memory(pointers)
    }

    /// The address of a view's first element. A view without elements may start anywhere; its address must
    /// not be read.
    pub fn address(&self, view: &View) -> *mut u8 {
        let base = self.0[view.buffer.index()];
        base.wrapping_offset(view.offset * view.dtype.size_bytes() as isize)
    }

    /// The bytes of a dense view.
    ///
    /// # Safety
    /// Nobody writes the view's buffer while the slice lives.
    pub unsafe fn bytes(&self, view: &View) -> &[u8] {
        if view.num_bytes() == 0 {
            return &[];
        }
        // SAFETY: the plan's invariant: the view lies in its buffer.
        unsafe { std::slice::from_raw_parts(self.address(view), view.num_bytes()) }
    }

    /// The bytes of a dense view, to write.
    ///
    /// # Safety
    /// Nobody else uses the view's buffer while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self, view: &View) -> &mut [u8] {
        if view.num_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: the plan's invariant: the view lies in its buffer.
        unsafe { std::slice::from_raw_parts_mut(self.address(view), view.num_bytes()) }
    }
}

/// Start, since the run began, and duration of each step, in seconds.
pub type Timing = Vec<(f64, f64)>;

/// What a step may use.
pub struct Run<'a> {
    pub pool: &'a Pool,
    pub memory: Memory<'a>,
    pub plan: &'a Plan,
    children: &'a mut [Frame],
    timing: Option<&'a mut Timing>,
    /// Of the state that has been prepared.
    versions: &'a [u64],
}

impl Run<'_> {
    /// Runs a child plan (a branch or a loop's part) on the dense views of this plan.
    pub fn child(&mut self, index: usize, inputs: &[View]) -> Result<()> {
        self.bind_child(index, inputs)?;
        self.run_child(index)
    }

    /// Says where a child plan's parameters are, and makes what it prepares of those that stay the same.
    pub fn bind_child(&mut self, index: usize, inputs: &[View]) -> Result<()> {
        self.point_child(index, inputs);
        let plan = &self.plan.children[index];
        prepare(plan, &plan.prepared, &mut self.children[index], self.pool)
    }

    /// Says where a child plan's parameters are.
    pub fn point_child(&mut self, index: usize, inputs: &[View]) {
        let memory = self.memory;
        let addresses = inputs.iter().map(|view| memory.address(view));
        self.children[index].bind(&self.plan.children[index], addresses);
    }

    /// Makes what a child plan prepares of this plan's state, if that has changed.
    pub fn prepare_child_of_state(&mut self, index: usize) -> Result<()> {
        let (plan, frame) = (&self.plan.children[index], &mut self.children[index]);
        if plan.prepared.is_empty() || !self.versions.is_empty() && frame.versions == self.versions {
            return Ok(());
        }
        frame.versions.clear();
        prepare(plan, &plan.prepared, frame, self.pool)?;
        frame.versions.extend_from_slice(self.versions);
        Ok(())
    }

    /// Runs a loop's body on the parameters it is bound to.
    pub fn run_iteration(&mut self, index: usize, iteration: u64) -> Result<()> {
        self.children[index].point_to_rows(&self.plan.children[index], iteration);
        self.run_child(index)
    }

    /// Runs a child plan once more on the parameters it is bound to.
    pub fn run_child(&mut self, index: usize) -> Result<()> {
        run_steps(&self.plan.children[index], &mut self.children[index], self.pool, None)
    }

    /// Copies a result of a child plan that has run.
    pub fn copy_child_result(&self, index: usize, result: usize, to: &View) {
        let plan = &self.plan.children[index];
        let from = self.children[index].pointer(plan.results[result].buffer);
        // SAFETY: a result is dense, has the type of the view it is copied to, and lies in the child's own
        // arena; see `Plan::results`.
        unsafe { std::ptr::copy_nonoverlapping(from, self.memory.address(to), to.num_bytes()) };
    }
}

/// Runs a plan on parameters of its sizes. Results stay in the frame.
///
/// # Safety
/// Each address has as many readable bytes as its parameter, which nobody writes until the call returns; those
/// of parameters that results replace are the caller's alone.
pub unsafe fn run(
    plan: &Plan,
    frame: &mut Frame,
    pool: &Pool,
    arguments: &Arguments,
    results: impl Iterator<Item = (BufferId, *mut u8)>,
    timing: Option<&mut Timing>,
) -> Result<()> {
    for (buffer, address) in results {
        frame.pointers[buffer.index()] = address;
    }
    frame.bind(plan, arguments.addresses.iter().copied());
    let versions = || plan.steady.iter().map(|&param| arguments.versions[param]);
    if !versions().eq(frame.versions.iter().copied()) {
        // Nothing is prepared for any version while it is being remade.
        frame.versions.clear();
        prepare(plan, &plan.prepared, frame, pool)?;
        frame.versions.extend(versions());
    }
    run_steps(plan, frame, pool, timing)
}

fn run_steps(plan: &Plan, frame: &mut Frame, pool: &Pool, timing: Option<&mut Timing>) -> Result<()> {
    let memory = Memory(&frame.pointers);
    let (children, versions) = (&mut frame.children, frame.versions.as_slice());
    let mut run = Run { pool, memory, plan, children, timing, versions };
    let begin = std::time::Instant::now();
    for step in &plan.steps {
        if run.timing.is_none() {
            step.run(&mut run)?;
            continue;
        }
        let start = begin.elapsed().as_secs_f64();
        step.run(&mut run)?;
        let seconds = begin.elapsed().as_secs_f64() - start;
        if let Some(timing) = &mut run.timing {
            timing.push((start, seconds));
        }
    }
    Ok(())
}

/// Runs a plan's preparation: the steps whose operands are all constants, or state besides.
pub fn prepare(plan: &Plan, steps: &[crate::step::Step], frame: &mut Frame, pool: &Pool) -> Result<()> {
    let memory = Memory(&frame.pointers);
    let mut run = Run { pool, memory, plan, children: &mut frame.children, timing: None, versions: &[] };
    steps.iter().try_for_each(|step| step.run(&mut run))
}

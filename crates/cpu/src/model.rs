//! A compiled model: plans by input shapes, made when first needed and kept.

#![allow(unsafe_code)]

use crate::constants::Constants;
use crate::errors;
use crate::exec::{self, Frame, Timing};
use crate::flat::flatten;
use crate::images;
use crate::options::CompileOptions;
use crate::plan::state::Declared;
use crate::plan::{self, Packed, Place, Plan};
use crate::pool::Pool;
use crate::step::Step;
use crate::view::BufferId;
use pando_base::{DType, Result, Shape, Tensor};
use pando_graph::{Dim, Func, FuncId, Module, bind_dims, check_expanded_size, rebuild};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Time and work of one step of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTime {
    /// The kind of step: `gemm`, `elementwise`, …
    pub kind: &'static str,
    /// The value it computes, as the model calls it; empty if it has no name. Steps may share one.
    pub name: Arc<str>,
    /// Sizes of its first result as it lies in memory: images may have their channels in blocks.
    pub sizes: Vec<usize>,
    /// Since the run began.
    pub start_seconds: f64,
    pub seconds: f64,
    /// Multiplications and additions of products; 0 where bytes are the measure of the work.
    pub flops: u64,
    /// What it must read and write at least.
    pub bytes: u64,
}

/// The median duration of each step over runs of the same plan; the rest is the first run's.
pub fn medians(runs: &[Vec<StepTime>]) -> Vec<StepTime> {
    let mut steps = runs.first().cloned().unwrap_or_default();
    for (index, step) in steps.iter_mut().enumerate() {
        let mut seconds: Vec<f64> = runs.iter().map(|run| run[index].seconds).collect();
        seconds.sort_by(f64::total_cmp);
        step.seconds = seconds[seconds.len() / 2];
    }
    steps
}

/// An input that stays where it is: dense, row-major, little-endian.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    dtype: DType,
    shape: Shape,
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// Addresses that bytes of an input must be a multiple of.
    pub const ALIGNMENT: usize = 8;

    /// # Panics
    /// If the number of bytes is not the shape's, or their address not a multiple of [`Input::ALIGNMENT`].
    pub fn new(dtype: DType, shape: Shape, bytes: &'a [u8]) -> Self {
        assert_eq!(bytes.len() as u64, shape.num_elements() * dtype.size_bytes(), "bytes of {dtype}{shape}");
        assert!(bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(Self::ALIGNMENT), "{dtype}{shape}");
        Input { dtype, shape, bytes }
    }
}

impl Input<'_> {
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn ty(&self) -> (DType, &Shape) {
        (self.dtype, &self.shape)
    }

    /// Nobody writes there.
    pub(crate) fn address(&self) -> *mut u8 {
        self.bytes.as_ptr().cast_mut()
    }

    /// A copy.
    pub fn to_tensor(&self) -> Tensor {
        Tensor::from_bytes(self.dtype, self.shape.clone(), self.bytes).expect("`new` has compared the sizes")
    }
}

impl<'a> From<&'a Tensor> for Input<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Input { dtype: tensor.dtype(), shape: tensor.shape().clone(), bytes: tensor.bytes() }
    }
}

/// Ready to run. Runs at the same time are safe; they share the threads.
pub struct Model {
    module: Module,
    main: FuncId,
    options: CompileOptions,
    /// How many of the first parameters are state.
    pub(crate) num_state: usize,
    pub(crate) state: Declared,
    pool: Pool,
    constants: Mutex<Constants>,
    packed: Mutex<Packed>,
    plans: Mutex<FxHashMap<Vec<Shape>, Arc<Planned>>>,
}

/// A plan and the memory of its finished runs.
pub(crate) struct Planned {
    plan: Plan,
    frames: Mutex<Vec<Frame>>,
}

/// Where the parameters of a run are, and the versions of those that are state.
#[derive(Default)]
pub(crate) struct Arguments {
    pub addresses: Vec<*mut u8>,
    pub versions: Vec<u64>,
}

/// Compiles the function `main` of a valid module. Where all sizes are numbers, the plan is made at once.
pub fn compile(module: &Module, options: &CompileOptions) -> Result<Model> {
    compile_owned(module.clone(), options)
}

/// As [`compile`], for a module that nobody else holds: its constants are let go once they are packed.
pub fn compile_owned(module: Module, options: &CompileOptions) -> Result<Model> {
    Model::new(module, 0, Declared::default(), options)
}

/// Consumes the module: what it alone held of constants is not held on.
fn rebuilt(module: Module) -> Result<Module> {
    rebuild(&module)
}

impl Planned {
    pub fn zeroed_results(&self) -> Vec<Tensor> {
        let results = self.plan.results.iter();
        results.map(|view| Tensor::zeros(view.dtype, shape_of(&view.sizes))).collect()
    }

    /// An error unless the tensors have room for exactly the results.
    pub fn check_outputs(&self, outputs: &[Tensor]) -> Result<()> {
        let results = &self.plan.results;
        if outputs.len() != results.len() {
            return Err(errors::wrong_output(outputs.len(), "no result", "more"));
        }
        for (position, (output, view)) in outputs.iter().zip(results).enumerate() {
            let found = format!("{}{}", output.dtype(), output.shape());
            let expected = format!("{}{}", view.dtype, shape_of(&view.sizes));
            if found != expected {
                return Err(errors::wrong_output(position, &expected, &found));
            }
        }
        Ok(())
    }

    pub fn step_times(&self, seconds: Timing) -> Vec<StepTime> {
        let times = self.plan.steps.iter().zip(seconds);
        let step_time = |(step, (start_seconds, seconds)): (&Step, (f64, f64))| StepTime {
            kind: step.kind_name(),
            name: step.name.clone(),
            sizes: step.outputs.first().map_or(Vec::new(), |view| view.sizes.to_vec()),
            start_seconds,
            seconds,
            flops: step.flops(),
            bytes: step.bytes(),
        };
        times.map(step_time).collect()
    }
}

impl Model {
    pub(crate) fn new(
        module: Module,
        num_state: usize,
        state: Declared,
        options: &CompileOptions,
    ) -> Result<Model> {
        check_expanded_size(&module)?;
        let mut module = if options.fuse { rebuilt(module)? } else { module };
        let main = module.main().ok_or_else(errors::no_main)?;
        let types = module.funcs[main].param_types();
        let shapes: Option<Vec<Shape>> = types.iter().map(|ty| ty.shape()).collect();
        let packed = Packed::new(shapes.is_some());
        let model = Model {
            main,
            options: options.clone(),
            num_state,
            state,
            pool: Pool::new(options.threads),
            constants: Mutex::new(Constants::take(&mut module)),
            packed: Mutex::new(packed),
            plans: Mutex::default(),
            module,
        };
        if let Some(shapes) = shapes {
            model.planned(&shapes)?;
        }
        Ok(model)
    }

    /// The results for these inputs. Named dimensions take their numbers from the inputs' shapes.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.run_timed(&borrowed(inputs), None)
    }

    /// As [`Model::run`], on inputs that somebody else owns.
    pub fn run_borrowed(&self, inputs: &[Input]) -> Result<Vec<Tensor>> {
        self.run_timed(inputs, None)
    }

    /// As [`Model::run`], into tensors of the results' types and shapes: nothing is allocated once a run
    /// with these shapes has been.
    pub fn run_into(&self, inputs: &[Tensor], outputs: &mut [Tensor]) -> Result<()> {
        let (planned, arguments) = self.stateless(&borrowed(inputs))?;
        planned.check_outputs(outputs)?;
        self.run_planned(&planned, &arguments, outputs, None)
    }

    /// The results and the time of every step.
    pub fn profile(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Vec<StepTime>)> {
        self.profile_borrowed(&borrowed(inputs))
    }

    /// As [`Model::profile`], on inputs that somebody else owns.
    pub fn profile_borrowed(&self, inputs: &[Input]) -> Result<(Vec<Tensor>, Vec<StepTime>)> {
        let mut seconds = Vec::new();
        let results = self.run_timed(inputs, Some(&mut seconds))?;
        let (planned, _) = self.stateless(inputs)?;
        Ok((results, planned.step_times(seconds)))
    }

    /// Bytes of the arena that runs with these input shapes use, and of what is prepared for them from constants
    /// and state.
    pub fn memory_bytes(&self, shapes: &[Shape]) -> Result<(usize, usize)> {
        let planned = self.planned(shapes)?;
        Ok((planned.plan.arena_bytes, planned.plan.kept_bytes + planned.plan.prepared_bytes))
    }

    fn run_timed(&self, inputs: &[Input], timing: Option<&mut Timing>) -> Result<Vec<Tensor>> {
        let (planned, arguments) = self.stateless(inputs)?;
        let mut outputs = planned.zeroed_results();
        self.run_planned(&planned, &arguments, &mut outputs, timing)?;
        Ok(outputs)
    }

    /// The plan for these inputs, and where they are.
    fn stateless(&self, inputs: &[Input]) -> Result<(Arc<Planned>, Arguments)> {
        if self.num_state > 0 {
            return Err(errors::wrong_state_count(self.num_state, 0));
        }
        let planned = self.planned(&self.checked_shapes(inputs.iter().map(Input::ty))?)?;
        let addresses = inputs.iter().map(Input::address).collect();
        Ok((planned, Arguments { addresses, versions: Vec::new() }))
    }

    /// Steps write results where the outputs are; what two of them share, and constants, are copied.
    pub(crate) fn run_planned(
        &self,
        planned: &Planned,
        arguments: &Arguments,
        outputs: &mut [Tensor],
        timing: Option<&mut Timing>,
    ) -> Result<()> {
        let plan = &planned.plan;
        let mut frame = lock(&planned.frames).pop().unwrap_or_else(|| Frame::new(plan));
        let mut copied = Vec::new();
        let mut direct: Vec<(BufferId, *mut u8)> = Vec::new();
        for (view, output) in plan.results.iter().zip(outputs) {
            let made = matches!(plan.buffers[view.buffer].place, Place::Arena(_));
            let taken = direct.iter().any(|&(buffer, _)| buffer == view.buffer);
            match made && !taken && view.num_bytes() == plan.buffers[view.buffer].bytes {
                true => direct.push((view.buffer, output.bytes_mut().as_mut_ptr())),
                false => copied.push((view, output)),
            }
        }
        // SAFETY: `checked_shapes` has compared types and sizes with the parameters'; the tensors are
        // borrowed until the call returns, those of replaced parameters by us alone, and each output holds its
        // whole buffer.
        let result =
            unsafe { exec::run(plan, &mut frame, &self.pool, arguments, direct.into_iter(), timing) };
        if result.is_ok() {
            for (view, output) in copied {
                // SAFETY: the run is over, the frame is still ours, and results are dense.
                output.bytes_mut().copy_from_slice(unsafe { result_bytes(&frame, view) });
            }
        }
        lock(&planned.frames).push(frame);
        result
    }

    fn main_func(&self) -> &Func {
        &self.module.funcs[self.main]
    }

    /// The inputs' shapes if they suit the parameters, names aside.
    pub(crate) fn checked_shapes<'a>(
        &self,
        inputs: impl Iterator<Item = (DType, &'a Shape)>,
    ) -> Result<Vec<Shape>> {
        let types = self.main_func().param_types();
        let inputs: Vec<(DType, &Shape)> = inputs.collect();
        if types.len() != inputs.len() {
            let state = self.num_state;
            return Err(errors::wrong_input_count(types.len() - state, inputs.len() - state));
        }
        for (position, (&(dtype, shape), ty)) in inputs.iter().zip(types).enumerate() {
            let fits = |(dim, &size): (&Dim, &u64)| dim.known().is_none_or(|known| known == size);
            let same_rank = ty.rank() == shape.rank();
            if dtype != ty.dtype || !same_rank || !ty.dims.iter().zip(shape.iter()).all(fits) {
                return Err(match position.checked_sub(self.num_state) {
                    Some(position) => errors::wrong_input(position, ty, dtype, shape),
                    None => errors::wrong_state(position, ty, dtype, shape),
                });
            }
        }
        Ok(inputs.into_iter().map(|(_, shape)| shape.clone()).collect())
    }

    pub(crate) fn planned(&self, shapes: &[Shape]) -> Result<Arc<Planned>> {
        if let Some(planned) = lock(&self.plans).get(shapes) {
            return Ok(Arc::clone(planned));
        }
        let bindings = self.bindings(shapes)?;
        let bound = if bindings.is_empty() { None } else { Some(bind_dims(&self.module, &bindings)?) };
        let module = bound.as_ref().unwrap_or(&self.module);
        // State is updated where it lies, in its own type.
        let widen = self.options.widen && self.num_state == 0;
        let mut flat = flatten(module, self.main, &mut lock(&self.constants), &self.options, widen)?;
        if self.options.fuse && !self.state.steady.is_empty() {
            flat.hoist(&self.state.steady);
        }
        let flat = if self.options.fuse {
            images::split(flat, self.pool.threads(), &self.state.steady)
        } else {
            flat
        };
        let plan = plan::plan(&flat, &self.state, &self.options, &self.pool, &mut lock(&self.packed))?;
        let planned = Arc::new(Planned { plan, frames: Mutex::default() });
        lock(&self.plans).insert(shapes.to_vec(), Arc::clone(&planned));
        Ok(planned)
    }

    /// What the shapes say about the names in the parameters' types.
    fn bindings(&self, shapes: &[Shape]) -> Result<Vec<(String, u64)>> {
        let mut bindings: Vec<(String, u64)> = Vec::new();
        for (ty, shape) in self.main_func().param_types().into_iter().zip(shapes) {
            for (dim, &size) in ty.dims.iter().zip(shape.iter()) {
                let Dim::Named(name) = dim else { continue };
                match bindings.iter().find(|(known, _)| **known == **name) {
                    Some(&(_, first)) if first != size => {
                        return Err(errors::binding_conflict(name, first, size));
                    }
                    Some(_) => {}
                    None => bindings.push((name.to_string(), size)),
                }
            }
        }
        Ok(bindings)
    }
}

fn borrowed(inputs: &[Tensor]) -> Vec<Input<'_>> {
    inputs.iter().map(Input::from).collect()
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic could leave behind is whole: entries are inserted in one piece.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shape_of(sizes: &[usize]) -> Shape {
    sizes.iter().map(|&size| size as u64).collect()
}

/// # Safety
/// The frame's plan has run and does not run while the slice lives; `view` is one of its results.
unsafe fn result_bytes<'a>(frame: &'a Frame, view: &crate::view::View) -> &'a [u8] {
    let size = view.num_elements() * DType::size_bytes(view.dtype) as usize;
    if size == 0 {
        return &[];
    }
    // SAFETY: results are dense and start their buffers.
    unsafe { std::slice::from_raw_parts(frame.pointer(view.buffer), size) }
}

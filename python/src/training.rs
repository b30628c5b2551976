//! What training adds to a graph under construction: gradients, updates of weights, accumulation, clipping, loss
//! scaling. Values are the graph's plain numbers.

use crate::graph::{Graph, Value, dtype_of};
use crate::{Error, to_python};
use pando_base::Id;
use pando_graph::TensorType;
use pando_transform::optimizer::{Initial, Rounding, Update};
use pando_transform::{Accumulation as Rule, GradientReduction, MeanStrategy, clip, loss_scaling};
use pyo3::prelude::*;

/// The gradients of `sum of <seed, output>` with respect to `wrt`; None where nothing flows.
#[pyfunction]
pub fn gradients(
    graph: &mut Graph,
    outputs: Vec<Value>,
    seeds: Vec<Value>,
    wrt: Vec<Value>,
) -> PyResult<Vec<Option<Value>>> {
    let outputs = graph.values(&outputs)?;
    let seeds = graph.values(&seeds)?;
    let wrt = graph.values(&wrt)?;
    let pairs: Vec<_> = outputs.into_iter().zip(seeds).collect();
    let found = graph.open()?.gradients(&pairs, &wrt).map_err(to_python)?;
    Ok(found.into_iter().map(|value| value.map(Id::index)).collect())
}

/// The gradients, shortened so that their common norm is at most `max_norm` (`f32[]`).
#[pyfunction]
pub fn clip_by_norm(graph: &mut Graph, gradients: Vec<Value>, max_norm: Value) -> PyResult<Vec<Value>> {
    let (gradients, max_norm) = (graph.values(&gradients)?, graph.value(max_norm)?);
    let (clipped, _) = clip::by_global_norm(graph.open()?, &gradients, max_norm).map_err(to_python)?;
    Ok(clipped.into_iter().map(Id::index).collect())
}

/// Whether all elements are finite: `bool[]`.
#[pyfunction]
pub fn all_finite(graph: &mut Graph, values: Vec<Value>) -> PyResult<Value> {
    let values = graph.values(&values)?;
    loss_scaling::all_finite(graph.open()?, &values).map(Id::index).map_err(to_python)
}

/// The automatic loss scale of the next step and the number of steps without overflow, both `f32[]`.
#[pyfunction]
pub fn next_loss_scale(
    graph: &mut Graph,
    finite: Value,
    scale: Value,
    good_steps: Value,
) -> PyResult<(Value, Value)> {
    let [finite, scale, good_steps] = [graph.value(finite)?, graph.value(scale)?, graph.value(good_steps)?];
    let automatic = loss_scaling::Automatic::default();
    let next = automatic.next(graph.open()?, finite, scale, good_steps);
    next.map(|(scale, steps)| (scale.index(), steps.index())).map_err(to_python)
}

/// A rule for updating weights, by its name and settings.
#[pyclass(frozen)]
pub struct Optimizer(pando_transform::Optimizer);

/// A tensor of an optimizer's state: name, element type, sizes, first value (None: the weight's), shared by all weights.
type Slot = (&'static str, &'static str, Vec<u64>, Option<f64>, bool);

#[pymethods]
impl Optimizer {
    #[new]
    #[pyo3(signature = (rule, settings, *, first="f32", second="f32", master=false, stochastic=false))]
    fn new(
        rule: &str,
        settings: Vec<(String, f64)>,
        first: &str,
        second: &str,
        master: bool,
        stochastic: bool,
    ) -> PyResult<Self> {
        let settings: Vec<(&str, f64)> =
            settings.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let optimizer = pando_transform::Optimizer::named(rule, &settings).map_err(to_python)?;
        let rounding = if stochastic { Rounding::Stochastic } else { Rounding::Nearest };
        let (first, second) = (dtype_of(first)?, dtype_of(second)?);
        Ok(Optimizer(pando_transform::Optimizer { first, second, master, rounding, ..optimizer }))
    }

    /// Names and values of the numbers that `update` takes.
    fn hyperparameters(&self) -> Vec<(&'static str, f64)> {
        self.0.hyperparameters().into_iter().map(|hyper| (hyper.name, hyper.value)).collect()
    }

    /// The state of a weight of this type.
    fn slots(&self, dtype: &str, dims: Vec<u64>) -> PyResult<Vec<Slot>> {
        let weight = TensorType::new(dtype_of(dtype)?, dims);
        let slots = self.0.slots(&weight).into_iter().map(|slot| {
            let dims = slot.ty.require_shape().map_err(to_python)?.iter().copied().collect();
            let initial = match slot.initial {
                Initial::Value(value) => Some(value),
                Initial::Weight => None,
            };
            Ok((slot.name, slot.ty.dtype.name(), dims, initial, slot.shared))
        });
        slots.collect()
    }

    /// One update: the new weight and the new state.
    #[pyo3(signature = (graph, weight, gradient, state, hyper, seed=None))]
    fn update(
        &self,
        graph: &mut Graph,
        weight: Value,
        gradient: Option<Value>,
        state: Vec<Value>,
        hyper: Vec<Value>,
        seed: Option<Value>,
    ) -> PyResult<(Value, Vec<Value>)> {
        let weight = graph.value(weight)?;
        let gradient = gradient.map(|value| graph.value(value)).transpose()?;
        let seed = seed.map(|value| graph.value(value)).transpose()?;
        let (state, hyper) = (graph.values(&state)?, graph.values(&hyper)?);
        let update = Update { weight, gradient, state: &state, hyper: &hyper, seed };
        let updated = self.0.update(graph.open()?, &update).map_err(to_python)?;
        Ok((updated.weight.index(), updated.state.into_iter().map(Id::index).collect()))
    }

    /// A combined velocity with a gradient added.
    fn add_to_velocity(
        &self,
        graph: &mut Graph,
        velocity: Value,
        gradient: Value,
        hyper: Vec<Value>,
    ) -> PyResult<Value> {
        let [velocity, gradient] = [graph.value(velocity)?, graph.value(gradient)?];
        let hyper = graph.values(&hyper)?;
        let added = self.0.add_to_velocity(graph.open()?, velocity, gradient, &hyper);
        added.map(Id::index).map_err(to_python)
    }
}

/// How the gradients of micro-batches and replicas become one.
#[pyclass(frozen)]
pub struct Accumulation(Rule);

#[pymethods]
impl Accumulation {
    /// `reduction`: "sum", or a mean: "running", "post" or "post_and_loss".
    #[new]
    fn new(reduction: &str, micro_batches: u64, replicas: u64) -> PyResult<Self> {
        let reduction = match reduction {
            "sum" => GradientReduction::Sum,
            "running" => GradientReduction::Mean(MeanStrategy::Running),
            "post" => GradientReduction::Mean(MeanStrategy::Post),
            "post_and_loss" => GradientReduction::Mean(MeanStrategy::PostAndLoss),
            unknown => return Err(Error::new_err(format!("there is no reduction of gradients {unknown}"))),
        };
        Ok(Accumulation(Rule { reduction, micro_batches, replicas, ..Rule::default() }))
    }

    /// What the loss is multiplied by.
    fn loss_factor(&self) -> f64 {
        self.0.loss_factor()
    }

    /// Whether `add` uses the index.
    fn needs_index(&self) -> bool {
        self.0.needs_index()
    }

    /// The accumulator with one more gradient; `index` (`f32[]`): how many it holds already.
    fn add(&self, graph: &mut Graph, accumulator: Value, gradient: Value, index: Value) -> PyResult<Value> {
        let [accumulator, gradient, index] =
            [graph.value(accumulator)?, graph.value(gradient)?, graph.value(index)?];
        let added = self.0.add(graph.open()?, accumulator, gradient, index);
        added.map(Id::index).map_err(to_python)
    }

    /// What one gradient adds to a sum that is not divided afterwards, in f32.
    fn share(&self, graph: &mut Graph, gradient: Value) -> PyResult<Value> {
        let gradient = graph.value(gradient)?;
        self.0.share(graph.open()?, gradient).map(Id::index).map_err(to_python)
    }

    /// The gradient for the update, in f32.
    fn total(&self, graph: &mut Graph, accumulator: Value) -> PyResult<Value> {
        let accumulator = graph.value(accumulator)?;
        self.0.total(graph.open()?, accumulator).map(Id::index).map_err(to_python)
    }
}

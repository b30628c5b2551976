//! One set of inputs that decides what a file leaves open: sizes that depend on what the model computes.
//!
//! A translation that needs a value asks for it; what lies above that value, and no more, is evaluated. The
//! values so used are told beside the graph ([`super::Imported::decided`]): it holds for inputs that lead to the
//! same ones.

use crate::errors;
use crate::proto::{DimensionValue, GraphProto, TensorTypeProto, TypeValue, ValueInfoProto};
use pando_base::{Result, Tensor};
use pando_graph::{Builder, EvalOptions, Module, ValueId};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// Computes the results of a module's `main`.
pub type Evaluate = dyn Fn(&Module, &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync;

/// Values of inputs, and how to compute with them.
#[derive(Clone)]
pub struct Sample {
    pub inputs: Vec<(String, Tensor)>,
    pub evaluate: Arc<Evaluate>,
}

impl Sample {
    /// With the graph's own evaluator, which is slow: an engine suits models whose sizes depend on large
    /// parts of them.
    pub fn new(inputs: Vec<(String, Tensor)>) -> Self {
        let evaluate = |module: &Module, args: &[Tensor]| {
            let main = module.main().ok_or_else(errors::no_graph)?;
            let limits = EvalOptions { max_steps: 10_000_000, max_bytes: 4 << 30 };
            pando_graph::eval_with(module, main, args, &limits)
        };
        Sample { inputs, evaluate: Arc::new(evaluate) }
    }

    pub(super) fn value(&self, name: &str) -> Option<&Tensor> {
        self.inputs.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }

    /// The numbers behind the names of dimensions, as far as the inputs have them.
    pub(super) fn dims(&self, graph: &GraphProto) -> Result<Vec<(String, u64)>> {
        let mut bound: Vec<(String, u64)> = Vec::new();
        for info in &graph.input {
            let (Some(tensor), Some(ty)) = (self.value(&info.name), declared(info)) else { continue };
            let dims = ty.shape.iter().flat_map(|shape| &shape.dim);
            for (axis, (dim, &size)) in dims.zip(tensor.shape().iter()).enumerate() {
                let name = match &dim.value {
                    Some(DimensionValue::DimValue(size)) if *size >= 0 => continue,
                    Some(DimensionValue::DimParam(name)) if !super::names::symbol(name).is_empty() => {
                        name.clone()
                    }
                    _ => super::inputs::unnamed_dim(&info.name, axis),
                };
                match bound.iter().find(|(known, _)| *known == name) {
                    Some(&(_, first)) if first != size => {
                        return Err(errors::sizes_differ(&name, first, size));
                    }
                    Some(_) => {}
                    None => bound.push((name, size)),
                }
            }
        }
        Ok(bound)
    }
}

/// The type that a tensor given for an input has: also of an optional, which then has an element.
pub(super) fn declared(info: &ValueInfoProto) -> Option<&TensorTypeProto> {
    let mut ty = info.r#type.as_ref()?.value.as_ref()?;
    if let TypeValue::Optional(element) = ty {
        ty = element.elem_type.as_ref()?.value.as_ref()?;
    }
    match ty {
        TypeValue::Tensor(tensor) => Some(tensor),
        _ => None,
    }
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sample").field("inputs", &self.inputs).finish_non_exhaustive()
    }
}

/// What a sample has decided so far. Ids are of values of `main`.
pub struct Decisions {
    evaluate: Arc<Evaluate>,
    values: RefCell<FxHashMap<ValueId, Tensor>>,
    decided: RefCell<Vec<ValueId>>,
}

impl Decisions {
    pub fn new(sample: &Sample) -> Self {
        let evaluate = sample.evaluate.clone();
        Decisions { evaluate, values: RefCell::default(), decided: RefCell::default() }
    }

    pub fn know(&self, param: ValueId, tensor: Tensor) {
        self.values.borrow_mut().insert(param, tensor);
    }

    /// The elements of a value of `main`; `None` inside other functions, or where it depends on inputs
    /// that the sample lacks.
    pub fn decide(&self, b: &Builder, value: ValueId) -> Result<Option<Tensor>> {
        if b.depth() != 1 {
            return Ok(None);
        }
        if !self.values.borrow().contains_key(&value) {
            let Some(tensor) = self.compute(b, value)? else { return Ok(None) };
            self.values.borrow_mut().insert(value, tensor);
        }
        let mut decided = self.decided.borrow_mut();
        if !decided.contains(&value) {
            decided.push(value);
        }
        Ok(self.values.borrow().get(&value).cloned())
    }

    fn compute(&self, b: &Builder, value: ValueId) -> Result<Option<Tensor>> {
        let values = self.values.borrow();
        let Some((module, params)) = b.cone(value, |value| values.contains_key(&value)) else {
            return Ok(None);
        };
        let args: Vec<Tensor> = params.iter().map(|param| values[param].clone()).collect();
        (self.evaluate)(&module, &args).map(|mut results| Some(results.swap_remove(0)))
    }

    pub fn decided(&self) -> Vec<ValueId> {
        self.decided.borrow().clone()
    }
}

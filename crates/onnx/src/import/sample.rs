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

    /// The elements of values of `main`, computed together; `None` inside other functions, or where one depends
    /// on inputs that the sample lacks.
    pub fn decide(&self, b: &Builder, values: &[ValueId]) -> Result<Option<Vec<Tensor>>> {
        if b.depth() != 1 {
            return Ok(None);
        }
        let open = |value: &ValueId| !self.values.borrow().contains_key(value);
        let open: Vec<ValueId> = values.iter().copied().filter(open).collect();
        if !open.is_empty() {
            let Some(tensors) = self.compute(b, &open)? else { return Ok(None) };
            self.values.borrow_mut().extend(open.into_iter().zip(tensors));
        }
        let mut decided = self.decided.borrow_mut();
        let new = values.iter().filter(|value| !decided.contains(value));
        let new: Vec<ValueId> = new.copied().collect();
        decided.extend(new);
        let known = self.values.borrow();
        Ok(Some(values.iter().map(|value| known[value].clone()).collect()))
    }

    fn compute(&self, b: &Builder, values: &[ValueId]) -> Result<Option<Vec<Tensor>>> {
        let known = self.values.borrow();
        let Some((module, params)) = b.cone(values, |value| known.contains_key(&value)) else {
            return Ok(None);
        };
        let args: Vec<Tensor> = params.iter().map(|param| known[param].clone()).collect();
        (self.evaluate)(&module, &args).map(Some)
    }

    pub fn decided(&self) -> Vec<ValueId> {
        self.decided.borrow().clone()
    }
}

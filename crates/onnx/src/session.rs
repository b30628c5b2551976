//! A model that takes any inputs: translated once for all of them where that can be, and again for new inputs
//! where sizes depend on what the model computes. How graphs are compiled to a `C` and run is the caller's choice.
//!
//! A translation that a sample has decided is used again only for inputs that give the same deciding values,
//! bit for bit; else the model is translated, compiled and run anew, which costs as much as the first time.

use crate::import::{
    Data, Failure, Given, Imported, Input, Options, OutputValue, Sample, attempt, declared_inputs,
    declared_outputs,
};
use crate::proto::ModelProto;
use crate::{decode, errors};
use bytes::Bytes;
use pando_base::{DType, Result, Tensor};
use pando_graph::{Dims, Module};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How graphs run. The module is given away, so that weights need not be there twice.
pub struct Engine<C> {
    pub compile: Box<dyn Fn(Module) -> Result<C> + Send + Sync>,
    /// The results of `main` for its arguments.
    pub run: fn(&C, &[Tensor]) -> Result<Vec<Tensor>>,
}

pub struct Session<C> {
    /// None where one translation is for all inputs: its weights are not held twice.
    model: Option<ModelProto>,
    name: String,
    folder: Option<PathBuf>,
    options: Options,
    engine: Arc<Engine<C>>,
    /// For all inputs, if there is one.
    general: Option<Arc<Plan<C>>>,
    /// For inputs like the last ones.
    special: Mutex<Option<Arc<Plan<C>>>>,
}

/// A translation, compiled.
pub struct Plan<C> {
    /// Its module is the engine's.
    pub imported: Imported,
    pub compiled: C,
    /// The results that decided, as this very plan computes them.
    deciding: Vec<Tensor>,
}

impl<C: Send + Sync + 'static> Session<C> {
    /// Reads a file. That a model has no translation for all inputs is no error yet, unless no inputs help.
    pub fn open(path: &Path, options: Options, engine: Engine<C>) -> Result<Session<C>> {
        let (bytes, name, folder) = crate::read(path)?;
        Session::of_bytes(bytes, &name, Some(folder), options, engine)
    }

    /// As [`Session::open`], of the bytes of a file called `name`, whose external data lies in `folder`.
    pub fn of_bytes(
        bytes: Bytes,
        name: &str,
        folder: Option<PathBuf>,
        options: Options,
        engine: Engine<C>,
    ) -> Result<Session<C>> {
        let model = decode(bytes).map_err(|error| error.with_file(name))?;
        let general = match plan(&model, folder.as_deref(), &options, &engine) {
            Ok(plan) => Some(Arc::new(plan)),
            Err(failure) if failure.is_open => None,
            Err(failure) => return Err(failure.error.with_file(name)),
        };
        let is_final = general.as_ref().is_some_and(|plan| plan.is_closed());
        let model = (!is_final).then_some(model);
        let (name, engine) = (name.to_string(), Arc::new(engine));
        Ok(Session { model, name, folder, options, engine, general, special: Mutex::default() })
    }

    /// The translation for all inputs, if there is one.
    pub fn general(&self) -> Option<&Plan<C>> {
        self.general.as_deref()
    }

    /// The inputs as the file declares them; those with values in the options are left out.
    pub fn inputs(&self) -> Result<Vec<Input>> {
        match (&self.model, &self.general) {
            (Some(model), _) => declared_inputs(model, &self.options),
            (None, plan) => Ok(plan.iter().flat_map(|plan| plan.imported.inputs.clone()).collect()),
        }
        .map_err(|error| error.with_file(&self.name))
    }

    /// Name, type and dimensions of the outputs that are tensors of numbers, as far as the file states them: of a
    /// model without a general translation, which knows better.
    pub fn declared_outputs(&self) -> Result<Vec<(String, DType, Option<Dims>)>> {
        let outputs = self.model.as_ref().map(|model| declared_outputs(model, &self.options));
        outputs.unwrap_or_else(|| Ok(Vec::new())).map_err(|error| error.with_file(&self.name))
    }

    /// Whether other inputs may need another translation.
    pub fn is_open(&self) -> bool {
        self.model.is_some()
    }

    /// The outputs for these inputs, in the file's order.
    pub fn run(&self, inputs: &[(String, Given)]) -> Result<Vec<(String, Given)>> {
        if let Some(plan) = &self.general {
            let results = plan.arguments(inputs).and_then(|args| (self.engine.run)(&plan.compiled, &args));
            match results {
                Ok(results) => return Ok(plan.outputs(&results)),
                Err(error) if self.model.is_none() => return Err(error.with_file(&self.name)),
                Err(_) => {}
            }
        }
        self.run_special(inputs).map(|(plan, results)| plan.outputs(&results))
    }

    /// The results for these inputs of a translation for inputs like these, and the translation.
    pub fn run_special(&self, inputs: &[(String, Given)]) -> Result<(Arc<Plan<C>>, Vec<Tensor>)> {
        self.special(inputs).map_err(|error| error.with_file(&self.name))
    }

    fn special(&self, inputs: &[(String, Given)]) -> Result<(Arc<Plan<C>>, Vec<Tensor>)> {
        let last = self.special.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(plan) = last
            && plan.fits(inputs)
            && let Ok(results) = (self.engine.run)(&plan.compiled, &plan.arguments(inputs)?)
            && plan.decides_the_same(&results)
        {
            return Ok((plan, results));
        }
        let model = self.model.as_ref().ok_or_else(errors::no_graph)?;
        let options = self.specialised(inputs);
        let mut plan =
            plan(model, self.folder.as_deref(), &options, &self.engine).map_err(|failure| failure.error)?;
        let results = (self.engine.run)(&plan.compiled, &plan.arguments(inputs)?)?;
        plan.deciding = plan.imported.decided.iter().map(|&at| results[at].clone()).collect();
        let plan = Arc::new(plan);
        // What was given as a value is part of the plan: other values need another one.
        let reusable = inputs.iter().all(|(_, given)| number(given).is_some());
        *self.special.lock().unwrap_or_else(PoisonError::into_inner) = reusable.then(|| plan.clone());
        Ok((plan, results))
    }

    /// The options with numbers as a sample and everything else as values.
    fn specialised(&self, inputs: &[(String, Given)]) -> Options {
        let mut options = self.options.clone();
        let mut sample = Vec::new();
        for (name, given) in inputs {
            match number(given) {
                Some(tensor) => sample.push((name.clone(), tensor.clone())),
                None => options.values.push((name.clone(), given.clone())),
            }
        }
        let engine = self.engine.clone();
        let evaluate = move |module: &Module, args: &[Tensor]| {
            (engine.compile)(module.clone()).and_then(|compiled| (engine.run)(&compiled, args))
        };
        options.sample = Some(Sample { inputs: sample, evaluate: Arc::new(evaluate) });
        options
    }
}

fn number(given: &Given) -> Option<&Tensor> {
    match given {
        Given::Data(Data::Numbers(tensor, _)) => Some(tensor),
        _ => None,
    }
}

fn plan<C>(
    model: &ModelProto,
    folder: Option<&Path>,
    options: &Options,
    engine: &Engine<C>,
) -> Result<Plan<C>, Failure> {
    let mut imported = attempt(model, folder, options)?;
    let compiled = (engine.compile)(std::mem::take(&mut imported.module))?;
    Ok(Plan { imported, compiled, deciding: Vec::new() })
}

impl<C> Plan<C> {
    /// Whether other inputs than these have no other sizes.
    fn is_closed(&self) -> bool {
        self.imported.inputs.iter().all(|input| input.ty.shape().is_some())
    }

    fn fits(&self, inputs: &[(String, Given)]) -> bool {
        let known = |name: &String| self.imported.inputs.iter().find(|input| input.name == *name);
        inputs.len() == self.imported.inputs.len()
            && inputs.iter().all(|(name, given)| {
                let (Some(input), Some(tensor)) = (known(name), number(given)) else { return false };
                input.ty.dtype == tensor.dtype() && input.ty.shape().as_ref() == Some(tensor.shape())
            })
    }

    fn arguments(&self, inputs: &[(String, Given)]) -> Result<Vec<Tensor>> {
        let one = |input: &Input| {
            let given = inputs.iter().find(|(name, _)| *name == input.name);
            let tensor = given.and_then(|(_, given)| number(given)).cloned();
            tensor.ok_or_else(|| errors::input_not_given(&input.name, &input.ty))
        };
        if let Some((name, _)) = inputs.iter().find(|(_, given)| number(given).is_none()) {
            return Err(errors::invalid(format!("input '{name}' is no tensor of numbers")));
        }
        self.imported.inputs.iter().map(one).collect()
    }

    fn decides_the_same(&self, results: &[Tensor]) -> bool {
        let mut pairs = self.imported.decided.iter().zip(&self.deciding);
        pairs.all(|(&at, before)| results[at].bytes() == before.bytes())
    }

    /// The file's outputs, for the results of `main`.
    pub fn outputs(&self, results: &[Tensor]) -> Vec<(String, Given)> {
        let outputs = self.imported.outputs.iter();
        outputs.map(|output| (output.name.clone(), output.value.with(results))).collect()
    }
}

impl OutputValue {
    /// The output for the results of `main`.
    pub fn with(&self, results: &[Tensor]) -> Given {
        match self {
            OutputValue::Result(at, elem) => Given::Data(Data::Numbers(results[*at].clone(), *elem)),
            OutputValue::List(list) => Given::List(list.iter().map(|item| item.with(results)).collect()),
            OutputValue::Text(text) => Given::Data(Data::Text(text.clone())),
            OutputValue::Absent => Given::Absent,
        }
    }
}

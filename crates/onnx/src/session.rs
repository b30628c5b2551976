//! A model that takes any inputs: translated once for all of them where that can be, and again for new inputs
//! where sizes depend on what the model computes. How graphs run is the caller's choice.
//!
//! A translation that a sample has decided is used again only for inputs that give the same deciding values,
//! bit for bit; else the model is translated, compiled and run anew, which costs as much as the first time.

use crate::import::{Data, Given, Imported, Input, Options, OutputValue, Sample, declared_inputs, import};
use crate::proto::ModelProto;
use crate::{decode, errors};
use pando_base::{Result, Tensor};
use pando_graph::Module;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A compiled graph: the results of `main` for its arguments.
pub type Run = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync>;
pub type Compile = dyn Fn(&Module) -> Result<Run> + Send + Sync;

pub struct Session {
    model: ModelProto,
    name: String,
    folder: PathBuf,
    options: Options,
    compile: Arc<Compile>,
    /// For all inputs, or why there is none.
    general: Result<Plan>,
    /// For inputs like the last ones.
    special: Mutex<Option<Arc<Plan>>>,
}

struct Plan {
    imported: Imported,
    run: Run,
    /// The results that decided, as this very plan computes them.
    deciding: Vec<Tensor>,
}

impl Session {
    /// Reads a file. A model that cannot be translated without inputs is no error yet.
    pub fn open(path: &Path, options: Options, compile: Arc<Compile>) -> Result<Session> {
        let (bytes, name, folder) = crate::read(path)?;
        let model = decode(bytes).map_err(|error| error.with_file(&name))?;
        let general = plan(&model, &folder, &options, &compile);
        Ok(Session { model, name, folder, options, compile, general, special: Mutex::default() })
    }

    /// The inputs as the file declares them; those with values in the options are left out.
    pub fn inputs(&self) -> Result<Vec<Input>> {
        declared_inputs(&self.model, &self.options).map_err(|error| error.with_file(&self.name))
    }

    /// The outputs for these inputs, in the file's order.
    pub fn run(&self, inputs: &[(String, Given)]) -> Result<Vec<(String, Given)>> {
        if let Ok(plan) = &self.general
            && let Ok(args) = plan.arguments(inputs)
            && let Ok(results) = (plan.run)(&args)
        {
            return Ok(plan.outputs(&results));
        }
        self.run_special(inputs).map_err(|error| error.with_file(&self.name))
    }

    fn run_special(&self, inputs: &[(String, Given)]) -> Result<Vec<(String, Given)>> {
        let last = self.special.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(plan) = last
            && plan.fits(inputs)
            && let Ok(results) = (plan.run)(&plan.arguments(inputs)?)
            && plan.decides_the_same(&results)
        {
            return Ok(plan.outputs(&results));
        }
        let mut plan = plan(&self.model, &self.folder, &self.specialised(inputs), &self.compile)?;
        let results = (plan.run)(&plan.arguments(inputs)?)?;
        plan.deciding = plan.imported.decided.iter().map(|&at| results[at].clone()).collect();
        let outputs = plan.outputs(&results);
        // What was given as a value is part of the plan: other values need another one.
        let reusable = inputs.iter().all(|(_, given)| number(given).is_some());
        *self.special.lock().unwrap_or_else(PoisonError::into_inner) = reusable.then(|| Arc::new(plan));
        Ok(outputs)
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
        let compile = self.compile.clone();
        let evaluate = move |module: &Module, args: &[Tensor]| compile(module)?(args);
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

fn plan(model: &ModelProto, folder: &Path, options: &Options, compile: &Arc<Compile>) -> Result<Plan> {
    let imported = import(model, Some(folder), options)?;
    let run = compile(&imported.module)?;
    Ok(Plan { imported, run, deciding: Vec::new() })
}

impl Plan {
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

    fn outputs(&self, results: &[Tensor]) -> Vec<(String, Given)> {
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

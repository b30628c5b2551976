//! A program compiled for this computer, and the one place where state goes through the engine.

use crate::errors;
use crate::state::{State, type_of};
use pando_base::{Result, Tensor};
use pando_cpu::{CompileOptions, Input, Model, compile_stateful};
use pando_graph::{Dim, Func, TensorType, validate};
use pando_transform::Program;

pub(crate) struct Compiled {
    pub name: String,
    model: Model,
    /// Places in the state; those of `writes` that are read, too, are written in place.
    reads: Vec<usize>,
    /// Places of what is written and not read: the first results that are no state that is read.
    fresh: Vec<usize>,
    pub inputs: Vec<(String, TensorType)>,
    pub outputs: Vec<String>,
}

impl Compiled {
    pub fn new(name: String, program: Program, state: &State, options: &CompileOptions) -> Result<Self> {
        let in_program = |error: pando_base::Error| error.context(format!("program '{name}'"));
        validate(&program.module).map_err(in_program)?;
        let main = program.module.main().ok_or_else(|| errors::no_main(&name))?;
        let func = &program.module.funcs[main];
        let (params, results) = (func.param_types(), func.result_types());
        check_count(&name, "parameters", program.reads.len() + program.inputs.len(), params.len())?;
        check_count(&name, "results", program.writes.len() + program.outputs.len(), results.len())?;
        let reads = places(&program.reads, &params, state).map_err(in_program)?;
        let writes = places(&program.writes, &results, state).map_err(in_program)?;
        check_unique("read state", &program.reads).map_err(in_program)?;
        check_unique("written state", &program.writes).map_err(in_program)?;
        let inputs = input_types(func, reads.len());
        let inputs = program.inputs.into_iter().zip(inputs).collect();
        let replaced = |(result, place): (usize, &usize)| {
            reads.iter().position(|other| other == place).map(|param| (param, result))
        };
        let aliases: Vec<(usize, usize)> = writes.iter().enumerate().filter_map(replaced).collect();
        let fresh = writes.into_iter().filter(|place| !reads.contains(place)).collect();
        let model = compile_stateful(program.module, reads.len(), &aliases, options).map_err(in_program)?;
        Ok(Compiled { name, model, reads, fresh, inputs, outputs: program.outputs })
    }

    /// Runs the program on the state, and gives its outputs. Inputs that do not fit change nothing.
    pub fn run(&self, state: &mut State, inputs: &[Input]) -> Result<Vec<Tensor>> {
        self.check_inputs(inputs)?;
        let mut results = self.model.run_in_place(&mut state.variables_mut(&self.reads), inputs)?;
        let outputs = results.split_off(self.fresh.len());
        for (&place, tensor) in self.fresh.iter().zip(results) {
            state.put(place, tensor);
        }
        Ok(outputs)
    }

    fn check_inputs(&self, inputs: &[Input]) -> Result<()> {
        if inputs.len() != self.inputs.len() {
            let names: Vec<String> = self.inputs.iter().map(|(name, _)| name.clone()).collect();
            return Err(errors::wrong_input_count(&self.name, &names, inputs.len()));
        }
        for ((name, ty), input) in self.inputs.iter().zip(inputs) {
            let fits = |(dim, &size): (&Dim, &u64)| dim.known().is_none_or(|known| known == size);
            let same_rank = ty.rank() == input.shape().rank();
            let sizes_fit = same_rank && ty.dims.iter().zip(input.shape().iter()).all(fits);
            if input.dtype() != ty.dtype || !sizes_fit {
                let found = format!("{}{}", input.dtype(), input.shape());
                return Err(errors::wrong_input(&self.name, name, ty, found));
            }
        }
        Ok(())
    }
}

fn check_count(program: &str, what: &str, names: usize, values: usize) -> Result<()> {
    if names == values { Ok(()) } else { Err(errors::wrong_count(program, what, names, values)) }
}

fn check_unique(what: &str, names: &[String]) -> Result<()> {
    let twice = (1..names.len()).find(|&at| names[..at].contains(&names[at]));
    twice.map_or(Ok(()), |at| Err(errors::duplicate(what, &names[at])))
}

fn input_types(main: &Func, first: usize) -> Vec<TensorType> {
    main.param_types()[first..].iter().map(|&ty| ty.clone()).collect()
}

/// Where the named tensors are; their types are those of the values that stand for them.
fn places(names: &[String], types: &[&TensorType], state: &State) -> Result<Vec<usize>> {
    let place = |(name, ty): (&String, &&TensorType)| {
        let place = state.place(name)?;
        let expected = type_of(state.variable(place));
        match expected == ty.to_string() {
            true => Ok(place),
            false => Err(errors::wrong_state_type(name, expected, ty)),
        }
    };
    names.iter().zip(types).map(place).collect()
}

//! A program compiled for this computer, and the one place where state goes through the engine.

use crate::errors;
use crate::state::{State, type_of};
use pando_base::{Result, Tensor};
use pando_cpu::{CompileOptions, Input, Model, compile_owned};
use pando_graph::{Dim, Func, TensorType, validate};
use pando_transform::Program;

pub(crate) struct Compiled {
    pub name: String,
    model: Model,
    /// Places in the state.
    reads: Vec<usize>,
    writes: Vec<usize>,
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
        if let Some(twice) = (1..writes.len()).find(|&at| writes[..at].contains(&writes[at])) {
            return Err(in_program(errors::duplicate("written state", &program.writes[twice])));
        }
        let inputs = input_types(func, reads.len());
        let inputs = program.inputs.into_iter().zip(inputs).collect();
        let model = compile_owned(program.module, options).map_err(in_program)?;
        Ok(Compiled { name, model, reads, writes, inputs, outputs: program.outputs })
    }

    /// Runs the program on the state, and gives its outputs. After an error the state is as it was.
    pub fn run(&self, state: &mut State, inputs: &[Input]) -> Result<Vec<Tensor>> {
        self.check_inputs(inputs)?;
        let reads = self.reads.iter().map(|&place| Input::from(&state.tensors[place]));
        let operands: Vec<Input> = reads.chain(inputs.iter().cloned()).collect();
        let mut results = self.model.run_borrowed(&operands)?;
        let outputs = results.split_off(self.writes.len());
        for (&place, tensor) in self.writes.iter().zip(results) {
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

fn input_types(main: &Func, first: usize) -> Vec<TensorType> {
    main.param_types()[first..].iter().map(|&ty| ty.clone()).collect()
}

/// Where the named tensors are; their types are those of the values that stand for them.
fn places(names: &[String], types: &[&TensorType], state: &State) -> Result<Vec<usize>> {
    let place = |(name, ty): (&String, &&TensorType)| {
        let place = state.place(name)?;
        let expected = type_of(&state.tensors[place]);
        match expected == ty.to_string() {
            true => Ok(place),
            false => Err(errors::wrong_state_type(name, expected, ty)),
        }
    };
    names.iter().zip(types).map(place).collect()
}

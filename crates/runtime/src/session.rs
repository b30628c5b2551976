//! Programs that share named state, and what is done with them: run, train, evaluate, save, load.

#![allow(unsafe_code)]

use crate::checkpoint;
use crate::engine::Compiled;
use crate::errors;
use crate::state::State;
use pando_base::{DType, Result, Shape, Tensor};
use pando_cpu::{CompileOptions, Input, Variable};
use pando_graph::TensorType;
use pando_transform::Program;
use pando_transform::train::Job;
use std::path::Path;
use std::ptr::NonNull;

pub struct Session {
    programs: Vec<Compiled>,
    state: State,
    /// How many runs of `accumulate` come before one of `update`; `None` if nobody has said.
    micro_batches: Option<u64>,
}

impl Session {
    /// Compiles the programs. State that a program reads or writes has that type from here on.
    pub fn new(
        programs: Vec<(String, Program)>,
        state: Vec<(String, Tensor)>,
        options: &CompileOptions,
    ) -> Result<Self> {
        let state = State::new(state)?;
        let mut compiled: Vec<Compiled> = Vec::new();
        for (name, program) in programs {
            if compiled.iter().any(|other| other.name == name) {
                return Err(errors::duplicate("program", &name));
            }
            compiled.push(Compiled::new(name, program, &state, options)?);
        }
        Ok(Session { programs: compiled, state, micro_batches: None })
    }

    /// The programs and the state of a training job.
    pub fn of_job(job: Job, options: &CompileOptions) -> Result<Self> {
        let session = Session::new(job.programs, job.state, options)?;
        Ok(Session { micro_batches: Some(job.micro_batches), ..session })
    }

    /// Runs a program: changes the state it writes, and gives its outputs. Inputs that do not fit change nothing.
    pub fn run(&mut self, program: &str, inputs: &[Input]) -> Result<Vec<Tensor>> {
        let position = self.position(program)?;
        self.programs[position].run(&mut self.state, inputs)
    }

    /// One update of the weights, and the outputs for each micro-batch: runs `step`, or `accumulate` for every
    /// micro-batch and `update` after them.
    pub fn train(&mut self, micro_batches: &[&[Input]]) -> Result<Vec<Vec<Tensor>>> {
        let one_step = self.position("step").ok();
        let expected = if one_step.is_some() { Some(1) } else { self.micro_batches };
        if let Some(expected) = expected.filter(|&expected| expected != micro_batches.len() as u64) {
            return Err(errors::wrong_micro_batch_count(expected, micro_batches.len()));
        }
        if one_step.is_some() {
            return Ok(vec![self.run("step", micro_batches[0])?]);
        }
        if self.position("accumulate").and(self.position("update")).is_err() {
            return Err(errors::no_training(self.program_names()));
        }
        let outputs =
            micro_batches.iter().map(|inputs| self.run("accumulate", inputs)).collect::<Result<_>>()?;
        self.run("update", &[])?;
        Ok(outputs)
    }

    /// Runs the program `eval`.
    pub fn evaluate(&mut self, inputs: &[Input]) -> Result<Vec<Tensor>> {
        self.run("eval", inputs)
    }

    pub fn program_names(&self) -> impl Iterator<Item = &str> {
        self.programs.iter().map(|program| program.name.as_str())
    }

    /// Names and types of a program's inputs.
    pub fn inputs(&self, program: &str) -> Result<&[(String, TensorType)]> {
        Ok(&self.programs[self.position(program)?].inputs)
    }

    /// Names of a program's outputs.
    pub fn outputs(&self, program: &str) -> Result<&[String]> {
        Ok(&self.programs[self.position(program)?].outputs)
    }

    pub fn state_names(&self) -> impl Iterator<Item = &str> {
        self.state.names.iter().map(String::as_str)
    }

    pub fn state(&self, name: &str) -> Result<Tensor> {
        Ok(self.state.variable(self.state.place(name)?).to_tensor())
    }

    /// Replaces a tensor by another of its type.
    pub fn set_state(&mut self, name: &str, tensor: Tensor) -> Result<()> {
        self.state.set(self.state.place(name)?, tensor)
    }

    /// Puts a tensor's elements where somebody lends memory for them; what is there already are the new elements. Whoever
    /// lends sees every change.
    ///
    /// # Safety
    /// As [`Variable::lent`]; the memory is lent until [`Session::take_back`].
    pub unsafe fn lend(
        &mut self,
        name: &str,
        dtype: DType,
        shape: Shape,
        address: NonNull<u8>,
    ) -> Result<()> {
        let place = self.state.place(name)?;
        // SAFETY: passed on.
        self.state.replace(place, unsafe { Variable::lent(dtype, shape, address) })
    }

    /// Gives lent memory back: the elements as they are now are copied.
    pub fn take_back(&mut self, name: &str) -> Result<()> {
        let place = self.state.place(name)?;
        let variable = self.state.variable(place);
        if variable.is_lent() {
            let own = Variable::new(variable.to_tensor());
            self.state.replace(place, own)?;
        }
        Ok(())
    }

    /// Writes all state to a folder, which is made if need be. A checkpoint that is there already is replaced at the
    /// very end, in one step: whatever interrupts the writing, one of the two is whole.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let programs: Vec<&str> = self.program_names().collect();
        checkpoint::save(folder.as_ref(), &programs, &self.state)
    }

    /// Takes all state from a checkpoint of a session with the same state. After an error nothing has changed.
    pub fn load(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        checkpoint::load(folder.as_ref(), &mut self.state, checkpoint::Extent::All)
    }

    /// As [`Session::load`], from a checkpoint that may hold more: weights out of one of a training job.
    pub fn load_part(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        checkpoint::load(folder.as_ref(), &mut self.state, checkpoint::Extent::Part)
    }

    fn position(&self, program: &str) -> Result<usize> {
        let found = self.programs.iter().position(|other| other.name == program);
        found.ok_or_else(|| errors::unknown_program(program, self.program_names()))
    }
}

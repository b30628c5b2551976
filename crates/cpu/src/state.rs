//! State: parameters that outlive runs, in variables (`variable.rs`). Results that replace them are written into their memory, and what is
//! prepared from those that a model only reads, packed weights above all, is kept until they change.

use crate::errors;
use crate::exec::Timing;
use crate::model::{Arguments, Input, Model, Planned, StepTime};
use crate::options::CompileOptions;
use crate::plan::state::Declared;
use crate::variable::Variable;
use pando_base::{Result, Tensor};
use pando_graph::Module;
use std::sync::Arc;

/// As [`crate::compile_owned`], for a function whose first `state` parameters are [`Variable`]s. `aliases`:
/// parameters among them, and the results that replace them, of the same types. To be run by
/// [`Model::run_in_place`].
pub fn compile_stateful(
    module: Module,
    state: usize,
    aliases: &[(usize, usize)],
    options: &CompileOptions,
) -> Result<Model> {
    let main = &module.funcs[module.main().ok_or_else(errors::no_main)?];
    let (params, results) = (main.param_types(), main.result_types());
    if state > params.len() {
        return Err(errors::too_much_state(state, params.len()));
    }
    for (index, &(param, result)) in aliases.iter().enumerate() {
        if param >= state || result >= results.len() {
            return Err(errors::wrong_alias(param, result, "there is no such pair of state and result"));
        }
        if aliases[..index].iter().any(|other| other.0 == param || other.1 == result) {
            return Err(errors::wrong_alias(param, result, "one of them is in another pair"));
        }
        if params[param] != results[result] {
            let types = format!("their types are {} and {}", params[param], results[result]);
            return Err(errors::wrong_alias(param, result, &types));
        }
    }
    let steady = (0..state).filter(|param| !aliases.iter().any(|alias| alias.0 == *param)).collect();
    Model::new(module, state, Declared { steady, aliases: aliases.to_vec(), count: None }, options)
}

impl Model {
    /// Replaces state by the results that are its new elements, and returns the other results, in order.
    /// Concerning memory: nothing is allocated for state once a run with these shapes has been, unless a
    /// variable's elements are shared with tensors, which keep the old ones.
    pub fn run_in_place(&self, state: &mut [&mut Variable], inputs: &[Input]) -> Result<Vec<Tensor>> {
        let (planned, arguments) = self.stateful(state, inputs)?;
        let mut outputs = planned.zeroed_results();
        self.run_planned(&planned, &arguments, &mut outputs, None)?;
        Ok(outputs)
    }

    /// As [`Model::run_in_place`], with the other results written to tensors of their types and shapes.
    pub fn run_in_place_into(
        &self,
        state: &mut [&mut Variable],
        inputs: &[Input],
        outputs: &mut [Tensor],
    ) -> Result<()> {
        let (planned, arguments) = self.stateful(state, inputs)?;
        planned.check_outputs(outputs)?;
        self.run_planned(&planned, &arguments, outputs, None)
    }

    /// As [`Model::run_in_place`], with the time of every step.
    pub fn profile_in_place(
        &self,
        state: &mut [&mut Variable],
        inputs: &[Input],
    ) -> Result<(Vec<Tensor>, Vec<StepTime>)> {
        let (planned, arguments) = self.stateful(state, inputs)?;
        let mut outputs = planned.zeroed_results();
        let mut seconds = Timing::new();
        self.run_planned(&planned, &arguments, &mut outputs, Some(&mut seconds))?;
        Ok((outputs, planned.step_times(seconds)))
    }

    /// The plan for these shapes, and where everything is. What is replaced has a new version afterwards.
    fn stateful(&self, state: &mut [&mut Variable], inputs: &[Input]) -> Result<(Arc<Planned>, Arguments)> {
        if state.len() != self.num_state {
            return Err(errors::wrong_state_count(self.num_state, state.len()));
        }
        let types = state.iter().map(|variable| variable.ty());
        let shapes = self.checked_shapes(types.chain(inputs.iter().map(Input::ty)))?;
        let planned = self.planned(&shapes)?;
        let mut arguments = Arguments::default();
        for (index, variable) in state.iter_mut().enumerate() {
            let address = match self.state.is_steady(index) {
                true => variable.bytes().as_ptr().cast_mut(),
                false => variable.bytes_mut().as_mut_ptr(),
            };
            arguments.addresses.push(address);
            arguments.versions.push(variable.version());
        }
        arguments.addresses.extend(inputs.iter().map(Input::address));
        Ok((planned, arguments))
    }
}

//! `pando profile --stages N` (or `--stage-end`): consecutive parts of a model, each on a chip of its own.

use super::profile::{Difference, difference, draw_args, simulate};
use crate::args::ProfileArgs;
use crate::progress::Progress;
use pando_base::{Error, Result, Tensor};
use pando_graph::{Module, ValueId};
use pando_lower::{
    Compiled, End, Options, Stage, compile, inline_calls, model_flops, rebalance, split, split_after,
    supported,
};
use pando_machine::Machine;
use pando_profile::{Profile, reduce};
use pando_sim::{Linked, hop, profile_stage};
use std::collections::BTreeMap;

/// How often stages are cut anew after they have been timed. What is left then is the size of single operations.
const REBALANCED: usize = 3;

/// What makes one cut better than another: whether all stages fit, then the slowest.
fn pace(profile: &Profile) -> (bool, u64) {
    (!profile.fit.fits, profile.stages.iter().map(|stage| stage.cycles).max().unwrap_or(0))
}

/// The stages of a model, compiled.
pub struct Pipeline {
    stages: Vec<(Stage, Compiled)>,
}

impl Pipeline {
    pub fn compile(
        module: &Module,
        machine: &Machine,
        options: &Options,
        args: &ProfileArgs,
        progress: &Progress,
    ) -> Result<Pipeline> {
        let stages = args.num_stages();
        check_stages(stages, options.replicas, machine)?;
        let inlined = inline_calls(module)?;
        supported(&inlined)?;
        let compiled = |stages: Vec<Stage>| -> Result<Pipeline> {
            let compiled = |(at, stage): (usize, Stage)| {
                progress.pass(&format!("compiling stage {at}"));
                let compiled = compile(&stage.module, machine, options)?;
                Ok((stage, compiled))
            };
            Ok(Pipeline { stages: stages.into_iter().enumerate().map(compiled).collect::<Result<_>>()? })
        };
        if !args.stage_ends.is_empty() {
            return compiled(split_after(&inlined, &args.stage_ends)?);
        }
        let mut best = compiled(split(&inlined, machine, stages as usize)?)?;
        let mut latest = best.profile(machine, 1);
        let mut least = pace(&latest);
        for _ in 0..REBALANCED {
            let seconds = latest.stages.iter().map(|stage| machine.chip.seconds(stage.cycles as f64));
            let timed: Vec<_> = best.stages.iter().map(|(stage, _)| stage).zip(seconds).collect();
            let next = compiled(rebalance(&inlined, machine, &timed)?)?;
            latest = next.profile(machine, 1);
            if pace(&latest) >= least {
                break;
            }
            (best, least) = (next, pace(&latest));
        }
        Ok(best)
    }

    pub fn profile(&self, machine: &Machine, items_per_run: u64) -> Profile {
        let profile = |(at, (stage, compiled)): (usize, &(Stage, Compiled))| {
            let emitted = &compiled.emitted;
            let mut linked = Linked::default();
            let ends =
                stage.inputs.iter().zip(&emitted.inputs).chain(stage.outputs.iter().zip(&emitted.outputs));
            for (end, &var) in ends {
                if let End::Stage { stage: other, .. } = *end {
                    linked[var] = hop(machine, at as u32, other as u32);
                }
            }
            let (program, placement) = (&emitted.program, Some(&compiled.placed.placement));
            let fit = compiled.fit.clone();
            let mut profile = profile_stage(program, machine, placement, fit, items_per_run, &linked);
            super::profile::count_model_flops(&mut profile, model_flops(&compiled.module));
            profile
        };
        reduce::pipeline(self.stages.iter().enumerate().map(profile).collect())
    }

    /// How far the outputs, computed tile by tile in every stage, are from the evaluator's for the whole model.
    pub fn compare_values(&self, outputs: &[(String, usize)], module: &Module) -> Result<Vec<Difference>> {
        let main = module.main().expect("a compiled module has main");
        let args = draw_args(&module.funcs[main])?;
        let expected = pando_graph::eval(module, main, &args)?;
        let mut actual: Vec<Option<Tensor>> = vec![None; expected.len()];
        let mut passed: BTreeMap<ValueId, Tensor> = BTreeMap::new();
        for (stage, compiled) in &self.stages {
            let value = |end: &End| match end {
                End::Host(index) => args[*index].clone(),
                End::Stage { value, .. } => passed[value].clone(),
            };
            let inputs: Vec<Tensor> = stage.inputs.iter().map(value).collect();
            for (end, tensor) in stage.outputs.iter().zip(simulate(compiled, &inputs)?) {
                match end {
                    End::Host(index) => actual[*index] = Some(tensor),
                    End::Stage { value, .. } => drop(passed.insert(*value, tensor)),
                }
            }
        }
        let worst = |at: usize| difference(actual[at].as_ref().expect("a stage gives it"), &expected[at]);
        Ok(outputs.iter().map(|(name, at)| (name.clone(), worst(*at))).collect())
    }
}

/// Each stage of each replica takes a chip; the chips of a replica are joined by links.
fn check_stages(stages: u64, replicas: u64, machine: &Machine) -> Result<()> {
    let (chips, name) = (u64::from(machine.chips), &machine.name);
    if stages.saturating_mul(replicas) > chips {
        let of = if replicas == 1 { String::new() } else { format!("{replicas} replicas of ") };
        return Err(Error::new(format!(
            "{of}{stages} stages: {name} has {chips} chip(s), and each stage takes one"
        )));
    }
    let joined = machine.links.as_ref().map_or(1, |links| links.domain_chips);
    if stages > joined.into() {
        return Err(Error::new(format!(
            "--stages {stages}: links join {joined} chips of {name}, and pipelines do not cross gateways; use at most {joined}"
        )));
    }
    Ok(())
}

//! `pando profile --stages N` (or `--stage-end`): consecutive parts of a model, each on a chip of its own.

use super::profile::{Difference, differences, draw_items, simulate_items};
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
                let compiled =
                    compile(&stage.module, machine, &Options { linked: linked(&stage), ..options.clone() })?;
                Ok((stage, compiled))
            };
            Ok(Pipeline { stages: stages.into_iter().enumerate().map(compiled).collect::<Result<_>>()? })
        };
        if !args.stage_ends.is_empty() {
            return compiled(split_after(&inlined, &args.stage_ends)?);
        }
        let mut best = compiled(split(&inlined, machine, stages as usize)?)?;
        let mut latest = best.profile(machine, 1, 0);
        let mut least = pace(&latest);
        for _ in 0..REBALANCED {
            let seconds = latest.stages.iter().map(|stage| machine.chip.seconds(stage.cycles as f64));
            let timed: Vec<_> = best.stages.iter().map(|(stage, _)| stage).zip(seconds).collect();
            let next = compiled(rebalance(&inlined, machine, &timed)?)?;
            latest = next.profile(machine, 1, 0);
            if pace(&latest) >= least {
                break;
            }
            (best, least) = (next, pace(&latest));
        }
        Ok(best)
    }

    /// `iterations` are those of a call that the stages loop over, 0 if nobody said.
    pub fn profile(&self, machine: &Machine, items_per_run: u64, iterations: u64) -> Profile {
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
            super::profile::count_model_flops(&mut profile, model_flops(&compiled.module), iterations);
            profile
        };
        reduce::pipeline(self.stages.iter().enumerate().map(profile).collect(), iterations)
    }

    /// How far the outputs, computed tile by tile in every stage, are from the evaluator's for the whole model, over all
    /// iterations of a call.
    pub fn compare_values(
        &self,
        outputs: &[(String, usize)],
        module: &Module,
        iterations: u64,
    ) -> Result<Vec<Difference>> {
        let main = module.main().expect("a compiled module has main");
        let items = draw_items(&module.funcs[main], iterations)?;
        let mut passed: BTreeMap<ValueId, Vec<Tensor>> = BTreeMap::new();
        let mut actual: BTreeMap<usize, Vec<Tensor>> = BTreeMap::new();
        for (stage, compiled) in &self.stages {
            let value = |end: &End, item: usize| match end {
                End::Host(index) => items[item][*index].clone(),
                End::Stage { value, .. } => passed[value][item].clone(),
            };
            let of_item = |item| stage.inputs.iter().map(|end| value(end, item)).collect();
            let inputs: Vec<Vec<Tensor>> = (0..items.len()).map(of_item).collect();
            for (end, tensors) in stage.outputs.iter().zip(simulate_items(compiled, &inputs)?) {
                match end {
                    End::Host(index) => drop(actual.insert(*index, tensors)),
                    End::Stage { value, .. } => drop(passed.insert(*value, tensors)),
                }
            }
        }
        differences(outputs, module, &items, |at, item| actual[&at].get(item))
    }
}

/// What other stages give and take.
fn linked(stage: &Stage) -> pando_lower::Linked {
    let positions = |ends: &[End]| {
        let linked = ends.iter().enumerate().filter(|(_, end)| matches!(end, End::Stage { .. }));
        linked.map(|(position, _)| position).collect()
    };
    pando_lower::Linked { params: positions(&stage.inputs), results: positions(&stage.outputs) }
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

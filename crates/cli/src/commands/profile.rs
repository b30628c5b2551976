//! `pando profile`: what a system would do with a model.

use super::compile::lower_options;
use crate::args::ProfileArgs;
use crate::model::{Model, draw, load, prepared};
use crate::output::{colors, note, print, print_json};
use crate::progress::Progress;
use pando_base::{Error, Result, Tensor};
use pando_graph::Module;
use pando_lower::{Compiled, Options, compile};
use pando_machine::Machine;
use pando_profile::Profile;
use pando_sim::RunOptions;
use pando_tile::{Program, VarId};
use serde_json::json;
use std::time::Instant;

/// Prints the prediction; false if the model does not fit.
pub fn profile(args: &ProfileArgs) -> Result<bool> {
    refuse_unavailable(args)?;
    let file = args.model.model.display().to_string();
    let machine = pando_machine::load(&args.options.system)?;
    let options = lower_options(&args.options, &machine)?;
    let progress = Progress::new();
    progress.pass("reading the model");
    let model = load(&args.model)?;
    let start = Instant::now();
    progress.pass("compiling");
    let profile = match &model {
        Model::Graph(module) => {
            profile_graph(&prepared(module, &args.options)?, &machine, &options, args, &progress)
        }
        Model::Tile(program) => profile_tile(program, &machine, args),
    }
    .map_err(|error| error.with_file(&file))?;
    let compile_s = start.elapsed().as_secs_f64();
    drop(progress);
    finish(&profile, &machine, compile_s, args)
}

/// Options that belong to later parts of the project are refused, not ignored.
fn refuse_unavailable(args: &ProfileArgs) -> Result<()> {
    if args.train {
        return Err(Error::new("--train: only inference can be profiled yet"));
    }
    if args.stages > 1 {
        return Err(Error::new(format!(
            "--stages {}: a model cannot be split over chips yet; use 1",
            args.stages
        )));
    }
    Ok(())
}

fn profile_graph(
    module: &Module,
    machine: &Machine,
    options: &Options,
    args: &ProfileArgs,
    progress: &Progress,
) -> Result<Profile> {
    let compiled = compile(module, machine, options)?;
    progress.pass("predicting");
    let items = items_per_run(module);
    let program = &compiled.emitted.program;
    let profile =
        pando_sim::profile(program, machine, Some(&compiled.placed.placement), compiled.fit.clone(), items);
    if args.exact {
        progress.pass("computing values tile by tile");
        check_values(&compiled)?;
    }
    Ok(profile)
}

fn profile_tile(program: &Program, machine: &Machine, args: &ProfileArgs) -> Result<Profile> {
    if program.tiles > machine.chip.tiles {
        return Err(Error::new(format!(
            "the program uses {} tiles, a chip of {} has {}",
            program.tiles, machine.name, machine.chip.tiles
        )));
    }
    let mut program = program.clone();
    if let Some(replicas) = args.options.replicas {
        program.replicas = replicas;
    }
    let placed = pando_lower::place(&program, machine);
    let fit = pando_lower::fit(&program, machine, &placed);
    Ok(pando_sim::profile(&program, machine, Some(&placed.placement), fit, 1))
}

/// The size of the first input's first dimension: the batch. 1 for models without one.
fn items_per_run(module: &Module) -> u64 {
    let types = crate::model::main_types(module).unwrap_or_default();
    types.first().and_then(|ty| ty.dims.first()).and_then(pando_graph::Dim::known).unwrap_or(1)
}

/// The outputs of a compiled model, computed tile by tile.
pub fn simulate(compiled: &Compiled, args: &[Tensor]) -> Result<Vec<Tensor>> {
    let emitted = &compiled.emitted;
    let value = |var: VarId| match emitted.inputs.iter().position(|&input| input == var) {
        Some(index) => Some(args[index].clone()),
        None => emitted.constants[var].map(|id| compiled.module.consts[id].materialize()),
    };
    let outputs = pando_sim::run(&emitted.program, value, &RunOptions::default())?;
    emitted.outputs.iter().map(|&var| output(&emitted.program, &outputs, var)).collect()
}

pub fn output(program: &Program, outputs: &pando_sim::Outputs, var: VarId) -> Result<Tensor> {
    let missing = || Error::new(format!("the program never gives output %{}", program.vars[var].name));
    outputs.tensor(var).ok_or_else(missing)
}

/// Compares tile-by-tile values of random inputs with the reference evaluator's.
fn check_values(compiled: &Compiled) -> Result<()> {
    let main = compiled.module.main().expect("a compiled module has main");
    let func = &compiled.module.funcs[main];
    let args = func
        .params
        .iter()
        .enumerate()
        .map(|(index, &param)| draw(func.ty(param).dtype, &func.ty(param).require_shape()?, index as u64))
        .collect::<Result<Vec<_>>>()?;
    let expected = pando_graph::eval(&compiled.module, main, &args)?;
    let actual = simulate(compiled, &args)?;
    for ((&value, expected), actual) in func.results.iter().zip(&expected).zip(&actual) {
        let (a, e) = (actual.to_f64(), expected.to_f64());
        let scale = e.iter().fold(0.0f64, |max, x| max.max(x.abs()));
        let worst = a.iter().zip(&e).map(|(a, e)| (a - e).abs()).fold(0.0, f64::max);
        note(&format!(
            "exact: %{} differs from the reference evaluator by at most {:.2e} of its largest value",
            func.values[value].name,
            if scale > 0.0 { worst / scale } else { worst }
        ));
    }
    Ok(())
}

fn finish(profile: &Profile, machine: &Machine, compile_s: f64, args: &ProfileArgs) -> Result<bool> {
    if let Some(path) = report_path(profile, args) {
        pando_profile::write(profile, &path)?;
        note(&format!("report written to {}", path.display()));
    }
    if args.json {
        print_json(&json(profile, machine, compile_s))?;
    } else {
        let style = if colors() { pando_profile::Style::Color } else { pando_profile::Style::Plain };
        print(&format!(
            "{}\ncompiled in {compile_s:.2} s\n",
            pando_profile::table(profile, style).trim_end()
        ))?;
    }
    Ok(profile.fit.fits)
}

/// Where the report goes. One that does not fit is written even if the user named no file.
fn report_path(profile: &Profile, args: &ProfileArgs) -> Option<std::path::PathBuf> {
    let unasked = || {
        (!profile.fit.fits).then(|| {
            std::path::PathBuf::from(args.model.model.file_name()?).with_extension("pando-report").into()
        })
    };
    args.report.clone().or_else(|| unasked().flatten())
}

/// The fields that scripts rely on, and more.
fn json(profile: &Profile, machine: &Machine, compile_s: f64) -> serde_json::Value {
    let (totals, parts, memory) = (&profile.totals, &profile.totals.parts, &profile.memory);
    json!({
        "system": profile.system.name,
        "chips": profile.system.chips,
        "replicas": profile.replicas,
        "fits": profile.fit.fits,
        "fit": profile.fit,
        "throughput_per_s": profile.throughput_per_s(),
        "latency_ms": totals.seconds * 1e3,
        "cycles_per_step": totals.cycles,
        "breakdown": {
            "compute": parts.compute + parts.local_copy, "exchange": parts.exchange, "sync": parts.sync,
            "links": parts.links, "host": parts.host,
        },
        "memory": {
            "tile_bytes": memory.tile_bytes, "max_used": memory.max_used, "mean_used": memory.mean_used,
            "always_live": memory.always_live, "code": memory.code,
        },
        "operations": profile.operations,
        "compile_s": compile_s,
        "flops": totals.flops,
        "utilisation": totals.utilisation,
        "energy_j_per_item": totals.energy_j_per_item,
        "price_usd": machine.price_usd,
        "trust": profile.trust,
    })
}

//! `pando profile`: what a system would do with a model.

use super::compile::{check_replicas, lower_options};
use super::pipeline::Pipeline;
use super::train::training_step;
use super::tries::{self, Tried};
use crate::args::ProfileArgs;
use crate::for_inputs::{Inputs, load_and};
use crate::model::{GraphModel, LARGEST_TENSOR_BYTES, Model, draw, prepared};
use crate::output::{colors, note, print, print_json};
use crate::progress::Progress;
use pando_base::{Error, Result, Tensor};
use pando_graph::{Func, Module};
use pando_lower::{Compiled, Options, compile_in_passes, model_flops};
use pando_machine::Machine;
use pando_profile::reduce::Suggestion;
use pando_profile::{Profile, Trust};
use pando_sim::RunOptions;
use pando_tile::{Program, VarId};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// What a system would do with a model.
pub struct Prediction {
    profile: Profile,
    machine: Machine,
    compile_s: f64,
    differences: Vec<Difference>,
    /// What the model's owner could try.
    suggestions: Vec<Suggestion>,
    /// Those that the model was translated for.
    inputs: Inputs,
}

/// Prints the prediction; false if the model does not fit.
pub fn profile(args: &ProfileArgs) -> Result<bool> {
    let prediction = predict(args)?;
    let (sentences, tried) = match args.no_tries || args.train {
        true => (prediction.sentences(), Vec::new()),
        false => {
            let progress = Progress::new();
            tries::sentences(&prediction.suggestions, &prediction.profile, args, &progress)
        }
    };
    prediction.print(args.json, &sentences, &tried)?;
    if let Some(path) = &args.report {
        prediction.write_report(path, args)?;
        note(&format!("report written to {}", path.display()));
    }
    Ok(prediction.profile.fit.fits)
}

pub fn predict(args: &ProfileArgs) -> Result<Prediction> {
    refuse_unavailable(args)?;
    let machine = pando_machine::load(&args.options.system)?;
    let progress = Progress::new();
    progress.pass("reading the model");
    let engine = pando_cpu::CompileOptions::default();
    load_and(&args.model, &args.given, args.options.micro_batch, engine, |model, inputs| {
        predict_model(model, inputs, &machine, args, &progress)
    })
}

fn predict_model(
    mut model: Model,
    inputs: Inputs,
    machine: &Machine,
    args: &ProfileArgs,
    progress: &Progress,
) -> Result<Prediction> {
    let file = args.model.model.display().to_string();
    let options = lower_options(&args.options, machine, args.num_stages())?;
    let replicas = if args.train { 1 } else { options.replicas };
    let options = Options { replicas, ..options };
    progress.pass("compiling");
    let (predicted, trust) = match &mut model {
        Model::Graph(model) => {
            // Only a comparison needs the weights as they were.
            let module = if args.exact { model.module.clone() } else { std::mem::take(&mut model.module) };
            prepared(module, &args.options).and_then(|module| {
                let trust = trust(&module, args.train)?;
                Ok((profile_graph(model, module, machine, options, args, progress)?, trust))
            })
        }
        Model::Tile(program) => profile_tile(program, machine, args).and_then(|predicted| {
            Ok((predicted, pando_validate::trust(pando_validate::kind_of_program(program))?))
        }),
    }
    .map_err(|error| error.with_file(&file))?;
    let prediction = Prediction::new(predicted, trust, machine, inputs);
    Ok(match &model {
        Model::Graph(_) => prediction.of_model(args),
        Model::Tile(_) => prediction,
    })
}

/// What a system would do with a program in memory. Of `state`, pairs of a parameter and the result that replaces it
/// from run to run, nothing goes to the host. The model that `args` name is only what the program is called.
pub fn predict_program(module: Module, state: Vec<(usize, usize)>, args: &ProfileArgs) -> Result<Prediction> {
    refuse_in_training(args, !state.is_empty())?;
    let machine = pando_machine::load(&args.options.system)?;
    let options = Options { state, ..lower_options(&args.options, &machine, args.num_stages())? };
    let module = prepared(module, &args.options)?;
    let trust = trust(&module, !options.state.is_empty())?;
    let named = GraphModel { module: Module::default(), inputs: Vec::new(), outputs: Vec::new() };
    let predicted = profile_graph(&named, module, &machine, options, args, &Progress::new())?;
    Ok(Prediction::new(predicted, trust, &machine, Inputs::All).of_model(args))
}

/// What is known of predictions of models like this one, which is in the precision asked for.
fn trust(module: &Module, train: bool) -> Result<Trust> {
    match train {
        true => Ok(Trust {
            range: "training steps are not among the rows of `pando validate`".into(),
            error: None,
        }),
        false => pando_validate::trust(pando_validate::kind_of_graph(module)),
    }
}

/// Options that belong to later parts of the project are refused, not ignored.
fn refuse_unavailable(args: &ProfileArgs) -> Result<()> {
    refuse_in_training(args, args.train)
}

fn refuse_in_training(args: &ProfileArgs, train: bool) -> Result<()> {
    let refuse = |what: &str| Err(Error::new(format!("--train {what}")));
    match train {
        true if args.num_stages() > 1 => {
            refuse("--stages: a training step cannot be divided over chips yet; use 1")
        }
        true if args.options.replicas.is_some_and(|replicas| replicas > 1) => {
            refuse("--replicas: what adding gradients over chips takes is not predicted yet; use 1")
        }
        true if args.gradient_accumulation.is_some_and(|number| number > 1) => {
            refuse("--gradient-accumulation: only steps of one micro-batch are predicted yet; use 1")
        }
        _ => Ok(()),
    }
}

/// How far a tile-by-tile output is from the reference evaluator's: its name, and the largest difference as a
/// share of its largest value.
pub(super) type Difference = (String, f64);

/// The prediction, the differences that were asked for, and the seconds that the prediction took.
type Predicted = (Profile, Vec<Difference>, f64);

fn profile_graph(
    model: &GraphModel,
    mut module: Module,
    machine: &Machine,
    mut options: Options,
    args: &ProfileArgs,
    progress: &Progress,
) -> Result<Predicted> {
    let start = Instant::now();
    let items = items_per_run(&module).saturating_mul(options.iterations);
    let mut outputs = model.outputs.clone();
    if args.train {
        let step = training_step(&module, &args.optimizer)?;
        (module, options.state) = (step.module, step.state);
        outputs.iter_mut().for_each(|(_, at)| *at += options.state.len());
        let states = step.names.into_iter().enumerate().map(|(at, name)| (name, at));
        outputs.extend(states);
    }
    if args.num_stages() > 1 {
        let pipeline = Pipeline::compile(&module, machine, &options, args, progress)?;
        progress.pass("predicting");
        let mut profile = pipeline.profile(machine, items, args.options.iterations.unwrap_or(0));
        count_call(&mut profile, machine, args);
        let compile_s = start.elapsed().as_secs_f64();
        progress.pass("computing values tile by tile");
        let differences = if args.exact {
            pipeline.compare_values(&outputs, &module, options.iterations)?
        } else {
            Vec::new()
        };
        return Ok((profile, differences, compile_s));
    }
    let compiled = compile_in_passes(&module, machine, &options, |pass| progress.pass(pass))?;
    progress.pass("predicting");
    let program = &compiled.emitted.program;
    let placement = Some(&compiled.placed.placement);
    let mut profile = pando_sim::profile(program, machine, placement, compiled.fit.clone(), items);
    count_model_flops(&mut profile, model_flops(&compiled.module), options.iterations);
    count_call(&mut profile, machine, args);
    let compile_s = start.elapsed().as_secs_f64();
    let mut differences = Vec::new();
    if args.exact {
        progress.pass("computing values tile by tile");
        differences = compare_values(&outputs, &compiled, &options)?;
    }
    Ok((profile, differences, compile_s))
}

/// Work is what the model asks for in all iterations. How a machine splits it adds some (sums of partial results), which
/// is no merit of the machine.
pub(super) fn count_model_flops(profile: &mut Profile, flops: u64, iterations: u64) {
    let executed = profile.totals.flops.max(1) as f64;
    profile.totals.flops = flops.saturating_mul(iterations.max(1));
    profile.totals.utilisation *= profile.totals.flops as f64 / executed;
}

/// Where iterations are asked for, what a call costs counts, too.
fn count_call(profile: &mut Profile, machine: &Machine, args: &ProfileArgs) {
    profile.host_io.io_tiles = args.options.io_tiles;
    let Some(iterations) = args.options.iterations else { return };
    profile.host_io.iterations = iterations;
    profile.host_io.call_cycles = pando_sim::call_cycles(machine);
}

fn profile_tile(program: &Program, machine: &Machine, args: &ProfileArgs) -> Result<Predicted> {
    let start = Instant::now();
    let options = &args.options;
    if options.precision.is_some()
        || !args.given.inputs.is_empty()
        || options.micro_batch.is_some()
        || args.exact
        || args.num_stages() > 1
        || args.train
        || options.iterations.is_some_and(|iterations| iterations > 1)
        || options.io_tiles > 0
    {
        return Err(Error::new(
            "--precision, --micro-batch, --input, --iterations, --io-tiles, --stages, --train and --exact are for models, not for tile programs",
        ));
    }
    if program.tiles > machine.chip.tiles {
        return Err(Error::new(format!(
            "the program uses {} tiles, a chip of {} has {}",
            program.tiles, machine.name, machine.chip.tiles
        )));
    }
    refuse_unsound(program)?;
    let mut program = program.clone();
    if let Some(replicas) = args.options.replicas {
        program.replicas = replicas;
    }
    if args.options.prefetch != pando_tile::PREFETCH {
        program.prefetch = args.options.prefetch;
    }
    check_replicas(program.replicas, machine)?;
    let placed = pando_lower::place(&program, machine);
    let fit = pando_lower::fit(&program, machine, &placed, pando_lower::Origin::HandWritten);
    let mut profile = pando_sim::profile(&program, machine, Some(&placed.placement), fit, 1);
    if args.options.iterations.is_some() {
        count_call(&mut profile, machine, args);
    }
    Ok((profile, Vec::new(), start.elapsed().as_secs_f64()))
}

/// Programs with races, foreign accesses or clashing exchanges have no meaning to run or to time.
pub fn refuse_unsound(program: &Program) -> Result<()> {
    let findings = pando_tile::check::check(program);
    match findings.as_slice() {
        [] => Ok(()),
        [only] => Err(Error::new(only.clone())),
        [first, rest @ ..] => Err(Error::new(format!("{first} (and {} more findings like it)", rest.len()))),
    }
}

/// The size of the first input's first dimension: the batch. 1 for models without one.
fn items_per_run(module: &Module) -> u64 {
    let types = crate::model::main_types(module).unwrap_or_default();
    types.first().and_then(|ty| ty.dims.first()).and_then(pando_graph::Dim::known).unwrap_or(1)
}

/// The outputs of a compiled model, computed tile by tile.
pub fn simulate(compiled: &Compiled, args: &[Tensor]) -> Result<Vec<Tensor>> {
    let outputs = simulate_items(compiled, &[args.to_vec()])?;
    Ok(outputs.into_iter().filter_map(|mut tensors| tensors.pop()).collect())
}

/// The same for a call of several iterations, each with its own arguments: for each output its tensors in order. An
/// output that is state has only the last.
pub(super) fn simulate_items(compiled: &Compiled, items: &[Vec<Tensor>]) -> Result<Vec<Vec<Tensor>>> {
    let emitted = &compiled.emitted;
    let value = |var: VarId, item: u64| match emitted.inputs.iter().position(|&input| input == var) {
        Some(index) => Some(items.get(item as usize)?[index].clone()),
        None => emitted.constants[var].map(|id| compiled.module.consts[id].materialize()),
    };
    let options = RunOptions { keep_all: items.len() > 1, ..RunOptions::default() };
    let outputs = pando_sim::run_items(&emitted.program, value, &options)?;
    emitted.outputs.iter().map(|&var| all_of(&emitted.program, &outputs, var)).collect()
}

/// An output that the host has read, as a whole tensor.
pub fn output(program: &Program, outputs: &pando_sim::Outputs, var: VarId) -> Result<Tensor> {
    Ok(all_of(program, outputs, var)?.pop().expect("at least one"))
}

/// What the host has read each time.
fn all_of(program: &Program, outputs: &pando_sim::Outputs, var: VarId) -> Result<Vec<Tensor>> {
    let name = &program.vars[var].name;
    let bytes = program.vars[var].shape.num_elements().saturating_mul(program.vars[var].dtype.size_bytes());
    if bytes > LARGEST_TENSOR_BYTES {
        return Err(Error::new(format!(
            "output %{name} is larger than 4 GiB; its program can only be profiled"
        )));
    }
    let tensors = outputs.tensors(var);
    match tensors.is_empty() {
        true => Err(Error::new(format!("the program never gives output %{name}"))),
        false => Ok(tensors),
    }
}

/// Compares tile-by-tile values of random inputs, others in each iteration, with the reference evaluator's. What state
/// is, only the last iteration leaves to see.
fn compare_values(
    outputs: &[(String, usize)],
    compiled: &Compiled,
    options: &Options,
) -> Result<Vec<Difference>> {
    let main = compiled.module.main().expect("a compiled module has main");
    let mut items = draw_items(&compiled.module.funcs[main], options.iterations)?;
    let actual = simulate_items(compiled, &items)?;
    for item in 1..items.len() {
        let before = pando_graph::eval(&compiled.module, main, &items[item - 1])?;
        options.state.iter().for_each(|&(param, result)| items[item][param] = before[result].clone());
    }
    differences(outputs, &compiled.module, &items, |at, item| {
        let tensors = &actual[at];
        let is_last = item + 1 == items.len();
        if tensors.len() == items.len() { tensors.get(item) } else { tensors.last().filter(|_| is_last) }
    })
}

/// The largest difference of each output over all items for which there is one.
pub(super) fn differences<'a>(
    outputs: &[(String, usize)],
    module: &Module,
    items: &[Vec<Tensor>],
    actual: impl Fn(usize, usize) -> Option<&'a Tensor>,
) -> Result<Vec<Difference>> {
    let main = module.main().expect("a compiled module has main");
    let mut worst: Vec<Difference> = outputs.iter().map(|(name, _)| (name.clone(), 0.0)).collect();
    for (item, args) in items.iter().enumerate() {
        let expected = pando_graph::eval(module, main, args)?;
        for ((_, worst), (_, at)) in worst.iter_mut().zip(outputs) {
            let found = actual(*at, item).map_or(0.0, |actual| difference(actual, &expected[*at]));
            *worst = worst.max(found);
        }
    }
    Ok(worst)
}

/// Random inputs of a call's iterations.
pub(super) fn draw_items(func: &Func, iterations: u64) -> Result<Vec<Vec<Tensor>>> {
    let params = func.params.len() as u64;
    (0..iterations).map(|item| draw_args(func, item * params)).collect()
}

/// Random inputs, from a seed on.
fn draw_args(func: &Func, seed: u64) -> Result<Vec<Tensor>> {
    let types = func.param_types().into_iter().enumerate();
    types.map(|(index, ty)| draw(ty.dtype, &ty.require_shape()?, seed + index as u64)).collect()
}

/// The largest distance as a share of the largest finite number; infinite where only one of two is infinite or no number.
pub(super) fn difference(actual: &Tensor, expected: &Tensor) -> f64 {
    let (actual, expected) = (actual.to_f64(), expected.to_f64());
    let finite = expected.iter().map(|x| x.abs()).filter(|x| x.is_finite());
    let scale = finite.fold(0.0, f64::max);
    let apart = |(&actual, &expected): (&f64, &f64)| match actual - expected {
        _ if actual == expected || actual.is_nan() && expected.is_nan() => 0.0,
        distance if distance.is_nan() => f64::INFINITY,
        distance => distance.abs(),
    };
    let worst = actual.iter().zip(&expected).map(apart).fold(0.0, f64::max);
    if scale > 0.0 { worst / scale } else { worst }
}

impl Prediction {
    fn new(predicted: Predicted, trust: Trust, machine: &Machine, inputs: Inputs) -> Prediction {
        let (mut profile, differences, compile_s) = predicted;
        profile.trust = trust;
        let machine = machine.clone();
        Prediction { profile, machine, compile_s, differences, suggestions: Vec::new(), inputs }
    }

    /// Every module's entry is called `main`; people know their model by its file. What is suggested are a model's options.
    fn of_model(mut self, args: &ProfileArgs) -> Prediction {
        if let Some(stem) = args.model.model.file_stem() {
            self.profile.program = stem.to_string_lossy().into_owned();
        }
        let eight_bits = self.machine.chip.fastest_rate("f8").is_some();
        self.suggestions = pando_profile::reduce::suggestions(&self.profile, eight_bits);
        self
    }

    /// What speaks for each suggestion, untried.
    fn sentences(&self) -> Vec<String> {
        self.suggestions.iter().take(tries::SHOWN).map(Suggestion::sentence).collect()
    }

    pub fn into_profile(self) -> Profile {
        self.profile
    }

    fn print(&self, as_json: bool, suggestions: &[String], tried: &[Tried]) -> Result<()> {
        if as_json {
            let mut json = self.json();
            json["suggestions"] = json!(suggestions);
            json["tried"] = tried.iter().map(Tried::json).collect();
            return print_json(&json);
        }
        let style = if colors() { pando_profile::Style::Color } else { pando_profile::Style::Plain };
        let table = pando_profile::table(&self.profile, style);
        let mut text = format!("{}\ncompiled in {:.2} s\n", table.trim_end(), self.compile_s);
        if self.inputs == Inputs::These {
            text += "values of inputs decided branches or sizes; --input NAME=NUMBER or NAME=FILE.npy gives others\n";
        }
        for (at, suggestion) in suggestions.iter().enumerate() {
            let what = if at < tried.len() { "tried" } else { "to try" };
            text += &format!("{what}: {suggestion}\n");
        }
        for (name, difference) in &self.differences {
            text += &format!("%{name} tile by tile: within {difference:.2e} of the reference evaluator\n");
        }
        print(&text)
    }

    pub fn write_report(&self, path: &Path, args: &ProfileArgs) -> Result<()> {
        refuse_own_model(path, &args.model.model)?;
        pando_profile::write(&self.profile, path)
    }

    /// The fields that scripts rely on, and more.
    pub fn json(&self) -> serde_json::Value {
        let mut json = json(&self.profile, &self.machine, self.compile_s, &self.differences);
        json["suggestions"] = json!(self.sentences());
        json["decided_by_inputs"] = json!(self.inputs == Inputs::These);
        json["tried"] = json!([]);
        json
    }
}

/// A slip of the pen must not cost a user the model.
fn refuse_own_model(report: &Path, model: &Path) -> Result<()> {
    match (report.canonicalize(), model.canonicalize()) {
        (Ok(a), Ok(b)) if a == b => Err(Error::in_file(
            report.display().to_string(),
            "is the model itself; give the report another name",
        )),
        _ => Ok(()),
    }
}

fn json(
    profile: &Profile,
    machine: &Machine,
    compile_s: f64,
    differences: &[Difference],
) -> serde_json::Value {
    let exact: Vec<_> =
        differences.iter().map(|(name, worst)| json!({"name": name, "difference": worst})).collect();
    let (totals, parts, memory) = (&profile.totals, &profile.totals.parts, &profile.memory);
    json!({
        "system": profile.system.name,
        "chips": profile.system.chips,
        "replicas": profile.replicas,
        "fits": profile.fit.fits,
        "fit": profile.fit,
        "throughput_per_s": profile.throughput_per_s(),
        "latency_ms": profile.latency_s() * 1e3,
        "host_io": profile.host_io,
        "bound_by": pando_profile::reduce::bound(profile),
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
        "alike": pando_profile::reduce::alike(&profile.operations),
        "compile_s": compile_s,
        "flops": totals.flops,
        "utilisation": totals.utilisation,
        "stages": profile.stages,
        "energy_j_per_item": totals.energy_j_per_item,
        "price_usd": machine.price_usd,
        "price_usd_per_million": totals.price_usd_per_million,
        "trust": profile.trust,
        "exact": exact,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_base::DType;

    #[test]
    fn differences_see_what_is_no_number() {
        let of = |actual: [f64; 2], expected: [f64; 2]| {
            let tensor = |values: [f64; 2]| Tensor::from_f64(DType::F32, [2], &values);
            difference(&tensor(actual), &tensor(expected))
        };
        assert_eq!(of([1.0, 4.0], [1.0, 5.0]), 0.2);
        assert_eq!(of([1.0, f64::NAN], [1.0, f64::NAN]), 0.0);
        assert_eq!(of([1.0, f64::INFINITY], [2.0, f64::INFINITY]), 0.5);
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(of([1.0, wrong], [1.0, 2.0]), f64::INFINITY);
            assert_eq!(of([1.0, 2.0], [1.0, wrong]), f64::INFINITY);
        }
        assert_eq!(of([0.0, f64::INFINITY], [0.0, f64::NEG_INFINITY]), f64::INFINITY);
    }
}

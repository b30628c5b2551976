//! `pando run`: the outputs of a model, computed on this computer.

use super::cpu_profile;
use super::profile::refuse_unsound;
use crate::args::{MatmulPrecision, RunArgs};
use crate::for_inputs::load_and;
use crate::inputs::{Port, inputs};
use crate::model::{GraphModel, Model, main_types};
use crate::output::{note, print, print_json};
use crate::{npy, progress::Progress};
use pando_base::{Error, Result, Tensor};
use pando_cpu::{CompileOptions, StepTime, TileUnit};
use pando_graph::TensorType;
use pando_lower::{Options, compile};
use pando_machine::Machine;
use pando_tile::{Program, Role, VarId};
use serde_json::json;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

type Compute<'a> = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'a;
type Measure<'a> = dyn Fn(&[Tensor]) -> Result<Vec<StepTime>> + Send + Sync + 'a;

/// Something that maps inputs to outputs.
struct Job<'a> {
    inputs: Vec<Port>,
    output_names: Vec<String>,
    run: Box<Compute<'a>>,
    /// The time of every step, if the way to compute has steps.
    measure: Option<Box<Measure<'a>>>,
    /// Of the engine for this computer.
    engine: Option<Engine>,
}

/// What the engine for this computer uses.
struct Engine {
    /// How precise products are in fact.
    matmul_precision: &'static str,
    isa: &'static str,
    tile_unit: TileUnit,
}

impl Engine {
    fn of(options: &CompileOptions) -> Engine {
        let used = options.matmul_precision.used(options.isa, options.tile_unit);
        Engine { matmul_precision: used.name(), isa: options.isa.name(), tile_unit: options.tile_unit }
    }

    fn text(&self) -> String {
        let unit = match (self.tile_unit, TileUnit::detect(), TileUnit::problem()) {
            (TileUnit::None, _, Some(problem)) => problem.into(),
            (TileUnit::None, TileUnit::None, None) => "no AMX unit in this processor".into(),
            (TileUnit::None, ..) => "AMX unit switched off".into(),
            (..) => match TileUnit::time_shares() {
                Some([one, two, three]) => format!(
                    "AMX unit: one, two and three parts take {one:.2}, {two:.2} and {three:.2} of the vectors' time"
                ),
                None => "AMX unit".into(),
            },
        };
        format!("instructions: {}, matmul precision {}, {unit}", self.isa, self.matmul_precision)
    }
}

/// What a run gives.
struct Done {
    names: Vec<String>,
    outputs: Vec<Tensor>,
    times_ms: Vec<f64>,
    steps: Option<Vec<StepTime>>,
    engine: Option<Engine>,
}

pub fn run(args: &RunArgs) -> Result<()> {
    let threads = match args.threads {
        Some(threads) => threads as usize,
        None if args.reference => 1,
        None => rayon::current_num_threads(),
    };
    let progress = Progress::new();
    progress.pass("reading the model");
    let done = load_and(&args.model, &args.given, None, native_options(args, threads)?, |mut model, _| {
        compute(&mut model, args, threads, &progress)
    })?;
    drop(progress);
    if let Some(directory) = &args.output {
        write_outputs(directory, &done.names, &done.outputs)?;
    }
    let report = Report { done, threads };
    if args.json { print_json(&report.json()) } else { print(&report.text(args)) }
}

fn compute(model: &mut Model, args: &RunArgs, threads: usize, progress: &Progress) -> Result<Done> {
    let file = args.model.model.display().to_string();
    progress.pass("compiling");
    // A system's own problems are not the model's.
    let machine = args.system.as_deref().map(pando_machine::load).transpose()?;
    let job = job(model, args, machine, threads).map_err(|error| error.with_file(&file))?;
    let inputs = inputs(&job.inputs, &args.given).map_err(|error| error.with_file(&file))?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| Error::new(format!("cannot start {threads} threads: {error}")))?;
    let (mut times_ms, mut outputs) = (Vec::new(), Vec::new());
    for iteration in 1..=args.iterations {
        progress.pass(&format!("running, {iteration} of {}", args.iterations));
        let start = Instant::now();
        outputs = pool.install(|| (job.run)(&inputs)).map_err(|error| error.with_file(&file))?;
        times_ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let steps = measured(&job, &inputs, args, progress).map_err(|error| error.with_file(&file))?;
    let Job { output_names: names, engine, .. } = job;
    Ok(Done { names, outputs, times_ms, steps, engine })
}

/// Medians of the time of every step over as many more runs, if they are asked for.
fn measured(
    job: &Job,
    inputs: &[Tensor],
    args: &RunArgs,
    progress: &Progress,
) -> Result<Option<Vec<StepTime>>> {
    if !args.profile_cpu && args.trace.is_none() {
        return Ok(None);
    }
    let measure = job.measure.as_ref().expect("arguments have been checked: the engine computes");
    let mut runs = Vec::new();
    for iteration in 1..=args.iterations {
        progress.pass(&format!("measuring, {iteration} of {}", args.iterations));
        runs.push(measure(inputs)?);
    }
    if let (Some(path), Some(last)) = (&args.trace, runs.last()) {
        cpu_profile::write_trace(path, &args.model.model.display().to_string(), last)?;
        note(&format!("trace written to {}: ui.perfetto.dev shows it", path.display()));
    }
    Ok(args.profile_cpu.then(|| pando_cpu::medians(&runs)))
}

fn job<'a>(
    model: &'a mut Model,
    args: &RunArgs,
    machine: Option<Machine>,
    threads: usize,
) -> Result<Job<'a>> {
    match (model, machine) {
        (Model::Graph(model), Some(machine)) => simulated_job(model, &machine),
        (Model::Graph(model), None) => match args.reference {
            true => Ok(reference_job(model)),
            false => native_job(model, args, threads),
        },
        (Model::Tile(program), _) => tile_job(program),
    }
}

fn graph_job<'a>(
    model: &'a GraphModel,
    types: Vec<TensorType>,
    run: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'a,
) -> Job<'a> {
    let positions: Vec<usize> = model.outputs.iter().map(|&(_, position)| position).collect();
    Job {
        inputs: model.inputs.iter().cloned().zip(types).map(|(name, ty)| Port { name, ty }).collect(),
        output_names: model.outputs.iter().map(|(name, _)| name.clone()).collect(),
        run: Box::new(move |args| {
            let results = run(args)?;
            Ok(positions.iter().map(|&position| results[position].clone()).collect())
        }),
        measure: None,
        engine: None,
    }
}

fn native_options(args: &RunArgs, threads: usize) -> Result<CompileOptions> {
    let matmul_precision = match args.matmul_precision {
        None | Some(MatmulPrecision::Highest) => pando_cpu::MatmulPrecision::Highest,
        Some(MatmulPrecision::High) => pando_cpu::MatmulPrecision::High,
        Some(MatmulPrecision::Medium) => pando_cpu::MatmulPrecision::Medium,
    };
    CompileOptions { threads, matmul_precision, ..CompileOptions::default() }
        .with_instructions(args.isa.as_deref(), !args.no_amx)
}

fn types_of(model: &GraphModel) -> Vec<TensorType> {
    main_types(&model.module).unwrap_or_default().into_iter().cloned().collect()
}

/// With the engine for this computer, which gets the module: so weights are held once, as it wants them.
fn native_job<'a>(model: &'a mut GraphModel, args: &RunArgs, threads: usize) -> Result<Job<'a>> {
    let options = native_options(args, threads)?;
    if let Some(problem) = TileUnit::problem() {
        note(problem);
    }
    let engine = Engine::of(&options);
    if engine.matmul_precision != options.matmul_precision.name() {
        note("--matmul-precision highest is used: this processor multiplies no faster with less");
    }
    let types = types_of(model);
    let compiled = Arc::new(pando_cpu::compile_owned(std::mem::take(&mut model.module), &options)?);
    let measured = Arc::clone(&compiled);
    let measure: Box<Measure> = Box::new(move |args| measured.profile(args).map(|(_, steps)| steps));
    let job = graph_job(model, types, move |args| compiled.run(args));
    Ok(Job { measure: Some(measure), engine: Some(engine), ..job })
}

/// With the reference evaluator.
fn reference_job(model: &GraphModel) -> Job<'_> {
    let main = model.module.main().expect("loading found it");
    graph_job(model, types_of(model), move |args| pando_graph::eval(&model.module, main, args))
}

fn simulated_job<'a>(model: &'a GraphModel, machine: &Machine) -> Result<Job<'a>> {
    let compiled = compile(&model.module, machine, &Options::default())?;
    Ok(graph_job(model, types_of(model), move |args| super::profile::simulate(&compiled, args)))
}

fn tile_job(program: &Program) -> Result<Job<'_>> {
    refuse_unsound(program)?;
    let with_role = |wanted: fn(&Role) -> bool| -> Vec<VarId> {
        program.vars.iter().filter(|(_, var)| wanted(&var.role)).map(|(id, _)| id).collect()
    };
    let input_vars = with_role(|role| {
        matches!(role, Role::Input | Role::Constant(pando_tile::Init::Extern) | Role::State)
    });
    let output_vars = with_role(|role| matches!(role, Role::Output | Role::State));
    let port = |id: &VarId| {
        let var = &program.vars[*id];
        Port { name: var.name.clone(), ty: TensorType::new(var.dtype, var.shape.iter().copied()) }
    };
    Ok(Job {
        inputs: input_vars.iter().map(port).collect(),
        output_names: output_vars.iter().map(|&id| program.vars[id].name.clone()).collect(),
        run: Box::new(move |args| {
            let value =
                |var: VarId| input_vars.iter().position(|&id| id == var).map(|index| args[index].clone());
            // What nobody wrote has no value.
            let options = pando_sim::RunOptions { strict: true, ..pando_sim::RunOptions::default() };
            let outputs = pando_sim::run(program, value, &options)?;
            output_vars.iter().map(|&id| super::profile::output(program, &outputs, id)).collect()
        }),
        measure: None,
        engine: None,
    })
}

/// One file an output.
fn write_outputs(directory: &std::path::Path, names: &[String], outputs: &[Tensor]) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|error| {
        Error::in_file(directory.display().to_string(), format!("cannot be made a directory: {error}"))
    })?;
    let mut taken = Vec::new();
    names.iter().zip(outputs).try_for_each(|(name, tensor)| {
        taken.push(file_name(name, &taken));
        npy::write(&directory.join(format!("{}.npy", taken[taken.len() - 1])), tensor)
    })
}

/// A name is a stranger's: what could leave the directory or make no file name becomes `_`.
fn file_name(name: &str, taken: &[String]) -> String {
    let safe = |c: char| if c.is_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let mut file: String = name.chars().map(safe).collect();
    while file.is_empty() || file.starts_with('.') || taken.contains(&file) {
        file.insert(0, '_');
    }
    file
}

/// What has been computed, and how long it took.
struct Report {
    done: Done,
    threads: usize,
}

impl Report {
    fn quantile(&self, q: f64) -> f64 {
        let mut times = self.done.times_ms.clone();
        times.sort_by(f64::total_cmp);
        times[((times.len() - 1) as f64 * q).round() as usize]
    }

    fn json(&self) -> serde_json::Value {
        let outputs = self.done.names.iter().zip(&self.done.outputs).map(|(name, tensor)| {
            let summary = Summary::of(tensor);
            json!({
                "name": name, "dtype": tensor.dtype().to_string(), "shape": tensor.shape().to_vec(),
                "min": number(summary.min), "max": number(summary.max), "mean": number(summary.mean),
            })
        });
        let [median, p10, p90] = [0.5, 0.1, 0.9].map(|q| self.quantile(q));
        let mut json = json!({
            "outputs": outputs.collect::<Vec<_>>(),
            "latency_ms": {"median": median, "p10": p10, "p90": p90},
            "threads": self.threads,
        });
        if let Some(steps) = &self.done.steps {
            json["profile"] = cpu_profile::json(steps);
        }
        if let Some(engine) = &self.done.engine {
            json["matmul_precision"] = engine.matmul_precision.into();
            json["isa"] = engine.isa.into();
            json["tile_unit"] = engine.tile_unit.name().into();
        }
        json
    }

    fn text(&self, args: &RunArgs) -> String {
        let width = self.done.names.iter().map(String::len).max().unwrap_or(0).max(16);
        let mut text =
            format!("{:<width$} {:<20} {:>14} {:>14} {:>14}\n", "output", "type", "min", "max", "mean");
        for (name, tensor) in self.done.names.iter().zip(&self.done.outputs) {
            let summary = Summary::of(tensor);
            let ty = format!("{}{}", tensor.dtype(), tensor.shape());
            let [min, max, mean] = [summary.min, summary.max, summary.mean].map(short);
            let _ = writeln!(text, "{name:<width$} {ty:<20} {min:>14} {max:>14} {mean:>14}");
        }
        let simulated = args.system.is_some() || args.is_tile_program();
        let what = if simulated { "simulated on this computer in" } else { "latency" };
        let [median, p10, p90] = [0.5, 0.1, 0.9].map(|q| self.quantile(q));
        let _ =
            writeln!(text, "\n{what} {median:.3} ms (p10 {p10:.3}, p90 {p90:.3}), {} threads", self.threads);
        if let (Some(steps), Some(engine)) = (&self.done.steps, &self.done.engine) {
            let _ = write!(text, "{}\n\n{}", engine.text(), cpu_profile::table(steps));
        }
        text
    }
}

/// A number in at most 14 characters; nothing for an output without elements.
fn short(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.fract() == 0.0 && value.abs() < 1e12 => format!("{value}"),
        Some(value) if value.abs() >= 1e7 || value.abs() < 1e-4 => format!("{value:.6e}"),
        Some(value) => format!("{value:.6}"),
    }
}

/// JSON has no infinities or NaN: null.
fn number(value: Option<f64>) -> serde_json::Value {
    value.and_then(serde_json::Number::from_f64).map_or(serde_json::Value::Null, serde_json::Value::Number)
}

/// Of an output's elements; none if it has none.
struct Summary {
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
}

impl Summary {
    fn of(tensor: &Tensor) -> Summary {
        let values = tensor.to_f64();
        let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        Summary {
            min: values.iter().copied().reduce(f64::min),
            max: values.iter().copied().reduce(f64::max),
            mean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn names_stay_in_the_directory() {
        let taken = vec!["gpu_0_softmax_1".to_string()];
        assert_eq!(file_name("gpu_0/softmax_1", &[]), "gpu_0_softmax_1");
        assert_eq!(file_name("gpu_0/softmax_1", &taken), "_gpu_0_softmax_1");
        assert_eq!(file_name("../../etc/x", &[]), "_.._.._etc_x");
        assert_eq!(file_name("", &[]), "_");
    }
}

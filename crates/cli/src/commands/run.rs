//! `pando run`: the outputs of a model, computed on this computer.

use crate::args::RunArgs;
use crate::model::{Model, draw, load};
use crate::output::{print, print_json};
use crate::{npy, progress::Progress};
use pando_base::{DType, Error, Result, Shape, Tensor};
use pando_graph::Module;
use pando_lower::{Options, compile};
use pando_tile::{Program, Role, VarId};
use serde_json::json;
use std::fmt::Write;
use std::time::Instant;

/// A parameter or result.
struct Port {
    name: String,
    dtype: DType,
    shape: Shape,
}

type Compute<'a> = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'a;

/// Something that maps inputs to outputs.
struct Job<'a> {
    inputs: Vec<Port>,
    output_names: Vec<String>,
    run: Box<Compute<'a>>,
}

pub fn run(args: &RunArgs) -> Result<()> {
    let file = args.model.model.display().to_string();
    let model = load(&args.model)?;
    let job = job(&model, args).map_err(|error| error.with_file(&file))?;
    let inputs = inputs(&job, args)?;
    let threads = args.threads.map_or_else(rayon::current_num_threads, |threads| threads as usize);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| Error::new(format!("cannot start {threads} threads: {error}")))?;
    let progress = Progress::new();
    progress.pass("running");
    let mut times = Vec::new();
    let mut outputs = Vec::new();
    for _ in 0..args.iterations {
        let start = Instant::now();
        outputs = pool.install(|| (job.run)(&inputs)).map_err(|error| error.with_file(&file))?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    drop(progress);
    if let Some(directory) = &args.output {
        write_outputs(directory, &job.output_names, &outputs)?;
    }
    report(args, &job.output_names, &outputs, &mut times, threads)
}

fn job<'a>(model: &'a Model, args: &RunArgs) -> Result<Job<'a>> {
    match (model, &args.system) {
        (Model::Graph(module), None) => graph_job(module),
        (Model::Graph(module), Some(system)) => simulated_job(module, system),
        (Model::Tile(program), None) => Ok(tile_job(program)),
        (Model::Tile(_), Some(_)) => {
            Err(Error::new("a tile program always runs tile by tile; leave out --system"))
        }
    }
}

fn ports(module: &Module) -> Result<(Vec<Port>, Vec<String>)> {
    let main = module.main().ok_or_else(|| Error::new("the module has no function named 'main'"))?;
    let func = &module.funcs[main];
    let name = |value: pando_graph::ValueId, index: usize, kind: &str| {
        let name = &func.values[value].name;
        if name.is_empty() { format!("{kind}{index}") } else { name.clone() }
    };
    let inputs = func
        .params
        .iter()
        .enumerate()
        .map(|(index, &param)| {
            let shape = func.ty(param).require_shape()?;
            Ok(Port { name: name(param, index, "input"), dtype: func.ty(param).dtype, shape })
        })
        .collect::<Result<Vec<_>>>()?;
    let outputs =
        func.results.iter().enumerate().map(|(index, &value)| name(value, index, "output")).collect();
    Ok((inputs, outputs))
}

fn graph_job(module: &Module) -> Result<Job<'_>> {
    let (inputs, output_names) = ports(module)?;
    let main = module.main().expect("ports found it");
    Ok(Job { inputs, output_names, run: Box::new(move |args| pando_graph::eval(module, main, args)) })
}

fn simulated_job<'a>(module: &'a Module, system: &str) -> Result<Job<'a>> {
    let (inputs, output_names) = ports(module)?;
    let machine = pando_machine::load(system)?;
    let compiled = compile(module, &machine, &Options::default())?;
    let run = move |args: &[Tensor]| super::profile::simulate(&compiled, args);
    Ok(Job { inputs, output_names, run: Box::new(run) })
}

fn tile_job(program: &Program) -> Job<'_> {
    let with_role = |wanted: fn(&Role) -> bool| -> Vec<VarId> {
        program.vars.iter().filter(|(_, var)| wanted(&var.role)).map(|(id, _)| id).collect()
    };
    let input_vars = with_role(|role| matches!(role, Role::Input | Role::Constant(pando_tile::Init::Extern)));
    let output_vars = with_role(|role| matches!(role, Role::Output));
    let port = |id: &VarId| {
        let var = &program.vars[*id];
        Port { name: var.name.clone(), dtype: var.dtype, shape: var.shape.clone() }
    };
    Job {
        inputs: input_vars.iter().map(port).collect(),
        output_names: output_vars.iter().map(|&id| program.vars[id].name.clone()).collect(),
        run: Box::new(move |args| {
            let value =
                |var: VarId| input_vars.iter().position(|&id| id == var).map(|index| args[index].clone());
            let outputs = pando_sim::run(program, value, &pando_sim::RunOptions::default())?;
            output_vars.iter().map(|&id| super::profile::output(program, &outputs, id)).collect()
        }),
    }
}

/// The inputs from files, the rest drawn; the seed of each is its position's.
fn inputs(job: &Job, args: &RunArgs) -> Result<Vec<Tensor>> {
    for (name, _) in &args.inputs {
        if !job.inputs.iter().any(|port| port.name == *name) {
            let known: Vec<&str> = job.inputs.iter().map(|port| port.name.as_str()).collect();
            return Err(Error::new(format!("--input {name}: the model's inputs are {}", known.join(", "))));
        }
    }
    let each = job.inputs.iter().enumerate().map(|(index, port)| {
        match args.inputs.iter().rev().find(|(name, _)| *name == port.name) {
            Some((_, path)) => from_file(port, path),
            None => draw(port.dtype, &port.shape, args.random.wrapping_add(index as u64 * 0x9E37_79B9)),
        }
    });
    each.collect()
}

/// A file's tensor, converted to the port's type where no value changes.
fn from_file(port: &Port, path: &std::path::Path) -> Result<Tensor> {
    let tensor = npy::read(path)?;
    let wrong = |what: String| Error::in_file(path.display().to_string(), what);
    if *tensor.shape() != port.shape {
        return Err(wrong(format!("has shape {}, input {} wants {}", tensor.shape(), port.name, port.shape)));
    }
    if tensor.dtype() == port.dtype {
        return Ok(tensor);
    }
    let converted = Tensor::from_f64(port.dtype, port.shape.clone(), &tensor.to_f64());
    if converted.to_f64() == tensor.to_f64() || (tensor.dtype().is_float() && port.dtype.is_float()) {
        return Ok(converted);
    }
    Err(wrong(format!(
        "is {}, input {} wants {}, and the values do not convert",
        tensor.dtype(),
        port.name,
        port.dtype
    )))
}

fn write_outputs(directory: &std::path::Path, names: &[String], outputs: &[Tensor]) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|error| {
        Error::in_file(directory.display().to_string(), format!("cannot be made a directory: {error}"))
    })?;
    names
        .iter()
        .zip(outputs)
        .try_for_each(|(name, tensor)| npy::write(&directory.join(format!("{name}.npy")), tensor))
}

fn report(
    args: &RunArgs,
    names: &[String],
    outputs: &[Tensor],
    times: &mut [f64],
    threads: usize,
) -> Result<()> {
    times.sort_by(f64::total_cmp);
    let quantile = |q: f64| times[((times.len() - 1) as f64 * q).round() as usize];
    let summaries: Vec<_> = outputs.iter().map(Summary::of).collect();
    if args.json {
        let outputs: Vec<_> = names
            .iter()
            .zip(outputs)
            .zip(&summaries)
            .map(|((name, tensor), summary)| {
                json!({
                    "name": name, "dtype": tensor.dtype().to_string(), "shape": tensor.shape().to_vec(),
                    "min": number(summary.min), "max": number(summary.max), "mean": number(summary.mean),
                })
            })
            .collect();
        let latency = json!({"median": quantile(0.5), "p10": quantile(0.1), "p90": quantile(0.9)});
        return print_json(&json!({"outputs": outputs, "latency_ms": latency, "threads": threads}));
    }
    let mut text = format!("{:<16} {:<20} {:>12} {:>12} {:>12}\n", "output", "type", "min", "max", "mean");
    for ((name, tensor), summary) in names.iter().zip(outputs).zip(&summaries) {
        let ty = format!("{}{}", tensor.dtype(), tensor.shape());
        let _ = writeln!(
            text,
            "{name:<16} {ty:<20} {:>12.6} {:>12.6} {:>12.6}",
            summary.min, summary.max, summary.mean
        );
    }
    let _ = writeln!(
        text,
        "\nlatency {:.3} ms (p10 {:.3}, p90 {:.3}), {threads} threads",
        quantile(0.5),
        quantile(0.1),
        quantile(0.9)
    );
    print(&text)
}

/// JSON has no infinities or NaN: null.
fn number(value: f64) -> serde_json::Value {
    serde_json::Number::from_f64(value).map_or(serde_json::Value::Null, serde_json::Value::Number)
}

struct Summary {
    min: f64,
    max: f64,
    mean: f64,
}

impl Summary {
    fn of(tensor: &Tensor) -> Summary {
        let values = tensor.to_f64();
        let fold = |start: f64, f: fn(f64, f64) -> f64| values.iter().copied().fold(start, f);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Summary { min: fold(f64::INFINITY, f64::min), max: fold(f64::NEG_INFINITY, f64::max), mean }
    }
}

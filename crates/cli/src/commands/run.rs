//! `pando run`: the outputs of a model, computed on this computer.

use crate::args::{MatmulPrecision, RunArgs};
use crate::commands::profile::refuse_unsound;
use crate::model::{GraphModel, Model, draw, load, main_types};
use crate::output::{print, print_json};
use crate::{npy, progress::Progress};
use pando_base::{Error, Result, Shape, Tensor};
use pando_graph::TensorType;
use pando_lower::{Options, compile};
use pando_machine::Machine;
use pando_tile::{Program, Role, VarId};
use serde_json::json;
use std::fmt::Write;
use std::time::Instant;

/// An input.
struct Port {
    name: String,
    ty: TensorType,
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
    let threads = args.threads.map_or_else(rayon::current_num_threads, |threads| threads as usize);
    let progress = Progress::new();
    progress.pass("reading the model");
    let mut model = load(&args.model)?;
    progress.pass("compiling");
    // A system's own problems are not the model's.
    let machine = args.system.as_deref().map(pando_machine::load).transpose()?;
    let job = job(&mut model, args, machine, threads).map_err(|error| error.with_file(&file))?;
    let inputs = inputs(&job, args).map_err(|error| error.with_file(&file))?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| Error::new(format!("cannot start {threads} threads: {error}")))?;
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

fn job<'a>(
    model: &'a mut Model,
    args: &RunArgs,
    machine: Option<Machine>,
    threads: usize,
) -> Result<Job<'a>> {
    match (model, machine) {
        (Model::Graph(_), Some(_)) if args.reference => {
            Err(Error::new("--reference and --system name two ways to compute; choose one"))
        }
        (Model::Graph(model), Some(machine)) => simulated_job(model, &machine),
        (Model::Graph(model), None) => match args.reference {
            true => Ok(reference_job(model)),
            false => native_job(model, args, threads),
        },
        (Model::Tile(program), None) if !args.reference => tile_job(program),
        (Model::Tile(_), _) => {
            Err(Error::new("a tile program always runs tile by tile; leave out --system and --reference"))
        }
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
    }
}

/// With the engine for this computer, which gets the module: so that weights are held once, as it wants them.
fn native_job<'a>(model: &'a mut GraphModel, args: &RunArgs, threads: usize) -> Result<Job<'a>> {
    let matmul_precision = match args.matmul_precision {
        MatmulPrecision::Highest => pando_cpu::MatmulPrecision::Highest,
        MatmulPrecision::High => pando_cpu::MatmulPrecision::High,
        MatmulPrecision::Medium => pando_cpu::MatmulPrecision::Medium,
    };
    let options =
        pando_cpu::CompileOptions { threads, matmul_precision, ..pando_cpu::CompileOptions::default() };
    if matmul_precision.used(options.isa) != matmul_precision {
        eprintln!("note: --matmul-precision highest is used: this processor multiplies no faster with less");
    }
    let types = types_of(model);
    let module = std::mem::take(&mut model.module);
    let compiled = pando_cpu::compile_owned(module, &options)?;
    Ok(graph_job(model, types, move |args| compiled.run(args)))
}

fn types_of(model: &GraphModel) -> Vec<TensorType> {
    main_types(&model.module).unwrap_or_default().into_iter().cloned().collect()
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
    let input_vars = with_role(|role| matches!(role, Role::Input | Role::Constant(pando_tile::Init::Extern)));
    let output_vars = with_role(|role| matches!(role, Role::Output));
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
    })
}

/// The inputs from files, the rest drawn; the seed of each is its position's. Files give named dimensions
/// their sizes.
fn inputs(job: &Job, args: &RunArgs) -> Result<Vec<Tensor>> {
    for (name, _) in &args.inputs {
        if !job.inputs.iter().any(|port| port.name == *name) {
            let known: Vec<&str> = job.inputs.iter().map(|port| port.name.as_str()).collect();
            return Err(Error::new(format!("--input {name}: the model's inputs are {}", known.join(", "))));
        }
    }
    let mut sizes: Vec<(String, u64)> = Vec::new();
    let mut tensors: Vec<Option<Tensor>> = Vec::new();
    for port in &job.inputs {
        let file = args.inputs.iter().rev().find(|(name, _)| *name == port.name);
        tensors.push(file.map(|(_, path)| from_file(port, path, &mut sizes)).transpose()?);
    }
    let each = job.inputs.iter().zip(tensors).enumerate().map(|(index, (port, tensor))| match tensor {
        Some(tensor) => Ok(tensor),
        None => {
            let seed = args.random.wrapping_add(index as u64 * 0x9E37_79B9);
            let shape = shape_of(port, &sizes)?;
            draw(port.ty.dtype, &shape, seed).map_err(|error| error.context(format!("input {}", port.name)))
        }
    });
    each.collect()
}

/// The shape of an input with the sizes known for names.
fn shape_of(port: &Port, sizes: &[(String, u64)]) -> Result<Shape> {
    let dims = port.ty.dims.iter().map(|dim| {
        let named = || sizes.iter().find(|(name, _)| *name == dim.to_string()).map(|&(_, size)| size);
        dim.known().or_else(named).ok_or_else(|| {
            Error::new(format!(
                "input {} is {}: give its dimension a size, such as --dim {dim}=8",
                port.name, port.ty
            ))
        })
    });
    dims.collect::<Result<Vec<u64>>>().map(Shape::from)
}

/// A file's tensor, converted to the port's type where no value changes.
fn from_file(port: &Port, path: &std::path::Path, sizes: &mut Vec<(String, u64)>) -> Result<Tensor> {
    let tensor = npy::read(path)?;
    let wrong = |what: String| Error::in_file(path.display().to_string(), what);
    let fits = tensor.shape().rank() == port.ty.rank()
        && port
            .ty
            .dims
            .iter()
            .zip(tensor.shape().iter())
            .all(|(dim, &size)| dim.known().is_none_or(|known| known == size));
    if !fits {
        return Err(wrong(format!("has shape {}, input {} is {}", tensor.shape(), port.name, port.ty)));
    }
    for (dim, &size) in
        port.ty.dims.iter().zip(tensor.shape().iter()).filter(|(dim, _)| dim.known().is_none())
    {
        sizes.push((dim.to_string(), size));
    }
    let dtype = port.ty.dtype;
    if tensor.dtype() == dtype {
        return Ok(tensor);
    }
    let converted = Tensor::from_f64(dtype, tensor.shape().clone(), &tensor.to_f64());
    if converted.to_f64() == tensor.to_f64() || (tensor.dtype().is_float() && dtype.is_float()) {
        return Ok(converted);
    }
    Err(wrong(format!(
        "is {}, input {} wants {dtype}, and the values do not convert",
        tensor.dtype(),
        port.name
    )))
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
    let width = names.iter().map(String::len).max().unwrap_or(0).max(16);
    let mut text =
        format!("{:<width$} {:<20} {:>14} {:>14} {:>14}\n", "output", "type", "min", "max", "mean");
    for ((name, tensor), summary) in names.iter().zip(outputs).zip(&summaries) {
        let ty = format!("{}{}", tensor.dtype(), tensor.shape());
        let [min, max, mean] = [summary.min, summary.max, summary.mean].map(short);
        let _ = writeln!(text, "{name:<width$} {ty:<20} {min:>14} {max:>14} {mean:>14}");
    }
    let what = if args.system.is_some() { "simulated on this computer in" } else { "latency" };
    let _ = writeln!(
        text,
        "\n{what} {:.3} ms (p10 {:.3}, p90 {:.3}), {threads} threads",
        quantile(0.5),
        quantile(0.1),
        quantile(0.9)
    );
    print(&text)
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

//! The arguments of every command.

use clap::error::{Error, ErrorKind};
use clap::{Args as ClapArgs, CommandFactory, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Parser)]
#[command(name = "pando", version, about = "Compile, run and predict models on machines built of IPUs")]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// As [`Parser::try_parse_from`], where also what options mean together is checked.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Args, Error> {
        let read = Args::try_parse_from(args)?;
        match &read.command {
            Command::Run(run) => match run.conflict() {
                Some(problem) => Err(Args::command().error(ErrorKind::ArgumentConflict, problem)),
                None => Ok(read),
            },
            _ => Ok(read),
        }
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// Compute a model's outputs on this computer
    Run(RunArgs),
    /// Compile a model for a system and predict time and memory
    Profile(ProfileArgs),
    /// Print the text of a model after a compiler pass
    Compile(CompileArgs),
    /// Show how far predictions are from published measurements
    Validate(ValidateArgs),
    /// The machines that models are compiled for
    #[command(subcommand)]
    System(SystemCommand),
    /// Built-in models with seeded weights
    #[command(subcommand)]
    Zoo(ZooCommand),
}

#[derive(Subcommand)]
pub enum SystemCommand {
    /// List the built-in systems
    List {
        #[arg(long)]
        json: bool,
    },
    /// Show a system: a built-in name or a TOML file
    Show {
        name: String,
        #[arg(long)]
        json: bool,
    },
    /// Check a machine file
    Check {
        file: String,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand)]
pub enum ZooCommand {
    /// List the built-in models
    List {
        #[arg(long)]
        json: bool,
    },
    /// Write a built-in model as text
    Export {
        /// NAME or NAME?OPTION=VALUE&…: the model's sizes, dtype=f16, seed=1
        name: String,
        /// Where to; ends in .graph
        file: PathBuf,
    },
}

/// Where a model and its inputs come from.
#[derive(Clone, ClapArgs)]
pub struct ModelArgs {
    /// A .onnx, .graph or .tile file, or a built-in model: zoo:NAME or zoo:NAME?batch=16&dtype=f16 (see `pando
    /// zoo list`)
    pub model: PathBuf,
    /// Give a named dimension a size
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim)]
    pub dims: Vec<(String, u64)>,
}

/// The values of a model's inputs. Where nothing is run, they matter to models whose sizes or branches depend on them.
#[derive(Clone, ClapArgs)]
pub struct InputArgs {
    /// An input's values: a .npy file, a .npz file for all inputs it has arrays for, or one number for all its
    /// elements. A model's only input needs no name
    #[arg(long = "input", value_name = "[NAME=]FILE|NUMBER", value_parser = parse_input)]
    pub inputs: Vec<GivenInput>,
    /// Draw the inputs that nothing is given for, from this seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub random: u64,
}

#[derive(ClapArgs)]
pub struct RunArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub given: InputArgs,
    /// Write every output there as NAME.npy
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Threads to use; all cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: Option<u64>,
    /// How precisely f32 products are computed, at least; highest by default
    #[arg(long, value_enum)]
    pub matmul_precision: Option<MatmulPrecision>,
    /// Instructions to use: portable, avx2 or avx512; the best of this processor by default
    #[arg(long, value_name = "LEVEL")]
    pub isa: Option<String>,
    /// Do without the processor's unit for products of tiles (AMX)
    #[arg(long)]
    pub no_amx: bool,
    /// Run this often and report the median time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: u64,
    /// Measure every operation, and print the slowest
    #[arg(long)]
    pub profile_cpu: bool,
    /// Measure every operation, and write the last run there for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Compute with the reference evaluator: slow, and the judge of everything else
    #[arg(long)]
    pub reference: bool,
    /// Compute tile by tile as this system would
    #[arg(long, value_name = "SYSTEM")]
    pub system: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl RunArgs {
    pub fn is_tile_program(&self) -> bool {
        self.model.model.extension().is_some_and(|extension| extension == "tile")
    }

    /// What is wrong with options that mean nothing together.
    fn conflict(&self) -> Option<String> {
        let file = self.model.model.display();
        let instead = match (self.is_tile_program(), self.reference, &self.system) {
            (true, true, _) => {
                return Some(format!("--reference: {file} is a tile program, which runs tile by tile"));
            }
            (true, _, Some(_)) => {
                return Some(format!(
                    "--system: the tile program {file} is for one system already; leave it out"
                ));
            }
            (false, true, Some(_)) => {
                return Some("--reference and --system name two ways to compute; choose one".into());
            }
            (true, false, None) => format!("the tile program {file} is computed tile by tile"),
            (false, true, None) => "--reference computes with the evaluator".into(),
            (false, false, Some(_)) => "--system computes tile by tile".into(),
            (false, false, None) => return None,
        };
        let of_the_engine = [
            ("--isa", self.isa.is_some()),
            ("--no-amx", self.no_amx),
            ("--matmul-precision", self.matmul_precision.is_some()),
            ("--profile-cpu", self.profile_cpu),
            ("--trace", self.trace.is_some()),
            // The evaluator has one.
            ("--threads", self.reference && self.threads.is_some()),
        ];
        let (option, _) = of_the_engine.into_iter().find(|&(_, is_given)| is_given)?;
        Some(format!("{option} is for the engine for this computer, but {instead}; leave one of them out"))
    }
}

#[derive(Clone, ClapArgs)]
pub struct CompileOptions {
    /// A built-in system or a machine file
    #[arg(long, value_name = "SYSTEM")]
    pub system: String,
    /// Number format of the model: unchanged if not given
    #[arg(long, value_enum)]
    pub precision: Option<Precision>,
    /// Composites that stay in f32 at half precision, such as layer_norm,gelu,softmax
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_name, requires = "precision")]
    pub keep_f32: Vec<String>,
    /// Copies of the model that run side by side on their own data; as many as the system has chips by
    /// default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub replicas: Option<u64>,
    /// Share of a tile's memory for one operation's temporary data
    #[arg(long, value_name = "0..1", default_value_t = 0.6, value_parser = parse_proportion)]
    pub available_memory_proportion: f64,
    /// Items processed at once: the size of the dimension named N, B or batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub micro_batch: Option<u64>,
    /// Iterations of a call: how many batches the program works through before it returns, and what a call itself
    /// takes counts. Without it calls follow one another without a pause
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub iterations: Option<u64>,
    /// Tiles reserved for the host's transfers, which then run beside the work
    #[arg(long, value_name = "N", default_value_t = 0, requires = "iterations")]
    pub io_tiles: u32,
    /// Batches that the host has ready before they are asked for; 0 if it is waited for each time
    #[arg(long, value_name = "N", default_value_t = pando_tile::PREFETCH)]
    pub prefetch: u32,
}

#[derive(Clone, ClapArgs)]
pub struct ProfileArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub given: InputArgs,
    #[command(flatten)]
    pub options: CompileOptions,
    /// Profile training instead of inference
    #[arg(long)]
    pub train: bool,
    /// What updates the weights, with --train: sgd, adam, adamw, adamax, lamb, rmsprop, adagrad or adadelta
    #[arg(long, value_name = "NAME", default_value = "adam", requires = "train")]
    pub optimizer: String,
    /// Micro-batches per weight update, with --train
    #[arg(long, value_name = "N", requires = "train")]
    pub gradient_accumulation: Option<u64>,
    /// Pipeline stages
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub stages: u64,
    /// End a stage with the operation that computes this value, instead of balancing them; again for the next stage
    #[arg(long = "stage-end", value_name = "VALUE", conflicts_with = "stages")]
    pub stage_ends: Vec<String>,
    /// Also compute the values tile by tile and compare them with the reference evaluator
    #[arg(long)]
    pub exact: bool,
    /// Write the whole report there
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Do not try what could be improved, which compiles the model a few times more
    #[arg(long)]
    pub no_tries: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl ProfileArgs {
    /// Of the pipeline.
    pub fn num_stages(&self) -> u64 {
        if self.stage_ends.is_empty() { self.stages } else { self.stage_ends.len() as u64 + 1 }
    }
}

#[derive(ClapArgs)]
pub struct CompileArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub given: InputArgs,
    #[command(flatten)]
    pub options: CompileOptions,
    /// The pass whose result to print
    #[arg(long, value_enum)]
    pub stop_after: Pass,
    /// Print one JSON object with the text in it
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct ValidateArgs {
    /// Only rows of this kind: kernel, exchange, product, sparse, stencil, host, model or model-f8
    #[arg(long, value_name = "NAME", conflicts_with = "row")]
    pub group: Option<String>,
    /// Only rows with this in their name
    #[arg(long, value_name = "PATTERN")]
    pub row: Option<String>,
    /// Write what predictions can be trusted with, per kind, there
    #[arg(long, value_name = "FILE", conflicts_with_all = ["group", "row"])]
    pub write: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pass {
    /// The model as read, dimensions bound
    Graph,
    /// Calls replaced by their bodies, precision set
    Inline,
    /// Layouts and methods
    Plan,
    /// The tile program
    Tile,
    /// The address of every variable
    Place,
    /// The tile program with one vertex and one message each
    Expand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MatmulPrecision {
    Highest,
    High,
    Medium,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// f16 data and sums
    F16,
    F32,
    /// f16 data, f32 sums
    #[value(name = "f16.32")]
    F16F32,
    /// operands of products in 8 bits (a C600 multiplies them at twice the rate), all else f16
    F8,
}

fn split_pair(text: &str) -> Result<(String, &str), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}' has no '='"))?;
    if name.is_empty() { Err("the name is empty".into()) } else { Ok((name.to_string(), value)) }
}

/// Of a list, whose commas may have spaces beside them.
fn parse_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() { Err("a name is empty".into()) } else { Ok(name.to_string()) }
}

fn parse_proportion(text: &str) -> Result<f64, String> {
    let proportion: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    if (0.0..=1.0).contains(&proportion) { Ok(proportion) } else { Err("it is between 0 and 1".into()) }
}

fn parse_dim(text: &str) -> Result<(String, u64), String> {
    let (name, value) = split_pair(text)?;
    let size = value.parse().map_err(|_| format!("'{value}' is not a size"))?;
    Ok((name, size))
}

/// `NAME=SOURCE`, or a source alone.
#[derive(Clone, Debug)]
pub struct GivenInput {
    pub name: Option<String>,
    pub source: InputSource,
}

#[derive(Clone, Debug)]
pub enum InputSource {
    File(PathBuf),
    /// Every element.
    Number(f64),
}

fn parse_input(text: &str) -> Result<GivenInput, String> {
    let (name, value) = match text.contains('=') {
        true => split_pair(text).map(|(name, value)| (Some(name), value))?,
        false => (None, text),
    };
    let source = match value.parse() {
        Ok(number) => InputSource::Number(number),
        Err(_) => InputSource::File(value.into()),
    };
    Ok(GivenInput { name, source })
}

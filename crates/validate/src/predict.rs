//! Predictions: every point of every series, through the same code that serves users.
//!
//! Units. `cycles` is what a run takes; `s`, `ms`, `µs` the same over the clock; a unit that ends in `/s` is
//! the point's `work` (in the unit's own measure: FLOP, B, bit, items) over those seconds, with the prefixes
//! k, M, G, T. A graph's work is its floating-point operations if the point does not say.

use crate::series::{Call, Code, Direction, Experiment, Kind, Measures, ModelPrecision, Point, Series};
use crate::{errors, models};
use pando_base::{DType, Result};
use pando_graph::Module;
use pando_lower::{Options, Precision};
use pando_machine::Machine;
use pando_profile::{Step, StepKind};
use pando_sim::Timeline;

/// A measurement and its prediction, in the same unit.
#[derive(Clone, Debug)]
pub struct Row {
    pub id: String,
    pub kind: Kind,
    pub what: String,
    pub system: String,
    pub code: Code,
    pub unit: String,
    pub measured: f64,
    pub reading_error: f64,
    pub predicted: f64,
    pub source: String,
    /// Constants that were fitted with this row.
    pub fitted: Option<String>,
    pub reason: Option<String>,
    /// What else to know: that the program does not fit the machine.
    pub remark: Option<String>,
    /// A size to tell rows of a kind apart: the point's `n`.
    pub size: Option<f64>,
}

impl Row {
    /// `predicted / measured - 1`.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }

    /// The error's size with what the reading of the measurement may add to it.
    pub fn abs_error(&self) -> f64 {
        self.error().abs() + self.reading_error
    }

    /// Whether prediction and measurement are more than a factor of two apart.
    pub fn is_far(&self) -> bool {
        !(0.5..=2.0).contains(&(self.predicted / self.measured))
    }
}

/// The rows whose name or kind contains `pattern`, with their predictions.
pub fn rows(series: &[Series], pattern: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for series in series {
        for point in &series.points {
            let id = series.row_id(point);
            if id.contains(pattern) || series.kind.name() == pattern {
                rows.push(row(series, point, id)?);
            }
        }
    }
    if rows.is_empty() { Err(errors::no_rows(pattern)) } else { Ok(rows) }
}

fn row(series: &Series, point: &Point, id: String) -> Result<Row> {
    let machine = pando_machine::load(&series.system)?;
    let prediction = predict(series, point, &machine).map_err(|error| error.context(&id))?;
    Ok(Row {
        id,
        kind: series.kind,
        what: series.fill(&series.what, point)?,
        system: series.system.clone(),
        code: series.code,
        unit: series.unit.clone(),
        measured: point.measured,
        reading_error: series.reading_error,
        predicted: prediction.value,
        remark: prediction.remark,
        source: series.source.clone(),
        fitted: series.fitted.clone(),
        reason: point.reason.clone().or_else(|| series.reason.clone()),
        size: point.number("n"),
    })
}

/// A prediction in the series' unit.
struct Prediction {
    value: f64,
    remark: Option<String>,
}

/// The prediction alone, on a machine that may differ from the series' own.
pub(crate) fn predict_on(series: &Series, point: &Point, machine: &Machine) -> Result<f64> {
    predict(series, point, machine).map(|prediction| prediction.value)
}

fn predict(series: &Series, point: &Point, machine: &Machine) -> Result<Prediction> {
    let mut work = point.number("work");
    let mut remark = None;
    let clock_hz = machine.chip.clock_hz;
    let cycles = match &series.experiment {
        Experiment::Tile(file) => {
            let program = pando_tile::parse(&series.fill(models::program(file)?, point)?, file)?;
            part(series.measures, &pando_sim::time(&program, machine), machine)
        }
        Experiment::Graph { file, partials } => {
            let module = pando_graph::parse(&series.fill(models::program(file)?, point)?, file)?;
            work = work.or(Some(pando_lower::model_flops(&module) as f64));
            compiled(&module, machine, &options(partials), series.measures, &mut remark)?
        }
        Experiment::Model { name, partials, precision, call, available_memory, keep_f32 } => {
            let precision = match precision {
                ModelPrecision::F16 => Precision::F16,
                ModelPrecision::F32 => Precision::F32,
                ModelPrecision::F8 => Precision::F8,
            };
            let mut options = options(partials);
            if let &Some(Call { iterations, io_tiles, prefetch }) = call {
                options = Options { iterations, io_tiles, prefetch, ..options };
            }
            if let &Some(available_memory_proportion) = available_memory {
                options = Options { available_memory_proportion, ..options };
            }
            let module = models::model(&series.fill(name, point)?, precision, keep_f32, machine, &options)?;
            compiled(&module, machine, &options, series.measures, &mut remark)?
        }
        Experiment::Host { direction, waiting } => {
            let kind = if *direction == Direction::In { StepKind::HostIn } else { StepKind::HostOut };
            let bytes = point.number("bytes").unwrap_or(0.0) as u64;
            let waits = machine.host.callback_latency_s - machine.host.ready_latency_s;
            let waits = if *waiting { waits * clock_hz } else { 0.0 };
            pando_sim::host_cycles(machine, kind, bytes, 1) as f64 + waits
        }
        Experiment::Link { links } => {
            let link = machine.links.as_ref().map_or(0.0, |all| all.link_bytes_per_s * all.efficiency);
            // Bits of both directions, each of which the links carry at full speed.
            work.unwrap_or(0.0) / 16.0 / (f64::from(*links) * link) * clock_hz
        }
        Experiment::HostSync => machine.chip.sync.external_s * clock_hz,
    };
    Ok(Prediction { value: in_unit(series, cycles, work, machine)?, remark })
}

/// The type of partial sums, and for the rest the defaults.
fn options(partials: &str) -> Options {
    let half_partials = DType::from_name(partials) == Some(DType::F16);
    Options { half_partials, ..Options::default() }
}

fn compiled(
    module: &Module,
    machine: &Machine,
    options: &Options,
    measures: Measures,
    remark: &mut Option<String>,
) -> Result<f64> {
    let compiled = pando_lower::compile(module, machine, options)?;
    if !compiled.fit.fits {
        let over = pando_profile::render::bytes(compiled.fit.over_bytes);
        *remark = Some(format!("our program does not fit: {over} too much on a tile; timed as if it did"));
    }
    let timeline = pando_sim::time(&compiled.emitted.program, machine);
    if measures == Measures::Call {
        let call = timeline.cycles().saturating_add(pando_sim::call_cycles(machine));
        return Ok(call as f64 / options.iterations as f64);
    }
    Ok(part(measures, &timeline, machine))
}

/// Cycles of the part that was measured.
fn part(measures: Measures, timeline: &Timeline, machine: &Machine) -> f64 {
    let sum = |value: &dyn Fn(&Step) -> u64| -> f64 {
        timeline.steps.iter().map(|step| value(step) as f64 * step.times as f64).sum()
    };
    let setup = machine.chip.exchange.setup_cycles;
    let host = sum(&|step| step.parts.host);
    let chip = sum(&|step| step.cycles) - host;
    match measures {
        Measures::Compute => sum(&|step| step.parts.compute),
        Measures::Longest => timeline.steps.iter().map(|step| step.parts.compute).max().unwrap_or(0) as f64,
        Measures::Exchange => sum(&|step| step.parts.exchange),
        Measures::Moving => sum(&|step| step.parts.exchange.saturating_sub(setup)),
        Measures::Sync => sum(&|step| step.parts.sync),
        Measures::Chip => chip,
        Measures::Overlapped => chip.max(host),
        Measures::Call => chip + host,
        Measures::Request => chip + host + waiting_cycles(timeline, machine),
    }
}

/// What each transfer takes longer when the host is not ready, as it is not before a request has come.
fn waiting_cycles(timeline: &Timeline, machine: &Machine) -> f64 {
    let transfers = timeline.steps.iter().filter(|step| step.parts.host > 0).count();
    let host = &machine.host;
    transfers as f64 * (host.callback_latency_s - host.ready_latency_s) * machine.chip.clock_hz
}

fn in_unit(series: &Series, cycles: f64, work: Option<f64>, machine: &Machine) -> Result<f64> {
    let seconds = cycles / machine.chip.clock_hz;
    Ok(match series.unit.as_str() {
        "cycles" => cycles,
        "s" => seconds,
        "ms" => seconds * 1e3,
        "µs" => seconds * 1e6,
        rate => {
            let scale = match rate.chars().next() {
                Some('k') => 1e3,
                Some('M') => 1e6,
                Some('G') => 1e9,
                Some('T') => 1e12,
                _ => 1.0,
            };
            let work = work
                .filter(|_| rate.ends_with("/s"))
                .ok_or_else(|| errors::bad_series("data", &series.id, "a rate needs the point's 'work'"))?;
            work / seconds / scale
        }
    })
}

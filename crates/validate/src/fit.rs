//! The few constants that stand for what no source gives, fitted again from the rows that they were fitted
//! with. `cargo run -p pando-validate --example fit` prints them beside what the machine files and kernels
//! hold; a test compares the two. No row of a product, a stencil or a model is used.

use crate::predict::predict_on;
use crate::series::{Measures, Point, Series, series};
use pando_base::{Error, Result};
use pando_machine::Machine;

/// A constant, what it is fitted to and what is held.
#[derive(Clone, Debug)]
pub struct Fit {
    pub constant: &'static str,
    /// Method and rows.
    pub how: &'static str,
    pub rows: usize,
    pub fitted: f64,
    pub held: f64,
}

/// All fitted constants.
pub fn fits() -> Result<Vec<Fit>> {
    let series = series()?;
    let find = |id: &str| {
        series.iter().find(|series| series.id == id).ok_or_else(|| Error::new(format!("no series '{id}'")))
    };
    let (amp, add) = (launch(find("amp")?)?, launch(find("add")?)?);
    Ok(vec![
        Fit {
            constant: "issue.vertex_dispatch_cycles",
            how: "median excess over the published formula: one of the eight is an outlier",
            rows: amp.excess.len(),
            fitted: median(amp.excess),
            held: amp.held,
        },
        Fit {
            constant: "launch of elementwise vertices",
            how: "mean excess over the published formula (least squares)",
            rows: add.excess.len(),
            fitted: mean(&add.excess),
            held: add.held,
        },
        setup(find("halo")?)?,
        barrier(find("barrier")?)?,
        rowdot(find("matvec-dots")?)?,
    ])
}

/// Measured cycles beyond the formula alone, and what the model adds to it.
struct Launch {
    excess: Vec<f64>,
    held: f64,
}

fn launch(series: &Series) -> Result<Launch> {
    let machine = pando_machine::load(&series.system)?;
    let mut bare = machine.clone();
    bare.chip.issue.vertex_dispatch_cycles = 0;
    let mut excess = Vec::new();
    for point in &series.points {
        excess.push(point.measured - predict_on(series, point, &bare)?);
    }
    let first = &series.points[0];
    Ok(Launch { excess, held: predict_on(series, first, &machine)? - predict_on(series, first, &bare)? })
}

/// The intercept of a least-squares line over words moved. Its slope, above one cycle a word, is not used: it
/// was measured on Mk1 for one shape of exchange, and larger exchanges elsewhere take a cycle a word.
fn setup(series: &Series) -> Result<Fit> {
    let machine = pando_machine::load(&series.system)?;
    let mut points = Vec::new();
    for point in &series.points {
        points.push((words(series, point, &machine)?, point.measured));
    }
    let (x, y) = (mean_of(&points, |p| p.0), mean_of(&points, |p| p.1));
    let slope = mean_of(&points, |p| (p.0 - x) * (p.1 - y)) / mean_of(&points, |p| (p.0 - x).powi(2));
    Ok(Fit {
        constant: "exchange.setup_cycles",
        how: "intercept of a least-squares line over words",
        rows: points.len(),
        fitted: y - slope * x,
        held: machine.chip.exchange.setup_cycles as f64,
    })
}

fn words(series: &Series, point: &Point, machine: &Machine) -> Result<f64> {
    predict_on(&Series { measures: Measures::Moving, ..series.clone() }, point, machine)
}

fn barrier(series: &Series) -> Result<Fit> {
    let machine = pando_machine::load(&series.system)?;
    Ok(Fit {
        constant: "sync.internal_cycles",
        how: "the one measurement",
        rows: series.points.len(),
        fitted: series.points[0].measured,
        held: machine.chip.sync.internal_cycles as f64,
    })
}

/// Set-up of the dot product's vertex: slots that the vendor's planner gives to dot products of 143 and of
/// 200 elements (hardware.md section 9, rows 33 and 34: 3696 cycles are 48 rows by 77 slots; 105 slots), less a
/// slot for each pair of f32.
fn rowdot(series: &Series) -> Result<Fit> {
    let machine = pando_machine::load(&series.system)?;
    let slots = |k: u64| match pando_tile::Kernel::RowDot.cycles(&dot_operands(&[1, k], &[k]), &machine.chip)
    {
        pando_tile::VertexCost::Worker(slots) => slots as f64,
        pando_tile::VertexCost::Supervisor(cycles) => cycles as f64,
    };
    let published = [(143u64, 77.0), (200, 105.0)];
    let excess: Vec<f64> = published.iter().map(|&(k, slots)| slots - k.div_ceil(2) as f64).collect();
    Ok(Fit {
        constant: "slots of rowdot besides its vectors",
        how: "mean excess over one slot a vector (least squares)",
        rows: excess.len(),
        fitted: mean(&excess),
        held: slots(0),
    })
}

fn dot_operands<'a>(row: &'a [u64], vector: &'a [u64]) -> [pando_tile::OperandType<'a>; 3] {
    [row, vector, &row[..1]].map(|lens| pando_tile::OperandType { dtype: pando_base::DType::F32, lens })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn mean_of(points: &[(f64, f64)], value: impl Fn(&(f64, f64)) -> f64) -> f64 {
    mean(&points.iter().map(value).collect::<Vec<f64>>())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    crate::summary::median(&values)
}

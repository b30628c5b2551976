//! SchNet (Schütt et al. 2018) as in PyTorch Geometric with its defaults: continuous filters over the distances
//! of atoms, and an energy for each molecule. Pairs of neighbours are an input.

use super::graphs::{ends, per_row, sums_by_row};
use crate::net::Net;
use pando_base::{BinaryFn, ReduceFn, Result};
use pando_graph::{TensorType, ValueId};

const HIDDEN: u64 = 128;
const FILTERS: u64 = 128;
const INTERACTIONS: u64 = 6;
const GAUSSIANS: u64 = 50;
const CUTOFF: f64 = 10.0;
const ELEMENTS: u64 = 100;

pub(crate) fn build(n: &mut Net) -> Result<Vec<ValueId>> {
    let (atoms, pairs, molecules) = (n.size("atoms"), n.size("pairs"), n.size("molecules"));
    let elements = n.input_ids("z", &[atoms]);
    let places = n.input("pos", &[atoms, 3]);
    let edges = n.input_ids("edge_index", &[2, pairs]);
    let molecule = n.input_ids("batch", &[atoms]);
    let edges = ends(n, edges)?;
    let distance = distances(n, places, edges)?;
    let basis = gaussians(n, distance)?;
    let cutoff = smooth_cutoff(n, distance)?;
    let mut x = n.embedding("embedding", elements, ELEMENTS, HIDDEN)?;
    for index in 0..INTERACTIONS {
        let change =
            n.scope(&format!("interactions.{index}"), |n| interaction(n, x, Pairs { edges, basis, cutoff }))?;
        let sum = n.b.add(x, change)?;
        x = n.named(&format!("interactions.{index}.add"), sum);
    }
    let x = n.linear("lin1", x, HIDDEN / 2)?;
    let x = shifted_softplus(n, x)?;
    let x = n.linear("lin2", x, 1)?;
    let energy = sums_by_row(n, x, molecule, molecules)?;
    Ok(vec![n.named("energy", energy)])
}

/// What interactions know of pairs.
#[derive(Clone, Copy)]
struct Pairs {
    edges: [ValueId; 2],
    /// `[E, GAUSSIANS]`
    basis: ValueId,
    /// `[E]`
    cutoff: ValueId,
}

fn distances(n: &mut Net, places: ValueId, [from, to]: [ValueId; 2]) -> Result<ValueId> {
    let (a, b) = (n.b.gather(places, from, 0)?, n.b.gather(places, to, 0)?);
    let difference = n.b.sub(a, b)?;
    let square = n.b.mul(difference, difference)?;
    let sum = n.b.reduce(ReduceFn::Sum, square, &[1])?;
    let distance = n.b.sqrt(sum)?;
    Ok(n.named("distance", distance))
}

/// Bells at even places between 0 and the cutoff.
fn gaussians(n: &mut Net, distance: ValueId) -> Result<ValueId> {
    let step = CUTOFF / (GAUSSIANS - 1) as f64;
    let ty = TensorType::new(n.dtype, [n.dim(distance, 0), GAUSSIANS]);
    let counter = n.b.iota(ty.clone(), 1)?;
    let centre = n.scaled(counter, step)?;
    let wide = n.b.broadcast(distance, ty.dims, &[0])?;
    let away = n.b.sub(wide, centre)?;
    let square = n.b.mul(away, away)?;
    let exponent = n.scaled(square, -0.5 / (step * step))?;
    let basis = n.b.exp(exponent)?;
    Ok(n.named("basis", basis))
}

/// From 1 at no distance to 0 at the cutoff.
fn smooth_cutoff(n: &mut Net, distance: ValueId) -> Result<ValueId> {
    let angle = n.scaled(distance, std::f64::consts::PI / CUTOFF)?;
    let cosine = n.b.cos(angle)?;
    let raised = n.b.binary_scalar(BinaryFn::Add, cosine, 1.0)?;
    let half = n.scaled(raised, 0.5)?;
    Ok(n.named("cutoff", half))
}

fn interaction(n: &mut Net, x: ValueId, pairs: Pairs) -> Result<ValueId> {
    let filter = n.linear("mlp.0", pairs.basis, FILTERS)?;
    let filter = shifted_softplus(n, filter)?;
    let filter = n.linear("mlp.2", filter, FILTERS)?;
    let filter = per_row(n, filter, pairs.cutoff, BinaryFn::Mul)?;
    n.named("filter", filter);
    let atoms = n.dim(x, 0);
    let y = n.linear_no_bias("conv.lin1", x, FILTERS)?;
    let neighbours = n.b.gather(y, pairs.edges[0], 0)?;
    let messages = n.b.mul(neighbours, filter)?;
    n.named("messages", messages);
    let sums = sums_by_row(n, messages, pairs.edges[1], atoms)?;
    n.named("sums", sums);
    let y = n.linear("conv.lin2", sums, HIDDEN)?;
    let y = shifted_softplus(n, y)?;
    n.linear("lin", y, HIDDEN)
}

/// `log(1 + exp(x)) - log 2`
fn shifted_softplus(n: &mut Net, x: ValueId) -> Result<ValueId> {
    let softplus = n.softplus(x)?;
    n.b.binary_scalar(BinaryFn::Sub, softplus, std::f64::consts::LN_2)
}

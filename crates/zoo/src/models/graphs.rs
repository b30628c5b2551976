//! Message passing over a list of edges `[2, E]` (from, to), with the weights of PyTorch Geometric's layers: GCN
//! (Kipf, Welling 2017) and GraphSAGE (Hamilton et al. 2017).

use crate::net::{Init, Net};
use pando_base::{BinaryFn, ReduceFn, Result};
use pando_graph::{TensorType, ValueId};

/// Two `GCNConv` layers.
pub(crate) fn gcn(n: &mut Net) -> Result<Vec<ValueId>> {
    let (x, [from, to]) = graph(n)?;
    let degree = counts(n, to, n.dim(x, 0))?;
    // Every node is its own neighbour.
    let degree = n.b.binary_scalar(BinaryFn::Add, degree, 1.0)?;
    let root = n.b.sqrt(degree)?;
    let one = n.b.splat_like(root, 1.0)?;
    let norm = n.b.div(one, root)?;
    n.named("norm", norm);
    let x = n.scope("conv1", |n| gcn_layer(n, x, [from, to], norm, n.size("hidden")))?;
    let x = n.relu("relu", x)?;
    let classes = n.size("classes");
    Ok(vec![n.scope("conv2", |n| gcn_layer(n, x, [from, to], norm, classes))?])
}

/// Sums of neighbours, each end of an edge scaled by its node's norm.
fn gcn_layer(n: &mut Net, x: ValueId, edges: [ValueId; 2], norm: ValueId, outputs: u64) -> Result<ValueId> {
    let x = n.linear_no_bias("lin", x, outputs)?;
    let scaled = per_row(n, x, norm, BinaryFn::Mul)?;
    let sums = sums_of_neighbours(n, scaled, edges)?;
    let sums = n.b.add(sums, scaled)?;
    let scaled = per_row(n, sums, norm, BinaryFn::Mul)?;
    let bias = n.weight("bias", &[outputs], Init::Normal { mean: 0.0, std: 0.02 })?;
    let result = n.plus(scaled, bias)?;
    Ok(n.named("", result))
}

/// Two `SAGEConv` layers with means.
pub(crate) fn graphsage(n: &mut Net) -> Result<Vec<ValueId>> {
    let (x, [from, to]) = graph(n)?;
    let count = counts(n, to, n.dim(x, 0))?;
    let count = n.b.binary_scalar(BinaryFn::Max, count, 1.0)?;
    n.named("count", count);
    let x = n.scope("conv1", |n| sage_layer(n, x, [from, to], count, n.size("hidden")))?;
    let x = n.relu("relu", x)?;
    let classes = n.size("classes");
    Ok(vec![n.scope("conv2", |n| sage_layer(n, x, [from, to], count, classes))?])
}

fn sage_layer(n: &mut Net, x: ValueId, edges: [ValueId; 2], count: ValueId, outputs: u64) -> Result<ValueId> {
    let sums = sums_of_neighbours(n, x, edges)?;
    let means = per_row(n, sums, count, BinaryFn::Div)?;
    n.named("means", means);
    let around = n.linear("lin_l", means, outputs)?;
    let own = n.linear_no_bias("lin_r", x, outputs)?;
    let sum = n.b.add(around, own)?;
    Ok(n.named("", sum))
}

/// Features and the two ends of the edges.
fn graph(n: &mut Net) -> Result<(ValueId, [ValueId; 2])> {
    let x = n.input("x", &[n.size("nodes"), n.size("features")]);
    let edges = n.input_ids("edge_index", &[2, n.size("edges")]);
    Ok((x, ends(n, edges)?))
}

/// The rows of `[2, E]`.
pub(crate) fn ends(n: &mut Net, edges: ValueId) -> Result<[ValueId; 2]> {
    let count = n.dim(edges, 1);
    let from = n.part(edges, 0, 0, 1)?;
    let to = n.part(edges, 0, 1, 2)?;
    Ok([n.reshape(from, &[count])?, n.reshape(to, &[count])?])
}

/// How many edges come to each node.
fn counts(n: &mut Net, to: ValueId, nodes: u64) -> Result<ValueId> {
    let edges = n.dim(to, 0);
    let ones = n.b.splat(&TensorType::new(n.dtype, [edges]), 1.0)?;
    sums_by_row(n, ones, to, nodes)
}

fn sums_of_neighbours(n: &mut Net, x: ValueId, [from, to]: [ValueId; 2]) -> Result<ValueId> {
    let messages = n.b.gather(x, from, 0)?;
    n.named("messages", messages);
    let sums = sums_by_row(n, messages, to, n.dim(x, 0))?;
    Ok(n.named("sums", sums))
}

/// Row `i` of the result is the sum of the rows whose number is `i`.
pub(crate) fn sums_by_row(n: &mut Net, x: ValueId, rows: ValueId, count: u64) -> Result<ValueId> {
    let mut dims = n.dims(x);
    dims[0] = count;
    let zeros = n.b.splat(&TensorType::new(n.dtype, dims), 0.0)?;
    n.b.scatter(zeros, rows, x, 0, Some(ReduceFn::Sum))
}

/// `[R, …]` with a number for each row.
pub(crate) fn per_row(n: &mut Net, x: ValueId, rows: ValueId, func: BinaryFn) -> Result<ValueId> {
    let dims = n.b.ty(x).dims.clone();
    let rows = n.b.broadcast(rows, dims, &[0])?;
    n.b.binary(func, x, rows)
}

//! Temporal graph network (Rossi et al. 2020) as in PyTorch Geometric's example: a batch of events updates the
//! memories of its nodes, attention over recent neighbours embeds them, and links are scored.

use super::graphs::{ends, sums_by_row};
use crate::net::{Init, Net};
use crate::recurrent::gru_cell;
use pando_base::{CompareFn, ReduceFn, Result};
use pando_graph::{Dot, TensorType, ValueId, known_dims};

const MEMORY: u64 = 100;
const TIME: u64 = 100;
const MESSAGE: u64 = 172;
const EMBEDDING: u64 = 100;
const HEADS: u64 = 2;

pub(crate) fn build(n: &mut Net) -> Result<Vec<ValueId>> {
    let (nodes, events, edges) = (n.size("nodes"), n.size("events"), n.size("edges"));
    let memory = n.input("memory", &[nodes, MEMORY]);
    let updated = n.input("last_update", &[nodes]);
    let source = n.input_ids("source", &[events]);
    let destination = n.input_ids("destination", &[events]);
    let time = n.input("time", &[events]);
    let message = n.input("message", &[events, MESSAGE]);
    let recent = n.input_ids("edge_index", &[2, edges]);
    let edge_time = n.input("edge_time", &[edges]);
    let edge_message = n.input("edge_message", &[edges, MESSAGE]);
    let events = Events { both: [source, destination], time, message };
    let (memory, updated) = n.scope("memory", |n| remember(n, memory, updated, &events))?;
    let recent = ends(n, recent)?;
    let features = n.scope("gnn", |n| edge_features(n, updated, recent[0], edge_time, edge_message))?;
    let embedded = n.scope("gnn.conv", |n| transformer_conv(n, memory, recent, features))?;
    let score = n.scope("link_pred", |n| score(n, embedded, events.both))?;
    Ok(vec![score, memory, updated])
}

struct Events {
    /// From where and to where.
    both: [ValueId; 2],
    time: ValueId,
    message: ValueId,
}

/// The memories after the events, and the times of the last change. A node in several events keeps the
/// message of the last one in which it is a destination, else a source.
fn remember(n: &mut Net, memory: ValueId, updated: ValueId, events: &Events) -> Result<(ValueId, ValueId)> {
    let nodes = n.dim(memory, 0);
    let [source, destination] = events.both;
    let sent = messages(n, memory, updated, events, [source, destination])?;
    let received = messages(n, memory, updated, events, [destination, source])?;
    let all = n.b.concat(&[sent, received], 0)?;
    let who = n.b.concat(&[source, destination], 0)?;
    let when = n.b.concat(&[events.time, events.time], 0)?;
    let width = n.dim(all, 1);
    let nothing = n.b.splat(&TensorType::new(n.dtype, [nodes, width]), 0.0)?;
    let last = n.b.scatter(nothing, who, all, 0, None)?;
    n.named("last_message", last);
    let next = gru(n, last, memory)?;
    let ones = n.b.splat_like(when, 1.0)?;
    let touched = sums_by_row(n, ones, who, nodes)?;
    let zero = n.b.splat_like(touched, 0.0)?;
    let touched = n.b.compare(CompareFn::Gt, touched, zero)?;
    let touched = n.b.broadcast(touched, n.b.ty(memory).dims.clone(), &[0])?;
    let memory = n.b.select(touched, next, memory)?;
    let updated = n.b.scatter(updated, who, when, 0, Some(ReduceFn::Max))?;
    Ok((n.named("new", memory), n.named("last_update", updated)))
}

/// What the first node of each event hears of it.
fn messages(
    n: &mut Net,
    memory: ValueId,
    updated: ValueId,
    events: &Events,
    [own, other]: [ValueId; 2],
) -> Result<ValueId> {
    let before = n.b.gather(updated, own, 0)?;
    let passed = n.b.sub(events.time, before)?;
    let passed = n.scope("time_enc", |n| encoded_time(n, passed))?;
    let (own, other) = (n.b.gather(memory, own, 0)?, n.b.gather(memory, other, 0)?);
    n.b.concat(&[own, other, events.message, passed], 1)
}

/// `cos(w · t + b)`
fn encoded_time(n: &mut Net, time: ValueId) -> Result<ValueId> {
    let column = n.unsqueeze(time, 1)?;
    let angle = n.linear("lin", column, TIME)?;
    n.b.cos(angle)
}

/// `nn.GRUCell`
fn gru(n: &mut Net, x: ValueId, memory: ValueId) -> Result<ValueId> {
    n.scope("gru", |n| {
        let inputs = n.dim(x, 1);
        let small = Init::Normal { mean: 0.0, std: 0.02 };
        let w_ih = n.weight("weight_ih", &[3 * MEMORY, inputs], Init::FanIn { gain: 1.0 })?;
        let w_hh = n.weight("weight_hh", &[3 * MEMORY, MEMORY], Init::FanIn { gain: 1.0 })?;
        let b_ih = n.weight("bias_ih", &[3 * MEMORY], small)?;
        let b_hh = n.weight("bias_hh", &[3 * MEMORY], small)?;
        let product = n.b.dot(x, w_ih, Dot { contract: vec![(1, 1)], ..Dot::default() })?;
        n.named("product", product);
        let product = n.plus(product, b_ih)?;
        let next = gru_cell(&mut n.b, product, memory, w_hh, b_hh)?;
        Ok(n.named("", next))
    })
}

/// How long ago a neighbour was met, and what was said.
fn edge_features(
    n: &mut Net,
    updated: ValueId,
    from: ValueId,
    edge_time: ValueId,
    edge_message: ValueId,
) -> Result<ValueId> {
    let now = n.b.gather(updated, from, 0)?;
    let ago = n.b.sub(now, edge_time)?;
    let ago = n.scope("time_enc", |n| encoded_time(n, ago))?;
    n.b.concat(&[ago, edge_message], 1)
}

/// `TransformerConv` with features of edges: each node attends to those that an edge comes from.
fn transformer_conv(n: &mut Net, x: ValueId, [from, to]: [ValueId; 2], edges: ValueId) -> Result<ValueId> {
    let (nodes, count, size) = (n.dim(x, 0), n.dim(edges, 0), EMBEDDING / HEADS);
    let q = n.linear("lin_query", x, EMBEDDING)?;
    let k = n.linear("lin_key", x, EMBEDDING)?;
    let v = n.linear("lin_value", x, EMBEDDING)?;
    let edge = n.linear_no_bias("lin_edge", edges, EMBEDDING)?;
    let q = n.b.gather(q, to, 0)?;
    let k = n.b.gather(k, from, 0)?;
    let k = n.b.add(k, edge)?;
    let product = n.b.mul(q, k)?;
    let product = n.reshape(product, &[count, HEADS, size])?;
    let scores = n.b.reduce(ReduceFn::Sum, product, &[2])?;
    let scores = n.scaled(scores, 1.0 / (size as f64).sqrt())?;
    n.named("scores", scores);
    let weights = softmax_by_row(n, scores, to, nodes)?;
    let v = n.b.gather(v, from, 0)?;
    let v = n.b.add(v, edge)?;
    let v = n.reshape(v, &[count, HEADS, size])?;
    let weights = n.b.broadcast(weights, known_dims(&[count, HEADS, size]), &[0, 1])?;
    let messages = n.b.mul(v, weights)?;
    let messages = n.reshape(messages, &[count, EMBEDDING])?;
    let sums = sums_by_row(n, messages, to, nodes)?;
    n.named("sums", sums);
    let own = n.linear("lin_skip", x, EMBEDDING)?;
    let sum = n.b.add(sums, own)?;
    Ok(n.named("", sum))
}

/// A softmax among the rows that have the same number.
fn softmax_by_row(n: &mut Net, scores: ValueId, rows: ValueId, count: u64) -> Result<ValueId> {
    let low = n.b.splat(&TensorType::new(n.dtype, [count, HEADS]), n.dtype.lowest())?;
    let most = n.b.scatter(low, rows, scores, 0, Some(ReduceFn::Max))?;
    let most = n.b.gather(most, rows, 0)?;
    let shifted = n.b.sub(scores, most)?;
    let powers = n.b.exp(shifted)?;
    let sums = sums_by_row(n, powers, rows, count)?;
    let sums = n.b.gather(sums, rows, 0)?;
    let weights = n.b.div(powers, sums)?;
    Ok(n.named("weights", weights))
}

/// How likely the ends of each event are linked, before the sigmoid.
fn score(n: &mut Net, embedded: ValueId, [source, destination]: [ValueId; 2]) -> Result<ValueId> {
    let from = n.b.gather(embedded, source, 0)?;
    let to = n.b.gather(embedded, destination, 0)?;
    let from = n.linear("lin_src", from, EMBEDDING)?;
    let to = n.linear("lin_dst", to, EMBEDDING)?;
    let sum = n.b.add(from, to)?;
    let hidden = n.relu("relu", sum)?;
    n.linear("lin_final", hidden, 1)
}

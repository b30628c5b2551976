//! LSTM, GRU and plain recurrent layers as composites: the products of the input for all steps at once, then a repeat
//! over the steps. Weights have their gates in a dimension of their own, so that whoever holds a unit holds all its
//! gates: a step's gates are functions of what lies in one place.

use super::Builder;
use crate::module::{FuncId, ValueId};
use crate::op::{Dot, Op, Slice};
use crate::types::{Dim, Dims, TensorType};
use pando_base::{BinaryFn, DType, Result};

/// What a step computes, with the gates in PyTorch's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// input, forget, cell, output
    Lstm,
    /// reset, update, new; the reset gate scales the new gate's recurrent product, bias included
    Gru,
    Tanh,
    Relu,
}

/// The operands of a layer. `G` is the number of gates, `H` of units.
#[derive(Clone, Debug)]
pub struct Layer {
    /// `[T, B, I]`
    pub x: ValueId,
    /// `[G·H, I]`
    pub w_input: ValueId,
    /// `[G·H, H]`
    pub w_state: ValueId,
    /// `[G·H]`
    pub b_input: ValueId,
    /// `[G·H]`
    pub b_state: ValueId,
    /// Before the first step, `[B, H]`: the hidden state, and an LSTM's memory.
    pub states: Vec<ValueId>,
    /// Where the operands have each gate of [`Cell`]'s order.
    pub order: &'static [u64],
}

impl Cell {
    pub fn gates(self) -> u64 {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }

    /// The order of [`Cell`] itself.
    pub fn order(self) -> &'static [u64] {
        &[0, 1, 2, 3][..self.gates() as usize]
    }

    /// The composite's name.
    pub fn name(self) -> &'static str {
        match self {
            Cell::Lstm => "lstm",
            Cell::Gru => "gru",
            Cell::Tanh => "rnn_tanh",
            Cell::Relu => "rnn_relu",
        }
    }
}

impl Builder {
    /// The composite `lstm`, `gru`, `rnn_tanh` or `rnn_relu`: the hidden states of all steps `[T, B, H]`, and the last
    /// states `[B, H]`.
    pub fn recurrent(&mut self, cell: Cell, layer: &Layer) -> Result<(ValueId, Vec<ValueId>)> {
        let mut args = vec![layer.x, layer.w_input, layer.w_state, layer.b_input, layer.b_state];
        args.extend(&layer.states);
        let key =
            if layer.order == cell.order() { String::new() } else { format!("order={:?}", layer.order) };
        let results = self.composite_of_several(cell.name(), &key, &args, |b, args| {
            let [x, w_input, w_state, b_input, b_state] = args[..5] else { unreachable!("five are given") };
            let states = args[5..].to_vec();
            run(b, cell, &Layer { x, w_input, w_state, b_input, b_state, states, order: layer.order })
        })?;
        Ok((results[0], results[1..].to_vec()))
    }
}

fn run(b: &mut Builder, cell: Cell, layer: &Layer) -> Result<Vec<ValueId>> {
    let gates = |b: &mut Builder, value: ValueId| {
        let mut dims: Dims = b.ty(layer.states[0]).dims[1..].into();
        dims.insert(0, cell.gates().into());
        dims.extend(b.ty(value).dims[1..].iter().cloned());
        b.reshape(value, dims)
    };
    let (w_input, w_state) = (gates(b, layer.w_input)?, gates(b, layer.w_state)?);
    let (b_input, b_state) = (gates(b, layer.b_input)?, gates(b, layer.b_state)?);
    // Only a GRU's recurrent bias is not simply added.
    let bias = if cell == Cell::Gru { b_input } else { b.add(b_input, b_state)? };
    let products = b.dot(layer.x, w_input, Dot { contract: vec![(2, 2)], ..Dot::default() })?;
    b.name(products, "product");
    let bias = b.broadcast_trailing(bias, b.ty(products).dims.clone())?;
    let products = b.add(products, bias)?;
    b.name(products, "inputs");
    let steps = b.ty(layer.x).dims[0].clone();
    let state = layer.states[0];
    let mut stacked = b.ty(state).clone();
    stacked.dims.insert(0, steps.clone());
    let stack = b.splat(&stacked, 0.0)?;
    let mut carried = vec![products, w_state];
    carried.extend((cell == Cell::Gru).then_some(b_state));
    let fixed = carried.len();
    carried.push(stack);
    carried.extend(&layer.states);
    let body = step(b, cell, layer.order, &carried, fixed)?;
    let count = steps.known().ok_or_else(|| crate::errors::unknown_dims(b.ty(layer.x)))?;
    let results = b.insert(Op::Repeat { count, body }, &carried)?;
    b.name(results[fixed], "states");
    Ok(results[fixed..].to_vec())
}

/// One step as the body of a repeat: carried are the `fixed` operands, the states so far, and the states.
fn step(b: &mut Builder, cell: Cell, order: &[u64], carried: &[ValueId], fixed: usize) -> Result<FuncId> {
    let types: Vec<TensorType> = carried.iter().map(|&value| b.ty(value).clone()).collect();
    b.begin(&b.unique_func_name(&format!("{}_step", cell.name())));
    let counter = b.param("step", TensorType::scalar(DType::I32));
    let params: Vec<ValueId> = types.iter().map(|ty| b.param("", ty.clone())).collect();
    let (mut results, states) = (params.clone(), &params[fixed + 1..]);
    advance(b, cell, order, counter, &params[..fixed], states)
        .and_then(|new| {
            let row = b.reshape(counter, [1u64])?;
            let mut dims = b.ty(new[0]).dims.clone();
            dims.insert(0, Dim::Known(1));
            let update = b.reshape(new[0], dims)?;
            results[fixed] = b.scatter(params[fixed], row, update, 0, None)?;
            results[fixed + 1..].copy_from_slice(&new);
            Ok(())
        })
        .inspect_err(|_| b.abandon())?;
    Ok(b.end(&results))
}

/// The next states.
fn advance(
    b: &mut Builder,
    cell: Cell,
    order: &[u64],
    counter: ValueId,
    fixed: &[ValueId],
    states: &[ValueId],
) -> Result<Vec<ValueId>> {
    let hidden = states[0];
    let product = b.dot(hidden, fixed[1], Dot { contract: vec![(1, 2)], ..Dot::default() })?;
    b.name(product, "step_product");
    let x = b.gather(fixed[0], counter, 0)?;
    match cell {
        Cell::Lstm => lstm(b, order, [x, product], hidden, states[1]),
        Cell::Gru => {
            let bias = b.broadcast_trailing(fixed[2], b.ty(product).dims.clone())?;
            let product = b.add(product, bias)?;
            gru(b, order, [x, product], hidden)
        }
        Cell::Tanh | Cell::Relu => {
            let (x, product) = (gate(b, x, 0, hidden)?, gate(b, product, 0, hidden)?);
            let sum = b.add(x, product)?;
            Ok(vec![if cell == Cell::Tanh { b.tanh(sum)? } else { b.relu(sum)? }])
        }
    }
}

/// Gate `which` of `[B, G, H]`.
fn gate(b: &mut Builder, gates: ValueId, which: u64, state: ValueId) -> Result<ValueId> {
    let mut end = b.ty(gates).dims.clone();
    end[1] = (which + 1).into();
    let part = b.slice(gates, Slice { begin: vec![0, which, 0], step: vec![1; 3], end })?;
    b.reshape(part, b.ty(state).dims.clone())
}

fn lstm(
    b: &mut Builder,
    order: &[u64],
    sums: [ValueId; 2],
    hidden: ValueId,
    memory: ValueId,
) -> Result<Vec<ValueId>> {
    let mut gates = Vec::new();
    for (which, &at) in order.iter().enumerate() {
        let (x, product) = (gate(b, sums[0], at, hidden)?, gate(b, sums[1], at, hidden)?);
        let sum = b.add(x, product)?;
        gates.push(if which == 2 { b.tanh(sum)? } else { b.sigmoid(sum)? });
    }
    let kept = b.mul(gates[1], memory)?;
    let new = b.mul(gates[0], gates[2])?;
    let memory = b.add(kept, new)?;
    let shown = b.tanh(memory)?;
    Ok(vec![b.mul(gates[3], shown)?, memory])
}

fn gru(b: &mut Builder, order: &[u64], sums: [ValueId; 2], hidden: ValueId) -> Result<Vec<ValueId>> {
    let mut gates = Vec::new();
    for &at in &order[..2] {
        let (x, product) = (gate(b, sums[0], at, hidden)?, gate(b, sums[1], at, hidden)?);
        let sum = b.add(x, product)?;
        gates.push(b.sigmoid(sum)?);
    }
    let (x, product) = (gate(b, sums[0], order[2], hidden)?, gate(b, sums[1], order[2], hidden)?);
    let reset = b.mul(gates[0], product)?;
    let sum = b.add(x, reset)?;
    let new = b.tanh(sum)?;
    // (1 - update) · new + update · hidden
    let one = b.splat_like(gates[1], 1.0)?;
    let rest = b.binary(BinaryFn::Sub, one, gates[1])?;
    let (new, kept) = (b.mul(rest, new)?, b.mul(gates[1], hidden)?);
    Ok(vec![b.add(new, kept)?])
}

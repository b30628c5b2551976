//! LSTM and GRU layers with PyTorch's weights, and a GRU's cell alone.

use crate::layers::part;
use crate::net::{Init, Net};
use pando_base::{BinaryFn, Result};
use pando_graph::{Builder, Cell, Dot, Layer, TensorType, ValueId};

/// `nn.LSTM` or `nn.GRU` with the batch first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recurrent {
    pub cell: Cell,
    pub hidden: u64,
    pub layers: u64,
    pub bidirectional: bool,
}

impl Net<'_> {
    /// The last layer's states of all steps, from zeros: `[B, T, I]` to `[B, T, hidden]`, or twice that.
    pub fn recurrent(&mut self, name: &str, x: ValueId, how: Recurrent) -> Result<ValueId> {
        self.scope(name, |n| {
            let mut x = x;
            for layer in 0..how.layers {
                let mut states = vec![n.direction(x, how, layer, false)?];
                if how.bidirectional {
                    states.push(n.direction(x, how, layer, true)?);
                }
                x = n.b.concat(&states, 2)?;
            }
            Ok(n.named("", x))
        })
    }

    fn direction(&mut self, x: ValueId, how: Recurrent, layer: u64, backwards: bool) -> Result<ValueId> {
        let Recurrent { cell, hidden, .. } = how;
        let (batch, inputs) = (self.dim(x, 0), self.dim(x, 2));
        let suffix = format!("l{layer}{}", if backwards { "_reverse" } else { "" });
        let x = if backwards { self.b.reverse(x, &[1])? } else { x };
        let x = self.b.transpose(x, &[1, 0, 2])?;
        let gates = cell.gates() * hidden;
        let w_input =
            self.weight(&format!("weight_ih_{suffix}"), &[gates, inputs], Init::FanIn { gain: 1.0 })?;
        let w_state =
            self.weight(&format!("weight_hh_{suffix}"), &[gates, hidden], Init::FanIn { gain: 1.0 })?;
        let small = Init::Normal { mean: 0.0, std: 0.02 };
        let b_input = self.weight(&format!("bias_ih_{suffix}"), &[gates], small)?;
        let b_state = self.weight(&format!("bias_hh_{suffix}"), &[gates], small)?;
        let state = self.b.splat(&TensorType::new(self.dtype, [batch, hidden]), 0.0)?;
        let states = vec![state; if cell == Cell::Lstm { 2 } else { 1 }];
        let layer = Layer { x, w_input, w_state, b_input, b_state, states, order: cell.order() };
        let (stack, _) = self.b.recurrent(cell, &layer)?;
        self.named(&suffix, stack);
        let states = self.b.transpose(stack, &[1, 0, 2])?;
        if backwards { self.b.reverse(states, &[1]) } else { Ok(states) }
    }
}

/// Gate `which` of `[B, gates·H]`.
fn gate(b: &mut Builder, x: ValueId, which: u64, hidden: ValueId) -> Result<ValueId> {
    let size = b.ty(hidden).dims[1].known().expect("built-in models have sizes only");
    part(b, x, 1, which * size, (which + 1) * size)
}

fn recurrent_product(b: &mut Builder, hidden: ValueId, weight: ValueId, bias: ValueId) -> Result<ValueId> {
    let product = b.dot(hidden, weight, Dot { contract: vec![(1, 1)], ..Dot::default() })?;
    b.name(product, "product");
    let bias = b.broadcast_trailing(bias, b.ty(product).dims.clone())?;
    b.add(product, bias)
}

/// The next hidden state; `x` are the input's products with its bias.
pub(crate) fn gru_cell(
    b: &mut Builder,
    x: ValueId,
    hidden: ValueId,
    weight: ValueId,
    bias: ValueId,
) -> Result<ValueId> {
    let product = recurrent_product(b, hidden, weight, bias)?;
    let mut gates = Vec::new();
    for which in 0..2 {
        let (x, h) = (gate(b, x, which, hidden)?, gate(b, product, which, hidden)?);
        let sum = b.add(x, h)?;
        gates.push(b.sigmoid(sum)?);
    }
    let (x, h) = (gate(b, x, 2, hidden)?, gate(b, product, 2, hidden)?);
    let reset = b.mul(gates[0], h)?;
    let sum = b.add(x, reset)?;
    let new = b.tanh(sum)?;
    // (1 - update) · new + update · hidden
    let one = b.splat_like(gates[1], 1.0)?;
    let rest = b.binary(BinaryFn::Sub, one, gates[1])?;
    let (new, kept) = (b.mul(rest, new)?, b.mul(gates[1], hidden)?);
    b.add(new, kept)
}

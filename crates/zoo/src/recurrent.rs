//! LSTM and GRU layers with PyTorch's weights: the input's products for all steps at once, then a repeat
//! over the steps. What a step needs is carried through the repeat, as the ONNX importer does it.

use crate::layers::part;
use crate::net::{Init, Net};
use pando_base::{BinaryFn, DType, Result};
use pando_graph::{Builder, Dot, FuncId, Op, TensorType, ValueId};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell {
    /// Gates in the order input, forget, cell, output.
    Lstm,
    /// Gates in the order reset, update, new.
    Gru,
}

impl Cell {
    fn gates(self) -> u64 {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Cell::Lstm => "lstm_step",
            Cell::Gru => "gru_step",
        }
    }
}

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
        let (batch, steps, inputs) = (self.dim(x, 0), self.dim(x, 1), self.dim(x, 2));
        let suffix = format!("l{layer}{}", if backwards { "_reverse" } else { "" });
        let x = if backwards { self.b.reverse(x, &[1])? } else { x };
        let gates = cell.gates() * hidden;
        let w_ih =
            self.weight(&format!("weight_ih_{suffix}"), &[gates, inputs], Init::FanIn { gain: 1.0 })?;
        let w_hh =
            self.weight(&format!("weight_hh_{suffix}"), &[gates, hidden], Init::FanIn { gain: 1.0 })?;
        let small = Init::Normal { mean: 0.0, std: 0.02 };
        let b_ih = self.weight(&format!("bias_ih_{suffix}"), &[gates], small)?;
        let b_hh = self.weight(&format!("bias_hh_{suffix}"), &[gates], small)?;
        let products = self.b.dot(x, w_ih, Dot { contract: vec![(2, 1)], ..Dot::default() })?;
        self.named(&format!("{suffix}.product"), products);
        let products = self.plus(products, b_ih)?;
        let products = self.b.transpose(products, &[1, 0, 2])?;
        self.named(&format!("{suffix}.inputs"), products);
        let state = self.b.splat(&TensorType::new(self.dtype, [batch, hidden]), 0.0)?;
        let stack = self.b.splat(&TensorType::new(self.dtype, [steps, batch, hidden]), 0.0)?;
        let mut carried = vec![products, w_hh, b_hh, stack, state];
        if cell == Cell::Lstm {
            carried.push(state);
        }
        let body = step(&mut self.b, cell, &carried)?;
        let results = self.b.insert(Op::Repeat { count: steps, body }, &carried)?;
        let stack = results[STACK];
        self.named(&format!("{suffix}.states"), stack);
        let states = self.b.transpose(stack, &[1, 0, 2])?;
        if backwards { self.b.reverse(states, &[1]) } else { Ok(states) }
    }
}

/// Positions among the carried values; the state follows.
const STACK: usize = 3;

/// One step as the body of a repeat: carried are the inputs' products `[T, B, gates]`, the recurrent weight
/// and bias, the stack of states `[T, B, H]`, and the state.
fn step(b: &mut Builder, cell: Cell, carried: &[ValueId]) -> Result<FuncId> {
    let types: Vec<TensorType> = carried.iter().map(|&value| b.ty(value).clone()).collect();
    b.begin(&b.unique_func_name(cell.name()));
    let counter = b.param("step", TensorType::scalar(DType::I32));
    let params: Vec<ValueId> = types.iter().map(|ty| b.param("", ty.clone())).collect();
    let mut results = params.clone();
    advance(b, cell, counter, &params, &mut results).inspect_err(|_| b.abandon())?;
    Ok(b.end(&results))
}

fn advance(
    b: &mut Builder,
    cell: Cell,
    counter: ValueId,
    params: &[ValueId],
    results: &mut [ValueId],
) -> Result<()> {
    let [products, w_hh, b_hh, stack, hidden] = params[..5] else { unreachable!("five at least") };
    let x = b.gather(products, counter, 0)?;
    let new = match cell {
        Cell::Lstm => {
            let (new, memory) = lstm_cell(b, x, [hidden, params[5]], w_hh, b_hh)?;
            results[5] = memory;
            new
        }
        Cell::Gru => gru_cell(b, x, hidden, w_hh, b_hh)?,
    };
    results[4] = new;
    let row = b.reshape(counter, [1u64])?;
    let mut dims = b.ty(new).dims.clone();
    dims.insert(0, 1.into());
    let update = b.reshape(new, dims)?;
    results[STACK] = b.scatter(stack, row, update, 0, None)?;
    Ok(())
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

/// The next hidden state and memory; `x` are the input's products with its bias.
fn lstm_cell(
    b: &mut Builder,
    x: ValueId,
    [hidden, memory]: [ValueId; 2],
    weight: ValueId,
    bias: ValueId,
) -> Result<(ValueId, ValueId)> {
    let product = recurrent_product(b, hidden, weight, bias)?;
    let sum = b.add(x, product)?;
    let mut gates = (0..4).map(|which| gate(b, sum, which, hidden)).collect::<Result<Vec<_>>>()?;
    for (which, gate) in gates.iter_mut().enumerate() {
        *gate = if which == 2 { b.tanh(*gate)? } else { b.sigmoid(*gate)? };
    }
    let kept = b.mul(gates[1], memory)?;
    let new = b.mul(gates[0], gates[2])?;
    let memory = b.add(kept, new)?;
    let shown = b.tanh(memory)?;
    Ok((b.mul(gates[3], shown)?, memory))
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

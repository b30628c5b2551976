//! Recurrent operators: the graph's composites where they say the same; otherwise the input's products for all steps
//! at once, then a Repeat over the steps.

use super::activation::by_name;
use super::layout::reverse_rows;
use crate::ctx::Ctx;
use crate::errors;
use crate::import::subgraph::outline;
use crate::import::{TensorValue, Value};
use pando_base::{BinaryFn, CompareFn, DType, Result};
use pando_graph::{Cell, Dim, Dot, Layer, Op, TensorType, ValueId};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rnn,
    Gru,
    Lstm,
}

impl Kind {
    fn gates(self) -> u64 {
        match self {
            Kind::Rnn => 1,
            Kind::Gru => 3,
            Kind::Lstm => 4,
        }
    }

    fn activations(self) -> &'static [&'static str] {
        match self {
            Kind::Rnn => &["Tanh"],
            Kind::Gru => &["Sigmoid", "Tanh"],
            Kind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

pub(super) fn rnn(c: &mut Ctx) -> Result<Vec<Value>> {
    recurrent(c, Kind::Rnn)
}

pub(super) fn gru(c: &mut Ctx) -> Result<Vec<Value>> {
    recurrent(c, Kind::Gru)
}

pub(super) fn lstm(c: &mut Ctx) -> Result<Vec<Value>> {
    recurrent(c, Kind::Lstm)
}

/// One direction's operands; `x` is `[T, B, I]`.
struct Direction {
    kind: Kind,
    index: u64,
    hidden: u64,
    x: ValueId,
    lengths: Option<ValueId>,
    backwards: bool,
}

fn recurrent(c: &mut Ctx, kind: Kind) -> Result<Vec<Value>> {
    let batch_first = c.flag("layout", false);
    let mut x = c.x(0)?;
    if c.rank(x) != 3 {
        return Err(errors::invalid("the operand needs rank 3"));
    }
    if batch_first {
        x = c.b.transpose(x, &[1, 0, 2])?;
    }
    for position in 0..c.inputs.len() {
        if let Some(operand) = c.opt(position)? {
            c.need_rank(operand, 1..=3)?;
        }
    }
    let hidden = c.size(c.x(2)?, 2)?;
    let direction = c.string("direction", "forward");
    let count = if direction == "bidirectional" { 2 } else { 1 };
    let lengths = c.opt(4)?;
    let (mut sequences, mut hiddens, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..count {
        let backwards = direction == "reverse" || index == 1;
        let one = Direction { kind, index, hidden, x, lengths, backwards };
        let (sequence, state) = one.run(c, batch_first)?;
        sequences.push(c.unsqueeze(sequence, &[1])?);
        hiddens.push(c.unsqueeze(state[0], &[0])?);
        if let Some(&cell) = state.get(1) {
            cells.push(c.unsqueeze(cell, &[0])?);
        }
    }
    // Y is [T, D, B, H], the last states [D, B, H]; with the batch first [B, T, D, H] and [B, D, H].
    let mut results = vec![c.b.concat(&sequences, 1)?, c.b.concat(&hiddens, 0)?];
    if !cells.is_empty() {
        results.push(c.b.concat(&cells, 0)?);
    }
    if batch_first {
        results[0] = c.b.transpose(results[0], &[2, 0, 1, 3])?;
        for state in &mut results[1..] {
            *state = c.b.transpose(*state, &[1, 0, 2])?;
        }
    }
    Ok(results.into_iter().map(|id| Value::tensor(c.b, id)).collect())
}

/// What a step needs besides its state.
struct Step<'a> {
    direction: &'a Direction,
    activations: Vec<(String, Option<f64>, Option<f64>)>,
    clip: Option<f64>,
    input_forget: bool,
    linear_before_reset: bool,
    has_lengths: bool,
}

impl Direction {
    /// This direction's part of an operand with directions first.
    fn own(&self, c: &mut Ctx, position: usize) -> Result<Option<ValueId>> {
        match c.opt(position)? {
            Some(value) => c.pick(value, 0, self.index).map(Some),
            None => Ok(None),
        }
    }

    fn initial(&self, c: &mut Ctx, position: usize, batch_first: bool) -> Result<ValueId> {
        let batch = c.dims(self.x)[1].clone();
        match c.opt(position)? {
            Some(value) => c.pick(value, usize::from(batch_first), self.index),
            None => {
                let ty = TensorType::new(c.dtype(self.x), [batch, self.hidden.into()]);
                c.b.splat(&ty, 0.0)
            }
        }
    }

    /// The hidden states of all steps, and the last states.
    fn run(&self, c: &mut Ctx, batch_first: bool) -> Result<(ValueId, Vec<ValueId>)> {
        let steps = c.size(self.x, 0)?;
        let missing = || errors::missing_input(1);
        let w = self.own(c, 1)?.ok_or_else(missing)?;
        let r = self.own(c, 2)?.ok_or_else(missing)?;
        let gates = self.kind.gates() * self.hidden;
        let bias = match self.own(c, 3)? {
            Some(bias) => bias,
            None => c.b.splat(&TensorType::new(c.dtype(self.x), [2 * gates]), 0.0)?,
        };
        let (w_bias, r_bias) = (c.part(bias, 0, 0, gates)?, c.part(bias, 0, gates, 2 * gates)?);
        let mut x = self.x;
        if self.backwards {
            x = self.turned(c, x)?;
        }
        if let Some((cell, order)) = self.standard(c)? {
            let mut states = vec![self.initial(c, 5, batch_first)?];
            if self.kind == Kind::Lstm {
                states.push(self.initial(c, 6, batch_first)?);
            }
            let (b_input, b_state) = (w_bias, r_bias);
            let layer = Layer { x, w_input: w, w_state: r, b_input, b_state, states, order };
            let (mut sequence, last) = c.b.recurrent(cell, &layer)?;
            if self.backwards {
                sequence = self.turned(c, sequence)?;
            }
            return Ok((sequence, last));
        }
        let products = c.b.dot(x, w, Dot { contract: vec![(2, 1)], ..Dot::default() })?;
        let products = c.plus(products, w_bias)?;
        let mut fixed = vec![products, r, r_bias];
        if let Some(lengths) = self.lengths {
            fixed.push(c.b.convert(lengths, DType::I32)?);
        }
        if self.kind == Kind::Lstm {
            let peepholes = match self.own(c, 7)? {
                Some(peepholes) => peepholes,
                None => c.b.splat(&TensorType::new(c.dtype(self.x), [3 * self.hidden]), 0.0)?,
            };
            fixed.push(peepholes);
        }
        let mut state = vec![self.initial(c, 5, batch_first)?];
        if self.kind == Kind::Lstm {
            state.push(self.initial(c, 6, batch_first)?);
        }
        let mut dims = c.dims(state[0]);
        dims.insert(0, Dim::Known(steps));
        let stack = c.b.splat(&TensorType { dtype: c.dtype(self.x), dims }, 0.0)?;
        let operands: Vec<ValueId> = fixed.iter().chain(&state).copied().chain([stack]).collect();
        let body = self.step(c)?.body(c, &operands, fixed.len())?;
        let results = c.b.insert(Op::Repeat { count: steps, body }, &operands)?;
        let mut sequence = results[operands.len() - 1];
        if self.backwards {
            sequence = self.turned(c, sequence)?;
        }
        Ok((sequence, results[fixed.len()..operands.len() - 1].to_vec()))
    }

    /// The composite that this is, and where its operands have the gates; nothing if it is none.
    fn standard(&self, c: &mut Ctx) -> Result<Option<(Cell, &'static [u64])>> {
        let step = self.step(c)?;
        let names: Vec<&str> = step.activations.iter().map(|(name, ..)| name.as_str()).collect();
        let plain = step.clip.is_none()
            && !step.input_forget
            && !step.has_lengths
            && step.activations.iter().all(|(_, alpha, beta)| alpha.is_none() && beta.is_none())
            && c.opt(7)?.is_none();
        let usual = names == self.kind.activations();
        Ok(match self.kind {
            _ if !plain => None,
            Kind::Rnn if names == ["Relu"] => Some((Cell::Relu, Cell::Relu.order())),
            Kind::Rnn if usual => Some((Cell::Tanh, Cell::Tanh.order())),
            // update, reset, hidden
            Kind::Gru if usual && step.linear_before_reset => Some((Cell::Gru, &[1, 0, 2])),
            // input, output, forget, cell
            Kind::Lstm if usual => Some((Cell::Lstm, &[0, 2, 3, 1])),
            _ => None,
        })
    }

    /// Time reversed, within each row's length.
    fn turned(&self, c: &mut Ctx, x: ValueId) -> Result<ValueId> {
        match self.lengths {
            Some(lengths) => reverse_rows(c, x, lengths, 1, 0),
            None => c.b.reverse(x, &[0]),
        }
    }

    fn step(&self, c: &Ctx) -> Result<Step<'_>> {
        let defaults = self.kind.activations();
        let names = c.strings("activations").unwrap_or_default();
        let (alphas, betas) = (c.floats("activation_alpha"), c.floats("activation_beta"));
        let at =
            |values: &Option<Vec<f64>>, i: usize| values.as_ref().and_then(|values| values.get(i)).copied();
        let activations = (0..defaults.len()).map(|i| {
            let place = self.index as usize * defaults.len() + i;
            let name = names.get(place).cloned().unwrap_or_else(|| defaults[i].into());
            (name, at(&alphas, place), at(&betas, place))
        });
        Ok(Step {
            direction: self,
            activations: activations.collect(),
            clip: c.float_opt("clip"),
            input_forget: c.flag("input_forget", false),
            linear_before_reset: c.flag("linear_before_reset", false),
            has_lengths: self.lengths.is_some(),
        })
    }
}

impl Step<'_> {
    fn body(&self, c: &mut Ctx, operands: &[ValueId], fixed: usize) -> Result<pando_graph::FuncId> {
        let mut types = vec![TensorType::scalar(DType::I32)];
        types.extend(operands.iter().map(|&id| c.b.ty(id).clone()));
        let (scope, node, version) = (c.scope, c.node, c.version);
        let built = outline(c.b, "recurrent_step", &types, |b, params| {
            let mut c = Ctx { b, scope, node, inputs: vec![], version };
            let (counter, params) = (params[0], &params[1..]);
            let (fixed, rest) = params.split_at(fixed);
            let (old, stack) = rest.split_at(rest.len() - 1);
            let (state, output) = self.once(&mut c, counter, fixed, old)?;
            let row = c.b.reshape(counter, [1u64])?;
            let update = c.unsqueeze(output, &[0])?;
            let stack = c.b.scatter(stack[0], row, update, 0, None)?;
            let results = fixed.iter().copied().chain(state).chain([stack]);
            Ok(results.map(|id| TensorValue::new(id, crate::elem::Elem::FLOAT)).collect())
        })?;
        Ok(built.func)
    }

    /// The next state and the step's output. Rows beyond their length keep their state and give zeros.
    fn once(
        &self,
        c: &mut Ctx,
        counter: ValueId,
        fixed: &[ValueId],
        old: &[ValueId],
    ) -> Result<(Vec<ValueId>, ValueId)> {
        let x = c.b.gather(fixed[0], counter, 0)?;
        let mut state = match self.direction.kind {
            Kind::Rnn => self.rnn(c, x, fixed, old)?,
            Kind::Gru => self.gru(c, x, fixed, old)?,
            Kind::Lstm => self.lstm(c, x, fixed, old)?,
        };
        if !self.has_lengths {
            let output = state[0];
            return Ok((state, output));
        }
        let lengths = fixed[3];
        let inside = c.cmp(CompareFn::Gt, lengths, counter)?;
        let column = c.unsqueeze(inside, &[1])?;
        let zero = c.b.splat_like(state[0], 0.0)?;
        let output = c.choose(column, state[0], zero)?;
        for (new, &old) in state.iter_mut().zip(old) {
            *new = c.choose(column, *new, old)?;
        }
        Ok((state, output))
    }

    fn activate(&self, c: &mut Ctx, which: usize, x: ValueId) -> Result<ValueId> {
        let x = match self.clip {
            Some(limit) => {
                let above = c.max_n(x, -limit)?;
                c.min_n(above, limit)?
            }
            None => x,
        };
        let (name, alpha, beta) = &self.activations[which];
        by_name(c, name, *alpha, *beta, x)
    }

    fn recurrent(&self, c: &mut Ctx, h: ValueId, r: ValueId) -> Result<ValueId> {
        c.b.dot(h, r, Dot { contract: vec![(1, 1)], ..Dot::default() })
    }

    /// Gate `which` of `[B, gates·H]` or `[gates·H, …]`.
    fn gate(&self, c: &mut Ctx, x: ValueId, axis: usize, which: u64) -> Result<ValueId> {
        let hidden = self.direction.hidden;
        c.part(x, axis, which * hidden, (which + 1) * hidden)
    }

    fn rnn(&self, c: &mut Ctx, x: ValueId, fixed: &[ValueId], old: &[ValueId]) -> Result<Vec<ValueId>> {
        let product = self.recurrent(c, old[0], fixed[1])?;
        let sum = c.b.add(x, product)?;
        let sum = c.plus(sum, fixed[2])?;
        Ok(vec![self.activate(c, 0, sum)?])
    }

    /// Gates in the order update, reset, hidden.
    fn gru(&self, c: &mut Ctx, x: ValueId, fixed: &[ValueId], old: &[ValueId]) -> Result<Vec<ValueId>> {
        let (r, bias, h) = (fixed[1], fixed[2], old[0]);
        let mut gates = Vec::new();
        for which in 0..2 {
            let (x, r) = (self.gate(c, x, 1, which)?, self.gate(c, r, 0, which)?);
            let bias = self.gate(c, bias, 0, which)?;
            let product = self.recurrent(c, h, r)?;
            let sum = c.b.add(x, product)?;
            let sum = c.plus(sum, bias)?;
            gates.push(self.activate(c, 0, sum)?);
        }
        let (x, r, bias) = (self.gate(c, x, 1, 2)?, self.gate(c, r, 0, 2)?, self.gate(c, bias, 0, 2)?);
        let inner = if self.linear_before_reset {
            let product = self.recurrent(c, h, r)?;
            let raised = c.plus(product, bias)?;
            c.b.mul(gates[1], raised)?
        } else {
            let reset = c.b.mul(gates[1], h)?;
            let product = self.recurrent(c, reset, r)?;
            c.plus(product, bias)?
        };
        let sum = c.b.add(x, inner)?;
        let new = self.activate(c, 1, sum)?;
        let rest = c.n_minus(1.0, gates[0])?;
        let (new, kept) = (c.b.mul(rest, new)?, c.b.mul(gates[0], h)?);
        Ok(vec![c.b.add(new, kept)?])
    }

    /// Gates in the order input, output, forget, cell; peepholes input, output, forget.
    fn lstm(&self, c: &mut Ctx, x: ValueId, fixed: &[ValueId], old: &[ValueId]) -> Result<Vec<ValueId>> {
        let (h, cell) = (old[0], old[1]);
        let peepholes = fixed[fixed.len() - 1];
        let product = self.recurrent(c, h, fixed[1])?;
        let sum = c.b.add(x, product)?;
        let sum = c.plus(sum, fixed[2])?;
        let peep = |c: &mut Ctx, which: u64, gate: ValueId, cell: ValueId| -> Result<ValueId> {
            let weights = self.gate(c, peepholes, 0, which)?;
            let more = c.times(cell, weights)?;
            c.bin(BinaryFn::Add, gate, more)
        };
        let input = self.gate(c, sum, 1, 0)?;
        let input = peep(c, 0, input, cell)?;
        let input = self.activate(c, 0, input)?;
        let forget = if self.input_forget {
            c.n_minus(1.0, input)?
        } else {
            let forget = self.gate(c, sum, 1, 2)?;
            let forget = peep(c, 2, forget, cell)?;
            self.activate(c, 0, forget)?
        };
        let candidate = self.gate(c, sum, 1, 3)?;
        let candidate = self.activate(c, 1, candidate)?;
        let (kept, new) = (c.b.mul(forget, cell)?, c.b.mul(input, candidate)?);
        let cell = c.b.add(kept, new)?;
        let output = self.gate(c, sum, 1, 1)?;
        let output = peep(c, 1, output, cell)?;
        let output = self.activate(c, 0, output)?;
        let shown = self.activate(c, 2, cell)?;
        Ok(vec![c.b.mul(output, shown)?, cell])
    }
}

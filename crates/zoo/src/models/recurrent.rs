//! Stacks of LSTM and GRU layers.

use crate::net::Net;
use crate::recurrent::Recurrent;
use pando_base::Result;
use pando_graph::{Cell, ValueId};

/// `nn.LSTM` or `nn.GRU` under the name `rnn`; as many inputs as hidden units.
pub(crate) fn build(n: &mut Net, cell: Cell) -> Result<Vec<ValueId>> {
    let hidden = n.size_within("hidden", 1, 1 << 14)?;
    let layers = n.size_within("layers", 1, 1000)?;
    let x = n.input("x", &[n.size("batch"), n.size("sequence"), hidden]);
    Ok(vec![n.recurrent("rnn", x, Recurrent { cell, hidden, layers, bidirectional: false })?])
}

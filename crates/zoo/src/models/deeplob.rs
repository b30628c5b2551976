//! DeepLOB (Zhang et al. 2019): convolutions over the levels of limit order books, an inception module, an LSTM,
//! and where the price goes next.

use crate::layers::Convolution;
use crate::net::Net;
use crate::recurrent::Recurrent;
use pando_base::{ReduceFn, Result};
use pando_graph::{Cell, ReduceWindow, ValueId};

/// Ten levels of price and volume, of bids and of asks.
const FEATURES: u64 = 40;
const CHANNELS: u64 = 32;
const INCEPTION: u64 = 64;
const HIDDEN: u64 = 64;
const CLASSES: u64 = 3;
const SLOPE: f64 = 0.01;

pub(crate) fn build(n: &mut Net) -> Result<Vec<ValueId>> {
    let (batch, sequence) = (n.size("batch"), n.size("sequence"));
    let mut x = n.input("book", &[batch, 1, sequence, FEATURES]);
    // Price with volume, bid with ask, all ten levels.
    for (index, (width, stride)) in [(2, 2), (2, 2), (10, 1)].into_iter().enumerate() {
        x = n.scope(&format!("block{}", index + 1), |n| levels(n, x, width, stride))?;
    }
    let x = n.scope("inception", |n| inception(n, x))?;
    let x = n.reshape(x, &[batch, 3 * INCEPTION, sequence])?;
    let x = n.b.transpose(x, &[0, 2, 1])?;
    let how = Recurrent { cell: Cell::Lstm, hidden: HIDDEN, layers: 1, bidirectional: false };
    let x = n.recurrent("lstm", x, how)?;
    let last = n.part(x, 1, sequence - 1, sequence)?;
    let last = n.reshape(last, &[batch, HIDDEN])?;
    let logits = n.linear("fc", last, CLASSES)?;
    let result = n.b.softmax(logits, 1)?;
    Ok(vec![n.named("probabilities", result)])
}

/// Joins neighbouring levels, then looks over time twice.
fn levels(n: &mut Net, x: ValueId, width: u64, stride: u64) -> Result<ValueId> {
    let mut join = Convolution::new(CHANNELS, &[1, width]).padding(&[(0, 0); 2]).bias();
    join.strides = vec![1, stride];
    let x = conv(n, "0", x, &join)?;
    let x = conv(n, "1", x, &over_time(CHANNELS, 4))?;
    conv(n, "2", x, &over_time(CHANNELS, 4))
}

fn inception(n: &mut Net, x: ValueId) -> Result<ValueId> {
    let point = over_time(INCEPTION, 1);
    let a = conv(n, "a.0", x, &point)?;
    let a = conv(n, "a.1", a, &over_time(INCEPTION, 3))?;
    let b = conv(n, "b.0", x, &point)?;
    let b = conv(n, "b.1", b, &over_time(INCEPTION, 5))?;
    let pooled = n.b.reduce_window(
        x,
        ReduceWindow {
            func: ReduceFn::Max,
            window: vec![1, 1, 3, 1],
            strides: vec![1; 4],
            padding: vec![(0, 0), (0, 0), (1, 1), (0, 0)],
            dilation: vec![1; 4],
        },
    )?;
    let pooled = n.named("pool", pooled);
    let c = conv(n, "c", pooled, &point)?;
    let joined = n.b.concat(&[a, b, c], 1)?;
    Ok(n.named("", joined))
}

/// A convolution over `size` times that keeps their number.
fn over_time(outputs: u64, size: u64) -> Convolution {
    let before = (size as i64 - 1) / 2;
    let padding = [(before, size as i64 - 1 - before), (0, 0)];
    Convolution::new(outputs, &[size, 1]).padding(&padding).bias()
}

fn conv(n: &mut Net, name: &str, x: ValueId, how: &Convolution) -> Result<ValueId> {
    let x = n.conv(name, x, how)?;
    let x = n.leaky_relu(x, SLOPE)?;
    Ok(n.named(&format!("{name}.leaky_relu"), x))
}

//! Composites of the graph's builder, and losses, by name, for Python.

use crate::{Error, to_python};
use pando_base::Result;
use pando_graph::{Builder, Cell, Layer, ValueId};
use pando_transform::loss::{self, Reduction};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The attributes of one composite as Python gives them: numbers by name.
pub struct Attributes<'a> {
    composite: &'a str,
    values: Vec<(String, f64)>,
}

impl<'a> Attributes<'a> {
    pub fn new(composite: &'a str, given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let values = match given {
            Some(given) => {
                given.iter().map(|(k, v)| Ok((k.extract()?, v.extract()?))).collect::<PyResult<_>>()?
            }
            None => vec![],
        };
        Ok(Attributes { composite, values })
    }

    fn number(&self, name: &str) -> PyResult<f64> {
        let found = self.values.iter().find(|(known, _)| known == name);
        let missing = || Error::new_err(format!("the composite {} needs {name}=number", self.composite));
        found.map(|(_, value)| *value).ok_or_else(missing)
    }

    fn axis(&self) -> PyResult<usize> {
        Ok(self.number("axis")? as usize)
    }
}

/// Calls a composite of the builder.
pub fn insert(
    b: &mut Builder,
    name: &str,
    args: &[ValueId],
    attributes: &Attributes,
) -> PyResult<Vec<ValueId>> {
    let one = |result: Result<ValueId>| result.map(|value| vec![value]).map_err(to_python);
    match (name, args) {
        ("relu", &[x]) => one(b.relu(x)),
        ("sigmoid", &[x]) => one(b.sigmoid(x)),
        ("silu", &[x]) => one(b.silu(x)),
        ("gelu", &[x]) => one(b.gelu(x)),
        ("gelu_tanh", &[x]) => one(b.gelu_tanh(x)),
        ("softmax", &[x]) => one(b.softmax(x, attributes.axis()?)),
        ("log_softmax", &[x]) => one(b.log_softmax(x, attributes.axis()?)),
        ("layer_norm", &[x, scale, bias]) => one(b.layer_norm(x, scale, bias, attributes.number("epsilon")?)),
        ("detach", &[x]) => one(b.detach(x)),
        ("batch_norm_training", &[x, scale, bias]) => {
            let results = b.batch_norm_training(x, scale, bias, attributes.number("epsilon")?);
            results.map(|results| results.to_vec()).map_err(to_python)
        }
        (name, args) if cell(name).is_some_and(|cell| args.len() >= 6 + usize::from(cell == Cell::Lstm)) => {
            let cell = cell(name).expect("just found");
            recurrent(b, cell, args).map_err(to_python)
        }
        (name, _) if loss::LOSSES.contains(&name) => one(losses(b, name, args, attributes)),
        ("rms_norm", &[x, scale]) => one(b.rms_norm(x, scale, attributes.number("epsilon")?)),
        _ => Err(Error::new_err(format!("there is no composite {name} of {} operands", args.len()))),
    }
}

fn cell(name: &str) -> Option<Cell> {
    [Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu].into_iter().find(|cell| cell.name() == name)
}

/// The states of all steps, and the last ones; gates in PyTorch's order.
fn recurrent(b: &mut Builder, cell: Cell, args: &[ValueId]) -> Result<Vec<ValueId>> {
    let [x, w_input, w_state, b_input, b_state, ref states @ ..] = *args else {
        return Err(pando_base::Error::new(
            "a recurrent layer has an input, two weights, two biases and states",
        ));
    };
    let states = states.to_vec();
    let layer = Layer { x, w_input, w_state, b_input, b_state, states, order: cell.order() };
    let (stack, last) = b.recurrent(cell, &layer)?;
    Ok([vec![stack], last].concat())
}

/// The losses of the samples, not reduced.
fn losses(b: &mut Builder, name: &str, args: &[ValueId], attributes: &Attributes) -> Result<ValueId> {
    let operands: Vec<Option<ValueId>> = args.iter().copied().map(Some).collect();
    let options: Vec<(&str, f64)> =
        attributes.values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    loss::named(b, name, &operands, &options, Reduction::None)
}

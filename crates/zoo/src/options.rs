//! What a caller chooses: sizes, the number format, where weights come from. Also as text:
//! `resnet50?batch=16&image=224&dtype=f16&seed=7`.

use crate::catalog::Entry;
use crate::errors;
use pando_base::{DType, Result, Tensor};
use std::collections::BTreeMap;

/// Larger sizes are refused: products of two of them stay far from overflowing.
const LARGEST_SIZE: u64 = 1 << 24;

#[derive(Clone, Debug)]
pub struct Options {
    /// By name, where the model's defaults do not suit; [`crate::describe`] lists them.
    pub sizes: Vec<(String, u64)>,
    /// Of weights and activations: f32, f16 or bf16.
    pub dtype: DType,
    pub weights: Weights,
}

#[derive(Clone, Debug)]
pub enum Weights {
    /// Rules that draw each weight from this seed and its name.
    Seeded(u64),
    /// By the names of the definition's state_dict, converted to the model's number format. Names that the
    /// model does not have are ignored: state_dicts also hold counters.
    Given(BTreeMap<String, Tensor>),
}

impl Default for Weights {
    fn default() -> Self {
        Weights::Seeded(0)
    }
}

impl Default for Options {
    fn default() -> Self {
        Options { sizes: Vec::new(), dtype: DType::F32, weights: Weights::default() }
    }
}

impl Options {
    pub fn with_size(mut self, name: &str, size: u64) -> Self {
        self.sizes.push((name.to_string(), size));
        self
    }

    /// The entry's sizes with those chosen in place of the defaults.
    pub(crate) fn sizes_for(&self, entry: &Entry) -> Result<Vec<(&'static str, u64)>> {
        if !matches!(self.dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(errors::wrong_type(self.dtype));
        }
        let mut sizes = entry.sizes.to_vec();
        for (name, value) in &self.sizes {
            let slot = sizes.iter_mut().find(|(known, _)| known == name);
            let slot = slot.ok_or_else(|| errors::unknown_size(name, entry.sizes))?;
            if !(1..=LARGEST_SIZE).contains(value) {
                return Err(errors::size_out_of_range(name, *value, 1, LARGEST_SIZE));
            }
            slot.1 = *value;
        }
        Ok(sizes)
    }
}

/// A name and its options from `NAME` or `NAME?OPTION=VALUE&…`. Whether the model has them is for
/// [`crate::build`] to say.
pub fn parse(text: &str) -> Result<(&str, Options)> {
    let (name, query) = text.split_once('?').unwrap_or((text, ""));
    let mut options = Options::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let wrong = || errors::bad_option(pair);
        let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
        match key {
            "dtype" => options.dtype = DType::from_name(value).ok_or_else(wrong)?,
            "seed" => options.weights = Weights::Seeded(value.parse().map_err(|_| wrong())?),
            _ => options = options.with_size(key, value.parse().map_err(|_| wrong())?),
        }
    }
    Ok((name, options))
}

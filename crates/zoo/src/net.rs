//! A model under construction: the builder, the path of the layer that is being written, and the weights.
//! Layers are in `layers.rs` and its neighbours.

use crate::errors;
use crate::options::{Options, Weights};
use pando_base::{DType, Result, Shape, Tensor};
use pando_graph::{Builder, ConstData, ConstId, Dim, Module, TensorType, ValueId};
use std::collections::BTreeMap;

/// A weight of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// As in the definition's state_dict.
    pub name: String,
    pub shape: Vec<u64>,
    /// Whether training changes it; running statistics are only measured.
    pub learned: bool,
}

/// How a seeded weight is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Init {
    Normal {
        mean: f64,
        std: f64,
    },
    /// Normal with a standard deviation of √(gain / fan in): a layer gives what it gets, in size.
    FanIn {
        gain: f64,
    },
    /// Around 1, never near 0: variances.
    Variance,
}

pub(crate) struct Net<'a> {
    pub b: Builder,
    /// Of weights and activations.
    pub dtype: DType,
    options: &'a Options,
    sizes: Vec<(&'static str, u64)>,
    path: Vec<String>,
    weights: Vec<Weight>,
    consts: BTreeMap<String, ConstId>,
    missing: Vec<String>,
}

impl<'a> Net<'a> {
    pub fn new(options: &'a Options, sizes: Vec<(&'static str, u64)>) -> Self {
        let mut b = Builder::new();
        b.begin("main");
        Net {
            b,
            dtype: options.dtype,
            options,
            sizes,
            path: Vec::new(),
            weights: Vec::new(),
            consts: BTreeMap::new(),
            missing: Vec::new(),
        }
    }

    pub fn finish(mut self, outputs: &[ValueId]) -> Result<(Module, Vec<Weight>)> {
        const SHOWN: usize = 5;
        if !self.missing.is_empty() {
            let others = self.missing.len().saturating_sub(SHOWN);
            self.missing.truncate(SHOWN);
            return Err(errors::missing_weights(&self.missing, others));
        }
        self.b.end(outputs);
        Ok((self.b.finish(), self.weights))
    }

    /// A size that the user may have chosen.
    pub fn size(&self, name: &str) -> u64 {
        let found = self.sizes.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("the catalog gives the size {name}")).1
    }

    /// As [`Net::size`], where the architecture has a limit.
    pub fn size_within(&self, name: &str, least: u64, most: u64) -> Result<u64> {
        let size = self.size(name);
        if (least..=most).contains(&size) {
            Ok(size)
        } else {
            Err(errors::size_out_of_range(name, size, least, most))
        }
    }

    /// As [`Net::size`], where the architecture divides it.
    pub fn multiple(&self, name: &str, of: u64) -> Result<u64> {
        let size = self.size(name);
        self.whole(name, size, of)?;
        Ok(size)
    }

    /// The whole number of times that `of` is in what `name` is.
    pub fn whole(&self, name: &str, size: u64, of: u64) -> Result<u64> {
        if size.is_multiple_of(of) { Ok(size / of) } else { Err(errors::not_divisible(name, size, of)) }
    }

    /// An input of the model's number format.
    pub fn input(&mut self, name: &str, shape: &[u64]) -> ValueId {
        let dtype = self.dtype;
        self.b.param(name, TensorType::new(dtype, shape.iter().copied()))
    }

    /// An input of numbers that name rows of tables.
    pub fn input_ids(&mut self, name: &str, shape: &[u64]) -> ValueId {
        self.b.param(name, TensorType::new(DType::I32, shape.iter().copied()))
    }

    /// Writes a layer under its name: weights and values inside carry it before theirs, and so do errors.
    pub fn scope<T>(&mut self, name: &str, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.path.push(name.to_string());
        let result = f(self).map_err(|error| error.context(name));
        self.path.pop();
        result
    }

    /// `name` with the path before it; the path alone for an empty name.
    fn full_name(&self, name: &str) -> String {
        let parts = self.path.iter().map(String::as_str).chain([name]);
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
    }

    /// Names a value, for people who read the model or its profile.
    pub fn named(&mut self, name: &str, value: ValueId) -> ValueId {
        let name = self.full_name(name);
        self.b.name(value, &name);
        value
    }

    pub fn weight(&mut self, name: &str, shape: &[u64], init: Init) -> Result<ValueId> {
        self.weight_of(Weight { name: self.full_name(name), shape: shape.to_vec(), learned: true }, init)
    }

    /// A weight that training does not change.
    pub fn statistic(&mut self, name: &str, shape: &[u64], init: Init) -> Result<ValueId> {
        self.weight_of(Weight { name: self.full_name(name), shape: shape.to_vec(), learned: false }, init)
    }

    fn weight_of(&mut self, weight: Weight, init: Init) -> Result<ValueId> {
        if let Some(&id) = self.consts.get(&weight.name) {
            return Ok(self.b.const_value(id));
        }
        let data = match &self.options.weights {
            Weights::Seeded(seed) => seeded(*seed, &weight, init),
            Weights::Given(given) => match given.get(&weight.name) {
                Some(tensor) => ConstData::Dense(fitted(tensor, &weight, self.dtype)?),
                None => {
                    self.missing.push(weight.name.clone());
                    ConstData::Splat(0.0)
                }
            },
        };
        let value = self.b.parameter(&weight.name, self.dtype, Shape::new(&weight.shape), data);
        let id = self.b.const_of(value).expect("a weight is a constant");
        self.consts.insert(weight.name.clone(), id);
        self.weights.push(weight);
        Ok(value)
    }

    pub fn dims(&self, x: ValueId) -> Vec<u64> {
        let known = |dim: &Dim| dim.known().expect("built-in models have sizes only");
        self.b.ty(x).dims.iter().map(known).collect()
    }

    pub fn dim(&self, x: ValueId, axis: usize) -> u64 {
        self.dims(x)[axis]
    }

    pub fn rank(&self, x: ValueId) -> usize {
        self.b.ty(x).rank()
    }
}

/// A given weight in the model's number format.
fn fitted(tensor: &Tensor, weight: &Weight, dtype: DType) -> Result<Tensor> {
    if **tensor.shape() != *weight.shape {
        return Err(errors::wrong_weight(&weight.name, tensor.shape(), &weight.shape));
    }
    if tensor.dtype() == dtype {
        return Ok(tensor.clone());
    }
    Ok(Tensor::from_f64(dtype, tensor.shape().clone(), &tensor.to_f64()))
}

fn seeded(seed: u64, weight: &Weight, init: Init) -> ConstData {
    let seed = mixed(seed, &weight.name);
    match init {
        Init::Normal { mean, std } => ConstData::Normal { seed, mean, std },
        Init::FanIn { gain } => {
            let fan_in: u64 = weight.shape.iter().skip(1).product();
            ConstData::Normal { seed, mean: 0.0, std: (gain / fan_in.max(1) as f64).sqrt() }
        }
        Init::Variance => ConstData::Uniform { seed, low: 0.8, high: 1.2 },
    }
}

/// FNV-1a of the name, started from the seed: the same on every platform, and a weight keeps its numbers
/// whatever else the model holds.
fn mixed(seed: u64, name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    seed.to_le_bytes().into_iter().chain(name.bytes()).fold(0xcbf2_9ce4_8422_2325, step)
}

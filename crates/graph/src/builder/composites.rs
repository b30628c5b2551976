//! Composites: functions with a known name and a body of primitives, one per set of argument types.
//! Those over an axis work on the last one; the methods here transpose where it is another.

use super::Builder;
use crate::module::ValueId;
use crate::types::TensorType;
use pando_base::{BinaryFn, ReduceFn, Result};
use smallvec::SmallVec;

impl Builder {
    /// Calls the composite `name`, whose body `body` builds at the first use with these argument types.
    /// `key` tells bodies of one name apart that differ in more than types (an epsilon).
    pub fn composite(
        &mut self,
        name: &str,
        key: &str,
        args: &[ValueId],
        body: impl FnOnce(&mut Builder, &[ValueId]) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let results = self.composite_of_several(name, key, args, |b, args| Ok(vec![body(b, args)?]))?;
        Ok(results[0])
    }

    /// As [`Builder::composite`], for one with several results.
    pub fn composite_of_several(
        &mut self,
        name: &str,
        key: &str,
        args: &[ValueId],
        body: impl FnOnce(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>>,
    ) -> Result<SmallVec<[ValueId; 1]>> {
        let types: Vec<TensorType> = args.iter().map(|&arg| self.ty(arg).clone()).collect();
        let full_key = (format!("{name} {key}"), types);
        let func = match self.composites.get(&full_key) {
            Some(&func) => func,
            None => {
                self.begin_func(&self.unique_func_name(name), Some(name.into()));
                let params: Vec<ValueId> = full_key.1.iter().map(|ty| self.param("", ty.clone())).collect();
                let results = body(self, &params).inspect_err(|_| self.abandon())?;
                let func = self.end(&results);
                self.composite_keys.insert(func, (name.into(), key.into()));
                self.composites.insert(full_key, func);
                func
            }
        };
        self.call(func, args)
    }

    /// `max(x, 0)`: one primitive, no composite.
    pub fn relu(&mut self, x: ValueId) -> Result<ValueId> {
        self.binary_scalar(BinaryFn::Max, x, 0.0)
    }

    /// `min(max(x, 0), 6)`
    pub fn relu6(&mut self, x: ValueId) -> Result<ValueId> {
        let x = self.relu(x)?;
        self.binary_scalar(BinaryFn::Min, x, 6.0)
    }

    /// `1 / (1 + exp(-x))`
    pub fn sigmoid(&mut self, x: ValueId) -> Result<ValueId> {
        self.composite("sigmoid", "", &[x], |b, args| {
            let negated = b.neg(args[0])?;
            let power = b.exp(negated)?;
            let below = b.binary_scalar(BinaryFn::Add, power, 1.0)?;
            let one = b.splat_like(below, 1.0)?;
            b.div(one, below)
        })
    }

    /// `x · sigmoid(x)`
    pub fn silu(&mut self, x: ValueId) -> Result<ValueId> {
        self.composite("silu", "", &[x], |b, args| {
            let gate = b.sigmoid(args[0])?;
            b.mul(args[0], gate)
        })
    }

    /// `x/2 · (1 + erf(x/√2))`
    pub fn gelu(&mut self, x: ValueId) -> Result<ValueId> {
        self.composite("gelu", "", &[x], |b, args| {
            let scaled = b.binary_scalar(BinaryFn::Mul, args[0], std::f64::consts::FRAC_1_SQRT_2)?;
            let erf = b.erf(scaled)?;
            half_times_one_plus(b, args[0], erf)
        })
    }

    /// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`
    pub fn gelu_tanh(&mut self, x: ValueId) -> Result<ValueId> {
        self.composite("gelu_tanh", "", &[x], |b, args| {
            let square = b.mul(args[0], args[0])?;
            let cube = b.mul(square, args[0])?;
            let cube = b.binary_scalar(BinaryFn::Mul, cube, 0.044715)?;
            let sum = b.add(args[0], cube)?;
            let scaled = b.binary_scalar(BinaryFn::Mul, sum, (2.0 / std::f64::consts::PI).sqrt())?;
            let tanh = b.tanh(scaled)?;
            half_times_one_plus(b, args[0], tanh)
        })
    }

    /// `exp(x - max) / sum(exp(x - max))` along an axis.
    pub fn softmax(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        self.on_last_axis(x, axis, |b, x| {
            b.composite("softmax", "", &[x], |b, args| {
                let shifted = minus_max(b, args[0])?;
                let powers = b.exp(shifted)?;
                let sum = b.reduce_last_like(ReduceFn::Sum, powers)?;
                b.div(powers, sum)
            })
        })
    }

    /// `x - max - log(sum(exp(x - max)))` along an axis.
    pub fn log_softmax(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        self.on_last_axis(x, axis, |b, x| {
            b.composite("log_softmax", "", &[x], |b, args| {
                let shifted = minus_max(b, args[0])?;
                let powers = b.exp(shifted)?;
                let sum = b.reduce_last_like(ReduceFn::Sum, powers)?;
                let log = b.log(sum)?;
                b.sub(shifted, log)
            })
        })
    }

    /// `(x - mean) / √(variance + epsilon) · scale + bias` along the last axis, which `scale` and `bias`
    /// have. The last axis needs a known size.
    pub fn layer_norm(&mut self, x: ValueId, scale: ValueId, bias: ValueId, epsilon: f64) -> Result<ValueId> {
        self.composite("layer_norm", &epsilon.to_string(), &[x, scale, bias], |b, args| {
            let mean = b.mean_last(args[0])?;
            let centred = b.sub(args[0], mean)?;
            let square = b.mul(centred, centred)?;
            let variance = b.mean_last(square)?;
            let normal = over_root(b, centred, variance, epsilon)?;
            let dims = b.ty(args[0]).dims.clone();
            let scale = b.broadcast_trailing(args[1], dims.clone())?;
            let bias = b.broadcast_trailing(args[2], dims)?;
            let scaled = b.mul(normal, scale)?;
            b.add(scaled, bias)
        })
    }

    /// `x / √(mean(x²) + epsilon) · scale` along the last axis, which `scale` has.
    pub fn rms_norm(&mut self, x: ValueId, scale: ValueId, epsilon: f64) -> Result<ValueId> {
        self.composite("rms_norm", &epsilon.to_string(), &[x, scale], |b, args| {
            let square = b.mul(args[0], args[0])?;
            let mean = b.mean_last(square)?;
            let normal = over_root(b, args[0], mean, epsilon)?;
            let dims = b.ty(args[0]).dims.clone();
            let scale = b.broadcast_trailing(args[1], dims)?;
            b.mul(normal, scale)
        })
    }

    /// The mean along the last axis, in the operand's dimensions.
    pub(crate) fn mean_last(&mut self, x: ValueId) -> Result<ValueId> {
        let sum = self.reduce_last_like(ReduceFn::Sum, x)?;
        let size = match self.ty(x).dims.last() {
            Some(dim) => dim.known().ok_or_else(|| crate::errors::unknown_dims(self.ty(x)))?,
            None => 1,
        };
        self.binary_scalar(BinaryFn::Div, sum, size as f64)
    }

    /// Runs `f` on a value whose axis has been moved last, and moves it back.
    fn on_last_axis(
        &mut self,
        x: ValueId,
        axis: usize,
        f: impl FnOnce(&mut Builder, ValueId) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let mut perm: Vec<usize> = (0..self.ty(x).rank()).collect();
        // Its own inverse; an axis out of range is left to the constraint of the reduction.
        if axis < perm.len() {
            let last = perm.len() - 1;
            perm.swap(axis, last);
        }
        let moved = self.transpose(x, &perm)?;
        let result = f(self, moved)?;
        self.transpose(result, &perm)
    }
}

fn half_times_one_plus(b: &mut Builder, x: ValueId, y: ValueId) -> Result<ValueId> {
    let half = b.binary_scalar(BinaryFn::Mul, x, 0.5)?;
    let sum = b.binary_scalar(BinaryFn::Add, y, 1.0)?;
    b.mul(half, sum)
}

fn minus_max(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let max = b.reduce_last_like(ReduceFn::Max, x)?;
    b.sub(x, max)
}

fn over_root(b: &mut Builder, x: ValueId, variance: ValueId, epsilon: f64) -> Result<ValueId> {
    let raised = b.binary_scalar(BinaryFn::Add, variance, epsilon)?;
    let root = b.sqrt(raised)?;
    b.div(x, root)
}

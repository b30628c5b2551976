//! Loss scaling: the loss, and with it every gradient, is multiplied before the backward pass, so that small
//! gradients survive in f16, and gradients are divided before they are used.
//!
//! Automatic scaling halves the scale when a gradient overflows, leaves that step out, and doubles it after a
//! number of steps without. Assumption: PopTorch documents only that the scale adapts from the one given
//! (frontends.md has the names of its state); rule and numbers are those of PyTorch's `GradScaler`.

use crate::formula::{Expr, Formula};
use pando_base::{DType, ReduceFn, Result};
use pando_graph::{Builder, ValueId};

/// The loss to differentiate.
pub fn scale(b: &mut Builder, loss: ValueId, scale: ValueId) -> Result<ValueId> {
    let dtype = b.ty(loss).dtype;
    let f = Formula::new(b);
    f.value(f.at(loss) * f.at(scale).to(dtype))
}

/// A gradient of a scaled loss as that of the loss, in f32.
pub fn unscale(b: &mut Builder, gradient: ValueId, scale: ValueId) -> Result<ValueId> {
    let f = Formula::new(b);
    f.value(f.at(gradient).to(DType::F32) / f.at(scale))
}

/// Whether all elements of all values are finite numbers: `bool[]`.
pub fn all_finite(b: &mut Builder, values: &[ValueId]) -> Result<ValueId> {
    let f = Formula::new(b);
    let finite = |&value: &ValueId| {
        let x = f.at(value);
        let axes: Vec<usize> = (0..x.dims().len()).collect();
        x.abs().lt(f64::INFINITY).then(|b, finite| b.reduce(ReduceFn::And, finite, &axes))
    };
    let all = values.iter().map(finite).reduce(Expr::and);
    let all = all.unwrap_or_else(|| f.scalar(DType::Bool, 1.0));
    f.value(all)
}

/// `new` if `condition` (`bool[]`) holds, else `old`.
pub fn keep_if(b: &mut Builder, condition: ValueId, new: ValueId, old: ValueId) -> Result<ValueId> {
    let f = Formula::new(b);
    let kept = f.at(condition).pick(f.at(new), f.at(old));
    f.value(kept)
}

/// How the scale adapts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Automatic {
    /// Of the scale after `growth_interval` steps in a row without overflow.
    pub growth: f64,
    pub backoff: f64,
    pub growth_interval: u64,
    /// The scale grows no further. Assumption; nothing overflows where all gradients are f32.
    pub largest: f64,
}

impl Default for Automatic {
    fn default() -> Self {
        Automatic { growth: 2.0, backoff: 0.5, growth_interval: 2000, largest: 2f64.powi(24) }
    }
}

impl Automatic {
    /// The scale for the next step, and the number of steps without overflow: both `f32[]`, as they come in.
    pub fn next(
        &self,
        b: &mut Builder,
        finite: ValueId,
        scale: ValueId,
        good_steps: ValueId,
    ) -> Result<(ValueId, ValueId)> {
        let f = Formula::new(b);
        let [finite, scale, good_steps] = f.all([finite, scale, good_steps]);
        let steps = finite.pick(good_steps + 1.0, 0.0);
        let grows = steps.ge(self.growth_interval as f64);
        // A scale that was set above the limit stays.
        let grown = (scale * self.growth).min(scale.max(self.largest));
        let scale = finite.pick(grows.pick(grown, scale), scale * self.backoff);
        let [scale, steps] = f.values([scale, grows.not().pick(steps, 0.0)])?;
        Ok((scale, steps))
    }
}

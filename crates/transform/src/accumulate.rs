//! Gradients summed or averaged over micro-batches and replicas: the numbers of data parallelism, whichever runs
//! when. A program adds every micro-batch's gradients to accumulators ([`Accumulation::add`]); the update takes what
//! [`Accumulation::total`] makes of them, and sets them to zero.

use crate::formula::Formula;
use pando_base::{DType, Result};
use pando_graph::{Builder, ValueId};

/// What a weight's gradient is, given those of the micro-batches and replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientReduction {
    Sum,
    Mean(MeanStrategy),
}

/// Where the division of a mean is done. The mean is the same but for rounding and overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeanStrategy {
    /// The accumulator is the mean of what has come so far: it cannot overflow where gradients do not.
    Running,
    /// The sum is divided at the end.
    #[default]
    Post,
    /// The loss is divided by the number of micro-batches, the sum by that of the replicas.
    PostAndLoss,
}

impl Default for GradientReduction {
    fn default() -> Self {
        GradientReduction::Mean(MeanStrategy::default())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accumulation {
    pub reduction: GradientReduction,
    /// Of one replica.
    pub micro_batches: u64,
    pub replicas: u64,
    /// Type of the accumulators.
    pub dtype: DType,
}

impl Default for Accumulation {
    fn default() -> Self {
        let reduction = GradientReduction::default();
        Accumulation { reduction, micro_batches: 1, replicas: 1, dtype: DType::F32 }
    }
}

impl Accumulation {
    /// Gradients that make one update.
    pub fn count(&self) -> u64 {
        self.micro_batches * self.replicas
    }

    /// The factor of the loss from which gradients are computed.
    pub fn loss_factor(&self) -> f64 {
        match self.reduction {
            GradientReduction::Mean(MeanStrategy::PostAndLoss) => 1.0 / self.micro_batches as f64,
            _ => 1.0,
        }
    }

    /// Whether [`Accumulation::add`] has to know how many gradients the accumulator holds.
    pub fn needs_index(&self) -> bool {
        self.reduction == GradientReduction::Mean(MeanStrategy::Running)
    }

    /// The accumulator with one more gradient. `index` (`f32[]`): how many it holds already.
    pub fn add(
        &self,
        b: &mut Builder,
        accumulator: ValueId,
        gradient: ValueId,
        index: ValueId,
    ) -> Result<ValueId> {
        let dtype = b.ty(accumulator).dtype;
        let f = Formula::new(b);
        let [accumulator, gradient] = f.all([accumulator, gradient]).map(|expr| expr.to(DType::F32));
        let sum = match self.needs_index() {
            true => accumulator + (gradient - accumulator) / (f.at(index) + 1.0),
            false => accumulator + gradient,
        };
        f.value(sum.to(dtype))
    }

    /// The gradient for the update, in f32.
    pub fn total(&self, b: &mut Builder, accumulator: ValueId) -> Result<ValueId> {
        let divisor = match self.reduction {
            GradientReduction::Mean(MeanStrategy::Running) => 1,
            _ => self.divisor(),
        };
        divided(b, accumulator, divisor)
    }

    /// What one gradient adds to a sum that is not divided afterwards, in f32.
    pub fn share(&self, b: &mut Builder, gradient: ValueId) -> Result<ValueId> {
        divided(b, gradient, self.divisor())
    }

    /// Of the sum of all gradients.
    fn divisor(&self) -> u64 {
        match self.reduction {
            GradientReduction::Sum => 1,
            GradientReduction::Mean(MeanStrategy::PostAndLoss) => self.replicas,
            GradientReduction::Mean(_) => self.count(),
        }
    }
}

fn divided(b: &mut Builder, x: ValueId, divisor: u64) -> Result<ValueId> {
    let f = Formula::new(b);
    let x = f.at(x).to(DType::F32);
    f.value(if divisor == 1 { x } else { x / divisor as f64 })
}

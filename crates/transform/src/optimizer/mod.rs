//! Optimizers as functions over a builder: weight, gradient, state and hyperparameters in, new weight and new state
//! out. The arithmetic is that of PyTorch's single-tensor implementations (torch.optim 2.15), in f32 whatever the
//! types of weights and gradients; `sgd.rs`, `adam.rs`, `lamb.rs`, `rmsprop.rs` and `ada.rs` hold the rules.
//!
//! Hyperparameters are values `f32[]`, so that a program may read them from its state; who wants them constant
//! passes constants. What a rule's `Option` leaves out, or a flag switches off, leaves no trace in the graph.
//! f32 holds 0.001 to 24 bits, but 1 - 0.999 only to 14: decays are held as `1-beta1`, and so on.

mod ada;
mod adam;
mod lamb;
mod options;
mod rmsprop;
mod sgd;
mod step;

pub use ada::{Adadelta, Adagrad};
pub use adam::{Adam, Adamax};
pub use lamb::Lamb;
pub use rmsprop::RmsProp;
pub use sgd::Sgd;

use crate::errors;
use crate::formula::Formula;
use crate::random;
use pando_base::{DType, Result, Shape, Tensor};
use pando_graph::{Builder, TensorType, ValueId};
use step::Step;

/// A rule, and how its numbers are stored between steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    pub rule: Rule,
    /// Type of averages of gradients (velocity, first moments).
    pub first: DType,
    /// Type of averages of their squares, and of Adamax's norms.
    pub second: DType,
    /// Whether state holds the weight in f32, of which the weight itself is the rounded copy.
    pub master: bool,
    pub rounding: Rounding,
}

/// How weights and moments of fewer bits than f32 are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    #[default]
    Nearest,
    /// Up or down with the probability that keeps the mean; see [`random::round_stochastically`]. f16 and bf16.
    Stochastic,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    Sgd(Sgd),
    Adam(Adam),
    Adamax(Adamax),
    Lamb(Lamb),
    RmsProp(RmsProp),
    Adagrad(Adagrad),
    Adadelta(Adadelta),
}

/// A number that a rule reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hyperparameter {
    pub name: &'static str,
    pub value: f64,
}

/// State that an optimizer keeps between steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// As PyTorch's `state_dict` calls it: `momentum_buffer`, `exp_avg`, `step`, …; `master` for the weight in f32.
    pub name: &'static str,
    pub ty: TensorType,
    pub initial: Initial,
    /// The same for all weights that are updated together: one tensor may serve them all.
    pub shared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// Every element.
    Value(f64),
    /// The weight in the slot's type.
    Weight,
}

/// What one update reads.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    pub weight: ValueId,
    /// Of the weight's dimensions, in any float type. `None` only for a combined velocity that holds it already.
    pub gradient: Option<ValueId>,
    /// In the order of [`Optimizer::slots`].
    pub state: &'a [ValueId],
    /// `f32[]`, in the order of [`Optimizer::hyperparameters`].
    pub hyper: &'a [ValueId],
    /// `u32[2]`, another one for each weight and step; needed by stochastic rounding only.
    pub seed: Option<ValueId>,
}

/// The new values, of the types of the old ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Updated {
    pub weight: ValueId,
    pub state: Vec<ValueId>,
}

/// What a slot holds; decides its type.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    First,
    Second,
    /// Steps taken so far, `f32[]`.
    Steps,
}

/// A rule's slot before types are known.
type RuleSlot = (&'static str, Kind);

impl Rule {
    fn hyperparameters(&self) -> Vec<Hyperparameter> {
        let named = match self {
            Rule::Sgd(rule) => rule.hyperparameters(),
            Rule::Adam(rule) => rule.hyperparameters(),
            Rule::Adamax(rule) => rule.hyperparameters(),
            Rule::Lamb(rule) => rule.hyperparameters(),
            Rule::RmsProp(rule) => rule.hyperparameters(),
            Rule::Adagrad(rule) => rule.hyperparameters(),
            Rule::Adadelta(rule) => rule.hyperparameters(),
        };
        let present = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
        present.map(|(name, value)| Hyperparameter { name, value }).collect()
    }

    fn slots(&self) -> Vec<RuleSlot> {
        match self {
            Rule::Sgd(rule) => rule.slots(),
            Rule::Adam(rule) => rule.slots(),
            Rule::Adamax(_) => Adamax::slots(),
            Rule::Lamb(rule) => rule.slots(),
            Rule::RmsProp(rule) => rule.slots(),
            Rule::Adagrad(rule) => rule.slots(),
            Rule::Adadelta(_) => Adadelta::slots(),
        }
    }

    fn step(&self, step: &mut Step) {
        match self {
            Rule::Sgd(rule) => rule.step(step),
            Rule::Adam(rule) => rule.step(step),
            Rule::Adamax(_) => Adamax::step(step),
            Rule::Lamb(rule) => rule.step(step),
            Rule::RmsProp(rule) => rule.step(step),
            Rule::Adagrad(_) => Adagrad::step(step),
            Rule::Adadelta(_) => Adadelta::step(step),
        }
    }
}

impl Optimizer {
    /// With moments in f32, no master weights, and rounding to the nearest.
    pub fn new(rule: Rule) -> Self {
        let f32 = DType::F32;
        Optimizer { rule, first: f32, second: f32, master: false, rounding: Rounding::default() }
    }

    /// The rule of a name (`sgd`, `adam`, `adamw`, `adamax`, `lamb`, `rmsprop`, `adagrad`, `adadelta`) with its
    /// settings by their names (`lr`, `beta1`, `nesterov`: not 0), PyTorch's defaults for the others.
    pub fn named(rule: &str, settings: &[(&str, f64)]) -> Result<Self> {
        options::rule(rule, settings).map(Optimizer::new)
    }

    /// What [`Update::hyper`] takes, with the values that the rule states. Whoever changes a learning rate between
    /// steps asks a changed rule for them.
    pub fn hyperparameters(&self) -> Vec<Hyperparameter> {
        self.rule.hyperparameters()
    }

    /// The state of a weight of this type.
    pub fn slots(&self, weight: &TensorType) -> Vec<Slot> {
        let f32 = weight.with_dtype(DType::F32);
        let master = Slot { name: "master", ty: f32, initial: Initial::Weight, shared: false };
        let slot = |(name, kind)| {
            let ty = match kind {
                Kind::First => weight.with_dtype(self.first),
                Kind::Second => weight.with_dtype(self.second),
                Kind::Steps => TensorType::scalar(DType::F32),
            };
            Slot { name, ty, initial: Initial::Value(0.0), shared: kind == Kind::Steps }
        };
        let slots = self.rule.slots().into_iter().map(slot);
        self.master.then_some(master).into_iter().chain(slots).collect()
    }

    /// Appends one step.
    pub fn update(&self, b: &mut Builder, update: &Update) -> Result<Updated> {
        let ty = b.ty(update.weight).clone();
        let slots = self.slots(&ty);
        self.check(b, update, &slots)?;
        let (weight_slot, rule_slots) = update.state.split_at(usize::from(self.master));
        let weight = weight_slot.first().copied().unwrap_or(update.weight);
        let rule_slots = self.rule.slots().into_iter().map(|(name, _)| name).zip(rule_slots.iter().copied());
        let names = self.hyperparameters().into_iter().map(|hyper| hyper.name);
        let hyper = names.zip(update.hyper.iter().copied());
        let formula = Formula::new(b);
        let mut step = Step::new(&formula, weight, update.gradient, rule_slots, hyper);
        self.rule.step(&mut step);
        let new = step.results()?;
        let mut new = new.into_iter();
        let exact = new.next().expect("the weight is the first result");
        let mut rounds = Rounds { rounding: self.rounding, seed: update.seed, uses: 0 };
        let weight = rounds.round(b, exact, ty.dtype)?;
        let mut state = if self.master { vec![exact] } else { Vec::new() };
        for (value, slot) in new.zip(&slots[state.len()..]) {
            state.push(rounds.round(b, value, slot.ty.dtype)?);
        }
        Ok(Updated { weight, state })
    }

    /// The velocity with a gradient added, scaled and dampened as a combined velocity has it.
    pub fn add_to_velocity(
        &self,
        b: &mut Builder,
        velocity: ValueId,
        gradient: ValueId,
        hyper: &[ValueId],
    ) -> Result<ValueId> {
        let Rule::Sgd(sgd) = &self.rule else { return Err(errors::no_combined_velocity()) };
        if sgd.velocity_scaling.is_none() {
            return Err(errors::no_combined_velocity());
        }
        let dtype = b.ty(velocity).dtype;
        let names = self.hyperparameters().into_iter().map(|hyper| hyper.name);
        let formula = Formula::new(b);
        let slots = [("momentum_buffer", velocity)].into_iter();
        let step = Step::new(&formula, velocity, Some(gradient), slots, names.zip(hyper.iter().copied()));
        let added = sgd::combined_velocity(&step).to(dtype);
        formula.value(added)
    }

    fn check(&self, b: &Builder, update: &Update, slots: &[Slot]) -> Result<()> {
        let weight = b.ty(update.weight);
        let combined = matches!(&self.rule, Rule::Sgd(sgd) if sgd.velocity_scaling.is_some());
        if !weight.dtype.is_float() {
            return Err(errors::weight_of_integers(weight));
        }
        match update.gradient.map(|gradient| b.ty(gradient)) {
            Some(gradient) if gradient.dims != weight.dims || !gradient.dtype.is_float() => {
                return Err(errors::wrong_gradient(gradient, weight));
            }
            None if !combined => return Err(errors::no_gradient()),
            _ => {}
        }
        let expected: Vec<&TensorType> = slots.iter().map(|slot| &slot.ty).collect();
        check_types("state", b, update.state, &expected)?;
        let scalar = TensorType::scalar(DType::F32);
        check_types("hyperparameters", b, update.hyper, &vec![&scalar; self.hyperparameters().len()])?;
        let rounds = weight.dtype != DType::F32 || slots.iter().any(|slot| slot.ty.dtype != DType::F32);
        match self.rounding == Rounding::Stochastic && rounds && update.seed.is_none() {
            true => Err(errors::no_seed()),
            false => Ok(()),
        }
    }
}

fn check_types(what: &str, b: &Builder, values: &[ValueId], expected: &[&TensorType]) -> Result<()> {
    let found: Vec<&TensorType> = values.iter().map(|&value| b.ty(value)).collect();
    if found == expected { Ok(()) } else { Err(errors::wrong_types(what, &found, expected)) }
}

/// Rounds one value after the other, each with random bits of its own.
struct Rounds {
    rounding: Rounding,
    seed: Option<ValueId>,
    uses: u32,
}

impl Rounds {
    fn round(&mut self, b: &mut Builder, value: ValueId, dtype: DType) -> Result<ValueId> {
        let seed = self.seed.filter(|_| self.rounding == Rounding::Stochastic && dtype != b.ty(value).dtype);
        let Some(seed) = seed else { return b.convert(value, dtype) };
        self.uses += 1;
        let seed = random::seed_of_use(b, seed, self.uses)?;
        random::round_stochastically(b, value, dtype, seed)
    }
}

impl Slot {
    /// What the state holds before the first step. `weight` has the dimensions of the slot, unless it is shared.
    pub fn tensor(&self, weight: &Tensor) -> Tensor {
        match self.initial {
            Initial::Weight => weight.rounded_to(self.ty.dtype),
            Initial::Value(value) => {
                let shape = if self.ty.rank() == 0 { Shape::scalar() } else { weight.shape().clone() };
                let elements = vec![value; shape.num_elements() as usize];
                Tensor::from_f64(self.ty.dtype, shape, &elements)
            }
        }
    }
}

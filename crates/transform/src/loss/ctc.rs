//! Connectionist temporal classification (Graves et al. 2006): the probability of a sequence of labels whatever
//! their alignment, summed forward in time in logarithms.

use super::{Reduction, count, reduced};
use crate::errors;
use crate::formula::{Expr, Formula};
use pando_base::{DType, Result, Shape};
use pando_graph::{Builder, Dims, FuncId, Op, Pad, TensorType, ValueId, known_dims};

/// The logarithm of what is impossible: finite, so that differences of two are no NaN.
const NEVER: f64 = -1e30;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ctc {
    /// The class that stands for no label.
    pub blank: u64,
    /// Samples that no alignment can make, whose loss is infinite, have the loss 0.
    pub zero_infinity: bool,
    /// The mean is over samples, each divided by the number of its labels.
    pub reduction: Reduction,
}

/// `log_probs` `[T,N,C]`; `targets` `[N,S]`, padded with anything; both lengths `[N]`, all in integer types. The
/// gradient of an impossible sample is 0.
pub fn ctc(
    b: &mut Builder,
    log_probs: ValueId,
    targets: ValueId,
    input_lengths: ValueId,
    target_lengths: ValueId,
    options: &Ctc,
) -> Result<ValueId> {
    let sizes = Sizes::new(b, [log_probs, targets, input_lengths, target_lengths], options)?;
    let dtype = b.ty(log_probs).dtype;
    let logs = b.convert(log_probs, DType::F32)?;
    let ints = [targets, input_lengths, target_lengths].map(|value| b.convert(value, DType::I32));
    let [targets, input_lengths, target_lengths] = ints;
    let args = [logs, targets?, input_lengths?, target_lengths?];
    let key = format!("blank={}", options.blank);
    let losses = b.composite("ctc_loss", &key, &args, |b, args| sizes.losses(b, args, options.blank))?;
    let f = Formula::new(b);
    let [losses, lengths] = f.all([losses, args[3]]);
    let possible = losses.lt(-0.1 * NEVER);
    let instead = if options.zero_infinity { 0.0 } else { f64::INFINITY };
    let losses = possible.pick(losses, instead);
    let loss = match options.reduction {
        Reduction::Mean => (losses / lengths.to(DType::F32).max(1.0)).sum() / count(losses),
        other => reduced(losses, other),
    };
    f.value(loss.to(dtype))
}

/// Steps, samples, classes, and states of a sample: its labels with blanks around each.
#[derive(Clone, Copy)]
struct Sizes {
    steps: u64,
    samples: u64,
    classes: u64,
    labels: u64,
    states: u64,
}

impl Sizes {
    fn new(b: &Builder, operands: [ValueId; 4], options: &Ctc) -> Result<Self> {
        let [logs, targets, input_lengths, target_lengths] = operands.map(|value| b.ty(value));
        let shapes = [logs, targets].map(TensorType::require_shape);
        let [logs_shape, targets_shape] = shapes;
        let (logs_shape, targets_shape) = (logs_shape?, targets_shape?);
        if logs_shape.rank() != 3 || !logs.dtype.is_float() {
            return Err(errors::wrong_loss_operand("ctc", "the input", "floats [T,N,C]", logs));
        }
        let (steps, samples, classes) = (logs_shape[0], logs_shape[1], logs_shape[2]);
        if !targets.dtype.is_int() || targets_shape.rank() != 2 || targets_shape[0] != samples {
            return Err(errors::wrong_loss_operand(
                "ctc",
                "the target",
                format!("integers [{samples},S]"),
                targets,
            ));
        }
        for lengths in [input_lengths, target_lengths] {
            if !lengths.dtype.is_int() || lengths.shape() != Some(Shape::from([samples])) {
                let expected = format!("integers [{samples}]");
                return Err(errors::wrong_loss_operand("ctc", "a tensor of lengths", expected, lengths));
            }
        }
        if options.blank >= classes {
            let range = format!("a class, below {classes}");
            return Err(errors::wrong_loss_number("ctc", "blank", &range, options.blank as f64));
        }
        let labels = targets_shape[1];
        Ok(Sizes { steps, samples, classes, labels, states: 2 * labels + 1 })
    }

    fn by_state(&self) -> Dims {
        known_dims(&[self.samples, self.states])
    }

    /// One loss per sample, `f32[N]`; at least `-NEVER` where it is infinite.
    fn losses(&self, b: &mut Builder, args: &[ValueId], blank: u64) -> Result<ValueId> {
        let [logs, targets, input_lengths, target_lengths] = [args[0], args[1], args[2], args[3]];
        let states = self.state_labels(b, targets, blank)?;
        let emissions = self.emissions(b, logs, states)?;
        let skips = self.skips(b, states)?;
        let body = self.body(b)?;
        let start = self.start(b)?;
        let carried = [start, emissions, skips, input_lengths];
        let alphas = b.insert(Op::Repeat { count: self.steps, body }, &carried)?[0];
        self.at_the_end(b, alphas, target_lengths)
    }

    /// The label of each state: blanks with the targets between them. `i32[N,states]`
    fn state_labels(&self, b: &mut Builder, targets: ValueId, blank: u64) -> Result<ValueId> {
        let column = |labels| TensorType::new(DType::I32, [self.samples, labels, 1]);
        let blanks = b.splat(&column(self.labels), blank as f64)?;
        let targets = b.reshape(targets, [self.samples, self.labels, 1])?;
        let pairs = b.concat(&[blanks, targets], 2)?;
        let pairs = b.reshape(pairs, [self.samples, 2 * self.labels])?;
        let last = b.splat(&TensorType::new(DType::I32, [self.samples, 1]), blank as f64)?;
        b.concat(&[pairs, last], 1)
    }

    /// The logarithm of each state's label at each step. `f32[T,N,states]`
    fn emissions(&self, b: &mut Builder, logs: ValueId, states: ValueId) -> Result<ValueId> {
        let f = Formula::new(b);
        let states = f.at(states);
        let sample = states.then(|b, x| b.iota(b.ty(x).clone(), 0));
        let places = f.value(states + sample * self.classes as f64)?;
        let places = b.reshape(places, [self.samples * self.states])?;
        let rows = b.reshape(logs, [self.steps, self.samples * self.classes])?;
        let picked = b.gather(rows, places, 1)?;
        let f = Formula::new(b);
        let picked = f.value(f.at(picked).max(NEVER))?;
        b.reshape(picked, [self.steps, self.samples, self.states])
    }

    /// 0 where a state may follow the one two before it: another label, with only a blank between. `f32[N,states]`
    fn skips(&self, b: &mut Builder, states: ValueId) -> Result<ValueId> {
        let before = self.shifted(b, states, 2)?;
        let f = Formula::new(b);
        let [states, before] = f.all([states, before]);
        let number = states.then(|b, x| b.iota(b.ty(x).clone(), 1));
        let never = states.to(DType::F32).filled(NEVER);
        let allowed = states.ne(before).and(number.gt(1.0));
        f.value(allowed.pick(never.filled(0.0), never))
    }

    /// Before the first step: the first state comes next, or the second.
    fn start(&self, b: &mut Builder) -> Result<ValueId> {
        let ty = TensorType { dtype: DType::I32, dims: self.by_state() };
        let number = b.iota(ty, 1)?;
        let f = Formula::new(b);
        let number = f.at(number);
        let never = number.to(DType::F32).filled(NEVER);
        f.value(number.eq(0.0).pick(never.filled(0.0), never))
    }

    /// `(step, alphas, emissions, skips, input lengths)` to the carried values: the alphas of one more step.
    fn body(&self, b: &mut Builder) -> Result<FuncId> {
        b.begin(&b.unique_func_name("ctc_step"));
        let built = self.body_results(b);
        match built {
            Ok(results) => Ok(b.end(&results)),
            Err(error) => {
                b.abandon();
                Err(error)
            }
        }
    }

    fn body_results(&self, b: &mut Builder) -> Result<[ValueId; 4]> {
        let by_state = TensorType { dtype: DType::F32, dims: self.by_state() };
        let step = b.param("step", TensorType::scalar(DType::I32));
        let alphas = b.param("alphas", by_state.clone());
        let by_step = TensorType::new(DType::F32, [self.steps, self.samples, self.states]);
        let emissions = b.param("emissions", by_step);
        let skips = b.param("skips", by_state);
        let lengths = b.param("lengths", TensorType::new(DType::I32, [self.samples]));
        let emission = b.gather(emissions, step, 0)?;
        let (before, two_before) = (self.shifted(b, alphas, 1)?, self.shifted(b, alphas, 2)?);
        let f = Formula::new(b);
        let [old, before, two_before] = f.all([alphas, before, two_before]);
        let next = log_sum([old, before, two_before + f.at(skips)]) + f.at(emission);
        let active = f.at(step).lt(f.at(lengths)).broadcast(self.by_state(), &[0]);
        let next = f.value(active.pick(next, old))?;
        Ok([next, emissions, skips, lengths])
    }

    /// The values of the states `by` before each; `NEVER` (0 for labels) where there is none.
    fn shifted(&self, b: &mut Builder, x: ValueId, by: i64) -> Result<ValueId> {
        let dtype = b.ty(x).dtype;
        let filler = b.scalar(dtype, if dtype.is_float() { NEVER } else { 0.0 });
        b.pad(x, filler, Pad { low: vec![0, by], high: vec![0, -by], interior: vec![0, 0] })
    }

    /// The loss from the last blank and the last label.
    fn at_the_end(&self, b: &mut Builder, alphas: ValueId, lengths: ValueId) -> Result<ValueId> {
        let f = Formula::new(b);
        let [alphas, lengths] = f.all([alphas, lengths]);
        let number = lengths.then(|b, _| b.iota(TensorType { dtype: DType::I32, dims: self.by_state() }, 1));
        let last = (lengths * 2.0).broadcast(self.by_state(), &[0]);
        let ends = [last, last - 1.0].map(|state| number.eq(state).pick(alphas, 0.0).sum_over(&[1]));
        let label = lengths.gt(0.0).pick(ends[1], NEVER);
        f.value(-log_sum([ends[0], label, label.filled(NEVER)]))
    }
}

/// `log(exp(a) + exp(b) + exp(c))`
fn log_sum<'f>([a, b, c]: [Expr<'f>; 3]) -> Expr<'f> {
    // Cancels out, and so would its gradients.
    let most = a.max(b).max(c).detached();
    most + ((a - most).exp() + (b - most).exp() + (c - most).exp()).log()
}

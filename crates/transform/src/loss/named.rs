//! Losses by name, with their options by name.

use super::*;
use crate::errors;
use crate::settings::Settings;

/// The names that [`named`] knows.
pub const LOSSES: &[&str] = &[
    "mse",
    "l1",
    "smooth_l1",
    "huber",
    "bce",
    "bce_with_logits",
    "kl_div",
    "poisson_nll",
    "hinge_embedding",
    "soft_margin",
    "nll",
    "cross_entropy",
    "multilabel_soft_margin",
    "cosine_embedding",
    "margin_ranking",
    "triplet_margin",
    "ctc",
];

/// The loss of a name. `operands`: what its function takes, in that order, `None` for weights that are not given;
/// trailing ones may be left out. `options`: its numbers and flags (not 0) by the names of its parameters.
pub fn named(
    b: &mut Builder,
    name: &str,
    operands: &[Option<ValueId>],
    options: &[(&str, f64)],
    reduction: Reduction,
) -> Result<ValueId> {
    let mut options = Settings::new(options);
    let (required, optional) = operand_counts(name).ok_or_else(|| errors::unknown_loss(name, LOSSES))?;
    let present: Vec<ValueId> = operands.iter().take(required).copied().flatten().collect();
    if present.len() < required || operands.len() > required + optional {
        let what = match optional {
            0 => format!("{required} operands"),
            _ => format!("{required} operands and up to {optional} weights"),
        };
        return Err(errors::wrong_loss_operands(name, &what, operands.len()));
    }
    let weight = |index: usize| operands.get(required + index).copied().flatten();
    let build = dispatch(name, &present, [weight(0), weight(1)], &mut options, reduction);
    options.check(name)?;
    build(b)
}

/// Operands that must be there, and weights that may be.
fn operand_counts(name: &str) -> Option<(usize, usize)> {
    match name {
        "ctc" => Some((4, 0)),
        "cosine_embedding" | "margin_ranking" | "triplet_margin" => Some((3, 0)),
        "bce_with_logits" => Some((2, 2)),
        "bce" | "nll" | "cross_entropy" | "multilabel_soft_margin" => Some((2, 1)),
        _ => LOSSES.contains(&name).then_some((2, 0)),
    }
}

type Build = Box<dyn FnOnce(&mut Builder) -> Result<ValueId>>;

/// The loss, ready to be built: its options are read before anything is.
fn dispatch(
    name: &str,
    operands: &[ValueId],
    [weight, pos_weight]: [Option<ValueId>; 2],
    options: &mut Settings,
    reduction: Reduction,
) -> Build {
    let (x, y, z) = (operands[0], operands[1], operands.get(2).copied());
    let third = z.unwrap_or(y);
    match name {
        "mse" => Box::new(move |b| mse(b, x, y, reduction)),
        "l1" => Box::new(move |b| l1(b, x, y, reduction)),
        "soft_margin" => Box::new(move |b| soft_margin(b, x, y, reduction)),
        "smooth_l1" => {
            let beta = options.number("beta", 1.0);
            Box::new(move |b| smooth_l1(b, x, y, beta, reduction))
        }
        "huber" => {
            let delta = options.number("delta", 1.0);
            Box::new(move |b| huber(b, x, y, delta, reduction))
        }
        "bce" => Box::new(move |b| bce(b, x, y, weight, reduction)),
        "bce_with_logits" => Box::new(move |b| bce_with_logits(b, x, y, weight, pos_weight, reduction)),
        "kl_div" => {
            let log_target = options.flag("log_target", false);
            Box::new(move |b| kl_div(b, x, y, log_target, reduction))
        }
        "poisson_nll" => {
            let (log_input, full) = (options.flag("log_input", true), options.flag("full", false));
            let eps = options.number("eps", 1e-8);
            Box::new(move |b| poisson_nll(b, x, y, log_input, full, eps, reduction))
        }
        "hinge_embedding" => {
            let margin = options.number("margin", 1.0);
            Box::new(move |b| hinge_embedding(b, x, y, margin, reduction))
        }
        "nll" | "cross_entropy" => {
            let classes = classes(name, weight, options, reduction);
            let loss = if name == "nll" { nll } else { cross_entropy };
            Box::new(move |b| loss(b, x, y, &classes))
        }
        "multilabel_soft_margin" => Box::new(move |b| multilabel_soft_margin(b, x, y, weight, reduction)),
        "cosine_embedding" => {
            let margin = options.number("margin", 0.0);
            Box::new(move |b| cosine_embedding(b, [x, y], third, margin, reduction))
        }
        "margin_ranking" => {
            let margin = options.number("margin", 0.0);
            Box::new(move |b| margin_ranking(b, [x, y], third, margin, reduction))
        }
        "triplet_margin" => {
            let triplet = triplet(options, reduction);
            Box::new(move |b| triplet_margin(b, [x, y, third], &triplet))
        }
        "ctc" => {
            let lengths = operands[3];
            let options = Ctc {
                blank: options.number("blank", 0.0) as u64,
                zero_infinity: options.flag("zero_infinity", false),
                reduction,
            };
            Box::new(move |b| ctc(b, x, y, third, lengths, &options))
        }
        _ => unreachable!("operand_counts knows the names"),
    }
}

fn classes(name: &str, weights: Option<ValueId>, options: &mut Settings, reduction: Reduction) -> Classes {
    let default = Classes::default();
    let label_smoothing = match name {
        "cross_entropy" => options.number("label_smoothing", default.label_smoothing),
        _ => default.label_smoothing,
    };
    let ignore_index = options.number("ignore_index", default.ignore_index as f64) as i64;
    Classes { weights, ignore_index, label_smoothing, reduction }
}

fn triplet(options: &mut Settings, reduction: Reduction) -> TripletMargin {
    let default = TripletMargin::default();
    TripletMargin {
        margin: options.number("margin", default.margin),
        p: options.number("p", default.p),
        eps: options.number("eps", default.eps),
        swap: options.flag("swap", default.swap),
        reduction,
    }
}

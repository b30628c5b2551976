//! Rules by name, with settings by name.

use super::{Adadelta, Adagrad, Adam, Adamax, Lamb, RmsProp, Rule, Sgd};
use crate::errors;
use crate::settings::Settings;
use pando_base::Result;

pub(super) fn rule(name: &str, given: &[(&str, f64)]) -> Result<Rule> {
    let mut settings = Settings::new(given);
    let rule = match name {
        "sgd" => Rule::Sgd(sgd(&mut settings)),
        "adam" => Rule::Adam(adam(&mut settings, Adam::default())),
        "adamw" => Rule::Adam(adam(&mut settings, Adam::adamw())),
        "adamax" => Rule::Adamax(adamax(&mut settings)),
        "lamb" => Rule::Lamb(lamb(&mut settings)),
        "rmsprop" => Rule::RmsProp(rmsprop(&mut settings)),
        "adagrad" => Rule::Adagrad(adagrad(&mut settings)),
        "adadelta" => Rule::Adadelta(adadelta(&mut settings)),
        _ => return Err(errors::unknown_optimizer(name)),
    };
    settings.check(name).map(|()| rule)
}

fn sgd(settings: &mut Settings) -> Sgd {
    let default = Sgd::default();
    Sgd {
        lr: settings.number("lr", default.lr),
        momentum: settings.optional("momentum", default.momentum),
        dampening: settings.optional("dampening", default.dampening),
        weight_decay: settings.optional("weight_decay", default.weight_decay),
        nesterov: settings.flag("nesterov", default.nesterov),
        velocity_scaling: settings.optional("velocity_scaling", default.velocity_scaling),
    }
}

fn adam(settings: &mut Settings, default: Adam) -> Adam {
    Adam {
        lr: settings.number("lr", default.lr),
        beta1: settings.number("beta1", default.beta1),
        beta2: settings.number("beta2", default.beta2),
        eps: settings.number("eps", default.eps),
        weight_decay: settings.optional("weight_decay", default.weight_decay),
        decoupled: default.decoupled,
        amsgrad: settings.flag("amsgrad", default.amsgrad),
        bias_correction: settings.flag("bias_correction", default.bias_correction),
    }
}

fn adamax(settings: &mut Settings) -> Adamax {
    let default = Adamax::default();
    Adamax {
        lr: settings.number("lr", default.lr),
        beta1: settings.number("beta1", default.beta1),
        beta2: settings.number("beta2", default.beta2),
        eps: settings.number("eps", default.eps),
        weight_decay: settings.optional("weight_decay", default.weight_decay),
    }
}

fn lamb(settings: &mut Settings) -> Lamb {
    let default = Lamb::default();
    Lamb {
        lr: settings.number("lr", default.lr),
        beta1: settings.number("beta1", default.beta1),
        beta2: settings.number("beta2", default.beta2),
        eps: settings.number("eps", default.eps),
        weight_decay: settings.optional("weight_decay", default.weight_decay),
        bias_correction: settings.flag("bias_correction", default.bias_correction),
        max_weight_norm: settings.optional("max_weight_norm", default.max_weight_norm),
    }
}

fn rmsprop(settings: &mut Settings) -> RmsProp {
    let default = RmsProp::default();
    RmsProp {
        lr: settings.number("lr", default.lr),
        alpha: settings.number("alpha", default.alpha),
        eps: settings.number("eps", default.eps),
        weight_decay: settings.optional("weight_decay", default.weight_decay),
        momentum: settings.optional("momentum", default.momentum),
        centered: settings.flag("centered", default.centered),
        tf_variant: settings.flag("tf_variant", default.tf_variant),
    }
}

fn adagrad(settings: &mut Settings) -> Adagrad {
    let default = Adagrad::default();
    Adagrad {
        lr: settings.number("lr", default.lr),
        lr_decay: settings.optional("lr_decay", default.lr_decay),
        eps: settings.number("eps", default.eps),
        weight_decay: settings.optional("weight_decay", default.weight_decay),
    }
}

fn adadelta(settings: &mut Settings) -> Adadelta {
    let default = Adadelta::default();
    Adadelta {
        lr: settings.number("lr", default.lr),
        rho: settings.number("rho", default.rho),
        eps: settings.number("eps", default.eps),
        weight_decay: settings.optional("weight_decay", default.weight_decay),
    }
}

"""The log's lines about an optimizer: its numbers by their names on the device, constants marked."""

_NAMES = {
    "lr": "learningRate", "momentum": "momentum", "dampening": "dampening", "weight_decay": "weightDecay",
    "velocity_scaling": "velocityScaling", "beta1": "beta1", "beta2": "beta2", "eps": "eps", "alpha": "alpha",
    "max_weight_norm": "maxWeightNorm",
}


def lines(description):
    """One line for the whole optimizer, one a group."""
    text = [f"Updating graph optimizer with {description.title}, " + ", ".join(_graph(description))]
    for number, values in enumerate(description.logged_groups):
        parts = [_entry(name, value, description.constants) for name, value in values.items()]
        text.append(f"Updating group {number} optimizer with {description.title}, " + ", ".join(parts) + ",")
    return text


def _graph(description):
    entries = [_entry(name, value, description.constants, default=True)
               for name, value in description.logged_defaults.items()]
    entries.append(_entry_text("lossScaling", description.loss_scaling,
                               "loss_scaling" in description.constants))
    types = {"accumType": description.accum_type, "firstOrderMomentumAccumType": description.first_type,
             "secondOrderMomentumAccumType": description.second_type}
    long = {"f32": "float32", "f16": "float16"}
    return [*entries, *(f"{name}={long[value]}" for name, value in types.items())]


def _entry(name, value, constants, default=False):
    shown = _NAMES.get(name, name)
    if default:
        shown = f"default{shown[0].upper()}{shown[1:]}"
    attribute = "betas" if name in ("beta1", "beta2") else name
    return _entry_text(shown, value, attribute in constants)


def _entry_text(name, value, constant):
    return f"{name}={value:g}" + (" (const)" if constant else "")

//! `pando zoo`: the built-in models.

use crate::output::{note, print, print_json};
use pando_base::{Error, Result};
use pando_zoo::{Description, Options, describe, names};
use serde_json::json;
use std::path::Path;

pub fn list(json: bool) -> Result<()> {
    let models = names().into_iter().map(|name| Ok((describe(name)?, parameters(name)?)));
    let models = models.collect::<Result<Vec<(Description, u64)>>>()?;
    if json {
        let rows: Vec<_> = models.iter().map(|(model, parameters)| to_json(model, *parameters)).collect();
        return print_json(&json!({ "models": rows }));
    }
    let width = models.iter().map(|(model, _)| model.about.len()).max().unwrap_or(0);
    let row = |[name, parameters, about, sizes]: [&str; 4]| {
        format!("{name:<20} {parameters:>12}  {about:<width$}  {sizes}\n")
    };
    let mut text = row(["model", "parameters", "what it is", "sizes"]);
    for (model, parameters) in &models {
        let sizes: Vec<String> = model.sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
        text += &row([model.name, &parameters.to_string(), model.about, &sizes.join(" ")]);
    }
    print(&text)
}

/// Numbers that training changes.
fn parameters(name: &str) -> Result<u64> {
    let weights = pando_zoo::weights(name, &Options::default())?;
    let learned = weights.iter().filter(|weight| weight.learned);
    Ok(learned.map(|weight| weight.shape.iter().product::<u64>()).sum())
}

fn to_json(model: &Description, parameters: u64) -> serde_json::Value {
    let sizes: serde_json::Map<_, _> =
        model.sizes.iter().map(|&(name, size)| (name.to_string(), size.into())).collect();
    json!({
        "name": model.name, "about": model.about, "definition": model.definition, "parameters": parameters,
        "sizes": sizes,
    })
}

/// The text form; seeded weights stay rules, so that it is short.
pub fn export(spec: &str, file: &Path) -> Result<()> {
    let wrong = |what: String| Error::in_file(file.display().to_string(), what);
    if file.extension().is_none_or(|extension| extension != "graph") {
        return Err(wrong("the file's name must end in .graph".into()));
    }
    let (name, options) = pando_zoo::parse(spec.strip_prefix("zoo:").unwrap_or(spec))?;
    let text = pando_graph::print(&pando_zoo::build(name, &options)?);
    std::fs::write(file, text).map_err(|error| wrong(format!("cannot be written: {error}")))?;
    note(&format!("{name} written to {}", file.display()));
    Ok(())
}

//! `pando system`: the machine files.

use crate::output::{print, print_json};
use pando_base::{Error, Result};
use pando_machine::{Machine, describe, load, names};
use serde_json::json;
use std::path::Path;

pub fn list(json: bool) -> Result<()> {
    let machines: Vec<Machine> = names().iter().map(|name| load(name)).collect::<Result<_>>()?;
    if json {
        let rows: Vec<_> =
            machines.iter().map(|m| json!({"name": m.name, "title": m.title, "chips": m.chips})).collect();
        return print_json(&json!({ "systems": rows }));
    }
    let mut text = format!(
        "{:<12} {:>6} {:>10} {:>11} {:>12}  {}\n",
        "system", "chips", "tiles", "SRAM", "f16 peak", "what it is"
    );
    for machine in &machines {
        text += &format!(
            "{:<12} {:>6} {:>10} {:>8.1} GB {:>9.3} PF  {}\n",
            machine.name,
            machine.chips,
            machine.tiles_total(),
            machine.sram_bytes() as f64 / 1e9,
            machine.peak_flops("f16") / 1e15,
            machine.title
        );
    }
    print(&text)
}

pub fn show(name: &str, json: bool) -> Result<()> {
    let machine = load(name)?;
    if json { print_json(&to_json(&machine)?) } else { print(&describe(&machine)) }
}

pub fn check(file: &str, json: bool) -> Result<()> {
    if !Path::new(file).exists() {
        return Err(Error::in_file(file, "there is no such file"));
    }
    let path = if file.contains('/') { file.to_string() } else { format!("./{file}") };
    let machine = load(&path)?;
    if json {
        return print_json(&json!({"file": file, "ok": true, "system": machine.name}));
    }
    print(&format!(
        "{file}: ok, {} ({} chips, {} tiles)\n",
        machine.name,
        machine.chips,
        machine.tiles_total()
    ))
}

fn to_json(machine: &Machine) -> Result<serde_json::Value> {
    serde_json::to_value(machine)
        .map_err(|error| Error::new(format!("cannot express {} as JSON: {error}", machine.name)))
}

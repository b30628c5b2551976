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
    let row = |cells: [&str; 6]| {
        let [name, chips, tiles, sram, peak, title] = cells;
        format!("{name:<12} {chips:>6} {tiles:>10} {sram:>10} {peak:>14}  {title}\n")
    };
    let mut text = row(["system", "chips", "tiles", "SRAM", "f16 peak", "what it is"]);
    for machine in &machines {
        text += &row([
            &machine.name,
            &machine.chips.to_string(),
            &machine.tiles_total().to_string(),
            &scaled(machine.sram_bytes() as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
            &scaled(
                machine.peak_flops("f16"),
                1000.0,
                &["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"],
            ),
            &machine.title,
        ]);
    }
    print(&text)
}

/// With the largest unit that leaves a whole part.
fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
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

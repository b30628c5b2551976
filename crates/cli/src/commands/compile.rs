//! `pando compile --stop-after PASS`: the text of either IR.

use crate::args::{CompileArgs, CompileOptions, Pass};
use crate::model::{Model, load, prepared};
use crate::output::{print, print_json};
use pando_base::{Error, Result};
use pando_lower::{
    Emitted, Options, Placed, compile as compile_module, inline_calls, plan, print_plan, supported,
};
use pando_machine::Machine;
use pando_tile::{Program, expand};
use std::fmt::Write;

pub fn compile(args: &CompileArgs) -> Result<()> {
    let machine = pando_machine::load(&args.options.system)?;
    let text = match load(&args.model)? {
        Model::Graph(module) => graph_text(&prepared(&module, &args.options)?, &machine, args),
        Model::Tile(program) => tile_text(&program, &machine, args.stop_after),
    }
    .map_err(|error| error.with_file(&args.model.model.display().to_string()))?;
    if args.json {
        let pass = format!("{:?}", args.stop_after).to_lowercase();
        return print_json(&serde_json::json!({ "pass": pass, "text": text }));
    }
    print(&text)
}

/// What the user's options mean to the compiler.
pub fn lower_options(options: &CompileOptions, machine: &Machine) -> Result<Options> {
    let proportion = options.available_memory_proportion;
    if !(0.0..=1.0).contains(&proportion) {
        return Err(Error::new(format!("--available-memory-proportion {proportion} is not between 0 and 1")));
    }
    let replicas = options.replicas.unwrap_or(machine.chips.into());
    if replicas > machine.chips.into() {
        return Err(Error::new(format!(
            "--replicas {replicas}: {} has {} chips, and each replica takes one",
            machine.name, machine.chips
        )));
    }
    Ok(Options {
        available_memory_proportion: proportion,
        half_partials: options.precision == Some(crate::args::Precision::F16),
        replicas,
        ..Options::default()
    })
}

fn graph_text(module: &pando_graph::Module, machine: &Machine, args: &CompileArgs) -> Result<String> {
    let options = lower_options(&args.options, machine)?;
    match args.stop_after {
        Pass::Graph => Ok(pando_graph::print(module)),
        Pass::Inline => Ok(pando_graph::print(&inline_calls(module)?)),
        Pass::Plan => {
            let inlined = inline_calls(module)?;
            supported(&inlined)?;
            Ok(print_plan(&inlined, &plan(&inlined, machine, &options)?))
        }
        pass => {
            let compiled = compile_module(module, machine, &options)?;
            match pass {
                Pass::Place => Ok(placement_text(&compiled.emitted, &compiled.placed)),
                _ => tile_text(&compiled.emitted.program, machine, pass),
            }
        }
    }
}

fn tile_text(program: &Program, machine: &Machine, pass: Pass) -> Result<String> {
    match pass {
        Pass::Tile => Ok(pando_tile::print(program)),
        Pass::Expand => Ok(pando_tile::print(&expand(program).0)),
        Pass::Place => {
            let placed = pando_lower::place(program, machine);
            Ok(addresses(program, &placed))
        }
        _ => Err(Error::new(
            format!("a tile program has no pass '{pass:?}'; use tile, place or expand").to_lowercase(),
        )),
    }
}

fn placement_text(emitted: &Emitted, placed: &Placed) -> String {
    addresses(&emitted.program, placed)
}

/// One line a variable: address, bytes on the fullest tile, life in steps.
fn addresses(program: &Program, placed: &Placed) -> String {
    let mut out = format!("fixed memory 0..{}\n", placed.base_bytes);
    let mut rows: Vec<_> = program
        .vars
        .iter()
        .filter_map(|(id, var)| {
            let (first, last) = placed.live.ranges[id]?;
            Some((placed.placement.offset_bytes[id], var.max_tile_bytes(), first, last, &var.name))
        })
        .collect();
    rows.sort();
    for (offset, bytes, first, last, name) in rows {
        let _ = writeln!(out, "{offset:>7} {bytes:>7} bytes  steps {first:>4}..={last:<4} %{name}");
    }
    out
}

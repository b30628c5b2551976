//! `pando compile --stop-after PASS`: the text of either IR.

use crate::args::{CompileArgs, CompileOptions, Pass, Precision};
use crate::commands::profile::refuse_unsound;
use crate::for_inputs::load_and;
use crate::model::{Model, prepared};
use crate::output::{print, print_json};
use pando_base::{Error, Result};
use pando_lower::{
    Emitted, Options, Placed, compile as compile_module, inline_calls, plan, prepare, print_plan, supported,
};
use pando_machine::Machine;
use pando_tile::{Program, expand};
use std::fmt::Write;

pub fn compile(args: &CompileArgs) -> Result<()> {
    let machine = pando_machine::load(&args.options.system)?;
    let engine = pando_cpu::CompileOptions::default();
    let text = load_and(&args.model, &args.given, args.options.micro_batch, engine, |model, _| {
        match model {
            Model::Graph(model) => graph_text(&prepared(model.module, &args.options)?, &machine, args),
            Model::Tile(program) => tile_text(&program, &machine, args.stop_after),
        }
        .map_err(|error| error.with_file(&args.model.model.display().to_string()))
    })?;
    if args.json {
        let pass = format!("{:?}", args.stop_after).to_lowercase();
        return print_json(&serde_json::json!({ "pass": pass, "text": text }));
    }
    print(&text)
}

/// What the user's options mean to the compiler.
pub fn lower_options(options: &CompileOptions, machine: &Machine, stages: u64) -> Result<Options> {
    let proportion = options.available_memory_proportion;
    let replicas = options.replicas.unwrap_or((u64::from(machine.chips) / stages.max(1)).max(1));
    check_replicas(replicas, machine)?;
    Ok(Options {
        available_memory_proportion: proportion,
        half_partials: matches!(options.precision, Some(Precision::F16 | Precision::F8)),
        replicas,
        iterations: options.iterations.unwrap_or(1),
        io_tiles: options.io_tiles,
        prefetch: options.prefetch,
        ..Options::default()
    })
}

/// Each replica takes a chip.
pub fn check_replicas(replicas: u64, machine: &Machine) -> Result<()> {
    if replicas <= machine.chips.into() {
        return Ok(());
    }
    Err(Error::new(format!(
        "{replicas} replicas: {} has {} chip(s), and each replica takes one",
        machine.name, machine.chips
    )))
}

fn graph_text(module: &pando_graph::Module, machine: &Machine, args: &CompileArgs) -> Result<String> {
    let options = lower_options(&args.options, machine, 1)?;
    match args.stop_after {
        Pass::Graph => Ok(pando_graph::print(module)),
        Pass::Inline => Ok(pando_graph::print(&inline_calls(module)?)),
        Pass::Plan => {
            let inlined = prepare(module, machine, &options)?;
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
        Pass::Expand => {
            refuse_unsound(program)?;
            refuse_huge_expansion(program)?;
            Ok(pando_tile::print(&expand(program).0))
        }
        Pass::Place => {
            let placed = pando_lower::place(program, machine);
            Ok(addresses(program, &placed))
        }
        _ => Err(Error::new(
            format!("a tile program has no pass '{pass:?}'; use tile, place or expand").to_lowercase(),
        )),
    }
}

/// The explicit form is as large as the machine and the grids together.
fn refuse_huge_expansion(program: &Program) -> Result<()> {
    const MOST: u64 = 2_000_000;
    let vertices = program.compute_sets.values().flat_map(|set| &set.groups).map(|group| group.grid.len());
    let pieces = program.vars.values().map(|var| var.home.grid.len());
    let lines = vertices.chain(pieces).fold(0u64, u64::saturating_add);
    if lines <= MOST {
        return Ok(());
    }
    Err(Error::new(format!(
        "the explicit form would have {lines} lines or more; expand at most {MOST}, on a smaller system"
    )))
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

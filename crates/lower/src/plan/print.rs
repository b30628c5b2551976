//! The plan as text: one line per value, with its method where there is a choice.

use super::matmul::{BATCH, COLUMNS, DimSplit, INNER, ROWS};
use super::{Method, Plan};
use crate::prepare::value_name;
use pando_graph::{Func, Module, NodeId, ValueId};
use pando_tile::{Layout, Span};
use std::fmt::Write;

/// Text of a plan for the first function of an inlined module and, inside it, for those that it runs.
pub fn print_plan(module: &Module, plan: &Plan) -> String {
    let func = module.funcs.values().next().expect("an inlined module has a function");
    let mut out = String::new();
    print_func(module, func, plan, 0, &mut out);
    out
}

fn print_func(module: &Module, func: &Func, plan: &Plan, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    for &param in &func.params {
        let op = if depth == 0 { "input" } else { "parameter" };
        writeln!(out, "{indent}{}", line(func, plan, param, op, None)).expect("writing to a string");
    }
    for (id, node) in func.nodes.iter() {
        for &result in &node.results {
            writeln!(out, "{indent}{}", line(func, plan, result, node.op.name(), Some(id)))
                .expect("writing to a string");
        }
        if let Some(Method::Serial(serial)) = &plan.methods[id] {
            print_func(module, &serial.func, &serial.plan, depth + 1, out);
        }
        if let Some(Method::Control(plans)) = &plan.methods[id] {
            for (inner, plan) in node.op.funcs().into_iter().zip(plans) {
                writeln!(out, "{indent}  @{}", module.funcs[inner].name).expect("writing to a string");
                print_func(module, &module.funcs[inner], plan, depth + 2, out);
            }
        }
    }
}

fn line(func: &Func, plan: &Plan, value: ValueId, op: &str, node: Option<NodeId>) -> String {
    let layout = plan.layouts[value].as_ref().map_or_else(|| "none".into(), print_layout);
    let method = node.and_then(|id| plan.methods[id].as_ref()).map_or_else(String::new, print_method);
    let text = format!("{} = {op} : {}  {layout}{method}", value_name(func, value), func.ty(value));
    text.trim_end().to_string()
}

fn print_layout(layout: &Layout) -> String {
    let spans: Vec<String> = layout.region.iter().map(Span::to_string).collect();
    format!("{} [{}]", layout.grid, spans.join(", "))
}

fn print_method(method: &Method) -> String {
    match method {
        Method::Direct | Method::Control(_) | Method::WindowGradient(_) => String::new(),
        Method::Fused => "  fused".into(),
        Method::Kept => "  fused, kept".into(),
        Method::View => "  view".into(),
        Method::Matmul(plan) => {
            let [inner, batch, rows, columns] =
                [INNER, BATCH, ROWS, COLUMNS].map(|role| print_cuts(&plan.cuts[role]));
            format!(
                "  {}split inner={inner} batch={batch} rows={rows} columns={columns}{} partials={}{} cycles={} temporary={}",
                if plan.swapped { "swapped " } else { "" },
                match plan.stays {
                    Some(0) => " inputs=stay",
                    Some(_) => " weights=stay",
                    None => "",
                },
                plan.partials,
                print_stages(&plan.stages),
                plan.cost.cycles(),
                plan.cost.temporary_bytes
            )
        }
        Method::Conv(plan) => {
            let [input, kernel, batch, height, width, output] = plan.parts;
            format!(
                "  {} by {} split input_channels={input} kernel={kernel} batch={batch} field={height}x{width} output_channels={output}{} cycles={} temporary={}",
                plan.attrs.method.name(),
                plan.vertex,
                print_stages(&plan.stages),
                plan.cost.cycles(),
                plan.cost.temporary_bytes
            )
        }
        Method::Serial(plan) => format!(
            "  {} slices of {}, in chunks of {} cycles={} temporary={}",
            plan.cut.slices, plan.cut.name, plan.cut.chunk, plan.cycles, plan.temporary_bytes
        ),
        Method::Sparse(plan) => {
            let [columns, batch, rows] = plan.parts;
            format!(
                "  split columns={columns} batch={batch} rows={rows} partials={}{} cycles={}",
                plan.partials,
                print_stages(&plan.stages),
                plan.cycles
            )
        }
        Method::Scatter(plan) => {
            let [updates, rows, width] = plan.parts;
            format!(
                "  split updates={updates} rows={rows} width={width}{} cycles={}",
                print_stages(&plan.stages),
                plan.cycles
            )
        }
        Method::Sort(plan) => format!("  split line={} cycles={}", plan.parts, plan.cycles),
        Method::Gather(plan) => {
            let [rows, indices, width] = plan.parts;
            format!(
                "  split rows={rows} indices={indices} width={width}{} cycles={}",
                print_stages(&plan.stages),
                plan.cycles
            )
        }
    }
}

/// Parts of each dimension that is cut: `16*12`.
fn print_cuts(cuts: &[DimSplit]) -> String {
    let parts: Vec<String> = cuts.iter().map(|cut| cut.parts.to_string()).collect();
    if parts.is_empty() { "1".into() } else { parts.join("*") }
}

fn print_stages(stages: &[u64]) -> String {
    if stages.is_empty() { String::new() } else { format!(" stages={stages:?}") }
}

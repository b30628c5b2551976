//! Program to text.

use super::kernels::print_attributes;
use crate::program::{Copy, CopyMap, Group, Init, PREFETCH, Program, Role, SrcIndex, Step, Var, VarId};
use crate::span::Span;
use pando_base::Tensor;
use std::fmt::Write;

/// The text of a program, ending in a newline.
pub fn print(program: &Program) -> String {
    let mut out =
        format!("program {} tiles={} replicas={}", quoted(&program.name), program.tiles, program.replicas);
    if program.prefetch != PREFETCH {
        write!(out, " prefetch={}", program.prefetch).expect("writing to a string");
    }
    out.push('\n');
    for var in program.vars.values() {
        writeln!(out, "{}", print_var(var)).expect("writing to a string");
    }
    for (id, set) in program.compute_sets.iter() {
        writeln!(out, "compute {id} {} {{", quoted(&set.name)).expect("writing to a string");
        for group in &set.groups {
            writeln!(out, "  {}", print_group(program, group)).expect("writing to a string");
        }
        out.push_str("}\n");
    }
    for (id, exchange) in program.exchanges.iter() {
        writeln!(out, "exchange {id} {} {{", quoted(&exchange.name)).expect("writing to a string");
        for copy in &exchange.copies {
            writeln!(out, "  {}", print_copy(program, copy)).expect("writing to a string");
        }
        out.push_str("}\n");
    }
    out.push_str("main {\n");
    print_steps(program, &program.body, 1, &mut out);
    out.push_str("}\n");
    out
}

pub fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

fn print_var(var: &Var) -> String {
    let role = match &var.role {
        Role::Temp => "temp".to_string(),
        Role::Input => "input".to_string(),
        Role::Output => "output".to_string(),
        Role::State => "state".to_string(),
        Role::Constant(Init::Extern) => "const extern".to_string(),
        Role::Constant(Init::Splat(value)) => format!("const splat({})", float(*value)),
        Role::Constant(Init::Dense(tensor)) => format!("const [{}]", print_values(tensor)),
    };
    let region = print_region(&var.home.region);
    format!("var %{}: {}{} {role} {} {region}", var.name, var.dtype, var.shape, var.home.grid)
}

/// A float that reads back to the same bits (NaNs apart).
pub fn float(value: f64) -> String {
    if value.is_nan() { "nan".into() } else { format!("{value:?}") }
}

fn print_values(tensor: &Tensor) -> String {
    let values: Vec<String> = if tensor.dtype().is_float() {
        tensor.to_f64().into_iter().map(float).collect()
    } else {
        tensor.to_ints().iter().map(i128::to_string).collect()
    };
    values.join(", ")
}

fn print_region(region: &[Span]) -> String {
    let spans: Vec<String> = region.iter().map(Span::to_string).collect();
    format!("[{}]", spans.join(", "))
}

fn print_group(program: &Program, group: &Group) -> String {
    let operands: Vec<String> = group
        .operands
        .iter()
        .map(|operand| format!("%{}{}", program.vars[operand.var].name, print_region(&operand.region)))
        .collect();
    let attributes = print_attributes(&group.kernel);
    format!("{}{attributes} {} {}", group.kernel.name(), group.grid, operands.join(", "))
}

fn print_copy(program: &Program, copy: &Copy) -> String {
    let name = |var: VarId| format!("%{}", program.vars[var].name);
    let dsts: Vec<String> = copy.dsts.iter().map(|&dst| name(dst)).collect();
    let (dsts, src) = (dsts.join(", "), name(copy.src));
    match &copy.map {
        map if *map == CopyMap::identity(&program.vars[copy.dsts[0]].shape) => {
            format!("copy {dsts} <- {src}")
        }
        CopyMap::Affine { region, dims } => {
            let dims: Vec<String> = dims.iter().map(print_index).collect();
            format!("copy {dsts}{region} <- {src}[{}]", dims.join(", "))
        }
        CopyMap::Flat { src_begin, dst_begin, len } => {
            let range = |begin: u64| format!("[{begin}..{}]", begin + len);
            format!("copy flat {dsts}{} <- {src}{}", range(*dst_begin), range(*src_begin))
        }
    }
}

fn print_index(index: &SrcIndex) -> String {
    match *index {
        SrcIndex::At(at) => at.to_string(),
        SrcIndex::Dst { dim, step, offset } => {
            let step = if step == 1 { String::new() } else { format!("*{step}") };
            let offset = if offset == 0 { String::new() } else { format!("+{offset}") };
            format!("d{dim}{step}{offset}")
        }
    }
}

fn names(program: &Program, vars: &[VarId]) -> String {
    let names: Vec<String> = vars.iter().map(|&var| format!("%{}", program.vars[var].name)).collect();
    names.join(", ")
}

fn print_steps(program: &Program, steps: &[Step], depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    for step in steps {
        match step {
            Step::Compute(id) => writeln!(out, "{indent}compute {id}"),
            Step::Exchange(id) => writeln!(out, "{indent}exchange {id}"),
            Step::HostIn(var) => writeln!(out, "{indent}host.in %{}", program.vars[*var].name),
            Step::HostOut(var) => writeln!(out, "{indent}host.out %{}", program.vars[*var].name),
            Step::Repeat { count, body } => {
                writeln!(out, "{indent}repeat {count} {{").expect("writing to a string");
                print_steps(program, body, depth + 1, out);
                writeln!(out, "{indent}}}")
            }
            Step::Stream { count, load, body, store } => {
                writeln!(out, "{indent}stream {count} load {{").expect("writing to a string");
                print_steps(program, load, depth + 1, out);
                writeln!(out, "{indent}}} work {{").expect("writing to a string");
                print_steps(program, body, depth + 1, out);
                writeln!(out, "{indent}}} store {{").expect("writing to a string");
                print_steps(program, store, depth + 1, out);
                writeln!(out, "{indent}}}")
            }
            Step::If { flags, then_body, else_body } => {
                writeln!(out, "{indent}if {} {{", names(program, flags)).expect("writing to a string");
                print_steps(program, then_body, depth + 1, out);
                writeln!(out, "{indent}}} else {{").expect("writing to a string");
                print_steps(program, else_body, depth + 1, out);
                writeln!(out, "{indent}}}")
            }
            Step::While { cond, flags, body, trips } => {
                let flags = names(program, flags);
                writeln!(out, "{indent}while {flags} trips {trips} {{").expect("writing to a string");
                print_steps(program, cond, depth + 1, out);
                writeln!(out, "{indent}}} do {{").expect("writing to a string");
                print_steps(program, body, depth + 1, out);
                writeln!(out, "{indent}}}")
            }
        }
        .expect("writing to a string");
    }
}

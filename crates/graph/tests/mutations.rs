//! Goal: no text makes the parser, the printer, the builder or the evaluator panic. Method: the files
//! under tests/ops and random programs, with a few edits each; what still parses is printed, read again,
//! rebuilt and run under tight limits (PANDO_SEEDS sets the number of edits per text).

use pando_base::Tensor;
use pando_graph::generate::{GenerateOptions, Source, generate};
use pando_graph::testing::run_lines;
use pando_graph::{EvalOptions, Module, eval_with, fuzz_parse, parse, print, random, rebuild, validate};
use std::path::PathBuf;

const NUMBERS: [&str; 8] = [
    "0",
    "1",
    "4294967296",
    "18446744073709551615",
    "9223372036854775807",
    "-9223372036854775808",
    "-1",
    "N",
];

fn rounds() -> u64 {
    std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

/// A few edits, taken mostly from the text itself so that they make sense.
fn mutated(text: &str, seed: u64) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut draws = (0..).map(|index| random::bits(seed, index) as usize);
    let mut draw = |below: usize| draws.next().expect("draws do not end") % below.max(1);
    for _ in 0..1 + draw(3) {
        let (at, from, length) = (draw(bytes.len()), draw(bytes.len()), 1 + draw(12));
        let end = (at + length).min(bytes.len());
        let piece: Vec<u8> = bytes[from..(from + length).min(bytes.len())].to_vec();
        // Numbers in attributes, types and constants; not those in names.
        let number = (at + 1..bytes.len())
            .find(|&i| bytes[i].is_ascii_digit() && b"[,:=".contains(&bytes[i - 1]))
            .unwrap_or(at);
        let digits = bytes[number..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        match draw(12) {
            0 => drop(bytes.splice(at..at, [b"0123456789[]:,%@=-x. \n"[draw(22)]])),
            1 => drop(bytes.splice(at..at, piece)),
            2 => drop(bytes.drain(at..end)),
            3 => drop(bytes.splice(at..end, piece)),
            _ => drop(bytes.splice(number..number + digits, NUMBERS[draw(NUMBERS.len())].bytes())),
        }
        if bytes.is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The text with stated types replaced by inferred ones where they differ, so that an edited attribute
/// is not refused for the type behind it.
fn repaired(mut text: String) -> String {
    for _ in 0..6 {
        let Err(error) = parse(&text, "t") else { break };
        let types =
            error.message().split_once(" is stated as ").and_then(|(_, rest)| rest.split_once(" but is "));
        let Some((stated, inferred)) = types else { break };
        text = text.replace(stated, inferred);
    }
    text
}

fn exercise(text: &str, runs: &[(String, Vec<Tensor>)]) {
    fuzz_parse(text.as_bytes());
    let Ok(module) = parse(text, "t") else { return };
    let rebuilt = rebuild(&module).unwrap();
    validate(&rebuilt).unwrap();
    let options = EvalOptions { max_steps: 1000, max_bytes: 1 << 18 };
    let run = |module: &Module, func: &str, args: &[Tensor]| {
        let id = module.func_named(func)?;
        eval_with(module, id, args, &options).ok()
    };
    for (func, args) in runs {
        // Either may hit the limits where the other does not.
        if let (Some(a), Some(b)) = (run(&module, func, args), run(&rebuilt, func, args)) {
            pando_graph::testing::compare(&b, &a, 0.0).unwrap();
        }
    }
}

fn exercise_mutations(name: &str, text: &str, runs: &[(String, Vec<Tensor>)], seed: u64) {
    for round in 0..rounds() {
        let mutant = repaired(mutated(text, seed << 32 | round));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| exercise(&mutant, runs)));
        assert!(result.is_ok(), "{name}, round {round}:\n{mutant}");
    }
}

#[test]
fn test_files() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/ops");
    for (seed, entry) in std::fs::read_dir(root).unwrap().enumerate() {
        let path = entry.unwrap().path();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let runs: Vec<_> = run_lines(&text).unwrap().into_iter().map(|run| (run.func, run.args)).collect();
        let body: String =
            text.lines().filter(|line| !line.starts_with(';')).map(|l| l.to_string() + "\n").collect();
        exercise_mutations(&path.display().to_string(), &body, &runs, seed as u64);
    }
}

#[test]
fn random_programs() {
    for seed in 0..100 {
        let bytes = Source::seeded_bytes(seed, 300);
        let program = generate(&mut Source::new(&bytes), &GenerateOptions::default());
        let runs = [("main".to_string(), program.inputs)];
        exercise_mutations("random", &print(&program.module), &runs, seed + 1000);
    }
}

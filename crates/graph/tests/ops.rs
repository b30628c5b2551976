//! Goal: every op computes what NumPy computes, and every broken rule is reported where it stands.
//! Method: the files under tests/ops at the workspace root. Each is parsed, printed and parsed again, run
//! by the evaluator, and run again after the builder has rewritten it.

use pando_base::Tensor;
use pando_graph::testing::{compare, error_lines, run_lines, tolerance};
use pando_graph::{Module, eval, parse, print, rebuild};
use std::path::PathBuf;

fn files(folder: &str) -> Vec<(String, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(folder);
    let entries = std::fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "graph")).collect();
    paths.sort();
    let read = |path: PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into(), std::fs::read_to_string(&path).unwrap())
    };
    paths.into_iter().map(read).collect()
}

fn run(module: &Module, func: &str, args: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let id = module.func_named(func).ok_or_else(|| format!("there is no @{func}"))?;
    eval(module, id, args).map_err(|error| error.to_string())
}

/// All disagreements of a file.
fn failures(name: &str, text: &str) -> Vec<String> {
    let module = match parse(text, name) {
        Ok(module) => module,
        Err(error) => return vec![error.to_string()],
    };
    let printed = print(&module);
    assert_eq!(print(&parse(&printed, name).unwrap()), printed);
    let rebuilt = rebuild(&module).unwrap();
    let (runs, tolerance) = (run_lines(text).unwrap(), tolerance(text).unwrap());
    assert!(!runs.is_empty(), "{name} runs nothing");
    let mut failures = Vec::new();
    for line in runs {
        for (which, module) in [("evaluator", &module), ("rebuilt", &rebuilt)] {
            let result = run(module, &line.func, &line.args)
                .and_then(|actual| compare(&actual, &line.expected, tolerance).map_err(|e| e.to_string()));
            failures.extend(result.err().map(|error| format!("{name}:{} ({which}): {error}", line.line)));
        }
    }
    failures
}

#[test]
fn values_are_those_of_numpy() {
    let files = files("ops");
    assert!(files.len() > 80, "only {} files", files.len());
    let failures: Vec<String> = files.iter().flat_map(|(name, text)| failures(name, text)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn errors_stand_on_the_offending_line() {
    for (name, text) in files("ops/errors") {
        let expected = error_lines(&text);
        assert_eq!(expected.len(), 1, "{name} states one error");
        let error = parse(&text, &name).expect_err(&name);
        assert_eq!(error.position().map(|(line, _)| line), Some(expected[0].line), "{error}");
        assert!(error.message().contains(&expected[0].text), "{error}\nexpected: {}", expected[0].text);
    }
}

/// Every op of the text format occurs in some file.
#[test]
fn files_cover_every_op() {
    let text: String = files("ops").into_iter().map(|(_, text)| text).collect();
    for op in pando_graph::text::op_names() {
        assert!(text.contains(&format!("= {op} ")), "no file has the op {op}");
    }
}

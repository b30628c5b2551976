//! Goal: the ONNX standard's own node tests, and random models of single operators, give the right outputs.
//! Method: import each model and run it with the graph's reference evaluator and with the engine for this
//! computer, on the folders that `generate_node_tests.py` and `random_ops.py` write (`run_node_tests.sh` does
//! all of it); skipped unless PANDO_ONNX_NODE_TESTS and PANDO_ONNX_RANDOM_TESTS name them. A model is imported
//! without its inputs first; where sizes depend on them, with the inputs as a sample. Strings, sequences and
//! optionals are always given. Failures must be exactly those of `tests/onnx/known_failures.txt`.
//! PANDO_ONNX_FILTER runs a part and prints every error; PANDO_ONNX_WRITE writes the list anew.

use pando_base::Tensor;
use pando_cpu::CompileOptions;
use pando_graph::EvalOptions;
use pando_onnx::elem::Elem;
use pando_onnx::proto::{GraphProto, OptionalProto, SequenceProto, TensorProto, TypeValue, ValueInfoProto};
use pando_onnx::{Data, Given, Imported, Options, OutputValue, Sample, decode, parse, tensors};
use prost::Message;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What was known when the model was imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Nothing,
    Inputs,
}

/// How a test went with each way to run a graph; twice the same where there is one way only.
struct Outcome {
    evaluator: Result<Mode, String>,
    engine: Result<Mode, String>,
    /// Whether the test is on tensors of numbers alone.
    numbers: bool,
}

impl Outcome {
    /// The first thing that went wrong.
    fn error(&self) -> Option<String> {
        let engine = || self.engine.as_ref().err().map(|error| format!("on the engine: {error}"));
        self.evaluator.as_ref().err().cloned().or_else(engine)
    }
}

#[test]
fn the_standards_node_tests() {
    let Some(results) = results_in("PANDO_ONNX_NODE_TESTS") else { return };
    report("node tests", &results);
    report_numbers(&results);
    if std::env::var_os("PANDO_ONNX_FILTER").is_none() {
        check_against_list(&results);
    }
}

#[test]
fn random_operators_agree_with_onnx_runtime() {
    let Some(results) = results_in("PANDO_ONNX_RANDOM_TESTS") else { return };
    report("random operators", &results);
    let errors = results.iter().filter_map(|(name, outcome)| Some(format!("{name}: {}\n", outcome.error()?)));
    let errors: String = errors.collect();
    assert!(errors.is_empty(), "{errors}");
}

/// Opt-in: `run_real_models.sh`. Whole models are too much for the evaluator.
#[test]
fn real_models_agree_with_onnx_runtime() {
    let Some(results) = results_with("PANDO_ONNX_MODEL_TESTS", &[run_on_engine]) else { return };
    for (name, outcome) in &results {
        println!("{name}: {}", outcome.error().unwrap_or(format!("{:?}", outcome.engine)));
    }
    assert!(results.values().all(|outcome| outcome.engine.is_ok()));
}

fn results_in(variable: &str) -> Option<BTreeMap<String, Outcome>> {
    results_with(variable, &[run_on_engine, evaluate])
}

/// Runs the tests in the folder that a variable names.
fn results_with(variable: &str, ways: &[Run]) -> Option<BTreeMap<String, Outcome>> {
    let Some(folder) = std::env::var_os(variable).map(PathBuf::from) else {
        println!("skipped: {variable} is not set; run crates/onnx/tests/run_node_tests.sh");
        return None;
    };
    let filter = std::env::var("PANDO_ONNX_FILTER").ok();
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases.retain(|case| filter.as_ref().is_none_or(|filter| name_of(case).contains(filter.as_str())));
    assert!(filter.is_some() || !cases.is_empty(), "{} holds no tests", folder.display());
    let results = run_all(&cases, ways);
    if filter.is_some() {
        let errors = results.iter().filter_map(|(name, outcome)| Some((name, outcome.error()?)));
        errors.for_each(|(name, error)| println!("{name}: {error}"));
    }
    Some(results)
}

fn run_all(cases: &[PathBuf], ways: &[Run]) -> BTreeMap<String, Outcome> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let worker = || loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(case) = cases.get(at) else { return };
                let outcome = run_case(case, ways);
                results.lock().unwrap().insert(name_of(case), outcome);
            };
            // Composites of expanded models nest deeply in the evaluator.
            std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, worker).unwrap();
        }
    });
    results.into_inner().unwrap()
}

fn name_of(case: &Path) -> String {
    case.file_name().unwrap().to_string_lossy().into_owned()
}

fn report(what: &str, results: &BTreeMap<String, Outcome>) {
    let outcomes: Vec<&Outcome> = results.values().collect();
    report_some(what, &outcomes);
}

fn report_numbers(results: &BTreeMap<String, Outcome>) {
    let outcomes: Vec<&Outcome> = results.values().filter(|outcome| outcome.numbers).collect();
    report_some("tensors of numbers only", &outcomes);
}

fn report_some(what: &str, outcomes: &[&Outcome]) {
    let line = |how: &str, result: &dyn Fn(&Outcome) -> &Result<Mode, String>| {
        let passed = |mode| outcomes.iter().filter(|outcome| *result(outcome) == Ok(mode)).count();
        let (nothing, inputs) = (passed(Mode::Nothing), passed(Mode::Inputs));
        println!(
            "{what}, {how}: {} of {} pass ({:.1} %), {inputs} of them imported for their inputs",
            nothing + inputs,
            outcomes.len(),
            100.0 * (nothing + inputs) as f64 / outcomes.len().max(1) as f64,
        );
    };
    line("evaluator", &|outcome| &outcome.evaluator);
    line("engine", &|outcome| &outcome.engine);
}

fn list_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/onnx/known_failures.txt")
}

fn check_against_list(results: &BTreeMap<String, Outcome>) {
    if std::env::var_os("PANDO_ONNX_WRITE").is_some() {
        let mut text = String::from(
            "# Node tests of the standard that fail, and why. Checked by crates/onnx/tests/node_tests.rs.\n",
        );
        for (name, outcome) in results {
            if let Some(error) = outcome.error() {
                let line: String = error.split_whitespace().collect::<Vec<_>>().join(" ");
                writeln!(text, "{name}: {line}").unwrap();
            }
        }
        std::fs::write(list_path(), text).unwrap();
        return;
    }
    let list = std::fs::read_to_string(list_path()).unwrap();
    let known: Vec<&str> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(": "))
        .map(|l| l.0)
        .collect();
    let mut surprises = String::new();
    for (name, outcome) in results {
        match (outcome.error(), known.contains(&name.as_str())) {
            (Some(error), false) => writeln!(surprises, "{name} fails: {error}").unwrap(),
            (None, true) => writeln!(surprises, "{name} passes: take it off the list").unwrap(),
            _ => {}
        }
    }
    let gone = known.iter().filter(|name| !results.contains_key(**name));
    gone.for_each(|name| writeln!(surprises, "{name} is listed but there is no such test").unwrap());
    assert!(surprises.is_empty(), "{surprises}");
}

fn run_case(case: &Path, ways: &[Run]) -> Outcome {
    let bytes = std::fs::read(case.join("model.onnx")).unwrap();
    let model = decode(bytes.clone().into()).unwrap();
    let graph = model.graph.as_ref().unwrap();
    let numbers = graph.input.iter().chain(&graph.output).all(is_numbers);
    let run = |how: Run| {
        let run = || run_model(case, graph, &bytes, how);
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        })
    };
    let results: Vec<_> = ways.iter().map(|&how| run(how)).collect();
    Outcome { engine: results[0].clone(), evaluator: results[results.len() - 1].clone(), numbers }
}

/// A way to run a graph.
type Run = fn(&pando_graph::Module, &[Tensor]) -> pando_base::Result<Vec<Tensor>>;

fn evaluate(module: &pando_graph::Module, args: &[Tensor]) -> pando_base::Result<Vec<Tensor>> {
    let options = EvalOptions { max_steps: 1_000_000, max_bytes: 4 << 30 };
    pando_graph::eval_with(module, module.main().unwrap(), args, &options)
}

fn run_on_engine(module: &pando_graph::Module, args: &[Tensor]) -> pando_base::Result<Vec<Tensor>> {
    pando_cpu::compile(module, &CompileOptions { threads: 1, ..CompileOptions::default() })?.run(args)
}

fn is_numbers(info: &ValueInfoProto) -> bool {
    match info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => Elem(tensor.elem_type).dtype().is_some(),
        _ => false,
    }
}

fn run_model(case: &Path, graph: &GraphProto, bytes: &[u8], run: Run) -> Result<Mode, String> {
    let tolerance = std::fs::read_to_string(case.join("tolerance.txt")).unwrap();
    let tolerance: Vec<f64> = tolerance.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let mut worst = Mode::Nothing;
    for number in 0.. {
        let data = case.join(format!("data_{number}"));
        if !data.is_dir() {
            break;
        }
        let inputs = read_values(&data, "input", &graph.input)?;
        let expected = read_values(&data, "output", &graph.output)?;
        let mut failed = String::new();
        let mut passed = None;
        // As a session does: what cannot be translated or bound for all inputs is for these.
        for mode in [Mode::Nothing, Mode::Inputs] {
            let results = import_in(mode, bytes, case, &inputs, run)
                .and_then(|imported| Ok((results_of(&imported, &inputs, run)?, imported)));
            match results {
                Ok((results, imported)) => {
                    check(&imported, &results, &expected, (tolerance[0], tolerance[1]))?;
                    passed = Some(mode);
                    break;
                }
                Err(error) => failed = error,
            }
        }
        worst = worst.max(passed.ok_or(failed)?);
    }
    Ok(worst)
}

fn import_in(
    mode: Mode,
    bytes: &[u8],
    case: &Path,
    inputs: &[(String, Given)],
    run: Run,
) -> Result<Imported, String> {
    let mut options = Options::default();
    let mut sample = Vec::new();
    for (name, given) in inputs {
        match given {
            Given::Data(Data::Numbers(tensor, _)) => sample.push((name.clone(), tensor.clone())),
            _ => options.values.push((name.clone(), given.clone())),
        }
    }
    options.sample = (mode == Mode::Inputs).then(|| Sample { inputs: sample, evaluate: Arc::new(run) });
    parse(bytes.to_vec().into(), "model.onnx", Some(case), &options).map_err(|error| error.to_string())
}

fn results_of(imported: &Imported, inputs: &[(String, Given)], run: Run) -> Result<Vec<Tensor>, String> {
    let argument = |name: &String| match inputs.iter().find(|(known, _)| known == name) {
        Some((_, Given::Data(Data::Numbers(tensor, _)))) => Ok(tensor.clone()),
        _ => Err(format!("no value for the input {name}")),
    };
    let args = imported.inputs.iter().map(|input| argument(&input.name)).collect::<Result<Vec<_>, _>>()?;
    pando_graph::validate(&imported.module).map_err(|error| error.to_string())?;
    run(&imported.module, &args).map_err(|error| error.to_string())
}

fn check(
    imported: &Imported,
    results: &[Tensor],
    expected: &[(String, Given)],
    tolerance: (f64, f64),
) -> Result<(), String> {
    if imported.outputs.len() != expected.len() {
        return Err(format!("{} outputs instead of {}", imported.outputs.len(), expected.len()));
    }
    for (output, (name, expected)) in imported.outputs.iter().zip(expected) {
        compare(&output.value, expected, results, tolerance)
            .map_err(|error| format!("output {name}: {error}"))?;
    }
    Ok(())
}

fn compare(
    found: &OutputValue,
    expected: &Given,
    results: &[Tensor],
    tolerance: (f64, f64),
) -> Result<(), String> {
    match (found, expected) {
        (OutputValue::Result(at, elem), Given::Data(Data::Numbers(tensor, expected_elem))) => {
            if elem != expected_elem {
                return Err(format!("{elem} instead of {expected_elem}"));
            }
            compare_tensors(&results[*at], tensor, tolerance)
        }
        (OutputValue::Text(found), Given::Data(Data::Text(expected))) => match found == expected {
            true => Ok(()),
            false => Err(format!("{found:?} instead of {expected:?}")),
        },
        (OutputValue::List(found), Given::List(expected)) if found.len() == expected.len() => {
            let mut pairs = found.iter().zip(expected);
            pairs.try_for_each(|(found, expected)| compare(found, expected, results, tolerance))
        }
        (OutputValue::Absent, Given::Absent) => Ok(()),
        _ => Err(format!("{found:?} instead of {expected:?}").chars().take(300).collect()),
    }
}

/// As NumPy's assert_allclose: |actual - desired| <= atol + rtol |desired|.
fn compare_tensors(found: &Tensor, expected: &Tensor, (rtol, atol): (f64, f64)) -> Result<(), String> {
    if (found.dtype(), found.shape()) != (expected.dtype(), expected.shape()) {
        let show = |t: &Tensor| format!("{}{}", t.dtype(), t.shape());
        return Err(format!("{} instead of {}", show(found), show(expected)));
    }
    let close = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= atol + rtol * b.abs();
    for (at, (a, b)) in found.to_f64().into_iter().zip(expected.to_f64()).enumerate() {
        if !close(a, b) {
            return Err(format!("element {at} is {a} instead of {b}"));
        }
    }
    Ok(())
}

fn read_values(data: &Path, what: &str, infos: &[ValueInfoProto]) -> Result<Vec<(String, Given)>, String> {
    let mut values = Vec::new();
    for (position, info) in infos.iter().enumerate() {
        let Ok(bytes) = std::fs::read(data.join(format!("{what}_{position}.pb"))) else { continue };
        values.push((info.name.clone(), read_value(&bytes, info)?));
    }
    Ok(values)
}

fn read_value(bytes: &[u8], info: &ValueInfoProto) -> Result<Given, String> {
    let undecodable = |error: prost::DecodeError| error.to_string();
    match info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(_)) => tensor(&TensorProto::decode(bytes).map_err(undecodable)?),
        Some(TypeValue::Sequence(_)) => sequence(&SequenceProto::decode(bytes).map_err(undecodable)?),
        Some(TypeValue::Optional(_)) => {
            let optional = OptionalProto::decode(bytes).map_err(undecodable)?;
            match (&optional.tensor_value, &optional.sequence_value) {
                (Some(value), _) => tensor(value),
                (None, Some(value)) => sequence(value),
                (None, None) => Ok(Given::Absent),
            }
        }
        _ => Err(format!("the type of {} is not supported", info.name)),
    }
}

fn tensor(proto: &TensorProto) -> Result<Given, String> {
    tensors::read(proto, None).map(Given::Data).map_err(|error| error.to_string())
}

fn sequence(proto: &SequenceProto) -> Result<Given, String> {
    let tensors = proto.tensor_values.iter().map(tensor);
    let lists = proto.sequence_values.iter().map(sequence);
    tensors.chain(lists).collect::<Result<Vec<_>, _>>().map(Given::List)
}

//! Random programs in a session, against the same programs whose state a caller passes along.

use crate::network::options;
use pando_base::Tensor;
use pando_graph::generate::{GenerateOptions, Source, generate};
use pando_graph::{Module, print};
use pando_runtime::{Input, Program, Session};

fn seeds() -> u64 {
    std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

fn names(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{kind}{number}")).collect()
}

/// The first parameters are state, the last one is an input if there are several. Each result writes the first
/// state of its type that nothing has written yet; the others are outputs. Results are put in that order.
fn as_program(mut module: Module, state_count: usize) -> Program {
    let main = module.main().unwrap();
    let func = &mut module.funcs[main];
    let (mut writes, mut written, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for &result in &func.results {
        let fits = |&at: &usize| {
            func.ty(func.params[at]) == func.ty(result) && !writes.contains(&format!("state{at}"))
        };
        match (0..state_count).find(fits) {
            Some(at) => {
                writes.push(format!("state{at}"));
                written.push(result);
            }
            None => others.push(result),
        }
    }
    let (inputs, outputs) = (func.params.len() - state_count, others.len());
    func.results = written.into_iter().chain(others).collect();
    Program {
        module,
        reads: names("state", state_count),
        writes,
        inputs: names("input", inputs),
        outputs: names("output", outputs),
    }
}

fn check(module: Module, arguments: &[Tensor]) {
    let state_count = arguments.len().saturating_sub(1).max(1);
    let program = as_program(module, state_count);
    // As programs with state are.
    let plain = pando_cpu::CompileOptions { widen: false, ..options() };
    let plain = pando_cpu::compile(&program.module, &plain).unwrap();
    let (first, rest) = arguments.split_at(state_count);
    let mut expected = first.to_vec();
    let writes = program.writes.clone();
    let state = names("state", state_count).into_iter().zip(first.iter().cloned()).collect();
    let mut session = Session::new(vec![("p".into(), program)], state, &options()).unwrap();
    let inputs: Vec<Input> = rest.iter().map(Input::from).collect();
    for _ in 0..3 {
        let mut results = plain.run(&[&expected, rest].concat()).unwrap();
        let outputs = results.split_off(writes.len());
        for (name, tensor) in writes.iter().zip(results) {
            let place: usize = name["state".len()..].parse().unwrap();
            expected[place] = tensor;
        }
        assert_eq!(session.run("p", &inputs).unwrap(), outputs);
        let found: Vec<Tensor> = session.state_names().map(|name| session.state(name).unwrap()).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn sessions_keep_what_programs_write() {
    for seed in 0..seeds() {
        let bytes = Source::seeded_bytes(seed, 64 + seed as usize % 256);
        let options = GenerateOptions { named_dims: false, ..GenerateOptions::default() };
        let program = generate(&mut Source::new(&bytes), &options);
        if program.inputs.is_empty() {
            continue;
        }
        let result = std::panic::catch_unwind(|| check(program.module.clone(), &program.inputs));
        assert!(result.is_ok(), "seed {seed}:\n{}\n{:?}", print(&program.module), program.inputs);
    }
}

//! Goal: state updated in place is what the same program returns, run after run; what is prepared from state
//! follows its changes. Method: random programs some of whose values replace parameters, bit for bit against
//! the plain program fed with its own results; small programs for the cases that are easy to get wrong.

mod common;

use common::{options, run};
use pando_base::{DType, Shape, Tensor};
use pando_cpu::{CompileOptions, Input, Isa, Variable, compile, compile_stateful};
use pando_graph::generate::{GenerateOptions, Source, generate};
use pando_graph::testing::compare;
use pando_graph::{Module, ValueId, parse, print};

/// `main` with more results: for some parameters a value of their type.
fn with_updates(module: &Module, seed: u64) -> (Module, Vec<(usize, usize)>) {
    let mut module = module.clone();
    let main = module.main().unwrap();
    let func = &mut module.funcs[main];
    let mut aliases = Vec::new();
    for (index, &param) in func.params.clone().iter().enumerate() {
        let same = func.values.ids().filter(|&value| func.ty(value) == func.ty(param));
        let same: Vec<ValueId> = same.collect();
        let draw = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7 * index as u32) as usize;
        // The last ones are the most interesting; one in four parameters stays.
        if !draw.is_multiple_of(4) {
            let chosen = same[same.len() - 1 - draw / 4 % same.len().min(3)];
            aliases.push((index, func.results.len()));
            func.results.push(chosen);
        }
    }
    (module, aliases)
}

#[test]
fn runs_in_place_are_the_same_bits() {
    let seeds = std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let isas: Vec<Isa> = Isa::available().collect();
    let mut replaced = 0;
    for seed in 0..seeds {
        let bytes = Source::seeded_bytes(seed, 64 + seed as usize % 512);
        let program = generate(&mut Source::new(&bytes), &GenerateOptions::default());
        let (module, aliases) = with_updates(&program.module, seed);
        replaced += aliases.len();
        let check = || {
            let options = options(isas[seed as usize % isas.len()], 1 + seed as usize % 2, seed % 3 > 0);
            // As models with state are.
            let plain = compile(&module, &CompileOptions { widen: false, ..options.clone() }).unwrap();
            let count = program.inputs.len();
            let model = compile_stateful(module.clone(), count, &aliases, &options).unwrap();
            let mut state: Vec<Variable> = program.inputs.iter().cloned().map(Variable::new).collect();
            let mut inputs = program.inputs.clone();
            for _ in 0..3 {
                let expected = plain.run(&inputs).unwrap();
                let mut borrowed: Vec<&mut Variable> = state.iter_mut().collect();
                let others = model.run_in_place(&mut borrowed, &[]).unwrap();
                aliases.iter().for_each(|&(param, result)| inputs[param] = expected[result].clone());
                let kept = expected.len() - aliases.len();
                compare(&others, &expected[..kept], 0.0).unwrap();
                let found: Vec<Tensor> = state.iter().map(|variable| variable.to_tensor()).collect();
                compare(&found, &inputs, 0.0).unwrap();
            }
        };
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err() {
            panic!("seed {seed}, aliases {aliases:?}:\n{}\n{:?}", print(&module), program.inputs);
        }
    }
    assert!(replaced > 0);
}

fn f32s(sizes: &[u64], values: &[f64]) -> Tensor {
    Tensor::from_f64(DType::F32, Shape::new(sizes), values)
}

/// Runs a text's `main` in place; returns the other results.
fn step(model: &pando_cpu::Model, state: &mut [Variable], inputs: &[Tensor]) -> Vec<Tensor> {
    let inputs: Vec<Input> = inputs.iter().map(Input::from).collect();
    model.run_in_place(&mut state.iter_mut().collect::<Vec<_>>(), &inputs).unwrap()
}

fn compiled(text: &str, state: usize, aliases: &[(usize, usize)]) -> pando_cpu::Model {
    compile_stateful(parse(text, "test.graph").unwrap(), state, aliases, &CompileOptions::default()).unwrap()
}

#[test]
fn state_that_changes_places() {
    let text = "func @main(%a: f32[2], %b: f32[2]) -> f32[2], f32[2] {\n  return %b, %a\n}\n";
    let model = compiled(text, 2, &[(0, 0), (1, 1)]);
    let (a, b) = (f32s(&[2], &[1.0, 2.0]), f32s(&[2], &[3.0, 4.0]));
    let mut state = [Variable::new(a.clone()), Variable::new(b.clone())];
    assert!(step(&model, &mut state, &[]).is_empty());
    assert_eq!([state[0].to_tensor(), state[1].to_tensor()], [b, a]);
}

/// A clone of a variable's tensor keeps the old elements.
#[test]
fn clones_stay_as_they_were() {
    let text = "func @main(%a: f32[2], %x: f32[2]) -> f32[2] {\n  %y = add %a, %x : f32[2]\n  return %y\n}\n";
    let model = compiled(text, 1, &[(0, 0)]);
    let old = f32s(&[2], &[1.0, 2.0]);
    let mut state = [Variable::new(old.clone())];
    step(&model, &mut state, &[f32s(&[2], &[10.0, 10.0])]);
    assert_eq!(old, f32s(&[2], &[1.0, 2.0]));
    assert_eq!(state[0].to_tensor(), f32s(&[2], &[11.0, 12.0]));
}

/// Memory that is lent is written where it lies.
#[test]
#[allow(unsafe_code)]
fn lent_memory_is_updated_in_place() {
    let text = "func @main(%a: f32[2], %x: f32[2]) -> f32[2] {\n  %y = add %a, %x : f32[2]\n  return %y\n}\n";
    let model = compiled(text, 1, &[(0, 0)]);
    let mut lender = f32s(&[2], &[1.0, 2.0]);
    let address = std::ptr::NonNull::new(lender.bytes_mut().as_mut_ptr()).unwrap();
    // SAFETY: the tensor outlives the variable, and is looked at after it only.
    let mut state = [unsafe { Variable::lent(DType::F32, lender.shape().clone(), address) }];
    step(&model, &mut state, &[f32s(&[2], &[10.0, 10.0])]);
    assert_eq!(state[0].to_tensor(), f32s(&[2], &[11.0, 12.0]));
    state[0].set(f32s(&[2], &[5.0, 6.0]));
    step(&model, &mut state, &[f32s(&[2], &[1.0, 1.0])]);
    drop(state);
    assert_eq!(lender, f32s(&[2], &[6.0, 7.0]));
}

/// The memory of replaced state stays where it is, and nothing is made beside it.
#[test]
fn updates_are_written_where_the_state_is() {
    let text = "func @main(%w: f32[64,64], %m: f32[64,64], %x: f32[8,64], %d: f32[8,64]) -> f32[8,64], f32[64,64], f32[64,64] {
  %y = dot %x, %w contract=[1:0] : f32[8,64]
  %g = dot %x, %d contract=[0:0] : f32[64,64]
  %n = add %m, %g : f32[64,64]
  %v = sub %w, %n : f32[64,64]
  return %y, %n, %v
}
";
    let model = compiled(text, 2, &[(1, 1), (0, 2)]);
    let normal = |seed, sizes: &[u64]| {
        pando_graph::ConstData::Normal { seed, mean: 0.0, std: 1.0 }
            .materialize(DType::F32, &Shape::new(sizes))
    };
    let tensors = [normal(1, &[64, 64]), normal(2, &[64, 64])];
    let inputs = [normal(3, &[8, 64]), normal(4, &[8, 64])];
    let all: Vec<Tensor> = tensors.iter().chain(&inputs).cloned().collect();
    let expected = run(&parse(text, "test.graph").unwrap(), &all, &CompileOptions::default());
    let mut state = tensors.map(|tensor| Variable::new(f32s(&[64, 64], &tensor.to_f64())));
    let before: Vec<*const u8> = state.iter().map(|variable| variable.bytes().as_ptr()).collect();
    assert_eq!(step(&model, &mut state, &inputs), expected[..1]);
    assert_eq!([&state[1].to_tensor(), &state[0].to_tensor()], [&expected[1], &expected[2]]);
    let after: Vec<*const u8> = state.iter().map(|variable| variable.bytes().as_ptr()).collect();
    assert_eq!(before, after);
    let shapes: Vec<_> = all.iter().map(|tensor| tensor.shape().clone()).collect();
    let (arena, _) = model.memory_bytes(&shapes).unwrap();
    assert!(arena <= 8 * 64 * 4, "the updates took {arena} bytes of their own");
}

#[test]
fn packed_state_follows_its_changes() {
    let text = "func @main(%w: f32[64,64], %x: f32[32,64]) -> f32[32,64] {
  %y = dot %x, %w contract=[1:0] : f32[32,64]
  return %y
}
";
    let model = compiled(text, 1, &[]);
    let x = f32s(&[32, 64], &vec![1.0; 32 * 64]);
    let mut state = [Variable::new(f32s(&[64, 64], &vec![1.0; 64 * 64]))];
    let all = |value: f64| f32s(&[32, 64], &vec![value; 32 * 64]);
    assert_eq!(step(&model, &mut state, std::slice::from_ref(&x)), [all(64.0)]);
    state[0].set(f32s(&[64, 64], &vec![2.0; 64 * 64]));
    assert_eq!(step(&model, &mut state, std::slice::from_ref(&x)), [all(128.0)]);
    // Another variable in its place is another state, too.
    state[0] = Variable::new(f32s(&[64, 64], &vec![3.0; 64 * 64]));
    assert_eq!(step(&model, &mut state, std::slice::from_ref(&x)), [all(192.0)]);
}

#[test]
fn mistakes_have_messages() {
    let text = "func @main(%a: f32[2], %x: f32[3]) -> f32[2], f32[3] {\n  return %a, %x\n}\n";
    let module = parse(text, "test.graph").unwrap();
    let error = |state: usize, aliases: &[(usize, usize)]| {
        compile_stateful(module.clone(), state, aliases, &CompileOptions::default())
            .err()
            .unwrap()
            .to_string()
    };
    assert_eq!(error(3, &[]), "3 parameters are to be state, @main has 2");
    assert_eq!(
        error(1, &[(1, 1)]),
        "result 1 cannot replace parameter 1: there is no such pair of state and result"
    );
    assert_eq!(error(2, &[(0, 1)]), "result 1 cannot replace parameter 0: their types are f32[2] and f32[3]");
    assert_eq!(
        error(2, &[(0, 0), (0, 0)]),
        "result 0 cannot replace parameter 0: one of them is in another pair"
    );
    let model = compile_stateful(module.clone(), 1, &[(0, 0)], &CompileOptions::default()).unwrap();
    let x = f32s(&[3], &[0.0; 3]);
    let error = model.run(&[x.clone(), x.clone()]).unwrap_err().to_string();
    assert_eq!(error, "the model has 1 variable(s) of state, found 0; pass them to `run_in_place`");
    let mut wrong = Variable::new(x.clone());
    let error = model.run_in_place(&mut [&mut wrong], &[Input::from(&x)]).unwrap_err().to_string();
    assert_eq!(error, "state 0 is f32[3], the model has f32[2]");
}

/// What is made of state alone is made before, so that convolutions take it in as they take constants in.
#[test]
fn scales_that_are_state_join_the_convolution() {
    let text = "func @main(%w: f32[32,16,3,3], %scale: f32[32], %variance: f32[32], %x: f32[2,16,9,9]) -> f32[2,32,9,9] {
  %y = conv %x, %w padding=[1:1,1:1] : f32[2,32,9,9]
  %root = sqrt %variance : f32[32]
  %factor = div %scale, %root : f32[32]
  %f = broadcast %factor axes=[1] : f32[2,32,9,9]
  %z = mul %y, %f : f32[2,32,9,9]
  return %z
}
";
    let sizes: [&[u64]; 4] = [&[32, 16, 3, 3], &[32], &[32], &[2, 16, 9, 9]];
    let tensor = |(index, sizes): (usize, &&[u64])| {
        let count: u64 = sizes.iter().product();
        f32s(sizes, &(0..count).map(|at| ((at * 7 + index as u64) % 5 + 1) as f64).collect::<Vec<f64>>())
    };
    let tensors: Vec<Tensor> = sizes.iter().enumerate().map(tensor).collect();
    let model = compiled(text, 3, &[]);
    let mut state: Vec<Variable> = tensors[..3].iter().cloned().map(Variable::new).collect();
    let inputs = [Input::from(&tensors[3])];
    let (results, steps) =
        model.profile_in_place(&mut state.iter_mut().collect::<Vec<_>>(), &inputs).unwrap();
    let expected = run(&parse(text, "test.graph").unwrap(), &tensors, &CompileOptions::default());
    assert_eq!(results, expected);
    let kinds: Vec<&str> = steps.iter().map(|step| step.kind).filter(|&kind| kind != "copy").collect();
    assert_eq!(kinds.len(), 1, "{kinds:?}");
}

/// A loop writes the rows of a stack where the stack is, and weights that stay the same are not copied.
#[test]
fn loops_update_what_they_carry_in_place() {
    let text = "func @body(%i: i32[], %w: f32[64,64], %x: f32[8,64], %stack: f32[128,8,64]) -> f32[64,64], f32[8,64], f32[128,8,64] {
  %y = dot %x, %w contract=[1:0] : f32[8,64]
  %z = tanh %y : f32[8,64]
  %row = reshape %i : i32[1]
  %update = reshape %z : f32[1,8,64]
  %new = scatter %stack, %row, %update axis=0 : f32[128,8,64]
  return %w, %z, %new
}
func @main(%w: f32[64,64], %x: f32[8,64], %stack: f32[128,8,64]) -> f32[128,8,64] {
  %a, %b, %c = repeat %w, %x, %stack count=128 body=@body : f32[64,64], f32[8,64], f32[128,8,64]
  return %c
}
";
    let module = parse(text, "test.graph").unwrap();
    let normal = |seed, sizes: &[u64]| {
        let data = pando_graph::ConstData::Normal { seed, mean: 0.0, std: 0.1 };
        data.materialize(DType::F32, &Shape::new(sizes))
    };
    let inputs = [normal(1, &[64, 64]), normal(2, &[8, 64]), normal(3, &[128, 8, 64])];
    let expected = pando_graph::eval(&module, module.main().unwrap(), &inputs).unwrap();
    for isa in Isa::available() {
        compare(&run(&module, &inputs, &options(isa, 2, true)), &expected, 1e-5).unwrap();
    }
    let model = compile(&module, &CompileOptions::default()).unwrap();
    let shapes: Vec<Shape> = inputs.iter().map(|tensor| tensor.shape().clone()).collect();
    let (arena, kept) = model.memory_bytes(&shapes).unwrap();
    let stack = 128 * 8 * 64 * 4;
    assert!(arena + kept < stack + stack / 8, "one stack takes {stack} bytes, the plan {arena} and {kept}");
}

/// Batches go through some images at a time with weights that are state as with constants; what is packed for them
/// follows the state.
#[test]
fn batches_with_weights_that_are_state() {
    let text = "func @main(%w: f32[32,16,3,3], %v: f32[16,32,1,1], %x: f32[8,16,64,64]) -> f32[8,16,64,64] {
  %y = conv %x, %w padding=[1:1,1:1] : f32[8,32,64,64]
  %z = conv %y, %v : f32[8,16,64,64]
  return %z
}
";
    let whole = |seed: usize, sizes: &[u64]| {
        let count: u64 = sizes.iter().product();
        f32s(sizes, &(0..count).map(|at| ((at as usize * seed) % 7) as f64 - 3.0).collect::<Vec<f64>>())
    };
    let x = whole(5, &[8, 16, 64, 64]);
    let options = CompileOptions { threads: 2, ..CompileOptions::default() };
    let module = parse(text, "test.graph").unwrap();
    let model = compile_stateful(module.clone(), 2, &[], &options).unwrap();
    let mut state = [whole(3, &[32, 16, 3, 3]), whole(2, &[16, 32, 1, 1])].map(Variable::new);
    for change in [11, 13, 0] {
        if change > 0 {
            state[0].set(whole(change, &[32, 16, 3, 3]));
        }
        let inputs = [state[0].to_tensor(), state[1].to_tensor(), x.clone()];
        let (results, steps) =
            model.profile_in_place(&mut state.iter_mut().collect::<Vec<_>>(), &[Input::from(&x)]).unwrap();
        assert_eq!(results, run(&module, &inputs, &options));
        assert!(steps.iter().any(|step| step.kind == "images"));
    }
}

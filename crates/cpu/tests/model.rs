//! Goal: the parts of a model work together: named sizes, kept plans, errors, composites, halves, threads.
//! Method: small models, against the evaluator where there are numbers to compare.

mod common;

use common::{options, run};
use pando_base::{DType, Shape, Tensor};
use pando_cpu::{CompileOptions, Isa, compile};
use pando_graph::testing::compare;
use pando_graph::{Builder, ConstData, Dot, Module, TensorType, eval, parse};

fn normal(seed: u64, sizes: &[u64]) -> Tensor {
    let data = ConstData::Normal { seed, mean: 0.0, std: 1.0 };
    data.materialize(DType::F32, &Shape::new(sizes))
}

/// One attention layer with a feed-forward part: every composite and every form of product.
fn layer(dtype: DType) -> Module {
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(dtype, [10u64, 24]));
    let weight = |b: &mut Builder, seed: u64, sizes: &[u64]| {
        let data = ConstData::Normal { seed, mean: 0.0, std: 0.2 };
        b.weight(&format!("w{seed}"), dtype, Shape::new(sizes), data)
    };
    let linear = |b: &mut Builder, x, seed, sizes: [u64; 2]| {
        let (w, bias) = (weight(b, seed, &sizes), weight(b, seed + 100, &sizes[1..]));
        let y = b.dot(x, w, Dot { contract: vec![(1, 0)], ..Dot::default() }).unwrap();
        let dims = b.ty(y).dims.clone();
        let bias = b.broadcast_trailing(bias, dims).unwrap();
        b.add(y, bias).unwrap()
    };
    let heads = |b: &mut Builder, x| {
        let x = b.reshape(x, [10u64, 3, 8]).unwrap();
        b.transpose(x, &[1, 0, 2]).unwrap()
    };
    let (q, k, v) =
        (linear(&mut b, x, 1, [24, 24]), linear(&mut b, x, 2, [24, 24]), linear(&mut b, x, 3, [24, 24]));
    let (q, k, v) = (heads(&mut b, q), heads(&mut b, k), heads(&mut b, v));
    let k = b.transpose(k, &[0, 2, 1]).unwrap();
    let scores = b.matmul(q, k).unwrap();
    let weights = b.softmax(scores, 2).unwrap();
    let mixed = b.matmul(weights, v).unwrap();
    let mixed = b.transpose(mixed, &[1, 0, 2]).unwrap();
    let mixed = b.reshape(mixed, [10u64, 24]).unwrap();
    let x = b.add(x, mixed).unwrap();
    let (scale, bias) = (weight(&mut b, 4, &[24]), weight(&mut b, 5, &[24]));
    let x = b.layer_norm(x, scale, bias, 1e-5).unwrap();
    let y = linear(&mut b, x, 6, [24, 50]);
    let y = b.gelu(y).unwrap();
    let y = linear(&mut b, y, 7, [50, 24]);
    let y = b.add(x, y).unwrap();
    let y = b.rms_norm(y, scale, 1e-6).unwrap();
    let y = b.log_softmax(y, 0).unwrap();
    b.end(&[y, mixed]);
    b.finish()
}

#[test]
fn a_transformer_layer_is_right_at_every_level() {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 3e-2), (DType::BF16, 2e-1)] {
        let module = layer(dtype);
        let input = Tensor::from_f64(dtype, [10, 24], &normal(9, &[10, 24]).to_f64());
        let expected = eval(&module, module.main().unwrap(), std::slice::from_ref(&input)).unwrap();
        for isa in Isa::available() {
            let run = |threads| run(&module, std::slice::from_ref(&input), &options(isa, threads, true));
            let actual = run(1);
            compare(&actual, &expected, tolerance).unwrap();
            assert_eq!(actual, run(2), "the number of threads shows");
        }
    }
}

#[test]
fn composites_are_recognised_and_epilogues_attached() {
    let module = layer(DType::F32);
    let model = compile(&module, &CompileOptions { threads: 1, ..CompileOptions::default() }).unwrap();
    let (_, steps) = model.profile(&[normal(9, &[10, 24])]).unwrap();
    let count = |name: &str| steps.iter().filter(|step| step.kind == name).count();
    let found = ["attention", "softmax", "log_softmax", "layer_norm", "rms_norm", "gemm"].map(count);
    assert_eq!(found, [1, 0, 1, 1, 1, 5], "{steps:?}");
    // The residual of the attention, whose product is read twice.
    assert_eq!(count("elementwise"), 1, "{steps:?}");
}

const NAMED: &str = "
const @w: f32[4,3] = normal(seed=1, mean=0, std=1)
func @main(%x: f32[N,4], %y: f32[M,4]) -> f32[N.plus.M,3] {
  %w = constant @w : f32[4,3]
  %0 = concat %x, %y axis=0 : f32[M.plus.N,4]
  %1 = dot %0, %w contract=[1:0] : f32[M.plus.N,3]
  return %1
}
";

#[test]
fn named_sizes_come_from_the_inputs() {
    let module = parse(&NAMED.replace("N.plus.M", "M.plus.N"), "t").unwrap();
    let model = compile(&module, &CompileOptions::default()).unwrap();
    for (n, m) in [(2, 3), (5, 1), (2, 3), (0, 4)] {
        let inputs = [normal(2, &[n, 4]), normal(3, &[m, 4])];
        let expected = eval(&module, module.main().unwrap(), &inputs).unwrap();
        let mut outputs = vec![Tensor::zeros(DType::F32, [n + m, 3])];
        model.run_into(&inputs, &mut outputs).unwrap();
        compare(&outputs, &expected, 1e-5).unwrap();
        assert_eq!(model.run(&inputs).unwrap(), outputs);
    }
}

#[test]
fn errors_say_what_to_do() {
    let module = parse("func @main(%x: f32[N,2], %y: f32[N]) -> f32[N,2] { return %x }", "t").unwrap();
    let model = compile(&module, &CompileOptions::default()).unwrap();
    let check = |inputs: &[Tensor], expect: &str| {
        assert_eq!(model.run(inputs).unwrap_err().to_string(), expect);
    };
    let zeros = |sizes: &[u64]| Tensor::zeros(DType::F32, sizes.to_vec());
    check(&[zeros(&[1, 2])], "the model takes 2 input(s), found 1");
    check(&[zeros(&[1, 3]), zeros(&[1])], "input 0 is f32[1,3], the model takes f32[N,2]");
    check(&[zeros(&[1, 2]), zeros(&[4])], "the dimension 'N' would be both 1 and 4; make the inputs agree");
    let inputs = [zeros(&[1, 2]), zeros(&[1])];
    let error = model.run_into(&inputs, &mut [zeros(&[2, 2])]).unwrap_err();
    assert_eq!(error.to_string(), "output 0 was given room for f32[2,2], it is f32[1,2]");
    let module = parse("func @other(%x: f32[1]) -> f32[1] { return %x }", "t").unwrap();
    let error = compile(&module, &CompileOptions::default()).err().unwrap();
    assert_eq!(error.to_string(), "the module has no function @main to compile");
}

#[test]
fn runs_at_the_same_time_do_not_disturb_each_other() {
    let module = layer(DType::F32);
    let model = compile(&module, &CompileOptions { threads: 2, ..CompileOptions::default() }).unwrap();
    let inputs: Vec<Tensor> = (0..4).map(|seed| normal(seed, &[10, 24])).collect();
    let run = |input: &Tensor| model.run(std::slice::from_ref(input)).unwrap();
    let expected: Vec<_> = inputs.iter().map(run).collect();
    std::thread::scope(|scope| {
        for (input, expected) in inputs.iter().zip(&expected) {
            scope.spawn(move || (0..20).for_each(|_| assert_eq!(run(input), *expected)));
        }
    });
}

/// Recognised activations are one loop, and compute the bits of their bodies.
#[test]
fn activations_compute_what_their_bodies_say() {
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(DType::F32, [5000u64]));
    let results = [b.sigmoid(x), b.silu(x), b.gelu(x), b.gelu_tanh(x)].map(Result::unwrap);
    b.end(&results);
    let module = b.finish();
    let wide = normal(1, &[5000]).to_f64().into_iter().enumerate();
    let values: Vec<f64> = wide.map(|(i, x)| x * 10f64.powi(i as i32 % 7 - 4)).collect();
    let input = [Tensor::from_f64(DType::F32, [5000], &values)];
    for isa in Isa::available() {
        let run = |fuse| compile(&module, &options(isa, 1, fuse)).unwrap().run(&input).unwrap();
        assert_eq!(run(true), run(false));
    }
    let model = compile(&module, &options(Isa::detect(), 1, true)).unwrap();
    assert_eq!(model.profile(&input).unwrap().1.len(), 4);
}

/// GELUs that are written out are found, in any order of operands; what looks like one is left alone.
#[test]
fn written_out_gelus_are_right() {
    let gelu = |smooth: &str, last: &str| {
        format!(
            "
const @c: f32[6] = [0.5, 3, 0.044715, 0.7978846, 1, 0.70710677]
func @main(%x: f32[5000]) -> f32[5000] {{
  %c = constant @c : f32[6]
{}  %half = mul %x, %b0 : f32[5000]
{smooth}  %sum = add %b4, %smooth : f32[5000]
  %y = mul {last} : f32[5000]
  return %y
}}
",
            (0..6)
                .map(|i| format!(
                    "  %s{i} = slice %c begin=[{i}] end=[{}] step=[1] : f32[1]\n  %b{i} = broadcast %s{i} axes=[0] : f32[5000]\n",
                    i + 1
                ))
                .collect::<String>()
        )
    };
    let tanh = |factor: &str| {
        format!(
            "  %cube = pow %x, %b1 : f32[5000]
  %small = mul %b2, %cube : f32[5000]
  %inner = add %small, %x : f32[5000]
  %scaled = mul %inner, {factor} : f32[5000]
  %smooth = tanh %scaled : f32[5000]
"
        )
    };
    let erf = "  %scaled = mul %x, %b5 : f32[5000]\n  %smooth = erf %scaled : f32[5000]\n";
    let texts = [
        gelu(&tanh("%b3"), "%half, %sum"),
        gelu(&tanh("%b3"), "%sum, %half"),
        gelu(erf, "%half, %sum"),
        gelu(&tanh("%b5"), "%half, %sum"),
        gelu(&tanh("%b3"), "%x, %sum"),
        gelu(&tanh("%b3"), "%half, %smooth"),
    ];
    let input = [normal(1, &[5000])];
    for text in texts {
        let module = parse(&text, "t").unwrap_or_else(|error| panic!("{error}: {text}"));
        let expected = eval(&module, module.main().unwrap(), &input).unwrap();
        let expected = [expected.last().unwrap().clone()];
        for isa in Isa::available() {
            let [plain, fused] = [false, true].map(|fuse| run(&module, &input, &options(isa, 1, fuse)));
            compare(&fused, &plain, 0.0).unwrap();
            compare(&fused, &expected, 1e-6).unwrap();
        }
    }
}

/// An absurd size is an error, not an attempt.
#[test]
fn absurd_sizes_are_refused() {
    let text = "
func @main(%x: f32[1]) -> f32[1] {
  %0 = broadcast %x axes=[2] : f32[1048576,1048576,64]
  %1 = exp %0 : f32[1048576,1048576,64]
  %2 = reduce %1 func=sum axes=[1,2] : f32[1048576]
  %3 = slice %2 begin=[0] end=[1] step=[1] : f32[1]
  return %3
}
";
    let module = parse(text, "t").unwrap();
    let error = compile(&module, &CompileOptions::default()).err().unwrap().to_string();
    assert!(error.contains("needs 281474976710656 bytes"), "{error}");
}

/// A weight that is packed in two ways is held once, and still right for the second and for later plans.
#[test]
fn weights_are_found_again_when_packed() {
    let text = "\
const @w: f32[160,160] = normal(seed=1, mean=0, std=1)
func @main(%x: f32[n,160]) -> f32[n,160], f32[n,160] {
  %w = constant @w : f32[160,160]
  %y = dot %x, %w contract=[1:0] : f32[n,160]
  %z = dot %x, %w contract=[1:1] : f32[n,160]
  return %y, %z
}
";
    let mut module = parse(text, "test").unwrap();
    let dense = module.consts.values().next().unwrap().materialize();
    for (_, constant) in module.consts.iter_mut() {
        constant.data = ConstData::Dense(dense.clone());
    }
    let model = compile(&module, &options(Isa::detect(), 2, true)).unwrap();
    for rows in [1u64, 20, 3] {
        let input = normal(rows, &[rows, 160]);
        let bound = pando_graph::bind_dims(&module, &[("n", rows)]).unwrap();
        let expected = eval(&bound, bound.main().unwrap(), std::slice::from_ref(&input)).unwrap();
        compare(&model.run(std::slice::from_ref(&input)).unwrap(), &expected, 1e-4).unwrap();
    }
}

/// One value returned twice, a constant, and an input returned as it is.
#[test]
fn results_may_be_shared() {
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(DType::F32, [3u64]));
    let y = b.add(x, x).unwrap();
    let one = b.splat_like(x, 1.0).unwrap();
    let z = b.mul(y, y).unwrap();
    b.end(&[y, z, y, one, x]);
    let module = b.finish();
    let input = normal(1, &[3]);
    let expected = eval(&module, module.main().unwrap(), std::slice::from_ref(&input)).unwrap();
    assert_eq!(run(&module, std::slice::from_ref(&input), &options(Isa::detect(), 2, true)), expected);
}

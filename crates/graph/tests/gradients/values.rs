//! Each rule's values at a point, the corners included: by hand where that is obvious, otherwise those that
//! PyTorch 2.15 gives on a CPU (`torch.autograd.grad` of the function named like the op).

use pando_base::{BinaryFn, DType, Result, Tensor};
use pando_graph::{Builder, TensorType, ValueId, eval, parse};

/// A type and the values of a parameter.
type Arg<'a> = (&'a str, &'a [f64]);

/// `op` is text over `%a`, `%b`, `%c`; `seed` is the gradient of its first result. A parameter without a gradient
/// has an empty expectation.
fn check(args: &[Arg], op: &str, seed: &[f64], expect: &[&[f64]]) {
    let names = ["a", "b", "c"];
    let params: Vec<String> =
        args.iter().zip(names).map(|((ty, _), name)| format!("%{name}: {ty}")).collect();
    let (body, ty) = op.rsplit_once(" : ").unwrap();
    let more = ", %more".repeat(ty.matches("],").count());
    let first = ty.split_inclusive(']').next().unwrap();
    let text = format!(
        "func @main({}) -> {first} {{\n  %y{more} = {body} : {ty}\n  return %y\n}}\n",
        params.join(", ")
    );
    let (b, params, results) = Builder::reopen(&parse(&text, "t").unwrap()).unwrap();
    let values: Vec<&[f64]> = args.iter().map(|arg| arg.1).collect();
    check_built(b, &params, results[0], &values, seed, expect);
}

fn check_built(
    mut b: Builder,
    params: &[ValueId],
    output: ValueId,
    values: &[&[f64]],
    seed: &[f64],
    expect: &[&[f64]],
) {
    let seed_value = b.param("", b.ty(output).clone());
    let gradients = b.gradients(&[(output, seed_value)], params).unwrap();
    let found: Vec<ValueId> = gradients.iter().flatten().copied().collect();
    let tensor = |value: ValueId, values: &[f64]| {
        let ty = b.ty(value);
        Tensor::from_f64(ty.dtype, ty.shape().unwrap(), values)
    };
    let mut args: Vec<Tensor> =
        params.iter().zip(values).map(|(&param, values)| tensor(param, values)).collect();
    args.push(tensor(seed_value, seed));
    let main = b.end(&found);
    let module = b.finish();
    let mut results = eval(&module, main, &args).unwrap().into_iter();
    for (param, expect) in expect.iter().enumerate() {
        let actual = gradients[param].map_or(vec![], |_| results.next().unwrap().to_f64());
        let close =
            |(a, e): (&f64, &f64)| (a - e).abs() <= 1e-6 * (1.0 + e.abs()) || a.is_nan() && e.is_nan();
        let all = actual.len() == expect.len() && actual.iter().zip(*expect).all(close);
        assert!(all, "parameter {param}: {actual:?} instead of {expect:?}\n{}", pando_graph::print(&module));
    }
}

const ONES: &[f64] = &[1.0; 12];

#[test]
fn unary() {
    let check = |op: &str, at: [f64; 3], expect: &[f64]| {
        check(&[("f32[3]", &at)], &format!("{op} %a : f32[3]"), &ONES[..3], &[expect]);
    };
    let x = [-1.0, 0.5, 2.0];
    check("neg", x, &[-1.0, -1.0, -1.0]);
    check("abs", [-1.0, 0.0, 2.0], &[-1.0, 0.0, 1.0]);
    check("exp", x, &[0.3678795, 1.648721, 7.389056]);
    check("expm1", x, &[0.3678795, 1.648721, 7.389056]);
    check("sin", x, &[0.5403023, 0.8775826, -0.4161468]);
    check("cos", x, &[0.841471, -0.4794255, -0.9092974]);
    check("tanh", x, &[0.4199743, 0.7864477, 0.07065082]);
    check("erf", x, &[0.4151075, 0.8787826, 0.02066699]);
    let x = [1.0, 4.0, 0.25];
    check("log", x, &[1.0, 0.25, 4.0]);
    check("log1p", x, &[0.5, 0.2, 0.8]);
    check("sqrt", x, &[0.5, 0.25, 1.0]);
    for op in ["floor", "ceil", "round", "sign"] {
        check(op, x, &[]);
    }
}

#[test]
fn binary() {
    let check = |op: &str, a: &[f64], b: &[f64], expect: [&[f64]; 2]| {
        let ty = format!("f32[{}]", a.len());
        check(&[(&ty, a), (&ty, b)], &format!("{op} %a, %b : {ty}"), &ONES[..a.len()], &expect);
    };
    let (a, b) = ([1.0, 6.0, -3.0], [2.0, 3.0, 0.5]);
    check("add", &a, &b, [&[1.0; 3], &[1.0; 3]]);
    check("sub", &a, &b, [&[1.0; 3], &[-1.0; 3]]);
    check("mul", &a, &b, [&b, &a]);
    check("div", &a, &b, [&[0.5, 1.0 / 3.0, 2.0], &[-0.25, -2.0 / 3.0, 12.0]]);
    check("atan2", &a, &b, [&[0.4, 0.06666667, 0.05405406], &[-0.2, -0.1333333, 0.3243243]]);
    check("atan2", &[0.0], &[0.0], [&[0.0], &[0.0]]);
    check("rem", &[7.0, -7.0, 2.5], &[2.0, 3.0, -1.0], [&[1.0; 3], &[-3.0, 2.0, 2.0]]);
    let (a, b) = ([0.0, 0.0, 2.0, -2.0], [0.0, 2.0, 3.0, 2.0]);
    check("pow", &a, &b, [&[0.0, 0.0, 12.0, -4.0], &[0.0, 0.0, 5.545177, f64::NAN]]);
    let (a, b) = ([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]);
    check("max", &a, &b, [&[0.5, 0.0, 1.0], &[0.5, 1.0, 0.0]]);
    check("min", &a, &b, [&[0.5, 1.0, 0.0], &[0.5, 0.0, 1.0]]);
}

/// relu, relu6 and clamp: nothing passes at a bound. A constant exponent has a shorter rule.
#[test]
fn constants() {
    let check = |build: &dyn Fn(&mut Builder, ValueId) -> Result<ValueId>, at: &[f64], expect: &[f64]| {
        let mut b = Builder::new();
        b.begin("main");
        let x = b.param("x", TensorType::new(DType::F32, [at.len() as u64]));
        let y = build(&mut b, x).unwrap();
        check_built(b, &[x], y, &[at], &ONES[..at.len()], &[expect]);
    };
    check(&|b, x| b.relu(x), &[-1.0, -0.0, 0.0, 2.0], &[0.0, 0.0, 0.0, 1.0]);
    check(&|b, x| b.relu6(x), &[0.0, 3.0, 6.0, 7.0], &[0.0, 1.0, 0.0, 0.0]);
    check(&|b, x| b.binary_scalar(BinaryFn::Pow, x, 2.0), &[1.0, -2.0, 0.0], &[2.0, -4.0, 0.0]);
    check(&|b, x| b.binary_scalar(BinaryFn::Pow, x, 3.0), &[1.0, -2.0, 0.0], &[3.0, 12.0, 0.0]);
    check(&|b, x| b.binary_scalar(BinaryFn::Pow, x, 0.0), &[1.0, 0.0], &[0.0, 0.0]);
    check(&|b, x| b.detach(x).and_then(|y| b.mul(x, y)), &[3.0, 4.0], &[3.0, 4.0]);
    check(&|b, x| b.detach(x), &[3.0], &[]);
}

#[test]
fn choice_and_conversion() {
    let x: Arg = ("f32[2]", &[1.0, 2.0]);
    let flags: Arg = ("bool[2]", &[1.0, 0.0]);
    check(&[flags, x, x], "select %a, %b, %c : f32[2]", &[3.0, 4.0], &[&[], &[3.0, 0.0], &[0.0, 4.0]]);
    check(&[x], "convert %a : f16[2]", &[3.0, 4.0], &[&[3.0, 4.0]]);
    check(&[("f16[2]", &[1.0, 2.0])], "convert %a : f32[2]", &[1.0 + 1e-5, 4.0], &[&[1.0, 4.0]]);
    check(&[x], "convert %a : i32[2]", &[3.0, 4.0], &[&[]]);
}

#[test]
fn layout() {
    let x: Arg = ("f32[2,3]", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let count: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0];
    check(&[x], "reshape %a : f32[6]", &count[..6], &[&count[..6]]);
    check(&[x], "transpose %a perm=[1,0] : f32[3,2]", &count[..6], &[&[1.0, 3.0, 5.0, 2.0, 4.0, 6.0]]);
    check(&[x], "reverse %a axes=[1] : f32[2,3]", &count[..6], &[&[3.0, 2.0, 1.0, 6.0, 5.0, 4.0]]);
    check(&[("f32[1,2]", &[1.0, 2.0])], "broadcast %a axes=[0,2] : f32[2,3,2]", count, &[&[36.0, 42.0]]);
    check(
        &[x],
        "slice %a begin=[1,0] end=[2,3] step=[1,2] : f32[1,2]",
        &[7.0, 8.0],
        &[&[0.0, 0.0, 0.0, 7.0, 0.0, 8.0]],
    );
    check(
        &[x, ("f32[]", &[0.0])],
        "pad %a, %b low=[0,-1] high=[0,1] interior=[0,1] : f32[2,5]",
        &count[..10],
        &[&[0.0, 2.0, 4.0, 0.0, 7.0, 9.0], &[1.0 + 3.0 + 5.0 + 6.0 + 8.0 + 10.0]],
    );
    check(
        &[x, ("f32[2,1]", &[1.0, 2.0])],
        "concat %a, %b axis=1 : f32[2,4]",
        &count[..8],
        &[&[1.0, 2.0, 3.0, 5.0, 6.0, 7.0], &[4.0, 8.0]],
    );
}

#[test]
fn indexing() {
    let x: Arg = ("f32[3]", &[1.0, 2.0, 3.0]);
    // The last index is clamped.
    let indices: Arg = ("i32[4]", &[0.0, 2.0, 0.0, 9.0]);
    check(&[x, indices], "gather %a, %b axis=0 : f32[4]", &[1.0, 2.0, 3.0, 4.0], &[&[4.0, 0.0, 6.0], &[]]);
    let (indices, updates): (Arg, Arg) =
        (("i32[4]", &[0.0, 2.0, 0.0, 1.0]), ("f32[4]", &[4.0, 5.0, 6.0, 2.0]));
    let check = |combine: &str, of_x: &[f64], of_updates: &[f64]| {
        let op = format!("scatter %a, %b, %c axis=0{combine} : f32[3]");
        check(&[x, indices, updates], &op, &[1.0, 10.0, 100.0], &[of_x, &[], of_updates]);
    };
    check("", &[0.0, 0.0, 0.0], &[0.0, 100.0, 1.0, 10.0]);
    check(" combine=sum", &[1.0, 10.0, 100.0], &[1.0, 100.0, 1.0, 10.0]);
    check(" combine=prod", &[24.0, 20.0, 500.0], &[6.0, 300.0, 4.0, 20.0]);
    check(" combine=max", &[0.0, 5.0, 0.0], &[0.0, 100.0, 1.0, 5.0]);
    check(" combine=min", &[1.0, 5.0, 100.0], &[0.0, 0.0, 0.0, 5.0]);
}

#[test]
fn products() {
    let (a, b): (Arg, Arg) = (("f32[1,2]", &[1.0, 2.0]), ("f32[2,2]", &[3.0, 4.0, 5.0, 6.0]));
    let expect: [&[f64]; 2] = [&[11.0, 17.0], &[1.0, 2.0, 2.0, 4.0]];
    check(&[a, b], "dot %a, %b contract=[1:0] : f32[1,2]", &[1.0, 2.0], &expect);
    let halves = [("f16[1,2]", a.1), ("f16[2,2]", b.1)];
    check(&halves, "dot %a, %b contract=[1:0] dtype=f32 : f32[1,2]", &[1.0, 2.0], &expect);
    // conv1d of 1..7 and -3..5, stride 2, padding 1; of two groups with dilation 2.
    let count = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    check(
        &[("f32[1,2,3]", &count), ("f32[2,2,2]", &[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0])],
        "conv %a, %b strides=[2] padding=[1:1] : f32[1,2,2]",
        &[1.0, 2.0, 3.0, 4.0],
        &[&[4.0, -2.0, 4.0, 12.0, 10.0, 16.0], &[4.0, 7.0, 10.0, 16.0, 8.0, 15.0, 20.0, 36.0]],
    );
    check(
        &[("f32[1,2,3]", &count), ("f32[2,1,2]", &[-1.0, 0.0, 1.0, 2.0])],
        "conv %a, %b kernel_dilation=[2] groups=2 : f32[1,2,1]",
        &[1.0, 2.0],
        &[&[-1.0, 0.0, 0.0, 2.0, 0.0, 4.0], &[1.0, 3.0, 8.0, 12.0]],
    );
}

#[test]
fn reductions() {
    let check = |func: &str, at: &[f64], seed: f64, expect: &[f64]| {
        let op = format!("reduce %a func={func} axes=[0] : f32[]");
        check(&[(&format!("f32[{}]", at.len()), at)], &op, &[seed], &[expect]);
    };
    check("sum", &[1.0, 2.0], 3.0, &[3.0, 3.0]);
    check("prod", &[2.0, 3.0, 4.0], 1.0, &[12.0, 8.0, 6.0]);
    check("prod", &[1.0, 0.0, 3.0, 2.0], 1.0, &[0.0, 6.0, 0.0, 0.0]);
    check("prod", &[0.0, 0.0, 3.0, 2.0], 1.0, &[0.0; 4]);
    check("max", &[1.0, 3.0, 3.0, 2.0], 6.0, &[0.0, 3.0, 3.0, 0.0]);
    check("min", &[1.0, 3.0, 1.0, 2.0], 6.0, &[3.0, 0.0, 3.0, 0.0]);
}

#[test]
fn windows() {
    let x: Arg = ("f32[3,4]", &[1.0, 2.0, 2.0, 0.0, 2.0, 1.0, 2.0, 5.0, 5.0, 1.0, 0.0, 0.0]);
    let check = |func: &str, expect: &[f64]| {
        let op =
            format!("reduce_window %a func={func} window=[2,2] strides=[1,2] padding=[1:0,0:0] : f32[3,2]");
        check(&[x], &op, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[expect]);
    };
    // max_pool2d with padding (1, 0) and without its last row.
    check("max", &[0.0, 4.0, 2.0, 0.0, 0.0, 0.0, 0.0, 10.0, 5.0, 0.0, 0.0, 0.0]);
    check("sum", &[4.0, 4.0, 6.0, 6.0, 8.0, 8.0, 10.0, 10.0, 5.0, 5.0, 6.0, 6.0]);
}

#[test]
fn scans() {
    let check = |how: &str, at: &[f64], expect: &[f64]| {
        let op = format!("scan %a func={how} axis=0 : f32[5]");
        check(&[("f32[5]", at)], &op, &[1.0, 2.0, 3.0, 4.0, 5.0], &[expect]);
    };
    let x = [1.0, 3.0, 3.0, 2.0, 4.0];
    check("sum", &x, &[15.0, 14.0, 12.0, 9.0, 5.0]);
    check("sum exclusive=true", &x, &[14.0, 12.0, 9.0, 5.0, 0.0]);
    check("sum reverse=true", &x, &[1.0, 3.0, 6.0, 10.0, 15.0]);
    check("prod", &[2.0, 3.0, 0.0, 4.0, 5.0], &[7.0, 4.0, 714.0, 0.0, 0.0]);
    check("prod", &[2.0, 0.0, 3.0, 0.0, 5.0], &[1.0, 22.0, 0.0, 0.0, 0.0]);
    check("max", &x, &[1.0, 2.0, 7.0, 0.0, 5.0]);
    check("min", &x, &[15.0, 0.0, 0.0, 0.0, 0.0]);
    check("max exclusive=true", &x, &[2.0, 3.0, 9.0, 0.0, 0.0]);
}

#[test]
fn sorts() {
    let keys: Arg = ("f32[4]", &[5.0, 1.0, 4.0, 1.0]);
    let seed = [1.0, 2.0, 3.0, 4.0];
    check(&[keys], "sort %a axis=0 stable=true : f32[4]", &seed, &[&[4.0, 1.0, 3.0, 2.0]]);
    check(
        &[keys, keys],
        "sort %a, %b axis=0 stable=true : f32[4], f32[4]",
        &seed,
        &[&[4.0, 1.0, 3.0, 2.0], &[]],
    );
}

/// At [1, 2, 3] with gradients [1, 0, 2].
#[test]
fn composites() {
    let check = |build: fn(&mut Builder, ValueId) -> Result<ValueId>, seed: [f64; 3], expect: [f64; 3]| {
        let mut b = Builder::new();
        b.begin("main");
        let x = b.param("x", TensorType::new(DType::F32, [3u64]));
        let y = build(&mut b, x).unwrap();
        check_built(b, &[x], y, &[&[1.0, 2.0, 3.0]], &seed, &[&expect]);
    };
    check(|b, x| b.sigmoid(x), [1.0; 3], [0.1966119, 0.1049936, 0.04517666]);
    check(|b, x| b.silu(x), [1.0; 3], [0.9276705, 1.090784, 1.088104]);
    check(|b, x| b.gelu(x), [1.0; 3], [1.083315, 1.085232, 1.011946]);
    check(|b, x| b.gelu_tanh(x), [1.0; 3], [1.082964, 1.086099, 1.011584]);
    check(|b, x| b.softmax(x, 0), [1.0, 0.0, 2.0], [-0.03785897, -0.3476398, 0.3854989]);
    check(|b, x| b.log_softmax(x, 0), [1.0, 0.0, 2.0], [0.7299082, -0.7341855, 0.004276991]);
}

/// `layer_norm`, `rms_norm` and `batch_norm` of `torch.nn.functional`, epsilon 1e-5.
#[test]
fn norms() {
    let check = |sizes: [u64; 2],
                 build: fn(&mut Builder, &[ValueId]) -> Result<ValueId>,
                 values: [&[f64]; 3],
                 seed: &[f64],
                 expect: &[&[f64]]| {
        let mut b = Builder::new();
        b.begin("main");
        let x = b.param("", TensorType::new(DType::F32, sizes));
        let channels = TensorType::new(DType::F32, [sizes[1]]);
        let params = [x, b.param("", channels.clone()), b.param("", channels)];
        let y = build(&mut b, &params).unwrap();
        check_built(b, &params, y, &values, seed, expect);
    };
    let values: [&[f64]; 3] = [&[1.0, 2.0, 4.0, 3.0, 1.0, 0.0], &[1.0, 2.0, 0.5], &[0.0, 0.0, 1.0]];
    let seed = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    check(
        [2, 3],
        |b, p| b.layer_norm(p[0], p[1], p[2], 1e-5),
        values,
        &seed,
        &[
            &[-0.973591, 1.460387, -0.4867963, -1.145403, 3.436205, -2.290802],
            &[4.276167, -1.870822, -2.405344],
            &[5.0, 7.0, 9.0],
        ],
    );
    check(
        [2, 3],
        |b, p| b.rms_norm(p[0], p[1], 1e-5),
        values,
        &seed,
        &[
            &[0.1079902, 0.9719087, -0.5129498, -1.424066, 4.272233, 1.643165],
            &[6.950625, 4.250465, 4.53557],
            &[],
        ],
    );
    let values: [&[f64]; 3] = [&[1.0, 2.0, 3.0, 1.0, 0.0, 4.0], &[1.0, 2.0], &[0.0, 1.0]];
    check(
        [3, 2],
        |b, p| Ok(b.batch_norm_training(p[0], p[1], p[2], 1e-5)?[0]),
        values,
        &[1.0, 2.0, 3.0, 4.0, 5.0, 7.0],
        &[
            &[-1.718102, -3.092589, 0.5726972, 2.061706, 1.145404, 1.030882],
            &[-1.603563, 4.543427],
            &[9.0, 13.0],
        ],
    );
}

#[test]
fn errors_name_the_value() {
    let text = "
func @less(%i: f32[]) -> bool[] {
  %0 = constant @one : f32[]
  %1 = lt %i, %0 : bool[]
  return %1
}
func @double(%i: f32[]) -> f32[] {
  %0 = add %i, %i : f32[]
  return %0
}
func @main(%x: f32[]) -> f32[] {
  %y = while %x cond=@less body=@double : f32[]
  return %y
}
const @one: f32[] = splat(1)
";
    let (mut b, params, results) = Builder::reopen(&parse(text, "t").unwrap()).unwrap();
    let error = b.gradients(&[(results[0], results[0])], &params).unwrap_err().to_string();
    let expect = "func @main, n0 (%y = while): while has no gradient: how often it runs is not known, as no integer \
                  counts from a constant by a constant to a constant; use repeat, or detach its operands";
    assert_eq!(error, expect);
    let flag = b.splat_like(params[0], 1.0).and_then(|one| b.convert(one, DType::F16)).unwrap();
    let error = b.gradients(&[(params[0], flag)], &params).unwrap_err().to_string();
    assert_eq!(error, "a gradient's seed is f16[], its output f32[]; give them one type");
}

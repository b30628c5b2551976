//! Small models: their gradients are right, and as text they are what one would write by hand.

use super::differences::{Differentiated, Outcome};
use pando_base::{BinaryFn, DType, ReduceFn, Result};
use pando_graph::{Builder, Conv, Dim, Dot, Op, ReduceWindow, Slice, TensorType, ValueId, known_dims, print};

fn f32s(sizes: &[u64]) -> TensorType {
    TensorType::new(DType::F32, sizes.iter().copied())
}

struct Model {
    params: &'static [(&'static str, &'static [u64])],
    output: fn(&mut Builder, &[ValueId]) -> Result<ValueId>,
}

impl Model {
    fn open(&self) -> (Builder, Vec<ValueId>, ValueId) {
        let mut b = Builder::new();
        b.begin("main");
        let params: Vec<ValueId> =
            self.params.iter().map(|(name, sizes)| b.param(name, f32s(sizes))).collect();
        let output = (self.output)(&mut b, &params).unwrap();
        b.name(output, "output");
        (b, params, output)
    }

    /// The lines of `func` that compute gradients of all parameters: those after `%output` in `main`.
    fn lines(&self, func: &str) -> Vec<String> {
        let (mut b, params, output) = self.open();
        let seed = b.param("seed", b.ty(output).clone());
        let gradients = b.gradients(&[(output, seed)], &params).unwrap();
        b.end(&std::iter::once(output).chain(gradients.into_iter().flatten()).collect::<Vec<_>>());
        let text = print(&b.finish());
        let body = text.split(&format!("func @{func}(")).nth(1).expect("the function is there");
        let lines =
            body.lines().skip(1).take_while(|line| *line != "}").filter(|line| !line.contains("= constant"));
        let start = if func == "main" { "  %output " } else { "  " };
        let after = lines.skip_while(|line| !line.starts_with(start)).skip((func == "main").into());
        after.map(|line| line.trim().to_string()).collect()
    }

    fn check(&self) {
        for seed in 0..10 {
            let (b, params, output) = self.open();
            let made = Differentiated::new(b, &params, &[output], &[]).unwrap();
            assert_eq!(made.check(seed, &[]), Outcome::Right);
        }
    }
}

fn part(b: &mut Builder, x: ValueId, axis: usize, begin: u64, end: u64) -> Result<ValueId> {
    let dims = b.ty(x).dims.clone();
    let mut slice = Slice { begin: vec![0; dims.len()], step: vec![1; dims.len()], end: dims };
    slice.begin[axis] = begin;
    slice.end[axis] = Dim::Known(end);
    b.slice(x, slice)
}

const CONV_NET: Model = Model {
    params: &[
        ("x", &[2, 3, 8, 8]),
        ("w", &[4, 3, 3, 3]),
        ("s", &[4]),
        ("b", &[4]),
        ("v", &[4, 5]),
        ("c", &[5]),
    ],
    output: |b, p| {
        let conv = Conv { strides: vec![2, 2], padding: vec![(1, 1); 2], ..Conv::plain(2) };
        let y = b.conv(p[0], p[1], conv)?;
        let [y, _, _] = b.batch_norm_training(y, p[2], p[3], 1e-5)?;
        let y = b.relu(y)?;
        let pool = ReduceWindow {
            func: ReduceFn::Max,
            window: vec![1, 1, 2, 2],
            strides: vec![1, 1, 2, 2],
            padding: vec![(0, 0); 4],
            dilation: vec![1; 4],
        };
        let y = b.reduce_window(y, pool)?;
        let y = b.reduce(ReduceFn::Sum, y, &[2, 3])?;
        let y = b.matmul(y, p[4])?;
        let bias = b.broadcast_trailing(p[5], b.ty(y).dims.clone())?;
        let y = b.add(y, bias)?;
        b.log_softmax(y, 1)
    },
};

#[test]
fn conv_net() {
    CONV_NET.check();
    let expect = [
        "%19 = call @log_softmax.grad %output, %seed : f32[2,5]",
        "%20 = reduce %19 func=sum axes=[0] : f32[5]",
        "%21 = dot %19, %v contract=[1:1] : f32[2,4]",
        "%22 = dot %14, %19 contract=[0:0] : f32[4,5]",
        "%23 = broadcast %21 axes=[0,1] : f32[2,4,2,2]",
        "%24 = call @max_window.grad %12, %23 : f32[2,4,4,4]",
        "%25 = ne %12, %11 : bool[2,4,4,4]",
        "%26 = select %25, %24, %11 : f32[2,4,4,4]",
        "%27, %28, %29 = call @batch_norm_training.grad %7, %s, %9, %10, %26 : f32[2,4,4,4], f32[4], f32[4]",
        "%30 = call @conv.grad_input %27, %w : f32[2,3,8,8]",
        "%31 = call @conv.grad_kernel %x, %27 : f32[4,3,3,3]",
        "return %output, %30, %31, %28, %29, %22, %20",
    ];
    assert_eq!(CONV_NET.lines("main"), expect);
}

const ATTENTION: Model = Model {
    params: &[("x", &[2, 5, 8]), ("w", &[8, 24]), ("c", &[24]), ("v", &[8, 8])],
    output: |b, p| {
        let product = Dot { contract: vec![(2, 0)], ..Dot::default() };
        let y = b.dot(p[0], p[1], product.clone())?;
        let bias = b.broadcast_trailing(p[2], b.ty(y).dims.clone())?;
        let y = b.add(y, bias)?;
        let mut heads = Vec::new();
        for begin in [0, 8, 16] {
            let head = part(b, y, 2, begin, begin + 8)?;
            let head = b.reshape(head, [2u64, 5, 2, 4])?;
            heads.push(b.transpose(head, &[0, 2, 1, 3])?);
        }
        let y = b.composite("attention", "", &heads, |b, args| {
            let batch = vec![(0, 0), (1, 1)];
            let scaled = b.binary_scalar(BinaryFn::Mul, args[0], 0.5)?;
            let scores = b.dot(scaled, args[1], Dot { batch, contract: vec![(3, 3)], dtype: None })?;
            let weights = b.softmax(scores, 3)?;
            b.matmul(weights, args[2])
        })?;
        let y = b.transpose(y, &[0, 2, 1, 3])?;
        let y = b.reshape(y, [2u64, 5, 8])?;
        let y = b.dot(y, p[3], product)?;
        b.add(y, p[0])
    },
};

#[test]
fn attention() {
    ATTENTION.check();
    let expect = [
        "%22 = dot %seed, %v contract=[2:1] : f32[2,5,8]",
        "%23 = dot %19, %seed contract=[0:0,1:1] : f32[8,8]",
        "%24 = reshape %22 : f32[2,5,2,4]",
        "%25 = transpose %24 perm=[0,2,1,3] : f32[2,2,5,4]",
        "%26, %27, %28 = call @attention.grad %10, %13, %16, %25 : f32[2,2,5,4], f32[2,2,5,4], f32[2,2,5,4]",
        "%29 = transpose %28 perm=[0,2,1,3] : f32[2,5,2,4]",
        "%30 = reshape %29 : f32[2,5,8]",
        "%31 = transpose %27 perm=[0,2,1,3] : f32[2,5,2,4]",
        "%32 = reshape %31 : f32[2,5,8]",
        "%33 = transpose %26 perm=[0,2,1,3] : f32[2,5,2,4]",
        "%34 = reshape %33 : f32[2,5,8]",
        "%35 = concat %34, %32, %30 axis=2 : f32[2,5,24]",
        "%36 = reduce %35 func=sum axes=[0,1] : f32[24]",
        "%37 = dot %35, %w contract=[2:1] : f32[2,5,8]",
        "%38 = dot %x, %35 contract=[0:0,1:1] : f32[8,24]",
        "%39 = add %seed, %37 : f32[2,5,8]",
        "return %output, %39, %38, %36, %23",
    ];
    assert_eq!(ATTENTION.lines("main"), expect);
    let expect = [
        "%5 = mul %0, %4 : f32[2,2,5,4]",
        "%6 = dot %5, %1 batch=[0:0,1:1] contract=[3:3] : f32[2,2,5,5]",
        "%7 = call @softmax %6 : f32[2,2,5,5]",
        "%8 = dot %3, %2 batch=[0:0,1:1] contract=[3:3] : f32[2,2,5,5]",
        "%9 = dot %7, %3 batch=[0:0,1:1] contract=[2:2] : f32[2,2,5,4]",
        "%10 = call @softmax.grad %7, %8 : f32[2,2,5,5]",
        "%11 = dot %10, %1 batch=[0:0,1:1] contract=[3:2] : f32[2,2,5,4]",
        "%12 = dot %10, %5 batch=[0:0,1:1] contract=[2:2] : f32[2,2,5,4]",
        "%13 = mul %11, %4 : f32[2,2,5,4]",
        "return %13, %12, %9",
    ];
    assert_eq!(ATTENTION.lines("attention.grad"), expect);
}

/// 6 steps of 2 sequences with 3 features; 4 hidden.
const LSTM: Model = Model {
    params: &[("x", &[6, 2, 3]), ("w", &[3, 16]), ("u", &[4, 16]), ("h", &[2, 4]), ("c", &[2, 4])],
    output: |b, p| {
        let inputs = b.dot(p[0], p[1], Dot { contract: vec![(2, 0)], ..Dot::default() })?;
        let outputs = b.splat(&f32s(&[6, 2, 4]), 0.0)?;
        b.begin("step");
        let i = b.param("i", TensorType::scalar(DType::I32));
        let [h, c] = ["h", "c"].map(|name| b.param(name, f32s(&[2, 4])));
        let written = b.param("outputs", f32s(&[6, 2, 4]));
        let (read, u) = (b.param("inputs", f32s(&[6, 2, 16])), b.param("u", f32s(&[4, 16])));
        let row = b.gather(read, i, 0)?;
        let recurrent = b.matmul(h, u)?;
        let gates = b.add(row, recurrent)?;
        let [input, forget, cell, output] = [0, 4, 8, 12].map(|begin| part(b, gates, 1, begin, begin + 4));
        let (input, forget, output) = (b.sigmoid(input?)?, b.sigmoid(forget?)?, b.sigmoid(output?)?);
        let cell = b.tanh(cell?)?;
        let (old, new) = (b.mul(forget, c)?, b.mul(input, cell)?);
        let c = b.add(old, new)?;
        let tanh = b.tanh(c)?;
        let h = b.mul(output, tanh)?;
        let place = b.reshape(i, [1u64])?;
        let out = b.reshape(h, [1u64, 2, 4])?;
        let written = b.scatter(written, place, out, 0, None)?;
        let body = b.end(&[h, c, written, read, u]);
        let results = b.insert(Op::Repeat { count: 6, body }, &[p[3], p[4], outputs, inputs, p[2]])?;
        b.reshape(results[2], known_dims(&[12, 4]))
    },
};

#[test]
fn lstm() {
    LSTM.check();
    let main = LSTM.lines("main");
    let found: Vec<&str> = main.iter().map(|line| line.split(" = ").last().unwrap()).collect();
    let [reshape, backward, of_u, of_x, of_w, results] = found.as_slice() else { panic!("{main:#?}") };
    assert_eq!(*reshape, "reshape %seed : f32[6,2,4]");
    assert!(backward.starts_with("repeat ") && backward.contains("body=@step.grad"), "{backward}");
    // The product for the recurrent weights is one, over all steps.
    assert!(of_u.starts_with("dot %") && of_u.ends_with("contract=[0:0,1:1] : f32[4,16]"), "{of_u}");
    assert!(of_x.ends_with(", %w contract=[2:1] : f32[6,2,3]"), "{of_x}");
    assert!(of_w.starts_with("dot %x, ") && of_w.ends_with("contract=[0:0,1:1] : f32[3,16]"), "{of_w}");
    assert!(results.starts_with("return "), "{results}");
    let body = LSTM.lines("step.grad").join("\n");
    assert_eq!(body.matches("dot %").count(), 1, "{body}");
    // Nothing is added up: the inputs' gradients are rows.
    assert_eq!(body.matches("combine=sum").count(), 0, "{body}");
    assert_eq!(body.matches("tanh").count() + body.matches("@sigmoid %").count(), 0, "{body}");
}

/// Reads its input from the end: the gradient's rows come in the other order.
const REVERSED: Model = Model {
    params: &[("x", &[5, 2, 3]), ("u", &[3, 3]), ("h", &[2, 3])],
    output: |b, p| {
        b.begin("step");
        let i = b.param("i", TensorType::scalar(DType::I32));
        let (h, x) = (b.param("h", f32s(&[2, 3])), b.param("x", f32s(&[5, 2, 3])));
        let u = b.param("u", f32s(&[3, 3]));
        let last = b.scalar(DType::I32, 4.0);
        let row = b.sub(last, i).and_then(|place| b.gather(x, place, 0))?;
        let recurrent = b.matmul(h, u)?;
        let sum = b.add(row, recurrent)?;
        let h = b.tanh(sum)?;
        let body = b.end(&[h, x, u]);
        let results = b.insert(Op::Repeat { count: 5, body }, &[p[2], p[0], p[1]])?;
        b.neg(results[0])
    },
};

#[test]
fn reversed() {
    REVERSED.check();
    let main = REVERSED.lines("main");
    assert!(
        main.iter().any(|line| line.contains("reverse %") && line.ends_with("axes=[0] : f32[5,2,3]")),
        "{main:#?}"
    );
    let body = REVERSED.lines("step.grad").join("\n");
    assert_eq!(body.matches("combine=sum").count(), 0, "{body}");
}

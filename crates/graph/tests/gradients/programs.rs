//! Gradients as text: no op more than by hand.

use pando_base::{DType, ReduceFn, Result};
use pando_graph::{Builder, Conv, Dim, Dot, ReduceWindow, Scan, Slice, TensorType, ValueId, print};

fn f32s(sizes: &[u64]) -> TensorType {
    TensorType::new(DType::F32, sizes.iter().copied())
}

/// The gradients of a scalar loss with respect to all parameters.
fn gradients(
    params: &[(&str, &[u64])],
    loss: impl Fn(&mut Builder, &[ValueId]) -> Result<ValueId>,
) -> String {
    let mut b = Builder::new();
    b.begin("main");
    let params: Vec<ValueId> = params.iter().map(|(name, sizes)| b.param(name, f32s(sizes))).collect();
    let loss = loss(&mut b, &params).unwrap();
    let seed = b.splat_like(loss, 1.0).unwrap();
    let gradients = b.gradients(&[(loss, seed)], &params).unwrap();
    let results: Vec<ValueId> = std::iter::once(loss).chain(gradients.into_iter().flatten()).collect();
    b.end(&results);
    print(&b.finish())
}

fn sum(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let axes: Vec<usize> = (0..b.ty(x).rank()).collect();
    b.reduce(ReduceFn::Sum, x, &axes)
}

#[test]
fn conv_net() {
    let text = gradients(
        &[
            ("x", &[2, 3, 8, 8]),
            ("w", &[4, 3, 3, 3]),
            ("s", &[4]),
            ("b", &[4]),
            ("v", &[4, 10]),
            ("c", &[10]),
        ],
        |b, p| {
            let conv = Conv { strides: vec![2, 2], padding: vec![(1, 1); 2], ..Conv::plain(2) };
            let y = b.conv(p[0], p[1], conv)?;
            let [y, _, _] = b.batch_norm_training(y, p[2], p[3], 1e-5)?;
            let y = b.relu(y)?;
            let window = ReduceWindow {
                func: ReduceFn::Max,
                window: vec![1, 1, 2, 2],
                strides: vec![1, 1, 2, 2],
                padding: vec![(0, 0); 4],
                dilation: vec![1; 4],
            };
            let y = b.reduce_window(y, window)?;
            let y = b.reduce(ReduceFn::Sum, y, &[2, 3])?;
            let y = b.matmul(y, p[4])?;
            let bias = b.broadcast(p[5], b.ty(y).dims.clone(), &[1])?;
            let y = b.add(y, bias)?;
            let y = b.log_softmax(y, 1)?;
            let y = b.slice(
                y,
                Slice {
                    begin: vec![0, 3],
                    end: [Dim::Known(2), Dim::Known(4)].into_iter().collect(),
                    step: vec![1, 1],
                },
            )?;
            sum(b, y)
        },
    );
    println!("{text}");
}

#[test]
fn attention() {
    let text = gradients(&[("x", &[2, 5, 8]), ("w", &[8, 24]), ("c", &[24]), ("v", &[8, 8])], |b, p| {
        let y = b.dot(p[0], p[1], Dot { contract: vec![(2, 0)], ..Dot::default() })?;
        let bias = b.broadcast_trailing(p[2], b.ty(y).dims.clone())?;
        let y = b.add(y, bias)?;
        let mut heads = vec![];
        for i in 0..3u64 {
            let part = b.slice(
                y,
                Slice {
                    begin: vec![0, 0, 8 * i],
                    end: [Dim::Known(2), Dim::Known(5), Dim::Known(8 * i + 8)].into_iter().collect(),
                    step: vec![1; 3],
                },
            )?;
            let part = b.reshape(part, [2u64, 5, 2, 4])?;
            heads.push(b.transpose(part, &[0, 2, 1, 3])?);
        }
        let y = b.composite("attention", "", &heads, |b, a| {
            let scores =
                b.dot(a[0], a[1], Dot { batch: vec![(0, 0), (1, 1)], contract: vec![(3, 3)], dtype: None })?;
            let scores = b.binary_scalar(pando_base::BinaryFn::Mul, scores, 0.5)?;
            let weights = b.softmax(scores, 3)?;
            b.matmul(weights, a[2])
        })?;
        let y = b.transpose(y, &[0, 2, 1, 3])?;
        let y = b.reshape(y, [2u64, 5, 8])?;
        let y = b.dot(y, p[3], Dot { contract: vec![(2, 0)], ..Dot::default() })?;
        let y = b.add(y, p[0])?;
        let y = b.gelu(y)?;
        sum(b, y)
    });
    println!("{text}");
}

#[test]
fn lstm() {
    // x: [T, B, I]
    let text = gradients(
        &[
            ("x", &[6, 2, 3]),
            ("wx", &[3, 16]),
            ("wh", &[4, 16]),
            ("c", &[16]),
            ("h0", &[2, 4]),
            ("c0", &[2, 4]),
        ],
        |b, p| {
            let xw = b.dot(p[0], p[1], Dot { contract: vec![(2, 0)], ..Dot::default() })?;
            let bias = b.broadcast_trailing(p[3], b.ty(xw).dims.clone())?;
            let xw = b.add(xw, bias)?;
            b.begin("step");
            let i = b.param("i", TensorType::scalar(DType::I32));
            let h = b.param("h", f32s(&[2, 4]));
            let c = b.param("c", f32s(&[2, 4]));
            let ys = b.param("ys", f32s(&[6, 2, 4]));
            let wx = b.param("xw", f32s(&[6, 2, 16]));
            let wh = b.param("wh", f32s(&[4, 16]));
            let row = b.gather(wx, i, 0)?;
            let hw = b.matmul(h, wh)?;
            let gates = b.add(row, hw)?;
            let mut g = vec![];
            for k in 0..4u64 {
                g.push(b.slice(
                    gates,
                    Slice {
                        begin: vec![0, 4 * k],
                        end: [Dim::Known(2), Dim::Known(4 * k + 4)].into_iter().collect(),
                        step: vec![1; 2],
                    },
                )?);
            }
            let [ig, fg, og] = [b.sigmoid(g[0])?, b.sigmoid(g[1])?, b.sigmoid(g[3])?];
            let gg = b.tanh(g[2])?;
            let keep = b.mul(fg, c)?;
            let new = b.mul(ig, gg)?;
            let c2 = b.add(keep, new)?;
            let t = b.tanh(c2)?;
            let h2 = b.mul(og, t)?;
            let at = b.reshape(i, [1u64])?;
            let up = b.reshape(h2, [1u64, 2, 4])?;
            let ys2 = b.scatter(ys, at, up, 0, None)?;
            let body = b.end(&[h2, c2, ys2, wx, wh]);
            let ys0 = b.splat(&f32s(&[6, 2, 4]), 0.0)?;
            let r = b.insert(pando_graph::Op::Repeat { count: 6, body }, &[p[4], p[5], ys0, xw, p[2]])?;
            let y = b.mul(r[2], r[2])?;
            sum(b, y)
        },
    );
    println!("{text}");
}

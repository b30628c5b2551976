//! Goal: convolutions over blocks of channels are right whatever the sizes, with all that is fused into them,
//! and images keep their values on the way through ops that work on blocks. Method: random shapes with
//! whole numbers and eighths against the evaluator, bit for bit where sums are exact, at every level, fused and
//! not, on one thread and two. Winograd's error is measured against f64, beside a direct sum's.

mod common;

use common::{options, run};
use pando_base::{BinaryFn, DType, ReduceFn, Shape, Tensor};
use pando_cpu::{CompileOptions, Isa, compile};
use pando_graph::random::bits;
use pando_graph::testing::compare;
use pando_graph::{Builder, ConstData, Conv, Module, Pad, ReduceWindow, Slice, TensorType, ValueId, eval};

/// Small multiples of 1/8: their products and sums are exact in f32.
fn numbers(seed: u64, sizes: &[u64]) -> Tensor {
    let count: u64 = sizes.iter().product();
    let values: Vec<f64> = (0..count).map(|i| (bits(seed, i) % 33) as f64 / 8.0 - 2.0).collect();
    Tensor::from_f64(DType::F32, sizes.to_vec(), &values)
}

fn normal(seed: u64, sizes: &[u64]) -> Tensor {
    ConstData::Normal { seed, mean: 0.0, std: 1.0 }.materialize(DType::F32, &Shape::new(sizes))
}

struct Net {
    b: Builder,
    seed: u64,
}

impl Net {
    fn new() -> Net {
        let mut b = Builder::new();
        b.begin("main");
        Net { b, seed: 0 }
    }

    fn image(&mut self, sizes: [u64; 4]) -> ValueId {
        self.b.param("x", TensorType::new(DType::F32, sizes))
    }

    fn weight(&mut self, sizes: &[u64]) -> ValueId {
        self.seed += 1;
        let data = ConstData::Dense(numbers(self.seed, sizes));
        self.b.weight(&format!("w{}", self.seed), DType::F32, Shape::new(sizes), data)
    }

    fn channels(&self, x: ValueId) -> u64 {
        self.b.ty(x).dims[1].known().unwrap()
    }

    fn conv(&mut self, x: ValueId, outputs: u64, window: [u64; 2], conv: Conv) -> ValueId {
        let inputs = self.channels(x) / conv.groups;
        let kernel = self.weight(&[outputs, inputs, window[0], window[1]]);
        self.b.conv(x, kernel, conv).unwrap()
    }

    /// One number per channel, combined with an image.
    fn per_channel(&mut self, func: BinaryFn, x: ValueId) -> ValueId {
        let (dims, channels) = (self.b.ty(x).dims.clone(), self.channels(x));
        let numbers = self.weight(&[channels]);
        let numbers = self.b.broadcast(numbers, dims, &[1]).unwrap();
        self.b.binary(func, x, numbers).unwrap()
    }

    fn finish(mut self, results: &[ValueId]) -> Module {
        self.b.end(results);
        self.b.finish()
    }
}

/// Against the evaluator at every level; fused or not and on two threads the same bits.
fn check(module: &Module, input: &Tensor, tolerance: f64, what: &str) {
    let inputs = std::slice::from_ref(input);
    let expected = eval(module, module.main().unwrap(), inputs).unwrap();
    for isa in Isa::available() {
        let fused = run(module, inputs, &options(isa, 1, true));
        compare(&fused, &expected, tolerance).unwrap_or_else(|error| panic!("{what} ({isa:?}): {error}"));
        assert_eq!(fused, run(module, inputs, &options(isa, 1, false)), "{what} ({isa:?}): fusion shows");
        assert_eq!(fused, run(module, inputs, &options(isa, 2, true)), "{what} ({isa:?}): threads show");
    }
}

/// A number below `most`, from a seed.
fn draw(seed: u64, position: u64, most: u64) -> u64 {
    bits(seed, position) % most
}

fn random_conv(seed: u64) -> ([u64; 4], u64, [u64; 2], Conv) {
    let at = |position, most| draw(seed, position, most);
    let window = [1 + at(0, 3), 1 + at(1, 5)];
    let groups = [1, 1, 1, 2, 3][at(2, 5) as usize];
    let conv = Conv {
        strides: vec![1 + at(3, 3), 1 + at(4, 2)],
        padding: vec![(at(5, 3) as i64, at(6, 3) as i64), (at(7, 4) as i64 - 1, at(8, 3) as i64)],
        kernel_dilation: vec![1 + at(9, 2), 1 + at(10, 2)],
        groups,
        ..Conv::plain(2)
    };
    let channels = groups * [1, 3, 7, 16, 20, 33][at(11, 6) as usize];
    let outputs = groups * [8, 13, 16, 20, 32, 50][at(12, 6) as usize];
    let image = [1 + at(13, 2), channels, 5 + at(14, 9), 9 + at(15, 24)];
    (image, outputs, window, conv)
}

#[test]
fn convolutions_of_random_shapes() {
    for seed in 0..40 {
        let (image, outputs, window, conv) = random_conv(seed);
        let mut net = Net::new();
        let x = net.image(image);
        // The first reads planes, the second blocks.
        let y = net.conv(x, outputs, window, conv.clone());
        let groups = if outputs % conv.groups == 0 { conv.groups } else { 1 };
        let second = Conv { groups, padding: vec![(1, 1), (2, 0)], ..conv.clone() };
        let results = if seed % 2 == 0 {
            vec![y]
        } else {
            // Whole numbers again, or sums would outgrow f32.
            let small = net.b.binary_scalar(BinaryFn::Max, y, -1.0).unwrap();
            let small = net.b.binary_scalar(BinaryFn::Min, small, 1.5).unwrap();
            vec![net.conv(small, 8 * groups, [2, 2], second)]
        };
        let what = format!("seed {seed}: {image:?} -> {outputs} {window:?} {conv:?}");
        check(&net.finish(&results), &numbers(seed + 100, &image), 0.0, &what);
    }
}

#[test]
fn depthwise_convolutions() {
    for (channels, window, stride, dilation) in
        [(16, 3, 1, 1), (24, 5, 2, 1), (40, 3, 2, 2), (9, 1, 1, 1), (33, 7, 1, 1), (16, 3, 3, 1)]
    {
        let image = [2, channels, 11, 17];
        let mut net = Net::new();
        let x = net.image(image);
        let pad = (window / 2 * dilation) as i64;
        let conv = Conv {
            strides: vec![stride; 2],
            padding: vec![(pad, pad); 2],
            kernel_dilation: vec![dilation; 2],
            groups: channels,
            ..Conv::plain(2)
        };
        let y = net.conv(x, channels, [window; 2], conv);
        let y = net.per_channel(BinaryFn::Add, y);
        let y = net.b.relu6(y).unwrap();
        check(
            &net.finish(&[y]),
            &numbers(7, &image),
            0.0,
            &format!("{channels} {window} {stride} {dilation}"),
        );
    }
}

/// Scale, shift, residual, bounds and activations in all orders that models have, and some they have not.
#[test]
fn what_follows_a_convolution() {
    let image = [2, 20, 6, 15];
    let same = Conv { padding: vec![(1, 1); 2], ..Conv::plain(2) };
    let mut net = Net::new();
    let x = net.image(image);
    let base = net.conv(x, 40, [3, 3], same.clone());
    let scaled = net.per_channel(BinaryFn::Mul, base);
    let shifted = net.per_channel(BinaryFn::Add, scaled);
    let relu = net.b.relu(shifted).unwrap();
    // A residual made before, one made after, and the value itself.
    let second = net.conv(relu, 40, [1, 1], Conv::plain(2));
    let with_residual = net.b.add(second, relu).unwrap();
    let clipped = net.b.relu6(with_residual).unwrap();
    let third = net.conv(relu, 40, [1, 1], Conv::plain(2));
    let late = net.conv(clipped, 40, [1, 1], Conv::plain(2));
    let late = net.b.tanh(late).unwrap();
    let sum = net.b.add(third, late).unwrap();
    let doubled = net.b.add(sum, sum).unwrap();
    let silu = net.b.silu(doubled).unwrap();
    let gate = net.b.sigmoid(silu).unwrap();
    let gated = net.b.mul(silu, gate).unwrap();
    // Bounds that one comparison would get wrong.
    let low = net.b.binary_scalar(BinaryFn::Max, gated, -0.0).unwrap();
    let high = net.b.binary_scalar(BinaryFn::Min, low, 0.0).unwrap();
    let numbers_of = numbers(5, &image);
    check(&net.finish(&[clipped, gated, high, base]), &numbers_of, 1e-4, "what follows");
}

/// Squeeze and excite: a gate per image and channel.
#[test]
fn gates_per_image() {
    let image = [3, 20, 9, 9];
    let mut net = Net::new();
    let x = net.image(image);
    let y = net.conv(x, 40, [1, 1], Conv::plain(2));
    let pooled = net.b.reduce(ReduceFn::Sum, y, &[2, 3]).unwrap();
    let pooled = net.b.reshape(pooled, [3u64, 40, 1, 1]).unwrap();
    let gate = net.conv(pooled, 40, [1, 1], Conv::plain(2));
    let gate = net.b.sigmoid(gate).unwrap();
    let dims = net.b.ty(y).dims.clone();
    let gate = net.b.broadcast(gate, dims, &[0, 1, 2, 3]).unwrap();
    let gated = net.b.mul(y, gate).unwrap();
    let z = net.conv(gated, 16, [1, 1], Conv::plain(2));
    check(&net.finish(&[gated, z]), &numbers(11, &image), 1e-4, "gates");
}

/// Ops that images in blocks pass through.
#[test]
fn images_keep_their_values() {
    let image = [2, 5, 10, 12];
    let mut net = Net::new();
    let x = net.image(image);
    let a = net.conv(x, 32, [1, 1], Conv::plain(2));
    let b = net.conv(x, 20, [1, 1], Conv::plain(2));
    let window = |func, size: u64, stride: u64, padding, dilation: u64| ReduceWindow {
        func,
        window: vec![1, 1, size, size],
        strides: vec![1, 1, stride, stride],
        padding: vec![(0, 0), (0, 0), padding, padding],
        dilation: vec![1, 1, dilation, dilation],
    };
    let largest = net.b.reduce_window(a, window(ReduceFn::Max, 3, 2, (1, 1), 1)).unwrap();
    let sums = net.b.reduce_window(b, window(ReduceFn::Sum, 2, 1, (0, 2), 3)).unwrap();
    // Whole blocks first, or not.
    let joined = net.b.concat(&[a, b], 1).unwrap();
    let ragged = net.b.concat(&[b, a], 1).unwrap();
    let slice = |begin: u64, end: u64| Slice {
        begin: vec![0, begin, 1, 0],
        end: pando_graph::known_dims(&[2, end, 10, 12]),
        step: vec![1, 1, 2, 1],
    };
    let block = net.b.slice(joined, slice(16, 30)).unwrap();
    let part = net.b.slice(joined, slice(5, 37)).unwrap();
    let zero = net.b.scalar(DType::F32, 0.5);
    let pad = Pad { low: vec![0, 0, 1, 2], high: vec![0, 0, 0, -1], interior: vec![0, 0, 1, 0] };
    let padded = net.b.pad(b, zero, pad).unwrap();
    let flat = net.b.transpose(a, &[0, 2, 3, 1]).unwrap();
    let rows = net.b.reduce(ReduceFn::Max, b, &[3]).unwrap();
    let whole = net.b.reduce(ReduceFn::Max, b, &[2, 3]).unwrap();
    // Numbers that are not one per channel.
    let mask = net.weight(&[1, 1, 10, 12]);
    let dims = net.b.ty(b).dims.clone();
    let mask = net.b.broadcast(mask, dims, &[0, 1, 2, 3]).unwrap();
    let masked = net.b.mul(b, mask).unwrap();
    let results = [largest, sums, joined, ragged, block, part, padded, flat, rows, whole, masked];
    check(&net.finish(&results), &numbers(3, &image), 1e-6, "images");
}

fn three_by_three(image: [u64; 4], outputs: u64) -> Module {
    let mut net = Net::new();
    let x = net.image(image);
    let eye = Tensor::from_f64(DType::F32, [image[1], image[1], 1, 1], &identity(image[1] as usize));
    let eye = net.b.weight("eye", DType::F32, eye.shape().clone(), ConstData::Dense(eye.clone()));
    let blocked = net.b.conv(x, eye, Conv::plain(2)).unwrap();
    let kernel = normal(9, &[outputs, image[1], 3, 3]);
    let kernel = net.b.weight("k", DType::F32, kernel.shape().clone(), ConstData::Dense(kernel.clone()));
    let same = Conv { padding: vec![(1, 1); 2], ..Conv::plain(2) };
    let y = net.b.conv(blocked, kernel, same).unwrap();
    let y = net.per_channel(BinaryFn::Mul, y);
    let y = net.per_channel(BinaryFn::Add, y);
    net.finish(&[y])
}

fn identity(size: usize) -> Vec<f64> {
    (0..size * size).map(|at| f64::from(u8::from(at / size == at % size))).collect()
}

#[test]
fn winograd_is_used_and_right() {
    for (image, outputs) in [([1, 32, 6, 6], 32), ([2, 40, 7, 13], 50), ([1, 64, 30, 29], 33)] {
        let module = three_by_three(image, outputs);
        let input = normal(1, &image);
        let model = compile(&module, &CompileOptions::default()).unwrap();
        let (_, steps) = model.profile(std::slice::from_ref(&input)).unwrap();
        assert!(steps.iter().any(|step| step.kind == "winograd"), "{steps:?}");
        check(&module, &input, 1e-3, &format!("{image:?} {outputs}"));
    }
}

/// The error of Winograd's method is no larger than that of summing the products in f32 one by one.
#[test]
fn winograd_is_as_exact_as_direct_sums() {
    for (image, outputs) in [([1u64, 64, 14, 14], 32u64), ([1, 256, 8, 8], 32)] {
        let (x, w) = (normal(1, &image), normal(9, &[outputs, image[1], 3, 3]));
        let mut net = Net::new();
        let p = net.image(image);
        let eye = Tensor::from_f64(DType::F32, [image[1], image[1], 1, 1], &identity(image[1] as usize));
        let eye = net.b.weight("eye", DType::F32, eye.shape().clone(), ConstData::Dense(eye.clone()));
        let blocked = net.b.conv(p, eye, Conv::plain(2)).unwrap();
        let kernel = net.b.weight("k", DType::F32, w.shape().clone(), ConstData::Dense(w.clone()));
        let same = Conv { padding: vec![(1, 1); 2], ..Conv::plain(2) };
        let y = net.b.conv(blocked, kernel, same).unwrap();
        let module = net.finish(&[y]);
        let (exact, direct) = sums(&x, &w, image, outputs);
        let rms = |found: &[f64]| {
            let squares = found.iter().zip(&exact).map(|(a, b)| (a - b) * (a - b));
            (squares.sum::<f64>() / exact.len() as f64).sqrt()
        };
        for isa in Isa::available() {
            let found = run(&module, std::slice::from_ref(&x), &options(isa, 1, true))[0].to_f64();
            let (winograd, plain) = (rms(&found), rms(&direct));
            assert!(winograd <= plain, "{image:?} {isa:?}: {winograd:e} is more than {plain:e}");
        }
    }
}

/// The convolution in f64, and its products summed in f32 in the order of channels, rows and columns.
fn sums(x: &Tensor, w: &Tensor, image: [u64; 4], outputs: u64) -> (Vec<f64>, Vec<f64>) {
    let (x, w) = (x.to_f64(), w.to_f64());
    let [_, inputs, height, width] = image.map(|size| size as usize);
    let (mut exact, mut direct) = (Vec::new(), Vec::new());
    for output in 0..outputs as usize {
        for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
            let (mut total, mut rounded) = (0f64, 0f32);
            for (input, tap) in (0..inputs).flat_map(|input| (0..9).map(move |tap| (input, tap))) {
                let (y, z) = (row + tap / 3, column + tap % 3);
                if y == 0 || z == 0 || y > height || z > width {
                    continue;
                }
                let x = x[(input * height + y - 1) * width + z - 1];
                let w = w[(output * inputs + input) * 9 + tap];
                total += x * w;
                rounded = (x as f32).mul_add(w as f32, rounded);
            }
            exact.push(total);
            direct.push(rounded.into());
        }
    }
    (exact, direct)
}

/// Bits of f32 are what NaN and infinities say, lane by lane: no neighbour's padding leaks in.
#[test]
fn numbers_that_are_not_finite_stay_in_their_place() {
    let image = [1, 24, 5, 5];
    let mut values = numbers(4, &image).to_f64();
    values[30] = f64::INFINITY;
    values[24 * 25 - 1] = f64::NAN;
    let input = Tensor::from_f64(DType::F32, image, &values);
    let mut net = Net::new();
    let x = net.image(image);
    let one = net.b.splat_like(x, 1.0).unwrap();
    let kernel = Tensor::from_f64(DType::F32, [24, 1, 1, 1], &[1.0; 24]);
    let kernel = net.b.weight("k", DType::F32, kernel.shape().clone(), ConstData::Dense(kernel.clone()));
    let y = net.b.conv(x, kernel, Conv { groups: 24, ..Conv::plain(2) }).unwrap();
    let y = net.b.div(one, y).unwrap();
    let y = net.b.relu(y).unwrap();
    check(&net.finish(&[y]), &input, 0.0, "not finite");
}

/// Batches go through a network some images at a time; products, and numbers that differ by image, stay whole.
#[test]
fn batches_are_cut_into_images() {
    let image = [8, 16, 64, 72];
    let mut net = Net::new();
    let x = net.image(image);
    let y = net.conv(x, 24, [3, 3], Conv { padding: vec![(1, 1); 2], ..Conv::plain(2) });
    // As many channels as images, all alike: one per channel all the same.
    let zeros = net.b.weight("zeros", DType::F32, Shape::new(&[8]), ConstData::Splat(0.5));
    let z = net.conv(y, 8, [1, 1], Conv { strides: vec![2, 2], ..Conv::plain(2) });
    let dims = net.b.ty(z).dims.clone();
    let zeros = net.b.broadcast(zeros, dims, &[1]).unwrap();
    let z = net.b.add(z, zeros).unwrap();
    let pooled = net.b.reduce(ReduceFn::Sum, z, &[2, 3]).unwrap();
    // Small enough to be folded into a constant per image.
    let mean = net.b.binary_scalar(BinaryFn::Mul, pooled, 1.0 / 32.0).unwrap();
    let gate = net.b.reshape(mean, [8u64, 8, 1, 1]).unwrap();
    let gate = net.b.binary_scalar(BinaryFn::Min, gate, 2.0).unwrap();
    let dims = net.b.ty(z).dims.clone();
    let gate = net.b.broadcast(gate, dims, &[0, 1, 2, 3]).unwrap();
    let gated = net.b.mul(z, gate).unwrap();
    let differing = net.weight(&[8, 8, 1, 1]);
    let dims = net.b.ty(gated).dims.clone();
    let differing = net.b.broadcast(differing, dims, &[0, 1, 2, 3]).unwrap();
    let last = net.b.add(gated, differing).unwrap();
    let across = net.b.reduce(ReduceFn::Max, z, &[0]).unwrap();
    let module = net.finish(&[gated, last, across, mean]);
    let input = numbers(21, &image);
    let model = compile(&module, &CompileOptions { threads: 1, ..CompileOptions::default() }).unwrap();
    let (_, steps) = model.profile(std::slice::from_ref(&input)).unwrap();
    assert!(steps.iter().any(|step| step.kind == "images"), "{steps:?}");
    check(&module, &input, 1e-5, "batches");
}

/// Channels in another order between convolutions of groups, with channels that fill no block.
#[test]
fn channels_are_shuffled() {
    for (channels, groups) in [(24, 3), (40, 4), (16, 2)] {
        let image = [2, channels, 5, 6];
        let mut net = Net::new();
        let x = net.image(image);
        let y = net.conv(x, channels, [1, 1], Conv { groups, ..Conv::plain(2) });
        let split = net.b.reshape(y, [2, groups, channels / groups, 5, 6]).unwrap();
        let exchanged = net.b.transpose(split, &[0, 2, 1, 3, 4]).unwrap();
        let shuffled = net.b.reshape(exchanged, image).unwrap();
        let same = Conv { padding: vec![(1, 1); 2], groups: channels, ..Conv::plain(2) };
        let z = net.conv(shuffled, channels, [3, 3], same);
        let module = net.finish(&[shuffled, z]);
        let model = compile(&module, &CompileOptions::default()).unwrap();
        let input = numbers(17, &image);
        let (_, steps) = model.profile(std::slice::from_ref(&input)).unwrap();
        assert!(steps.iter().any(|step| step.kind == "shuffle"), "{steps:?}");
        check(&module, &input, 0.0, &format!("{channels} in {groups}"));
    }
}

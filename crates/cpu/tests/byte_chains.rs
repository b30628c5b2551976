//! Goal: convolutions (of images and of lines) and products between dequantising and quantising give what the evaluator gives, however they are
//! taken together. Method: random chains with scales that are powers of two, where every f32 operation is exact and so
//! every bit must be the same, halves included; and single products with any scales, where a step is allowed where the
//! value lies in the middle. PANDO_SEEDS sets how many.

use pando_base::{BinaryFn, DType, ReduceFn, Shape, Tensor, UnaryFn};
use pando_cpu::{CompileOptions, Isa, compile};
use pando_graph::{
    Builder, ConstData, Conv, Dot, Module, ReduceWindow, TensorType, ValueId, eval, known_dims, print, random,
};

/// A source of choices.
struct Draw {
    seed: u64,
    count: u64,
    /// Whether scales are powers of two.
    exact: bool,
}

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.count += 1;
        random::bits(self.seed, self.count) % n
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn scale(&mut self, exponent: i32) -> f64 {
        let power = f64::powi(2.0, exponent - self.below(3) as i32);
        // In f32, as it will be.
        let factor = if self.exact { 1.0 } else { 1.0 + self.below(1000) as f64 / 999.0 };
        f64::from((power * factor) as f32)
    }

    fn bytes(&mut self, dtype: DType, sizes: &[u64]) -> Tensor {
        let low = if dtype == DType::I8 { -128 } else { 0 };
        let count: u64 = sizes.iter().product();
        let values: Vec<i128> = (0..count).map(|_| low + i128::from(self.below(256))).collect();
        Tensor::from_ints(dtype, sizes.to_vec(), &values)
    }
}

/// A tensor of codes, and how they stand for reals.
#[derive(Clone)]
struct Codes {
    value: ValueId,
    sizes: Vec<u64>,
    dtype: DType,
    zero: f64,
    scale: f64,
}

struct Chain {
    b: Builder,
    draw: Draw,
}

impl Chain {
    fn spread(&mut self, numbers: &[f64], axis: usize, sizes: &[u64]) -> ValueId {
        let shape: Vec<u64> = if numbers.len() == 1 { Vec::new() } else { vec![numbers.len() as u64] };
        let value = self.b.constant(Tensor::from_f64(DType::F32, shape, numbers));
        let axes: &[usize] = if numbers.len() == 1 { &[] } else { &[axis] };
        self.b.broadcast(value, known_dims(sizes), axes).unwrap()
    }

    fn real(&mut self, codes: ValueId, zero: f64, scales: &[f64], axis: usize, sizes: &[u64]) -> ValueId {
        let wide = self.b.convert(codes, DType::F32).unwrap();
        let zero = self.spread(&[zero], 0, sizes);
        let less = self.b.sub(wide, zero).unwrap();
        let scale = self.spread(scales, axis, sizes);
        self.b.mul(less, scale).unwrap()
    }

    fn dequantised(&mut self, x: &Codes) -> ValueId {
        self.real(x.value, x.zero, &[x.scale], 0, &x.sizes.clone())
    }

    fn quantised(&mut self, value: ValueId, like: Option<&Codes>, exponent: i32) -> Codes {
        let sizes: Vec<u64> = self.b.ty(value).shape().unwrap().to_vec();
        let (dtype, zero, scale) = match like {
            Some(like) => (like.dtype, like.zero, like.scale),
            None => {
                let dtype = self.draw.one(&[DType::U8, DType::I8]);
                let (low, high) = if dtype == DType::U8 { (0.0, 255.0) } else { (-128.0, 127.0) };
                let zero = self.draw.one(&[low, low + 128.0, low + 77.0, high]);
                (dtype, zero, self.draw.scale(exponent))
            }
        };
        let (low, high) = if dtype == DType::U8 { (0.0, 255.0) } else { (-128.0, 127.0) };
        let scales = self.spread(&[scale], 0, &sizes);
        let scaled = self.b.div(value, scales).unwrap();
        let zeros = self.spread(&[zero], 0, &sizes);
        // As the standard rounds, and as ONNX Runtime's own operators do.
        let moved = match self.draw.below(3) {
            0 => {
                let moved = self.b.add(scaled, zeros).unwrap();
                self.b.unary(UnaryFn::Round, moved).unwrap()
            }
            _ => {
                let rounded = self.b.unary(UnaryFn::Round, scaled).unwrap();
                self.b.add(rounded, zeros).unwrap()
            }
        };
        let above = self.b.binary_scalar(BinaryFn::Max, moved, low).unwrap();
        let inside = self.b.binary_scalar(BinaryFn::Min, above, high).unwrap();
        Codes { value: self.b.convert(inside, dtype).unwrap(), sizes, dtype, zero, scale }
    }

    fn weights(&mut self, sizes: &[u64], axis: usize) -> ValueId {
        let dtype = self.draw.one(&[DType::I8, DType::I8, DType::U8]);
        let codes = self.draw.bytes(dtype, sizes);
        let data = ConstData::Dense(codes);
        let codes = self.b.weight("w", dtype, Shape::from(sizes.to_vec()), data);
        let count = self.draw.one(&[1, sizes[axis]]);
        let scales: Vec<f64> = (0..count).map(|_| self.draw.scale(-6)).collect();
        self.real(codes, if dtype == DType::U8 { 128.0 } else { 0.0 }, &scales, axis, sizes)
    }

    /// What may stand between a product and its rounding.
    fn followed(&mut self, mut value: ValueId, axis: usize) -> ValueId {
        let sizes: Vec<u64> = self.b.ty(value).shape().unwrap().to_vec();
        if self.draw.below(2) == 0 {
            let bias: Vec<f64> = (0..sizes[axis]).map(|_| self.draw.below(200) as f64 / 16.0 - 6.0).collect();
            let bias = self.spread(&bias, axis, &sizes);
            value = self.b.add(value, bias).unwrap();
        }
        match self.draw.below(3) {
            0 => self.b.relu(value).unwrap(),
            1 => {
                let low = self.b.binary_scalar(BinaryFn::Max, value, -1.5).unwrap();
                self.b.binary_scalar(BinaryFn::Min, low, 6.0).unwrap()
            }
            _ => value,
        }
    }

    fn conv(&mut self, x: &Codes) -> Codes {
        let channels = x.sizes[1];
        let groups = match self.draw.below(4) {
            0 => channels,
            1 if channels.is_multiple_of(4) => 4,
            _ => 1,
        };
        let outputs =
            groups * if groups == channels { 1 + self.draw.below(2) } else { 1 + self.draw.below(40) };
        let spatial = x.sizes.len() - 2;
        let window: Vec<u64> = (0..spatial).map(|_| 1 + self.draw.below(3)).collect();
        let real = self.dequantised(x);
        let w = self.weights(&[&[outputs, channels / groups], &window[..]].concat(), 0);
        let mut conv = Conv { groups, ..Conv::plain(spatial) };
        for (axis, size) in window.into_iter().enumerate() {
            conv.strides[axis] = 1 + self.draw.below(2);
            conv.kernel_dilation[axis] = 1 + self.draw.below(2);
            let most = ((size - 1) * conv.kernel_dilation[axis]) as i64;
            // Cropping, too, where something is left.
            let less = if x.sizes[axis + 2] > 4 { self.draw.below(2) as i64 } else { 0 };
            conv.padding[axis] = (most - less, most);
        }
        let sums = self.b.conv(real, w, conv).unwrap();
        let value = self.followed(sums, 1);
        self.quantised(value, None, 2)
    }

    fn dot(&mut self, x: &Codes) -> Codes {
        let last = x.sizes.len() - 1;
        let (inputs, outputs) = (x.sizes[last], 1 + self.draw.below(70));
        let real = self.dequantised(x);
        let transposed = self.draw.below(2) as usize;
        let sizes = if transposed == 1 { [outputs, inputs] } else { [inputs, outputs] };
        let w = self.weights(&sizes, 1 - transposed);
        let dot = Dot { contract: vec![(last, transposed)], ..Dot::default() };
        let sums = self.b.dot(real, w, dot).unwrap();
        let value = self.followed(sums, last);
        self.quantised(value, None, 2)
    }

    fn added(&mut self, x: &Codes, y: &Codes) -> Codes {
        let (a, b) = (self.dequantised(x), self.dequantised(y));
        let mut sum = self.b.add(a, b).unwrap();
        if self.draw.below(2) == 0 {
            sum = self.b.relu(sum).unwrap();
        }
        self.quantised(sum, None, 3)
    }

    fn largest(&mut self, x: &Codes) -> Codes {
        let rank = x.sizes.len();
        let window = ReduceWindow {
            func: ReduceFn::Max,
            window: vec![1, 1, 2, 3][..rank].to_vec(),
            strides: vec![1, 1, 2, 1][..rank].to_vec(),
            padding: vec![(0, 0), (0, 0), (1, 1), (1, 1)][..rank].to_vec(),
            dilation: vec![1; rank],
        };
        let real = self.dequantised(x);
        let value = self.b.reduce_window(real, window).unwrap();
        let same = self.draw.below(2) == 0;
        self.quantised(value, same.then_some(x), 3)
    }
}

/// A module and its inputs.
fn program(seed: u64, exact: bool) -> (Module, Vec<Tensor>) {
    let mut draw = Draw { seed, count: 0, exact };
    let images = draw.below(3) > 0;
    let sizes = match images {
        true => {
            let mut sizes = vec![1 + draw.below(2), draw.one(&[1, 3, 4, 8, 17, 36])];
            // Lines have one spatial axis.
            sizes
                .extend([1 + draw.below(9), 1 + draw.below(20)].into_iter().skip(draw.below(3) as usize / 2));
            sizes
        }
        false => vec![1 + draw.below(3), 1 + draw.below(20), 1 + draw.below(90)],
    };
    let (dtype, zero) = (draw.one(&[DType::U8, DType::I8]), draw.below(100) as f64);
    let input = draw.bytes(dtype, &sizes);
    let mut b = Builder::new();
    b.begin("main");
    let value = b.param("x", TensorType::new(dtype, sizes.clone()));
    let mut chain = Chain { b, draw };
    let mut x = Codes { value, sizes, dtype, zero, scale: chain.draw.scale(-5) };
    for _ in 0..if exact { 1 + chain.draw.below(4) } else { 1 } {
        let before = x.clone();
        x = if images { chain.conv(&x) } else { chain.dot(&x) };
        if exact {
            x = match chain.draw.below(4) {
                0 if x.sizes == before.sizes => chain.added(&x, &before),
                1 if images && before.sizes.iter().zip(&x.sizes).all(|(a, b)| a == b) => {
                    chain.added(&before, &x)
                }
                2 if images && x.sizes[2..].iter().all(|&size| size > 2) => chain.largest(&x),
                _ => x,
            };
        }
    }
    let (mut b, result) = (chain.b, x.value);
    b.end(&[result]);
    (b.finish(), vec![input])
}

fn seeds(default: u64) -> u64 {
    std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Codes of the module as the evaluator and as each level computes them.
fn check(seed: u64, exact: bool, judge: impl Fn(&[i128], &[i128]) -> bool) {
    let (module, inputs) = program(seed, exact);
    let expected = eval(&module, module.main().unwrap(), &inputs).unwrap().swap_remove(0).to_ints();
    let mut first: Option<Vec<i128>> = None;
    for isa in Isa::available() {
        for threads in [1, 2] {
            let options = CompileOptions { isa, threads, ..CompileOptions::default() };
            let model = compile(&module, &options).unwrap();
            let (mut found, steps) = model.profile(&inputs).unwrap();
            let found = found.swap_remove(0).to_ints();
            let floats = steps.iter().filter(|step| step.flops > 0 && !step.kind.starts_with("int8"));
            let floats: Vec<_> = floats.map(|step| (step.kind, &step.sizes)).collect();
            assert!(floats.is_empty(), "seed {seed}: {floats:?} are not of bytes:\n{}", print(&module));
            let judged = found.len() == expected.len() && judge(&found, &expected);
            assert!(judged, "seed {seed} {isa:?}:\n{}\n{found:?}\n{expected:?}", print(&module));
            let same = first.get_or_insert_with(|| found.clone()) == &found;
            assert!(same, "seed {seed}: {isa:?} with {threads} threads differs");
        }
    }
}

#[test]
fn chains_of_exact_scales_are_exact() {
    for seed in 0..seeds(150) {
        check(seed, true, |found, expected| found == expected);
    }
}

#[test]
fn products_are_within_a_step() {
    for seed in 0..seeds(100) {
        check(seed, false, |found, expected| {
            let steps: Vec<i128> = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).collect();
            let moved = steps.iter().filter(|&&step| step > 0).count();
            steps.iter().all(|&step| step <= 1) && moved * 200 <= steps.len().max(200)
        });
    }
}

/// Sums of reals have no end where an i32 has one.
#[test]
fn long_sums_of_reals_do_not_wrap() {
    const LONG: u64 = 70_000;
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(DType::U8, [1, LONG]));
    let mut chain = Chain { b, draw: Draw { seed: 0, count: 0, exact: false } };
    let real = chain.real(x, 0.0, &[0.01], 0, &[1, LONG]);
    let codes = Tensor::from_ints(DType::I8, [LONG, 1], &[127; LONG as usize]);
    let codes = chain.b.weight("w", DType::I8, Shape::from(vec![LONG, 1]), ConstData::Dense(codes));
    let w = chain.real(codes, 0.0, &[0.01], 0, &[LONG, 1]);
    let dot = Dot { batch: Vec::new(), contract: vec![(1, 0)], dtype: None };
    let y = chain.b.dot(real, w, dot).unwrap();
    chain.b.end(&[y]);
    let model = compile(&chain.b.finish(), &CompileOptions::default()).expect("it compiles");
    let args = [Tensor::from_ints(DType::U8, [1, LONG], &[255; LONG as usize])];
    let sum = model.run(&args).expect("it runs")[0].to_f64()[0];
    let exact = LONG as f64 * 255.0 * 127.0 * 1e-4;
    assert!((sum / exact - 1.0).abs() < 1e-3, "{sum} instead of {exact}");
}

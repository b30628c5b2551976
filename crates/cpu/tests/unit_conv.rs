//! Goal: convolutions on a unit for tiles (AMX) are right: windows, strides, padding, edges of tiles, of blocks of
//! channels and of tasks, whatever follows; as exact as their precision says; and those of images with numbers that
//! parts of bf16 cannot hold are those of f32. Method: the unit's emulation, on any computer, and the processor's unit
//! where there is one, against the evaluator (bit for bit where sums are exact), and against the same without a unit.

mod common;

use common::run;
use pando_base::{BinaryFn, DType, Shape, Tensor};
use pando_cpu::{CompileOptions, Isa, MatmulPrecision, TileUnit, compile};
use pando_graph::random::{bits, normal};
use pando_graph::testing::compare;
use pando_graph::{Builder, ConstData, Conv, Module, TensorType, eval};

fn options(matmul_precision: MatmulPrecision, tile_unit: TileUnit, isa: Isa) -> CompileOptions {
    CompileOptions { matmul_precision, tile_unit, ..common::options(isa, 1, true) }
}

/// The emulation, and this computer's unit.
fn units() -> impl Iterator<Item = TileUnit> {
    let own = Some(TileUnit::detect()).filter(|&unit| unit != TileUnit::None);
    [TileUnit::Emulated].into_iter().chain(own)
}

/// Small multiples of 1/8, which a bf16 holds: their products and sums are exact in f32.
fn eighths(seed: u64, sizes: &[u64]) -> Tensor {
    let count: u64 = sizes.iter().product();
    let values: Vec<f64> = (0..count).map(|i| (bits(seed, i) % 33) as f64 / 8.0 - 2.0).collect();
    Tensor::from_f64(DType::F32, sizes.to_vec(), &values)
}

fn normals(seed: u64, sizes: &[u64]) -> Tensor {
    let values: Vec<f64> = (0..sizes.iter().product()).map(|i| normal(seed, i)).collect();
    Tensor::from_f64(DType::F32, sizes.to_vec(), &values)
}

/// What is convolved.
#[derive(Debug)]
struct Case {
    image: [u64; 4],
    outputs: u64,
    window: [u64; 2],
    conv: Conv,
}

impl Case {
    fn random(seed: u64) -> Case {
        let at = |position, most| bits(seed, position) % most;
        let conv = Conv {
            strides: vec![1 + at(3, 2), 1 + at(4, 2)],
            padding: vec![(at(5, 3) as i64, at(6, 3) as i64), (at(7, 4) as i64 - 1, at(8, 3) as i64)],
            kernel_dilation: vec![1 + at(9, 2), 1 + at(10, 2)],
            ..Conv::plain(2)
        };
        let channels = [16, 20, 32, 48, 70, 100][at(11, 6) as usize];
        let outputs = [16, 24, 32, 50, 65][at(12, 5) as usize];
        let image = [[1, 2, 9][at(13, 3) as usize], channels, 7 + at(14, 9), 7 + at(15, 16)];
        Case { image, outputs, window: [1 + at(0, 3), 1 + at(1, 3)], conv }
    }

    /// The images go through a convolution first that puts them into blocks and changes nothing; a number per channel is added to the result,
    /// and what is negative becomes zero.
    fn module(&self, kernel: Tensor) -> Module {
        let mut b = Builder::new();
        b.begin("main");
        let weight = |b: &mut Builder, name: &str, tensor: Tensor| {
            b.weight(name, DType::F32, tensor.shape().clone(), ConstData::Dense(tensor))
        };
        let x = b.param("x", TensorType::new(DType::F32, self.image));
        let one = weight(&mut b, "one", depthwise_one(self.image[1]));
        let x = b.conv(x, one, Conv { groups: self.image[1], ..Conv::plain(2) }).unwrap();
        let kernel = weight(&mut b, "kernel", kernel);
        let y = b.conv(x, kernel, self.conv.clone()).unwrap();
        let shift = weight(&mut b, "shift", eighths(77, &[self.outputs]));
        let shift = b.broadcast(shift, b.ty(y).dims.clone(), &[1]).unwrap();
        let y = b.binary(BinaryFn::Add, y, shift).unwrap();
        let y = b.relu(y).unwrap();
        b.end(&[y]);
        b.finish()
    }

    fn kernel_sizes(&self) -> [u64; 4] {
        [self.outputs, self.image[1], self.window[0], self.window[1]]
    }
}

/// Of a convolution that changes nothing.
fn depthwise_one(channels: u64) -> Tensor {
    Tensor::from_f64(DType::F32, vec![channels, 1, 1, 1], &vec![1.0; channels as usize])
}

fn is_on_unit(module: &Module, input: &Tensor, options: &CompileOptions) -> bool {
    let model = compile(module, options).unwrap();
    let (_, steps) = model.profile(std::slice::from_ref(input)).unwrap();
    steps.iter().any(|step| step.kind == "conv on unit")
}

#[test]
fn convolutions_of_random_shapes() {
    let mut on_unit = 0;
    for seed in 0..36 {
        let case = Case::random(seed);
        let module = case.module(eighths(seed + 1000, &case.kernel_sizes()));
        let input = eighths(seed + 2000, &case.image);
        let inputs = std::slice::from_ref(&input);
        let expected = eval(&module, module.main().unwrap(), inputs).unwrap();
        let precision = MatmulPrecision::ALL[seed as usize % 3];
        // Other levels differ in what makes words and what follows.
        let isas = Isa::available().filter(|&isa| isa == Isa::detect() || seed < 4);
        for (isa, unit) in isas.flat_map(|isa| units().map(move |unit| (isa, unit))) {
            let options = options(precision, unit, isa);
            let found = run(&module, inputs, &options);
            compare(&found, &expected, 0.0)
                .unwrap_or_else(|error| panic!("{case:?} {precision:?} {options:?}: {error}"));
            on_unit += usize::from(is_on_unit(&module, &input, &options));
            if seed % 4 == 0 {
                assert_eq!(found, run(&module, inputs, &CompileOptions { threads: 2, ..options }));
            }
        }
    }
    assert!(on_unit > 24, "{on_unit}");
}

/// Largest error as a share of the largest result, against f64.
fn error(found: &[Tensor], exact: &[Tensor]) -> f64 {
    let (found, exact) = (found[0].to_f64(), exact[0].to_f64());
    let largest = exact.iter().fold(0f64, |most, x| most.max(x.abs()));
    found.iter().zip(&exact).fold(0f64, |most, (a, b)| most.max((a - b).abs())) / largest
}

fn pointwise(channels: u64) -> Case {
    Case { image: [2, channels, 9, 13], outputs: 40, window: [1, 1], conv: Conv::plain(2) }
}

fn three_by_three(channels: u64) -> Case {
    let conv = Conv { padding: vec![(1, 1); 2], ..Conv::plain(2) };
    Case { image: [1, channels, 14, 14], outputs: 48, window: [3, 3], conv }
}

#[test]
fn precisions_are_kept() {
    for case in [pointwise(256), three_by_three(64)] {
        let module = case.module(normals(1, &case.kernel_sizes()));
        let input = normals(2, &case.image);
        let inputs = std::slice::from_ref(&input);
        let exact = eval(&module, module.main().unwrap(), inputs).unwrap();
        let of =
            |precision, unit| error(&run(&module, inputs, &options(precision, unit, Isa::detect())), &exact);
        for unit in units() {
            let plain = of(MatmulPrecision::Highest, TileUnit::None);
            assert!(of(MatmulPrecision::Highest, unit) <= plain, "{case:?} {unit:?}");
            let high = of(MatmulPrecision::High, unit);
            assert!(high < 1.0 / 32768.0, "{case:?} {unit:?}: {high:e}");
            let medium = of(MatmulPrecision::Medium, unit);
            assert!(medium < 1.0 / 128.0, "{case:?} {unit:?}: {medium:e}");
            // The processor's unit may be slower than its vectors.
            assert!(plain < high && high < medium || unit == TileUnit::Processor, "the unit was not used");
        }
    }
}

/// Of several images only those with such numbers go to f32.
#[test]
fn wild_images_are_f32() {
    let case = pointwise(70);
    let module = case.module(normals(1, &case.kernel_sizes()));
    let pixels = 2 * 70 * 9 * 13;
    for (index, value) in [f64::INFINITY, f64::NAN, 1e30, 1e-30].into_iter().enumerate() {
        let at = index * 1000 + 33;
        let values: Vec<f64> =
            (0..pixels).map(|i| if i == at { value } else { normal(5, i as u64) }).collect();
        let input = Tensor::from_f64(DType::F32, case.image.to_vec(), &values);
        let of = |unit| {
            let results = run(
                &module,
                std::slice::from_ref(&input),
                &options(MatmulPrecision::Highest, unit, Isa::detect()),
            );
            let bits = |x: f64| if x.is_nan() { f32::NAN.to_bits() } else { (x as f32).to_bits() };
            results[0].to_f64().into_iter().map(bits).collect::<Vec<_>>()
        };
        let (split, plain) = (of(TileUnit::Emulated), of(TileUnit::None));
        let half = split.len() / 2;
        assert_eq!(split[..half], plain[..half], "{value}");
        assert_ne!(split[half..], plain[half..], "{value}: the other image is on the unit");
    }
}

/// Weights that parts cannot hold stay f32, and so do convolutions that would leave the unit idle.
#[test]
fn some_convolutions_stay_in_vectors() {
    let input = |case: &Case| eighths(3, &case.image);
    let unit = |case: &Case, kernel: Tensor, precision| {
        let options = options(precision, TileUnit::Emulated, Isa::detect());
        is_on_unit(&case.module(kernel), &input(case), &options)
    };
    let case = pointwise(64);
    let good = eighths(4, &case.kernel_sizes());
    let mut values = good.to_f64();
    values[5] = 1e30;
    let wild = Tensor::from_f64(DType::F32, Shape::new(&case.kernel_sizes()), &values);
    assert!(unit(&case, good.clone(), MatmulPrecision::Highest));
    assert!(!unit(&case, wild.clone(), MatmulPrecision::High));
    assert!(unit(&case, wild, MatmulPrecision::Medium));
    let few_pixels = Case { image: [1, 64, 3, 5], ..pointwise(64) };
    assert!(!unit(&few_pixels, good, MatmulPrecision::High));
    // Winograd's are faster than six products.
    let case = three_by_three(64);
    let kernel = eighths(4, &case.kernel_sizes());
    assert!(!unit(&case, kernel.clone(), MatmulPrecision::Highest));
    assert!(unit(&case, kernel, MatmulPrecision::High));
}

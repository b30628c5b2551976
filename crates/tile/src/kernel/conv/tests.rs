//! Convolutions against hand-written values and a plain f64 loop.

use super::*;
use crate::block::Block;
use crate::kernel::Kernel;
use crate::kernel::cost::tests::{bow, cycles as number};
use crate::kernel::values::tests::{arg, out, random, run as run_kernel};
use pando_base::{DType, Tensor};
use pando_machine::Chip;
use smallvec::SmallVec;

fn attrs(strides: &[u64], padding: &[u64], dilation: &[u64], groups: u64) -> ConvAttrs {
    ConvAttrs {
        strides: SmallVec::from_slice(strides),
        padding_low: SmallVec::from_slice(padding),
        kernel_dilation: SmallVec::from_slice(dilation),
        groups,
        partials: DType::F32,
        method: ConvMethod::Positions,
    }
}

#[test]
fn one_dimension_with_padding_stride_and_dilation() {
    let conv = |attrs: ConvAttrs, kernel: &[f64], outputs: u64| {
        let input = arg(DType::F32, &[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
        let weights = arg(DType::F32, &[1, 1, kernel.len() as u64], kernel);
        run_kernel(&Kernel::Conv(attrs), vec![input, weights, out(DType::F32, &[1, 1, outputs])])
    };
    assert_eq!(conv(attrs(&[1], &[0], &[1], 1), &[1.0, 10.0], 3), [21.0, 32.0, 43.0]);
    assert_eq!(conv(attrs(&[1], &[1], &[1], 1), &[1.0, 10.0, 100.0], 4), [210.0, 321.0, 432.0, 43.0]);
    assert_eq!(conv(attrs(&[2], &[1], &[1], 1), &[1.0, 10.0], 3), [10.0, 32.0, 4.0]);
    assert_eq!(conv(attrs(&[1], &[0], &[2], 1), &[1.0, 10.0], 2), [31.0, 42.0]);
}

#[test]
fn channels_and_groups() {
    // Two groups of one channel, two outputs each: outputs are 1x, 2x of channel 0; 3x, 4x of channel 1.
    let input = arg(DType::F16, &[1, 2, 2], &[1.0, 2.0, 10.0, 20.0]);
    let weights = arg(DType::F16, &[4, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
    let kernel = Kernel::Conv(attrs(&[1], &[0], &[1], 2));
    let result = run_kernel(&kernel, vec![input, weights, out(DType::F16, &[1, 4, 2])]);
    assert_eq!(result, [1.0, 2.0, 2.0, 4.0, 30.0, 60.0, 40.0, 80.0]);
}

#[test]
fn integers_and_no_spatial_dimensions() {
    let input = arg(DType::I8, &[2, 2], &[1.0, 2.0, 100.0, 100.0]);
    let weights = arg(DType::I8, &[1, 2], &[3.0, 4.0]);
    let conv = ConvAttrs { partials: DType::I8, ..attrs(&[], &[], &[], 1) };
    let result = run_kernel(&Kernel::Conv(conv), vec![input, weights, out(DType::I8, &[2, 1])]);
    assert_eq!(result, [11.0, -68.0], "700 - 3 · 256");
}

/// The second of two groups' blocks, and outputs 2..4 of 4 with the inputs they need, as a partial result
/// of a variable with one more dimension.
#[test]
fn blocks_are_placed_by_global_indices() {
    let block = |bounds: &[(u64, u64)], shape: &[u64], values: &[f64]| {
        let block = Block::new(bounds);
        let data = Tensor::from_f64(DType::F32, block.lens().to_vec(), values);
        Arg::new(block, shape, data)
    };
    let input = block(&[(0, 1), (1, 2), (1, 4)], &[1, 2, 4], &[2.0, 3.0, 4.0]);
    let weights = block(&[(1, 2), (0, 1), (0, 3)], &[2, 1, 3], &[1.0, 10.0, 100.0]);
    let result = block(&[(0, 1), (0, 1), (1, 2), (2, 4)], &[2, 1, 2, 4], &[0.0; 2]);
    let kernel = Kernel::Conv(attrs(&[1], &[1], &[1], 2));
    assert_eq!(run_kernel(&kernel, vec![input, weights, result]), [432.0, 43.0]);
}

#[test]
#[should_panic(expected = "outside the block")]
fn blocks_must_hold_the_windows() {
    let input =
        Arg::new(Block::new(&[(0, 1), (0, 1), (0, 2)]), &[1, 1, 4], Tensor::zeros(DType::F32, [1, 1, 2]));
    let weights = arg(DType::F32, &[1, 1, 3], &[1.0; 3]);
    run_kernel(&Kernel::Conv(attrs(&[1], &[0], &[1], 1)), vec![input, weights, out(DType::F32, &[1, 1, 2])]);
}

/// A shape of the golden test: batch, groups, channels a group in and out, field, kernel, and the rest.
struct Case {
    n: u64,
    g: u64,
    channels: [u64; 2],
    size: [u64; 2],
    kernel: [u64; 2],
    stride: [u64; 2],
    padding: [u64; 2],
    dilation: [u64; 2],
}

impl Case {
    fn out(&self, dim: usize) -> u64 {
        let reach = (self.kernel[dim] - 1) * self.dilation[dim] + 1;
        (self.size[dim] + 2 * self.padding[dim] - reach) / self.stride[dim] + 1
    }

    /// The sum of one output and the sum of its terms' sizes.
    fn expected(&self, input: &[f64], weights: &[f64], [n, o, y, x]: [u64; 4]) -> (f64, f64) {
        let ([ic, oc], [h, w], [kh, kw]) = (self.channels, self.size, self.kernel);
        let (mut sum, mut scale) = (0.0, 0.0);
        for c in 0..ic {
            for (ky, kx) in (0..kh).flat_map(|ky| (0..kw).map(move |kx| (ky, kx))) {
                let iy = (y * self.stride[0] + ky * self.dilation[0]).wrapping_sub(self.padding[0]);
                let ix = (x * self.stride[1] + kx * self.dilation[1]).wrapping_sub(self.padding[1]);
                if iy < h && ix < w {
                    let channel = o / oc * ic + c;
                    let place = ((n * ic * self.g + channel) * h + iy) * w + ix;
                    let term = input[place as usize] * weights[(((o * ic + c) * kh + ky) * kw + kx) as usize];
                    (sum, scale) = (sum + term, scale + term.abs());
                }
            }
        }
        (sum, scale)
    }
}

#[test]
fn golden_convolutions() {
    let base = Case {
        n: 2,
        g: 1,
        channels: [3, 5],
        size: [6, 7],
        kernel: [3, 3],
        stride: [1, 1],
        padding: [1, 1],
        dilation: [1, 1],
    };
    let cases = [
        Case { channels: [20, 18], size: [4, 3], ..base },
        Case { g: 4, channels: [1, 1], stride: [2, 2], ..base },
        Case { g: 2, channels: [9, 2], kernel: [2, 3], dilation: [2, 1], padding: [0, 2], ..base },
        Case { kernel: [1, 1], padding: [0, 0], ..base },
        base,
    ];
    for (seed, case) in cases.iter().enumerate() {
        let ([ic, oc], [h, w], [kh, kw]) = (case.channels, case.size, case.kernel);
        let shapes = [[case.n, ic * case.g, h, w], [oc * case.g, ic, kh, kw]];
        let result_shape = [case.n, oc * case.g, case.out(0), case.out(1)];
        for (dtype, partials, tolerance) in
            [(DType::F32, DType::F32, 1e-6), (DType::F16, DType::F32, 1e-3), (DType::F16, DType::F16, 5e-3)]
        {
            let [input, weights] = shapes.map(|shape| -> Vec<f64> {
                let values = random(seed as u64 + shape[0], shape.iter().product());
                values.into_iter().map(|x| dtype.round(x)).collect()
            });
            let conv = ConvAttrs { partials, ..attrs(&case.stride, &case.padding, &case.dilation, case.g) };
            let operands = vec![
                arg(dtype, &shapes[0], &input),
                arg(dtype, &shapes[1], &weights),
                out(dtype, &result_shape),
            ];
            let result = run_kernel(&Kernel::Conv(conv), operands);
            for (index, value) in pando_base::Shape::from(result_shape).indices().zip(result) {
                let (sum, scale) = case.expected(&input, &weights, [index[0], index[1], index[2], index[3]]);
                assert!(
                    (value - sum).abs() <= tolerance * scale.max(0.1),
                    "{seed} {dtype} {index:?}: {value} {sum}"
                );
            }
        }
    }
}

#[test]
fn refuses_what_does_not_match() {
    let ty = |lens| OperandType { dtype: DType::F32, lens };
    let check = |groups, input, weights, out| {
        check(&attrs(&[1], &[0], &[1], groups), &[ty(input), ty(weights), ty(out)])
    };
    assert_eq!(check(1, &[1, 4, 8], &[6, 4, 3], &[1, 6, 6]), Ok(()));
    assert_eq!(check(1, &[1, 4, 8], &[6, 4, 3], &[1, 1, 6, 6]), Ok(()));
    assert_eq!(check(2, &[1, 4, 8], &[6, 2, 3], &[1, 6, 6]), Ok(()));
    let error = check(1, &[1, 4, 8], &[6, 2, 3], &[1, 6, 6]).unwrap_err();
    assert_eq!(error, "4 input channels are not up to 1 group(s) of 2");
    assert!(check(2, &[1, 4, 8], &[5, 2, 3], &[1, 5, 6]).is_err());
    assert!(check(1, &[1, 4, 8], &[6, 4, 3], &[2, 6, 6]).is_err());
    assert!(check(1, &[1, 4], &[6, 4], &[1, 6]).is_err(), "one stride too many");
}

fn time(dtype: DType, groups: u64, [n, ic, oc, size, kernel]: [u64; 5], chip: &Chip) -> u64 {
    let lens: [&[u64]; 3] =
        [&[n, ic * groups, size, size], &[oc * groups, ic, kernel, kernel], &[n, oc * groups, size, size]];
    let operands: Vec<_> = lens.into_iter().map(|lens| OperandType { dtype, lens }).collect();
    number(cycles(&attrs(&[1, 1], &[kernel / 2; 2], &[1, 1], groups), &operands, chip))
}

#[test]
fn one_by_one_costs_as_a_product() {
    use crate::kernel::amp::{Product, Unit, product_cycles};
    let unit = Unit::of(&bow(), DType::F16, DType::F32).expect("a rate");
    let product = Product { groups: 1, rows: 2 * 64, inputs: 32, outputs: 64 };
    let expected = number(cost::launched(product_cycles(&unit, &product, &bow()), &bow()));
    assert_eq!(time(DType::F16, 1, [2, 32, 64, 8, 1], &bow()), expected);
}

/// Many channels run near the unit's rate, depthwise ones far below, but above one multiplication a cycle.
#[test]
fn plausible_rates() {
    let rate = |dtype, groups, [n, ic, oc, size, kernel]: [u64; 5]| {
        let multiplications = n * groups * ic * oc * size * size * kernel * kernel;
        multiplications as f64 / time(dtype, groups, [n, ic, oc, size, kernel], &bow()) as f64
    };
    assert!((32.0..64.0).contains(&rate(DType::F16, 1, [1, 32, 32, 32, 3])));
    assert!((8.0..16.0).contains(&rate(DType::F32, 1, [1, 32, 32, 32, 3])));
    assert!((1.0..16.0).contains(&rate(DType::F16, 32, [1, 1, 1, 28, 3])));
    assert!((0.1..4.0).contains(&rate(DType::F32, 32, [1, 1, 1, 28, 3])));
}

/// By a factor of two: a worker with two rows can cost more than one with three (section 6.1).
#[test]
fn cycles_grow() {
    for (dtype, groups) in [(DType::F32, 1), (DType::F16, 1), (DType::F16, 8), (DType::I8, 2)] {
        for base in [[1, 1, 1, 4, 1], [2, 16, 16, 7, 3], [1, 40, 3, 10, 5], [4, 1, 1, 30, 3]] {
            for dim in 0..4 {
                let mut larger = base;
                larger[dim] *= 2;
                let (small, large) = (time(dtype, groups, base, &bow()), time(dtype, groups, larger, &bow()));
                assert!(small <= large, "{dtype} {groups} {base:?} {dim}: {small} {large}");
            }
        }
    }
}

#[test]
fn counts_multiplications() {
    let ty = |lens| OperandType { dtype: DType::F32, lens };
    assert_eq!(flops(&[ty(&[1, 4, 8]), ty(&[6, 2, 3]), ty(&[1, 6, 6])]), 2 * 2 * 3 * 36);
    let huge = [u64::MAX, u64::MAX, 3];
    assert_eq!(flops(&[ty(&huge), ty(&huge), ty(&huge)]), u64::MAX);
    assert_eq!(number(cycles(&attrs(&[1], &[0], &[1], 1), &[ty(&huge); 3], &bow())), u64::MAX);
}

/// One product over channels and kernel positions gives what going through the positions does, and writes the
/// windows with zeros where they stick out.
#[test]
fn unfolded_is_the_same() {
    let input = || arg(DType::F32, &[1, 2, 3], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
    let weights = || arg(DType::F32, &[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let conv = |method| Kernel::Conv(ConvAttrs { method, ..attrs(&[2], &[1], &[1], 1) });
    let expected = [2.0 + 40.0, 2.0 + 6.0 + 60.0 + 120.0];
    let positions =
        run_kernel(&conv(ConvMethod::Positions), vec![input(), weights(), out(DType::F32, &[1, 1, 2])]);
    assert_eq!(positions, expected);
    let mut args = vec![input(), weights(), out(DType::F32, &[1, 1, 2]), out(DType::F32, &[9])];
    conv(ConvMethod::Unfolded).run(&mut args);
    assert_eq!(args[2].data.to_f64(), expected);
    let windows = [0.0, 1.0, 0.0, 10.0, 2.0, 3.0, 20.0, 30.0, 0.0];
    assert_eq!(args[3].data.to_f64(), windows);
    let types: Vec<OperandType> =
        args.iter().map(|arg| OperandType { dtype: arg.data.dtype(), lens: arg.data.shape() }).collect();
    assert!(conv(ConvMethod::Unfolded).check(&types).is_ok());
    let small = [types[0], types[1], types[2], OperandType { dtype: DType::F32, lens: &[7] }];
    assert!(conv(ConvMethod::Unfolded).check(&small).is_err(), "eight elements do not fit");
    assert!(conv(ConvMethod::Product).check(&types[..3]).is_err(), "two outputs are not one window");
}

/// The gradient of a 3×3 kernel of 64 channels for one image: its "channels" are one, its kernel is the field.
#[test]
fn a_product_fills_the_unit_where_channels_do_not() {
    let lens: [&[u64]; 4] = [&[64, 1, 10, 58], &[64, 1, 8, 56], &[64, 64, 3, 3], &[64 * 8 * 56 * 9]];
    let operands: Vec<_> = lens.into_iter().map(|lens| OperandType { dtype: DType::F16, lens }).collect();
    let time = |method| {
        let conv = ConvAttrs { method, ..attrs(&[1, 1], &[0, 0], &[1, 1], 1) };
        number(cycles(&conv, &operands, &bow()))
    };
    let (unfolded, positions) = (time(ConvMethod::Unfolded), time(ConvMethod::Positions));
    assert!(unfolded * 2 < positions, "{unfolded} {positions}");
}

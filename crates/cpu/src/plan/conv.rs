//! Makes steps of convolutions in float types that do not lie in blocks (`layout.rs` says which do): up to three
//! spatial dimensions. A kernel of one element with
//! unit strides is a product of the input as it is; others go over padded planes (`step/windows.rs`).

use super::Planner;
use crate::flat::FlatType;
use crate::kernel::gemm::{Tiles, tiles, window_tiles};
use crate::step::Kind;
use crate::step::depthwise::Depthwise;
use crate::step::gemm::{Gemm, Matrix, Right};
use crate::step::windows::{Planes, SPATIAL, Windows};
use crate::view::{Sizes, Strides, View};
use pando_base::DType;
use pando_graph::Conv;

/// Sizes of a convolution, spatial ones filled up to three.
struct Shape {
    images: usize,
    groups: usize,
    /// Per group.
    inputs: usize,
    outputs: usize,
    from: [usize; SPATIAL],
    window: [usize; SPATIAL],
    to: [usize; SPATIAL],
}

fn spatial<T: Copy>(values: impl DoubleEndedIterator<Item = T>, missing: T) -> [T; SPATIAL] {
    let mut filled = [missing; SPATIAL];
    filled.iter_mut().rev().zip(values.rev()).for_each(|(slot, value)| *slot = value);
    filled
}

fn size(values: &[usize; SPATIAL]) -> usize {
    values.iter().product()
}

impl Planner<'_> {
    pub(super) fn conv(&mut self, conv: &Conv, operands: Vec<View>, ty: &FlatType) -> View {
        self.conv_on(None, conv, operands, ty)
    }

    /// A convolution of words of four channels: they are moved as f32 are, and only the kernels see what they hold.
    pub(super) fn word_conv(&mut self, conv: &Conv, operands: Vec<View>, ty: &FlatType) -> View {
        let tiles = window_tiles(self.options.isa);
        assert!(tiles.is_some(), "convolutions are of words only where there are tiles");
        let words = operands.into_iter().map(|view| View { dtype: DType::F32, ..view });
        self.conv_on(tiles, conv, words.collect(), ty)
    }

    fn conv_on(
        &mut self,
        of_words: Option<&'static Tiles>,
        conv: &Conv,
        operands: Vec<View>,
        ty: &FlatType,
    ) -> View {
        let [input, kernel]: [View; 2] = operands.try_into().expect("conv has two operands");
        let sizes = |sizes: &[usize]| spatial(sizes[2..].iter().copied(), 1);
        let groups = conv.groups as usize;
        let shape = Shape {
            images: ty.sizes[0],
            groups,
            inputs: kernel.sizes[1],
            outputs: ty.sizes[1] / groups,
            from: sizes(&input.sizes),
            window: sizes(&kernel.sizes),
            to: sizes(&ty.sizes),
        };
        let input = self.as_f32(input);
        let input = self.dense(input);
        let planes = planes(conv, &shape);
        let depthwise = shape.inputs == 1 && shape.outputs == 1 && ty.dtype == DType::F32;
        if depthwise && let Some(planes) = &planes {
            return self.depthwise(&shape, planes, conv, input, kernel, ty);
        }
        let k = shape.inputs * size(&shape.window);
        let kernel = self.dense(kernel);
        let matrix = Matrix {
            dtype: kernel.dtype,
            batch_sizes: Sizes::from_slice(&[shape.images, groups]),
            batch_strides: Strides::from_slice(&[0, (shape.outputs * k) as isize]),
            row: k as isize,
            column: 1,
        };
        let (m, n) = (shape.outputs, size(&shape.to));
        let (kernel, left) = self.left(kernel, matrix, [groups, m, k]);
        let right = match planes {
            Some(planes) => Right::Windows(windows(conv, &shape, planes)),
            None => Right::Strided(Matrix {
                dtype: DType::F32,
                batch_sizes: Sizes::from_slice(&[shape.images * groups]),
                batch_strides: Strides::from_slice(&[(k * n) as isize]),
                row: n as isize,
                column: 1,
            }),
        };
        let (batch, plain) = (shape.images * groups, tiles(self.options.isa));
        let tiles = of_words.unwrap_or(plain);
        let integers = ty.dtype.is_int() && of_words.is_none();
        let epilogue = self.narrowing(ty).filter(|_| of_words.is_none());
        let gemm = Gemm { batch, m, n, k, left, right, tiles, plain, integers, epilogue, target: None };
        self.emit_gemm(gemm, vec![kernel, input], ty)
    }

    fn depthwise(
        &mut self,
        shape: &Shape,
        planes: &Planes,
        conv: &Conv,
        input: View,
        kernel: View,
        ty: &FlatType,
    ) -> View {
        let kernel = self.as_f32(kernel);
        let kernel = self.dense(kernel);
        let windows = windows(conv, shape, planes.clone());
        let scratch = (planes.channels * planes.channel_size() + 64) * 4;
        let depthwise = Depthwise {
            channels: shape.groups,
            images: shape.images,
            windows,
            isa: self.options.isa,
            epilogue: None,
        };
        let scratch = self.scratch(scratch);
        let output = self.emit(Kind::Depthwise(depthwise), vec![kernel, input], ty.dtype, &ty.sizes);
        self.steps.last_mut().expect("a step was emitted").scratch = Some(scratch);
        output
    }
}

/// `None` if the input serves as it is.
fn planes(conv: &Conv, shape: &Shape) -> Option<Planes> {
    let steps = |values: &[u64]| spatial(values.iter().map(|&value| value as usize), 1);
    let mut dilation = steps(&conv.input_dilation);
    let mut strides = steps(&conv.strides);
    let low = spatial(conv.padding.iter().map(|pair| pair.0), 0);
    let kernel_dilation = steps(&conv.kernel_dilation);
    let high_is_zero = conv.padding.iter().all(|pair| pair.1 == 0);
    for axis in 0..SPATIAL {
        // Steps that are never taken may be absurdly large.
        if shape.to[axis] <= 1 {
            strides[axis] = 1;
        }
        if shape.from[axis] <= 1 {
            dilation[axis] = 1;
        }
    }
    let plain = strides == [1; SPATIAL] && low == [0; SPATIAL] && high_is_zero && dilation == [1; SPATIAL];
    // Where a stride leaves one position of several, the input is larger than what is read of it.
    if plain && shape.window == [1; SPATIAL] && shape.from == shape.to {
        return None;
    }
    let reach = |axis: usize| (shape.window[axis].max(1) - 1) * kernel_dilation[axis] / strides[axis];
    let mut plane = [0; SPATIAL];
    for (axis, plane) in plane.iter_mut().enumerate() {
        *plane = shape.to[axis].max(1) + reach(axis);
    }
    let channels = shape.images * shape.groups * shape.inputs;
    Some(Planes { channels, from: shape.from, low, dilation, strides, plane })
}

fn windows(conv: &Conv, shape: &Shape, planes: Planes) -> Windows {
    let dilation = spatial(conv.kernel_dilation.iter().map(|&value| value as usize), 1);
    let [depth, height, width] = shape.window;
    let mut offsets = Vec::with_capacity(shape.inputs * size(&shape.window));
    for channel in 0..shape.inputs {
        for (z, y, x) in
            (0..depth).flat_map(|z| (0..height).flat_map(move |y| (0..width).map(move |x| (z, y, x))))
        {
            let at = [z * dilation[0], y * dilation[1], x * dilation[2]];
            offsets.push(channel * planes.channel_size() + planes.position(at));
        }
    }
    let rows = (0..shape.to[0]).flat_map(|z| (0..shape.to[1]).map(move |y| (z, y)));
    let runs = rows.map(|(z, y)| (z * planes.plane[1] + y) * planes.plane[2]).collect();
    let group_size = shape.inputs * planes.channel_size();
    Windows {
        groups: shape.groups,
        group_size,
        image_size: shape.groups * group_size,
        offsets,
        runs,
        run_length: shape.to[2],
        planes: Some(planes),
    }
}

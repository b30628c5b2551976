//! Composites of training with a plan of their own, recognised by their bodies as those of `recognise.rs`.

use crate::flat::Work;
use crate::kernel::row_gradients::Gradient;
use crate::plan::layout::{BlockedConv, over_pixels};
use crate::recognise::{is_body_of, scalars};
use pando_base::{DType, Result};
use pando_graph::{Builder, Conv, Func, Module, Op, ReduceWindow, ValueId};

/// Fewer channels would leave most lanes empty.
const MIN_CHANNELS: u64 = 8;

/// The work of a composite that kernels over blocks of channels do.
pub fn recognise(module: &Module, func: &Func) -> Option<Work> {
    match func.composite.as_deref()? {
        "conv.grad_kernel" => kernel_gradient(module, func).map(Work::KernelGradient),
        "max_window.grad" => pool_gradient(module, func).map(Work::PoolGradient),
        "batch_norm_training" => batch_norm(module, func, &|b, args, epsilon| {
            b.batch_norm_training(args[0], args[1], args[2], epsilon).map(|results| results[0])
        })
        .map(|epsilon| Work::BatchNorm { epsilon }),
        "batch_norm_training.grad" => batch_norm(module, func, &|b, args, epsilon| {
            b.batch_norm_training_grad(args[0], args[1], args[2], args[3], args[4], epsilon)
                .map(|results| results[0])
        })
        .map(|epsilon| Work::BatchNormGradient { epsilon }),
        name => row_gradient(module, func, name).map(Work::RowGradient),
    }
}

/// Of functions of rows of f32.
fn row_gradient(module: &Module, func: &Func, name: &str) -> Option<Gradient> {
    let types = func.param_types();
    let shape = types.first()?.shape()?;
    if types.iter().any(|ty| ty.dtype != DType::F32) || shape.rank() == 0 || shape.num_elements() == 0 {
        return None;
    }
    let same =
        |build: &dyn Fn(&mut Builder, &[ValueId]) -> Result<ValueId>| is_body_of(module, func, &types, build);
    let norm = types.len() == 3 && types[1].rank() == 1;
    let epsilon = |build: &Build| {
        let mut epsilons = scalars(module, func).into_iter();
        epsilons.find(|&epsilon| same(&|b, args| build(b, args, epsilon.into())))
    };
    match name {
        "softmax.grad" => same(&|b, args| b.softmax_grad(args[0], args[1])).then_some(Gradient::Softmax),
        "log_softmax.grad" => {
            same(&|b, args| b.log_softmax_grad(args[0], args[1])).then_some(Gradient::LogSoftmax)
        }
        "layer_norm.grad" if norm => epsilon(&|b, args, epsilon| {
            b.layer_norm_grad(args[0], args[1], args[2], epsilon).map(|results| results[0])
        })
        .map(|epsilon| Gradient::LayerNorm { epsilon }),
        "rms_norm.grad" if norm => epsilon(&|b, args, epsilon| {
            b.rms_norm_grad(args[0], args[1], args[2], epsilon).map(|results| results[0])
        })
        .map(|epsilon| Gradient::RmsNorm { epsilon }),
        _ => None,
    }
}

type Build = dyn Fn(&mut Builder, &[ValueId], f64) -> Result<ValueId>;

/// The epsilon of a batch normalization of f32 images, or of its gradient.
fn batch_norm(module: &Module, func: &Func, build: &Build) -> Option<f32> {
    let types = func.param_types();
    let f32 = types.iter().all(|ty| ty.dtype == DType::F32);
    let image = types.first()?.shape().filter(|shape| shape.rank() == 4)?;
    if !f32 || image.num_elements() == 0 || image[1] < MIN_CHANNELS {
        return None;
    }
    let mut epsilons = scalars(module, func).into_iter();
    epsilons.find(|&epsilon| is_body_of(module, func, &types, &|b, args| build(b, args, epsilon.into())))
}

/// Set for maxima of windows over the pixels of f32 images.
fn pool_gradient(module: &Module, func: &Func) -> Option<ReduceWindow> {
    let types = func.param_types();
    let image = types.first()?.shape().filter(|shape| shape.rank() == 4)?;
    let window = func.nodes.values().find_map(|node| match &node.op {
        Op::ReduceWindow(window) => Some(window),
        _ => None,
    })?;
    let f32 = types.iter().all(|ty| ty.dtype == DType::F32);
    let suits = f32 && image.num_elements() > 0 && image[1] >= MIN_CHANNELS && over_pixels(window);
    let same =
        suits && is_body_of(module, func, &types, &|b, args| b.reduce_window_grad(args[0], args[1], window));
    same.then(|| window.clone())
}

/// Set for the gradient of a convolution's kernel that kernels over blocks of channels make.
fn kernel_gradient(module: &Module, func: &Func) -> Option<Box<BlockedConv>> {
    let image = |value| -> Option<[usize; 4]> {
        let shape = func.ty(value).shape()?;
        let sizes: Vec<usize> = shape.iter().map(|&size| size as usize).collect();
        sizes.try_into().ok()
    };
    let (&[x, gradient], &[result]) = (func.params.as_slice(), func.results.as_slice()) else { return None };
    // The kernels read and write f32.
    if [x, gradient, result].iter().any(|&value| func.ty(value).dtype != DType::F32) {
        return None;
    }
    let (from, to, kernel) = (image(x)?, image(gradient)?, image(result)?);
    let backward = func.nodes.values().find_map(|node| match &node.op {
        Op::Conv(conv) => Some(conv),
        _ => None,
    })?;
    let window = [kernel[2], kernel[3]];
    let conv = Conv {
        strides: backward.kernel_dilation.clone(),
        kernel_dilation: backward.strides.clone(),
        padding: (0..2).map(|axis| (backward.padding[axis].0, 0)).collect(),
        ..backward.clone()
    };
    let conv = BlockedConv { conv, from, to, window, blocked_input: false };
    let shape = func.ty(result).shape()?;
    let same = is_body_of(module, func, &func.param_types(), &|b, args| {
        b.conv_grad_kernel(args[0], args[1], &conv.conv, &shape)
    });
    (same && conv.has_kernel_gradient()).then(|| Box::new(conv))
}

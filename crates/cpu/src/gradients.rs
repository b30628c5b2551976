//! Composites of backward passes with a plan of their own, recognised by their bodies as those of `recognise.rs`.

use crate::plan::layout::BlockedConv;
use crate::recognise::is_body_of;
use pando_graph::{Conv, Func, Module, Op};

/// Set for the gradient of a convolution's kernel that kernels over blocks of channels make.
pub fn kernel_gradient(module: &Module, func: &Func) -> Option<Box<BlockedConv>> {
    if func.composite.as_deref() != Some("conv.grad_kernel") {
        return None;
    }
    let image = |value| -> Option<[usize; 4]> {
        let shape = func.ty(value).shape()?;
        let sizes: Vec<usize> = shape.iter().map(|&size| size as usize).collect();
        sizes.try_into().ok()
    };
    let (&[x, gradient], &[result]) = (func.params.as_slice(), func.results.as_slice()) else { return None };
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

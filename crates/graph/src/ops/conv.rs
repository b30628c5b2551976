//! conv: convolution over any number of spatial dimensions.
//! (C1) operands are numbers of one type (8-bit floats may differ in format and scale); (C2) input and
//! kernel have one rank, at least 2; (C3) strides, padding and dilations have one entry per spatial
//! dimension; (C4) `groups` divides the output channels, and input channels are groups × the kernel's;
//! (C5) strides and dilations are at least 1; (C6) the kernel fits into the padded input; (C7) the result
//! type is a float if the operands are, an integer otherwise.

use super::{check, dot};
use crate::dims::{self, Sliding};
use crate::op::Conv;
use crate::types::{Dim, Dims, TensorType};
use pando_base::Result;

pub(super) fn infer(conv: &Conv, operands: &[&TensorType]) -> Result<TensorType> {
    let (input, kernel) = (operands[0], operands[1]);
    dot::check_product_types("conv", input, kernel)?;
    check(input.rank() == kernel.rank() && input.rank() >= 2, "conv", "C2", || {
        format!("input {input} and kernel {kernel} need one rank of at least 2")
    })?;
    check_attributes(conv, input.rank() - 2)?;
    check_channels(conv, input, kernel)?;
    let dtype = dot::result_type("conv", "C7", conv.dtype, input.dtype)?;
    let mut dims = Dims::from_iter([input.dims[0].clone(), kernel.dims[0].clone()]);
    for axis in 0..input.rank() - 2 {
        let (size, window) = (&input.dims[axis + 2], &kernel.dims[axis + 2]);
        let dim = dims::sliding(size, window, conv.sliding(axis));
        check(dim.is_some(), "conv", "C6", || {
            let (low, high) = conv.padding[axis];
            format!(
                "a kernel of {window} does not fit into {size} padded by {low} and {high} (axis {})",
                axis + 2
            )
        })?;
        dims.extend(dim);
    }
    Ok(TensorType { dtype, dims })
}

fn check_attributes(conv: &Conv, spatial_rank: usize) -> Result<()> {
    let lengths = [&conv.strides, &conv.input_dilation, &conv.kernel_dilation].map(Vec::len);
    let complete = lengths == [spatial_rank; 3] && conv.padding.len() == spatial_rank;
    check(complete, "conv", "C3", || {
        format!("strides, padding and dilations need {spatial_rank} entries each")
    })?;
    let mut steps = conv.strides.iter().chain(&conv.input_dilation).chain(&conv.kernel_dilation);
    check(steps.all(|&step| step > 0), "conv", "C5", || "strides and dilations are at least 1".into())
}

fn check_channels(conv: &Conv, input: &TensorType, kernel: &TensorType) -> Result<()> {
    let divides = conv.groups > 0 && kernel.dims[0].known().is_none_or(|out| out % conv.groups == 0);
    check(divides, "conv", "C4", || {
        format!("{} groups do not divide {} output channels", conv.groups, kernel.dims[0])
    })?;
    let matches = match (&input.dims[1], &kernel.dims[1]) {
        (Dim::Known(channels), Dim::Known(per_group)) => {
            per_group.checked_mul(conv.groups) == Some(*channels)
        }
        (channels, per_group) => conv.groups == 1 && channels == per_group,
    };
    check(matches, "conv", "C4", || {
        let (channels, per_group) = (&input.dims[1], &kernel.dims[1]);
        format!("{channels} input channels are not {} group(s) of {per_group}", conv.groups)
    })
}

impl Conv {
    /// How the kernel slides along a spatial dimension.
    pub fn sliding(&self, axis: usize) -> Sliding {
        Sliding {
            stride: self.strides[axis],
            padding: self.padding[axis],
            input_dilation: self.input_dilation[axis],
            window_dilation: self.kernel_dilation[axis],
        }
    }
}

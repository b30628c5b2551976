//! A convolution as a matrix product: the windows of the outputs are the rows of a matrix whose inner dimension
//! is input channels and kernel positions together. That fills the matrix unit where there are few channels, as in
//! the gradient of a kernel, whose "channels" are the batch and whose kernel positions are the whole field.
//!
//! PopLibs' planner calls it expanding dimensions into input channels (poplar.md section 3.4). Floats only.

use super::{ConvAttrs, Group, Window, groups};
use crate::kernel::amp;
use crate::kernel::cost;
use crate::kernel::values;
use crate::kernel::{Arg, OperandType};

pub(super) fn check_product(operands: &[OperandType]) -> Result<(), String> {
    check_floats(operands)?;
    let [input, weights, out] = [operands[0], operands[1], operands[2]];
    let rank = input.lens.len();
    let field = &out.lens[out.lens.len() - rank..][2..];
    if field.iter().any(|&len| len != 1) || input.lens[2..] != weights.lens[2..] {
        return Err(format!("the one window of {out} is not all of {input} under {weights}"));
    }
    Ok(())
}

/// The fourth operand holds the windows, in whatever shape.
pub(super) fn check_unfolded(operands: &[OperandType]) -> Result<(), String> {
    check_floats(operands)?;
    let [input, windows] = [operands[0], operands[3]];
    let needed = window_elements(operands);
    if windows.dtype != input.dtype || windows.num_elements() < needed {
        return Err(format!("{windows} does not hold the {needed} elements of the windows of {input}"));
    }
    Ok(())
}

fn check_floats(operands: &[OperandType]) -> Result<(), String> {
    if operands[0].dtype.is_float() {
        Ok(())
    } else {
        Err("only floats are multiplied as one product".into())
    }
}

/// Elements of the matrix of windows: a row for each output position and group.
pub(super) fn window_elements(operands: &[OperandType]) -> u64 {
    let [input, weights, out] = [operands[0], operands[1], operands[2]];
    let rank = input.lens.len();
    let field = &out.lens[out.lens.len() - rank..][2..];
    let sizes = [input.lens[0], input.lens[1], cost::product(field), cost::product(&weights.lens[2..])];
    cost::product(&sizes)
}

pub(super) fn run(attrs: &ConvAttrs, args: &mut [Arg]) {
    let (operands, windows) = args.split_at_mut(3);
    let [input, weights, out] = operands else { unreachable!("conv has three operands") };
    let window = Window::new(attrs, input, weights, out);
    let leading = out.block.rank() - input.block.rank();
    let elements = [&*values::to_f32(&input.data), &*values::to_f32(&weights.data)];
    let step = amp::step_len(input.data.dtype());
    let mut sums = vec![0.0; out.data.num_elements() as usize];
    let mut matrix = Vec::new();
    for group in groups(attrs, input, weights, out, leading) {
        window.multiply(&group, elements, &mut sums, &mut matrix, |sums, row, weights| {
            amp::accumulate(sums, row.chunks(step).zip(weights.chunks(step * sums.len())), attrs.partials);
        });
    }
    values::write_f32(&mut out.data, &window.channels_first(&sums));
    if let [windows] = windows {
        matrix.resize(windows.data.num_elements() as usize, 0.0);
        values::write_f32(&mut windows.data, &matrix);
    }
}

impl Window {
    /// Adds a group's products to sums whose channels come last, and its windows to the matrix.
    fn multiply(
        &self,
        group: &Group,
        [input, weights]: [&[f32]; 2],
        sums: &mut [f32],
        matrix: &mut Vec<f32>,
        add: impl Fn(&mut [f32], &[f32], &[f32]),
    ) {
        let inputs: usize = self.weights[1..].iter().product();
        let all_outputs = self.out[1];
        if inputs == 0 || all_outputs == 0 {
            return;
        }
        let own = &weights[group.first_output * inputs..][..group.outputs * inputs];
        let own = values::permuted(own, &[group.outputs, inputs], &[1, 0]);
        let first = matrix.len();
        self.unfold(group, input, matrix);
        for (row, sums) in matrix[first..].chunks_exact(inputs).zip(sums.chunks_exact_mut(all_outputs)) {
            add(&mut sums[group.first_output..][..group.outputs], row, &own);
        }
    }

    /// Appends the group's windows, one for each image and output position: channels, then kernel positions.
    fn unfold(&self, group: &Group, input: &[f32], matrix: &mut Vec<f32>) {
        let field: usize = self.input[2..].iter().product();
        let kernel: usize = self.weights[2..].iter().product();
        let positions: pando_base::Shape = self.out[2..].iter().map(|&len| len as u64).collect();
        let taps: Vec<super::Taps> = positions.indices().map(|position| self.taps_of(&position)).collect();
        for image in 0..self.out[0] {
            for taps in &taps {
                let begin = matrix.len();
                matrix.resize(begin + self.weights[1] * kernel, 0.0);
                for channel in 0..self.weights[1] {
                    let plane = (image * self.input[1] + group.first_input + channel) * field;
                    for &(tap, place) in taps {
                        matrix[begin + channel * kernel + tap] = input[plane + place];
                    }
                }
            }
        }
    }
}

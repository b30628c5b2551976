//! Elementwise passes from bytes to bytes: the program runs once over all 256 bytes, and elements are looked up.

use super::{Changes, Draft, Place, Planner};
use crate::step::Kind;
use crate::step::program::{Access, Program};
use crate::view::{Sizes, Strides, View};
use pando_base::{DType, Tensor};

/// Fewer elements are computed as soon as a table.
const LEAST: usize = 2048;

impl Planner<'_> {
    /// The pass as a look-up, or the pass as it was.
    pub(super) fn looked_up(
        &mut self,
        program: Program,
        inputs: Vec<View>,
        dtype: DType,
        sizes: &[usize],
    ) -> Result<View, (Program, Vec<View>)> {
        let is_byte = |dtype: DType| matches!(dtype, DType::U8 | DType::I8);
        let varying: Vec<usize> = (0..inputs.len())
            .filter(|&input| !matches!(program.inputs[input].access, Access::Uniform))
            .collect();
        let &[input] = varying.as_slice() else { return Err((program, inputs)) };
        let x = inputs[input].clone();
        let suits = is_byte(x.dtype) && is_byte(dtype) && x.is_dense() && program.instrs.len() > 1;
        if !suits || !self.options.fuse || x.num_elements() < LEAST || self.is_const(&x) {
            return Err((program, inputs));
        }
        let all = self.all_bytes(x.dtype);
        let of_table = |(index, view): (usize, View)| match index == input {
            true => all.clone(),
            false => View { sizes: Sizes::from_slice(&[256]), strides: Strides::from_slice(&[0]), ..view },
        };
        let inputs = inputs.into_iter().enumerate().map(of_table).collect();
        let table = self.emit(Kind::Elementwise(program), inputs, dtype, &[256]);
        Ok(self.emit(Kind::Table, vec![table, x], dtype, sizes))
    }

    /// A constant of all bytes in order.
    fn all_bytes(&mut self, dtype: DType) -> View {
        let bytes: Vec<i128> = (0..256).collect();
        let place = Some(Place::Const(Tensor::from_ints(dtype, vec![256], &bytes)));
        let draft = Draft { bytes: 256, place, changes: Changes::Never, constant: None };
        let buffer = self.buffers.push(draft);
        View::dense(buffer, dtype, &[256])
    }
}

//! Makes steps of gradients of functions of rows, and takes into them what makes the incoming gradient.

use super::{Changes, Planner};
use crate::flat::FlatNode;
use crate::kernel::row_gradients::{Gradient, gradient_loop};
use crate::step::program::Program;
use crate::step::row_gradients::RowGradient;
use crate::step::{Kind, Step};
use crate::view::View;
use pando_base::DType;

impl Planner<'_> {
    pub(super) fn row_gradient(&mut self, gradient: Gradient, index: usize, node: &FlatNode) -> Vec<View> {
        let mut operands = self.operands(node);
        let incoming = operands.pop().expect("the gradient is the last operand");
        let mut inputs: Vec<View> = operands.into_iter().map(|view| self.dense(view)).collect();
        let (name, epsilon) = match gradient {
            Gradient::Softmax => ("softmax gradient", 0.0),
            Gradient::LogSoftmax => ("log_softmax gradient", 0.0),
            Gradient::LayerNorm { epsilon } => ("layer_norm gradient", epsilon),
            Gradient::RmsNorm { epsilon } => ("rms_norm gradient", epsilon),
        };
        let length = inputs[0].sizes.last().copied().unwrap_or(1);
        let (prologue, mut incoming) = match self.take_elementwise(index, &incoming) {
            Some((program, views)) => (Some(program), views),
            None => (None, vec![self.dense(incoming)]),
        };
        let gradient = RowGradient {
            kernel: gradient_loop(self.options.isa, gradient),
            name,
            rows: inputs[0].num_elements().checked_div(length).unwrap_or(0),
            length,
            epsilon,
            has_scale: inputs.len() > 1,
            sums: node.results.len() - 1,
            prologue,
            epilogue: None,
        };
        inputs.append(&mut incoming);
        let elements = gradient.scratch_elements();
        let scratch = (elements > 0).then(|| self.scratch(elements * 4));
        self.emit_several(Kind::RowGradient(Box::new(gradient)), inputs, node, scratch)
    }

    /// Takes away the elementwise step that makes a view which only the node at `index` reads.
    pub(super) fn take_elementwise(&mut self, index: usize, view: &View) -> Option<(Program, Vec<View>)> {
        let draft = &self.buffers[view.buffer];
        let whole = view.is_dense() && view.offset == 0 && view.num_bytes() == draft.bytes;
        let floats = view.dtype == DType::F32 && draft.changes == Changes::EachRun;
        if !whole || !floats || !self.options.fuse || !self.read_only_by(view.buffer, None, index) {
            return None;
        }
        let at = self.steps.iter().rposition(|step| step.outputs[0].buffer == view.buffer)?;
        if !matches!(self.steps[at].kind, Kind::Elementwise(_)) {
            return None;
        }
        match self.steps.remove(at) {
            Step { kind: Kind::Elementwise(program), inputs, .. } => Some((program, inputs)),
            _ => unreachable!("it was elementwise"),
        }
    }
}

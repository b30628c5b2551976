//! Makes steps of what training adds to images in blocks of channels: gradients of kernels and of maxima, and the sums
//! of batch normalization.

use super::Planner;
use super::blocked::{stage, window_taps};
use super::layout::BlockedConv;
use crate::flat::{FlatNode, FlatType};
use crate::kernel::{kernel_gradient as tiles, norm as loops};
use crate::step::Kind;
use crate::step::conv::Input;
use crate::step::conv::kernel_gradient::{self, KernelGradient};
use crate::step::conv::norm::{Norm, What};
use crate::step::conv::pool_gradient::PoolGradient;
use crate::view::View;
use pando_base::DType;
use pando_graph::ReduceWindow;

impl Planner<'_> {
    pub(super) fn kernel_gradient(&mut self, conv: &BlockedConv, node: &FlatNode) -> View {
        let inputs: Vec<View> = self.operands(node).into_iter().map(|view| self.dense(view)).collect();
        let input = match (conv.is_depthwise(), conv.blocked_input) {
            (true, _) => Input::Depthwise,
            (_, true) => Input::Blocked,
            (_, false) => Input::Plain,
        };
        let [_, outputs, rows, columns] = conv.to;
        let mut stage = stage(conv, input);
        let task_rows = (kernel_gradient::CHUNK_PIXELS / columns.max(1)).clamp(1, rows.max(1));
        if stage.copies {
            stage.plane[0] = stage.plane[0] - stage.task_rows + task_rows;
        }
        stage.task_rows = task_rows;
        let taps = window_taps(conv, &stage, (0, 0, 1)).iter().map(|tap| tap.offset).collect();
        let kind = Kind::KernelGradient(KernelGradient {
            images: conv.to[0],
            outputs,
            inputs: conv.from[1] / conv.conv.groups.max(1) as usize,
            groups: conv.conv.groups as usize,
            rows,
            columns,
            input,
            stage,
            taps,
            tiles: tiles::tiles(self.options.isa),
            multiply_adds: conv.multiply_adds(),
        });
        let sizes = self.flat.values[node.results[0]].sizes.clone();
        self.emit(kind, inputs, DType::F32, &sizes)
    }

    pub(super) fn pool_gradient(&mut self, window: &ReduceWindow, node: &FlatNode) -> View {
        let inputs: Vec<View> = self.operands(node).into_iter().map(|view| self.dense(view)).collect();
        let of_maxima = FlatType { dtype: DType::F32, sizes: inputs[1].sizes.clone() };
        let pool = self.window_pool(window, &inputs[0], &of_maxima).expect("a maximum over pixels");
        let sizes = inputs[0].sizes.clone();
        self.emit(Kind::PoolGradient(PoolGradient(pool)), inputs, DType::F32, &sizes)
    }

    pub(super) fn norm(&mut self, what: What, node: &FlatNode) -> Vec<View> {
        let inputs: Vec<View> = self.operands(node).into_iter().map(|view| self.dense(view)).collect();
        let sizes = &inputs[0].sizes;
        let (images, blocks, pixels) = (sizes[0], sizes[1], sizes[2] * sizes[3]);
        let norm = Norm { what, loops: loops::loops(self.options.isa), images, blocks, pixels };
        let scratch = norm.scratch_elements();
        let scratch = (scratch > 0).then(|| self.scratch(scratch * 4));
        // The kernels' order: x, gradient, channels.
        self.emit_several(Kind::Norm(norm), inputs, node, scratch)
    }
}

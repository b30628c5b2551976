//! Batch normalization of images in blocks, forward and backward: sums over whole channels become steps of their own
//! (`step/conv/norm.rs`), the rest of the forward pass a factor and an offset per channel, which other passes take
//! in (`blocked.rs`).

use super::layout::Layout;
use crate::constants::Constant;
use crate::flat::{FlatNode, FlatType, ValueIndex, Work};
use crate::kernel::lanes::LANES;
use crate::step::conv::norm::What;
use crate::view::Sizes;
use pando_base::{BinaryFn, DType, Shape, Tensor, UnaryFn};
use pando_graph::Op;

impl Layout {
    /// Results: y, means, variances.
    pub(super) fn batch_norm(&mut self, node: &FlatNode, epsilon: f32) {
        let &[x, scale, bias] = node.operands.as_slice() else { unreachable!("x, scale, bias") };
        let &[y, mean, variance] = node.results.as_slice() else { unreachable!("y, mean, variance") };
        let channels = self.channels(x);
        let (x, sizes) = (self.in_blocks(x), self.sizes_in_blocks(y));
        let [means, variances] = self.sums(What::Moments, vec![x]);
        self.plain[mean] = Some(self.first_lanes(means, channels));
        self.plain[variance] = Some(self.first_lanes(variances, channels));
        let [scale, bias] = [scale, bias].map(|value| self.all_lanes(value));
        let root = self.root(variances, epsilon);
        let factor = self.binary(BinaryFn::Div, scale, root);
        let moved = self.binary(BinaryFn::Mul, means, factor);
        let offset = self.binary(BinaryFn::Sub, bias, moved);
        let [factor, offset] = [factor, offset].map(|lanes| self.over_pixels(lanes, &sizes));
        let scaled = self.binary(BinaryFn::Mul, x, factor);
        self.blocks[y] = Some(self.binary(BinaryFn::Add, scaled, offset));
    }

    /// Operands: x, scale, means, variances, the gradient of y. Results: the gradients of x, scale and bias.
    pub(super) fn batch_norm_gradient(&mut self, node: &FlatNode, epsilon: f32) {
        let &[x, scale, mean, variance, gradient] = node.operands.as_slice() else { unreachable!("five") };
        let &[of_x, of_scale, of_bias] = node.results.as_slice() else { unreachable!("three") };
        let (channels, sizes) = (self.channels(x), self.sizes_in_blocks(x));
        let count = (sizes[0] * sizes[2] * sizes[3]) as f32;
        let [x, gradient] = [x, gradient].map(|value| self.in_blocks(value));
        let [scale, mean, variance] = [scale, mean, variance].map(|value| self.all_lanes(value));
        let [sum, product] = self.sums(What::Products, vec![x, gradient, mean]);
        let root = self.root(variance, epsilon);
        let normal = self.binary(BinaryFn::Div, product, root);
        self.plain[of_scale] = Some(self.first_lanes(normal, channels));
        self.plain[of_bias] = Some(self.first_lanes(sum, channels));
        // factor · (gradient - sum / n - (x - mean) · slope), as a sum of products with x and the gradient.
        let factor = self.binary(BinaryFn::Div, scale, root);
        let count = self.lanes_of(count, sizes[1] * LANES);
        let slope = self.binary(BinaryFn::Div, normal, root);
        let slope = self.binary(BinaryFn::Div, slope, count);
        let slope = self.binary(BinaryFn::Mul, slope, factor);
        let share = self.binary(BinaryFn::Div, sum, count);
        let share = self.binary(BinaryFn::Mul, share, factor);
        let moved = self.binary(BinaryFn::Mul, mean, slope);
        let offset = self.binary(BinaryFn::Sub, moved, share);
        let negated =
            self.push(Work::Op(Op::Unary(UnaryFn::Neg)), vec![slope], DType::F32, self.lanes(slope));
        let operands = vec![x, gradient, factor, negated, offset];
        self.blocks[of_x] = Some(self.push(Work::Norm(What::Combine), operands, DType::F32, sizes));
    }

    fn channels(&self, image: ValueIndex) -> usize {
        self.old.values[image].sizes[1]
    }

    fn lanes(&self, value: ValueIndex) -> Sizes {
        self.new.values[value].sizes.clone()
    }

    /// Two numbers for every lane.
    fn sums(&mut self, what: What, operands: Vec<ValueIndex>) -> [ValueIndex; 2] {
        let lanes = self.new.values[operands[0]].sizes[1] * LANES;
        let ty = FlatType { dtype: DType::F32, sizes: Sizes::from_slice(&[lanes]) };
        let results = [0, 1].map(|_| self.value(ty.clone()));
        let name = self.name.clone();
        self.new.nodes.push(FlatNode { work: Work::Norm(what), operands, results: results.to_vec(), name });
        results
    }

    /// Numbers of channels with one for every lane.
    fn all_lanes(&mut self, value: ValueIndex) -> ValueIndex {
        let (x, sizes) = (self.plain(value), self.old.values[value].sizes.to_vec());
        self.with_tail(x, &sizes, 0)
    }

    fn first_lanes(&mut self, lanes: ValueIndex, channels: usize) -> ValueIndex {
        let wide = self.lanes(lanes)[0];
        if wide == channels {
            return lanes;
        }
        let end = super::layout::dims(&[channels]);
        let slice = pando_graph::Slice { begin: vec![0], end, step: vec![1] };
        self.op(Op::Slice(slice), lanes, &[channels])
    }

    /// `√(variance + epsilon)`
    fn root(&mut self, variance: ValueIndex, epsilon: f32) -> ValueIndex {
        let sizes = self.lanes(variance);
        let epsilon = self.lanes_of(epsilon, sizes[0]);
        let raised = self.binary(BinaryFn::Add, variance, epsilon);
        self.push(Work::Op(Op::Unary(UnaryFn::Sqrt)), vec![raised], DType::F32, sizes)
    }

    fn binary(&mut self, func: BinaryFn, a: ValueIndex, b: ValueIndex) -> ValueIndex {
        let sizes = self.lanes(a);
        self.push(Work::Op(Op::Binary(func)), vec![a, b], DType::F32, sizes)
    }

    /// The same number for every lane.
    fn lanes_of(&mut self, x: f32, lanes: usize) -> ValueIndex {
        let tensor = Tensor::from_f64(DType::F32, Shape::default(), &[f64::from(x)]);
        let work = Work::Constant(Constant::new(tensor));
        let scalar = self.push(work, Vec::new(), DType::F32, Sizes::new());
        let op = Op::Broadcast { dims: super::layout::dims(&[lanes]), axes: Vec::new() };
        self.op(op, scalar, &[lanes])
    }

    fn over_pixels(&mut self, lanes: ValueIndex, sizes: &Sizes) -> ValueIndex {
        let blocks = self.reshape(lanes, &[sizes[1], LANES]);
        let op = Op::Broadcast { dims: super::layout::dims(sizes), axes: vec![1, 4] };
        self.op(op, blocks, sizes)
    }
}

//! Operations in terms of simpler ones: padding between elements, and convolutions over such or over cropped
//! inputs. In: a node of a valid module. Out: nodes whose lowering is known. Meaning is kept exactly.

use pando_base::Shape;
use pando_graph::{Const, ConstData, Conv, Func, Module, Node, Op, Pad, ValueId, infer, known_dims};

/// Appends what stands for the node and returns its result; nothing if the node is simple already.
pub fn simpler(module: &mut Module, node: &Node, operands: &[ValueId], target: &mut Func) -> Option<ValueId> {
    // Sizes that are still names, and tensors without elements, are refused later.
    target.ty(*operands.first()?).shape().filter(|shape| shape.num_elements() > 0)?;
    let mut writer = Writer { module, target };
    match &node.op {
        Op::Pad(pad) if pad.interior.iter().any(|&n| n > 0) => {
            Some(writer.spread_out(pad, operands[0], operands[1]))
        }
        Op::Conv(conv) if !is_plain(conv) => Some(writer.plain_conv(conv, operands[0], operands[1])),
        _ => None,
    }
}

fn is_plain(conv: &Conv) -> bool {
    conv.input_dilation.iter().all(|&step| step == 1)
        && conv.padding.iter().all(|&(low, high)| low >= 0 && high >= 0)
}

struct Writer<'a> {
    module: &'a mut Module,
    target: &'a mut Func,
}

impl Writer<'_> {
    fn push(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types = infer(&op, &self.target.operand_types(operands), self.module);
        let types = types.expect("the parts of a valid operation are valid");
        let node = self.target.push_node(op, operands.iter().copied(), types);
        self.target.nodes[node].results[0]
    }

    fn reshape(&mut self, value: ValueId, sizes: &[u64]) -> ValueId {
        self.push(Op::Reshape { dims: known_dims(sizes) }, &[value])
    }

    /// Each element gets a dimension of its own, in which the fillers after it stand. Those after the last one
    /// are cropped with the padding around.
    fn spread_out(&mut self, pad: &Pad, data: ValueId, filler: ValueId) -> ValueId {
        let (mut data, mut high) = (data, pad.high.clone());
        for (axis, &between) in pad.interior.iter().enumerate().filter(|&(_, &between)| between > 0) {
            let shape = self.target.ty(data).shape().expect("the operand's sizes are known");
            let mut apart = shape.to_vec();
            apart.insert(axis + 1, 1);
            let rank = apart.len();
            let mut after = vec![0; rank];
            after[axis + 1] = between as i64;
            let apart = self.reshape(data, &apart);
            let filled = Pad { low: vec![0; rank], high: after, interior: vec![0; rank] };
            let filled = self.push(Op::Pad(filled), &[apart, filler]);
            let mut joined = shape;
            joined[axis] *= between + 1;
            data = self.reshape(filled, &joined);
            high[axis] -= between as i64;
        }
        let around = Pad { low: pad.low.clone(), high, interior: vec![0; pad.low.len()] };
        self.push(Op::Pad(around), &[data, filler])
    }

    fn plain_conv(&mut self, conv: &Conv, input: ValueId, weights: ValueId) -> ValueId {
        let dtype = self.target.ty(input).dtype;
        let zero = Const { name: String::new(), dtype, shape: Shape::scalar(), data: ConstData::Splat(0.0) };
        let zero = Op::Constant(self.module.consts.push(zero));
        let zero = self.push(zero, &[]);
        // Batch and channels are left alone.
        let crops = |&(low, high): &(i64, i64)| low < 0 || high < 0;
        let crop = |side: fn(&(i64, i64)) -> i64| -> Vec<i64> {
            let sides = conv.padding.iter().map(|padding| if crops(padding) { side(padding) } else { 0 });
            [0, 0].into_iter().chain(sides).collect()
        };
        let interior = [0, 0].into_iter().chain(conv.input_dilation.iter().map(|step| step - 1)).collect();
        let pad = Pad { low: crop(|p| p.0), high: crop(|p| p.1), interior };
        let spread = self.spread_out(&pad, input, zero);
        let plain = Conv {
            padding: conv
                .padding
                .iter()
                .map(|padding| if crops(padding) { (0, 0) } else { *padding })
                .collect(),
            input_dilation: vec![1; conv.padding.len()],
            ..conv.clone()
        };
        self.push(Op::Conv(plain), &[spread, weights])
    }
}

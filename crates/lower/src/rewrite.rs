//! Operations in terms of simpler ones: padding between elements, convolutions over such or over cropped
//! inputs, functions of repeated elements, which are computed before they are repeated, and softmax's division. In: a
//! node of a valid module. Out: nodes whose lowering is known. Meaning is kept exactly, but for a rounding in softmax.

use crate::append::append;
use crate::softmax::ends_softmax;
use pando_base::{BinaryFn, IdSet, Shape, SideTable};
use pando_graph::{
    Const, ConstData, Conv, Func, Module, Node, NodeId, Op, Pad, ValueDef, ValueId, known_dims,
};

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
        Op::Binary(BinaryFn::Div) if ends_softmax(writer.target, operands) => {
            Some(writer.times_inverse(operands))
        }
        op if op.is_elementwise() => writer.before_repeating(op, operands),
        _ => None,
    }
}

/// The function without the nodes that no result needs.
pub fn without_unused(func: &Func) -> Func {
    let mut needed: IdSet<ValueId> = func.results.iter().copied().collect();
    let nodes: Vec<(NodeId, &Node)> = func.nodes.iter().collect();
    for (_, node) in nodes.iter().rev() {
        if node.results.iter().any(|&value| needed.contains(value)) {
            node.operands.iter().for_each(|&operand| {
                needed.insert(operand);
            });
        }
    }
    let mut out = Func { composite: func.composite.clone(), ..Func::new(&func.name) };
    let mut map: SideTable<ValueId, Option<ValueId>> = SideTable::default();
    for &param in &func.params {
        map[param] = Some(out.push_param(&func.values[param].name, func.ty(param).clone()));
    }
    let mapped = |map: &SideTable<ValueId, Option<ValueId>>, value| map[value].expect("operands come first");
    for (_, node) in nodes.into_iter().filter(|(_, node)| node.results.iter().any(|&v| needed.contains(v))) {
        let operands: Vec<ValueId> = node.operands.iter().map(|&value| mapped(&map, value)).collect();
        let types: Vec<_> = node.results.iter().map(|&value| func.ty(value).clone()).collect();
        let id = out.push_node(node.op.clone(), operands, types);
        for (&old, &new) in node.results.iter().zip(&out.nodes[id].results.clone()) {
            out.values[new].name.clone_from(&func.values[old].name);
            map[old] = Some(new);
        }
    }
    out.results = func.results.iter().map(|&value| mapped(&map, value)).collect();
    out
}

/// What is cropped at the end needs no care: how many outputs there are says that no window reaches it.
fn is_plain(conv: &Conv) -> bool {
    conv.input_dilation.iter().all(|&step| step == 1) && conv.padding.iter().all(|&(low, _)| low >= 0)
}

struct Writer<'a> {
    module: &'a mut Module,
    target: &'a mut Func,
}

impl Writer<'_> {
    fn push(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        append(self.module, self.target, op, operands)
    }

    fn reshape(&mut self, value: ValueId, sizes: &[u64]) -> ValueId {
        self.push(Op::Reshape { dims: known_dims(sizes) }, &[value])
    }

    /// A function of operands that all repeat along the same dimensions: of what they repeat.
    fn before_repeating(&mut self, op: &Op, operands: &[ValueId]) -> Option<ValueId> {
        let sources: Vec<(ValueId, Vec<usize>)> =
            operands.iter().map(|&operand| self.repeated(operand)).collect::<Option<_>>()?;
        let dims = self.target.ty(operands[0]).dims.clone();
        let rank = |value: ValueId| self.target.ty(value).rank();
        let (widest, axes) = sources.iter().max_by_key(|(source, _)| rank(*source)).cloned()?;
        let small = self.target.ty(widest).dims.clone();
        let fits = |(source, its_axes): &(ValueId, Vec<usize>)| {
            rank(*source) == 0 || (self.target.ty(*source).dims == small && *its_axes == axes)
        };
        let size = |value: ValueId| self.target.ty(value).shape().map(|shape| shape.num_elements());
        if !sources.iter().all(fits) || size(widest)? >= size(operands[0])? {
            return None;
        }
        let mut narrow = Vec::new();
        for (source, its_axes) in sources {
            let repeats = its_axes.len() < axes.len();
            let broadcast = || Op::Broadcast { dims: small.clone(), axes: Vec::new() };
            narrow.push(if repeats { self.push(broadcast(), &[source]) } else { source });
        }
        let result = self.push(op.clone(), &narrow);
        Some(self.push(Op::Broadcast { dims, axes }, &[result]))
    }

    /// What a broadcast repeats, and where its dimensions go.
    fn repeated(&self, value: ValueId) -> Option<(ValueId, Vec<usize>)> {
        let ValueDef::Node(node, _) = self.target.values[value].def else { return None };
        match &self.target.nodes[node] {
            Node { op: Op::Broadcast { axes, .. }, operands, .. } => Some((operands[0], axes.clone())),
            _ => None,
        }
    }

    /// Softmax as the vendor's library ends it: one inverse for a sum, a product for each element, which takes a tenth
    /// of a division's cycles (docs/SDK_ONNX_PROFILE_ANALYSIS.md of osmarks/ipu-stack lists its steps).
    fn times_inverse(&mut self, operands: &[ValueId]) -> ValueId {
        let (sums, axes) = self.repeated(operands[1]).expect("a repeated sum");
        let dims = |value: ValueId, target: &Func| target.ty(value).dims.clone();
        let one = self.scalar(1.0, sums);
        let (narrow, wide) = (dims(sums, self.target), dims(operands[0], self.target));
        let ones = self.push(Op::Broadcast { dims: narrow, axes: Vec::new() }, &[one]);
        let inverse = self.push(Op::Binary(BinaryFn::Div), &[ones, sums]);
        let inverse = self.push(Op::Broadcast { dims: wide, axes }, &[inverse]);
        self.push(Op::Binary(BinaryFn::Mul), &[operands[0], inverse])
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

    fn scalar(&mut self, number: f64, like: ValueId) -> ValueId {
        let dtype = self.target.ty(like).dtype;
        let name = format!("number.{}", self.module.consts.len());
        let scalar = Const { name, dtype, shape: Shape::scalar(), data: ConstData::Splat(number) };
        let scalar = Op::Constant(self.module.consts.push(scalar));
        self.push(scalar, &[])
    }

    fn plain_conv(&mut self, conv: &Conv, input: ValueId, weights: ValueId) -> ValueId {
        let kernel = self.target.ty(weights).shape().expect("the operand's sizes are known");
        let late =
            |dim: usize| conv.input_dilation[dim] > 1 && kernel[dim + 2] == 1 && conv.strides[dim] == 1;
        if let Some(dim) = (0..conv.strides.len()).find(|&dim| late(dim)) {
            return self.spread_after(conv, dim, input, weights);
        }
        let zero = self.scalar(0.0, input);
        // Batch and channels are left alone.
        let crops = |&(low, _): &(i64, i64)| low < 0;
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

    /// Along a dimension in which the kernel has one position, zeros between and around the input's elements are as
    /// many between and around the outputs.
    fn spread_after(&mut self, conv: &Conv, dim: usize, input: ValueId, weights: ValueId) -> ValueId {
        let mut dense = conv.clone();
        (dense.input_dilation[dim], dense.padding[dim]) = (1, (0, 0));
        let result = if is_plain(&dense) {
            self.push(Op::Conv(dense), &[input, weights])
        } else {
            self.plain_conv(&dense, input, weights)
        };
        let rank = self.target.ty(result).rank();
        let only =
            |value: i64| (0..rank).map(|axis| if axis == dim + 2 { value } else { 0 }).collect::<Vec<i64>>();
        let (low, high) = conv.padding[dim];
        let mut interior = vec![0; rank];
        interior[dim + 2] = conv.input_dilation[dim] - 1;
        let zero = self.scalar(0.0, result);
        self.spread_out(&Pad { low: only(low), high: only(high), interior }, result, zero)
    }
}

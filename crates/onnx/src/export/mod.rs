//! From a graph to an ONNX model of standard operators, opset 21 (26 where bits are reinterpreted). Importing it
//! again gives the same values, but for rounding where one operator becomes several.
//!
//! Calls are inlined; If, While and Repeat become If and Loop. Sizes must be numbers. What ONNX has no operator
//! for is an error, such as random numbers and 8-bit floats.
//! `elementwise.rs`, `layout.rs` and `sums.rs` have the operators, `writer.rs` what they are written with.

mod elementwise;
mod layout;
mod sums;
mod writer;

use crate::errors;
use crate::proto::{GraphProto, ModelProto, OperatorSetIdProto};
use pando_base::{DType, Result, Tensor};
use pando_graph::{Func, FuncId, Module, Node, Op, TensorType, ValueId, check_expanded_size, validate};
use prost::Message;
use writer::{Writer, info};

/// The version of the default operator set that exported models use at least.
pub const EXPORT_OPSET: i64 = 21;

/// Files of protobuf are smaller.
const MAX_BYTES: usize = (1 << 31) - 1;

/// The bytes of an ONNX file that computes what the module's `main` does.
pub fn export(module: &Module) -> Result<Vec<u8>> {
    let model = export_model(module)?;
    match model.encoded_len() > MAX_BYTES {
        true => Err(errors::too_large_to_export()),
        false => Ok(model.encode_to_vec()),
    }
}

/// As [`export`], as the decoded message.
pub fn export_model(module: &Module) -> Result<ModelProto> {
    validate(module)?;
    check_expanded_size(module)?;
    let main = module.main().ok_or_else(errors::no_main)?;
    let func = &module.funcs[main];
    let mut export = Export { module, w: Writer::default() };
    let (mut inputs, mut args) = (Vec::new(), Vec::new());
    for (position, &param) in func.params.iter().enumerate() {
        let name = export.w.public_name(&func.values[param].name, &format!("input{position}"));
        inputs.push(info(&name, func.ty(param))?);
        args.push(name);
    }
    let results = export.body(main, args)?;
    let mut outputs = Vec::new();
    for (position, (&value, result)) in func.results.iter().zip(results).enumerate() {
        let name = export.w.public_name(&func.values[value].name, &format!("output{position}"));
        export.w.named("Identity", &[&result], &name);
        outputs.push(info(&name, func.ty(value))?);
    }
    let graph = GraphProto {
        node: std::mem::take(&mut export.w.nodes),
        name: "main".into(),
        initializer: std::mem::take(&mut export.w.initializers),
        input: inputs,
        output: outputs,
        sparse_initializer: vec![],
    };
    let opset = OperatorSetIdProto { domain: String::new(), version: export.w.opset.max(EXPORT_OPSET) };
    Ok(ModelProto {
        ir_version: 10,
        producer_name: "pando".into(),
        graph: Some(graph),
        opset_import: vec![opset],
        functions: vec![],
    })
}

struct Export<'m> {
    module: &'m Module,
    w: Writer,
}

/// A node with what its translation looks at.
struct Site<'a> {
    op: &'a Op,
    /// Names of the operands.
    x: Vec<String>,
    types: Vec<&'a TensorType>,
    result: &'a TensorType,
}

impl Site<'_> {
    fn dtype(&self) -> DType {
        self.types[0].dtype
    }

    fn shape(&self, operand: usize) -> Result<Vec<u64>> {
        shape_of(self.types[operand])
    }

    fn result_shape(&self) -> Result<Vec<u64>> {
        shape_of(self.result)
    }
}

fn shape_of(ty: &TensorType) -> Result<Vec<u64>> {
    Ok(ty.require_shape()?.to_vec())
}

impl Export<'_> {
    /// A function's nodes in place of a call. Recursion is as deep as calls nest.
    fn body(&mut self, id: FuncId, args: Vec<String>) -> Result<Vec<String>> {
        let func = &self.module.funcs[id];
        let mut names: Vec<String> = vec![String::new(); func.values.len()];
        for (&param, arg) in func.params.iter().zip(args) {
            names[pando_base::Id::index(param)] = arg;
        }
        for node in func.nodes.values() {
            let results = self.node(func, node, &names)?;
            for (&value, name) in node.results.iter().zip(results) {
                names[pando_base::Id::index(value)] = name;
            }
        }
        Ok(func.results.iter().map(|&value| names[pando_base::Id::index(value)].clone()).collect())
    }

    fn node(&mut self, func: &Func, node: &Node, names: &[String]) -> Result<Vec<String>> {
        let name = |&value: &ValueId| names[pando_base::Id::index(value)].clone();
        let x: Vec<String> = node.operands.iter().map(name).collect();
        match &node.op {
            Op::Constant(id) => {
                let constant = &self.module.consts[*id];
                return Ok(vec![self.w.constant(&constant.name, || constant.materialize())?]);
            }
            Op::Call(callee) => return self.body(*callee, x),
            Op::If { then_func, else_func } => return self.branches(*then_func, *else_func, &x),
            Op::While { cond, body } => {
                let types = func.operand_types(&node.operands);
                return self.while_loop(*cond, *body, x, &types);
            }
            Op::Repeat { count, body } => {
                let types = func.operand_types(&node.operands);
                return self.repeat(*count, *body, &x, &types);
            }
            _ => {}
        }
        let types = func.operand_types(&node.operands);
        let site = Site { op: &node.op, x, types, result: func.ty(node.results[0]) };
        if site.types.iter().chain([&site.result]).any(|ty| matches!(ty.dtype, DType::F8(..))) {
            return Err(errors::no_onnx_op(&node.op, "of 8-bit floats"));
        }
        self.primitive(&site)
    }

    fn primitive(&mut self, site: &Site) -> Result<Vec<String>> {
        let w = &mut self.w;
        let one = match site.op {
            Op::Sort(sort) => return layout::sort(w, site, sort),
            Op::Iota { dtype, axis, .. } => layout::iota(w, site, *dtype, *axis),
            Op::Unary(func) => elementwise::unary(w, site, *func),
            Op::Binary(func) => elementwise::binary(w, site, *func),
            Op::Compare(func) => elementwise::compare(w, site, *func),
            Op::Select => Ok(w.node("Where", &[&site.x[0], &site.x[1], &site.x[2]])),
            Op::Convert(dtype) => elementwise::convert(w, site, *dtype),
            Op::Bitcast(dtype) => elementwise::bitcast(w, site, *dtype),
            Op::Reshape { .. } => Ok(w.reshape(&site.x[0], &site.result_shape()?)),
            Op::Transpose { perm } => Ok(w.transpose(&site.x[0], perm)),
            Op::Broadcast { axes, .. } => layout::broadcast(w, site, axes),
            Op::Slice(slice) => layout::slice(w, site, slice),
            Op::Pad(pad) => layout::pad(w, site, pad),
            Op::Concat { axis } => Ok(layout::concat(w, site, *axis)),
            Op::Reverse { axes } => Ok(layout::reverse(w, &site.x[0], axes)),
            Op::Gather { axis } => layout::gather(w, site, *axis),
            Op::Scatter { axis, combine } => layout::scatter(w, site, *axis, *combine),
            Op::Dot(dot) => sums::dot(w, site, dot),
            Op::Conv(conv) => sums::conv(w, site, conv),
            Op::Reduce { func, axes } => sums::reduce(w, site, *func, axes),
            Op::ReduceWindow(window) => sums::reduce_window(w, site, window),
            Op::Scan(scan) => sums::scan(w, site, scan),
            Op::Random { .. } => Err(errors::no_onnx_op(site.op, "of a seed")),
            Op::Constant(_) | Op::Call(_) | Op::If { .. } | Op::While { .. } | Op::Repeat { .. } => {
                unreachable!("{} is no primitive", site.op)
            }
        };
        one.map(|name| vec![name])
    }

    /// A subgraph with what `build` writes; it gives the outputs' names and types.
    fn subgraph(
        &mut self,
        inputs: &[(String, TensorType)],
        build: impl FnOnce(&mut Self) -> Result<Vec<(String, TensorType)>>,
    ) -> Result<GraphProto> {
        let outer = std::mem::take(&mut self.w.nodes);
        let built = build(self);
        let mut graph = GraphProto { name: self.w.fresh(), ..GraphProto::default() };
        for (name, ty) in built? {
            // Outputs are the subgraph's own, also where they are values from outside.
            let own = self.w.node("Identity", &[&name]);
            graph.output.push(info(&own, &ty)?);
        }
        graph.input = inputs.iter().map(|(name, ty)| info(name, ty)).collect::<Result<_>>()?;
        graph.node = std::mem::replace(&mut self.w.nodes, outer);
        Ok(graph)
    }

    fn typed_body(&mut self, id: FuncId, args: Vec<String>) -> Result<Vec<(String, TensorType)>> {
        let types: Vec<TensorType> = self.module.funcs[id].result_types().into_iter().cloned().collect();
        Ok(self.body(id, args)?.into_iter().zip(types).collect())
    }

    fn branches(&mut self, then: FuncId, other: FuncId, x: &[String]) -> Result<Vec<String>> {
        let count = self.module.funcs[then].results.len();
        let then = self.subgraph(&[], |export| export.typed_body(then, x[1..].to_vec()))?;
        let other = self.subgraph(&[], |export| export.typed_body(other, x[1..].to_vec()))?;
        let attributes = vec![writer::graph("then_branch", then), writer::graph("else_branch", other)];
        Ok(self.w.many("If", &[&x[0]], count, attributes))
    }

    /// The inputs of a loop's body: the number of the iteration, the condition, what is carried.
    fn loop_inputs(&mut self, types: &[&TensorType]) -> Vec<(String, TensorType)> {
        let mut inputs = vec![
            (self.w.fresh(), TensorType::scalar(DType::I64)),
            (self.w.fresh(), TensorType::scalar(DType::Bool)),
        ];
        inputs.extend(types.iter().map(|&ty| (self.w.fresh(), ty.clone())));
        inputs
    }

    fn while_loop(
        &mut self,
        cond: FuncId,
        body: FuncId,
        x: Vec<String>,
        types: &[&TensorType],
    ) -> Result<Vec<String>> {
        let first = self.body(cond, x.clone())?.swap_remove(0);
        let inputs = self.loop_inputs(types);
        let carried: Vec<String> = inputs[2..].iter().map(|(name, _)| name.clone()).collect();
        let graph = self.subgraph(&inputs, |export| {
            let next = export.typed_body(body, carried)?;
            let names = next.iter().map(|(name, _)| name.clone()).collect();
            let condition = export.body(cond, names)?.swap_remove(0);
            Ok(std::iter::once((condition, TensorType::scalar(DType::Bool))).chain(next).collect())
        })?;
        Ok(self.loop_node("", &first, &x, graph))
    }

    fn repeat(
        &mut self,
        count: u64,
        body: FuncId,
        x: &[String],
        types: &[&TensorType],
    ) -> Result<Vec<String>> {
        let count = i64::try_from(count).map_err(|_| errors::too_much_work("a loop of 2^63 iterations"))?;
        let limit = self.w.constant("", || Tensor::from_ints(DType::I64, [], &[count.into()]))?;
        let inputs = self.loop_inputs(types);
        let graph = self.subgraph(&inputs, |export| {
            let mut args = vec![export.w.cast(&inputs[0].0, DType::I32)];
            args.extend(inputs[2..].iter().map(|(name, _)| name.clone()));
            let next = export.typed_body(body, args)?;
            Ok(std::iter::once(inputs[1].clone()).chain(next).collect())
        })?;
        Ok(self.loop_node(&limit, "", x, graph))
    }

    fn loop_node(&mut self, limit: &str, condition: &str, x: &[String], body: GraphProto) -> Vec<String> {
        let mut inputs = vec![limit, condition];
        inputs.extend(x.iter().map(String::as_str));
        self.w.many("Loop", &inputs, x.len(), vec![writer::graph("body", body)])
    }
}

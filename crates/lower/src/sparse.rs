//! Products with sparse matrices, before planning. A call of the composite whose blocks lie in buckets stays a call. If
//! its pattern is known but not in buckets yet, it is dealt to as many as suit the machine; values that are constants go
//! there with it. All other calls are their bodies.

use crate::Options;
use crate::plan::Sizes;
use pando_base::{DType, Result};
use pando_graph::{
    Builder, Const, ConstId, Func, FuncId, Module, Node, Op, Pattern, TensorType, ValueDef, ValueId,
    is_sparse_matmul,
};
use pando_machine::Machine;

/// What buckets are made for.
pub struct Target<'a> {
    pub machine: &'a Machine,
    pub options: &'a Options,
}

/// The call that does the same with blocks in buckets: its function, and its operands in `target`. Nothing if there is
/// none.
pub fn in_buckets(
    source: &Module,
    callee: FuncId,
    node: &Node,
    operands: &[ValueId],
    out: &mut Module,
    target: &mut Func,
    goal: &Target,
) -> Option<(FuncId, Vec<ValueId>)> {
    if !matches!(node.op, Op::Call(_)) || !is_sparse_matmul(source, &source.funcs[callee]) {
        return None;
    }
    let types: Vec<TensorType> = operands.iter().map(|&value| target.ty(value).clone()).collect();
    let rows = source.funcs[callee].ty(source.funcs[callee].results[0]).dims[1].known()?;
    if types[2].rank() == 3 {
        let bands = types[2].shape()?[0].checked_mul(types[2].shape()?[1])?;
        let fits = bands <= goal.machine.chip.tiles.into();
        return if fits { Some((composite(out, &types, rows).ok()?, operands.to_vec())) } else { None };
    }
    let constant = |value: ValueId| match target.values[value].def {
        ValueDef::Node(node, _) => match target.nodes[node].op {
            Op::Constant(id) => Some(id),
            _ => None,
        },
        ValueDef::Param(_) => None,
    };
    let [values, block_rows, block_columns] =
        [constant(operands[1])?, constant(operands[2])?, constant(operands[3])?];
    let pattern = pattern(out, &types, rows, block_rows, block_columns)?;
    let buckets = {
        let ([columns, _, rows], _) = sizes(&types, &pattern, goal.options).best(goal.machine, goal.options);
        pattern.buckets(rows, columns, None).ok()?
    };
    let name = out.consts[values].name.clone();
    let arranged = [
        (buckets.values(&out.consts[values].materialize()), "buckets"),
        (buckets.rows.clone(), "rows"),
        (buckets.columns.clone(), "columns"),
    ];
    let mut new = vec![operands[0]];
    for (tensor, what) in arranged {
        let constant = Const::dense(&format!("{name}.{what}.{}", out.consts.len()), tensor);
        let ty = constant.ty();
        let node = target.push_node(Op::Constant(out.consts.push(constant)), [], [ty]);
        new.push(target.nodes[node].results[0]);
    }
    let types: Vec<TensorType> = new.iter().map(|&value| target.ty(value).clone()).collect();
    Some((composite(out, &types, rows).ok()?, new))
}

/// Bands of rows, bands of columns and slots of a bucket for a product with a matrix `[rows, columns]` of which the
/// number of blocks is known, but not where they are until it is run. `x` is `[batch, columns]`.
///
/// Assumption: buckets have the room over the mean that PopLibs gives them (poplar.md section 3.7: an oversize proportion
/// of 0.3), and blocks that do not fit are the host's problem, not sent on as there.
pub fn buckets_for(
    x: [u64; 2],
    rows: u64,
    side: u64,
    blocks: u64,
    dtype: DType,
    machine: &Machine,
    options: &Options,
) -> [u64; 3] {
    const ROOM: f64 = 0.3;
    let partials = if options.half_partials && dtype == DType::F16 { DType::F16 } else { DType::F32 };
    let [batch, columns] = x;
    let sizes = Sizes { batch, rows, columns, side, blocks, dtype, partials, room: Some(ROOM) };
    let ([column_bands, _, row_bands], _) = sizes.best(machine, options);
    [row_bands, column_bands, sizes.slots(row_bands * column_bands)]
}

fn sizes(types: &[TensorType], pattern: &Pattern, options: &Options) -> Sizes {
    let dtype = types[0].dtype;
    let half = options.half_partials && dtype == DType::F16;
    Sizes {
        batch: types[0].dims[0].known().unwrap_or(1),
        rows: pattern.rows,
        columns: pattern.columns,
        side: pattern.block,
        blocks: pattern.places.len() as u64,
        dtype,
        partials: if half { DType::F16 } else { DType::F32 },
        room: None,
    }
}

fn pattern(
    module: &Module,
    types: &[TensorType],
    rows: u64,
    block_rows: ConstId,
    block_columns: ConstId,
) -> Option<Pattern> {
    let block = types[1].dims.last()?.known()?;
    let places = |id: ConstId| -> Vec<u32> {
        let tensor = module.consts[id].materialize();
        (0..tensor.num_elements() as usize).map(|at| tensor.get_int(at).max(0) as u32).collect()
    };
    let places = places(block_rows).into_iter().zip(places(block_columns)).collect();
    Some(Pattern { rows, columns: types[0].dims[1].known()?, block, places })
}

/// The composite for operands of these types, as a function of the module.
fn composite(module: &mut Module, types: &[TensorType], rows: u64) -> Result<FuncId> {
    let mut b = Builder::new();
    b.begin("main");
    let args: Vec<ValueId> = types.iter().map(|ty| b.param("", ty.clone())).collect();
    let result = b.sparse_matmul_at(args[0], args[1], args[2], args[3], rows)?;
    b.end(&[result]);
    let built = b.finish();
    let mut func = built.funcs.values().next().expect("the composite's body").clone();
    func.name = format!("{}.{}", func.name, module.funcs.len());
    for (_, node) in func.nodes.iter_mut() {
        if let Op::Constant(id) = &mut node.op {
            let constant = &built.consts[*id];
            let name = format!("{}.{}", constant.name, module.consts.len());
            *id = module.consts.push(Const { name, ..constant.clone() });
        }
    }
    Ok(module.funcs.push(func))
}

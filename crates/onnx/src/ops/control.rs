//! If, Loop and Scan. A known condition or number of iterations leaves no trace of them but for a Repeat.

use crate::ctx::Ctx;
use crate::errors;
use crate::import::subgraph::{Captures, body, inline, outline};
use crate::import::{TensorValue, Value};
use crate::proto::GraphProto;
use pando_base::{BinaryFn, CompareFn, DType, Result, Tensor};
use pando_graph::{Dim, Op, TensorType, ValueId};

/// Loops of more iterations are not unrolled.
const MAX_UNROLLED: u64 = 1024;

pub(super) fn if_else(c: &mut Ctx) -> Result<Vec<Value>> {
    let (then_graph, else_graph) = (c.graph("then_branch")?, c.graph("else_branch")?);
    let condition = c.x(0)?;
    let condition = c.b.reshape(condition, pando_graph::Dims::new())?;
    let taken = |known: Tensor| if known.get_int(0) != 0 { then_graph } else { else_graph };
    if let Some(known) = c.fixed(condition) {
        return inline(c.b, c.scope, taken(known), vec![]);
    }
    let problems = Problems::so_far(c);
    let open = open_if(c, condition, then_graph, else_graph);
    if let (Err(_), Some(known)) = (&open, c.decided(condition)?) {
        problems.forget_later(c);
        return inline(c.b, c.scope, taken(known), vec![]);
    }
    open
}

/// Problems noted before something is tried.
struct Problems(usize);

impl Problems {
    fn so_far(c: &Ctx) -> Problems {
        Problems(c.scope.env.problems.borrow().len())
    }

    fn forget_later(&self, c: &Ctx) {
        c.scope.env.problems.borrow_mut().truncate(self.0);
    }
}

/// Both branches, for a condition that is computed.
fn open_if(
    c: &mut Ctx,
    condition: ValueId,
    then_graph: &GraphProto,
    else_graph: &GraphProto,
) -> Result<Vec<Value>> {
    let captures = Captures::of(c.b, c.scope, &[then_graph, else_graph])?;
    let scope = c.scope;
    let mut branch = |name: &str, graph: &GraphProto| {
        outline(c.b, name, &captures.types, |b, params| {
            let inner = captures.scope(b, scope, params);
            body(b, inner, graph, vec![])
        })
    };
    let (on_true, on_false) = (branch("then", then_graph)?, branch("else", else_graph)?);
    if on_true.types != on_false.types {
        return Err(errors::invalid("the branches give different types and the condition is open"));
    }
    let operands: Vec<ValueId> = std::iter::once(condition).chain(captures.args).collect();
    let op = Op::If { then_func: on_true.func, else_func: on_false.func };
    let results = c.b.insert(op, &operands)?;
    Ok(results.into_iter().zip(on_true.elems).map(|(id, elem)| Value::typed(id, elem)).collect())
}

/// The ways to run a loop, the first that works: by count, unrolled, open-ended, and by what a sample of the
/// inputs decides.
pub(super) fn loop_op(c: &mut Ctx) -> Result<Vec<Value>> {
    let graph = c.graph("body")?;
    let problems = Problems::so_far(c);
    if let Ok(Some(values)) = bounded(c, graph, &|c, id| Ok(c.fixed(id))) {
        return Ok(values);
    }
    problems.forget_later(c);
    let open = open_ended(c, graph);
    if open.is_err() && c.scope.env.decisions().is_some() {
        problems.forget_later(c);
        if let Some(values) = bounded(c, graph, &|c, id| c.decided(id))? {
            return Ok(values);
        }
    }
    open
}

type Known = dyn Fn(&Ctx, ValueId) -> Result<Option<Tensor>>;

/// A loop whose limit and conditions are known; `None` if they are not.
fn bounded(c: &mut Ctx, graph: &GraphProto, known: &Known) -> Result<Option<Vec<Value>>> {
    let number = |c: &Ctx, position: usize, missing: i64| match c.opt(position)? {
        Some(id) => {
            Ok(known(c, id)?.filter(|known| known.num_elements() == 1).map(|known| known.get_int(0) as i64))
        }
        None => Ok(Some(missing)),
    };
    let (limit, starts) = (number(c, 0, i64::MAX)?, number(c, 1, 1)?);
    let (Some(limit), Some(starts)) = (limit, starts) else { return Ok(None) };
    let problems = Problems::so_far(c);
    if starts == 1 && limit < i64::MAX {
        if let Ok(values) = counted(c, graph, limit.max(0) as u64) {
            return Ok(Some(values));
        }
        problems.forget_later(c);
    }
    unrolled(c, graph, limit, starts != 0, known)
}

fn carried_tensors(c: &Ctx, from: usize) -> Result<Vec<TensorValue>> {
    (from..c.inputs.len()).map(|position| c.tensor(position).cloned()).collect()
}

/// A Loop that runs `count` times, whose condition stays true.
fn counted(c: &mut Ctx, graph: &GraphProto, count: u64) -> Result<Vec<Value>> {
    let carried = carried_tensors(c, 2)?;
    let plan = Plan { graph, count, carried: &carried, scanned: &[], is_loop: true };
    let (finals, stacked) = plan.repeat(c)?;
    Ok(finals.into_iter().chain(stacked).map(Value::Tensor).collect())
}

/// What a Repeat runs.
struct Plan<'a> {
    graph: &'a GraphProto,
    count: u64,
    carried: &'a [TensorValue],
    /// Per scanned input: the value, its axis, and whether it runs backwards.
    scanned: &'a [(TensorValue, usize, bool)],
    is_loop: bool,
}

impl Plan<'_> {
    /// The last carried values, and each iteration's outputs stacked along a new first axis.
    fn repeat(&self, c: &mut Ctx) -> Result<(Vec<TensorValue>, Vec<TensorValue>)> {
        let captures = Captures::of(c.b, c.scope, &[self.graph])?;
        let mut operands = captures.args.clone();
        operands.extend(self.scanned.iter().map(|(value, ..)| value.id));
        let fixed = operands.len();
        operands.extend(self.carried.iter().map(|value| value.id));
        let types: Vec<TensorType> = operands.iter().map(|&id| c.b.ty(id).clone()).collect();
        let outputs = self.output_types(c, &captures, &types)?;
        for (ty, _) in &outputs {
            let mut ty = ty.clone();
            ty.dims.insert(0, Dim::Known(self.count));
            operands.push(c.b.splat(&ty, 0.0)?);
        }
        if self.count == 0 {
            let stacked = operands[fixed + self.carried.len()..].iter().zip(&outputs);
            let stacked = stacked.map(|(&id, (_, elem))| TensorValue::new(id, *elem)).collect();
            return Ok((self.carried.to_vec(), stacked));
        }
        let func = self.body_func(c, &captures, &operands, fixed)?;
        let results = c.b.insert(Op::Repeat { count: self.count, body: func }, &operands)?;
        let mut results = results.into_iter().skip(fixed);
        let finals =
            self.carried.iter().zip(results.by_ref()).map(|(old, id)| TensorValue::new(id, old.elem));
        let finals = finals.collect();
        let stacked =
            outputs.iter().zip(results).map(|((_, elem), id)| TensorValue::new(id, *elem)).collect();
        Ok((finals, stacked))
    }

    /// Runs the subgraph in a function that is thrown away, to learn the types of its outputs.
    fn output_types(
        &self,
        c: &mut Ctx,
        captures: &Captures,
        types: &[TensorType],
    ) -> Result<Vec<(TensorType, crate::elem::Elem)>> {
        let scope = c.scope;
        let mut found = Vec::new();
        let name = c.b.unique_func_name("loop");
        c.b.begin(&name);
        let counter = c.b.param("", TensorType::scalar(DType::I32));
        let params: Vec<ValueId> = types.iter().map(|ty| c.b.param("", ty.clone())).collect();
        let result = self.iteration(c.b, scope, captures, counter, &params);
        if let Ok(results) = &result {
            let outputs = results.iter().skip(self.carried.len());
            found = outputs.map(|output| (c.b.ty(output.id).clone(), output.elem)).collect();
        }
        c.b.abandon();
        result.map(|_| found)
    }

    /// One iteration: the next carried values, then the outputs.
    fn iteration(
        &self,
        b: &mut pando_graph::Builder,
        scope: &crate::import::Scope,
        captures: &Captures,
        counter: ValueId,
        params: &[ValueId],
    ) -> Result<Vec<TensorValue>> {
        let inner = captures.scope(b, scope, params);
        let fixed = captures.args.len();
        let mut inputs = Vec::new();
        if self.is_loop {
            inputs.push(Value::tensor(b, counter));
            if let Value::Tensor(tensor) = &mut inputs[0] {
                tensor.id = b.convert(counter, DType::I64)?;
                tensor.elem = crate::elem::Elem::INT64;
            }
            let yes = b.constant(Tensor::from_ints(DType::Bool, [], &[1]));
            inputs.push(Value::tensor(b, yes));
        }
        let first = fixed + self.scanned.len();
        let carried = self.carried.iter().zip(&params[first..]);
        inputs.extend(carried.map(|(old, &id)| Value::typed(id, old.elem)));
        for (position, (value, axis, backwards)) in self.scanned.iter().enumerate() {
            let index = if *backwards {
                let last = b.constant(Tensor::from_ints(DType::I32, [], &[i128::from(self.count) - 1]));
                b.sub(last, counter)?
            } else {
                counter
            };
            inputs.push(Value::typed(b.gather(params[fixed + position], index, *axis)?, value.elem));
        }
        let mut results = body(b, inner, self.graph, inputs)?;
        if self.is_loop {
            if results.is_empty() {
                return Err(errors::invalid("the loop's body gives no condition"));
            }
            let condition = results.remove(0);
            let goes_on = b.known(condition.id).is_some_and(|known| known.get_int(0) != 0);
            if !goes_on {
                return Err(errors::invalid("the loop's condition is computed by its body"));
            }
        }
        Ok(results)
    }

    fn body_func(
        &self,
        c: &mut Ctx,
        captures: &Captures,
        operands: &[ValueId],
        fixed: usize,
    ) -> Result<pando_graph::FuncId> {
        let mut types = vec![TensorType::scalar(DType::I32)];
        types.extend(operands.iter().map(|&id| c.b.ty(id).clone()));
        let scope = c.scope;
        let carried = self.carried.len();
        let built = outline(c.b, "loop", &types, |b, params| {
            let (counter, params) = (params[0], &params[1..]);
            let outputs = self.iteration(b, scope, captures, counter, params)?;
            if outputs.len() < carried {
                return Err(errors::invalid("the body gives fewer values than it carries"));
            }
            let plain = |id: ValueId| TensorValue::new(id, crate::elem::Elem::FLOAT);
            let mut results: Vec<TensorValue> = params[..fixed].iter().map(|&id| plain(id)).collect();
            results.extend(outputs[..carried].iter().cloned());
            let row = b.reshape(counter, [1u64])?;
            for (output, &stack) in outputs[carried..].iter().zip(&params[fixed + carried..]) {
                let mut dims = b.ty(output.id).dims.clone();
                dims.insert(0, Dim::Known(1));
                let update = b.reshape(output.id, dims)?;
                results.push(plain(b.scatter(stack, row, update, 0, None)?));
            }
            for (result, ty) in results.iter().zip(&types[1..]) {
                if b.ty(result.id) != ty {
                    let found = b.ty(result.id);
                    return Err(errors::invalid(format!(
                        "a loop's value changes its type from {ty} to {found}"
                    )));
                }
            }
            Ok(results)
        })?;
        Ok(built.func)
    }
}

/// The iterations one after the other, if every condition is known; `None` if one is not.
fn unrolled(
    c: &mut Ctx,
    graph: &GraphProto,
    limit: i64,
    starts: bool,
    known: &Known,
) -> Result<Option<Vec<Value>>> {
    let mut carried: Vec<Value> = (2..c.inputs.len()).map(|i| c.value(i).cloned()).collect::<Result<_>>()?;
    let mut outputs: Vec<Vec<ValueId>> = vec![vec![]; graph.output.len().saturating_sub(1 + carried.len())];
    let (mut goes_on, mut iteration) = (starts, 0u64);
    while goes_on && (iteration as i64) < limit {
        if iteration >= MAX_UNROLLED {
            return Err(errors::too_much_work(format!("a loop of more than {MAX_UNROLLED} iterations")));
        }
        let counter = c.ints_const(DType::I64, &[], &[iteration as i64]);
        let condition = c.b.constant(Tensor::from_ints(DType::Bool, [], &[1]));
        let mut inputs = vec![Value::tensor(c.b, counter), Value::tensor(c.b, condition)];
        inputs.extend(carried.iter().cloned());
        let mut results = inline(c.b, c.scope, graph, inputs)?.into_iter();
        match results.next() {
            Some(Value::Tensor(next)) => match known(c, next.id)? {
                Some(known) => goes_on = known.get_int(0) != 0,
                None => return Ok(None),
            },
            _ => return Err(errors::invalid("the loop's body gives no condition")),
        }
        carried = results.by_ref().take(carried.len()).collect();
        for (output, value) in outputs.iter_mut().zip(results) {
            match value {
                Value::Tensor(tensor) => output.push(c.unsqueeze(tensor.id, &[0])?),
                other => return Err(errors::invalid(format!("a loop stacks {}", other.kind()))),
            }
        }
        iteration += 1;
    }
    for output in outputs {
        if output.is_empty() {
            return Err(errors::invalid("a loop without iterations stacks values of unknown type"));
        }
        let stacked = c.b.concat(&output, 0)?;
        carried.push(Value::tensor(c.b, stacked));
    }
    Ok(Some(carried))
}

/// A loop that ends when its body says so.
fn open_ended(c: &mut Ctx, graph: &GraphProto) -> Result<Vec<Value>> {
    let carried = carried_tensors(c, 2)?;
    if graph.output.len() != 1 + carried.len() {
        return Err(errors::invalid(
            "a loop whose number of iterations depends on data stacks values: the result's size is unknown",
        ));
    }
    let captures = Captures::of(c.b, c.scope, &[graph])?;
    let limit = match c.opt(0)? {
        Some(limit) => c.b.reshape(limit, pando_graph::Dims::new())?,
        None => c.ints_const(DType::I64, &[], &[i64::MAX]),
    };
    let starts = match c.opt(1)? {
        Some(condition) => c.b.reshape(condition, pando_graph::Dims::new())?,
        None => c.b.constant(Tensor::from_ints(DType::Bool, [], &[1])),
    };
    let counter = c.ints_const(DType::I64, &[], &[0]);
    // State: counter, limit, condition, captured values, carried values.
    let mut state = vec![counter, limit, starts];
    state.extend(&captures.args);
    state.extend(carried.iter().map(|value| value.id));
    let types: Vec<TensorType> = state.iter().map(|&id| c.b.ty(id).clone()).collect();
    let plain = |id: ValueId| TensorValue::new(id, crate::elem::Elem::FLOAT);
    let cond = outline(c.b, "while_cond", &types, |b, params| {
        let below = b.compare(CompareFn::Lt, params[0], params[1])?;
        Ok(vec![plain(b.binary(BinaryFn::And, below, params[2])?)])
    })?;
    let (scope, fixed) = (c.scope, 3 + captures.args.len());
    let step = outline(c.b, "while_body", &types, |b, params| {
        let inner = captures.scope(b, scope, &params[3..fixed]);
        let mut inputs = vec![Value::tensor(b, params[0]), Value::tensor(b, params[2])];
        inputs.extend(carried.iter().zip(&params[fixed..]).map(|(old, &id)| Value::typed(id, old.elem)));
        let results = body(b, inner, graph, inputs)?;
        let next = b.binary_scalar(BinaryFn::Add, params[0], 1.0)?;
        let condition = b.reshape(results[0].id, pando_graph::Dims::new())?;
        let mut state = vec![plain(next), plain(params[1]), plain(condition)];
        state.extend(params[3..fixed].iter().map(|&id| plain(id)));
        state.extend(results[1..].iter().cloned());
        Ok(state)
    })?;
    let results = c.b.insert(Op::While { cond: cond.func, body: step.func }, &state)?;
    let finals = results.into_iter().skip(fixed).zip(&carried);
    Ok(finals.map(|(id, old)| Value::typed(id, old.elem)).collect())
}

pub(super) fn scan(c: &mut Ctx) -> Result<Vec<Value>> {
    if c.version < 9 {
        return scan_8(c);
    }
    let graph = c.graph("body")?;
    let scanned_count = usize::try_from(c.int("num_scan_inputs", 0)).unwrap_or(0).min(c.inputs.len());
    let state_count = c.inputs.len() - scanned_count;
    let carried = (0..state_count).map(|i| c.tensor(i).cloned()).collect::<Result<Vec<_>>>()?;
    let (axes, directions) = (c.ints("scan_input_axes"), c.ints("scan_input_directions"));
    let mut scanned = Vec::new();
    let mut count = None;
    for position in 0..scanned_count {
        let value = c.tensor(state_count + position)?.clone();
        let axis = axes.as_ref().and_then(|axes| axes.get(position)).copied().unwrap_or(0);
        let axis = c.axis_of(axis, c.rank(value.id))?;
        let backwards = directions.as_ref().and_then(|d| d.get(position)).is_some_and(|&d| d == 1);
        count = Some(c.size(value.id, axis)?);
        scanned.push((value, axis, backwards));
    }
    let count = count.ok_or_else(|| errors::invalid("Scan needs a scanned input"))?;
    let plan = Plan { graph, count, carried: &carried, scanned: &scanned, is_loop: false };
    let (finals, stacked) = plan.repeat(c)?;
    let mut results: Vec<Value> = finals.into_iter().map(Value::Tensor).collect();
    let (axes, directions) = (c.ints("scan_output_axes"), c.ints("scan_output_directions"));
    for (position, output) in stacked.into_iter().enumerate() {
        let mut id = output.id;
        if directions.as_ref().and_then(|d| d.get(position)).is_some_and(|&d| d == 1) {
            id = c.b.reverse(id, &[0])?;
        }
        let axis = axes.as_ref().and_then(|axes| axes.get(position)).copied().unwrap_or(0);
        let axis = c.axis_of(axis, c.rank(id))?;
        let mut perm: Vec<usize> = (1..c.rank(id)).collect();
        perm.insert(axis, 0);
        results.push(Value::typed(c.b.transpose(id, &perm)?, output.elem));
    }
    Ok(results)
}

/// Version 8 has a batch axis first in every value; each batch element is scanned by itself.
fn scan_8(c: &mut Ctx) -> Result<Vec<Value>> {
    if c.value_opt(0).is_some() {
        return Err(errors::invalid("Scan of version 8 with sequence lengths"));
    }
    let graph = c.graph("body")?;
    let scanned_count = usize::try_from(c.int("num_scan_inputs", 0)).unwrap_or(0).min(c.inputs.len() - 1);
    let state_count = c.inputs.len() - 1 - scanned_count;
    let batch = c.size(c.x(1)?, 0)?;
    let mut columns: Vec<Vec<ValueId>> = Vec::new();
    for row in 0..batch.min(MAX_UNROLLED) {
        let mut tensors = Vec::new();
        for position in 1..c.inputs.len() {
            let value = c.tensor(position)?.clone();
            tensors.push(TensorValue::new(c.pick(value.id, 0, row)?, value.elem));
        }
        let scanned: Vec<_> =
            tensors.split_off(state_count).into_iter().map(|value| (value, 0, false)).collect();
        let count = match scanned.first() {
            Some((value, ..)) => c.size(value.id, 0)?,
            None => return Err(errors::invalid("Scan needs a scanned input")),
        };
        let plan = Plan { graph, count, carried: &tensors, scanned: &scanned, is_loop: false };
        let (finals, stacked) = plan.repeat(c)?;
        for (position, value) in finals.into_iter().chain(stacked).enumerate() {
            columns.resize(columns.len().max(position + 1), Vec::new());
            columns[position].push(c.unsqueeze(value.id, &[0])?);
        }
    }
    let joined = columns.iter().map(|rows| c.b.concat(rows, 0).map(|id| Value::tensor(c.b, id)));
    joined.collect()
}

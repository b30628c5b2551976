//! What an operator's translation sees: its inputs, attributes and version, and the builder, with
//! ONNX's implicit broadcasting added.

use crate::elem::Elem;
use crate::errors;
use crate::import::{Scope, Size, TensorValue, Text, Value};
use crate::proto::{AttributeProto, GraphProto, NodeProto};
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result, Tensor, UnaryFn};
use pando_graph::{Builder, Dim, Dims, EvalOptions, TensorType, ValueId, known_dims};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

pub(crate) struct Ctx<'a, 's> {
    pub b: &'a mut Builder,
    pub scope: &'a Scope<'s>,
    pub node: &'a NodeProto,
    pub inputs: Vec<Option<Value>>,
    /// Version of the node's operator set.
    pub version: i64,
}

impl Deref for Ctx<'_, '_> {
    type Target = Builder;
    fn deref(&self) -> &Builder {
        self.b
    }
}

impl DerefMut for Ctx<'_, '_> {
    fn deref_mut(&mut self) -> &mut Builder {
        self.b
    }
}

/// Limits of what is computed while importing.
fn import_limits() -> EvalOptions {
    EvalOptions { max_steps: 100_000, max_bytes: 1 << 28 }
}

/// Inputs.
impl Ctx<'_, '_> {
    pub fn value(&self, position: usize) -> Result<&Value> {
        self.value_opt(position).ok_or_else(|| errors::missing_input(position))
    }

    pub fn value_opt(&self, position: usize) -> Option<&Value> {
        self.inputs.get(position).and_then(Option::as_ref)
    }

    pub fn tensor(&self, position: usize) -> Result<&TensorValue> {
        match self.value(position)? {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(errors::not_a_tensor(position, other.kind())),
        }
    }

    /// A required tensor.
    pub fn x(&self, position: usize) -> Result<ValueId> {
        self.tensor(position).map(|tensor| tensor.id)
    }

    /// An optional tensor.
    pub fn opt(&self, position: usize) -> Result<Option<ValueId>> {
        match self.value_opt(position) {
            None | Some(Value::Absent) => Ok(None),
            Some(_) => self.x(position).map(Some),
        }
    }

    pub fn all(&self) -> Result<Vec<ValueId>> {
        (0..self.inputs.len()).map(|position| self.x(position)).collect()
    }

    pub fn text(&self, position: usize) -> Result<Rc<Text>> {
        match self.value(position)? {
            Value::Text(text) => Ok(text.clone()),
            _ => Err(errors::invalid(format!("input {position} must be strings known at import"))),
        }
    }

    pub fn list(&self, position: usize) -> Result<Rc<Vec<Value>>> {
        match self.value(position)? {
            Value::List(list) => Ok(list.clone()),
            other => Err(errors::invalid(format!("input {position} is {}, not a sequence", other.kind()))),
        }
    }

    pub fn elem(&self, position: usize) -> Result<Elem> {
        self.tensor(position).map(|tensor| tensor.elem)
    }

    /// The elements of a value that depends on no input.
    pub fn fixed(&self, id: ValueId) -> Option<Tensor> {
        self.b.evaluate(id, &import_limits())
    }

    /// The elements of a value, fixed or as the sample of the inputs has it.
    pub fn decided(&self, id: ValueId) -> Result<Option<Tensor>> {
        Ok(self.decided_together(&[id])?.map(|mut tensors| tensors.swap_remove(0)))
    }

    /// As [`Ctx::decided`]; what lies above several values is computed once.
    pub fn decided_together(&self, ids: &[ValueId]) -> Result<Option<Vec<Tensor>>> {
        let fixed: Option<Vec<Tensor>> = ids.iter().map(|&id| self.fixed(id)).collect();
        if fixed.is_some() {
            return Ok(fixed);
        }
        self.scope.env.decisions().map_or(Ok(None), |decisions| decisions.decide(self.b, ids))
    }

    /// The elements of an input that a size or the like depends on.
    pub fn known_tensor(&self, position: usize) -> Result<Tensor> {
        let id = self.x(position)?;
        self.decided(id)?.ok_or_else(|| errors::needs_value(position))
    }

    pub fn known_ints(&self, position: usize) -> Result<Vec<i64>> {
        let tensor = self.known_tensor(position)?;
        if tensor.dtype().is_float() {
            return Err(errors::invalid(format!("input {position} must hold integers")));
        }
        Ok(tensor.to_ints().into_iter().map(|value| value as i64).collect())
    }

    pub fn known_int(&self, position: usize) -> Result<i64> {
        let ints = self.known_ints(position)?;
        ints.first().copied().ok_or_else(|| errors::invalid(format!("input {position} is empty")))
    }

    pub fn known_float(&self, position: usize) -> Result<f64> {
        let values = self.known_tensor(position)?.to_f64();
        values.first().copied().ok_or_else(|| errors::invalid(format!("input {position} is empty")))
    }

    pub fn known_ints_opt(&self, position: usize) -> Result<Option<Vec<i64>>> {
        match self.opt(position)? {
            Some(_) => self.known_ints(position).map(Some),
            None => Ok(None),
        }
    }

    /// Integers of which some may be named sizes.
    pub fn sizes(&self, position: usize) -> Result<Vec<Size>> {
        if let Some(sizes) = &self.tensor(position)?.sizes {
            return Ok(sizes.to_vec());
        }
        Ok(self.known_ints(position)?.into_iter().map(Size::Int).collect())
    }
}

/// Attributes.
impl<'a> Ctx<'a, '_> {
    pub fn attr(&self, name: &str) -> Option<&'a AttributeProto> {
        self.node.attribute.iter().find(|attribute| attribute.name == name)
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.attr(name).map_or(default, |attribute| attribute.i)
    }

    pub fn int_opt(&self, name: &str) -> Option<i64> {
        self.attr(name).map(|attribute| attribute.i)
    }

    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, default.into()) != 0
    }

    pub fn float(&self, name: &str, default: f64) -> f64 {
        self.float_opt(name).unwrap_or(default)
    }

    /// As the decimal number that the f32 stands for: 1e-5 means 1e-5, not its nearest f32.
    pub fn float_opt(&self, name: &str) -> Option<f64> {
        self.attr(name).map(|attribute| attribute.f.to_string().parse().unwrap_or(f64::from(attribute.f)))
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attr(name).map(|attribute| attribute.ints.clone())
    }

    /// Integers that sizes are computed from: below 2^40 in magnitude, so that nothing overflows.
    pub fn moderate_ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        let ints = self.ints(name);
        match ints.iter().flatten().all(|value| value.unsigned_abs() < 1 << 40) {
            true => Ok(ints),
            false => Err(errors::wrong_attribute(name, "a number is not below 2^40")),
        }
    }

    pub fn floats(&self, name: &str) -> Option<Vec<f64>> {
        self.attr(name).map(|attribute| attribute.floats.iter().map(|&value| value.into()).collect())
    }

    pub fn string(&self, name: &str, default: &str) -> String {
        self.attr(name).map_or(default.into(), |a| String::from_utf8_lossy(&a.s).into_owned())
    }

    pub fn strings(&self, name: &str) -> Option<Vec<String>> {
        let text = |bytes: &bytes::Bytes| String::from_utf8_lossy(bytes).into_owned();
        self.attr(name).map(|attribute| attribute.strings.iter().map(text).collect())
    }

    pub fn graph(&self, name: &str) -> Result<&'a GraphProto> {
        self.attr(name).and_then(|a| a.g.as_deref()).ok_or_else(|| errors::missing_attribute(name))
    }

    pub fn has_output(&self, position: usize) -> bool {
        self.node.output.get(position).is_some_and(|name| !name.is_empty())
    }
}

/// Types.
impl Ctx<'_, '_> {
    pub fn dims(&self, x: ValueId) -> Dims {
        self.b.ty(x).dims.clone()
    }

    pub fn rank(&self, x: ValueId) -> usize {
        self.b.ty(x).rank()
    }

    pub fn dtype(&self, x: ValueId) -> DType {
        self.b.ty(x).dtype
    }

    pub fn size(&self, x: ValueId, axis: usize) -> Result<u64> {
        let dim = self.b.ty(x).dims.get(axis).ok_or_else(|| errors::bad_axis(axis as i64, self.rank(x)))?;
        dim.known().ok_or_else(|| errors::needs_size(format!("dimension {axis} ({dim})")))
    }

    /// An error unless a value has as many axes as the translation takes for granted.
    pub fn need_rank(&self, x: ValueId, ranks: std::ops::RangeInclusive<usize>) -> Result<()> {
        match ranks.contains(&self.rank(x)) {
            true => Ok(()),
            false => Err(errors::wrong_rank(self.b.ty(x), &ranks)),
        }
    }

    /// All sizes, which must be numbers.
    pub fn shape(&self, x: ValueId) -> Result<Vec<u64>> {
        (0..self.rank(x)).map(|axis| self.size(x, axis)).collect()
    }

    /// A negative axis counts from the end.
    pub fn axis_of(&self, axis: i64, rank: usize) -> Result<usize> {
        let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        from_start
            .and_then(|axis| usize::try_from(axis).ok())
            .filter(|&axis| axis < rank)
            .ok_or_else(|| errors::bad_axis(axis, rank))
    }

    pub fn axes_of(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
        axes.iter().map(|&axis| self.axis_of(axis, rank)).collect()
    }
}

/// Arithmetic with broadcasting.
impl Ctx<'_, '_> {
    pub fn bin(&mut self, func: BinaryFn, x: ValueId, y: ValueId) -> Result<ValueId> {
        let (x, y) = self.broadcast_pair(x, y)?;
        self.b.binary(func, x, y)
    }

    pub fn plus(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.bin(BinaryFn::Add, x, y)
    }

    pub fn minus(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.bin(BinaryFn::Sub, x, y)
    }

    pub fn times(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.bin(BinaryFn::Mul, x, y)
    }

    pub fn over(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.bin(BinaryFn::Div, x, y)
    }

    pub fn cmp(&mut self, func: CompareFn, x: ValueId, y: ValueId) -> Result<ValueId> {
        let (x, y) = self.broadcast_pair(x, y)?;
        self.b.compare(func, x, y)
    }

    /// A comparison with a number.
    pub fn cmp_n(&mut self, func: CompareFn, x: ValueId, y: f64) -> Result<ValueId> {
        let y = self.b.splat_like(x, y)?;
        self.b.compare(func, x, y)
    }

    pub fn choose(&mut self, condition: ValueId, x: ValueId, y: ValueId) -> Result<ValueId> {
        let values = self.broadcast_all(&[condition, x, y])?;
        self.b.select(values[0], values[1], values[2])
    }

    pub fn plus_n(&mut self, x: ValueId, y: f64) -> Result<ValueId> {
        self.b.binary_scalar(BinaryFn::Add, x, y)
    }

    pub fn times_n(&mut self, x: ValueId, y: f64) -> Result<ValueId> {
        self.b.binary_scalar(BinaryFn::Mul, x, y)
    }

    pub fn over_n(&mut self, x: ValueId, y: f64) -> Result<ValueId> {
        self.b.binary_scalar(BinaryFn::Div, x, y)
    }

    /// `n - x`
    pub fn n_minus(&mut self, n: f64, x: ValueId) -> Result<ValueId> {
        let n = self.b.splat_like(x, n)?;
        self.b.sub(n, x)
    }

    /// `n / x`
    pub fn n_over(&mut self, n: f64, x: ValueId) -> Result<ValueId> {
        let n = self.b.splat_like(x, n)?;
        self.b.div(n, x)
    }

    pub fn max_n(&mut self, x: ValueId, y: f64) -> Result<ValueId> {
        self.b.binary_scalar(BinaryFn::Max, x, y)
    }

    pub fn min_n(&mut self, x: ValueId, y: f64) -> Result<ValueId> {
        self.b.binary_scalar(BinaryFn::Min, x, y)
    }

    pub fn un(&mut self, func: UnaryFn, x: ValueId) -> Result<ValueId> {
        self.b.unary(func, x)
    }

    /// A reduction that keeps the reduced axes with size 1.
    pub fn reduce_keep(&mut self, func: ReduceFn, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        let mut dims = self.dims(x);
        axes.iter().for_each(|&axis| dims[axis] = Dim::Known(1));
        let reduced = self.b.reduce(func, x, axes)?;
        self.b.reshape(reduced, dims)
    }

    pub fn ints_const(&mut self, dtype: DType, shape: &[u64], values: &[i64]) -> ValueId {
        let values: Vec<i128> = values.iter().map(|&value| value.into()).collect();
        self.b.constant(Tensor::from_ints(dtype, shape.to_vec(), &values))
    }

    pub fn floats_const(&mut self, dtype: DType, shape: &[u64], values: &[f64]) -> ValueId {
        self.b.constant(Tensor::from_f64(dtype, shape.to_vec(), values))
    }
}

/// Layout.
impl Ctx<'_, '_> {
    pub fn broadcast_pair(&mut self, x: ValueId, y: ValueId) -> Result<(ValueId, ValueId)> {
        if self.b.ty(x).dims == self.b.ty(y).dims {
            return Ok((x, y));
        }
        let values = self.broadcast_all(&[x, y])?;
        Ok((values[0], values[1]))
    }

    pub fn broadcast_all(&mut self, values: &[ValueId]) -> Result<Vec<ValueId>> {
        let mut dims = Dims::new();
        for &value in values {
            dims = joined(&dims, &self.b.ty(value).dims)?;
        }
        values.iter().map(|&value| self.expand(value, &dims)).collect()
    }

    /// Broadcasts to dimensions that the value fits, aligned at the end. Where a known size meets a name,
    /// they are taken to be the same number; binding the name checks it.
    pub fn expand(&mut self, x: ValueId, dims: &[Dim]) -> Result<ValueId> {
        let own = self.dims(x);
        let first = dims.len().checked_sub(own.len()).ok_or_else(|| {
            errors::cannot_broadcast(self.b.ty(x), TensorType::new(self.dtype(x), dims.to_vec()))
        })?;
        let renamed: Dims = own
            .iter()
            .zip(&dims[first..])
            .map(|(own, target)| if *own == Dim::Known(1) { own } else { target })
            .cloned()
            .collect();
        let x = if renamed == own { x } else { self.b.reshape(x, renamed)? };
        self.b.broadcast_trailing(x, dims.iter().cloned().collect())
    }

    /// Inserts axes of size 1, given by their places in the result.
    pub fn unsqueeze(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        let mut own = self.dims(x).into_iter();
        let rank = own.len() + axes.len();
        let dims: Dims = (0..rank)
            .map(
                |axis| if axes.contains(&axis) { Dim::Known(1) } else { own.next().unwrap_or(Dim::Known(1)) },
            )
            .collect();
        self.b.reshape(x, dims)
    }

    /// Removes axes of size 1.
    pub fn squeeze(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        let dims: Dims = self
            .dims(x)
            .into_iter()
            .enumerate()
            .filter(|(axis, _)| !axes.contains(axis))
            .map(|(_, dim)| dim)
            .collect();
        self.b.reshape(x, dims)
    }

    /// Elements `begin..end` along an axis.
    pub fn part(&mut self, x: ValueId, axis: usize, begin: u64, end: u64) -> Result<ValueId> {
        self.need_rank(x, axis + 1..=usize::MAX)?;
        let dims = self.dims(x);
        let mut slice =
            pando_graph::Slice { begin: vec![0; dims.len()], end: dims, step: vec![1; self.rank(x)] };
        slice.begin[axis] = begin;
        slice.end[axis] = Dim::Known(end);
        self.b.slice(x, slice)
    }

    /// One element along an axis, which is removed.
    pub fn pick(&mut self, x: ValueId, axis: usize, at: u64) -> Result<ValueId> {
        let part = self.part(x, axis, at, at + 1)?;
        self.squeeze(part, &[axis])
    }

    pub fn pad_with(&mut self, x: ValueId, low: &[i64], high: &[i64], value: f64) -> Result<ValueId> {
        let filler = self.b.scalar(self.dtype(x), value);
        let pad = pando_graph::Pad { low: low.to_vec(), high: high.to_vec(), interior: vec![0; low.len()] };
        self.b.pad(x, filler, pad)
    }

    /// Merges adjacent axes `from..to` into one.
    pub fn flatten(&mut self, x: ValueId, from: usize, to: usize) -> Result<ValueId> {
        let dims = self.dims(x);
        let merged = crate::import::product(&dims[from..to]);
        let dims: Vec<Dim> =
            dims[..from].iter().cloned().chain([merged]).chain(dims[to..].iter().cloned()).collect();
        self.b.reshape(x, dims)
    }

    pub fn reshape_to(&mut self, x: ValueId, sizes: &[u64]) -> Result<ValueId> {
        self.b.reshape(x, known_dims(sizes))
    }
}

/// The dimensions that two broadcast to.
pub(crate) fn joined(a: &[Dim], b: &[Dim]) -> Result<Dims> {
    let rank = a.len().max(b.len());
    let at = |dims: &[Dim], axis: usize| -> Dim {
        (axis + dims.len()).checked_sub(rank).map_or(Dim::Known(1), |axis| dims[axis].clone())
    };
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (Dim::Known(1), other) | (other, Dim::Known(1)) => Ok(other),
            (Dim::Known(a), Dim::Known(b)) if a != b => Err(errors::cannot_broadcast(a, b)),
            (Dim::Named(_), Dim::Known(known)) | (Dim::Known(known), _) => Ok(Dim::Known(known)),
            (named, _) => Ok(named),
        })
        .collect()
}

//! A graph under construction, as Python sees it: a [`Builder`] whose function `main` is open, values as plain
//! numbers. What it makes is a [`Module`], which is printed, compiled, or becomes a program of a session.

use crate::array::{Array, Location, borrow};
use crate::{Error, compiled::Compiled, fixed, to_python};
use pando_base::{DType, Id, Result, Tensor};
use pando_graph::{Builder, EvalOptions, TensorType, ValueId, text};
use pando_onnx::Operator;
use pando_onnx::proto::{AttributeProto, AttributeType};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};
use std::sync::Arc;

/// A value of the innermost function that has begun and not ended.
pub(crate) type Value = usize;

#[pyclass]
pub struct Graph {
    /// None once it is finished.
    builder: Option<Builder>,
}

/// A finished graph.
#[pyclass(frozen)]
pub struct Module(pub Arc<pando_graph::Module>);

#[pymethods]
impl Graph {
    #[new]
    fn new() -> Graph {
        let mut builder = Builder::new();
        builder.begin("main");
        Graph { builder: Some(builder) }
    }

    /// A parameter of the innermost function. Names are of letters, digits, `_` and single `.`s inside, and unique.
    fn param(&mut self, name: &str, dtype: &str, dims: Vec<u64>) -> PyResult<Value> {
        let ty = TensorType::new(dtype_of(dtype)?, dims);
        Ok(self.open()?.param(name, ty).index())
    }

    /// A constant with a copy of an array's elements.
    fn constant(&mut self, array: Location) -> PyResult<Value> {
        // SAFETY: the caller holds the array until this call returns, and it is copied.
        #[allow(unsafe_code)]
        let tensor = unsafe { borrow(&array) }?.to_tensor();
        Ok(self.open()?.constant(tensor).index())
    }

    /// A number of any element type. Integers beyond 2^53 are rounded.
    fn scalar(&mut self, dtype: &str, value: f64) -> PyResult<Value> {
        let dtype = dtype_of(dtype)?;
        Ok(self.open()?.constant(Tensor::scalar(dtype, value)).index())
    }

    /// Element type and sizes.
    #[pyo3(name = "type")]
    fn type_of(&mut self, value: Value) -> PyResult<(&'static str, Vec<u64>)> {
        let value = self.value(value)?;
        let ty = self.open()?.ty(value);
        let shape = ty.require_shape().map_err(to_python)?;
        Ok((ty.dtype.name(), shape.iter().copied().collect()))
    }

    /// The elements of a value that depends on no parameter, if that is little work.
    fn known(&mut self, value: Value) -> PyResult<Option<Array>> {
        const LIMITS: EvalOptions = EvalOptions { max_steps: 100_000, max_bytes: 1 << 26 };
        let value = self.value(value)?;
        Ok(self.open()?.evaluate(value, &LIMITS).map(Array::new))
    }

    /// Names a value, unless it has a name or another value has this one.
    fn name(&mut self, value: Value, name: &str) -> PyResult<()> {
        let value = self.value(value)?;
        self.open()?.name(value, name);
        Ok(())
    }

    /// An op in the text format's spelling, `transpose perm=[1,0]`; `ty`, such as `f32[2,3]`, for ops whose
    /// attributes are their result's type.
    #[pyo3(signature = (op, operands, ty=None))]
    fn op(&mut self, op: &str, operands: Vec<Value>, ty: Option<&str>) -> PyResult<Vec<Value>> {
        let operands = self.values(&operands)?;
        let builder = self.open()?;
        let mut insert = || -> Result<Vec<Value>> {
            let ty = ty.map(text::parse_type).transpose()?;
            let types: Vec<&TensorType> = operands.iter().map(|&value| builder.ty(value)).collect();
            let op = text::parse_op(op, &types, ty.as_ref(), builder.module())?;
            Ok(builder.insert(op, &operands)?.into_iter().map(Id::index).collect())
        };
        insert().map_err(to_python)
    }

    /// A composite of the builder by its name.
    #[pyo3(signature = (name, operands, **attributes))]
    fn composite(
        &mut self,
        name: &str,
        operands: Vec<Value>,
        attributes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Value>> {
        let operands = self.values(&operands)?;
        let attributes = crate::composites::Attributes::new(name, attributes)?;
        crate::composites::insert(self.open()?, name, &operands, &attributes)
            .map(|values| values.into_iter().map(Id::index).collect())
    }

    /// An operator as importing an ONNX model translates it.
    #[pyo3(signature = (op_type, operands, attributes=None, *, outputs=1, domain="", opset=None))]
    fn onnx(
        &mut self,
        op_type: &str,
        operands: Vec<Option<Value>>,
        attributes: Option<&Bound<'_, PyDict>>,
        outputs: usize,
        domain: &str,
        opset: Option<i64>,
    ) -> PyResult<Vec<Value>> {
        let operands = operands
            .into_iter()
            .map(|operand| operand.map(|value| self.value(value)).transpose())
            .collect::<PyResult<Vec<_>>>()?;
        let attributes = match attributes {
            Some(attributes) => attributes.iter().map(|(k, v)| attribute(&k, &v)).collect::<PyResult<_>>()?,
            None => vec![],
        };
        let operator =
            Operator { op_type: op_type.into(), domain: domain.into(), version: opset, attributes, outputs };
        let translated = pando_onnx::translate(self.open()?, operator, &operands);
        let translated = translated.map_err(|error| to_python(error.context(op_type)));
        Ok(translated?.into_iter().map(Id::index).collect())
    }

    /// Starts a function for `if`, `while`, `repeat` or `call`; until [`Graph::end`] all values are its own. Returns
    /// its name, which may be `base` with a number.
    fn begin(&mut self, base: &str) -> PyResult<String> {
        let builder = self.open()?;
        let name = builder.unique_func_name(base);
        builder.begin(&name);
        Ok(name)
    }

    /// Ends the function that has begun last.
    fn end(&mut self, results: Vec<Value>) -> PyResult<()> {
        let results = self.values(&results)?;
        self.inner()?.end(&results);
        Ok(())
    }

    /// Ends the function that has begun last without keeping it.
    fn abandon(&mut self) -> PyResult<()> {
        self.inner()?.abandon();
        Ok(())
    }

    /// Ends `main`; the graph takes no more. `params`, if given, are the parameters to keep, in their order.
    #[pyo3(signature = (results, params=None))]
    fn finish(&mut self, results: Vec<Value>, params: Option<Vec<Value>>) -> PyResult<Module> {
        let results = self.values(&results)?;
        let params = params.map(|params| self.values(&params)).transpose()?;
        if self.open()?.depth() != 1 {
            return Err(Error::new_err("a function has begun and not ended"));
        }
        let order = params.map(|params| self.positions(&params)).transpose()?;
        let mut builder = self.builder.take().expect("`open` has found it");
        let main = builder.end(&results);
        let mut module = builder.finish();
        if let Some(order) = order {
            module.funcs[main] = module.funcs[main].with_params(&order).map_err(to_python)?;
        }
        pando_graph::validate(&module).map_err(to_python)?;
        Ok(Module(Arc::new(module)))
    }
}

impl Graph {
    pub(crate) fn open(&mut self) -> PyResult<&mut Builder> {
        self.builder.as_mut().ok_or_else(|| Error::new_err("the graph is finished"))
    }

    /// With a function besides `main` that has begun.
    fn inner(&mut self) -> PyResult<&mut Builder> {
        let builder = self.open()?;
        match builder.depth() > 1 {
            true => Ok(builder),
            false => Err(Error::new_err("no function has begun")),
        }
    }

    pub(crate) fn value(&mut self, value: Value) -> PyResult<ValueId> {
        let builder = self.open()?;
        let known = u32::try_from(value).is_ok() && builder.has_value(ValueId::from_index(value));
        match known {
            true => Ok(ValueId::from_index(value)),
            false => Err(Error::new_err(format!("the function has no value {value}"))),
        }
    }

    /// Of parameters among all.
    fn positions(&mut self, params: &[ValueId]) -> PyResult<Vec<usize>> {
        let builder = self.open()?;
        let position = |&value| builder.param_position(value);
        let missing = || Error::new_err("a value that is no parameter is kept as one");
        params.iter().map(position).collect::<Option<_>>().ok_or_else(missing)
    }

    pub(crate) fn values(&mut self, values: &[Value]) -> PyResult<Vec<ValueId>> {
        values.iter().map(|&value| self.value(value)).collect()
    }
}

#[pymethods]
impl Module {
    /// A text as [`Module::text`] prints it.
    #[staticmethod]
    fn parse(source: &str) -> PyResult<Module> {
        pando_graph::parse(source, "module").map(|module| Module(Arc::new(module))).map_err(to_python)
    }

    /// The same module with random constants in place of parameters of `main`: for predictions, which ask where weights
    /// are, not what they are.
    fn with_constants(&self, positions: Vec<usize>) -> PyResult<Module> {
        let module = fixed::fixed((*self.0).clone(), &positions).map_err(to_python)?;
        Ok(Module(Arc::new(module)))
    }

    fn text(&self) -> String {
        pando_graph::print(&self.0)
    }

    /// For this computer.
    fn compile(&self, py: Python<'_>, threads: Option<usize>, precision: &str) -> PyResult<Compiled> {
        Compiled::new(py, Arc::clone(&self.0), threads, precision)
    }
}

pub(crate) fn dtype_of(name: &str) -> PyResult<DType> {
    DType::from_name(name).ok_or_else(|| Error::new_err(format!("there is no element type {name}")))
}

/// A number, a string, or a list of them.
fn attribute(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<AttributeProto> {
    let mut attribute = AttributeProto { name: name.extract()?, ..AttributeProto::default() };
    let kind = if value.is_instance_of::<PyBool>() || value.is_instance_of::<PyInt>() {
        attribute.i = value.extract::<i64>().or_else(|_| value.extract::<bool>().map(i64::from))?;
        AttributeType::Int
    } else if value.is_instance_of::<PyFloat>() {
        attribute.f = value.extract()?;
        AttributeType::Float
    } else if value.is_instance_of::<PyString>() {
        attribute.s = value.extract::<String>()?.into();
        AttributeType::String
    } else if let Ok(ints) = value.extract::<Vec<i64>>() {
        attribute.ints = ints;
        AttributeType::Ints
    } else if let Ok(floats) = value.extract::<Vec<f32>>() {
        attribute.floats = floats;
        AttributeType::Floats
    } else {
        let strings: Vec<String> = value.extract()?;
        attribute.strings = strings.into_iter().map(Into::into).collect();
        AttributeType::Strings
    };
    attribute.r#type = kind.into();
    Ok(attribute)
}

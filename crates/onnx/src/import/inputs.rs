//! The inputs of a model: what the file declares, what is given as a value or as a sample.

use super::dims;
use super::scope::Scope;
use super::value::Value;
use super::{Input, Options, given_value, names, sample, value_name};
use crate::elem::Elem;
use crate::errors;
use crate::proto::{DimensionValue, GraphProto, ModelProto, TensorTypeProto, TypeValue, ValueInfoProto};
use pando_base::{DType, Error, Result, Tensor};
use pando_graph::{Builder, Dim, Dims, TensorType};
use rustc_hash::FxHashSet;

pub(super) fn declare(
    b: &mut Builder,
    scope: &mut Scope,
    graph: &GraphProto,
    options: &Options,
) -> Result<Vec<Input>> {
    check_names(graph, options)?;
    dims::check(graph, &options.dims)?;
    let mut sizes = options.dims.clone();
    if let Some(sample) = &options.sample {
        sizes.extend(sample.dims(graph)?);
    }
    // Before IR version 4 every initializer is listed as an input too; its value is the default.
    let initialized: FxHashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let mut inputs = Vec::new();
    let mut taken = FxHashSet::default();
    for info in &graph.input {
        let known = options.sample.as_ref().and_then(|sample| sample.value(&info.name));
        if let Some((_, given)) = options.values.iter().find(|(name, _)| *name == info.name) {
            let value = given_value(b, given);
            scope.set(&info.name, value);
        } else if known.is_some() || !initialized.contains(info.name.as_str()) {
            let (elem, ty) = input_type(info, &sizes, known)?;
            let mut name = value_name(&info.name);
            if !taken.insert(name.clone()) {
                name = String::new();
            }
            let id = b.param(&name, ty.clone());
            if let (Some(decisions), Some(tensor)) = (&scope.env.sample, known) {
                decisions.know(id, tensor.clone());
            }
            scope.set(&info.name, Value::typed(id, elem));
            inputs.push(Input { name: info.name.clone(), elem, ty });
        }
    }
    Ok(inputs)
}

/// The inputs that need a value in a run, as the file declares them.
pub fn declared_inputs(model: &ModelProto, options: &Options) -> Result<Vec<Input>> {
    let graph = model.graph.as_ref().ok_or_else(errors::no_graph)?;
    dims::check(graph, &options.dims)?;
    let given = |name: &str| options.values.iter().any(|(given, _)| given == name);
    let initialized = |name: &str| graph.initializer.iter().any(|tensor| tensor.name == name);
    let open = graph.input.iter().filter(|info| !given(&info.name) && !initialized(&info.name));
    open.map(|info| {
        let (elem, ty) = tensor_type(info, &options.dims)?;
        Ok(Input { name: info.name.clone(), elem, ty })
    })
    .collect()
}

/// Name, type and dimensions of the outputs that are tensors of numbers; no dimensions where not even the rank is
/// stated.
pub fn declared_outputs(model: &ModelProto, options: &Options) -> Result<Vec<(String, DType, Option<Dims>)>> {
    let graph = model.graph.as_ref().ok_or_else(errors::no_graph)?;
    let tensors = graph.output.iter().filter_map(|info| match info.r#type.as_ref()?.value.as_ref()? {
        TypeValue::Tensor(ty) => Some((info, ty, Elem(ty.elem_type).dtype()?)),
        _ => None,
    });
    let described = tensors.map(|(info, ty, dtype)| {
        let dims = ty.shape.as_ref().map(|_| declared_dims(info, ty, &options.dims));
        Ok((info.name.clone(), dtype, dims.transpose()?))
    });
    described.collect()
}

fn check_names(graph: &GraphProto, options: &Options) -> Result<()> {
    let names: Vec<String> = graph.input.iter().map(|info| info.name.clone()).collect();
    let sampled = options.sample.iter().flat_map(|sample| &sample.inputs).map(|(name, _)| name);
    let mut given = options.values.iter().map(|(name, _)| name).chain(sampled);
    match given.find(|name| !names.contains(name)) {
        Some(name) => Err(errors::unknown_input(name, &names)),
        None => Ok(()),
    }
}

/// The declared type of an input; a sample of it fits the type, and says its rank where the type does not.
fn input_type(
    info: &ValueInfoProto,
    dims: &[(String, u64)],
    sample: Option<&Tensor>,
) -> Result<(Elem, TensorType)> {
    let (Some(sample), Some(declared)) = (sample, sample::declared(info)) else {
        return tensor_type(info, dims);
    };
    let elem = Elem(declared.elem_type);
    let found = TensorType::new(sample.dtype(), sample.shape().iter().copied());
    let dims = match declared.shape {
        Some(_) => declared_dims(info, declared, dims)?,
        None => found.dims.clone(),
    };
    if elem.dtype() != Some(found.dtype) || dims != found.dims {
        let text = dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        return Err(errors::wrong_sample(&info.name, format!("{elem}[{text}]"), found));
    }
    Ok((elem, found))
}

/// The type of an input, its named dimensions bound as far as numbers are given.
fn tensor_type(info: &ValueInfoProto, bound: &[(String, u64)]) -> Result<(Elem, TensorType)> {
    let found = match info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => tensor,
        Some(TypeValue::Sequence(_)) => return Err(needs_given(&info.name, "a sequence")),
        Some(TypeValue::Optional(_)) => return Err(needs_given(&info.name, "an optional")),
        Some(_) => return Err(errors::bad_type(&info.name, "maps and sparse tensors are not supported")),
        None => return Err(errors::bad_type(&info.name, "it is not stated")),
    };
    let elem = Elem(found.elem_type);
    let dtype = match elem.dtype() {
        Some(dtype) => dtype,
        None if elem == Elem::STRING => return Err(needs_given(&info.name, "strings")),
        None => return Err(errors::bad_type(&info.name, errors::unsupported_elem(elem).message())),
    };
    let dims = declared_dims(info, found, bound)?;
    if pando_graph::dims::check_size(&dims).is_none() {
        return Err(errors::bad_type(&info.name, "it has 2^60 elements or more"));
    }
    Ok((elem, TensorType { dtype, dims }))
}

fn needs_given(name: &str, what: &str) -> Error {
    errors::bad_type(name, format!("{what} can be imported with its value only (Options::values)"))
}

fn declared_dims(info: &ValueInfoProto, ty: &TensorTypeProto, bound: &[(String, u64)]) -> Result<Dims> {
    let shape = ty.shape.as_ref().ok_or_else(|| {
        errors::bad_type(&info.name, "its rank is not stated; export the model with ranks, or give the value")
    })?;
    // Some exporters write -1 or '?' for a size that is not known; that is no name.
    let dim = |(axis, dim): (usize, &crate::proto::Dimension)| match &dim.value {
        Some(DimensionValue::DimValue(size)) if *size >= 0 => Dim::Known(*size as u64),
        Some(DimensionValue::DimParam(name)) if !names::symbol(name).is_empty() => bound_dim(name, bound),
        _ => bound_dim(&unnamed_dim(&info.name, axis), bound),
    };
    Ok(shape.dim.iter().enumerate().map(dim).collect())
}

/// The name of a dimension that has none in the file.
pub(super) fn unnamed_dim(input: &str, axis: usize) -> String {
    format!("{input}_{axis}")
}

fn bound_dim(name: &str, bound: &[(String, u64)]) -> Dim {
    let dim = names::dim(name);
    let given = bound.iter().find(|(given, _)| given == name || dim == Dim::named(given));
    given.map_or(dim, |(_, size)| Dim::Known(*size))
}

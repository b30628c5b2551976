//! A model's inputs: from NumPy files or as numbers, the rest drawn from a seed.

use crate::args::{GivenInput, InputArgs, InputSource};
use crate::model::draw;
use crate::npy;
use pando_base::{Error, Result, Shape, Tensor};
use pando_graph::{Dim, TensorType};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// An input.
pub struct Port {
    pub name: String,
    pub ty: TensorType,
}

impl Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)
    }
}

/// What is given for an input.
enum Found {
    /// With the path for messages.
    Array(Tensor, PathBuf),
    Number(f64),
}

/// The inputs that are given, the rest drawn; the seed of each is its position's. Files give named dimensions
/// their sizes.
pub fn inputs(ports: &[Port], given: &InputArgs) -> Result<Vec<Tensor>> {
    let mut found: Vec<Option<Found>> = ports.iter().map(|_| None).collect();
    for input in &given.inputs {
        for (at, value) in read(ports, input)? {
            found[at] = Some(value);
        }
    }
    let mut sizes: Vec<(String, u64)> = Vec::new();
    let mut values: Vec<Option<Found>> = Vec::new();
    for (port, found) in ports.iter().zip(found) {
        values.push(match found {
            Some(Found::Array(tensor, path)) => {
                Some(Found::Array(checked(port, tensor, &path, &mut sizes)?, path))
            }
            other => other,
        });
    }
    let open = ports.iter().zip(&values).filter(|(_, value)| !matches!(value, Some(Found::Array(..))));
    refuse_open_sizes(open.map(|(port, _)| port), &sizes)?;
    let each = ports.iter().zip(values).enumerate().map(|(index, (port, value))| match value {
        Some(Found::Array(tensor, _)) => Ok(tensor),
        Some(Found::Number(number)) => filled(port, &shape_of(port, &sizes), number),
        None => {
            let seed = given.random.wrapping_add(index as u64 * 0x9E37_79B9);
            draw(port.ty.dtype, &shape_of(port, &sizes), seed)
                .map_err(|error| error.context(format!("input {}", port.name)))
        }
    });
    each.collect()
}

/// What an argument gives, with the positions of the inputs it is for.
fn read(ports: &[Port], input: &GivenInput) -> Result<Vec<(usize, Found)>> {
    let known = || ports.iter().map(Port::to_string).collect::<Vec<_>>().join(", ");
    let position = |name: &str| {
        let at = ports.iter().position(|port| port.name == name);
        at.ok_or_else(|| Error::new(format!("--input {name}: the model's inputs are {}", known())))
    };
    let only = |what: &dyn Display| match ports.len() {
        1 => Ok(0),
        _ => Err(Error::new(format!(
            "--input {what}: say which input it is for, as NAME={what}; the model's inputs are {}",
            known()
        ))),
    };
    let path = match &input.source {
        InputSource::File(path) => path,
        InputSource::Number(number) => {
            let at = input.name.as_ref().map_or_else(|| only(number), |name| position(name))?;
            return Ok(vec![(at, Found::Number(*number))]);
        }
    };
    let array = |tensor: Tensor| Found::Array(tensor, path.clone());
    let is_archive = path.extension().is_some_and(|extension| extension == "npz");
    match (&input.name, is_archive) {
        (Some(name), false) => Ok(vec![(position(name)?, array(npy::read(path)?))]),
        (Some(name), true) => Ok(vec![(position(name)?, array(npy::read_from_archive(path, name)?))]),
        (None, true) => npy::read_archive(path)?
            .into_iter()
            .map(|(name, tensor)| Ok((position(&name)?, array(tensor))))
            .collect(),
        (None, false) => Ok(vec![(only(&path.display())?, array(npy::read(path)?))]),
    }
}

/// A tensor whose elements are all the number, which its type must have.
fn filled(port: &Port, shape: &Shape, number: f64) -> Result<Tensor> {
    let dtype = port.ty.dtype;
    if !dtype.is_float() && dtype.round(number) != number {
        return Err(Error::new(format!("--input {}={number}: the input is {}", port.name, port.ty)));
    }
    let scalar = Tensor::from_f64(dtype, Shape::scalar(), &[number]);
    let mut tensor = draw(dtype, shape, 0)?;
    let size = dtype.size_bytes() as usize;
    tensor.bytes_mut().chunks_exact_mut(size).for_each(|element| element.copy_from_slice(scalar.bytes()));
    Ok(tensor)
}

/// Every dimension without a size is told at once.
fn refuse_open_sizes<'a>(ports: impl Iterator<Item = &'a Port>, sizes: &[(String, u64)]) -> Result<()> {
    let is_open = |name: &String| sizes.iter().all(|(known, _)| known != name);
    let (mut open, mut names): (Vec<&Port>, Vec<String>) = Default::default();
    for port in ports {
        let unknown = port.ty.dims.iter().filter(|dim| dim.known().is_none()).map(ToString::to_string);
        let new: Vec<String> = unknown.filter(is_open).collect();
        if !new.is_empty() {
            open.push(port);
        }
        new.into_iter().for_each(|name| {
            if !names.contains(&name) {
                names.push(name)
            }
        });
    }
    if open.is_empty() {
        return Ok(());
    }
    let ports: Vec<String> = open.into_iter().map(Port::to_string).collect();
    let options: Vec<String> = names.iter().map(|name| format!("--dim {name}=8")).collect();
    Err(Error::new(format!("{}: give dimensions sizes, such as {}", ports.join(", "), options.join(" "))))
}

/// The shape of an input with the sizes known for names.
fn shape_of(port: &Port, sizes: &[(String, u64)]) -> Shape {
    let size = |dim: &Dim| {
        let named = || sizes.iter().find(|(name, _)| *name == dim.to_string()).map(|&(_, size)| size);
        dim.known().or_else(named).expect("inputs without sizes were refused")
    };
    port.ty.dims.iter().map(size).collect()
}

/// A file's tensor, converted to the port's type where no value changes.
fn checked(port: &Port, tensor: Tensor, path: &Path, sizes: &mut Vec<(String, u64)>) -> Result<Tensor> {
    let wrong = |what: String| Error::in_file(path.display().to_string(), what);
    let pairs = || port.ty.dims.iter().zip(tensor.shape().iter());
    let same = |size: u64, known: Option<u64>| known.is_none_or(|known| known == size);
    if tensor.shape().rank() != port.ty.rank() || !pairs().all(|(dim, &size)| same(size, dim.known())) {
        return Err(wrong(format!("has shape {}, input {} is {}", tensor.shape(), port.name, port.ty)));
    }
    for (dim, &size) in pairs().filter(|(dim, _)| dim.known().is_none()) {
        let name = dim.to_string();
        match sizes.iter().find(|(known, _)| *known == name) {
            Some(&(_, first)) if first != size => {
                return Err(wrong(format!(
                    "has shape {}, input {} is {}, and {name} is {first} in another input",
                    tensor.shape(),
                    port.name,
                    port.ty
                )));
            }
            Some(_) => {}
            None => sizes.push((name, size)),
        }
    }
    converted(port, tensor, path)
}

fn converted(port: &Port, tensor: Tensor, path: &Path) -> Result<Tensor> {
    let dtype = port.ty.dtype;
    if tensor.dtype() == dtype {
        return Ok(tensor);
    }
    let converted = Tensor::from_f64(dtype, tensor.shape().clone(), &tensor.to_f64());
    if converted.to_f64() == tensor.to_f64() || (tensor.dtype().is_float() && dtype.is_float()) {
        return Ok(converted);
    }
    Err(Error::in_file(
        path.display().to_string(),
        format!("is {}, input {} wants {dtype}, and the values do not convert", tensor.dtype(), port.name),
    ))
}

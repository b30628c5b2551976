//! A model's inputs: from NumPy files, the rest drawn from a seed.

use crate::args::InputFile;
use crate::model::draw;
use crate::npy;
use pando_base::{Error, Result, Shape, Tensor};
use pando_graph::TensorType;
use std::path::{Path, PathBuf};

/// An input.
pub struct Port {
    pub name: String,
    pub ty: TensorType,
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)
    }
}

/// What a file holds for an input.
struct Found {
    tensor: Tensor,
    /// For messages.
    path: PathBuf,
}

/// The inputs from files, the rest drawn; the seed of each is its position's. Files give named dimensions
/// their sizes.
pub fn inputs(ports: &[Port], files: &[InputFile], seed: u64) -> Result<Vec<Tensor>> {
    let mut found: Vec<Option<Found>> = ports.iter().map(|_| None).collect();
    for file in files {
        for (at, tensor) in read(ports, file)? {
            found[at] = Some(Found { tensor, path: file.path.clone() });
        }
    }
    let mut sizes: Vec<(String, u64)> = Vec::new();
    let mut tensors: Vec<Option<Tensor>> = Vec::new();
    for (port, found) in ports.iter().zip(found) {
        tensors.push(found.map(|found| checked(port, found, &mut sizes)).transpose()?);
    }
    let each = ports.iter().zip(tensors).enumerate().map(|(index, (port, tensor))| match tensor {
        Some(tensor) => Ok(tensor),
        None => {
            let seed = seed.wrapping_add(index as u64 * 0x9E37_79B9);
            let shape = shape_of(port, &sizes)?;
            draw(port.ty.dtype, &shape, seed).map_err(|error| error.context(format!("input {}", port.name)))
        }
    });
    each.collect()
}

/// The arrays of a file, with the positions of the inputs they are for.
fn read(ports: &[Port], file: &InputFile) -> Result<Vec<(usize, Tensor)>> {
    let position = |name: &str| {
        ports.iter().position(|port| port.name == name).ok_or_else(|| {
            let known: Vec<String> = ports.iter().map(Port::to_string).collect();
            Error::new(format!("--input {name}: the model's inputs are {}", known.join(", ")))
        })
    };
    let is_archive = file.path.extension().is_some_and(|extension| extension == "npz");
    match (&file.name, is_archive) {
        (Some(name), false) => Ok(vec![(position(name)?, npy::read(&file.path)?)]),
        (Some(name), true) => Ok(vec![(position(name)?, npy::read_from_archive(&file.path, name)?)]),
        (None, true) => npy::read_archive(&file.path)?
            .into_iter()
            .map(|(name, tensor)| Ok((position(&name)?, tensor)))
            .collect(),
        (None, false) if ports.len() == 1 => Ok(vec![(0, npy::read(&file.path)?)]),
        (None, false) => {
            let known: Vec<String> = ports.iter().map(Port::to_string).collect();
            Err(Error::new(format!(
                "--input {}: say which input it is for, as NAME=FILE; the model's inputs are {}",
                file.path.display(),
                known.join(", ")
            )))
        }
    }
}

/// The shape of an input with the sizes known for names.
fn shape_of(port: &Port, sizes: &[(String, u64)]) -> Result<Shape> {
    let dims = port.ty.dims.iter().map(|dim| {
        let named = || sizes.iter().find(|(name, _)| *name == dim.to_string()).map(|&(_, size)| size);
        dim.known().or_else(named).ok_or_else(|| {
            Error::new(format!(
                "input {} is {}: give its dimension a size, such as --dim {dim}=8",
                port.name, port.ty
            ))
        })
    });
    dims.collect::<Result<Vec<u64>>>().map(Shape::from)
}

/// A file's tensor, converted to the port's type where no value changes.
fn checked(port: &Port, found: Found, sizes: &mut Vec<(String, u64)>) -> Result<Tensor> {
    let Found { tensor, path } = found;
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
    converted(port, tensor, &path)
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

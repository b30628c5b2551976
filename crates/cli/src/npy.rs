//! Tensors as `.npy` files and, to read, `.npz` archives of them (format version 1 to 3, little-endian, C order). f16 is stored as NumPy's `<f2`; types
//! that NumPy lacks (bf16, f8) are written as f32, and f64 is read as f32. Our own reader: the sizes in a
//! header are a stranger's, and the library we tried overflows on them.

use crate::model::LARGEST_TENSOR_BYTES;
use pando_base::{DType, Error, Result, Shape, Tensor};
use pando_profile::write_bytes;
use std::io::Read;
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";

pub fn read(path: &Path) -> Result<Tensor> {
    let name = path.display().to_string();
    let bytes =
        std::fs::read(path).map_err(|error| Error::in_file(&name, format!("cannot be read: {error}")))?;
    decode(&bytes).map_err(|message| Error::in_file(&name, message))
}

/// All arrays of a `.npz` file, with their names.
pub fn read_archive(path: &Path) -> Result<Vec<(String, Tensor)>> {
    let wrong = |message: String| Error::in_file(path.display().to_string(), message);
    let file = std::fs::File::open(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let not_archive = |error: &dyn std::fmt::Display| wrong(format!("is not a .npz file: {error}"));
    let mut archive =
        zip::ZipArchive::new(std::io::BufReader::new(file)).map_err(|error| not_archive(&error))?;
    let mut arrays = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(|error| not_archive(&error))?;
        let name = entry.name().map_err(|error| not_archive(&error))?.into_owned();
        let name = name.strip_suffix(".npy").unwrap_or(&name).to_string();
        let mut bytes = Vec::new();
        // A few compressed bytes may stand for any number of them.
        entry
            .take(LARGEST_TENSOR_BYTES + (1 << 16))
            .read_to_end(&mut bytes)
            .map_err(|error| not_archive(&error))?;
        let tensor = decode(&bytes).map_err(|message| wrong(format!("array '{name}' {message}")))?;
        arrays.push((name, tensor));
    }
    Ok(arrays)
}

/// The array of this name in a `.npz` file, or its only one.
pub fn read_from_archive(path: &Path, name: &str) -> Result<Tensor> {
    let mut arrays = read_archive(path)?;
    if let Some(at) = arrays.iter().position(|(known, _)| known == name) {
        return Ok(arrays.swap_remove(at).1);
    }
    if arrays.len() == 1 {
        return Ok(arrays.swap_remove(0).1);
    }
    let known: Vec<&str> = arrays.iter().map(|(name, _)| name.as_str()).collect();
    Err(Error::in_file(
        path.display().to_string(),
        format!("has no array '{name}'; its arrays are {}", known.join(", ")),
    ))
}

fn decode(bytes: &[u8]) -> Result<Tensor, String> {
    let (header, data) = split(bytes).ok_or("is not a .npy file")?;
    let descr =
        quoted(header, "descr").ok_or("has a header without 'descr': structured arrays are not read")?;
    if field(header, "fortran_order").is_some_and(|rest| rest.starts_with("True")) {
        return Err("is in Fortran order; save numpy.ascontiguousarray(x) instead".into());
    }
    let shape = shape(header).ok_or("has a header without a readable 'shape'")?;
    if descr == "<f8" {
        return doubles(shape, data);
    }
    let dtype = element_type(descr).ok_or_else(|| {
        format!("has elements of type '{descr}', which is none of ours; convert them with NumPy's astype")
    })?;
    Tensor::from_bytes(dtype, shape, data).map_err(|error| format!("is cut short or too long: {error}"))
}

/// The header's text and the data behind it.
fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (&[major, _], rest) = rest.split_first_chunk::<2>()?;
    let (length, rest) = if major == 1 {
        let (length, rest) = rest.split_first_chunk::<2>()?;
        (usize::from(u16::from_le_bytes(*length)), rest)
    } else {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        (u32::from_le_bytes(*length) as usize, rest)
    };
    let (header, data) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(header).ok()?, data))
}

/// What follows `'name':` in the header's dictionary.
fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{name}':"))?;
    Some(rest.trim_start())
}

fn quoted<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    field(header, name)?.strip_prefix('\'')?.split('\'').next()
}

fn shape(header: &str) -> Option<Shape> {
    let (dims, _) = field(header, "shape")?.strip_prefix('(')?.split_once(')')?;
    let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    dims.map(|dim| dim.parse().ok()).collect::<Option<Vec<u64>>>().map(Shape::from)
}

fn doubles(shape: Shape, data: &[u8]) -> Result<Tensor, String> {
    if shape.checked_num_elements().and_then(|count| count.checked_mul(8)) != Some(data.len() as u64) {
        return Err(format!(
            "is cut short or too long: an array {shape} of f64 does not have {} bytes",
            data.len()
        ));
    }
    let (values, _) = data.as_chunks::<8>();
    let values: Vec<f64> = values.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect();
    Ok(Tensor::from_f64(DType::F32, shape, &values))
}

/// Our type for a NumPy type string.
fn element_type(descr: &str) -> Option<DType> {
    Some(match descr {
        "<f2" => DType::F16,
        "<f4" => DType::F32,
        "|i1" | "<i1" => DType::I8,
        "<i2" => DType::I16,
        "<i4" => DType::I32,
        "<i8" => DType::I64,
        "|u1" | "<u1" => DType::U8,
        "<u2" => DType::U16,
        "<u4" => DType::U32,
        "<u8" => DType::U64,
        "|b1" => DType::Bool,
        _ => return None,
    })
}

pub fn write(path: &Path, tensor: &Tensor) -> Result<()> {
    let descr = match tensor.dtype() {
        DType::F32 | DType::BF16 | DType::F8(..) => "<f4",
        DType::F16 => "<f2",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
    };
    let widened = matches!(tensor.dtype(), DType::BF16 | DType::F8(..))
        .then(|| Tensor::from_f64(DType::F32, tensor.shape().clone(), &tensor.to_f64()));
    let mut bytes = header(descr, tensor.shape());
    bytes.extend_from_slice(widened.as_ref().unwrap_or(tensor).bytes());
    write_bytes(path, &bytes)
}

/// The version 1.0 header: magic, version, length and a Python dictionary, padded so that data start at a
/// multiple of 64.
fn header(descr: &str, shape: &Shape) -> Vec<u8> {
    let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", dims.trim_end());
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = [MAGIC, &[1, 0]].concat();
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

//! Tensors of the file: raw, typed, sparse, or in a file beside the model.

use crate::elem::Elem;
use crate::errors;
use crate::proto::{SparseTensorProto, TensorProto};
use bytes::Bytes;
use pando_base::{DType, Result, Shape, Tensor};
use pando_graph::{dims, known_dims};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

/// Sparse tensors are made dense; beyond this many elements that is refused, for a few bytes in the file
/// may ask for any amount.
const MAX_SPARSE_ELEMENTS: u64 = 1 << 26;

/// A tensor of the file as the graph holds it.
#[derive(Clone, Debug)]
pub enum Data {
    Numbers(Tensor, Elem),
    Text(Text),
}

/// A tensor of strings. The graph has none: they exist while importing only.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    pub shape: Shape,
    pub strings: Vec<String>,
}

/// Reads a tensor; `folder` is where its external data may lie.
pub fn read(proto: &TensorProto, folder: Option<&Path>) -> Result<Data> {
    let shape = shape_of(&proto.name, &proto.dims)?;
    let elem = Elem(proto.data_type);
    if elem == Elem::STRING {
        return text(proto, shape).map(Data::Text);
    }
    let dtype = elem
        .dtype()
        .ok_or_else(|| errors::bad_tensor(&proto.name, errors::unsupported_elem(elem).message()))?;
    let tensor = if proto.data_location == 1 {
        let raw = external(proto, &shape, elem, folder)?;
        from_raw(&proto.name, &raw, shape, elem, dtype)?
    } else if let Some(raw) = &proto.raw_data {
        let tensor = from_raw(&proto.name, raw, shape, elem, dtype)?;
        crate::file::let_go(raw);
        tensor
    } else {
        from_typed(proto, shape, elem, dtype)?
    };
    Ok(Data::Numbers(tensor, elem))
}

pub fn shape_of(name: &str, sizes: &[i64]) -> Result<Shape> {
    let sizes: Option<Vec<u64>> = sizes.iter().map(|&size| u64::try_from(size).ok()).collect();
    let sizes = sizes.ok_or_else(|| errors::bad_tensor(name, "a size is negative"))?;
    let fits = dims::check_size(&known_dims(&sizes)).is_some();
    if !fits {
        return Err(errors::bad_tensor(name, "it has 2^60 elements or more"));
    }
    Ok(sizes.into())
}

fn text(proto: &TensorProto, shape: Shape) -> Result<Text> {
    if shape.num_elements() != proto.string_data.len() as u64 {
        return Err(wrong_count(proto, &shape, proto.string_data.len()));
    }
    let strings = proto.string_data.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Ok(Text { shape, strings: strings.collect() })
}

fn wrong_count(proto: &TensorProto, shape: &Shape, found: usize) -> pando_base::Error {
    errors::bad_tensor(&proto.name, format!("its shape {shape} does not have {found} elements of data"))
}

/// Little-endian elements, packed if smaller than a byte.
fn from_raw(name: &str, raw: &[u8], shape: Shape, elem: Elem, dtype: DType) -> Result<Tensor> {
    let bits = elem.bits().expect("elements with a type in the graph have a size");
    let expected = shape.num_elements().checked_mul(bits).map(|bits| bits.div_ceil(8));
    if expected != Some(raw.len() as u64) {
        let found = raw.len();
        return Err(errors::bad_tensor(name, format!("{elem}{shape} does not have {found} bytes of data")));
    }
    if elem == Elem::DOUBLE {
        let values: Vec<f64> = raw.chunks_exact(8).map(|b| f64::from_le_bytes(array(b))).collect();
        return Ok(Tensor::from_f64(dtype, shape, &values));
    }
    if elem == Elem::BOOL {
        let values: Vec<i128> = raw.iter().map(|&b| i128::from(b != 0)).collect();
        return Ok(Tensor::from_ints(dtype, shape, &values));
    }
    if bits == 8 * dtype.size_bytes() {
        return Tensor::from_bytes(dtype, shape, raw);
    }
    let count = shape.num_elements();
    let codes: Vec<u8> = (0..count).map(|index| packed_code(raw, index * bits, bits)).collect();
    Ok(from_codes(&codes, shape, elem, dtype))
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("chunks are one element long")
}

/// The `bits` bits at a bit position, lowest first.
fn packed_code(raw: &[u8], at: u64, bits: u64) -> u8 {
    let (byte, shift) = ((at / 8) as usize, at % 8);
    let low = u16::from(raw[byte]);
    let high = raw.get(byte + 1).map_or(0, |&next| u16::from(next));
    (((low | high << 8) >> shift) & ((1 << bits) - 1)) as u8
}

fn from_codes(codes: &[u8], shape: Shape, elem: Elem, dtype: DType) -> Tensor {
    if let Some((low, high)) = elem.small_int_range() {
        let wrap = |code: u8| match i128::from(code) {
            code if code > high => code + 2 * low,
            code => code,
        };
        return Tensor::from_ints(dtype, shape, &codes.iter().map(|&code| wrap(code)).collect::<Vec<_>>());
    }
    let decode = |code: u8| match elem.mini_float() {
        Some(format) => format.decode(code),
        None if code == 0xff => f64::NAN,
        None => 2f64.powi(i32::from(code) - 127),
    };
    Tensor::from_f64(dtype, shape, &codes.iter().map(|&code| decode(code)).collect::<Vec<_>>())
}

/// Data in the typed fields. Types narrower than the field hold their bits in it.
fn from_typed(proto: &TensorProto, shape: Shape, elem: Elem, dtype: DType) -> Result<Tensor> {
    let count = shape.num_elements();
    let check = |found: usize| match found as u64 == count {
        true => Ok(()),
        false => Err(wrong_count(proto, &shape, found)),
    };
    match elem.0 {
        1 => {
            check(proto.float_data.len())?;
            let bytes: Vec<u8> = proto.float_data.iter().flat_map(|value| value.to_le_bytes()).collect();
            Tensor::from_bytes(dtype, shape, &bytes)
        }
        11 => {
            check(proto.double_data.len())?;
            Ok(Tensor::from_f64(dtype, shape, &proto.double_data))
        }
        7 => {
            check(proto.int64_data.len())?;
            let values: Vec<i128> = proto.int64_data.iter().map(|&value| value.into()).collect();
            Ok(Tensor::from_ints(dtype, shape, &values))
        }
        12 | 13 => {
            check(proto.uint64_data.len())?;
            let values: Vec<i128> = proto.uint64_data.iter().map(|&value| value.into()).collect();
            Ok(Tensor::from_ints(dtype, shape, &values))
        }
        _ => from_int32(proto, shape, elem, dtype),
    }
}

fn from_int32(proto: &TensorProto, shape: Shape, elem: Elem, dtype: DType) -> Result<Tensor> {
    let data = &proto.int32_data;
    let bits = elem.bits().expect("elements with a type in the graph have a size");
    let per_entry = if bits < 8 && bits != 6 { 8 / bits } else { 1 };
    if shape.num_elements().div_ceil(per_entry) != data.len() as u64 {
        return Err(wrong_count(proto, &shape, data.len()));
    }
    if matches!(elem.0, 10 | 16 | 18 | 20) {
        let size = dtype.size_bytes() as usize;
        let bytes: Vec<u8> = data.iter().flat_map(|value| value.to_le_bytes()[..size].to_vec()).collect();
        return Tensor::from_bytes(dtype, shape, &bytes);
    }
    if bits == 8 * dtype.size_bytes() {
        let values: Vec<i128> = data.iter().map(|&value| value.into()).collect();
        return Ok(Tensor::from_ints(dtype, shape, &values));
    }
    let raw: Vec<u8> = data.iter().map(|&value| value as u8).collect();
    let code = |index| match per_entry {
        1 => raw[index as usize],
        _ => packed_code(&raw, index * bits, bits),
    };
    let codes: Vec<u8> = (0..shape.num_elements()).map(code).collect();
    Ok(from_codes(&codes, shape, elem, dtype))
}

/// The bytes of a tensor that lie in another file. The path is relative and stays in the model's folder,
/// also through symbolic links.
fn external(proto: &TensorProto, shape: &Shape, elem: Elem, folder: Option<&Path>) -> Result<Bytes> {
    let entry =
        |key: &str| proto.external_data.iter().find(|entry| entry.key == key).map(|e| e.value.as_str());
    let location = entry("location").unwrap_or_default();
    let relative = Path::new(location);
    let inside = relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if location.is_empty() || !inside {
        return Err(errors::path_escapes(&proto.name, location));
    }
    let unavailable = |why: String| errors::external_unavailable(&proto.name, location, why);
    let folder = folder.ok_or_else(|| unavailable("the model was not read from a file".into()))?;
    let path = folder.join(relative).canonicalize().map_err(|error| unavailable(error.to_string()))?;
    let root = folder.canonicalize().map_err(|error| unavailable(error.to_string()))?;
    if !path.starts_with(&root) {
        return Err(errors::path_escapes(&proto.name, location));
    }
    let number = |key: &str| entry(key).map_or(Ok(None), |text| text.trim().parse::<u64>().map(Some));
    let bad = |_| errors::bad_tensor(&proto.name, "offset and length of its external data must be numbers");
    let (offset, length) = (number("offset").map_err(bad)?, number("length").map_err(bad)?);
    let bits = elem.bits().expect("elements with a type in the graph have a size");
    let expected = shape.num_elements().saturating_mul(bits).div_ceil(8);
    read_part(&path, offset.unwrap_or(0), length.unwrap_or(expected)).map_err(unavailable)
}

fn read_part(path: &Path, offset: u64, length: u64) -> std::result::Result<Bytes, String> {
    let read = || -> std::io::Result<Option<Vec<u8>>> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Ok(None);
        }
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = vec![0; length as usize];
        file.read_exact(&mut bytes)?;
        Ok(Some(bytes))
    };
    match read() {
        Ok(Some(bytes)) => Ok(bytes.into()),
        Ok(None) => Err(format!("it ends before byte {}", offset.saturating_add(length))),
        Err(error) => Err(error.to_string()),
    }
}

/// Values at given places, zeros elsewhere. Indices are linear or one row per value.
pub fn read_sparse(proto: &SparseTensorProto, folder: Option<&Path>) -> Result<(Tensor, Elem)> {
    let (Some(values), Some(indices)) = (&proto.values, &proto.indices) else {
        return Err(errors::bad_tensor("", "a sparse tensor lacks values or indices"));
    };
    let name = &values.name;
    let shape = shape_of(name, &proto.dims)?;
    if shape.num_elements() > MAX_SPARSE_ELEMENTS {
        return Err(errors::bad_tensor(
            name,
            format!("the sparse tensor {shape} is too large to make dense"),
        ));
    }
    let (Data::Numbers(values, elem), Data::Numbers(indices, _)) =
        (read(values, folder)?, read(indices, folder)?)
    else {
        return Err(errors::bad_tensor(name, "a sparse tensor holds numbers"));
    };
    let mut dense = Tensor::zeros(values.dtype(), shape.clone());
    for (position, target) in
        sparse_positions(name, &indices, &shape, values.num_elements())?.into_iter().enumerate()
    {
        dense.set_f64(target as usize, values.get_f64(position));
    }
    Ok((dense, elem))
}

fn sparse_positions(name: &str, indices: &Tensor, shape: &Shape, count: u64) -> Result<Vec<u64>> {
    let bad = || errors::bad_tensor(name, "the indices of a sparse tensor do not fit it");
    if indices.dtype().is_float() {
        return Err(bad());
    }
    let strides = shape.strides();
    let flat = indices.to_ints();
    let rows: Vec<i128> = match indices.shape().as_ref() {
        [n] if *n == count => flat,
        [n, rank] if *n == count && *rank == shape.rank() as u64 => flat
            .chunks(shape.rank().max(1))
            .map(|row| row.iter().zip(&strides).map(|(&i, &stride)| i * i128::from(stride)).sum())
            .collect(),
        _ => return Err(bad()),
    };
    let in_range = |&row: &i128| u64::try_from(row).ok().filter(|&row| row < shape.num_elements());
    rows.iter().map(in_range).collect::<Option<Vec<u64>>>().ok_or_else(bad)
}

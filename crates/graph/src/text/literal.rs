//! Numbers and tensors as text: `f32[2,2] [1, 2.5, -inf, nan]`. Floats print the shortest text that
//! reads back to the same value of their type; 64-bit integers are exact; bools are `true` and `false`.

use crate::errors;
use pando_base::lexer::{Cursor, TokenKind};
use pando_base::{DType, Error, Result, Shape, Tensor};

/// Shortest text that reads back as the same f64.
pub(super) fn format_f64(value: f64) -> String {
    if value.is_nan() {
        "nan".into()
    } else if value == 0.0 && value.is_sign_negative() {
        // "-0" would read as the integer 0.
        "-0.0".into()
    } else if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else {
        format!("{value:?}")
    }
}

/// The fewest digits that read back as the same value of the type.
fn format_float(dtype: DType, value: f64) -> String {
    let reads_back = |text: &str| text.parse().is_ok_and(|read: f64| dtype.round(read) == value);
    if !value.is_finite() || value.fract() == 0.0 {
        return format_f64(value);
    }
    let short = match dtype {
        // The standard library knows the shortest f32; nine digits are enough for every narrower type.
        DType::F32 => Some(format!("{:?}", value as f32)),
        _ => (0..9).map(|digits| format!("{value:.digits$e}")).find(|text| reads_back(text)),
    };
    let read: Option<f64> = short.filter(|text| reads_back(text)).and_then(|text| text.parse().ok());
    format_f64(read.unwrap_or(value))
}

/// The elements, `[1, 2.5]`.
pub(super) fn format_elements(tensor: &Tensor) -> String {
    let dtype = tensor.dtype();
    let element = |position: usize| match dtype {
        DType::Bool => (tensor.get_int(position) != 0).to_string(),
        _ if dtype.is_float() => format_float(dtype, tensor.get_f64(position)),
        _ => tensor.get_int(position).to_string(),
    };
    let elements: Vec<String> = (0..tensor.num_elements() as usize).map(element).collect();
    format!("[{}]", elements.join(", "))
}

/// Type, shape and elements, as [`parse_tensor`] reads them.
pub fn format_tensor(tensor: &Tensor) -> String {
    format!("{}{} {}", tensor.dtype(), tensor.shape(), format_elements(tensor))
}

/// `f32[2] [1, 2]`.
pub fn parse_tensor(cursor: &mut Cursor) -> Result<Tensor> {
    let dtype = cursor.dtype()?;
    let shape = cursor.shape()?;
    parse_elements(cursor, dtype, shape)
}

/// `[1, 2]`. Memory is bounded by the text: the count is checked before the tensor is made.
pub(super) fn parse_elements(cursor: &mut Cursor, dtype: DType, shape: Shape) -> Result<Tensor> {
    let (line, col) = cursor.position();
    let wrong_count = |found| {
        let error = errors::wrong_literal_count(shape.checked_num_elements().unwrap_or(0), found);
        Error::at_position(line, col, error.message())
    };
    if dtype.is_float() {
        let values = cursor.list("[", "]", |cursor| cursor.float("a number"))?;
        let fits = shape.checked_num_elements() == Some(values.len() as u64);
        if fits { Ok(Tensor::from_f64(dtype, shape, &values)) } else { Err(wrong_count(values.len())) }
    } else {
        let values = cursor.list("[", "]", |cursor| parse_int(cursor, dtype))?;
        let fits = shape.checked_num_elements() == Some(values.len() as u64);
        if fits { Ok(Tensor::from_ints(dtype, shape, &values)) } else { Err(wrong_count(values.len())) }
    }
}

fn parse_int(cursor: &mut Cursor, dtype: DType) -> Result<i128> {
    if dtype == DType::Bool && matches!(cursor.peek(), TokenKind::Ident(_)) {
        let value = cursor.at_ident("true");
        return if value || cursor.at_ident("false") {
            cursor.next();
            Ok(value.into())
        } else {
            Err(cursor.error("expected true or false"))
        };
    }
    let (line, col) = cursor.position();
    let value = cursor.int("an integer")?;
    let (low, high) = dtype.int_range().expect("no float type comes here");
    match (low..=high).contains(&value) {
        true => Ok(value),
        false => Err(Error::at_position(line, col, errors::literal_out_of_range(dtype, value).message())),
    }
}

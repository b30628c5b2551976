//! A dense, row-major tensor that owns its bytes. Storage is aligned to 8 bytes, so it can be viewed as
//! a slice of any element type. Copies share the bytes until one is written to.

use crate::{DType, Error, Result, Shape};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::fmt;
use std::sync::Arc;

#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    /// Little-endian elements; padded to whole words with zeros.
    words: Arc<Vec<u64>>,
}

impl Tensor {
    /// All zero bytes (which is zero in every type).
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        let bytes = shape.num_elements() * dtype.size_bytes();
        Tensor { dtype, shape, words: Arc::new(vec![0; bytes.div_ceil(8) as usize]) }
    }

    /// Each element rounded to `dtype` as [`DType::write_f64`] does.
    ///
    /// # Panics
    /// If the number of values is not the shape's.
    pub fn from_f64(dtype: DType, shape: impl Into<Shape>, values: &[f64]) -> Self {
        let mut tensor = Tensor::zeros(dtype, shape);
        assert_eq!(tensor.num_elements(), values.len() as u64, "values for shape {}", tensor.shape);
        let size = dtype.size_bytes() as usize;
        for (chunk, &value) in tensor.bytes_mut().chunks_exact_mut(size).zip(values) {
            dtype.write_f64(value, chunk);
        }
        tensor
    }

    /// Elements of an integer type or bool, wrapping.
    pub fn from_ints(dtype: DType, shape: impl Into<Shape>, values: &[i128]) -> Self {
        let mut tensor = Tensor::zeros(dtype, shape);
        assert_eq!(tensor.num_elements(), values.len() as u64, "values for shape {}", tensor.shape);
        let size = dtype.size_bytes() as usize;
        for (chunk, &value) in tensor.bytes_mut().chunks_exact_mut(size).zip(values) {
            dtype.write_int(value, chunk);
        }
        tensor
    }

    /// From little-endian bytes, as files hold them.
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: &[u8]) -> Result<Self> {
        let shape = shape.into();
        let expected = shape.checked_num_elements().and_then(|n| n.checked_mul(dtype.size_bytes()));
        if expected != Some(bytes.len() as u64) {
            return Err(Error::new(format!(
                "a tensor {dtype}{shape} does not have {} bytes of data",
                bytes.len()
            )));
        }
        let mut tensor = Tensor::zeros(dtype, shape);
        tensor.bytes_mut().copy_from_slice(bytes);
        Ok(tensor)
    }

    pub fn scalar(dtype: DType, value: f64) -> Self {
        Tensor::from_f64(dtype, Shape::scalar(), &[value])
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn num_elements(&self) -> u64 {
        self.shape.num_elements()
    }

    pub fn num_bytes(&self) -> u64 {
        self.num_elements() * self.dtype.size_bytes()
    }

    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.num_bytes() as usize]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let length = self.num_bytes() as usize;
        &mut bytemuck::cast_slice_mut(Arc::make_mut(&mut self.words).as_mut_slice())[..length]
    }

    /// The element at a row-major position; exact but for 64-bit integers beyond 2^53.
    pub fn get_f64(&self, position: usize) -> f64 {
        self.dtype.read_f64(self.element(position))
    }

    pub fn set_f64(&mut self, position: usize, value: f64) {
        let (dtype, size) = (self.dtype, self.dtype.size_bytes() as usize);
        dtype.write_f64(value, &mut self.bytes_mut()[position * size..][..size]);
    }

    /// The element of an integer or bool tensor at a row-major position, exactly.
    pub fn get_int(&self, position: usize) -> i128 {
        self.dtype.read_int(self.element(position))
    }

    pub fn set_int(&mut self, position: usize, value: i128) {
        let (dtype, size) = (self.dtype, self.dtype.size_bytes() as usize);
        dtype.write_int(value, &mut self.bytes_mut()[position * size..][..size]);
    }

    fn element(&self, position: usize) -> &[u8] {
        let size = self.dtype.size_bytes() as usize;
        &self.bytes()[position * size..][..size]
    }

    /// All elements, row-major. Loses precision only for 64-bit integers beyond 2^53.
    pub fn to_f64(&self) -> Vec<f64> {
        let size = self.dtype.size_bytes() as usize;
        self.bytes().chunks_exact(size).map(|chunk| self.dtype.read_f64(chunk)).collect()
    }

    /// All elements of an integer or bool tensor, row-major, exact.
    pub fn to_ints(&self) -> Vec<i128> {
        let size = self.dtype.size_bytes() as usize;
        self.bytes().chunks_exact(size).map(|chunk| self.dtype.read_int(chunk)).collect()
    }

    /// Floats rounded to another float type. Fast between f32 and f16.
    pub fn rounded_to(&self, dtype: DType) -> Tensor {
        let mut rounded = Tensor::zeros(dtype, self.shape.clone());
        if let (Some(from), Some(to)) = (self.as_slice::<f32>(), rounded.as_mut_slice::<f16>()) {
            to.convert_from_f32_slice(from);
        } else if let (Some(from), Some(to)) = (self.as_slice::<f16>(), rounded.as_mut_slice::<f32>()) {
            from.convert_to_f32_slice(to);
        } else {
            let (from_size, size) = (self.dtype.size_bytes() as usize, dtype.size_bytes() as usize);
            let elements = self.bytes().chunks_exact(from_size);
            let values = elements.map(|bytes| self.dtype.read_f64(bytes));
            rounded.bytes_mut().chunks_exact_mut(size).zip(values).for_each(|(to, x)| dtype.write_f64(x, to));
        }
        rounded
    }

    /// The elements as a slice if the type is exactly `T`'s.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        (self.dtype == T::DTYPE).then(|| bytemuck::cast_slice(self.bytes()))
    }

    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        (self.dtype == T::DTYPE).then(|| bytemuck::cast_slice_mut(self.bytes_mut()))
    }

    /// The same elements under another shape with as many elements.
    pub fn reshaped(mut self, shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        assert_eq!(self.shape.num_elements(), shape.num_elements(), "{} to {shape}", self.shape);
        self.shape = shape;
        self
    }
}

/// Rust types that are element types.
pub trait Element: bytemuck::Pod {
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => {
        $(impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}
elements!(f32 => F32, f16 => F16, bf16 => BF16, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
          u8 => U8, u16 => U16, u32 => U32, u64 => U64);

/// Bit for bit: a NaN equals itself, zeros of different sign differ.
impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.bytes() == other.bytes()
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        write!(f, "{}{} [", self.dtype, self.shape)?;
        for position in 0..(self.num_elements() as usize).min(SHOWN) {
            write!(f, "{}{}", if position > 0 { ", " } else { "" }, self.get_f64(position))?;
        }
        f.write_str(if self.num_elements() as usize > SHOWN { ", …]" } else { "]" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_read_back_in_every_type() {
        for dtype in DType::ALL {
            let tensor = Tensor::from_f64(dtype, [3], &[0.0, 1.0, 1.0]);
            assert_eq!(tensor.to_f64(), [0.0, 1.0, 1.0], "{dtype}");
            assert_eq!(tensor.num_bytes(), 3 * dtype.size_bytes());
        }
    }

    #[test]
    fn typed_views_need_the_exact_type() {
        let mut tensor = Tensor::from_f64(DType::F32, [2], &[1.5, -2.0]);
        assert_eq!(tensor.as_slice::<f32>(), Some([1.5, -2.0].as_slice()));
        assert_eq!(tensor.as_slice::<i32>(), None);
        let before = tensor.clone();
        tensor.as_mut_slice::<f32>().unwrap()[0] = 3.0;
        assert_eq!((before.get_f64(0), tensor.get_f64(0)), (1.5, 3.0));
    }

    #[test]
    fn bytes_must_match_the_shape() {
        assert!(Tensor::from_bytes(DType::F32, [2], &[0; 7]).is_err());
        assert!(Tensor::from_bytes(DType::F32, [u64::MAX, 2], &[0; 8]).is_err());
        assert_eq!(Tensor::from_bytes(DType::I16, [2], &[1, 0, 255, 255]).unwrap().to_ints(), [1, -1]);
    }
}

//! Tensors that Python sees through NumPy's array interface, without a copy in either direction.

#![allow(unsafe_code)]

use pando_base::{DType, Shape, Tensor};
use pando_cpu::Input;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A tensor that has left the engine. NumPy reads and writes its memory and keeps it alive.
#[pyclass]
pub struct Array(Tensor);

impl Array {
    pub fn new(tensor: Tensor) -> Self {
        Array(tensor)
    }
}

#[pymethods]
impl Array {
    /// The element type in Pando's words: `f32`, `bf16`, …
    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype().name()
    }

    /// See NumPy's manual, "The array interface protocol". Types that NumPy lacks are unsigned integers of their
    /// size; the caller views them as what they are.
    #[getter]
    fn __array_interface__<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        let shape = pyo3::types::PyTuple::new(py, self.0.shape().iter())?;
        interface.set_item("version", 3)?;
        interface.set_item("shape", shape)?;
        interface.set_item("typestr", typestr(self.0.dtype()))?;
        // Writable: nobody else has these bytes, or `bytes_mut` makes them this tensor's own.
        interface.set_item("data", (self.0.bytes_mut().as_ptr().addr(), false))?;
        Ok(interface)
    }
}

fn typestr(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::BF16 | DType::U16 => "<u2",
        DType::F8(..) | DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
    }
}

/// Where an array of Python's is: address, element type, shape. It is C-contiguous, in the machine's byte order.
pub type Location = (usize, String, Vec<u64>);

/// The array as an input.
///
/// # Safety
/// The array is where the location says, and stays there unchanged for `'a`.
pub unsafe fn borrow<'a>((address, dtype, shape): &Location) -> PyResult<Input<'a>> {
    let dtype = element_type(dtype)?;
    let shape: Shape = shape.iter().copied().collect();
    let length = (shape.num_elements() * dtype.size_bytes()) as usize;
    let bytes: &[u8] = if length == 0 {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(*address), length) }
    };
    Ok(Input::new(dtype, shape, bytes))
}

/// The element type of a name such as `f32`.
pub fn element_type(name: &str) -> PyResult<DType> {
    DType::from_name(name).ok_or_else(|| crate::Error::new_err(format!("there is no element type {name}")))
}

//! Tensors that models read and replace.

#![allow(unsafe_code)]

use pando_base::{DType, Shape, Tensor};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A tensor that models read and replace, in memory of its own or in somebody else's. Its version names its elements:
/// whoever may change them gives it another one, which no other variable has.
#[derive(Debug)]
pub struct Variable {
    elements: Elements,
    version: u64,
}

#[derive(Debug)]
enum Elements {
    Own(Tensor),
    Lent(Lent),
}

/// Dense, row-major elements in memory that somebody lends.
#[derive(Debug)]
struct Lent {
    dtype: DType,
    shape: Shape,
    address: NonNull<u8>,
}

// SAFETY: who lends the memory has promised that no one else uses it.
unsafe impl Send for Lent {}
// SAFETY: as above; it is written through `&mut` only.
unsafe impl Sync for Lent {}

fn next_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Variable {
    pub fn new(tensor: Tensor) -> Variable {
        Variable { elements: Elements::Own(tensor), version: next_version() }
    }

    /// A variable whose elements are, and stay, at an address.
    ///
    /// # Safety
    /// The elements are there, aligned to [`crate::Input::ALIGNMENT`], and nobody else writes them while the variable
    /// lives, or reads them while it may change.
    pub unsafe fn lent(dtype: DType, shape: Shape, address: NonNull<u8>) -> Variable {
        Variable { elements: Elements::Lent(Lent { dtype, shape, address }), version: next_version() }
    }

    pub fn is_lent(&self) -> bool {
        matches!(self.elements, Elements::Lent(_))
    }

    /// Element type and shape.
    pub fn ty(&self) -> (DType, &Shape) {
        match &self.elements {
            Elements::Own(tensor) => (tensor.dtype(), tensor.shape()),
            Elements::Lent(lent) => (lent.dtype, &lent.shape),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.elements {
            Elements::Own(tensor) => tensor.bytes(),
            // SAFETY: the lender's promise.
            Elements::Lent(lent) => unsafe {
                std::slice::from_raw_parts(lent.address.as_ptr(), lent.num_bytes())
            },
        }
    }

    /// The elements, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.version = next_version();
        match &mut self.elements {
            Elements::Own(tensor) => tensor.bytes_mut(),
            // SAFETY: the lender's promise.
            Elements::Lent(lent) => unsafe {
                std::slice::from_raw_parts_mut(lent.address.as_ptr(), lent.num_bytes())
            },
        }
    }

    /// The elements as a tensor, which shares memory that is the variable's own.
    pub fn to_tensor(&self) -> Tensor {
        match &self.elements {
            Elements::Own(tensor) => tensor.clone(),
            Elements::Lent(lent) => Tensor::from_bytes(lent.dtype, lent.shape.clone(), self.bytes())
                .expect("as many bytes as the type says"),
        }
    }

    /// Replaces the elements by those of a tensor of the same type.
    ///
    /// # Panics
    /// If the memory is lent and the type another one.
    pub fn set(&mut self, tensor: Tensor) {
        match &mut self.elements {
            Elements::Own(own) => *own = tensor,
            Elements::Lent(_) => self.bytes_mut().copy_from_slice(tensor.bytes()),
        }
        self.version = next_version();
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }
}

impl Lent {
    fn num_bytes(&self) -> usize {
        (self.shape.num_elements() * self.dtype.size_bytes()) as usize
    }
}

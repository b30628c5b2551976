//! Slices of a variable by number, as loops over parts of a product take and put them: a dimension is dealt to the
//! slices in chunks, the first chunk to the first slice and so on in turn, so that every tile that holds whole rounds of
//! chunks has a part of each slice. Any element type. Cycles: DynamicSlice, hardware.md section 6.5.

use super::cost::{self, c};
use super::gather::read_indices;
use super::{Arg, OperandType, SliceAttrs, VertexCost};
use pando_machine::Chip;

/// `whole, number, slice` in this order, whichever is written.
pub(super) fn check(
    attrs: &SliceAttrs,
    whole: OperandType,
    number: OperandType,
    slice: OperandType,
) -> Result<(), String> {
    let axis = usize::from(attrs.axis);
    if attrs.slices == 0 || attrs.chunk == 0 {
        return Err("slices and their chunks are not empty".into());
    }
    if number.num_elements() != 1 || !number.dtype.is_int() {
        return Err(format!("a slice's number is one integer, not {number}"));
    }
    let alike = |dim: usize| match dim == axis {
        true => slice.lens[dim].checked_mul(attrs.slices) == Some(whole.lens[dim]),
        false => slice.lens[dim] == whole.lens[dim],
    };
    let rank = whole.lens.len();
    let fits = axis < rank && slice.lens.len() == rank && (0..rank).all(alike);
    if whole.dtype != slice.dtype || !fits || !slice.lens[axis].is_multiple_of(attrs.chunk) {
        return Err(format!(
            "{slice} is not one of {} slices of {whole} in chunks of {} along dimension {axis}",
            attrs.slices, attrs.chunk
        ));
    }
    Ok(())
}

pub(super) fn run_take(attrs: &SliceAttrs, args: &mut [Arg]) {
    let [whole, number, slice] = args else { unreachable!("taking a slice has three operands") };
    let at = places(attrs, number, slice);
    let source = whole.data.bytes();
    let chunks = slice.data.bytes_mut().chunks_exact_mut(at.chunk_bytes.max(1));
    chunks
        .enumerate()
        .for_each(|(index, to)| to.copy_from_slice(&source[at.begin(index)..][..at.chunk_bytes]));
}

pub(super) fn run_put(attrs: &SliceAttrs, args: &mut [Arg]) {
    let [number, slice, whole] = args else { unreachable!("putting a slice has three operands") };
    let at = places(attrs, number, slice);
    let target = whole.data.bytes_mut();
    let chunks = slice.data.bytes().chunks_exact(at.chunk_bytes.max(1));
    chunks
        .enumerate()
        .for_each(|(index, from)| target[at.begin(index)..][..at.chunk_bytes].copy_from_slice(from));
}

/// Where a slice's chunks, which lie one behind the other, begin in the whole.
struct Places {
    chunk_bytes: usize,
    slices: usize,
    number: usize,
}

impl Places {
    fn begin(&self, index: usize) -> usize {
        (index * self.slices + self.number) * self.chunk_bytes
    }
}

/// Numbers beyond the last slice are that of the last.
fn places(attrs: &SliceAttrs, number: &Arg, slice: &Arg) -> Places {
    let behind = slice.data.shape()[usize::from(attrs.axis) + 1..].iter().product::<u64>();
    let chunk = attrs.chunk * behind * slice.data.dtype().size_bytes();
    let number = read_indices(&number.data)[0].clamp(0, i128::from(attrs.slices) - 1);
    Places { chunk_bytes: chunk as usize, slices: attrs.slices as usize, number: number as usize }
}

/// "DynamicSlice1D 25 + W(39 + sub(24+2·vecs))".
///
/// Assumption: what is sliced is stored slice by slice, as PopLibs' sliceable tensors are, so that a slice is one piece;
/// the workers divide its vectors.
pub(super) fn cycles(slice: OperandType, chip: &Chip) -> VertexCost {
    let vectors = slice.num_elements().div_ceil(cost::vector_len(slice.dtype, chip).max(1));
    cost::supervisor(c(39) + c(24) + c(2) * c(cost::per_worker(vectors, chip)), 25, chip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::kernel::values::tests::{arg, out, run};
    use pando_base::DType;

    const ATTRS: SliceAttrs = SliceAttrs { axis: 1, chunk: 2, slices: 3 };

    #[test]
    fn slices_are_dealt_in_chunks() {
        let whole: Vec<f64> = (0..24).map(f64::from).collect();
        let take = |number: f64| {
            let operands = vec![
                arg(DType::F16, &[2, 12], &whole),
                arg(DType::I32, &[], &[number]),
                out(DType::F16, &[2, 4]),
            ];
            run(&Kernel::TakeSlice(ATTRS), operands)
        };
        assert_eq!(take(0.0), [0.0, 1.0, 6.0, 7.0, 12.0, 13.0, 18.0, 19.0]);
        assert_eq!(take(2.0), [4.0, 5.0, 10.0, 11.0, 16.0, 17.0, 22.0, 23.0]);
        assert_eq!(take(7.0), take(2.0));
    }

    #[test]
    fn a_slice_is_put_where_it_was_taken() {
        let mut whole = out(DType::F32, &[1, 6]);
        whole.data = pando_base::Tensor::from_f64(DType::F32, [1, 6], &[9.0; 6]);
        let slice = arg(DType::F32, &[1, 2], &[1.0, 2.0]);
        let put = run(&Kernel::PutSlice(ATTRS), vec![arg(DType::I32, &[1], &[1.0]), slice, whole]);
        assert_eq!(put, [9.0, 9.0, 1.0, 2.0, 9.0, 9.0]);
    }

    #[test]
    fn refuses_what_does_not_match() {
        let ty = |dtype, lens| OperandType { dtype, lens };
        let number = ty(DType::I32, &[]);
        let check = |whole, slice| check(&ATTRS, ty(DType::F32, whole), number, ty(DType::F32, slice));
        assert_eq!(check(&[2, 12], &[2, 4]), Ok(()));
        assert!(check(&[2, 12], &[2, 6]).is_err() && check(&[2, 9], &[2, 3]).is_err());
        assert!(check(&[3, 12], &[2, 4]).is_err() && check(&[12], &[4]).is_err());
    }
}

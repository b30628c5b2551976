//! MatMul: products of matrices on the matrix unit. Types: f32, f16 and bf16 of one type, 8-bit floats in
//! any mix, with sums in f32 or f16 ([`amp`] says in which order); integers of one type, wrapping in the
//! output's type. Cycles: the unit's 1×1 vertex (hardware.md section 6.1), with the rows of `lhs` as its
//! field.

use super::amp::{self, Product, Unit};
use super::cost;
use super::values;
use super::{Arg, OperandType, VertexCost, conv, same_but_ones};
use pando_base::DType;
use pando_machine::Chip;
use smallvec::SmallVec;

type Pairs = [(u8, u8)];
type Order = SmallVec<[usize; 6]>;

/// `lhs, rhs, out`: `out` has the batch dimensions, then lhs's free ones, then rhs's.
pub(super) fn check(
    batch: &Pairs,
    contract: &Pairs,
    partials: DType,
    operands: &[OperandType],
) -> Result<(), String> {
    let [lhs, rhs, out] = [operands[0], operands[1], operands[2]];
    amp::check_types(lhs, rhs, out, partials)?;
    let used = |side: fn(&(u8, u8)) -> u8| batch.iter().chain(contract).map(side).collect::<Vec<u8>>();
    for (operand, dims) in [(lhs, used(|pair| pair.0)), (rhs, used(|pair| pair.1))] {
        let in_range = dims.iter().all(|&dim| usize::from(dim) < operand.lens.len());
        if !in_range || !super::movement::are_distinct(&dims) {
            return Err(format!(
                "batch and contracted dimensions {dims:?} are not distinct ones of {operand}"
            ));
        }
    }
    for &(l, r) in batch.iter().chain(contract) {
        if lhs.lens[usize::from(l)] != rhs.lens[usize::from(r)] {
            return Err(format!("dimension {l} of {lhs} and dimension {r} of {rhs} differ in length"));
        }
    }
    let roles = Roles::new(batch, contract, lhs.lens.len(), rhs.lens.len());
    let pick = |order: &[usize], lens: &[u64]| order.iter().map(|&dim| lens[dim]).collect::<Vec<u64>>();
    let expected =
        [pick(&roles.lhs_batch, lhs.lens), pick(&roles.lhs_free, lhs.lens), pick(&roles.rhs_free, rhs.lens)];
    if !same_but_ones(&expected.concat(), out.lens) {
        return Err(format!("the product of {lhs} and {rhs} is not {out}"));
    }
    Ok(())
}

/// Which dimensions of the operands play which part, in order.
struct Roles {
    lhs_batch: Order,
    lhs_free: Order,
    lhs_contract: Order,
    rhs_batch: Order,
    rhs_free: Order,
    rhs_contract: Order,
}

impl Roles {
    fn new(batch: &Pairs, contract: &Pairs, lhs_rank: usize, rhs_rank: usize) -> Self {
        let side = |pairs: &Pairs, of: fn(&(u8, u8)) -> u8| -> Order {
            pairs.iter().map(|pair| usize::from(of(pair))).collect()
        };
        let (lhs, rhs) = (|pair: &(u8, u8)| pair.0, |pair: &(u8, u8)| pair.1);
        let free = |rank: usize, of: fn(&(u8, u8)) -> u8| -> Order {
            let is_used = |dim: usize| batch.iter().chain(contract).any(|pair| usize::from(of(pair)) == dim);
            (0..rank).filter(|&dim| !is_used(dim)).collect()
        };
        Roles {
            lhs_batch: side(batch, lhs),
            lhs_free: free(lhs_rank, lhs),
            lhs_contract: side(contract, lhs),
            rhs_batch: side(batch, rhs),
            rhs_free: free(rhs_rank, rhs),
            rhs_contract: side(contract, rhs),
        }
    }

    fn product(&self, lhs: &[u64], rhs: &[u64]) -> Product {
        let over = |order: &[usize], lens: &[u64]| {
            order.iter().fold(1u64, |product, &dim| product.saturating_mul(lens[dim]))
        };
        Product {
            groups: over(&self.lhs_batch, lhs),
            rows: over(&self.lhs_free, lhs),
            inputs: over(&self.lhs_contract, lhs),
            outputs: over(&self.rhs_free, rhs),
        }
    }

    /// The matrices of both sides, row-major: `[groups, rows, inputs]` and `[groups, inputs, outputs]`.
    fn packed<T: Copy + Default>(
        &self,
        [lhs, rhs]: [&[T]; 2],
        [lhs_lens, rhs_lens]: [&[u64]; 2],
    ) -> [Vec<T>; 2] {
        let lhs_order = [&self.lhs_batch[..], &self.lhs_free, &self.lhs_contract].concat();
        let rhs_order = [&self.rhs_batch[..], &self.rhs_contract, &self.rhs_free].concat();
        [
            values::permuted(lhs, &values::sizes(lhs_lens), &lhs_order),
            values::permuted(rhs, &values::sizes(rhs_lens), &rhs_order),
        ]
    }
}

pub(super) fn run(batch: &Pairs, contract: &Pairs, partials: DType, args: &mut [Arg]) {
    let [lhs, rhs, out] = args else { unreachable!("matmul has three operands") };
    let (lhs, rhs) = (&lhs.data, &rhs.data);
    let lens: [&[u64]; 2] = [lhs.shape(), rhs.shape()];
    let roles = Roles::new(batch, contract, lens[0].len(), lens[1].len());
    let product = roles.product(lens[0], lens[1]);
    let count = out.data.num_elements() as usize;
    if lhs.dtype().is_float() {
        let packed = roles.packed([&values::to_f32(lhs), &values::to_f32(rhs)], lens);
        let step = amp::step_len(lhs.dtype());
        let mut sums = vec![0.0; count];
        for_rows(&product, &packed, &mut sums, |sums, inputs, weights| {
            amp::accumulate(sums, inputs.chunks(step).zip(weights.chunks(step * sums.len())), partials);
        });
        values::write_f32(&mut out.data, &sums);
    } else {
        let packed = roles.packed([&values::to_wrapping(lhs), &values::to_wrapping(rhs)], lens);
        let mut sums = vec![0; count];
        for_rows(&product, &packed, &mut sums, |sums, inputs, weights| {
            amp::accumulate_wrapping(sums, std::iter::once((inputs, weights)));
        });
        values::write_wrapping(&mut out.data, &sums);
    }
}

/// Calls `add` for each row of sums with the row of inputs and the weights that it needs.
fn for_rows<T>(
    product: &Product,
    [lhs, rhs]: &[Vec<T>; 2],
    sums: &mut [T],
    add: impl Fn(&mut [T], &[T], &[T]),
) {
    let [rows, inputs, outputs] = [product.rows, product.inputs, product.outputs].map(|len| len as usize);
    if sums.is_empty() || inputs == 0 {
        return;
    }
    let groups = lhs.chunks_exact(rows * inputs).zip(rhs.chunks_exact(inputs * outputs));
    for (sums, (lhs, weights)) in sums.chunks_exact_mut(rows * outputs).zip(groups) {
        for (sums, inputs) in sums.chunks_exact_mut(outputs).zip(lhs.chunks_exact(inputs)) {
            add(sums, inputs, weights);
        }
    }
}

/// On a chip without a suitable matrix rate, the vector unit's formula.
pub(super) fn cycles(
    batch: &Pairs,
    contract: &Pairs,
    partials: DType,
    operands: &[OperandType],
    chip: &Chip,
) -> VertexCost {
    let [lhs, rhs] = [operands[0], operands[1]];
    let product = Roles::new(batch, contract, lhs.lens.len(), rhs.lens.len()).product(lhs.lens, rhs.lens);
    if lhs.dtype.is_int() {
        return amp::scalar_cycles(operands[2].dtype, multiplications(&product), chip);
    }
    let total = match Unit::of(chip, lhs.dtype, partials) {
        Some(unit) => amp::product_cycles(&unit, &product, chip),
        None => conv::horizontal_product(&product, lhs.dtype, partials, chip),
    };
    cost::launched(total, chip)
}

fn multiplications(product: &Product) -> u64 {
    cost::product(&[product.groups, product.rows, product.inputs, product.outputs])
}

pub(super) fn flops(batch: &Pairs, contract: &Pairs, operands: &[OperandType]) -> u64 {
    let [lhs, rhs] = [operands[0].lens, operands[1].lens];
    let product = Roles::new(batch, contract, lhs.len(), rhs.len()).product(lhs, rhs);
    multiplications(&product).saturating_mul(2)
}

#[cfg(test)]
mod tests;

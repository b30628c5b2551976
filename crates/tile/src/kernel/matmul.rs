//! MatMul: products of matrices on the matrix unit. Types: f32, f16 and bf16 of one type, 8-bit floats in
//! any mix, with sums in f32 or f16 ([`amp`] says in which order); integers of one type, wrapping in the
//! output's type. Cycles: the unit's 1×1 vertex (hardware.md section 6.1), with the rows of `lhs` as its
//! field. Which operand is `lhs` changes no value: products commute, and sums have the order of the contracted
//! dimensions.

use super::amp::{self, Product, Unit};
use super::cost;
use super::values;
use super::{Arg, OperandType, VertexCost, conv, movement, same_but_ones};
use pando_base::DType;
use pando_machine::Chip;
use smallvec::SmallVec;

type Pairs = [(u8, u8)];
type Order = SmallVec<[usize; 6]>;

/// `lhs, rhs, out`: the product has the batch dimensions, then lhs's free ones, then rhs's, and `out` has them in
/// `order`.
pub(super) fn check(
    batch: &Pairs,
    contract: &Pairs,
    order: &[u8],
    partials: DType,
    operands: &[OperandType],
) -> Result<(), String> {
    let [lhs, rhs, out] = [operands[0], operands[1], operands[2]];
    amp::check_types(lhs, rhs, out, partials)?;
    let used = |side: fn(&(u8, u8)) -> u8| batch.iter().chain(contract).map(side).collect::<Vec<u8>>();
    for (operand, dims) in [(lhs, used(|pair| pair.0)), (rhs, used(|pair| pair.1))] {
        let in_range = dims.iter().all(|&dim| usize::from(dim) < operand.lens.len());
        if !in_range || !movement::are_distinct(&dims) {
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
    let product = roles.product_lens(lhs.lens, rhs.lens);
    let in_range = order.iter().all(|&dim| usize::from(dim) < product.len());
    if !order.is_empty() && (order.len() != product.len() || !in_range || !movement::are_distinct(order)) {
        return Err(format!("order {order:?} does not hold each of {} dimensions once", product.len()));
    }
    let expected: Vec<u64> = in_order(order, product.len()).map(|dim| product[dim]).collect();
    if !same_but_ones(&expected, out.lens) {
        return Err(format!("the product of {lhs} and {rhs} is not {out}"));
    }
    Ok(())
}

/// The product's dimensions as the output has them.
fn in_order(order: &[u8], rank: usize) -> impl Iterator<Item = usize> {
    (0..rank).map(|dim| order.get(dim).map_or(dim, |&dim| usize::from(dim)))
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

    fn product_lens(&self, lhs: &[u64], rhs: &[u64]) -> SmallVec<[u64; 6]> {
        let of_lhs = self.lhs_batch.iter().chain(&self.lhs_free).map(|&dim| lhs[dim]);
        of_lhs.chain(self.rhs_free.iter().map(|&dim| rhs[dim])).collect()
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

pub(super) fn run(batch: &Pairs, contract: &Pairs, order: &[u8], partials: DType, args: &mut [Arg]) {
    let [lhs, rhs, out] = args else { unreachable!("matmul has three operands") };
    let (lhs, rhs) = (&lhs.data, &rhs.data);
    let lens: [&[u64]; 2] = [lhs.shape(), rhs.shape()];
    let roles = Roles::new(batch, contract, lens[0].len(), lens[1].len());
    let product = roles.product(lens[0], lens[1]);
    let count = out.data.num_elements() as usize;
    let product_lens = values::sizes(&roles.product_lens(lens[0], lens[1]));
    let order: Order = in_order(order, product_lens.len()).collect();
    let is_sorted = order.is_sorted();
    if lhs.dtype().is_float() {
        let packed = roles.packed([&values::to_f32(lhs), &values::to_f32(rhs)], lens);
        let step = amp::step_len(lhs.dtype());
        let mut sums = vec![0.0; count];
        for_rows(&product, &packed, &mut sums, |sums, inputs, weights| {
            amp::accumulate(sums, inputs.chunks(step).zip(weights.chunks(step * sums.len())), partials);
        });
        let sums = if is_sorted { sums } else { values::permuted(&sums, &product_lens, &order) };
        values::write_f32(&mut out.data, &sums);
    } else {
        let packed = roles.packed([&values::to_wrapping(lhs), &values::to_wrapping(rhs)], lens);
        let mut sums = vec![0; count];
        for_rows(&product, &packed, &mut sums, |sums, inputs, weights| {
            amp::accumulate_wrapping(sums, std::iter::once((inputs, weights)));
        });
        let sums = if is_sorted { sums } else { values::permuted(&sums, &product_lens, &order) };
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
///
/// Assumption: the unit stores the results of a row next to each other, wherever rows lie; an output in which the last
/// dimension is another is transposed after that, as [`super::Kernel::Transpose`] does.
pub(super) fn cycles(
    batch: &Pairs,
    contract: &Pairs,
    order: &[u8],
    partials: DType,
    operands: &[OperandType],
    chip: &Chip,
) -> VertexCost {
    let [lhs, rhs] = [operands[0], operands[1]];
    let roles = Roles::new(batch, contract, lhs.lens.len(), rhs.lens.len());
    let product = roles.product(lhs.lens, rhs.lens);
    if lhs.dtype.is_int() {
        return amp::scalar_cycles(operands[2].dtype, multiplications(&product), chip);
    }
    let total = match Unit::of(chip, lhs.dtype, partials) {
        Some(unit) => amp::product_cycles(&unit, &product, chip),
        None => conv::horizontal_product(&product, lhs.dtype, partials, chip),
    };
    cost::launched(
        total + transposing(order, &roles.product_lens(lhs.lens, rhs.lens), operands[2], chip),
        chip,
    )
}

/// Cycles to bring results whose rows lie apart into the output's order.
fn transposing(order: &[u8], product: &[u64], out: OperandType, chip: &Chip) -> cost::Cycles {
    let long: Order = in_order(order, product.len()).filter(|&dim| product[dim] > 1).collect();
    if long.last() == long.iter().max() {
        return cost::c(0);
    }
    let (from, perm): (Vec<u64>, Vec<u8>) = {
        let mut sorted = long.clone();
        sorted.sort_unstable();
        let place = |dim: &usize| sorted.iter().position(|other| other == dim).unwrap_or(0) as u8;
        (sorted.iter().map(|&dim| product[dim]).collect(), long.iter().map(place).collect())
    };
    let to: Vec<u64> = long.iter().map(|&dim| product[dim]).collect();
    let operands =
        [OperandType { dtype: out.dtype, lens: &from }, OperandType { dtype: out.dtype, lens: &to }];
    match movement::transpose_cycles(&perm, &operands, chip) {
        VertexCost::Supervisor(cycles) => cost::c(cycles),
        VertexCost::Worker(slots) => cost::c(slots) * cost::c(cost::workers(chip)),
    }
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

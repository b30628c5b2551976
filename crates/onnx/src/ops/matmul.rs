//! Matrix products.

use crate::ctx::{Ctx, joined};
use crate::errors;
use pando_base::{DType, ReduceFn, Result};
use pando_graph::{Dim, Dims, Dot, ValueId};

pub(super) fn matmul(c: &mut Ctx) -> Result<ValueId> {
    let (x, y) = (c.x(0)?, c.x(1)?);
    product(c, x, y, None)
}

/// NumPy's matmul: vectors get an axis that is removed again; leading axes broadcast. A right side without
/// leading axes is one product for all of the left's.
pub(super) fn product(c: &mut Ctx, x: ValueId, y: ValueId, dtype: Option<DType>) -> Result<ValueId> {
    let (x_rank, y_rank) = (c.rank(x), c.rank(y));
    if x_rank == 0 || y_rank == 0 {
        return Err(errors::invalid("a matrix product takes no scalars"));
    }
    if y_rank <= 2 {
        let contract = vec![(x_rank - 1, y_rank.saturating_sub(2))];
        let y = same_size(c, x, x_rank - 1, y, y_rank.saturating_sub(2))?;
        return c.b.dot(x, y, Dot { batch: vec![], contract, dtype });
    }
    if x_rank == 1 {
        let x = c.unsqueeze(x, &[0])?;
        let result = product(c, x, y, dtype)?;
        return c.squeeze(result, &[y_rank - 2]);
    }
    let lead = joined(&c.dims(x)[..x_rank - 2], &c.dims(y)[..y_rank - 2])?;
    let full = |c: &Ctx, value: ValueId| -> Dims {
        let dims = c.dims(value);
        lead.iter().chain(&dims[dims.len() - 2..]).cloned().collect()
    };
    let (x_dims, y_dims) = (full(c, x), full(c, y));
    let (x, y) = (c.expand(x, &x_dims)?, c.expand(y, &y_dims)?);
    let rank = x_dims.len();
    let y = same_size(c, x, rank - 1, y, rank - 2)?;
    let batch = (0..rank - 2).map(|axis| (axis, axis)).collect();
    c.b.dot(x, y, Dot { batch, contract: vec![(rank - 1, rank - 2)], dtype })
}

/// Gives an axis of `y` the dimension of an axis of `x`, if one of them is a name.
fn same_size(c: &mut Ctx, x: ValueId, x_axis: usize, y: ValueId, y_axis: usize) -> Result<ValueId> {
    let (size, mut dims) = (c.dims(x)[x_axis].clone(), c.dims(y));
    if dims[y_axis] == size || size.known().is_some() && dims[y_axis].known().is_some() {
        return Ok(y);
    }
    dims[y_axis] = size;
    c.b.reshape(y, dims)
}

/// `alpha · op(A) · op(B) + beta · C`
pub(super) fn gemm(c: &mut Ctx) -> Result<ValueId> {
    let (x, y) = (c.x(0)?, c.x(1)?);
    let mut result = matrix_product(c, x, y)?;
    let (alpha, beta) = (c.float("alpha", 1.0), c.float("beta", 1.0));
    if alpha != 1.0 {
        result = scaled(c, result, alpha)?;
    }
    let Some(mut bias) = c.opt(2)? else { return Ok(result) };
    if beta != 1.0 {
        bias = scaled(c, bias, beta)?;
    }
    let dims = c.dims(result);
    let bias = c.expand(bias, &dims)?;
    c.b.add(result, bias)
}

/// `op(x) · op(y)` of two matrices, transposed as Gemm's attributes say.
pub(super) fn matrix_product(c: &mut Ctx, x: ValueId, y: ValueId) -> Result<ValueId> {
    c.need_rank(x, 2..=2)?;
    c.need_rank(y, 2..=2)?;
    let contract = vec![(usize::from(!c.flag("transA", false)), usize::from(c.flag("transB", false)))];
    // The transposed left side comes out in the right order: its free axis is the other one.
    let y = same_size(c, x, contract[0].0, y, contract[0].1)?;
    c.b.dot(x, y, Dot { batch: vec![], contract, dtype: None })
}

/// com.microsoft: with an activation.
pub(super) fn fused_gemm(c: &mut Ctx) -> Result<ValueId> {
    let result = gemm(c)?;
    let (alpha, beta) = (c.float_opt("activation_alpha"), c.float_opt("activation_beta"));
    match c.string("activation", "").as_str() {
        "" => Ok(result),
        name => super::activation::by_name(c, name, alpha, beta, result),
    }
}

fn scaled(c: &mut Ctx, x: ValueId, factor: f64) -> Result<ValueId> {
    if c.dtype(x).is_float() {
        return c.times_n(x, factor);
    }
    let float = c.b.convert(x, DType::F32)?;
    let scaled = c.times_n(float, factor)?;
    c.b.convert(scaled, c.dtype(x))
}

/// com.microsoft: a product of operands that may be transposed, scaled.
pub(super) fn fused_matmul(c: &mut Ctx) -> Result<ValueId> {
    let transposed = |c: &mut Ctx, position: usize, name: &str, batch: &str| -> Result<ValueId> {
        let mut x = c.x(position)?;
        let rank = c.rank(x);
        let mut perm: Vec<usize> = (0..rank).collect();
        if c.flag(batch, false) && rank > 2 {
            perm = (1..rank - 1).chain([0, rank - 1]).collect();
        }
        if c.flag(name, false) && rank > 1 {
            perm.swap(rank - 1, rank - 2);
        }
        x = c.b.transpose(x, &perm)?;
        Ok(x)
    };
    let x = transposed(c, 0, "transA", "transBatchA")?;
    let y = transposed(c, 1, "transB", "transBatchB")?;
    let result = product(c, x, y, None)?;
    let alpha = c.float("alpha", 1.0);
    if alpha == 1.0 { Ok(result) } else { c.times_n(result, alpha) }
}

/// Sums of products over letters. `...` stands for the axes that broadcast.
pub(super) fn einsum(c: &mut Ctx) -> Result<ValueId> {
    let equation: String = c.string("equation", "").chars().filter(|ch| !ch.is_whitespace()).collect();
    let operands = c.all()?;
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs.to_string(), Some(output.to_string())),
        None => (equation.clone(), None),
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    if terms.len() != operands.len() {
        return Err(errors::wrong_attribute("equation", "it does not have a term per operand"));
    }
    let ellipsis = terms
        .iter()
        .zip(&operands)
        .filter(|(term, _)| term.contains("..."))
        .map(|(term, &x)| c.rank(x).saturating_sub(term.len() - 3))
        .max()
        .unwrap_or(0);
    let letters: Vec<Vec<char>> =
        terms.iter().zip(&operands).map(|(term, &x)| spell(term, ellipsis, c.rank(x))).collect();
    let target = match output {
        Some(output) => spell(&output, ellipsis, usize::MAX),
        None => implied(&letters, ellipsis),
    };
    let mut sum: Option<(ValueId, Vec<char>)> = None;
    for (position, (&x, letters)) in operands.iter().zip(&letters).enumerate() {
        let (x, own) = diagonal(c, x, letters)?;
        let later: Vec<char> = self::later(&letters_after(&terms, ellipsis, position), &target);
        sum = Some(match sum {
            None => (x, own),
            Some((left, left_letters)) => pair(c, (left, left_letters), (x, own), &later)?,
        });
    }
    let (x, own) = sum.ok_or_else(|| errors::missing_input(0))?;
    let (x, own) = reduced(c, x, own, &target)?;
    let perm: Option<Vec<usize>> =
        target.iter().map(|letter| own.iter().position(|other| other == letter)).collect();
    let perm =
        perm.ok_or_else(|| errors::wrong_attribute("equation", "the output has a letter of no input"))?;
    c.b.transpose(x, &perm)
}

/// Letters of a term; the axes of an ellipsis become digits, aligned at the end.
fn spell(term: &str, ellipsis: usize, rank: usize) -> Vec<char> {
    let digit = |i: usize| char::from_u32('0' as u32 + i as u32).unwrap_or('?');
    match term.split_once("...") {
        Some((before, after)) => {
            let own = rank.saturating_sub(before.len() + after.len()).min(ellipsis);
            let digits = (ellipsis - own..ellipsis).map(digit);
            before.chars().chain(digits).chain(after.chars()).collect()
        }
        None => term.chars().collect(),
    }
}

fn letters_after(terms: &[&str], ellipsis: usize, position: usize) -> Vec<Vec<char>> {
    terms[position + 1..].iter().map(|term| spell(term, ellipsis, usize::MAX)).collect()
}

/// Letters that are needed after a step.
fn later(terms: &[Vec<char>], target: &[char]) -> Vec<char> {
    terms.iter().flatten().chain(target).copied().collect()
}

/// Without `->`: the axes of the ellipsis, then the letters that come once, sorted.
fn implied(letters: &[Vec<char>], ellipsis: usize) -> Vec<char> {
    let all: Vec<char> = letters.iter().flatten().copied().collect();
    let mut once: Vec<char> = all
        .iter()
        .copied()
        .filter(|letter| !letter.is_ascii_digit() && all.iter().filter(|other| *other == letter).count() == 1)
        .collect();
    once.sort_unstable();
    spell("...", ellipsis, usize::MAX).into_iter().chain(once).collect()
}

/// An operand in which a letter comes twice: its diagonal.
fn diagonal(c: &mut Ctx, x: ValueId, letters: &[char]) -> Result<(ValueId, Vec<char>)> {
    if letters.len() != c.rank(x) {
        return Err(errors::wrong_attribute("equation", "a term does not have a letter per axis"));
    }
    let (mut x, mut own) = (x, letters.to_vec());
    while let Some((first, second)) = repeated(&own) {
        let size = c.size(x, first)?;
        let mut dims = c.dims(x);
        dims[second] = Dim::Known(size);
        let ty = pando_graph::TensorType { dtype: DType::I64, dims };
        let (a, b) = (c.b.iota(ty.clone(), first)?, c.b.iota(ty, second)?);
        let hit = c.b.compare(pando_base::CompareFn::Eq, a, b)?;
        let zero = c.b.splat_like(x, 0.0)?;
        let kept = c.b.select(hit, x, zero)?;
        x = c.b.reduce(ReduceFn::Sum, kept, &[second])?;
        own.remove(second);
    }
    Ok((x, own))
}

fn repeated(letters: &[char]) -> Option<(usize, usize)> {
    (0..letters.len()).find_map(|first| {
        let second = (first + 1..letters.len()).find(|&second| letters[second] == letters[first])?;
        Some((first, second))
    })
}

fn reduced(c: &mut Ctx, x: ValueId, own: Vec<char>, needed: &[char]) -> Result<(ValueId, Vec<char>)> {
    let axes: Vec<usize> = (0..own.len()).filter(|&axis| !needed.contains(&own[axis])).collect();
    let kept = own.into_iter().filter(|letter| needed.contains(letter)).collect();
    if axes.is_empty() {
        return Ok((x, kept));
    }
    Ok((c.b.reduce(ReduceFn::Sum, x, &axes)?, kept))
}

type Term = (ValueId, Vec<char>);

/// One product: shared letters needed later are batches, the others are summed.
fn pair(c: &mut Ctx, left: Term, right: Term, later: &[char]) -> Result<Term> {
    let needed_left: Vec<char> = later.iter().chain(&right.1).copied().collect();
    let (x, xs) = reduced(c, left.0, left.1, &needed_left)?;
    let needed_right: Vec<char> = later.iter().chain(&xs).copied().collect();
    let (mut y, ys) = reduced(c, right.0, right.1, &needed_right)?;
    let mut dot = Dot::default();
    let mut x = x;
    for (i, letter) in xs.iter().enumerate() {
        let Some(j) = ys.iter().position(|other| other == letter) else { continue };
        (x, y) = equal_sizes(c, (x, i), (y, j))?;
        if later.contains(letter) {
            dot.batch.push((i, j));
        } else {
            dot.contract.push((i, j));
        }
    }
    let batch = dot.batch.iter().map(|pair| xs[pair.0]);
    let left_free = dot.lhs_free(xs.len()).into_iter().map(|axis| xs[axis]);
    let right_free = dot.rhs_free(ys.len()).into_iter().map(|axis| ys[axis]);
    let letters = batch.chain(left_free).chain(right_free).collect();
    Ok((c.b.dot(x, y, dot)?, letters))
}

/// Broadcasts an axis of size 1 to the other's size.
fn equal_sizes(c: &mut Ctx, x: (ValueId, usize), y: (ValueId, usize)) -> Result<(ValueId, ValueId)> {
    let (mut x_dims, mut y_dims) = (c.dims(x.0), c.dims(y.0));
    let size = joined(&x_dims[x.1..=x.1], &y_dims[y.1..=y.1])?.remove(0);
    x_dims[x.1] = size.clone();
    y_dims[y.1] = size;
    Ok((c.expand(x.0, &x_dims)?, c.expand(y.0, &y_dims)?))
}

/// The determinant of matrices of known size, by Gauss's elimination with pivots, unrolled.
pub(super) fn det(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let rank = c.rank(x);
    if rank < 2 {
        return Err(errors::invalid("the operand needs rank 2 at least"));
    }
    let n = c.size(x, rank - 1)?;
    if n > 64 {
        return Err(errors::too_much_work("a determinant of more than 64 rows"));
    }
    minor(c, x, n)
}

/// One step: the row with the largest first element is moved up (its sign counted) and subtracted from all.
fn minor(c: &mut Ctx, x: ValueId, n: u64) -> Result<ValueId> {
    let rank = c.rank(x);
    if n == 1 {
        let row = c.pick(x, rank - 2, 0)?;
        return c.pick(row, rank - 2, 0);
    }
    let column = c.pick(x, rank - 1, 0)?;
    let magnitude = c.b.abs(column)?;
    let largest = c.reduce_keep(ReduceFn::Max, magnitude, &[rank - 2])?;
    let hit = c.cmp(pando_base::CompareFn::Eq, magnitude, largest)?;
    let counts_ty = pando_graph::TensorType { dtype: DType::I64, dims: c.dims(column) };
    let counts = c.b.iota(counts_ty, rank - 2)?;
    let never = c.b.splat_like(counts, f64::from(i32::MAX))?;
    let places = c.b.select(hit, counts, never)?;
    let place = c.reduce_keep(ReduceFn::Min, places, &[rank - 2])?;
    let is_pivot = c.cmp(pando_base::CompareFn::Eq, counts, place)?;
    let weights = c.b.convert(is_pivot, c.dtype(x))?;
    let spread = c.unsqueeze(weights, &[rank - 1])?;
    let picked = c.times(x, spread)?;
    let pivot_row = c.reduce_keep(ReduceFn::Sum, picked, &[rank - 2])?;
    // The pivot's place takes the first row; the sign changes unless it was the first.
    let first_row = c.part(x, rank - 2, 0, 1)?;
    let spread_flag = c.unsqueeze(is_pivot, &[rank - 1])?;
    let swapped = c.choose(spread_flag, first_row, x)?;
    let rest = c.part(swapped, rank - 2, 1, n)?;
    let head = c.part(pivot_row, rank - 1, 0, 1)?;
    let factor = c.part(rest, rank - 1, 0, 1)?;
    let zero = c.cmp_n(pando_base::CompareFn::Eq, head, 0.0)?;
    let one = c.b.splat_like(head, 1.0)?;
    let safe = c.b.select(zero, one, head)?;
    let ratio = c.over(factor, safe)?;
    let taken = c.times(ratio, pivot_row)?;
    let left = c.b.sub(rest, taken)?;
    let left = c.part(left, rank - 1, 1, n)?;
    let below = minor(c, left, n - 1)?;
    let head = c.squeeze(head, &[rank - 2, rank - 1])?;
    let place = c.squeeze(place, &[rank - 2])?;
    let unmoved = c.cmp_n(pando_base::CompareFn::Eq, place, 0.0)?;
    let negated = c.b.neg(head)?;
    let head = c.b.select(unmoved, head, negated)?;
    c.b.mul(head, below)
}

//! Codelet: a vertex written by hand, as arithmetic of neighbouring elements. What stencils, and vector
//! operations that have no kernel of their own, are made of.
//!
//! `codelet{code="0.5 * i0[0,-1] + i1" width=1 issue=1 loop=2}`: operands are the inputs `i0, i1, …`, then one
//! output per expression (expressions are separated by commas). `i0[0,-1]` is the element of `i0` one to the
//! left of the output's index in its variable; what lies outside the operand's block counts as zero.
//! Floats are computed in f32 and rounded once to the output.
//!
//! Cycles are instructions counted in [`cycles`], for a loop over vectors of `width` elements. How well the code
//! is written, its author says: plain C++ has `issue=1 loop=2` (an instruction a slot, two for the loop's
//! counter and branch); with `issue=2` memory and arithmetic instructions go side by side, with `loop=0` the
//! hardware repeats the loop, and assembly has both.

mod parse;

use super::cost::{self, c};
use super::values;
use super::{Access, Arg, OperandType, VertexCost};
use pando_base::{BinaryFn, DType};
use pando_machine::Chip;
use smallvec::SmallVec;

/// Operands of one codelet, at most.
pub(super) const MOST_INPUTS: usize = 8;
pub(super) const MOST_OUTPUTS: usize = 4;

/// A hand-written vertex: [`Codelet::parse`] makes it from its code.
#[derive(Clone, Debug, PartialEq)]
pub struct Codelet {
    /// As written.
    code: String,
    /// Every value that is computed, operands first; equal ones once, as a compiler shares them.
    terms: Vec<Term>,
    outputs: Vec<usize>,
    inputs: usize,
    /// Elements that an instruction takes.
    width: u64,
    issue: Issue,
    /// Slots of a turn's counter and branch.
    loop_slots: u64,
}

/// How many instructions a worker issues in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issue {
    /// One: what the vendor's compiler makes of plain C++.
    Single,
    /// A memory or control instruction beside an arithmetic one: bundles, as in assembly.
    Paired,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Number(f64),
    /// An element of an input; no offset means none in any dimension.
    Input(usize, SmallVec<[i64; 3]>),
    Binary(BinaryFn, usize, usize),
}

impl Codelet {
    /// The code's problem as a sentence, if it has one.
    pub fn parse(code: &str, width: u64, issue: u64, loop_slots: u64) -> Result<Self, String> {
        let issue = match issue {
            1 => Issue::Single,
            2 => Issue::Paired,
            other => return Err(format!("a worker issues 1 or 2 instructions a slot, not {other}")),
        };
        if !(1..=8).contains(&width) {
            return Err(format!("an instruction takes 1 to 8 elements, not {width}"));
        }
        if loop_slots > 2 {
            return Err(format!("a loop takes 0 to 2 slots a turn, not {loop_slots}"));
        }
        let (terms, outputs) = parse::parse(code).map_err(|error| error.message().to_string())?;
        let input = |term: &Term| if let Term::Input(index, _) = term { index + 1 } else { 0 };
        let inputs = terms.iter().map(input).max().unwrap_or(0);
        Ok(Codelet { code: code.into(), terms, outputs, inputs, width, issue, loop_slots })
    }

    /// The attributes, as the text format has them.
    pub fn attributes(&self) -> String {
        let issue = if self.issue == Issue::Single { 1 } else { 2 };
        format!("code=\"{}\" width={} issue={issue} loop={}", self.code, self.width, self.loop_slots)
    }

    pub fn signature(&self) -> &'static [Access] {
        use Access::{In, Out};
        const OPERANDS: [Access; MOST_INPUTS + MOST_OUTPUTS] =
            [In, In, In, In, In, In, In, In, Out, Out, Out, Out];
        &OPERANDS[MOST_INPUTS - self.inputs..MOST_INPUTS + self.outputs.len()]
    }

    /// Arithmetic operations of one element of the outputs.
    fn operations(&self) -> u64 {
        self.terms.iter().filter(|term| matches!(term, Term::Binary(..))).count() as u64
    }

    pub fn flops(&self, operands: &[OperandType]) -> u64 {
        operands[self.inputs].num_elements().saturating_mul(self.operations())
    }
}

pub(super) fn check(codelet: &Codelet, operands: &[OperandType]) -> Result<(), String> {
    let out = operands[codelet.inputs];
    if !matches!(out.dtype, DType::F32 | DType::F16 | DType::BF16) {
        return Err(format!("computes f32, f16 and bf16, not {}", out.dtype));
    }
    let width = DType::F32.size_bytes() * 2 / out.dtype.size_bytes();
    if codelet.width > width {
        return Err(format!("an instruction takes at most {width} of {}, not {}", out.dtype, codelet.width));
    }
    for (index, operand) in operands.iter().enumerate() {
        let is_input = index < codelet.inputs;
        let suits = |(&len, &out): (&u64, &u64)| if is_input { len >= out } else { len == out };
        if operand.dtype != out.dtype
            || operand.lens.len() != out.lens.len()
            || !operand.lens.iter().zip(out.lens).all(suits)
        {
            return Err(format!("operand {index} is {operand}, which does not cover the output {out}"));
        }
    }
    for term in &codelet.terms {
        if let Term::Input(index, offset) = term
            && !offset.is_empty()
            && offset.len() != out.lens.len()
        {
            return Err(format!("i{index}{:?} has not one offset a dimension of {out}", offset.as_slice()));
        }
    }
    Ok(())
}

pub(super) fn run(codelet: &Codelet, args: &mut [Arg]) {
    let (inputs, outputs) = args.split_at_mut(codelet.inputs);
    let mut results: Vec<Vec<f32>> = Vec::with_capacity(codelet.terms.len());
    for term in &codelet.terms {
        let values = match term {
            Term::Number(number) => vec![*number as f32; outputs[0].data.num_elements() as usize],
            Term::Input(index, offset) => shifted(&inputs[*index], offset, &outputs[0]),
            Term::Binary(func, lhs, rhs) => {
                let pairs = results[*lhs].iter().zip(&results[*rhs]);
                pairs.map(|(&a, &b)| combine(*func, a, b)).collect()
            }
        };
        results.push(values);
    }
    for (out, &term) in outputs.iter_mut().zip(&codelet.outputs) {
        values::write_f32(&mut out.data, &results[term]);
    }
}

fn combine(func: BinaryFn, a: f32, b: f32) -> f32 {
    match func {
        BinaryFn::Add => a + b,
        BinaryFn::Sub => a - b,
        BinaryFn::Mul => a * b,
        BinaryFn::Div => a / b,
        other => unreachable!("codelets have no {other}"),
    }
}

/// For each element of the output the input's element at its index plus the offset.
fn shifted(input: &Arg, offset: &[i64], out: &Arg) -> Vec<f32> {
    let data = values::to_f32(&input.data);
    let mut shifted = Vec::with_capacity(out.data.num_elements() as usize);
    for index in out.data.shape().indices() {
        let mut at = Some(0u64);
        for (dim, &local) in index.iter().enumerate() {
            let (begin, end) = input.block.0[dim];
            let wanted = (out.block.0[dim].0 + local) as i64 + offset.get(dim).copied().unwrap_or(0);
            let inside = wanted >= begin as i64 && wanted < end as i64;
            at = at.filter(|_| inside).map(|at| at * (end - begin) + (wanted as u64).saturating_sub(begin));
        }
        shifted.push(at.map_or(0.0, |at| data[at as usize]));
    }
    shifted
}

/// Slots of a worker before its loop, and cycles of the supervisor around the workers: those of the vendor's
/// scaled addition and of its unary functions (hardware.md section 6.2: "scaledAdd worker 21", "UnaryOp1D ...
/// +20").
const START_SLOTS: u64 = 21;
const AROUND_CYCLES: u64 = 20;

/// Workers share the elements of the tile; each goes through its vectors. A slot an instruction ("most
/// instrs 1 slot", hardware.md section 2): a load per input element used, an instruction per operation, a
/// store per output, and the loop. With paired issue ("issue width 1 or 2, main + aux bundle", same section)
/// memory and loop are hidden behind the arithmetic or the other way round. No constant here is fitted; the
/// launch is that of elementwise vertices.
pub(super) fn cycles(codelet: &Codelet, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let out = operands[codelet.inputs];
    let loads = codelet.terms.iter().filter(|term| matches!(term, Term::Input(..))).count() as u64;
    let memory = loads + codelet.outputs.len() as u64 + codelet.loop_slots;
    let arithmetic: u64 =
        codelet.terms.iter().map(|term| operation_slots(term, out.dtype, codelet.width)).sum();
    let slots = match codelet.issue {
        Issue::Single => memory + arithmetic,
        Issue::Paired => memory.max(arithmetic),
    };
    let vectors = cost::per_worker(out.num_elements().div_ceil(codelet.width), chip);
    cost::elementwise(c(START_SLOTS) + c(vectors) * c(slots), AROUND_CYCLES, chip)
}

/// Divisions: hardware.md section 6.2 has 10 slots for two f32 and 21 for four f16, of which two loads and a
/// store are not arithmetic.
fn operation_slots(term: &Term, dtype: DType, width: u64) -> u64 {
    match term {
        Term::Binary(BinaryFn::Div, ..) if dtype == DType::F16 => (18 * width).div_ceil(4),
        Term::Binary(BinaryFn::Div, ..) => (7 * width).div_ceil(2),
        Term::Binary(..) => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;

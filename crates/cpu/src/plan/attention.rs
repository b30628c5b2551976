//! Recognises attention among the steps made so far: a product, softmax over its rows, maybe elementwise work,
//! and the product that is being made. Whatever model they come from: only the steps count.

use super::Planner;
use super::groups::is_view;
use crate::flat::FlatType;
use crate::kernel::gemm::Tiles;
use crate::options::MatmulPrecision;
use crate::step::attention::Attention;
use crate::step::gemm::{Gemm, Left, Matrix, Right};
use crate::step::program::Program;
use crate::step::rows::Rows;
use crate::step::{Kind, Step};
use crate::view::{BufferId, View};
use pando_base::DType;

/// Fewer rows do not make up for packing the right sides as words, nor do the tasks of more keys.
const LEAST_ROWS: usize = 32;
const MOST_KEYS: usize = 512;

/// Positions of the steps before the second product.
pub(super) struct Chain {
    scores: usize,
    softmax: usize,
    /// With the input that the softmax makes.
    weights: Option<(usize, usize)>,
}

impl Planner<'_> {
    /// Makes one step of a chain and the product that ends it.
    pub(super) fn attention(&mut self, chain: &Chain, mix: Gemm, rhs: View, ty: &FlatType) -> View {
        let weights = chain.weights.map(|(at, input)| (self.steps.remove(at), input));
        let softmax = self.steps.remove(chain.softmax);
        let scores = self.steps.remove(chain.scores);
        let (Kind::Gemm(scores_gemm), Kind::Rows(softmax)) = (scores.kind, softmax.kind) else {
            unreachable!("the chain has these kinds")
        };
        let mut inputs = scores.inputs;
        inputs.insert(2, rhs);
        let weights = weights.map(|(step, input)| {
            let Step { kind: Kind::Elementwise(mut program), inputs: mut extras, .. } = step else {
                unreachable!("the chain has this kind")
            };
            program.move_input_first(input);
            extras.remove(input);
            inputs.append(&mut extras);
            program
        });
        let (mut scores_gemm, mut mix) = (scores_gemm, mix);
        if let Some(words) = self.attention_words(&scores_gemm, &mix) {
            (scores_gemm.tiles, mix.tiles) = (words, words);
        }
        let attention = Attention { scores: *scores_gemm, softmax, weights, mix };
        self.emit(Kind::Attention(Box::new(attention)), inputs, ty.dtype, &ty.sizes)
    }

    /// Tiles over words for both products, if the precision asked for allows.
    fn attention_words(&self, scores: &Gemm, mix: &Gemm) -> Option<&'static Tiles> {
        let is_f32 = |matrix: &Matrix| matrix.dtype == DType::F32;
        let left = matches!(&scores.left, Left::Strided(matrix) if is_f32(matrix) && matrix.column == 1);
        let right = |gemm: &Gemm| matches!(&gemm.right, Right::Strided(matrix) if is_f32(matrix));
        let enough = scores.m >= LEAST_ROWS && scores.n <= MOST_KEYS;
        let medium = self.options.matmul_precision == MatmulPrecision::Medium;
        (medium && enough && left && right(scores) && right(mix)).then(|| self.bf16_tiles()).flatten()
    }

    /// The steps that make attention together with `mix`, a product of two views by the node at `index`.
    pub(super) fn attention_chain(&self, index: usize, mix: &Gemm, [lhs, rhs]: [&View; 2]) -> Option<Chain> {
        if !self.options.fuse {
            return None;
        }
        let whole = |view: &View| view.is_dense() && view.offset == 0 && view.dtype == DType::F32;
        let Left::Strided(left) = &mix.left else { return None };
        if mix.batch * mix.m * mix.k * mix.n == 0 {
            return None;
        }
        let rows_follow = left.row == mix.k as isize || mix.m == 1;
        let last = (mix.batch - 1) as isize * (mix.m * mix.k) as isize;
        let matrices_follow = left.batch_sizes.len() == 1 && left.offset(mix.batch - 1) == last;
        if mix.integers
            || lhs.buffer == rhs.buffer
            || !whole(lhs)
            || left.column != 1
            || !rows_follow
            || !matrices_follow
        {
            return None;
        }
        let maker = |buffer: BufferId| self.steps.iter().rposition(|step| step.outputs[0].buffer == buffer);
        let mut at = maker(lhs.buffer)?;
        matches!(self.steps[at].kind, Kind::Rows(_) | Kind::Elementwise(_)).then_some(())?;
        self.read_only_by(lhs.buffer, None, index).then_some(())?;
        let mut weights = None;
        if let Kind::Elementwise(program) = &self.steps[at].kind {
            let softmax = |view: &View| maker(view.buffer).is_some_and(|at| is_softmax(&self.steps[at].kind));
            let input = self.steps[at].inputs.iter().position(|view| whole(view) && softmax(view))?;
            let buffer = self.steps[at].inputs[input].buffer;
            let alone = self.steps[at].inputs.iter().filter(|view| view.buffer == buffer).count() == 1;
            (alone && program.output_bytes == 4 && self.read_only_by(buffer, Some(at), index))
                .then_some(())?;
            weights = Some((at, input));
            at = maker(buffer)?;
        }
        let softmax = at;
        let Kind::Rows(Rows { length, .. }) = self.steps[softmax].kind else { return None };
        let input = &self.steps[softmax].inputs[0];
        let scores = maker(input.buffer)?;
        let fits = is_softmax(&self.steps[softmax].kind)
            && length == mix.k
            && whole(input)
            && self.read_only_by(input.buffer, Some(softmax), index)
            && is_scores(&self.steps[scores].kind, mix);
        fits.then_some(Chain { scores, softmax, weights })
    }

    /// Whether a buffer is read by one step, or by none if that is `None`, and by no node but the one at
    /// `index` from there on.
    pub(super) fn read_only_by(&self, buffer: BufferId, step: Option<usize>, index: usize) -> bool {
        if self.buffers[buffer].place.is_some() {
            return false;
        }
        let mut readers = self
            .steps
            .iter()
            .enumerate()
            .filter(|(_, other)| other.inputs.iter().any(|view| view.buffer == buffer));
        if readers.next().map(|(at, _)| at) != step || readers.next().is_some() {
            return false;
        }
        let holds = |value: usize| self.views[value].as_ref().is_some_and(|view| view.buffer == buffer);
        let later = |node: usize| self.groups.root(node).unwrap_or(node) > index;
        (0..self.flat.values.len()).filter(|&value| holds(value)).all(|value| {
            let waits = |&node: &usize| {
                let is_view = is_view(&self.flat.nodes[node]) && holds(self.flat.nodes[node].results[0]);
                !is_view && (later(node) || node == index && step.is_some())
            };
            !self.flat.results.contains(&value) && !self.users[value].iter().any(waits)
        })
    }
}

fn is_softmax(kind: &Kind) -> bool {
    matches!(kind, Kind::Rows(rows) if rows.name == "softmax")
}

/// Whether a step makes f32 scores of the sizes that `mix` has on its left.
fn is_scores(kind: &Kind, mix: &Gemm) -> bool {
    let Kind::Gemm(gemm) = kind else { return false };
    let strided = matches!(gemm.left, Left::Strided(_)) && !matches!(gemm.right, Right::Windows(_));
    let f32 = !gemm.integers && gemm.target.is_none();
    let bytes = |program: &Program| program.output_bytes == 4;
    let sizes = (gemm.batch, gemm.m, gemm.n) == (mix.batch, mix.m, mix.k);
    strided && f32 && sizes && gemm.epilogue.as_ref().is_none_or(bytes)
}

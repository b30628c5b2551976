//! Makes steps of dots and convolutions in float types. Constants are packed while planning; the other side
//! is read where it lies if each group of its axes (batch, free, contracted) is one stride, and copied first
//! if not.

use super::Planner;
use super::order::{in_order, inverse, memory_order};
use crate::flat::FlatType;
use crate::kernel::elementwise::convert;
use crate::kernel::gemm::{Tiles, Word, tiles};
use crate::kernel::half;
use crate::step::gemm::{Gemm, Left, Matrix, Right};
use crate::step::integers::IntegerDot;
use crate::step::packing::Packing;
use crate::step::program::{Input, Instr, Program, Slot};
use crate::step::{Kind, Step};
use crate::view::{Sizes, View, collapse};
use pando_base::DType;
use pando_graph::Dot;

/// Types whose products are summed in f32.
pub(super) fn is_summed_in_f32(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

fn product_of(view: &View, axes: &[usize]) -> usize {
    axes.iter().map(|&axis| view.sizes[axis]).product()
}

/// The matrix with rows along some axes and columns along others, if strides can say so.
fn matrix_of(view: &View, batch: &[usize], rows: &[usize], columns: &[usize]) -> Option<Matrix> {
    let pick = |axes: &[usize]| {
        let sizes: Vec<usize> = axes.iter().map(|&axis| view.sizes[axis]).collect();
        let strides: Vec<isize> = axes.iter().map(|&axis| view.strides[axis]).collect();
        collapse(&sizes, &strides)
    };
    let one = |axes: &[usize]| {
        let (sizes, strides) = pick(axes);
        (sizes.len() == 1).then(|| strides[0])
    };
    let empty = view.num_elements() == 0;
    let (batch_sizes, batch_strides) = pick(batch);
    let stride = |axes: &[usize]| one(axes).or(empty.then_some(0));
    Some(Matrix {
        dtype: view.dtype,
        batch_sizes,
        batch_strides,
        row: stride(rows)?,
        column: stride(columns)?,
    })
}

impl Planner<'_> {
    /// A view's matrix; the view is copied if that takes other strides.
    fn matrix(&mut self, view: View, axes: [&[usize]; 3]) -> (View, Matrix) {
        if let Some(matrix) = matrix_of(&view, axes[0], axes[1], axes[2]) {
            return (view, matrix);
        }
        let order = axes.concat();
        let view = self.dense(view.transpose(&order));
        let mut begin = 0;
        let ranges = axes.map(|axes| {
            begin += axes.len();
            (begin - axes.len()..begin).collect::<Vec<usize>>()
        });
        let matrix = matrix_of(&view, &ranges[0], &ranges[1], &ranges[2]);
        (view, matrix.expect("groups of axes of a dense view are one stride"))
    }

    pub(super) fn dot(&mut self, index: usize, dot: &Dot, operands: Vec<View>, ty: &FlatType) -> View {
        let [lhs, rhs]: [View; 2] = operands.try_into().expect("dot has two operands");
        let side = |pairs: &[(usize, usize)], left: bool| -> Vec<usize> {
            pairs.iter().map(|pair| if left { pair.0 } else { pair.1 }).collect()
        };
        let (lhs_free, rhs_free) = (dot.lhs_free(lhs.sizes.len()), dot.rhs_free(rhs.sizes.len()));
        let [lhs_batch, lhs_contract] = [side(&dot.batch, true), side(&dot.contract, true)];
        let [rhs_batch, rhs_contract] = [side(&dot.batch, false), side(&dot.contract, false)];
        let [batch, m, k] = [&lhs_batch, &lhs_free, &lhs_contract].map(|axes| product_of(&lhs, axes));
        let n = product_of(&rhs, &rhs_free);
        let packed = self.is_steady(&rhs) && !self.is_steady(&lhs) && batch == 1;
        let words = self.word_tiles([&lhs, &rhs], [m, k]).filter(|_| packed);
        // Packing reads 16-bit floats one by one: good enough for constants, which are packed once.
        let [lhs, rhs] = [(lhs, words.is_some()), (rhs, false)].map(|(view, is_word)| match view.dtype {
            DType::I8 | DType::I32 if words.is_none() => self.converted(view, DType::F32),
            _ if is_word || self.is_steady(&view) => view,
            _ => self.as_f32(view),
        });
        let (lhs, left) = self.matrix(lhs, [&lhs_batch, &lhs_free, &lhs_contract]);
        let (rhs, right) = self.matrix(rhs, [&rhs_batch, &rhs_contract, &rhs_free]);
        let (lhs, left) = self.left(lhs, left, [batch, m, k]);
        let plain = tiles(self.options.isa);
        let tiles = words.unwrap_or(plain);
        let (rhs, right) = self.right(rhs, right, [batch, k, n], tiles);
        let exact = ty.dtype == DType::I32 && tiles.word != Word::F32;
        let epilogue = self.narrowing(ty).filter(|_| !exact);
        let integers = ty.dtype.is_int() && tiles.word == Word::F32;
        let mut gemm = Gemm { batch, m, n, k, left, right, tiles, plain, integers, epilogue, target: None };
        let order = self.target_order(index, ty);
        if let Some(order) = &order {
            let (view, batch, rows) = (in_order(ty, order), lhs_batch.len(), lhs_free.len());
            let axes: Vec<usize> = (0..ty.sizes.len()).collect();
            let (free, columns) = axes[batch..].split_at(rows);
            gemm.target = matrix_of(&view, &axes[..batch], free, columns).filter(|target| target.column == 1);
        }
        let order = order.filter(|_| gemm.target.is_some());
        let sizes = order.iter().flatten().map(|&axis| ty.sizes[axis]).collect();
        let stored =
            FlatType { dtype: ty.dtype, sizes: if order.is_some() { sizes } else { ty.sizes.clone() } };
        let result = match self.attention_chain(index, &gemm, [&lhs, &rhs]) {
            Some(chain) => self.attention(&chain, gemm, rhs, &stored),
            None => self.emit_gemm(gemm, vec![lhs, rhs], &stored),
        };
        match order {
            Some(order) => result.transpose(&inverse(&order)),
            None => result,
        }
    }

    /// A dot of integers of any width: wraps in the narrowest type that holds the result's bits.
    pub(super) fn integer_dot(&mut self, dot: &Dot, operands: Vec<View>, ty: &FlatType) -> View {
        let [lhs, rhs]: [View; 2] = operands.try_into().expect("dot has two operands");
        let axes = |pairs: &[(usize, usize)], left: bool| -> Vec<usize> {
            pairs.iter().map(|pair| if left { pair.0 } else { pair.1 }).collect()
        };
        let (lhs_free, rhs_free) = (dot.lhs_free(lhs.sizes.len()), dot.rhs_free(rhs.sizes.len()));
        let contract = axes(&dot.contract, true);
        let sizes = IntegerDot {
            batch: product_of(&lhs, &axes(&dot.batch, true)),
            m: product_of(&lhs, &lhs_free),
            n: product_of(&rhs, &rhs_free),
            k: product_of(&lhs, &contract),
        };
        let total = if ty.dtype.size_bytes() <= 4 { DType::I32 } else { DType::I64 };
        let lhs = lhs.transpose(&[axes(&dot.batch, true), lhs_free, contract].concat());
        let rhs = rhs.transpose(&[axes(&dot.batch, false), axes(&dot.contract, false), rhs_free].concat());
        let inputs = vec![self.converted(lhs, total), self.converted(rhs, total)];
        let sums = self.emit(Kind::IntegerDot(sizes), inputs, total, &ty.sizes);
        self.converted(sums, ty.dtype)
    }

    /// Packed if constant; `batch` matrices of its own, or as many as it has.
    pub(super) fn left(&mut self, view: View, matrix: Matrix, [batch, m, k]: [usize; 3]) -> (View, Left) {
        if !self.is_steady(&view) {
            return (view, Left::Strided(matrix));
        }
        let rows = tiles(self.options.isa).rows;
        let packing = Packing::Left { matrix, batch, m, k, rows };
        let packed = self.packed(packing, view, batch * m * k);
        (packed, Left::Packed(batch))
    }

    fn right(
        &mut self,
        view: View,
        matrix: Matrix,
        [batch, k, n]: [usize; 3],
        tiles: &'static Tiles,
    ) -> (View, Right) {
        if !self.is_steady(&view) || batch != 1 {
            return (view, Right::Strided(matrix));
        }
        let elements = n.div_ceil(tiles.columns) * tiles.panel_words(k);
        let packing = Packing::Right { matrix, k, n, tiles };
        (self.packed(packing, view, elements), Right::Packed)
    }

    /// What turns sums (f32, or i32 for integers) into the result's type, if there is anything to do.
    pub(super) fn narrowing(&self, ty: &FlatType) -> Option<Program> {
        let isa = self.options.isa;
        let from = if ty.dtype.is_int() { DType::I32 } else { DType::F32 };
        let kernel = match ty.dtype {
            DType::F32 => return None,
            dtype => half::narrow(isa, dtype).or_else(|| convert(isa, from, dtype)),
        };
        let sums = View::dense(crate::view::BufferId::default(), from, &ty.sizes);
        Some(Program {
            inputs: vec![Input::of(&sums)],
            instrs: vec![Instr::Unary(kernel?, Slot::Input(0), Slot::Output)],
            registers: 0,
            output_bytes: ty.dtype.size_bytes() as usize,
        })
    }

    pub(super) fn emit_gemm(&mut self, gemm: Gemm, inputs: Vec<View>, ty: &FlatType) -> View {
        let elements = gemm.scratch_elements();
        let scratch = (elements > 0).then(|| self.scratch(elements * 4));
        let output = self.emit(Kind::Gemm(Box::new(gemm)), inputs, ty.dtype, &ty.sizes);
        self.steps.last_mut().expect("a step was emitted").scratch = scratch;
        output
    }

    /// Moves a group's program into the product it starts from, if there is one whose result only the group
    /// reads.
    pub(super) fn attach(&mut self, root: usize, mut program: Program, mut inputs: Vec<View>) -> View {
        let ty = self.flat.values[self.flat.nodes[root].results[0]].clone();
        let order = memory_order(&inputs).filter(|_| self.options.fuse);
        let sizes: Sizes = match &order {
            Some(order) => {
                inputs.iter_mut().for_each(|view| *view = view.transpose(order));
                program.inputs = inputs.iter().map(Input::of).collect();
                order.iter().map(|&axis| ty.sizes[axis]).collect()
            }
            None => ty.sizes.clone(),
        };
        let found = (0..inputs.len())
            .find_map(|input| Some((input, self.product_behind(root, input, &inputs, ty.dtype)?)));
        let output = match found {
            None => match self.looked_up(program, inputs, ty.dtype, &sizes) {
                Ok(output) => output,
                Err((program, inputs)) => self.emit(Kind::Elementwise(program), inputs, ty.dtype, &sizes),
            },
            Some((input, at)) => {
                program.move_input_first(input);
                inputs.remove(input);
                let Step { name, kind, inputs: mut operands, scratch, .. } = self.steps.remove(at);
                operands.append(&mut inputs);
                let output = self.emit(kind.with_epilogue(program), operands, ty.dtype, &sizes);
                let step = self.steps.last_mut().expect("a step was emitted");
                (step.name, step.scratch) = (name, scratch);
                output
            }
        };
        match order {
            Some(order) => output.transpose(&inverse(&order)),
            None => output,
        }
    }

    /// The position of the step whose whole result is this input and reaches nothing but the group.
    pub(super) fn product_behind(
        &self,
        root: usize,
        input: usize,
        inputs: &[View],
        output: DType,
    ) -> Option<usize> {
        let view = &inputs[input];
        let others = inputs.iter().enumerate().any(|(i, other)| i != input && other.buffer == view.buffer);
        let dense = view.is_dense() && view.offset == 0 && view.num_elements() > 0;
        if others || !dense || !self.options.fuse || self.is_steady(view) {
            return None;
        }
        let at = self.steps.iter().rposition(|step| step.outputs[0].buffer == view.buffer)?;
        let takes = self.steps[at].kind.takes_epilogue(output)
            && self.steps[at].outputs[0].num_elements() == view.num_elements();
        let value = self
            .views
            .iter()
            .position(|known| known.as_ref().is_some_and(|known| known.buffer == view.buffer))?;
        (takes && self.reaches_only(value, root)).then_some(at)
    }

    /// Whether every use of a value, views looked through, is in the group.
    fn reaches_only(&self, value: usize, root: usize) -> bool {
        if self.flat.results.contains(&value) {
            return false;
        }
        self.users[value].iter().all(|&user| {
            let node = &self.flat.nodes[user];
            self.groups.root(user) == Some(root)
                || super::groups::is_view(node) && self.reaches_only(node.results[0], root)
        })
    }
}

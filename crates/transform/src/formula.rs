//! Arithmetic on values of a builder in the notation of formulas: `m + (g - m) * rest`. Scalars meet tensors of
//! any dimensions. The first op that is refused is remembered, what follows it is not built; the error comes out
//! of [`Formula::values`]. Not here: what a formula means.

use pando_base::{BinaryFn, CompareFn, DType, Error, ReduceFn, Result, UnaryFn};
use pando_graph::{Builder, Dims, TensorType, ValueId};
use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Where formulas are written: a builder that several expressions share.
pub(crate) struct Formula<'b> {
    builder: RefCell<&'b mut Builder>,
    error: RefCell<Option<Error>>,
}

/// A value in a formula.
#[derive(Clone, Copy)]
pub(crate) struct Expr<'f> {
    formula: &'f Formula<'f>,
    value: ValueId,
}

impl<'b> Formula<'b> {
    pub fn new(builder: &'b mut Builder) -> Self {
        Formula { builder: RefCell::new(builder), error: RefCell::new(None) }
    }

    pub fn at(&'b self, value: ValueId) -> Expr<'b> {
        Expr { formula: self, value }
    }

    pub fn all<const N: usize>(&'b self, values: [ValueId; N]) -> [Expr<'b>; N] {
        values.map(|value| self.at(value))
    }

    pub fn scalar(&'b self, dtype: DType, number: f64) -> Expr<'b> {
        let value = self.builder.borrow_mut().scalar(dtype, number);
        self.at(value)
    }

    /// The values of a formula's results, or why they could not be built.
    pub fn values<const N: usize>(&'b self, results: [Expr<'b>; N]) -> Result<[ValueId; N]> {
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(results.map(|expr| expr.value)),
        }
    }

    pub fn value(&'b self, result: Expr<'b>) -> Result<ValueId> {
        self.values([result]).map(|[value]| value)
    }

    /// What `build` makes; after an error `otherwise` stands for everything.
    fn build(&'b self, otherwise: ValueId, build: impl FnOnce(&mut Builder) -> Result<ValueId>) -> Expr<'b> {
        if self.error.borrow().is_some() {
            return self.at(otherwise);
        }
        let built = build(&mut self.builder.borrow_mut());
        let value = built.unwrap_or_else(|error| {
            self.error.replace(Some(error));
            otherwise
        });
        self.at(value)
    }
}

macro_rules! unary {
    ($($name:ident => $func:ident),*) => {
        $(pub fn $name(self) -> Self { self.then(|b, x| b.unary(UnaryFn::$func, x)) })*
    };
}

macro_rules! compare {
    ($($name:ident => $func:ident),*) => {
        $(pub fn $name(self, other: impl Operand<'f>) -> Self {
            let other = other.expr(self);
            self.aligned(other, |b, x, y| b.compare(CompareFn::$func, x, y))
        })*
    };
}

impl<'f> Expr<'f> {
    unary!(abs => Abs, exp => Exp, expm1 => Expm1, log => Log, log1p => Log1p, sqrt => Sqrt,
           not => Not);
    compare!(eq => Eq, ne => Ne, lt => Lt, le => Le, gt => Gt, ge => Ge);

    /// Any op of the builder.
    pub fn then(self, build: impl FnOnce(&mut Builder, ValueId) -> Result<ValueId>) -> Self {
        self.formula.build(self.value, |b| build(b, self.value))
    }

    pub fn with(
        self,
        other: Self,
        build: impl FnOnce(&mut Builder, ValueId, ValueId) -> Result<ValueId>,
    ) -> Self {
        self.formula.build(self.value, |b| build(b, self.value, other.value))
    }

    pub fn ty(self) -> TensorType {
        self.formula.builder.borrow().ty(self.value).clone()
    }

    pub fn dims(self) -> Dims {
        self.ty().dims
    }

    pub fn to(self, dtype: DType) -> Self {
        self.then(|b, x| b.convert(x, dtype))
    }

    /// The same value, a constant to gradients.
    pub fn detached(self) -> Self {
        self.then(|b, x| b.detach(x))
    }

    pub fn square(self) -> Self {
        self * self
    }

    /// `log(1 / (1 + exp(-x)))` without its overflow.
    pub fn log_sigmoid(self) -> Self {
        self.min(0.0) - (-self.abs()).exp().log1p()
    }

    pub fn max(self, other: impl Operand<'f>) -> Self {
        self.binary(BinaryFn::Max, other.expr(self))
    }

    pub fn min(self, other: impl Operand<'f>) -> Self {
        self.binary(BinaryFn::Min, other.expr(self))
    }

    /// Of bools.
    pub fn and(self, other: Self) -> Self {
        self.binary(BinaryFn::And, other)
    }

    /// `on_true` where this holds, `on_false` elsewhere.
    pub fn pick(self, on_true: Self, on_false: impl Operand<'f>) -> Self {
        let on_false = on_false.expr(on_true);
        self.formula.build(on_true.value, |b| {
            let widest = [self, on_true, on_false].map(|expr| b.ty(expr.value).dims.clone());
            let dims = widest.into_iter().max_by_key(|dims| dims.len()).expect("there are three");
            let [condition, on_true, on_false] =
                [self, on_true, on_false].map(|x| widened(b, x.value, &dims));
            b.select(condition?, on_true?, on_false?)
        })
    }

    /// A scalar of this value's type.
    pub fn number(self, number: f64) -> Self {
        self.formula.scalar(self.ty().dtype, number)
    }

    /// A number in this value's type and dimensions.
    pub fn filled(self, number: f64) -> Self {
        self.then(|b, x| b.splat_like(x, number))
    }

    /// Another value of the builder beside this one.
    pub fn sibling(self, value: ValueId) -> Self {
        self.formula.at(value)
    }

    /// Over all elements.
    pub fn sum(self) -> Self {
        let axes: Vec<usize> = (0..self.dims().len()).collect();
        self.sum_over(&axes)
    }

    pub fn sum_over(self, axes: &[usize]) -> Self {
        self.then(|b, x| b.reduce(ReduceFn::Sum, x, axes))
    }

    /// Operand dimension `i` becomes dimension `axes[i]` of `dims`.
    pub fn broadcast(self, dims: Dims, axes: &[usize]) -> Self {
        self.then(|b, x| b.broadcast(x, dims, axes))
    }

    /// The Euclidean norm of all elements.
    pub fn norm(self) -> Self {
        self.square().sum().sqrt()
    }

    fn binary(self, func: BinaryFn, other: Self) -> Self {
        self.aligned(other, |b, x, y| b.binary(func, x, y))
    }

    /// An op on two operands; a scalar takes the dimensions of the other.
    fn aligned(
        self,
        other: Self,
        build: impl FnOnce(&mut Builder, ValueId, ValueId) -> Result<ValueId>,
    ) -> Self {
        self.with(other, |b, x, y| {
            let (x_dims, y_dims) = (b.ty(x).dims.clone(), b.ty(y).dims.clone());
            let (x, y) = (widened(b, x, &y_dims)?, widened(b, y, &x_dims)?);
            build(b, x, y)
        })
    }
}

/// A scalar in these dimensions; anything else as it is.
fn widened(b: &mut Builder, x: ValueId, dims: &Dims) -> Result<ValueId> {
    match b.ty(x).rank() == 0 && !dims.is_empty() {
        true => b.broadcast(x, dims.clone(), &[]),
        false => Ok(x),
    }
}

/// What may stand beside an expression: another one, or a number in its type.
pub(crate) trait Operand<'f> {
    fn expr(self, beside: Expr<'f>) -> Expr<'f>;
}

impl<'f> Operand<'f> for Expr<'f> {
    fn expr(self, _: Expr<'f>) -> Expr<'f> {
        self
    }
}

impl<'f> Operand<'f> for f64 {
    fn expr(self, beside: Expr<'f>) -> Expr<'f> {
        beside.formula.scalar(beside.ty().dtype, self)
    }
}

macro_rules! operators {
    ($($trait:ident, $method:ident, $func:ident);*) => {
        $(impl<'f, T: Operand<'f>> $trait<T> for Expr<'f> {
            type Output = Expr<'f>;
            fn $method(self, other: T) -> Expr<'f> {
                let other = other.expr(self);
                self.binary(BinaryFn::$func, other)
            }
        }

        impl<'f> $trait<Expr<'f>> for f64 {
            type Output = Expr<'f>;
            fn $method(self, other: Expr<'f>) -> Expr<'f> {
                self.expr(other).binary(BinaryFn::$func, other)
            }
        })*
    };
}
operators!(Add, add, Add; Sub, sub, Sub; Mul, mul, Mul; Div, div, Div);

impl<'f> Neg for Expr<'f> {
    type Output = Expr<'f>;
    fn neg(self) -> Expr<'f> {
        self.then(|b, x| b.neg(x))
    }
}

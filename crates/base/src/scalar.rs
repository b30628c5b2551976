//! The names of scalar functions, shared by both IRs. Only names: the graph evaluator and the tile
//! kernels each say for themselves how to compute them, so that one can judge the other.

use std::fmt;

macro_rules! scalar_fns {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant),* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The spelling in the text formats.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|function| function.name() == name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

scalar_fns! {
    /// Functions of one operand; the result has the operand's type.
    UnaryFn {
        Neg = "neg", Abs = "abs", Sign = "sign", Floor = "floor", Ceil = "ceil",
        /// Ties to even.
        Round = "round",
        Exp = "exp", Expm1 = "expm1", Log = "log", Log1p = "log1p", Sqrt = "sqrt",
        Sin = "sin", Cos = "cos", Tanh = "tanh", Erf = "erf",
        /// Logical on bool, bitwise on integers.
        Not = "not",
    }
}

scalar_fns! {
    /// Functions of two operands of one type; the result has that type.
    BinaryFn {
        Add = "add", Sub = "sub", Mul = "mul",
        /// Integers truncate toward zero; division by zero gives zero.
        Div = "div",
        /// The remainder of `div`, with the sign of the dividend; by zero gives zero for integers.
        Rem = "rem",
        Pow = "pow", Atan2 = "atan2",
        /// NaN if either operand is.
        Max = "max", Min = "min",
        /// Logical on bool, bitwise on integers.
        And = "and", Or = "or", Xor = "xor",
        /// Shifting by the width or more gives what shifting bit by bit would.
        Shl = "shl", Shr = "shr",
    }
}

scalar_fns! {
    /// Comparisons; the result is bool. With NaN only `ne` holds.
    CompareFn { Eq = "eq", Ne = "ne", Lt = "lt", Le = "le", Gt = "gt", Ge = "ge" }
}

scalar_fns! {
    /// Associative combinations used by reductions and scatters.
    ReduceFn { Sum = "sum", Prod = "prod", Max = "max", Min = "min", And = "and", Or = "or" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_round_trip() {
        assert!(UnaryFn::ALL.iter().all(|f| UnaryFn::from_name(f.name()) == Some(*f)));
        assert!(BinaryFn::ALL.iter().all(|f| BinaryFn::from_name(f.name()) == Some(*f)));
        assert!(CompareFn::ALL.iter().all(|f| CompareFn::from_name(f.name()) == Some(*f)));
        assert!(ReduceFn::ALL.iter().all(|f| ReduceFn::from_name(f.name()) == Some(*f)));
        assert_eq!(UnaryFn::from_name("relu"), None);
    }
}

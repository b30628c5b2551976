//! Attributes of every op as text, both directions side by side. An attribute is an atom or a list.
//! What the result type says already (the dimensions of a reshape, the type of a convert) is not
//! repeated: `write` leaves it out, `read` takes it from the type. Lists of ones, zero padding and flags
//! that are off are left out too.

use crate::errors;
use crate::module::{FuncId, Module};
use crate::op::{Conv, Distribution, Dot, Op, Pad, ReduceWindow, Scan, Slice, Sort};
use crate::types::{Dim, Dims, TensorType};
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result, UnaryFn};
use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Atom {
    Int(i128),
    Word(String),
    Type(DType),
    /// `@name`
    Symbol(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Attr {
    One(Atom),
    List(Vec<Atom>),
    /// `[0:1, 2:3]`
    Pairs(Vec<(i128, i128)>),
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Int(value) => write!(f, "{value}"),
            Atom::Word(word) => f.write_str(word),
            Atom::Type(dtype) => write!(f, "{dtype}"),
            Atom::Symbol(name) => write!(f, "@{name}"),
        }
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: Vec<String>| format!("[{}]", items.join(","));
        match self {
            Attr::One(atom) => write!(f, "{atom}"),
            Attr::List(atoms) => f.write_str(&list(atoms.iter().map(Atom::to_string).collect())),
            Attr::Pairs(pairs) => f.write_str(&list(pairs.iter().map(|(a, b)| format!("{a}:{b}")).collect())),
        }
    }
}

type Named = (&'static str, Attr);

fn word(name: &'static str, value: &str) -> Named {
    (name, Attr::One(Atom::Word(value.into())))
}

fn int(name: &'static str, value: impl TryInto<i128, Error: fmt::Debug>) -> Named {
    (name, Attr::One(Atom::Int(value.try_into().expect("an attribute fits i128"))))
}

fn ints<T: Copy + TryInto<i128, Error: fmt::Debug>>(name: &'static str, values: &[T]) -> Named {
    let atom = |&value: &T| Atom::Int(value.try_into().expect("an attribute fits i128"));
    (name, Attr::List(values.iter().map(atom).collect()))
}

fn pairs<T: Copy + TryInto<i128, Error: fmt::Debug>>(name: &'static str, values: &[(T, T)]) -> Named {
    let wide = |value: T| value.try_into().expect("an attribute fits i128");
    (name, Attr::Pairs(values.iter().map(|&(a, b)| (wide(a), wide(b))).collect()))
}

fn unless_all<T: PartialEq>(values: &[T], default: T, attr: Named) -> Option<Named> {
    values.iter().any(|value| *value != default).then_some(attr)
}

fn flag(name: &'static str, value: bool, default: bool) -> Option<Named> {
    (value != default).then(|| word(name, if value { "true" } else { "false" }))
}

fn dtype(value: Option<DType>) -> Option<Named> {
    value.map(|dtype| ("dtype", Attr::One(Atom::Type(dtype))))
}

/// The attributes to print, in order.
pub(super) fn write(op: &Op, module: &Module) -> Vec<Named> {
    let func = |name, id: FuncId| (name, Attr::One(Atom::Symbol(module.funcs[id].name.clone())));
    match op {
        Op::Iota { axis, .. } => vec![int("axis", *axis)],
        Op::Random { distribution, .. } => vec![word("distribution", distribution.name())],
        Op::Transpose { perm } => vec![ints("perm", perm)],
        Op::Broadcast { axes, .. } | Op::Reverse { axes } => vec![ints("axes", axes)],
        Op::Slice(slice) => write_slice(slice),
        Op::Pad(pad) => write_pad(pad),
        Op::Concat { axis } | Op::Gather { axis } => vec![int("axis", *axis)],
        Op::Scatter { axis, combine } => write_scatter(*axis, *combine),
        Op::Dot(dot) => write_dot(dot),
        Op::Conv(conv) => write_conv(conv),
        Op::Reduce { func, axes } => vec![word("func", func.name()), ints("axes", axes)],
        Op::ReduceWindow(window) => write_reduce_window(window),
        Op::Scan(scan) => write_scan(scan),
        Op::Sort(sort) => write_sort(sort),
        Op::If { then_func, else_func } => vec![func("then", *then_func), func("else", *else_func)],
        Op::While { cond, body } => vec![func("cond", *cond), func("body", *body)],
        Op::Repeat { count, body } => vec![int("count", *count), func("body", *body)],
        _ => vec![],
    }
}

/// What reading an op's attributes may look at.
pub(super) struct Reader<'a> {
    pub op: &'a str,
    /// As written; what has been read is taken out.
    pub attrs: Vec<(String, Attr)>,
    /// Names that were asked for, for the error about an unknown one.
    pub asked: Vec<&'static str>,
    pub operands: &'a [&'a TensorType],
    pub results: &'a [TensorType],
    pub func: &'a dyn Fn(&str) -> Result<FuncId>,
}

/// The op of a mnemonic, but for `constant` and `call`, whose symbol is not an attribute.
pub(super) fn read(reader: &mut Reader) -> Result<Op> {
    if let Some(op) = read_elementwise(reader.op, reader.result_type()) {
        return Ok(op);
    }
    let TensorType { dtype, dims } = reader.result_type();
    Ok(match reader.op {
        "iota" => Op::Iota { dtype, dims, axis: reader.number("axis")? },
        "random" => Op::Random { distribution: reader.distribution()?, dtype, dims },
        "reshape" => Op::Reshape { dims },
        "transpose" => Op::Transpose { perm: reader.numbers("perm")? },
        "broadcast" => Op::Broadcast { dims, axes: reader.numbers("axes")? },
        "slice" => Op::Slice(read_slice(reader)?),
        "pad" => Op::Pad(read_pad(reader)?),
        "concat" => Op::Concat { axis: reader.number("axis")? },
        "reverse" => Op::Reverse { axes: reader.numbers("axes")? },
        "gather" => Op::Gather { axis: reader.number("axis")? },
        "scatter" => Op::Scatter { axis: reader.number("axis")?, combine: reader.combine()? },
        "dot" => Op::Dot(read_dot(reader)?),
        "conv" => Op::Conv(read_conv(reader)?),
        "reduce" => Op::Reduce { func: reader.reduce_fn("func")?, axes: reader.numbers("axes")? },
        "reduce_window" => Op::ReduceWindow(read_reduce_window(reader)?),
        "scan" => Op::Scan(read_scan(reader)?),
        "sort" => Op::Sort(read_sort(reader)?),
        "if" => Op::If { then_func: reader.symbol("then")?, else_func: reader.symbol("else")? },
        "while" => Op::While { cond: reader.symbol("cond")?, body: reader.symbol("body")? },
        "repeat" => Op::Repeat { count: reader.number("count")?, body: reader.symbol("body")? },
        unknown => return Err(errors::unknown_op(unknown, closest_op(unknown))),
    })
}

fn read_elementwise(name: &str, result: TensorType) -> Option<Op> {
    let other = || match name {
        "select" => Some(Op::Select),
        "convert" => Some(Op::Convert(result.dtype)),
        "bitcast" => Some(Op::Bitcast(result.dtype)),
        _ => None,
    };
    let unary = UnaryFn::from_name(name).map(Op::Unary);
    let binary = || BinaryFn::from_name(name).map(Op::Binary);
    let compare = || CompareFn::from_name(name).map(Op::Compare);
    unary.or_else(binary).or_else(compare).or_else(other)
}

/// Ops that take attributes from their result's type.
pub(super) const TYPED_BY_RESULT: [&str; 6] =
    ["iota", "random", "reshape", "broadcast", "convert", "bitcast"];

const NAMES: [&str; 25] = [
    "constant",
    "iota",
    "random",
    "select",
    "convert",
    "bitcast",
    "reshape",
    "transpose",
    "broadcast",
    "slice",
    "pad",
    "concat",
    "reverse",
    "gather",
    "scatter",
    "dot",
    "conv",
    "reduce",
    "reduce_window",
    "scan",
    "sort",
    "call",
    "if",
    "while",
    "repeat",
];

/// All spellings of ops in the text format.
pub fn op_names() -> impl Iterator<Item = &'static str> {
    let unary = UnaryFn::ALL.iter().map(|f| f.name());
    let binary = BinaryFn::ALL.iter().map(|f| f.name());
    let compare = CompareFn::ALL.iter().map(|f| f.name());
    NAMES.into_iter().chain(unary).chain(binary).chain(compare)
}

fn closest_op(name: &str) -> Option<&'static str> {
    // Long words are nothing near an op, and the distance costs their length.
    let close = |op: &&str| name.len() <= 32 && edit_distance(name, op) <= op.len().div_ceil(2).min(3);
    op_names().filter(close).min_by_key(|op| edit_distance(name, op))
}

/// Levenshtein distance by the row-by-row recurrence.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn write_slice(slice: &Slice) -> Vec<Named> {
    let end = slice.end.iter().map(|dim| match dim {
        Dim::Known(size) => Atom::Int((*size).into()),
        Dim::Named(name) => Atom::Word(name.to_string()),
    });
    let mut attrs = vec![ints("begin", &slice.begin), ("end", Attr::List(end.collect()))];
    attrs.extend(unless_all(&slice.step, 1, ints("step", &slice.step)));
    attrs
}

fn read_slice(reader: &mut Reader) -> Result<Slice> {
    let begin: Vec<u64> = reader.numbers("begin")?;
    let step = reader.numbers_or("step", vec![1; begin.len()])?;
    Ok(Slice { begin, end: reader.dims("end")?, step })
}

fn write_pad(pad: &Pad) -> Vec<Named> {
    let mut attrs = vec![ints("low", &pad.low), ints("high", &pad.high)];
    attrs.extend(unless_all(&pad.interior, 0, ints("interior", &pad.interior)));
    attrs
}

fn read_pad(reader: &mut Reader) -> Result<Pad> {
    let low: Vec<i64> = reader.numbers("low")?;
    let interior = reader.numbers_or("interior", vec![0; low.len()])?;
    Ok(Pad { low, high: reader.numbers("high")?, interior })
}

fn write_scatter(axis: usize, combine: Option<ReduceFn>) -> Vec<Named> {
    let mut attrs = vec![int("axis", axis)];
    attrs.extend(combine.map(|func| word("combine", func.name())));
    attrs
}

fn write_dot(dot: &Dot) -> Vec<Named> {
    let mut attrs = Vec::new();
    attrs.extend((!dot.batch.is_empty()).then(|| pairs("batch", &dot.batch)));
    attrs.push(pairs("contract", &dot.contract));
    attrs.extend(dtype(dot.dtype));
    attrs
}

fn read_dot(reader: &mut Reader) -> Result<Dot> {
    Ok(Dot {
        batch: reader.pairs_or("batch", vec![])?,
        contract: reader.pairs("contract")?,
        dtype: reader.dtype("dtype")?,
    })
}

fn write_conv(conv: &Conv) -> Vec<Named> {
    let optional = [
        unless_all(&conv.strides, 1, ints("strides", &conv.strides)),
        unless_all(&conv.padding, (0, 0), pairs("padding", &conv.padding)),
        unless_all(&conv.input_dilation, 1, ints("input_dilation", &conv.input_dilation)),
        unless_all(&conv.kernel_dilation, 1, ints("kernel_dilation", &conv.kernel_dilation)),
        (conv.groups != 1).then(|| int("groups", conv.groups)),
        dtype(conv.dtype),
    ];
    optional.into_iter().flatten().collect()
}

fn read_conv(reader: &mut Reader) -> Result<Conv> {
    let rank = reader.operands.first().map_or(0, |input| input.rank().saturating_sub(2));
    Ok(Conv {
        strides: reader.numbers_or("strides", vec![1; rank])?,
        padding: reader.pairs_or("padding", vec![(0, 0); rank])?,
        input_dilation: reader.numbers_or("input_dilation", vec![1; rank])?,
        kernel_dilation: reader.numbers_or("kernel_dilation", vec![1; rank])?,
        groups: reader.number_or("groups", 1)?,
        dtype: reader.dtype("dtype")?,
    })
}

fn write_reduce_window(window: &ReduceWindow) -> Vec<Named> {
    let mut attrs = vec![word("func", window.func.name()), ints("window", &window.window)];
    attrs.extend(unless_all(&window.strides, 1, ints("strides", &window.strides)));
    attrs.extend(unless_all(&window.padding, (0, 0), pairs("padding", &window.padding)));
    attrs.extend(unless_all(&window.dilation, 1, ints("dilation", &window.dilation)));
    attrs
}

fn read_reduce_window(reader: &mut Reader) -> Result<ReduceWindow> {
    let func = reader.reduce_fn("func")?;
    let window: Vec<u64> = reader.numbers("window")?;
    let rank = window.len();
    Ok(ReduceWindow {
        func,
        window,
        strides: reader.numbers_or("strides", vec![1; rank])?,
        padding: reader.pairs_or("padding", vec![(0, 0); rank])?,
        dilation: reader.numbers_or("dilation", vec![1; rank])?,
    })
}

fn write_scan(scan: &Scan) -> Vec<Named> {
    let mut attrs = vec![word("func", scan.func.name()), int("axis", scan.axis)];
    attrs.extend(flag("exclusive", scan.exclusive, false));
    attrs.extend(flag("reverse", scan.reverse, false));
    attrs
}

fn read_scan(reader: &mut Reader) -> Result<Scan> {
    Ok(Scan {
        func: reader.reduce_fn("func")?,
        axis: reader.number("axis")?,
        exclusive: reader.flag("exclusive", false)?,
        reverse: reader.flag("reverse", false)?,
    })
}

fn write_sort(sort: &Sort) -> Vec<Named> {
    let mut attrs = vec![int("axis", sort.axis)];
    attrs.extend(flag("descending", sort.descending, false));
    attrs.extend(flag("stable", sort.stable, true));
    attrs
}

fn read_sort(reader: &mut Reader) -> Result<Sort> {
    Ok(Sort {
        axis: reader.number("axis")?,
        descending: reader.flag("descending", false)?,
        stable: reader.flag("stable", true)?,
    })
}

impl Reader<'_> {
    /// The first result's type; what is missing is reported by the check of the number of results.
    fn result_type(&self) -> TensorType {
        self.results.first().cloned().unwrap_or(TensorType { dtype: DType::F32, dims: Dims::new() })
    }

    fn take(&mut self, name: &'static str) -> Option<Attr> {
        self.asked.push(name);
        let at = self.attrs.iter().position(|(found, _)| found == name)?;
        Some(self.attrs.remove(at).1)
    }

    /// Takes a required attribute and turns it into a value.
    fn required<T>(
        &mut self,
        name: &'static str,
        form: &str,
        convert: impl FnOnce(Attr) -> Option<T>,
    ) -> Result<T> {
        let attr = self.take(name).ok_or_else(|| errors::missing_attribute(self.op, name, form))?;
        convert(attr).ok_or_else(|| errors::wrong_attribute(self.op, name, form))
    }

    fn optional<T>(
        &mut self,
        name: &'static str,
        form: &str,
        default: T,
        convert: impl FnOnce(Attr) -> Option<T>,
    ) -> Result<T> {
        match self.take(name) {
            Some(attr) => convert(attr).ok_or_else(|| errors::wrong_attribute(self.op, name, form)),
            None => Ok(default),
        }
    }

    fn number<T: TryFrom<i128>>(&mut self, name: &'static str) -> Result<T> {
        self.required(name, "3", one_number)
    }

    fn number_or<T: TryFrom<i128>>(&mut self, name: &'static str, default: T) -> Result<T> {
        self.optional(name, "3", default, one_number)
    }

    fn numbers<T: TryFrom<i128>>(&mut self, name: &'static str) -> Result<Vec<T>> {
        self.required(name, "[0,1]", list_of_numbers)
    }

    fn numbers_or<T: TryFrom<i128>>(&mut self, name: &'static str, default: Vec<T>) -> Result<Vec<T>> {
        self.optional(name, "[0,1]", default, list_of_numbers)
    }

    fn pairs<T: TryFrom<i128>>(&mut self, name: &'static str) -> Result<Vec<(T, T)>> {
        self.required(name, "[0:1,2:3]", list_of_pairs)
    }

    fn pairs_or<T: TryFrom<i128>>(
        &mut self,
        name: &'static str,
        default: Vec<(T, T)>,
    ) -> Result<Vec<(T, T)>> {
        self.optional(name, "[0:1,2:3]", default, list_of_pairs)
    }

    fn dims(&mut self, name: &'static str) -> Result<Dims> {
        self.required(name, "[2,N]", list_of_dims)
    }

    fn flag(&mut self, name: &'static str, default: bool) -> Result<bool> {
        self.optional(name, "true", default, |attr| match one_word(attr)?.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        })
    }

    fn dtype(&mut self, name: &'static str) -> Result<Option<DType>> {
        self.optional(name, "f32", None, |attr| match attr {
            Attr::One(Atom::Type(dtype)) => Some(Some(dtype)),
            _ => None,
        })
    }

    fn reduce_fn(&mut self, name: &'static str) -> Result<ReduceFn> {
        self.required(name, "sum|prod|max|min|and|or", |attr| ReduceFn::from_name(&one_word(attr)?))
    }

    fn combine(&mut self) -> Result<Option<ReduceFn>> {
        self.optional("combine", "sum|prod|max|min|and|or", None, |attr| {
            ReduceFn::from_name(&one_word(attr)?).map(Some)
        })
    }

    fn distribution(&mut self) -> Result<Distribution> {
        self.required("distribution", "uniform|normal", |attr| match one_word(attr)?.as_str() {
            "uniform" => Some(Distribution::Uniform),
            "normal" => Some(Distribution::Normal),
            _ => None,
        })
    }

    fn symbol(&mut self, name: &'static str) -> Result<FuncId> {
        let symbol = self.required(name, "@func", |attr| match attr {
            Attr::One(Atom::Symbol(symbol)) => Some(symbol),
            _ => None,
        })?;
        (self.func)(&symbol)
    }

    /// Whatever is left has not been asked for.
    pub(super) fn finish(&self) -> Result<()> {
        match self.attrs.first() {
            Some((name, _)) => Err(errors::unknown_attribute(self.op, name, &self.asked)),
            None => Ok(()),
        }
    }
}

fn one_number<T: TryFrom<i128>>(attr: Attr) -> Option<T> {
    match attr {
        Attr::One(Atom::Int(value)) => value.try_into().ok(),
        _ => None,
    }
}

fn one_word(attr: Attr) -> Option<String> {
    match attr {
        Attr::One(Atom::Word(word)) => Some(word),
        _ => None,
    }
}

fn list_of_numbers<T: TryFrom<i128>>(attr: Attr) -> Option<Vec<T>> {
    let Attr::List(atoms) = attr else { return None };
    atoms.into_iter().map(|atom| one_number(Attr::One(atom))).collect()
}

fn list_of_dims(attr: Attr) -> Option<Dims> {
    let Attr::List(atoms) = attr else { return None };
    let dim = |atom| match atom {
        Atom::Int(value) => u64::try_from(value).ok().map(Dim::Known),
        Atom::Word(word) => Some(Dim::named(&word)),
        _ => None,
    };
    atoms.into_iter().map(dim).collect()
}

fn list_of_pairs<T: TryFrom<i128>>(attr: Attr) -> Option<Vec<(T, T)>> {
    match attr {
        Attr::Pairs(pairs) => {
            pairs.into_iter().map(|(a, b)| Some((a.try_into().ok()?, b.try_into().ok()?))).collect()
        }
        Attr::List(atoms) if atoms.is_empty() => Some(vec![]),
        _ => None,
    }
}

//! Kernel names and attributes in text: `reduce.sum{axes=[1]}`.

use crate::kernel::{
    Codelet, ConvAttrs, ConvMethod, Dims, Kernel, MapAttrs, MapFn, MapStep, ScanAttrs, ScatterAttrs,
    SliceAttrs, Smooth, WindowAttrs,
};
use pando_base::lexer::{Cursor, TokenKind};
use pando_base::random::Distribution;
use pando_base::{BinaryFn, CompareFn, DType, Error, ReduceFn, Result, UnaryFn};
use smallvec::SmallVec;
use std::collections::BTreeMap;

use super::printer::float;

type Pairs = SmallVec<[(u8, u8); 2]>;

/// The attributes in braces; nothing for kernels without.
pub fn print_attributes(kernel: &Kernel) -> String {
    let text = match kernel {
        Kernel::Fill { value } => format!("value={}", float(*value)),
        Kernel::Broadcast { dims } => format!("dims={}", list(dims)),
        Kernel::Transpose { perm } => format!("perm={}", list(perm)),
        Kernel::Reduce { axes, .. } => format!("axes={}", list(axes)),
        Kernel::MatMul { batch, contract, order, partials } => {
            let order = if order.is_empty() { String::new() } else { format!(" order={}", list(order)) };
            format!("batch={} contract={}{order} partials={partials}", pairs(batch), pairs(contract))
        }
        Kernel::Conv(attrs) => print_conv(attrs),
        Kernel::Gather { axis, size } | Kernel::Update { axis, size } => format!("axis={axis} size={size}"),
        Kernel::TakeSlice(attrs) | Kernel::PutSlice(attrs) => {
            format!("axis={} chunk={} slices={}", attrs.axis, attrs.chunk, attrs.slices)
        }
        Kernel::Codelet(codelet) => codelet.attributes(),
        Kernel::Map(attrs) => print_map(attrs),
        Kernel::Iota { axis } | Kernel::Take { axis } => format!("axis={axis}"),
        Kernel::ReduceWindow { attrs, .. } | Kernel::WindowGrad { attrs, .. } => format!(
            "window={} strides={} padding={} dilation={}",
            list(&attrs.window),
            list(&attrs.strides),
            list(&attrs.padding_low),
            list(&attrs.dilation)
        ),
        Kernel::Scan(attrs) => format!(
            "axis={} exclusive={} reverse={} start={}",
            attrs.axis,
            u8::from(attrs.exclusive),
            u8::from(attrs.reverse),
            u8::from(attrs.start)
        ),
        Kernel::Scatter(attrs) => {
            format!("axis={} size={} onto={}", attrs.axis, attrs.size, u8::from(attrs.onto))
        }
        Kernel::Sort { axis, descending, ordered } => {
            format!("axis={axis} descending={} ordered={}", u8::from(*descending), u8::from(*ordered))
        }
        Kernel::Merge { side, descending, ordered } => {
            format!("side={side} descending={} ordered={}", u8::from(*descending), u8::from(*ordered))
        }
        _ => return String::new(),
    };
    format!("{{{text}}}")
}

fn print_conv(attrs: &ConvAttrs) -> String {
    format!(
        "strides={} padding={} dilation={} groups={} partials={}{}",
        list(&attrs.strides),
        list(&attrs.padding_low),
        list(&attrs.kernel_dilation),
        attrs.groups,
        attrs.partials,
        match attrs.method {
            ConvMethod::Positions => String::new(),
            method => format!(" method=\"{}\"", method.name()),
        }
    )
}

/// Inputs as lists of dimensions, then steps, and one that is kept: `[0,1] [1] binary.add:f32[0,1] fill:f32=2 keep[0]`.
fn print_map(attrs: &MapAttrs) -> String {
    let inputs = attrs.inputs.iter().map(|dims| list(dims));
    let steps = attrs.steps.iter().map(|step| {
        let (name, dtype) = (step.func.kernel().name(), step.dtype);
        match step.func {
            MapFn::Value(value) => format!("{name}:{dtype}={}", float(value)),
            _ => format!("{name}:{dtype}{}", list(&step.args)),
        }
    });
    let kept = attrs.kept.map(|step| format!("keep[{step}]"));
    inputs.chain(steps).chain(kept).collect::<Vec<String>>().join(" ")
}

fn parse_map(cursor: &mut Cursor) -> Result<Kernel> {
    let mut attrs = MapAttrs { inputs: SmallVec::new(), steps: Vec::new(), kept: None };
    cursor.expect("{")?;
    while !cursor.eat("}") {
        if matches!(cursor.peek(), TokenKind::Punct("[")) {
            attrs.inputs.push(small_numbers(cursor)?);
        } else if cursor.eat_ident("keep") {
            attrs.kept = small_numbers::<1>(cursor)?.first().copied();
        } else {
            attrs.steps.push(parse_step(cursor)?);
        }
    }
    Ok(Kernel::Map(attrs))
}

fn parse_step(cursor: &mut Cursor) -> Result<MapStep> {
    let (line, col) = cursor.position();
    let name = cursor.ident("an elementwise function, the dimensions of an input, or '}'")?;
    let (family, func) = name.split_once('.').unwrap_or((&name, ""));
    let func = match family {
        "unary" => UnaryFn::from_name(func).map(MapFn::Unary),
        "binary" => BinaryFn::from_name(func).map(MapFn::Binary),
        "compare" => CompareFn::from_name(func).map(MapFn::Compare),
        "select" => Some(MapFn::Select),
        "cast" => Some(MapFn::Cast),
        "fill" => Some(MapFn::Value(0.0)),
        name => Smooth::from_name(name).map(MapFn::Smooth),
    };
    let unknown = || Error::at_position(line, col, format!("'{name}' is not an elementwise function"));
    let func = func.ok_or_else(unknown)?;
    cursor.expect(":")?;
    let dtype = cursor.dtype()?;
    if let MapFn::Value(_) = func {
        cursor.expect("=")?;
        return Ok(MapStep { func: MapFn::Value(cursor.float("a number")?), dtype, args: SmallVec::new() });
    }
    Ok(MapStep { func, dtype, args: small_numbers(cursor)? })
}

fn small_numbers<const N: usize>(cursor: &mut Cursor) -> Result<SmallVec<[u8; N]>>
where
    [u8; N]: smallvec::Array<Item = u8>,
{
    let numbers = cursor.list("[", "]", |cursor| cursor.int_as::<u8>("a small number"))?;
    Ok(numbers.into_iter().collect())
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(","))
}

fn pairs(items: &Pairs) -> String {
    let items: Vec<String> = items.iter().map(|(lhs, rhs)| format!("{lhs}:{rhs}")).collect();
    format!("[{}]", items.join(","))
}

/// A value of an attribute as written.
enum Value {
    Number(f64),
    Int(i128),
    Ints(Vec<i128>),
    Pairs(Pairs),
    Type(DType),
    Text(String),
}

struct Attributes {
    values: BTreeMap<String, Value>,
    line: u32,
    col: u32,
}

pub fn parse_kernel(cursor: &mut Cursor) -> Result<Kernel> {
    let (line, col) = cursor.position();
    let name = cursor.ident("a kernel's name")?;
    if name == "map" {
        return parse_map(cursor);
    }
    let mut attributes = Attributes { values: parse_attributes(cursor)?, line, col };
    let kernel = attributes
        .kernel(&name)?
        .ok_or_else(|| Error::at_position(line, col, format!("'{name}' is not a kernel")))?;
    match attributes.values.keys().next() {
        None => Ok(kernel),
        Some(extra) => Err(attributes.error(format!("{name} has no attribute '{extra}'"))),
    }
}

fn parse_attributes(cursor: &mut Cursor) -> Result<BTreeMap<String, Value>> {
    let mut values = BTreeMap::new();
    if cursor.eat("{") {
        while !cursor.eat("}") {
            let name = cursor.ident("an attribute's name or '}'")?;
            cursor.expect("=")?;
            let value = parse_value(cursor)?;
            if values.insert(name.clone(), value).is_some() {
                return Err(cursor.error(format!("attribute '{name}' is given twice")));
            }
        }
    }
    Ok(values)
}

fn parse_value(cursor: &mut Cursor) -> Result<Value> {
    match cursor.peek() {
        TokenKind::Int(_) => cursor.int("a number").map(Value::Int),
        TokenKind::Ident(word) if word != "inf" && word != "nan" => cursor.dtype().map(Value::Type),
        TokenKind::Punct("[") => parse_list(cursor),
        TokenKind::Str(_) => cursor.string("a text").map(Value::Text),
        _ => cursor.float("an attribute's value").map(Value::Number),
    }
}

fn parse_list(cursor: &mut Cursor) -> Result<Value> {
    let mut with_partner = false;
    let items = cursor.list("[", "]", |cursor| {
        let first = cursor.int("a number")?;
        let second = if cursor.eat(":") {
            with_partner = true;
            cursor.int("a dimension")?
        } else {
            0
        };
        Ok((first, second))
    })?;
    if !with_partner {
        return Ok(Value::Ints(items.into_iter().map(|(first, _)| first).collect()));
    }
    let small =
        |value: i128| u8::try_from(value).map_err(|_| cursor.error("a dimension is between 0 and 255"));
    let pairs =
        items.into_iter().map(|(lhs, rhs)| Ok((small(lhs)?, small(rhs)?))).collect::<Result<Pairs>>()?;
    Ok(Value::Pairs(pairs))
}

impl Attributes {
    fn error(&self, message: String) -> Error {
        Error::at_position(self.line, self.col, message)
    }

    fn kernel(&mut self, name: &str) -> Result<Option<Kernel>> {
        let (family, func) = name.split_once('.').unwrap_or((name, ""));
        Ok(match family {
            "unary" => UnaryFn::from_name(func).map(Kernel::Unary),
            "binary" => BinaryFn::from_name(func).map(Kernel::Binary),
            "compare" => CompareFn::from_name(func).map(Kernel::Compare),
            "random" => Distribution::from_name(func).map(|distribution| Kernel::Random { distribution }),
            "reduce" | "reduce_window" | "window_grad" | "scan" | "scatter" if !func.is_empty() => {
                match ReduceFn::from_name(func) {
                    Some(func) => Some(self.combining_kernel(family, func)?),
                    None => None,
                }
            }
            _ => self.plain_kernel(name)?,
        })
    }

    fn combining_kernel(&mut self, family: &str, func: ReduceFn) -> Result<Kernel> {
        Ok(match family {
            "reduce" => Kernel::Reduce { func, axes: self.dims("axes")? },
            "reduce_window" => Kernel::ReduceWindow { func, attrs: self.window()? },
            "window_grad" => Kernel::WindowGrad { func, attrs: self.window()? },
            "scan" => Kernel::Scan(ScanAttrs {
                func,
                axis: self.int("axis")?,
                exclusive: self.flag("exclusive")?,
                reverse: self.flag("reverse")?,
                start: self.flag("start")?,
            }),
            _ => Kernel::Scatter(self.scatter(Some(func))?),
        })
    }

    fn window(&mut self) -> Result<WindowAttrs> {
        Ok(WindowAttrs {
            window: self.ints("window")?,
            strides: self.ints("strides")?,
            padding_low: self.ints("padding")?,
            dilation: self.ints("dilation")?,
        })
    }

    fn scatter(&mut self, combine: Option<ReduceFn>) -> Result<ScatterAttrs> {
        let (axis, size, onto) = (self.int("axis")?, self.int("size")?, self.flag("onto")?);
        Ok(ScatterAttrs { combine, axis, size, onto })
    }

    fn slices(&mut self) -> Result<SliceAttrs> {
        let (axis, chunk, slices) = (self.int("axis")?, self.int("chunk")?, self.int("slices")?);
        Ok(SliceAttrs { axis, chunk, slices })
    }

    fn plain_kernel(&mut self, name: &str) -> Result<Option<Kernel>> {
        Ok(Some(match name {
            "fill" => Kernel::Fill { value: self.number("value")? },
            "copy" => Kernel::Copy,
            "select" => Kernel::Select,
            "cast" => Kernel::Cast,
            "count" => Kernel::Count,
            "round" => Kernel::Round,
            "rowdot" => Kernel::RowDot,
            "sparse_matmul" => Kernel::SparseMatMul,
            "broadcast" => Kernel::Broadcast { dims: self.dims("dims")? },
            "transpose" => Kernel::Transpose { perm: self.dims("perm")? },
            "matmul" => Kernel::MatMul {
                batch: self.pairs("batch")?,
                contract: self.pairs("contract")?,
                order: if self.values.contains_key("order") { self.dims("order")? } else { Dims::new() },
                partials: self.dtype("partials")?,
            },
            "conv" => Kernel::Conv(ConvAttrs {
                strides: self.sizes("strides")?,
                padding_low: self.sizes("padding")?,
                kernel_dilation: self.sizes("dilation")?,
                groups: self.int("groups")?,
                partials: self.dtype("partials")?,
                method: self.conv_method()?,
            }),
            "gather" => Kernel::Gather { axis: self.int("axis")?, size: self.int("size")? },
            "update" => Kernel::Update { axis: self.int("axis")?, size: self.int("size")? },
            "take_slice" => Kernel::TakeSlice(self.slices()?),
            "put_slice" => Kernel::PutSlice(self.slices()?),
            "iota" => Kernel::Iota { axis: self.int("axis")? },
            "codelet" => Kernel::Codelet(Box::new(self.codelet()?)),
            "scatter" => Kernel::Scatter(self.scatter(None)?),
            "sort" => Kernel::Sort {
                axis: self.int("axis")?,
                descending: self.flag("descending")?,
                ordered: self.flag("ordered")?,
            },
            "merge" => Kernel::Merge {
                side: self.int("side")?,
                descending: self.flag("descending")?,
                ordered: self.flag("ordered")?,
            },
            "pick" => Kernel::Pick,
            "take" => Kernel::Take { axis: self.int("axis")? },
            _ => return Ok(Smooth::from_name(name).map(Kernel::Smooth)),
        }))
    }

    fn take(&mut self, name: &str) -> Result<Value> {
        self.values.remove(name).ok_or_else(|| self.error(format!("the kernel needs the attribute '{name}'")))
    }

    fn wrong(&self, name: &str, what: &str) -> Error {
        self.error(format!("attribute '{name}' must be {what}"))
    }

    fn number(&mut self, name: &str) -> Result<f64> {
        match self.take(name)? {
            Value::Number(value) => Ok(value),
            Value::Int(value) => Ok(value as f64),
            _ => Err(self.wrong(name, "a number")),
        }
    }

    fn int<T: TryFrom<i128>>(&mut self, name: &str) -> Result<T> {
        match self.take(name)? {
            Value::Int(value) => T::try_from(value).map_err(|_| self.wrong(name, "in range")),
            _ => Err(self.wrong(name, "an integer")),
        }
    }

    fn flag(&mut self, name: &str) -> Result<bool> {
        match self.int::<u8>(name)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong(name, "0 or 1")),
        }
    }

    fn ints<T: TryFrom<i128>, const N: usize>(&mut self, name: &str) -> Result<SmallVec<[T; N]>>
    where
        [T; N]: smallvec::Array<Item = T>,
    {
        match self.take(name)? {
            Value::Ints(values) => values
                .into_iter()
                .map(|value| T::try_from(value).map_err(|_| self.wrong(name, "a list of numbers in range")))
                .collect(),
            _ => Err(self.wrong(name, "a list such as [0,1]")),
        }
    }

    fn dims(&mut self, name: &str) -> Result<Dims> {
        self.ints::<u8, 4>(name)
    }

    fn sizes(&mut self, name: &str) -> Result<SmallVec<[u64; 2]>> {
        self.ints::<u64, 2>(name)
    }

    fn pairs(&mut self, name: &str) -> Result<Pairs> {
        match self.take(name)? {
            Value::Pairs(pairs) => Ok(pairs),
            Value::Ints(values) if values.is_empty() => Ok(Pairs::new()),
            _ => Err(self.wrong(name, "a list of pairs such as [1:0]")),
        }
    }

    fn conv_method(&mut self) -> Result<ConvMethod> {
        if !self.values.contains_key("method") {
            return Ok(ConvMethod::default());
        }
        let named = match self.take("method")? {
            Value::Text(name) => ConvMethod::ALL.into_iter().find(|method| method.name() == name),
            _ => None,
        };
        named.ok_or_else(|| self.wrong("method", "\"positions\", \"product\" or \"unfolded\""))
    }

    fn codelet(&mut self) -> Result<Codelet> {
        let Value::Text(code) = self.take("code")? else {
            return Err(self.wrong("code", "a text such as \"i0 + i1\""));
        };
        let (width, issue, turn) = (self.int("width")?, self.int("issue")?, self.int("loop")?);
        Codelet::parse(&code, width, issue, turn).map_err(|message| self.error(format!("code: {message}")))
    }

    fn dtype(&mut self, name: &str) -> Result<DType> {
        match self.take(name)? {
            Value::Type(dtype) => Ok(dtype),
            _ => Err(self.wrong(name, "an element type such as f32")),
        }
    }
}

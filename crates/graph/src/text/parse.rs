//! The parser. Reads a text into a module and validates it; errors have a line and a column, of the node
//! for broken rules. The grammar does not nest, so no text can exhaust the stack; memory is bounded by
//! the text's length.

use super::attrs::{self, Atom, Attr, Reader};
use super::literal;
use crate::consts::{Const, ConstData};
use crate::errors;
use crate::module::{ConstId, Func, FuncId, Module, ValueId};
use crate::op::Op;
use crate::types::{Dim, TensorType};
use crate::validate::{self, Place};
use pando_base::lexer::{self, Cursor, TokenKind};
use pando_base::{DType, Error, Id, Result};
use rustc_hash::FxHashMap;

type Position = (u32, u32);

/// Reads and validates a module. `file` names the text in errors.
pub fn parse(text: &str, file: &str) -> Result<Module> {
    parse_text(text).map_err(|error| error.with_file(file))
}

fn parse_text(text: &str) -> Result<Module> {
    let mut parser = Parser {
        cursor: Cursor::new(text)?,
        module: Module::default(),
        symbols: Symbols::scan(text)?,
        positions: Positions::default(),
    };
    while !parser.cursor.at_end() {
        parser.item()?;
    }
    validate::locate(&parser.module).map_err(|(place, error)| at(parser.positions.of(place), error))?;
    Ok(parser.module)
}

/// `f32[N,4]`
pub fn parse_type(text: &str) -> Result<TensorType> {
    let mut cursor = Cursor::new(text)?;
    let ty = tensor_type(&mut cursor)?;
    match cursor.at_end() {
        true => Ok(ty),
        false => Err(cursor.error("expected one type and nothing after it")),
    }
}

/// One op as a node spells it, without results and operands: `transpose perm=[1,0]`, `call @f`. Functions are those
/// of `module`. Ops whose attributes are their result's type, such as `reshape`, need `result`.
pub fn parse_op(
    text: &str,
    operands: &[&TensorType],
    result: Option<&TensorType>,
    module: &Module,
) -> Result<Op> {
    let named = |(id, func): (FuncId, &Func)| (func.name.clone(), id);
    let funcs =
        if text.contains('@') { module.funcs.iter().map(named).collect() } else { FxHashMap::default() };
    let symbols = Symbols { consts: FxHashMap::default(), funcs };
    let mut parser = Parser {
        cursor: Cursor::new(text)?,
        module: Module::default(),
        symbols,
        positions: Positions::default(),
    };
    let mnemonic = parser.cursor.ident("an op")?;
    let symbol = match parser.cursor.peek() {
        TokenKind::Name('@', _) => Some(parser.cursor.name('@', "a symbol")?),
        _ => None,
    };
    let attrs = parser.attributes()?;
    if !parser.cursor.at_end() {
        let found = lexer::describe(parser.cursor.peek());
        return Err(parser.cursor.error(format!("expected an attribute name=value, found {found}")));
    }
    if result.is_none() && attrs::TYPED_BY_RESULT.contains(&mnemonic.as_str()) {
        return Err(errors::missing_result_type(&mnemonic));
    }
    parser.op(&mnemonic, symbol, attrs, operands, result.map_or(&[], std::slice::from_ref))
}

fn at((line, col): Position, error: Error) -> Error {
    Error::at_position(line, col, error.message())
}

/// Ids of all constants and functions, known before their definitions are read: a function may be used
/// above its definition.
struct Symbols {
    consts: FxHashMap<String, ConstId>,
    funcs: FxHashMap<String, FuncId>,
}

impl Symbols {
    /// No op or attribute is called `const` or `func`, so the word before a symbol tells definitions.
    fn scan(text: &str) -> Result<Self> {
        let mut symbols = Symbols { consts: FxHashMap::default(), funcs: FxHashMap::default() };
        let (mut num_consts, mut num_funcs) = (0, 0);
        for pair in lexer::tokenize(text)?.windows(2) {
            let (TokenKind::Ident(word), TokenKind::Name('@', name)) = (&pair[0].kind, &pair[1].kind) else {
                continue;
            };
            if word == "const" {
                symbols.consts.entry(name.clone()).or_insert(ConstId::from_index(num_consts));
                num_consts += 1;
            } else if word == "func" {
                symbols.funcs.entry(name.clone()).or_insert(FuncId::from_index(num_funcs));
                num_funcs += 1;
            }
        }
        Ok(symbols)
    }

    fn const_id(&self, name: &str) -> Result<ConstId> {
        self.consts.get(name).copied().ok_or_else(|| errors::unknown_symbol("constant", name))
    }

    fn func_id(&self, name: &str) -> Result<FuncId> {
        self.funcs.get(name).copied().ok_or_else(|| errors::unknown_symbol("function", name))
    }
}

/// Where entities stand in the text.
#[derive(Default)]
struct Positions {
    consts: Vec<Position>,
    funcs: Vec<FuncPositions>,
}

#[derive(Default)]
struct FuncPositions {
    header: Position,
    nodes: Vec<Position>,
    end: Position,
}

impl Positions {
    fn of(&self, place: Place) -> Position {
        match place {
            Place::Const(id) => self.consts[id.index()],
            Place::Func(func) => self.funcs[func.index()].header,
            Place::Node(func, node) => self.funcs[func.index()].nodes[node.index()],
            Place::Return(func) => self.funcs[func.index()].end,
        }
    }
}

struct Parser {
    cursor: Cursor,
    module: Module,
    symbols: Symbols,
    positions: Positions,
}

/// A function while its body is read.
struct Body {
    func: Func,
    values: FxHashMap<String, ValueId>,
    positions: FuncPositions,
}

impl Parser {
    fn item(&mut self) -> Result<()> {
        if self.cursor.at_ident("const") {
            self.constant()
        } else if self.cursor.at_ident("func") || self.cursor.at_ident("composite") {
            self.func()
        } else {
            let found = lexer::describe(self.cursor.peek());
            Err(self.cursor.error(format!("expected const, func or composite, found {found}")))
        }
    }

    /// `const @b: f32[3] = [1, 2.5, -3]`
    fn constant(&mut self) -> Result<()> {
        self.cursor.next();
        let position = self.cursor.position();
        let name = self.cursor.name('@', "the constant's name")?;
        self.cursor.expect(":")?;
        let dtype = self.cursor.dtype()?;
        let shape = self.cursor.shape()?;
        self.cursor.expect("=")?;
        let data = match self.cursor.at_punct("[") {
            true => ConstData::Dense(literal::parse_elements(&mut self.cursor, dtype, shape.clone())?),
            false => self.const_rule()?,
        };
        self.module.consts.push(Const { name, dtype, shape, data });
        self.positions.consts.push(position);
        Ok(())
    }

    /// `splat(0)`, `normal(seed=1, mean=0, std=0.02)`, `uniform(seed=1, low=0, high=1)`
    fn const_rule(&mut self) -> Result<ConstData> {
        let error = self.cursor.error("expected elements in [ ], splat(…), normal(…) or uniform(…)");
        let rule = self.cursor.ident("elements or a rule")?;
        self.cursor.expect("(")?;
        let data = match rule.as_str() {
            "splat" => ConstData::Splat(self.cursor.float("the value of every element")?),
            "normal" => {
                let seed = self.seed()?;
                ConstData::Normal { seed, mean: self.rule_float("mean")?, std: self.rule_float("std")? }
            }
            "uniform" => {
                let seed = self.seed()?;
                ConstData::Uniform { seed, low: self.rule_float("low")?, high: self.rule_float("high")? }
            }
            _ => return Err(error),
        };
        self.cursor.expect(")")?;
        Ok(data)
    }

    fn seed(&mut self) -> Result<u64> {
        self.cursor.expect_ident("seed")?;
        self.cursor.expect("=")?;
        self.cursor.int_as("the seed")
    }

    fn rule_float(&mut self, name: &str) -> Result<f64> {
        self.cursor.expect(",")?;
        self.cursor.expect_ident(name)?;
        self.cursor.expect("=")?;
        self.cursor.float("a number")
    }

    /// `composite "softmax" func @softmax(%x: f32[N,4]) -> f32[N,4] { … }`
    fn func(&mut self) -> Result<()> {
        let composite = match self.cursor.eat_ident("composite") {
            true => Some(self.cursor.string("the composite's name")?),
            false => None,
        };
        self.cursor.expect_ident("func")?;
        let header = self.cursor.position();
        let name = self.cursor.name('@', "the function's name")?;
        let func = Func { composite, ..Func::new(&name) };
        let positions = FuncPositions { header, ..FuncPositions::default() };
        let mut body = Body { func, values: FxHashMap::default(), positions };
        let params = self.cursor.list("(", ")", param)?;
        for (position, name, ty) in params {
            let value = body.func.push_param("", ty);
            body.name(value, position, name)?;
        }
        let results = if self.cursor.eat("->") { type_list(&mut self.cursor)? } else { vec![] };
        self.cursor.expect("{")?;
        while !self.cursor.at_ident("return") {
            self.node(&mut body)?;
        }
        self.results(&mut body, &results)?;
        self.cursor.expect("}")?;
        self.module.funcs.push(body.func);
        self.positions.funcs.push(body.positions);
        Ok(())
    }

    /// `return %1, %2`
    fn results(&mut self, body: &mut Body, stated: &[TensorType]) -> Result<()> {
        body.positions.end = self.cursor.position();
        self.cursor.next();
        body.func.results = operand_list(&mut self.cursor, body)?;
        let found = body.func.result_types();
        if found.len() != stated.len() {
            let error = errors::wrong_result_count("return", found.len(), stated.len());
            return Err(at(body.positions.end, error));
        }
        let wrong = found.iter().zip(stated).position(|(found, stated)| *found != stated);
        wrong.map_or(Ok(()), |index| {
            let what = format!("result {index} of @{}", body.func.name);
            Err(at(body.positions.end, errors::wrong_result_type(what, &stated[index], found[index])))
        })
    }

    /// `%0, %1 = op %x, %y name=value : f32[4], f32[4]`
    fn node(&mut self, body: &mut Body) -> Result<()> {
        let names = self.result_names()?;
        let position = self.cursor.position();
        let mnemonic = self.cursor.ident("an op")?;
        let symbol = match self.cursor.peek() {
            TokenKind::Name('@', _) => Some(self.cursor.name('@', "a symbol")?),
            _ => None,
        };
        let operands = operand_list(&mut self.cursor, body)?;
        let attrs = self.attributes()?;
        if !self.cursor.at_punct(":") {
            let found = lexer::describe(self.cursor.peek());
            return Err(self.cursor.error(format!(
                "expected an attribute name=value or ':' and the result types, found {found}"
            )));
        }
        self.cursor.next();
        let types = type_list(&mut self.cursor)?;
        let op = self
            .op(&mnemonic, symbol, attrs, &body.func.operand_types(&operands), &types)
            .map_err(|error| at(position, error))?;
        if names.len() != types.len() {
            let error = errors::wrong_result_count(&mnemonic, names.len(), types.len());
            return Err(at(position, error));
        }
        let node = body.func.push_node(op, operands, types);
        body.positions.nodes.push(position);
        for (index, (position, name)) in names.into_iter().enumerate() {
            body.name(body.func.nodes[node].results[index], position, name)?;
        }
        Ok(())
    }

    fn result_names(&mut self) -> Result<Vec<(Position, String)>> {
        let mut names = Vec::new();
        loop {
            let position = self.cursor.position();
            names.push((position, self.cursor.name('%', "a result, or return")?));
            if !self.cursor.eat(",") {
                break;
            }
        }
        self.cursor.expect("=")?;
        Ok(names)
    }

    fn attributes(&mut self) -> Result<Vec<(String, Attr)>> {
        let mut attrs: Vec<(String, Attr)> = Vec::new();
        while matches!(self.cursor.peek(), TokenKind::Ident(_)) {
            let error = self.cursor.error("this attribute is given twice");
            let name = self.cursor.ident("an attribute")?;
            self.cursor.expect("=")?;
            // No op has more than a handful of attributes.
            if attrs.len() > 16 || attrs.iter().any(|(other, _)| *other == name) {
                return Err(error);
            }
            attrs.push((name, attribute(&mut self.cursor)?));
        }
        Ok(attrs)
    }

    fn op(
        &self,
        mnemonic: &str,
        symbol: Option<String>,
        attrs: Vec<(String, Attr)>,
        operands: &[&TensorType],
        results: &[TensorType],
    ) -> Result<Op> {
        let func = |name: &str| self.symbols.func_id(name);
        let mut reader = Reader { op: mnemonic, attrs, asked: vec![], operands, results, func: &func };
        let op = match (mnemonic, symbol) {
            ("constant", Some(name)) => Op::Constant(self.symbols.const_id(&name)?),
            ("call", Some(name)) => Op::Call(self.symbols.func_id(&name)?),
            ("constant" | "call", None) => return Err(errors::missing_symbol(mnemonic)),
            (_, Some(name)) => return Err(errors::stray_symbol(mnemonic, &name)),
            (_, None) => attrs::read(&mut reader)?,
        };
        reader.finish()?;
        Ok(op)
    }
}

impl Body {
    /// Gives a value its name; digits only stand for a number that the printer chooses.
    fn name(&mut self, value: ValueId, position: Position, name: String) -> Result<()> {
        if self.values.contains_key(&name) {
            return Err(at(position, errors::duplicate_name("value", &name)));
        }
        if !name.bytes().all(|b| b.is_ascii_digit()) {
            self.func.values[value].name = name.clone();
        }
        self.values.insert(name, value);
        Ok(())
    }
}

fn param(cursor: &mut Cursor) -> Result<(Position, String, TensorType)> {
    let position = cursor.position();
    let name = cursor.name('%', "a parameter")?;
    cursor.expect(":")?;
    Ok((position, name, tensor_type(cursor)?))
}

/// `f32[N,4]`
pub(crate) fn tensor_type(cursor: &mut Cursor) -> Result<TensorType> {
    let dtype = cursor.dtype()?;
    let dims = cursor.list("[", "]", |cursor| match cursor.peek() {
        TokenKind::Ident(_) => Ok(Dim::named(&cursor.ident("a name")?)),
        _ => cursor.int_as("a dimension's size or name").map(Dim::Known),
    })?;
    Ok(TensorType::new(dtype, dims))
}

fn type_list(cursor: &mut Cursor) -> Result<Vec<TensorType>> {
    let mut types = vec![tensor_type(cursor)?];
    while cursor.eat(",") {
        types.push(tensor_type(cursor)?);
    }
    Ok(types)
}

fn operand_list(cursor: &mut Cursor, body: &Body) -> Result<Vec<ValueId>> {
    let mut operands = Vec::new();
    if !matches!(cursor.peek(), TokenKind::Name('%', _)) {
        return Ok(operands);
    }
    loop {
        let position = cursor.position();
        let name = cursor.name('%', "an operand")?;
        let value = body.values.get(&name).ok_or_else(|| at(position, errors::unknown_value(&name)))?;
        operands.push(*value);
        if !cursor.eat(",") {
            return Ok(operands);
        }
    }
}

/// An atom, `[1,N]` or `[0:1,2:3]`.
fn attribute(cursor: &mut Cursor) -> Result<Attr> {
    if !cursor.at_punct("[") {
        return atom(cursor).map(Attr::One);
    }
    let error = cursor.error("a list holds either single items or pairs of numbers a:b");
    let items = cursor.list("[", "]", |cursor| {
        let first = atom(cursor)?;
        let second = if cursor.eat(":") { Some(atom(cursor)?) } else { None };
        Ok((first, second))
    })?;
    let singles = || items.iter().map(|(a, b)| b.is_none().then(|| a.clone())).collect::<Option<_>>();
    let pairs = || {
        items.iter().map(|item| match item {
            (Atom::Int(a), Some(Atom::Int(b))) => Some((*a, *b)),
            _ => None,
        })
    };
    let list = singles().map(Attr::List);
    list.or_else(|| pairs().collect::<Option<_>>().map(Attr::Pairs)).ok_or(error)
}

fn atom(cursor: &mut Cursor) -> Result<Atom> {
    match cursor.peek() {
        TokenKind::Int(value) => {
            let value = *value;
            cursor.next();
            Ok(Atom::Int(value))
        }
        TokenKind::Name('@', _) => cursor.name('@', "a function").map(Atom::Symbol),
        TokenKind::Ident(word) if DType::from_name(word).is_some() => cursor.dtype().map(Atom::Type),
        _ => cursor.ident("a number, a word, an element type, @func or a list").map(Atom::Word),
    }
}

//! Text to program.

use super::kernels::parse_kernel;
use crate::block::Block;
use crate::grid::{Axis, Grid};
use crate::program::{
    ComputeSet, ComputeSetId, Copy, CopyMap, Exchange, ExchangeId, Flags, Group, Init, Layout, Operand,
    Program, Region, Role, SrcIndex, Step, Var, VarId,
};
use crate::span::{Part, Span};
use crate::validate::validate;
use pando_base::lexer::{Cursor, TokenKind};
use pando_base::{Error, Id, Result, Shape, Tensor};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Loops nested deeper than this are refused, so that no text can exhaust the stack.
const MAX_DEPTH: usize = 64;

/// Parses and validates a program; errors name `file`, line and column.
pub fn parse(text: &str, file: &str) -> Result<Program> {
    let parse = || {
        let mut parser = Parser {
            cursor: Cursor::new(text)?,
            program: Program::new("", 0),
            vars: FxHashMap::default(),
            places: FxHashMap::default(),
        };
        parser.program()?;
        validate(&parser.program).map_err(|problem| match parser.places.get(&problem.place) {
            Some(&(line, col)) => Error::at_position(line, col, problem.message.clone()),
            None => Error::new(problem.message.clone()),
        })?;
        Ok(parser.program)
    };
    parse().map_err(|error: Error| error.with_file(file))
}

struct Parser {
    cursor: Cursor,
    program: Program,
    vars: FxHashMap<String, VarId>,
    /// Where each entity stands, for the validator's findings.
    places: FxHashMap<crate::validate::Place, (u32, u32)>,
}

impl Parser {
    fn program(&mut self) -> Result<()> {
        self.cursor.expect_ident("program")?;
        self.program.name = self.cursor.string("the program's name")?;
        self.cursor.expect_ident("tiles")?;
        self.cursor.expect("=")?;
        self.program.tiles = self.cursor.int_as("the number of tiles")?;
        self.cursor.expect_ident("replicas")?;
        self.cursor.expect("=")?;
        self.program.replicas = self.cursor.int_as("the number of replicas")?;
        if self.cursor.eat_ident("prefetch") {
            self.cursor.expect("=")?;
            self.program.prefetch = self.cursor.int_as("the depth of prefetching")?;
        }
        loop {
            if self.cursor.eat_ident("var") {
                self.var()?;
            } else if self.cursor.eat_ident("compute") {
                self.compute_set()?;
            } else if self.cursor.eat_ident("exchange") {
                self.exchange()?;
            } else {
                break;
            }
        }
        if !self.cursor.at_ident("main") {
            return Err(self.cursor.error("expected 'var', 'compute', 'exchange' or 'main'"));
        }
        self.cursor.next();
        self.program.body = self.steps(0)?;
        if self.cursor.at_end() {
            Ok(())
        } else {
            Err(self.cursor.error("expected nothing after 'main { … }'"))
        }
    }

    fn var(&mut self) -> Result<()> {
        let place = self.cursor.position();
        let name = self.cursor.name('%', "a variable's name")?;
        self.cursor.expect(":")?;
        let dtype = self.cursor.dtype()?;
        let shape = self.cursor.shape()?;
        let role = self.role(dtype, &shape)?;
        let grid = self.grid()?;
        let region = self.region()?;
        let var = Var { name: name.clone(), dtype, shape, home: Layout { grid, region }, role };
        let id = self.program.vars.push(var);
        self.places.insert(crate::validate::Place::Var(id), place);
        match self.vars.insert(name.clone(), id) {
            None => Ok(()),
            Some(_) => Err(Error::at_position(place.0, place.1, format!("%{name} is declared twice"))),
        }
    }

    fn role(&mut self, dtype: pando_base::DType, shape: &Shape) -> Result<Role> {
        let error = self.cursor.error("expected 'temp', 'input', 'output', 'state' or 'const'");
        let word = self.cursor.ident("'temp', 'input', 'output', 'state' or 'const'")?;
        match word.as_str() {
            "temp" => Ok(Role::Temp),
            "input" => Ok(Role::Input),
            "output" => Ok(Role::Output),
            "state" => Ok(Role::State),
            "const" if self.cursor.eat_ident("extern") => Ok(Role::Constant(Init::Extern)),
            "const" if self.cursor.eat_ident("splat") => {
                self.cursor.expect("(")?;
                let value = self.cursor.float("a number")?;
                self.cursor.expect(")")?;
                Ok(Role::Constant(Init::Splat(value)))
            }
            "const" => self.dense(dtype, shape).map(|tensor| Role::Constant(Init::Dense(tensor))),
            _ => Err(error),
        }
    }

    fn dense(&mut self, dtype: pando_base::DType, shape: &Shape) -> Result<Tensor> {
        let place = self.cursor.position();
        let wrong = |count: usize| {
            let message = format!("{dtype}{shape} has {} elements, not {count}", shape.num_elements());
            Error::at_position(place.0, place.1, message)
        };
        if dtype.is_float() {
            let values = self.cursor.list("[", "]", |cursor| cursor.float("a number"))?;
            let fits = values.len() as u64 == shape.num_elements();
            return if fits {
                Ok(Tensor::from_f64(dtype, shape.clone(), &values))
            } else {
                Err(wrong(values.len()))
            };
        }
        let values = self.cursor.list("[", "]", |cursor| cursor.int("an integer"))?;
        let fits = values.len() as u64 == shape.num_elements();
        if fits { Ok(Tensor::from_ints(dtype, shape.clone(), &values)) } else { Err(wrong(values.len())) }
    }

    /// `on BASE EXTENT*STRIDE …`
    fn grid(&mut self) -> Result<Grid> {
        self.cursor.expect_ident("on")?;
        let base = self.cursor.int_as("a tile number")?;
        let mut axes = SmallVec::new();
        while matches!(self.cursor.peek(), TokenKind::Int(_)) {
            let extent = self.cursor.int_as("an axis's extent")?;
            self.cursor.expect("*")?;
            let stride = self.cursor.int_as("an axis's tile stride")?;
            axes.push(Axis { extent, stride });
        }
        Ok(Grid { base, axes })
    }

    fn region(&mut self) -> Result<Region> {
        let spans = self.cursor.list("[", "]", span)?;
        Ok(spans.into_iter().collect())
    }

    fn var_ref(&mut self) -> Result<VarId> {
        let (line, col) = self.cursor.position();
        let name = self.cursor.name('%', "a variable")?;
        let message = || format!("%{name} is not declared; variables come before their use");
        self.vars.get(&name).copied().ok_or_else(|| Error::at_position(line, col, message()))
    }

    /// The `@cs0` or `@ex3` of a definition, which are numbered in order.
    fn numbered(&mut self, expected: &str) -> Result<()> {
        let (line, col) = self.cursor.position();
        let name = self.cursor.name('@', "a name")?;
        if format!("@{name}") == expected {
            return Ok(());
        }
        Err(Error::at_position(line, col, format!("expected {expected}: definitions are numbered in order")))
    }

    fn compute_set(&mut self) -> Result<()> {
        let id = ComputeSetId::from_index(self.program.compute_sets.len());
        self.numbered(&id.to_string())?;
        let name = self.cursor.string("the compute set's name")?;
        self.cursor.expect("{")?;
        let mut groups = Vec::new();
        while !self.cursor.eat("}") {
            let place = crate::validate::Place::Group(id, groups.len());
            self.places.insert(place, self.cursor.position());
            groups.push(self.group()?);
        }
        self.program.compute_sets.push(ComputeSet { name, groups });
        Ok(())
    }

    fn group(&mut self) -> Result<Group> {
        let kernel = parse_kernel(&mut self.cursor)?;
        let grid = self.grid()?;
        let mut operands = SmallVec::new();
        loop {
            let var = self.var_ref()?;
            let region = self.region()?;
            operands.push(Operand { var, region });
            if !self.cursor.eat(",") {
                return Ok(Group { kernel, grid, operands });
            }
        }
    }

    fn exchange(&mut self) -> Result<()> {
        let id = ExchangeId::from_index(self.program.exchanges.len());
        self.numbered(&id.to_string())?;
        let name = self.cursor.string("the exchange's name")?;
        self.cursor.expect("{")?;
        let mut copies = Vec::new();
        while !self.cursor.eat("}") {
            let place = crate::validate::Place::Copy(id, copies.len());
            self.places.insert(place, self.cursor.position());
            copies.push(self.copy()?);
        }
        self.program.exchanges.push(Exchange { name, copies });
        Ok(())
    }

    fn copy(&mut self) -> Result<Copy> {
        self.cursor.expect_ident("copy")?;
        let flat = self.cursor.eat_ident("flat");
        let mut dsts: SmallVec<[VarId; 1]> = SmallVec::new();
        dsts.push(self.var_ref()?);
        while self.cursor.eat(",") {
            dsts.push(self.var_ref()?);
        }
        let bounds = if self.cursor.at_punct("[") { Some(self.bounds()?) } else { None };
        self.cursor.expect("<")?;
        self.cursor.expect("-")?;
        let src = self.var_ref()?;
        let map = match bounds {
            None => CopyMap::identity(&self.program.vars[dsts[0]].shape),
            Some(bounds) if flat => self.flat_map(&bounds)?,
            Some(bounds) => {
                let dims = self.cursor.list("[", "]", src_index)?;
                CopyMap::Affine { region: Block::new(&bounds), dims: dims.into_iter().collect() }
            }
        };
        Ok(Copy { src, dsts, map })
    }

    fn bounds(&mut self) -> Result<Vec<(u64, u64)>> {
        self.cursor.list("[", "]", range)
    }

    fn flat_map(&mut self, dst: &[(u64, u64)]) -> Result<CopyMap> {
        let error = self.cursor.error("a flat copy has one range on each side, of the same length");
        let src = self.bounds()?;
        match (dst, src.as_slice()) {
            (&[(dst_begin, dst_end)], &[(src_begin, src_end)])
                if dst_end - dst_begin == src_end - src_begin =>
            {
                Ok(CopyMap::Flat { src_begin, dst_begin, len: dst_end - dst_begin })
            }
            _ => Err(error),
        }
    }

    fn steps(&mut self, depth: usize) -> Result<Vec<Step>> {
        if depth > MAX_DEPTH {
            return Err(self.cursor.error(format!("loops nest at most {MAX_DEPTH} deep")));
        }
        self.cursor.expect("{")?;
        let mut steps = Vec::new();
        while !self.cursor.eat("}") {
            steps.push(self.step(depth)?);
        }
        Ok(steps)
    }

    fn step(&mut self, depth: usize) -> Result<Step> {
        let error = self
            .cursor
            .error("expected a step: compute, exchange, host.in, host.out, repeat, stream, if or while");
        let word = self.cursor.ident("a step")?;
        match word.as_str() {
            "compute" => self.reference("cs", self.program.compute_sets.len()).map(Step::Compute),
            "exchange" => self.reference("ex", self.program.exchanges.len()).map(Step::Exchange),
            "host.in" => self.var_ref().map(Step::HostIn),
            "host.out" => self.var_ref().map(Step::HostOut),
            "repeat" => {
                let count = self.cursor.int_as("the number of repetitions")?;
                Ok(Step::Repeat { count, body: self.steps(depth + 1)? })
            }
            "stream" => self.stream(depth),
            "if" => {
                let flags = self.flags()?;
                let then_body = self.steps(depth + 1)?;
                self.cursor.expect_ident("else")?;
                Ok(Step::If { flags, then_body, else_body: self.steps(depth + 1)? })
            }
            "while" => {
                let flags = self.flags()?;
                self.cursor.expect_ident("trips")?;
                let trips = self.cursor.int_as("how often the body is counted to run")?;
                let cond = self.steps(depth + 1)?;
                self.cursor.expect_ident("do")?;
                Ok(Step::While { cond, flags, body: self.steps(depth + 1)?, trips })
            }
            _ => Err(error),
        }
    }

    fn stream(&mut self, depth: usize) -> Result<Step> {
        let count = self.cursor.int_as("the number of items")?;
        self.cursor.expect_ident("load")?;
        let load = self.steps(depth + 1)?;
        self.cursor.expect_ident("work")?;
        let body = self.steps(depth + 1)?;
        self.cursor.expect_ident("store")?;
        Ok(Step::Stream { count, load, body, store: self.steps(depth + 1)? })
    }

    fn flags(&mut self) -> Result<Flags> {
        let mut flags = Flags::from_elem(self.var_ref()?, 1);
        while self.cursor.eat(",") {
            flags.push(self.var_ref()?);
        }
        Ok(flags)
    }

    fn reference<I: Id>(&mut self, prefix: &str, len: usize) -> Result<I> {
        let error = self.cursor.error(format!("expected a name such as @{prefix}0 of a definition above"));
        let name = self.cursor.name('@', "a definition")?;
        let index = name.strip_prefix(prefix).and_then(|digits| digits.parse::<usize>().ok());
        index.filter(|&index| index < len).map(I::from_index).ok_or(error)
    }
}

fn range(cursor: &mut Cursor) -> Result<(u64, u64)> {
    let begin = cursor.int_as("the begin of a range")?;
    cursor.expect("..")?;
    let error = cursor.error("a range ends after it begins");
    let end: u64 = cursor.int_as("the end of a range")?;
    if begin <= end { Ok((begin, end)) } else { Err(error) }
}

/// `BEGIN..END` or `aAXIS:TOTAL[/GRAIN][*MUL(LO,HI)]`.
fn span(cursor: &mut Cursor) -> Result<Span> {
    let TokenKind::Ident(word) = cursor.peek().clone() else {
        return range(cursor).map(|(begin, end)| Span::Fixed { begin, end });
    };
    let error = cursor.error("expected a span such as 0..4 or a0:16");
    let axis = word.strip_prefix('a').and_then(|digits| digits.parse::<u8>().ok()).ok_or(error)?;
    cursor.next();
    cursor.expect(":")?;
    let total = cursor.int_as("the size that the axis splits")?;
    let grain = if cursor.eat("/") { cursor.int_as("the grain")? } else { 1 };
    let mut part = Part { axis, total, grain, mul: 1, lo: 0, hi: 1 };
    if cursor.eat("*") {
        part.mul = cursor.int_as("the window's step")?;
        cursor.expect("(")?;
        part.lo = cursor.int_as("the window's low offset")?;
        cursor.expect(",")?;
        part.hi = cursor.int_as("the window's high offset")?;
        cursor.expect(")")?;
    }
    Ok(Span::Part(part))
}

/// `dDIM[*STEP][+OFFSET]` or a fixed index.
fn src_index(cursor: &mut Cursor) -> Result<SrcIndex> {
    let TokenKind::Ident(word) = cursor.peek().clone() else {
        return cursor.int_as("an index or a destination dimension such as d0").map(SrcIndex::At);
    };
    let error = cursor.error("expected an index or a destination dimension such as d0");
    let dim = word.strip_prefix('d').and_then(|digits| digits.parse::<u8>().ok()).ok_or(error)?;
    cursor.next();
    let step = if cursor.eat("*") { cursor.int_as("a step")? } else { 1 };
    let negative = matches!(cursor.peek(), TokenKind::Int(value) if *value < 0);
    let offset = if negative || cursor.eat("+") { cursor.int_as("an offset")? } else { 0 };
    Ok(SrcIndex::Dst { dim, step, offset })
}

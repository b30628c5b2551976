//! A codelet's code: sums, products and quotients of numbers and inputs, in parentheses where wanted. Out:
//! terms in an order in which operands come first, equal ones once.

use super::{MOST_INPUTS, MOST_OUTPUTS, Term};
use pando_base::lexer::{Cursor, TokenKind};
use pando_base::{BinaryFn, Result};
use smallvec::SmallVec;

/// Parentheses nest at most this deep.
const MAX_DEPTH: usize = 64;

/// The terms and which of them are outputs.
pub fn parse(code: &str) -> Result<(Vec<Term>, Vec<usize>)> {
    let mut parser = Parser { cursor: Cursor::new(code)?, terms: Vec::new() };
    let mut outputs = vec![parser.sum(0)?];
    while parser.cursor.eat(",") {
        outputs.push(parser.sum(0)?);
    }
    if !parser.cursor.at_end() {
        return Err(parser.cursor.error("expected an operator, ',' or the end of the code"));
    }
    if outputs.len() > MOST_OUTPUTS {
        return Err(parser.cursor.error(format!("a codelet has at most {MOST_OUTPUTS} outputs")));
    }
    Ok((parser.terms, outputs))
}

struct Parser {
    cursor: Cursor,
    terms: Vec<Term>,
}

impl Parser {
    fn term(&mut self, term: Term) -> usize {
        self.terms.iter().position(|other| *other == term).unwrap_or_else(|| {
            self.terms.push(term);
            self.terms.len() - 1
        })
    }

    fn sum(&mut self, depth: usize) -> Result<usize> {
        let mut lhs = self.product(depth)?;
        loop {
            // `i0 -1` is two tokens, of which the second is a negative number.
            let negative = match self.cursor.peek() {
                TokenKind::Int(value) => *value < 0,
                TokenKind::Float(value) => *value < 0.0,
                _ => false,
            };
            let func = if negative || self.cursor.eat("+") {
                BinaryFn::Add
            } else if self.cursor.eat("-") {
                BinaryFn::Sub
            } else {
                return Ok(lhs);
            };
            let rhs = self.product(depth)?;
            lhs = self.term(Term::Binary(func, lhs, rhs));
        }
    }

    fn product(&mut self, depth: usize) -> Result<usize> {
        let mut lhs = self.factor(depth)?;
        loop {
            let func = if self.cursor.eat("*") {
                BinaryFn::Mul
            } else if self.cursor.eat("/") {
                BinaryFn::Div
            } else {
                return Ok(lhs);
            };
            let rhs = self.factor(depth)?;
            lhs = self.term(Term::Binary(func, lhs, rhs));
        }
    }

    fn factor(&mut self, depth: usize) -> Result<usize> {
        if self.cursor.eat("(") {
            if depth == MAX_DEPTH {
                return Err(self.cursor.error(format!("parentheses nest at most {MAX_DEPTH} deep")));
            }
            let inner = self.sum(depth + 1)?;
            self.cursor.expect(")")?;
            return Ok(inner);
        }
        if let TokenKind::Ident(_) = self.cursor.peek() {
            return self.input();
        }
        let number = self.cursor.float("a number, an input such as i0, or '('")?;
        Ok(self.term(Term::Number(number)))
    }

    fn input(&mut self) -> Result<usize> {
        let unknown = self.cursor.error(format!("inputs are i0 to i{}", MOST_INPUTS - 1));
        let word = self.cursor.ident("an input")?;
        let index = word.strip_prefix('i').and_then(|digits| digits.parse::<usize>().ok());
        let Some(index) = index.filter(|&index| index < MOST_INPUTS) else { return Err(unknown) };
        let mut offset: SmallVec<[i64; 3]> = SmallVec::new();
        if self.cursor.at_punct("[") {
            offset = self.cursor.list("[", "]", |cursor| cursor.int_as("an offset"))?.into_iter().collect();
        }
        if offset.iter().all(|&by| by == 0) {
            offset.clear();
        }
        Ok(self.term(Term::Input(index, offset)))
    }
}

//! The tokenizer of the text formats, and a cursor that parsers pull tokens from. Comments run from
//! `;` to the end of the line. Positions count lines and columns (in characters) from 1.

use crate::{DType, Error, F8Format, Result, Shape};

#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind {
    /// A word: letters, digits, `_` and `.`, not starting with a digit.
    Ident(String),
    /// `%name` or `@name`: the sigil and what follows it.
    Name(char, String),
    Int(i128),
    Float(f64),
    /// A quoted string with the escapes `\"`, `\\` and `\n`.
    Str(String),
    /// Punctuation, one character or one of `->`, `..`, `==`.
    Punct(&'static str),
    End,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub kind: TokenKind,
    pub line: u32,
    pub col: u32,
}

const PUNCTUATION: [&str; 21] = [
    "->", "..", "==", "(", ")", "[", "]", "{", "}", "<", ">", ",", ":", "=", "+", "-", "*", "/", "|", "!",
    "?",
];

/// Splits a text into tokens, the last of them `End`.
pub fn tokenize(text: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    for (index, line) in text.lines().enumerate() {
        tokenize_line(line, index as u32 + 1, &mut tokens)?;
    }
    let line = text.lines().count() as u32 + 1;
    tokens.push(Token { kind: TokenKind::End, line, col: 1 });
    Ok(tokens)
}

fn tokenize_line(text: &str, line: u32, tokens: &mut Vec<Token>) -> Result<()> {
    let mut rest = text;
    let mut col = 1;
    while let Some(first) = rest.chars().next() {
        if first == ';' {
            break;
        }
        let length = if first.is_whitespace() {
            first.len_utf8()
        } else {
            let (kind, length) = scan(rest).map_err(|message| Error::at_position(line, col, message))?;
            tokens.push(Token { kind, line, col });
            length
        };
        col += rest[..length].chars().count() as u32;
        rest = &rest[length..];
    }
    Ok(())
}

/// The token at the start of `text` and its length in bytes.
fn scan(text: &str) -> Result<(TokenKind, usize), String> {
    let first = text.chars().next().expect("the caller saw a character");
    let signed_digit = first == '-' && text[1..].starts_with(|c: char| c.is_ascii_digit());
    match first {
        '%' | '@' => scan_name(text, first),
        '"' => scan_string(text),
        _ if first.is_ascii_digit() || signed_digit => scan_number(text),
        _ if is_word(first) => {
            let length = word_length(text);
            Ok((TokenKind::Ident(text[..length].to_string()), length))
        }
        _ => PUNCTUATION
            .into_iter()
            .find(|punct| text.starts_with(punct))
            .map(|punct| (TokenKind::Punct(punct), punct.len()))
            .ok_or_else(|| format!("unexpected character '{}'", first.escape_debug())),
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Length of a word; a `.` belongs to it unless another `.` follows (`..` is punctuation).
fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut length = 0;
    while length < bytes.len() {
        let dot = bytes[length] == b'.' && bytes.get(length + 1) != Some(&b'.');
        if !dot && !is_word(bytes[length] as char) {
            break;
        }
        length += 1;
    }
    length
}

fn scan_name(text: &str, sigil: char) -> Result<(TokenKind, usize), String> {
    let length = word_length(&text[1..]);
    if length == 0 {
        return Err(format!("'{sigil}' needs a name after it"));
    }
    Ok((TokenKind::Name(sigil, text[1..=length].to_string()), length + 1))
}

fn scan_string(text: &str) -> Result<(TokenKind, usize), String> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((TokenKind::Str(value), at + 1)),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                _ => return Err("a string knows the escapes \\\", \\\\ and \\n".into()),
            },
            _ => value.push(c),
        }
    }
    Err("the string has no closing '\"' on its line".into())
}

fn scan_number(text: &str) -> Result<(TokenKind, usize), String> {
    let bytes = text.as_bytes();
    let mut length = usize::from(bytes[0] == b'-');
    let mut float = false;
    while let Some(&byte) = bytes.get(length) {
        let exponent_sign = matches!(byte, b'+' | b'-') && matches!(bytes[length - 1], b'e' | b'E');
        let dot = byte == b'.' && bytes.get(length + 1) != Some(&b'.');
        if !(byte.is_ascii_digit() || byte.is_ascii_alphabetic() || byte == b'_' || dot || exponent_sign) {
            break;
        }
        float |= dot || byte.eq_ignore_ascii_case(&b'e');
        length += 1;
    }
    let literal = &text[..length];
    let kind = if float {
        literal.parse().map(TokenKind::Float).ok()
    } else {
        literal.parse().map(TokenKind::Int).ok()
    };
    kind.map(|kind| (kind, length)).ok_or_else(|| format!("{} is not a number", cut(&format!("'{literal}'"))))
}

/// A parser's position in a token list. Every error names the place of the token that surprised.
pub struct Cursor {
    tokens: Vec<Token>,
    at: usize,
}

impl Cursor {
    pub fn new(text: &str) -> Result<Self> {
        Ok(Cursor { tokens: tokenize(text)?, at: 0 })
    }

    pub fn peek(&self) -> &TokenKind {
        &self.tokens[self.at].kind
    }

    /// The token after the next one.
    pub fn peek_second(&self) -> &TokenKind {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].kind
    }

    /// Line and column of the next token.
    pub fn position(&self) -> (u32, u32) {
        (self.tokens[self.at].line, self.tokens[self.at].col)
    }

    #[expect(clippy::should_implement_trait, reason = "a cursor never runs out: it ends in End")]
    pub fn next(&mut self) -> TokenKind {
        let kind = self.tokens[self.at].kind.clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        kind
    }

    pub fn at_end(&self) -> bool {
        *self.peek() == TokenKind::End
    }

    /// An error at the next token.
    pub fn error(&self, message: impl Into<String>) -> Error {
        let (line, col) = self.position();
        Error::at_position(line, col, message)
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        Err(self.error(format!("expected {what}, found {}", describe(self.peek()))))
    }

    pub fn at_punct(&self, punct: &str) -> bool {
        matches!(self.peek(), TokenKind::Punct(p) if *p == punct)
    }

    pub fn at_ident(&self, word: &str) -> bool {
        matches!(self.peek(), TokenKind::Ident(w) if w == word)
    }

    /// Takes the punctuation if it is next.
    pub fn eat(&mut self, punct: &str) -> bool {
        let there = self.at_punct(punct);
        if there {
            self.next();
        }
        there
    }

    /// Takes the word if it is next.
    pub fn eat_ident(&mut self, word: &str) -> bool {
        let there = self.at_ident(word);
        if there {
            self.next();
        }
        there
    }

    pub fn expect(&mut self, punct: &str) -> Result<()> {
        if self.eat(punct) { Ok(()) } else { self.expected(&format!("'{punct}'")) }
    }

    pub fn expect_ident(&mut self, word: &str) -> Result<()> {
        if self.eat_ident(word) { Ok(()) } else { self.expected(&format!("'{word}'")) }
    }

    /// Any word; `what` says what it stands for.
    pub fn ident(&mut self, what: &str) -> Result<String> {
        match self.peek().clone() {
            TokenKind::Ident(word) => {
                self.next();
                Ok(word)
            }
            _ => self.expected(what),
        }
    }

    /// `%name` or `@name`, without the sigil.
    pub fn name(&mut self, sigil: char, what: &str) -> Result<String> {
        match self.peek().clone() {
            TokenKind::Name(s, name) if s == sigil => {
                self.next();
                Ok(name)
            }
            _ => self.expected(&format!("{what} ({sigil}name)")),
        }
    }

    pub fn string(&mut self, what: &str) -> Result<String> {
        match self.peek().clone() {
            TokenKind::Str(value) => {
                self.next();
                Ok(value)
            }
            _ => self.expected(&format!("{what} in quotes")),
        }
    }

    pub fn int(&mut self, what: &str) -> Result<i128> {
        match *self.peek() {
            TokenKind::Int(value) => {
                self.next();
                Ok(value)
            }
            _ => self.expected(what),
        }
    }

    /// An integer that fits the target type.
    pub fn int_as<T: TryFrom<i128>>(&mut self, what: &str) -> Result<T> {
        let error = self.error(format!("{what} is out of range"));
        T::try_from(self.int(what)?).map_err(|_| error)
    }

    /// An integer or float, `inf`, `-inf` or `nan`.
    pub fn float(&mut self, what: &str) -> Result<f64> {
        let negative = self.at_punct("-") && matches!(self.peek_second(), TokenKind::Ident(_));
        if negative {
            self.next();
        }
        let value = match self.peek() {
            TokenKind::Int(value) => *value as f64,
            TokenKind::Float(value) => *value,
            TokenKind::Ident(word) if word == "inf" => f64::INFINITY,
            TokenKind::Ident(word) if word == "nan" => f64::NAN,
            _ => return self.expected(what),
        };
        self.next();
        Ok(if negative { -value } else { value })
    }

    /// Items separated by commas between two delimiters, which are taken too.
    pub fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        while !self.at_punct(close) {
            items.push(item(self)?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect(close)?;
        Ok(items)
    }

    /// `f32`, `f143`, `f143(-3)`, …
    pub fn dtype(&mut self) -> Result<DType> {
        let error =
            self.error(format!("expected an element type such as f32, found {}", describe(self.peek())));
        let TokenKind::Ident(word) = self.peek().clone() else { return Err(error) };
        let dtype = DType::from_name(&word).ok_or(error)?;
        self.next();
        match dtype {
            DType::F8(format, _) if self.eat("(") => self.f8_scale(format),
            _ => Ok(dtype),
        }
    }

    fn f8_scale(&mut self, format: F8Format) -> Result<DType> {
        let scale = self.int_as("the power-of-two scale of an 8-bit float (-128 to 127)")?;
        self.expect(")")?;
        Ok(DType::F8(format, scale))
    }

    /// `[2,3]`, with fewer than 2^63 elements.
    pub fn shape(&mut self) -> Result<Shape> {
        let error = self.error("a shape has fewer than 2^63 elements");
        let dims = self.list("[", "]", |cursor| cursor.int_as::<u64>("a dimension's size"))?;
        let shape = Shape::from(dims);
        shape.checked_num_elements().map(|_| shape).ok_or(error)
    }
}

/// A token as a person would name it in an error; long ones cut.
pub fn describe(kind: &TokenKind) -> String {
    cut(&describe_whole(kind))
}

/// At most some sixty characters of a text that a stranger wrote.
pub fn cut(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…'", &text[..at]),
        None => text.to_string(),
    }
}

fn describe_whole(kind: &TokenKind) -> String {
    match kind {
        TokenKind::Ident(word) => format!("'{word}'"),
        TokenKind::Name(sigil, name) => format!("'{sigil}{name}'"),
        TokenKind::Int(value) => format!("'{value}'"),
        TokenKind::Float(value) => format!("'{value}'"),
        TokenKind::Str(value) => format!("{value:?}"),
        TokenKind::Punct(punct) => format!("'{punct}'"),
        TokenKind::End => "the end of the text".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind> {
        tokenize(text).unwrap().into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn tokens() {
        use TokenKind::*;
        assert_eq!(
            kinds("%a.1 = add(@f, -3) -> 0..n ; comment\n1.5e-3 \"x\\\"y\" 2"),
            [
                Name('%', "a.1".into()),
                Punct("="),
                Ident("add".into()),
                Punct("("),
                Name('@', "f".into()),
                Punct(","),
                Int(-3),
                Punct(")"),
                Punct("->"),
                Int(0),
                Punct(".."),
                Ident("n".into()),
                Float(1.5e-3),
                Str("x\"y".into()),
                Int(2),
                End
            ]
        );
    }

    #[test]
    fn errors_have_positions() {
        let error = |text| tokenize(text).unwrap_err().to_string();
        assert_eq!(error("a\n  $"), "line 2, column 3: unexpected character '$'");
        assert_eq!(error("é $"), "line 1, column 1: unexpected character 'é'");
        assert_eq!(error("1x"), "line 1, column 1: '1x' is not a number");
        assert_eq!(error("% a"), "line 1, column 1: '%' needs a name after it");
        assert!(error("\"abc").contains("no closing"));
    }

    #[test]
    fn cursor_reads_values() {
        let mut cursor = Cursor::new("f143(-3)[2,3] -inf 1 nan").unwrap();
        assert_eq!(cursor.dtype().unwrap(), DType::F8(F8Format::F143, -3));
        assert_eq!(cursor.shape().unwrap(), Shape::from([2, 3]));
        assert_eq!(cursor.float("a number").unwrap(), f64::NEG_INFINITY);
        assert_eq!(cursor.float("a number").unwrap(), 1.0);
        assert!(cursor.float("a number").unwrap().is_nan());
        let error = cursor.int("a count").unwrap_err();
        assert_eq!(error.to_string(), "line 2, column 1: expected a count, found the end of the text");
        assert!(Cursor::new("[4294967296,4294967296]").unwrap().shape().is_err());
    }
}

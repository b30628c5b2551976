//! The directives of test files, for this crate's tests and for those of the engines that run the same
//! files:
//!
//! ```text
//! ; run: @main(f32[2] [1, 2], i32[] [3]) == f32[2] [4, 5]
//! ; tolerance: 1e-6
//! … offending line        ; error: text that the message contains
//! ```
//!
//! A file has any number of `run` lines and at most one tolerance; without one, values are equal bit for
//! bit (any NaN equals any NaN). Nothing here reads files.

use crate::errors;
use crate::text::parse_tensor;
use pando_base::lexer::Cursor;
use pando_base::{Error, Result, Tensor};

/// A call and what it gives.
#[derive(Clone, Debug, PartialEq)]
pub struct RunLine {
    pub func: String,
    pub args: Vec<Tensor>,
    pub expected: Vec<Tensor>,
    /// 1-based line in the file.
    pub line: u32,
}

/// An error that a file expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorLine {
    pub line: u32,
    /// The message contains this.
    pub text: String,
}

fn numbered_lines(text: &str) -> impl Iterator<Item = (u32, &str)> {
    text.lines().enumerate().map(|(index, line)| (index as u32 + 1, line))
}

/// What follows `; kind:` if the line starts so.
fn directive<'a>(line: &'a str, kind: &str) -> Option<&'a str> {
    line.trim_start().strip_prefix(';')?.trim_start().strip_prefix(kind)?.strip_prefix(':')
}

/// All `; run:` lines of a file.
pub fn run_lines(text: &str) -> Result<Vec<RunLine>> {
    let found = numbered_lines(text).filter_map(|(number, line)| Some((number, directive(line, "run")?)));
    found.map(|(number, rest)| run_line(rest, number).map_err(|error| on_line(number, &error))).collect()
}

/// Positions of a directive's own text mean nothing to the reader of the file.
fn on_line(line: u32, error: &Error) -> Error {
    let form = errors::bad_directive("run", "@func(f32[2] [1, 2], …) == f32[2] [3, 4], …");
    Error::at_position(line, 1, format!("{} ({})", form.message(), error.message()))
}

fn run_line(text: &str, line: u32) -> Result<RunLine> {
    let mut cursor = Cursor::new(text)?;
    let func = cursor.name('@', "the function to run")?;
    let args = cursor.list("(", ")", parse_tensor)?;
    cursor.expect("==")?;
    let mut expected = vec![parse_tensor(&mut cursor)?];
    while cursor.eat(",") {
        expected.push(parse_tensor(&mut cursor)?);
    }
    match cursor.at_end() {
        true => Ok(RunLine { func, args, expected, line }),
        false => Err(cursor.error("expected the end of the line")),
    }
}

/// The file's `; tolerance:`, or 0.
pub fn tolerance(text: &str) -> Result<f64> {
    let found = numbered_lines(text).find_map(|(number, line)| Some((number, directive(line, "tolerance")?)));
    let Some((number, rest)) = found else { return Ok(0.0) };
    let bad = || errors::bad_directive("tolerance", "1e-6");
    rest.trim().parse().map_err(|_| Error::at_position(number, 1, bad().message()))
}

/// All `; error:` comments of a file, wherever they stand on their line.
pub fn error_lines(text: &str) -> Vec<ErrorLine> {
    let found = numbered_lines(text).filter_map(|(line, content)| {
        let (_, text) = content.split_once("; error:")?;
        Some(ErrorLine { line, text: text.trim().to_string() })
    });
    found.collect()
}

/// An error that names the first difference. Floats may differ by `tolerance × (1 + |expected|)`;
/// integers are equal.
pub fn compare(actual: &[Tensor], expected: &[Tensor], tolerance: f64) -> Result<()> {
    if actual.len() != expected.len() {
        return Err(errors::differs(format!("{} results instead of {}", actual.len(), expected.len())));
    }
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        compare_tensor(actual, expected, tolerance).map_err(|e| e.context(format!("result {index}")))?;
    }
    Ok(())
}

fn compare_tensor(actual: &Tensor, expected: &Tensor, tolerance: f64) -> Result<()> {
    let ty = |tensor: &Tensor| format!("{}{}", tensor.dtype(), tensor.shape());
    if ty(actual) != ty(expected) {
        return Err(errors::differs(format!("type {} instead of {}", ty(actual), ty(expected))));
    }
    if !actual.dtype().is_float() {
        let differ =
            actual.to_ints().into_iter().zip(expected.to_ints()).enumerate().find(|(_, (a, b))| a != b);
        return differ.map_or(Ok(()), |(position, (a, b))| Err(differs_at(position, a, b)));
    }
    let mut pairs = actual.to_f64().into_iter().zip(expected.to_f64()).enumerate();
    let differ = pairs.find(|&(_, (a, b))| !is_close(a, b, tolerance));
    differ.map_or(Ok(()), |(position, (a, b))| Err(differs_at(position, a, b)))
}

fn is_close(actual: f64, expected: f64, tolerance: f64) -> bool {
    if tolerance == 0.0 {
        return actual.to_bits() == expected.to_bits() || actual.is_nan() && expected.is_nan();
    }
    let close = (actual - expected).abs() <= tolerance * (1.0 + expected.abs());
    close || actual == expected || actual.is_nan() && expected.is_nan()
}

fn differs_at(position: usize, actual: impl std::fmt::Display, expected: impl std::fmt::Display) -> Error {
    errors::differs(format!("element {position} is {actual} instead of {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives() {
        let text =
            "; run: @main(f32[2] [1, 2]) == f32[] [3], i32[1] [4]\n; tolerance: 1e-3\nx ; error: no x\n";
        let runs = run_lines(text).unwrap();
        assert_eq!((runs.len(), runs[0].func.as_str(), runs[0].line), (1, "main", 1));
        assert_eq!((runs[0].args.len(), runs[0].expected.len()), (1, 2));
        assert_eq!(tolerance(text).unwrap(), 1e-3);
        assert_eq!(error_lines(text), [ErrorLine { line: 3, text: "no x".into() }]);
        assert!(
            run_lines("; run: main()").unwrap_err().to_string().starts_with("line 1, column 1: a '; run'")
        );
    }

    #[test]
    fn comparison() {
        let f32s = |values: &[f64]| Tensor::from_f64(pando_base::DType::F32, [values.len() as u64], values);
        let check = |a: &[f64], b: &[f64], tolerance, expect| {
            let result = compare(&[f32s(a)], &[f32s(b)], tolerance);
            assert_eq!(result.map_err(|error| error.to_string()).err().unwrap_or_default(), expect);
        };
        check(&[1.0, f64::NAN], &[1.0, f64::NAN], 0.0, "");
        check(&[1.0, 2.0], &[1.0, 2.001], 1e-3, "");
        check(&[f64::INFINITY], &[f64::INFINITY], 1e-3, "");
        check(&[0.0], &[-0.0], 0.0, "result 0: element 0 is 0 instead of -0");
        check(&[1.0], &[1.0, 2.0], 0.0, "result 0: type f32[1] instead of f32[2]");
    }
}

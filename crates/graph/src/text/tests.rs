//! The text format: what is written is read back, and hostile text does no harm.

use super::*;

fn check_round_trip(text: &str) {
    let module = parse(text, "t").unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(print(&module), text);
}

#[test]
fn canonical_text_is_kept() {
    check_round_trip(
        "const @w0: f32[4096,4096] = normal(seed=1, mean=0, std=0.02)
const @b: f32[3] = [1, 2.5, -3]
const @z: f143(-3)[8] = splat(0)
const @i: i64[2] = [-9223372036854775808, 9223372036854775807]
const @p: bool[2] = [true, false]
const @n: f16[4] = [nan, -inf, -0.0, 0.1]
const @u: f32[0] = uniform(seed=18446744073709551615, low=-1, high=1e30)

func @main(%x: f32[N,4], %1: i32[N,4]) -> f32[N,4], f32[N] {
  %2, %y.1 = sort %x, %1 axis=1 descending=true stable=false : f32[N,4], i32[N,4]
  %4 = reduce %2 func=max axes=[1] : f32[N]
  %5 = call @softmax %x : f32[N,4]
  return %5, %4
}

composite \"soft\\\"max\" func @softmax(%0: f32[N,4]) -> f32[N,4] {
  return %0
}

func @nothing() {
  return
}
",
    );
}

/// Numbers chosen by the writer are chosen again by the printer.
#[test]
fn numbers_are_canonical() {
    let text = "func @f(%7: f32[]) -> f32[] { %3 = neg %7 : f32[] %0 = exp %3 : f32[] return %0 }";
    let printed = print(&parse(text, "t").unwrap());
    assert!(printed.contains("@f(%0: f32[])") && printed.contains("%2 = exp %1"), "{printed}");
}

#[test]
fn floats_read_back() {
    for value in [0.1, 1e300, 1.0 / 3.0, f64::MIN_POSITIVE, -1e15, 123456789.0, 5e-324] {
        assert_eq!(literal::format_f64(value).parse::<f64>().unwrap(), value);
    }
}

#[test]
fn hostile_text_is_harmless() {
    let check = |text: &str, expect: &str| {
        let error = parse(text, "t").unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    check(&"[".repeat(100_000), "expected const, func or composite");
    check("const @c: f32[1000000000000] = [1]", "expected 1000000000000 elements, found 1");
    check("const @c: f32[4294967296,4294967296] = [1]", "fewer than 2^63");
    check("func @f(%x: f32[", "t:2:1: expected");
    check(&format!("func @f() {{ %y = {} : f32[] return }}", "a".repeat(100_000)), "there is no op");
    let calls = |n: usize| -> String {
        (0..n)
            .map(|i| {
                format!("func @f{i}(%x: f32[]) -> f32[] {{ %y = call @f{} %x : f32[] return %y }}\n", i + 1)
            })
            .collect()
    };
    let last = |n: usize| format!("func @f{n}(%x: f32[]) -> f32[] {{ return %x }}\n");
    check(&(calls(20_000) + &last(20_000)), "nest deeper than 128");
    parse(&(calls(100) + &last(100)), "t").unwrap();
}

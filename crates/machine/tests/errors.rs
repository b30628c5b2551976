//! What users read when a file or a name is wrong. Each test changes one thing in a file that is
//! right and states the whole message, or its position and the part that matters.

use pando_machine::{Machine, check, load, parse, text};

/// A built-in file after changes. The `^` in one of the new texts stands before the character at which
/// the error is expected, so that a test states the place and not a line number that comments move.
struct Changed {
    text: String,
    /// `file:line:col` of the `^`.
    place: String,
}

fn tiny4(old: &str, new: &str) -> Changed {
    changed("tiny4", &[(old, new)])
}

fn changed(system: &str, changes: &[(&str, &str)]) -> Changed {
    let mut text = text(system).unwrap().to_string();
    assert!(!text.contains('^'));
    for (old, new) in changes {
        assert!(text.contains(old), "no `{old}` in {system}");
        text = text.replacen(old, new, 1);
    }
    let (before, after) = text.split_once('^').expect("a ^ in one change");
    let line = before.matches('\n').count() + 1;
    let col = before.rsplit('\n').next().unwrap_or("").len() + 1;
    Changed { text: format!("{before}{after}"), place: format!("my.toml:{line}:{col}") }
}

impl Changed {
    #[track_caller]
    fn says(&self, message: &str) {
        let error = parse(&self.text, "my.toml", None).unwrap_err().to_string();
        assert_eq!(error, format!("{}: {message}", self.place));
    }
}

#[track_caller]
fn text_error(text: &str, expected: &str) {
    assert_eq!(parse(text, "my.toml", None).unwrap_err().to_string(), expected);
}

#[test]
fn unknown_names_list_the_known_and_the_closest() {
    let error = load("pod65").unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no system `pod65`, did you mean `pod64`?; the built-in systems are c2, mk2, m2000, \
         pod4, pod16, pod64, pod128, pod256, pod64k, bow, bow2000, bow-pod16, bow-pod64, bow-pod128, \
         bow-pod256, c600, tiny4; for a system of your own give the path of its file, ending in .toml"
    );
    assert!(load("").unwrap_err().to_string().starts_with("there is no system ``;"));
    assert!(load("frontier").unwrap_err().to_string().starts_with("there is no system `frontier`; the"));
    let long = load(&"µ\n".repeat(10_000)).unwrap_err().to_string();
    assert!(long.len() < 1000 && !long.contains('\n'), "{long}");
}

#[test]
fn a_file_that_is_not_there() {
    let error = load("absent.toml").unwrap_err().to_string();
    assert!(error.starts_with("absent.toml: cannot read this file: "), "{error}");
    assert!(error.ends_with("; check the path and that it is text"), "{error}");
}

#[test]
fn syntax() {
    text_error("name = \"a\"\nchips = = 4\n", "my.toml:2:9: extra `=`, expected nothing");
    text_error("name = \"a", "my.toml:1:10: invalid basic string, expected `\"`");
}

#[test]
fn fields_too_many_or_too_few() {
    tiny4("workers = 6", "^wokers = 6").says(
        "unknown field `wokers`, expected one of `name`, `tiles`, `workers`, `clock_hz`, `sram`, \
         `issue`, `matrix`, `exchange`, `sync`, `power_w`",
    );
    text_error("", "my.toml:1:1: missing field `name`");
    changed("tiny4", &[("[chip]", "^[chip]"), ("workers = 6", "#")]).says("missing field `workers`");
    changed("pod16", &[("[links]", "^[links]"), ("rung_links = 6", "#")]).says("missing field `rung_links`");
}

#[test]
fn wrong_types() {
    tiny4("workers = 6", "workers = ^\"six\"")
        .says("invalid type: string \"six\", expected a whole number from 0");
    tiny4("workers = 6", "workers = ^6.5")
        .says("invalid type: floating point `6.5`, expected a whole number from 0");
    tiny4("workers = 6", "workers = ^-6").says("invalid value: integer `-6`, expected a whole number from 0");
    tiny4("clock_hz = 1.325e9", "clock_hz = ^true").says("invalid type: boolean `true`, expected a number");
    changed("pod16", &[("[links]", "[other]"), ("chips = 16", "links = ^3\nchips = 16")])
        .says("invalid type: integer `3`, expected a table");
    changed("pod16", &[("\"ladder\"", "^\"mesh\"")])
        .says("unknown variant `mesh`, expected one of `pair`, `ladder`, `torus`, `full`");
    changed("pod16", &[("\"gc200\"", "^7")]).says(
        "invalid type: integer `7`, expected the name of a built-in chip, the path of a chip file, \
         or a [chip] table",
    );
}

#[test]
fn chips_that_are_nowhere() {
    changed("pod16", &[("\"gc200\"", "^\"gc201\"")]).says(
        "there is no chip `gc201`, did you mean `gc200`?; the built-in chips are gc2, gc200, bow, \
         c600; write one of them, the path of a chip file ending in .toml, or a [chip] table",
    );
    changed("pod16", &[("\"gc200\"", "^\"x.toml\"")]).says(
        "chip file `x.toml` is looked for beside the system file, but this text is not in a folder; \
         write a [chip] table instead",
    );
}

#[test]
fn numbers_that_make_no_sense() {
    tiny4("tiles = 4", "tiles = ^0")
        .says("chip.tiles: 0 is not possible; expected a whole number from 1 to 65536");
    tiny4("workers = 6", "workers = ^0")
        .says("chip.workers: 0 is not possible; expected a whole number from 1 to 1024");
    tiny4("clock_hz = 1.325e9", "clock_hz = ^nan")
        .says("chip.clock_hz: NaN is not possible; expected a number above 0, at most 1e18");
    tiny4("clock_hz = 1.325e9", "clock_hz = ^-2")
        .says("chip.clock_hz: -2 is not possible; expected a number above 0, at most 1e18");
    tiny4("external_s = 0.363e-6", "external_s = ^inf")
        .says("chip.sync.external_s: inf is not possible; expected seconds from 0 to 1000");
    tiny4("bytes_to_chip_per_s = 7.06e9", "bytes_to_chip_per_s = ^0")
        .says("host.bytes_to_chip_per_s: 0 is not possible; expected a number above 0, at most 1e18");
    tiny4("bytes_per_tile = 638_976", "bytes_per_tile = ^9_223_372_036_854_775_807").says(
        "chip.sram.bytes_per_tile: 9223372036854775807 is not possible; expected a whole number from \
         1 to 134217727",
    );
    changed("pod16", &[("efficiency = 0.85", "efficiency = ^1.5")])
        .says("links.efficiency: 1.5 is not possible; expected a share above 0, at most 1");
    tiny4("name = \"tiny4\"", "name = ^\" \"").says("name: the text is empty; expected a name");
}

#[test]
fn regions_add_up() {
    tiny4("bytes_per_tile = 638_976", "bytes_per_tile = ^638_977").says(
        "chip.sram.bytes_per_tile: 638977 is not the sum of the two regions; expected \
         executable_bytes + interleaved_bytes = 212992 + 425984 = 638976",
    );
}

#[test]
fn matrix_rates_are_distinct_and_known() {
    tiny4("input = \"f16\"", "input = ^\"fp16\"").says(
        "chip.matrix[0].input: there is no number format `fp16` in the matrix unit; expected one of \
         f8, f16, f32",
    );
    let second = "input = \"f16\"\npartials = \"f32\"";
    let marked = "input = ^\"f16\"\npartials = \"f32\"";
    changed("tiny4", &[(second, marked), ("partials = \"f16\"", "partials = \"f32\"")])
        .says("chip.matrix[1].input: the rate for input f16, partials f32 is given twice; keep one");
}

#[test]
fn chips_domains_and_links_agree() {
    changed("pod128", &[("chips = 128", "chips = ^100")]).says(
        "chips: 100 is not the number of chips in the domains; expected gateway.domains x \
         links.domain_chips = 2 x 64 = 128",
    );
    changed("pod16", &[("domain_chips = 16", "domain_chips = ^7")])
        .says("links.domain_chips: 7 chips form no ladder; expected an even number");
    changed("pod16", &[("rail_links = 2", "rail_links = ^0")])
        .says("links.rail_links: 0 links leave the ladder unconnected; expected at least 1");
    changed("pod16", &[("links_per_chip = ", "links_per_chip = ^"), ("rung_links = 6", "rung_links = 7")])
        .says(
            "links.links_per_chip: 10 links are too few for this topology; rung_links and rail_links \
             need 11 on each chip",
        );
    changed("pod16", &[("chips_per_attachment = 4", "chips_per_attachment = ^400")])
        .says("host.chips_per_attachment: 400 is more than the 16 of the system; expected 1 to 16");
    tiny4("chips = 1", "chips = ^2").says("chips: 2 chips have no way to each other; add a [links] table");
}

/// A machine made in code has no lines, only fields.
#[test]
fn machines_without_a_text() {
    let mut machine: Machine = load("tiny4").unwrap();
    machine.chip.exchange.bytes_per_cycle = 0;
    assert_eq!(
        check(&machine).unwrap_err().to_string(),
        "chip.exchange.bytes_per_cycle: 0 is not possible; expected a whole number from 1 to 1048576"
    );
}

/// Every cut of a right file, and every byte of it turned into something else, is a machine or an
/// error; never a panic.
#[test]
fn damaged_files_do_not_panic() {
    for system in ["tiny4", "pod128"] {
        let text = text(system).unwrap();
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let _ = parse(&text[..at], "my.toml", None);
            for damage in ["9", "-", "\"", "[", "µ"] {
                let rest = text[at..].chars().next().map_or("", |c| &text[at + c.len_utf8()..]);
                let _ = parse(&format!("{}{damage}{rest}", &text[..at]), "my.toml", None);
            }
        }
    }
}

/// Nesting is refused by the TOML reader before it becomes a stack overflow.
#[test]
fn deep_nesting_does_not_overflow() {
    let deep = 100_000;
    assert!(parse(&format!("a = {}", "[".repeat(deep)), "my.toml", None).is_err());
    assert!(parse(&format!("a = {}", "{a=".repeat(deep)), "my.toml", None).is_err());
    assert!(parse(&format!("{}a = 1", "a.".repeat(deep)), "my.toml", None).is_err());
    assert!(parse(&format!("[{}a]", "a.".repeat(deep)), "my.toml", None).is_err());
}

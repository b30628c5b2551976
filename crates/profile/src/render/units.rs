//! Numbers with units, a few digits each.

/// Bytes in powers of 1024: `312.5 KiB`.
pub fn bytes(value: u64) -> String {
    scaled(value as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// Something per second in powers of 1000: `rate(2.1e12, "FLOP/s")` is `2.1 TFLOP/s`.
pub fn rate(value: f64, unit: &str) -> String {
    let text = scaled(value, 1000.0, &["", "k", "M", "G", "T", "P", "E"]);
    match text.split_once(' ') {
        Some((number, prefix)) => format!("{number} {prefix}{unit}"),
        None => format!("{text} {unit}"),
    }
}

/// Seconds as ns, µs, ms or s.
pub fn duration(seconds: f64) -> String {
    let nanoseconds = seconds * 1e9;
    if nanoseconds == 0.0 {
        "0 s".into()
    } else if nanoseconds < 999.95 {
        format!("{nanoseconds:.1} ns")
    } else if seconds < 0.99995e-3 {
        format!("{:.2} µs", seconds * 1e6)
    } else if seconds < 0.99995 {
        format!("{:.3} ms", seconds * 1e3)
    } else {
        format!("{seconds:.3} s")
    }
}

/// A whole number in groups of three digits: `1,635,050`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Things that are counted, as many digits as matter: `12,960`, `51.3`, `0.004`.
pub fn amount(value: f64) -> String {
    match value {
        v if v >= 99.95 => count(v.round() as u64),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}

/// Joules as nJ, µJ, mJ or J and up.
pub fn energy(joules: f64) -> String {
    match joules {
        j if j < 0.999_95e-6 => format!("{:.2} nJ", j * 1e9),
        j if j < 0.999_95e-3 => format!("{:.2} µJ", j * 1e6),
        j if j < 0.999_95 => format!("{:.2} mJ", j * 1e3),
        j => rate(j, "J"),
    }
}

/// US dollars, with cents where they matter.
pub fn price(dollars: f64) -> String {
    match dollars {
        d if d < 0.01 => format!("{d:.2e} US$"),
        d if d < 1000.0 => format!("{d:.2} US$"),
        d => rate(d, "US$"),
    }
}

/// A share as `75.4 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Whole units plainly, larger ones with one digit after the point and never `1024.0 KiB`.
fn scaled(value: f64, base: f64, prefixes: &[&str]) -> String {
    let mut value = value;
    let mut at = 0;
    // What would be printed as the base or more belongs to the next unit.
    while value >= base - 0.05 && at + 1 < prefixes.len() {
        value /= base;
        at += 1;
    }
    let number = if at == 0 && value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    if prefixes[at].is_empty() { number } else { format!("{number} {}", prefixes[at]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_read_well() {
        assert_eq!([0, 1023, 1024, 638_976].map(bytes), ["0 B", "1023 B", "1.0 KiB", "624.0 KiB"]);
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(rate(2.1e12, "FLOP/s"), "2.1 TFLOP/s");
        assert_eq!(rate(12.0, "B/s"), "12 B/s");
        assert_eq!(
            [0.004, 9.99, 51.26, 99.97, 12_960.2].map(amount),
            ["0.004", "9.990", "51.3", "100", "12,960"]
        );
        assert_eq!(
            [2.5e-7, 2.5e-4, 0.25, 2.0, 4200.0].map(energy),
            ["250.00 nJ", "250.00 µJ", "250.00 mJ", "2 J", "4.2 kJ"]
        );
        assert_eq!(duration(0.0), "0 s");
        assert_eq!(duration(1.5e-9), "1.5 ns");
        assert_eq!(duration(1.234_56e-3), "1.235 ms");
        assert_eq!(duration(0.999_96e-3), "1.000 ms");
        assert_eq!(duration(12.0), "12.000 s");
        assert_eq!([0, 999, 1000, 1_635_050].map(count), ["0", "999", "1,000", "1,635,050"]);
        assert_eq!(percent(0.754), "75.4 %");
    }
}

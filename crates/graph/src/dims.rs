//! Arithmetic on dimensions. Numbers give numbers; as soon as a name takes part the result is a name
//! derived from the operands' names and the operation, so that the same computation on the same names
//! gives the same name. Binding (`bind.rs`) computes the number again; derived names are never parsed.

use crate::types::{Dim, Dims};

/// Values have fewer elements than this, so that sizes in bytes and bits fit 64 bits.
pub const MAX_ELEMENTS: u64 = 1 << 60;

/// Derived names longer than this are replaced by a hash: doubling a name must not double memory.
const MAX_NAME_LENGTH: usize = 64;

/// The number of elements if all dimensions are known; zero-sized dimensions do not hide an overflow of
/// the others (strides must be computable too). `None` means too large.
pub fn check_size(dims: &[Dim]) -> Option<()> {
    let product = dims.iter().filter_map(Dim::known).try_fold(1u64, |product, size| {
        product.checked_mul(size.max(1)).filter(|&product| product < MAX_ELEMENTS)
    });
    product.map(|_| ())
}

/// A name made from an operation and its operands.
pub fn derive(operation: &str, dims: &[&Dim]) -> Dim {
    let mut parts: Vec<String> = dims.iter().map(|dim| dim.to_string()).collect();
    // A word may not start with a digit, nor hold a sign.
    parts.insert(1.min(parts.len()), operation.replace('-', "m"));
    let name = parts.join(".");
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let name = if starts_well { name } else { format!("dim.{name}") };
    Dim::named(&shorten(name))
}

fn shorten(name: String) -> String {
    if name.len() <= MAX_NAME_LENGTH {
        return name;
    }
    // FNV-1a: stable across platforms and releases, which std's hashers are not.
    let hash = name
        .bytes()
        .fold(0xcbf29ce484222325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100000001b3));
    format!("dim.{hash:016x}")
}

/// `dim + offset`; `None` if a number becomes negative or overflows.
pub fn offset(dim: &Dim, offset: i128) -> Option<Dim> {
    match dim {
        Dim::Known(size) => {
            let size = i128::from(*size).checked_add(offset)?;
            u64::try_from(size).ok().map(Dim::Known)
        }
        Dim::Named(_) if offset == 0 => Some(dim.clone()),
        Dim::Named(_) if offset > 0 => Some(derive(&format!("plus.{offset}"), &[dim])),
        Dim::Named(_) => Some(derive(&format!("minus.{}", -offset), &[dim])),
    }
}

/// The sum of dimensions; names in sorted order, so that the order of addition does not matter.
pub fn sum(dims: &[Dim]) -> Option<Dim> {
    let known = dims.iter().filter_map(Dim::known).try_fold(0u64, u64::checked_add)?;
    let mut named: Vec<&Dim> = dims.iter().filter(|dim| dim.known().is_none()).collect();
    named.sort();
    match named.as_slice() {
        [] => Some(Dim::Known(known)),
        [one] => offset(one, known.into()),
        several => offset(&derive("plus", several), known.into()),
    }
}

/// One dimension of a sliding window: of a convolution or a window reduction.
#[derive(Clone, Copy, Debug)]
pub struct Sliding {
    pub stride: u64,
    /// Elements added before and after; negative crops.
    pub padding: (i64, i64),
    /// Distance of neighbouring input elements after dilation; 1 is dense.
    pub input_dilation: u64,
    pub window_dilation: u64,
}

/// The number of window positions; `None` if the window does not fit or a number overflows.
pub fn sliding(input: &Dim, window: &Dim, how: Sliding) -> Option<Dim> {
    let (low, high) = (i128::from(how.padding.0), i128::from(how.padding.1));
    match (input, window) {
        (Dim::Known(input), Dim::Known(window)) => {
            let padded = dilate(*input, how.input_dilation)?.checked_add(low)?.checked_add(high)?;
            let span = dilate(*window, how.window_dilation)?;
            let room = padded.checked_sub(span).filter(|&room| room >= 0)?;
            u64::try_from(room / i128::from(how.stride) + 1).ok().map(Dim::Known)
        }
        (Dim::Named(_), Dim::Known(window)) if how.stride == 1 && how.input_dilation == 1 => {
            offset(input, low + high + 1 - dilate(*window, how.window_dilation)?)
        }
        _ => {
            let numbers = [how.stride, how.input_dilation, how.window_dilation];
            let text = format!("window.{low}.{high}.{}.{}.{}", numbers[0], numbers[1], numbers[2]);
            Some(derive(&text, &[input, window]))
        }
    }
}

/// Extent of `size` elements placed `dilation` apart. Zero elements have extent zero.
fn dilate(size: u64, dilation: u64) -> Option<i128> {
    match size {
        0 => Some(0),
        _ => i128::from(size - 1).checked_mul(dilation.into())?.checked_add(1),
    }
}

/// One dimension of a pad: `interior` elements between neighbours, then `low` before and `high` after,
/// which crop if negative. `None` if the size becomes negative or overflows.
pub fn padded(dim: &Dim, low: i64, high: i64, interior: u64) -> Option<Dim> {
    let edges = i128::from(low) + i128::from(high);
    match dim {
        Dim::Known(size) => {
            let size = dilate(*size, interior.checked_add(1)?)?.checked_add(edges)?;
            u64::try_from(size).ok().map(Dim::Known)
        }
        Dim::Named(_) if interior == 0 => offset(dim, edges),
        Dim::Named(_) => Some(derive(&format!("pad.{edges}.{interior}"), &[dim])),
    }
}

/// One dimension of a slice. `None` unless `begin <= end <= dim`, as far as that is known.
pub fn sliced(dim: &Dim, begin: u64, end: &Dim, step: u64) -> Option<Dim> {
    match (dim, end) {
        (_, Dim::Known(end)) => {
            let fits = begin <= *end && dim.known().is_none_or(|size| *end <= size);
            fits.then(|| Dim::Known((end - begin).div_ceil(step)))
        }
        (Dim::Named(name), Dim::Named(end_name)) if name == end_name => stepped(dim, begin, step),
        (_, Dim::Named(_)) => stepped(end, begin, step),
    }
}

fn stepped(end: &Dim, begin: u64, step: u64) -> Option<Dim> {
    match step {
        1 => offset(end, -i128::from(begin)),
        _ => Some(derive(&format!("slice.{begin}.{step}"), &[end])),
    }
}

/// Whether two lists of dimensions can have equally many elements: equal names cancel; names left over
/// could be any number.
pub fn may_have_equal_products(a: &[Dim], b: &[Dim]) -> bool {
    let names = |dims: &[Dim]| -> Vec<Dim> {
        let mut names: Vec<Dim> = dims.iter().filter(|dim| dim.known().is_none()).cloned().collect();
        names.sort();
        names
    };
    let product = |dims: &[Dim]| dims.iter().filter_map(Dim::known).try_fold(1u64, u64::checked_mul);
    names(a) != names(b) || product(a) == product(b)
}

/// `dims` with the dimension at `axis` replaced by several.
pub fn replace(dims: &[Dim], axis: usize, with: &[Dim]) -> Dims {
    dims[..axis].iter().chain(with).chain(&dims[axis + 1..]).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(text: &str) -> Dim {
        text.parse().map_or_else(|_| Dim::named(text), Dim::Known)
    }

    #[test]
    fn names_are_derived_from_names() {
        let check = |actual: Option<Dim>, expect: &str| {
            assert_eq!(actual.map_or("none".into(), |dim| dim.to_string()), expect);
        };
        check(sum(&[dim("2"), dim("3")]), "5");
        check(sum(&[dim("N"), dim("0")]), "N");
        check(sum(&[dim("N"), dim("3"), dim("M")]), "M.plus.N.plus.3");
        check(sum(&[dim("M"), dim("N"), dim("3")]), "M.plus.N.plus.3");
        check(padded(&dim("N"), 1, 1, 0), "N.plus.2");
        check(padded(&dim("N"), 1, -1, 0), "N");
        check(padded(&dim("2"), -3, 0, 0), "none");
        check(padded(&dim("3"), 1, 1, 2), "9");
        check(sliced(&dim("N"), 1, &dim("N"), 1), "N.minus.1");
        check(sliced(&dim("N"), 0, &dim("N"), 1), "N");
        check(sliced(&dim("5"), 1, &dim("5"), 2), "2");
        check(sliced(&dim("5"), 1, &dim("6"), 1), "none");
        let same = Sliding { stride: 1, padding: (1, 1), input_dilation: 1, window_dilation: 1 };
        check(sliding(&dim("N"), &dim("3"), same), "N");
        check(sliding(&dim("5"), &dim("3"), Sliding { stride: 2, ..same }), "3");
        check(sliding(&dim("0"), &dim("3"), same), "none");
        check(
            sliding(&dim(&u64::MAX.to_string()), &dim("3"), Sliding { input_dilation: u64::MAX, ..same }),
            "none",
        );
    }

    #[test]
    fn names_do_not_grow_without_bound() {
        let mut name = dim("N");
        for _ in 0..200 {
            name = sum(&[name.clone(), name]).unwrap();
        }
        assert!(name.to_string().len() <= MAX_NAME_LENGTH);
    }

    #[test]
    fn products_with_names() {
        let check = |a: &[&str], b: &[&str], expect| {
            let dims = |texts: &[&str]| texts.iter().map(|text| dim(text)).collect::<Vec<_>>();
            assert_eq!(may_have_equal_products(&dims(a), &dims(b)), expect);
        };
        check(&["N", "4"], &["2", "2", "N"], true);
        check(&["N", "4"], &["2", "N"], false);
        check(&["N", "4"], &["M"], true);
        check(&["2", "3"], &["7"], false);
    }
}

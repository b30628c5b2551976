//! How many steps add up partial results, and in what type.

use pando_base::{DType, ReduceFn};

/// The number of groups after each stage; the last is 1.
pub type Stages = Vec<u64>;

/// One stage up to 15 partials, two from 16, three from 125: more stages mean fewer messages per tile.
/// Source: PopLibs' convolution reduce plan as restated in poplar.md section 2.5; stage depths near the
/// n-th root of the number of partials.
pub fn stages_for(partials: u64) -> Stages {
    let stages = match partials {
        0..16 => 1,
        16..125 => 2,
        _ => 3,
    };
    let mut left = partials;
    let mut out = Vec::new();
    for remaining in (1..=stages).rev() {
        let depth =
            if remaining == 1 { left } else { (left as f64).powf(1.0 / f64::from(remaining)).round() as u64 };
        left = left.div_ceil(depth.max(1));
        out.push(left);
    }
    out
}

/// The same for partial results along several axes: the longest is left for stages of its own if that spares a tile
/// many messages. The numbers are groups along the longest.
pub fn stages_for_axes(parts: &[u64]) -> Stages {
    let all: u64 = parts.iter().product();
    let longest = parts.iter().copied().max().unwrap_or(1);
    if all < 16 || all == longest {
        return stages_for(longest);
    }
    std::iter::once(longest).chain(stages_for(longest)).collect()
}

/// Partial sums and products of half-precision values are kept in f32, as the library's default
/// accumulator type is (poplar.md section 3.2, `accumType`).
pub fn total_dtype(func: ReduceFn, dtype: DType) -> DType {
    let half = matches!(dtype, DType::F16 | DType::BF16);
    if half && matches!(func, ReduceFn::Sum | ReduceFn::Prod) { DType::F32 } else { dtype }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_end_in_one() {
        assert_eq!(stages_for(7), [1]);
        assert_eq!(stages_for(16), [4, 1]);
        assert_eq!(stages_for(125), [25, 5, 1]);
        assert_eq!(stages_for_axes(&[1, 16]), [4, 1]);
        assert_eq!(stages_for_axes(&[3, 5]), [1]);
        assert_eq!(stages_for_axes(&[8, 14]), [14, 1]);
        assert!((1..2000).all(|partials| stages_for(partials).last() == Some(&1)));
    }
}

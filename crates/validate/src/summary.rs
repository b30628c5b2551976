//! Rows summed up per kind.

use crate::predict::Row;
use crate::series::Kind;

/// Errors over some rows. Reading errors of measurements count as errors of the prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub rows: usize,
    pub median_abs_error: f64,
    pub max_abs_error: f64,
    /// Rows more than a factor of two off.
    pub far: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KindSummary {
    pub kind: Kind,
    /// Rows that no constant was fitted with, and all.
    pub not_fitted: Summary,
    pub all: Summary,
    /// The range of the points' main size, where they have one.
    pub sizes: Option<(f64, f64)>,
    pub systems: Vec<String>,
}

pub fn summarize<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Summary {
    let mut errors: Vec<f64> = rows.clone().map(Row::abs_error).collect();
    errors.sort_by(f64::total_cmp);
    Summary {
        rows: errors.len(),
        median_abs_error: median(&errors),
        max_abs_error: errors.last().copied().unwrap_or(0.0),
        far: rows.filter(|row| row.is_far()).count(),
    }
}

/// Of sorted numbers; 0 of none.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

impl KindSummary {
    /// One entry per kind that has rows.
    pub fn of(rows: &[Row]) -> Vec<KindSummary> {
        let entry = |kind: Kind| {
            let own = rows.iter().filter(move |row| row.kind == kind);
            let mut systems: Vec<String> = own.clone().map(|row| row.system.clone()).collect();
            systems.sort();
            systems.dedup();
            let sizes = own.clone().filter_map(|row| row.size);
            let low = sizes.clone().fold(f64::INFINITY, f64::min);
            let high = sizes.fold(0.0, f64::max);
            let all = summarize(own.clone());
            (all.rows > 0).then(|| KindSummary {
                kind,
                not_fitted: summarize(own.filter(|row| row.fitted.is_none())),
                all,
                sizes: (low <= high).then_some((low, high)),
                systems,
            })
        };
        Kind::ALL.into_iter().filter_map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}

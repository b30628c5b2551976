//! Which input elements a sliding window covers, along one dimension.

use crate::dims::Sliding;

/// A window element and the input element under it.
pub(super) struct Tap {
    pub window: usize,
    pub input: usize,
}

/// The taps of the window at output position `output`, leaving out padding and the holes of input
/// dilation. Rising in both. Costs the smaller of the sizes, so that absurd windows cost nothing.
pub(super) fn taps(output: u64, input_size: u64, window_size: u64, how: Sliding) -> Vec<Tap> {
    // Input positions after dilation and padding: input * input_dilation + low.
    let start = i128::from(output) * i128::from(how.stride) - i128::from(how.padding.0);
    let divide = |distance: i128, by: u64, below: u64| -> Option<u64> {
        let by = i128::from(by);
        let exact = distance >= 0 && distance % by == 0;
        exact.then(|| (distance / by) as u64).filter(|&quotient| quotient < below)
    };
    let tap = |window: u64, input: u64| Tap { window: window as usize, input: input as usize };
    if window_size <= input_size {
        let under = |window: u64| {
            let at = start + i128::from(window) * i128::from(how.window_dilation);
            divide(at, how.input_dilation, input_size).map(|input| tap(window, input))
        };
        (0..window_size).filter_map(under).collect()
    } else {
        let over = |input: u64| {
            let at = i128::from(input) * i128::from(how.input_dilation) - start;
            divide(at, how.window_dilation, window_size).map(|window| tap(window, input))
        };
        (0..input_size).filter_map(over).collect()
    }
}

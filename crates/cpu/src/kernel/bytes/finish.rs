//! What becomes of sums of bytes: `cut(sums · scale + shift)`, perhaps with another tensor's bytes added, rounded half to
//! even and moved to a zero point; or that in f32, or the sums themselves.

#![allow(unsafe_code)]

/// All bounds count from the zero points. Scales are positive, nothing is NaN.
pub struct Finish<'a> {
    /// Added to the sums, by column: room for a whole panel each.
    pub sums: &'a [i32],
    pub scale: &'a [f32],
    pub shift: &'a [f32],
    pub low: f32,
    pub high: f32,
    pub residual: Option<&'a Residual>,
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Output {
    /// With this zero point.
    U8(u8),
    F32,
    I32,
}

/// `cut(round(before) · factor + (bytes · other + shift))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual {
    /// Whether what is before is rounded: it was quantised.
    pub rounds: bool,
    pub factor: f32,
    pub other: f32,
    /// The zero point of the bytes, times -`other`.
    pub shift: f32,
    pub low: f32,
    pub high: f32,
}

/// 1.5 · 2^23: what is added to it is rounded to whole numbers, half to even.
const WHOLE: f32 = 12_582_912.0;

fn round(x: f32) -> f32 {
    (x + WHOLE) - WHOLE
}

fn cut(x: f32, low: f32, high: f32) -> f32 {
    let above = if x > low { x } else { low };
    if above < high { above } else { high }
}

impl Output {
    pub fn size_bytes(self) -> usize {
        if matches!(self, Output::U8(_)) { 1 } else { 4 }
    }
}

impl Finish<'_> {
    /// Finishes the sums of columns from `column` on; results go to position `at`, where the residual is too.
    ///
    /// # Safety
    /// So many results lie there, the caller's alone; the residual has as many bytes.
    pub unsafe fn run(&self, sums: &[i32], column: usize, y: *mut u8, at: usize, residual: *const u8) {
        for (index, &sum) in sums.iter().enumerate() {
            let column = column + index;
            let sum = sum.wrapping_add(self.sums[column]);
            let value = (sum as f32).mul_add(self.scale[column], self.shift[column]);
            let value = cut(value, self.low, self.high);
            let position = at + index;
            // SAFETY: passed on.
            unsafe {
                let value = match self.residual {
                    Some(added) => added.run(value, *residual.add(position)),
                    None => value,
                };
                match self.output {
                    Output::U8(zero) => *y.add(position) = (round(value) as i32 + i32::from(zero)) as u8,
                    Output::F32 => *y.cast::<f32>().add(position) = value,
                    Output::I32 => *y.cast::<i32>().add(position) = sum,
                }
            }
        }
    }
}

impl Residual {
    fn run(&self, before: f32, byte: u8) -> f32 {
        let before = if self.rounds { round(before) } else { before };
        let other = f32::from(byte).mul_add(self.other, self.shift);
        cut(before.mul_add(self.factor, other), self.low, self.high)
    }
}

//! Non-maximum suppression. How many boxes are left depends on the data, so that it must be known.

use crate::ctx::Ctx;
use crate::errors;
use pando_base::{DType, Result};
use pando_graph::ValueId;

/// Corners with the smaller coordinate first.
#[derive(Clone, Copy)]
struct Rectangle {
    low: [f64; 2],
    high: [f64; 2],
}

impl Rectangle {
    fn new(corners: &[f64], by_centre: bool) -> Self {
        let [a, b, c, d] = [corners[0], corners[1], corners[2], corners[3]];
        match by_centre {
            true => Rectangle { low: [a - c / 2.0, b - d / 2.0], high: [a + c / 2.0, b + d / 2.0] },
            false => Rectangle { low: [a.min(c), b.min(d)], high: [a.max(c), b.max(d)] },
        }
    }

    fn area(self) -> f64 {
        (0..2).map(|axis| self.high[axis] - self.low[axis]).product()
    }

    /// Intersection over union.
    fn overlap(self, other: Rectangle) -> f64 {
        let side = |axis: usize| {
            (self.high[axis].min(other.high[axis]) - self.low[axis].max(other.low[axis])).max(0.0)
        };
        let common = side(0) * side(1);
        let union = self.area() + other.area() - common;
        if union > 0.0 { common / union } else { 0.0 }
    }
}

pub(super) fn non_max_suppression(c: &mut Ctx) -> Result<ValueId> {
    let known = c.decided_together(&[c.x(0)?, c.x(1)?])?.ok_or_else(|| errors::needs_value(0))?;
    let (boxes, scores) = (&known[0], &known[1]);
    let [batches, count, 4] = boxes.shape()[..] else {
        return Err(errors::invalid("boxes need the shape [B, N, 4]"));
    };
    if count > 1 << 15 {
        return Err(errors::too_much_work("a suppression among more than 2^15 boxes"));
    }
    let classes = match scores.shape()[..] {
        [b, classes, n] if b == batches && n == count => classes,
        _ => return Err(errors::invalid("scores need the shape [B, C, N]")),
    };
    let most = c.known_ints_opt(2)?.and_then(|most| most.first().copied()).unwrap_or(0).max(0) as usize;
    let optional = |c: &Ctx, position: usize| match c.opt(position)? {
        Some(_) => c.known_float(position).map(Some),
        None => Ok(None),
    };
    let (overlap, least) = (optional(c, 3)?.unwrap_or(0.0), optional(c, 4)?);
    let by_centre = c.flag("center_point_box", false);
    let (boxes, scores) = (boxes.to_f64(), scores.to_f64());
    let mut chosen = Vec::new();
    for batch in 0..batches {
        let own = &boxes[(batch * count * 4) as usize..][..(count * 4) as usize];
        let rectangles: Vec<Rectangle> =
            own.chunks_exact(4).map(|corners| Rectangle::new(corners, by_centre)).collect();
        for class in 0..classes {
            let scores = &scores[((batch * classes + class) * count) as usize..][..count as usize];
            let kept = suppress(&rectangles, scores, most, overlap, least);
            chosen.extend(kept.into_iter().flat_map(|at| [batch as i64, class as i64, at as i64]));
        }
    }
    Ok(c.ints_const(DType::I64, &[chosen.len() as u64 / 3, 3], &chosen))
}

/// The best boxes in order, none overlapping a better one too much.
fn suppress(
    boxes: &[Rectangle],
    scores: &[f64],
    most: usize,
    overlap: f64,
    least: Option<f64>,
) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..boxes.len()).filter(|&at| least.is_none_or(|least| scores[at] > least)).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let mut kept: Vec<usize> = Vec::new();
    for at in order {
        if kept.len() >= most {
            break;
        }
        if kept.iter().all(|&other| boxes[at].overlap(boxes[other]) <= overlap) {
            kept.push(at);
        }
    }
    kept
}

//! A number per tile, as a piecewise constant function: sums of many variables' bytes cost the number of
//! pieces, not the number of tiles.

/// Sums over half-open ranges of tiles.
#[derive(Clone, Debug, Default)]
pub struct TileSums {
    /// Changes of the value at tiles, in any order.
    deltas: Vec<(u32, i64)>,
}

impl TileSums {
    pub fn new() -> Self {
        TileSums::default()
    }

    /// Adds `amount` on tiles `[first, first + count)`.
    pub fn add(&mut self, first: u32, count: u32, amount: i64) {
        if count > 0 && amount != 0 {
            self.deltas.extend([(first, amount), (first + count, -amount)]);
        }
    }

    pub fn add_all(&mut self, other: &TileSums) {
        self.deltas.extend_from_slice(&other.deltas);
    }

    /// The pieces with a value other than 0, as `(first tile, count, value)`, neighbours merged.
    pub fn pieces(&self) -> Vec<(u32, u32, i64)> {
        let mut deltas = self.deltas.clone();
        deltas.sort_unstable_by_key(|&(tile, _)| tile);
        let mut pieces: Vec<(u32, u32, i64)> = Vec::new();
        let (mut value, mut since) = (0, 0);
        for changes in deltas.chunk_by(|a, b| a.0 == b.0) {
            let (tile, change) = (changes[0].0, changes.iter().map(|&(_, delta)| delta).sum::<i64>());
            if change == 0 {
                continue;
            }
            if value != 0 {
                pieces.push((since, tile - since, value));
            }
            value += change;
            since = tile;
        }
        pieces
    }

    /// The highest value and the first tile that has it; tile 0 where all are 0.
    pub fn max(&self) -> (i64, u32) {
        self.pieces()
            .iter()
            .fold((0, 0), |best, &(tile, _, value)| if value > best.0 { (value, tile) } else { best })
    }

    pub fn total(&self) -> i64 {
        self.pieces().iter().map(|&(_, count, value)| i64::from(count) * value).sum()
    }

    pub fn at(&self, tile: u32) -> i64 {
        self.deltas.iter().filter(|&&(at, _)| at <= tile).map(|&(_, delta)| delta).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_overlap() {
        let mut sums = TileSums::new();
        sums.add(0, 10, 5);
        sums.add(5, 10, 3);
        sums.add(20, 1, 1);
        assert_eq!(sums.pieces(), [(0, 5, 5), (5, 5, 8), (10, 5, 3), (20, 1, 1)]);
        assert_eq!(sums.max(), (8, 5));
        assert_eq!(sums.total(), 81);
        assert_eq!((sums.at(4), sums.at(7), sums.at(16), sums.at(20)), (5, 8, 0, 1));
    }
}

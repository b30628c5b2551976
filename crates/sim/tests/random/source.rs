//! A finite source of random choices. When it is used up every choice is the first one, so a shorter source
//! makes a smaller program, and failures shrink by shortening.

/// Bytes that decide.
#[derive(Clone)]
pub struct Source {
    bytes: Vec<u8>,
    pos: usize,
}

impl Source {
    /// The bytes of a seed (splitmix64).
    pub fn seeded(seed: u64, length: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (z ^ (z >> 31)) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    pub fn new(bytes: &[u8]) -> Self {
        Source { bytes: bytes.to_vec(), pos: 0 }
    }

    pub fn is_used_up(&self) -> bool {
        self.pos >= self.bytes.len()
    }

    /// A number below `n`, which is at most 256.
    pub fn below(&mut self, n: usize) -> usize {
        let byte = self.bytes.get(self.pos).copied().unwrap_or(0);
        self.pos += 1;
        byte as usize % n.max(1)
    }

    /// A number of `[low, high]`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low + 1) as usize) as u64
    }

    /// Whether something with a chance of `eighths` in eight happens.
    pub fn chance(&mut self, eighths: usize) -> bool {
        // Never once used up.
        self.below(8) + eighths >= 8
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A random order of `0..n`.
    pub fn order(&mut self, n: usize) -> Vec<usize> {
        let mut left: Vec<usize> = (0..n).collect();
        (0..n).map(|_| left.remove(self.below(left.len()))).collect()
    }
}

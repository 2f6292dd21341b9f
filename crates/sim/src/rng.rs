//! Counter-based randomness: a value is a function of seed, event and draw, so that leaving one event out shifts no other.

/// The draws of one event.
#[derive(Debug, Clone)]
pub struct Draw {
    state: u64,
    drawn: u64,
}

/// A good mixing of 64 bits (the finaliser of splitmix64).
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Draw {
    /// `stream` keeps independent uses of one event apart.
    #[must_use]
    pub const fn new(seed: u64, stream: u64, event: u64) -> Self {
        Self { state: mix(mix(seed) ^ mix(stream.wrapping_mul(0x1000_0000_01b3)) ^ event), drawn: 0 }
    }

    pub fn value(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.state ^ mix(self.drawn))
    }

    /// A number below `bound`; 0 for an empty range.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { usize::try_from(self.value() % bound as u64).unwrap_or(0) }
    }

    /// True in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.value() % 1_000 < u64::from(per_mille)
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_its_event_alone() {
        let first: Vec<u64> = (0..4).map(|_| Draw::new(1, 2, 3).value()).collect();
        assert!(first.iter().all(|value| *value == first[0]));
        assert_ne!(Draw::new(1, 2, 4).value(), first[0]);
        assert_ne!(Draw::new(1, 3, 3).value(), first[0]);
    }
}

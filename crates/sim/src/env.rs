//! The world's clock and random bytes. The clock stands still until the world moves it, forwards or back.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use domain::time::Timestamp;
use store::env::{Clock, Entropy, Env};

use crate::rng::mix;

/// A wall clock that people and faults may set, beside one that only goes on.
#[derive(Debug, Default)]
pub struct VirtualClock {
    wall_ms: AtomicI64,
    monotonic_ms: AtomicU64,
}

impl VirtualClock {
    #[must_use]
    pub fn at(wall_ms: i64) -> Self {
        Self { wall_ms: AtomicI64::new(wall_ms), monotonic_ms: AtomicU64::new(0) }
    }

    /// Time passes.
    pub fn pass(&self, ms: u64) {
        self.monotonic_ms.fetch_add(ms, Ordering::Relaxed);
        self.wall_ms.fetch_add(i64::try_from(ms).unwrap_or(0), Ordering::Relaxed);
    }

    /// The wall clock is set; no time passes.
    pub fn jump(&self, by_ms: i64) {
        self.wall_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.wall_ms.load(Ordering::Relaxed))
    }

    fn monotonic_ms(&self) -> u64 {
        self.monotonic_ms.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct CountedEntropy {
    seed: u64,
    drawn: AtomicU64,
}

impl Entropy for CountedEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let value = mix(self.seed ^ mix(self.drawn.fetch_add(1, Ordering::Relaxed)));
            chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// The environment of one world.
#[must_use]
pub fn environment(seed: u64, clock: &Arc<VirtualClock>) -> Env {
    let entropy = CountedEntropy { seed: mix(seed ^ 0x5a17), drawn: AtomicU64::new(0) };
    Env { clock: Arc::<VirtualClock>::clone(clock), entropy: Arc::new(entropy) }
}

//! What the store takes from the world besides its files: the time and random bytes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use domain::hash::{Digest, Salt};
use domain::id::RawId;
use domain::time::Timestamp;

/// The one clock.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
    /// Milliseconds on a clock that never goes back, for ages and deadlines.
    fn monotonic_ms(&self) -> u64;
}

/// Random bytes.
pub trait Entropy: Send + Sync {
    fn fill(&self, bytes: &mut [u8]);
}

/// Both, shared by everything that belongs to one home.
#[derive(Clone)]
pub struct Env {
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env")
    }
}

impl Env {
    /// The machine's clock and random source.
    #[must_use]
    pub fn system() -> Self {
        Self { clock: Arc::new(SystemClock { started: std::time::Instant::now() }), entropy: Arc::new(SystemEntropy) }
    }

    /// A clock that moves one millisecond a reading and a counter-based source: the same seed gives the same bytes.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { clock: Arc::new(SteppingClock::default()), entropy: Arc::new(SeededEntropy { seed, drawn: AtomicU64::new(0) }) }
    }

    #[must_use]
    pub fn salt(&self) -> Salt {
        let mut bytes = [0; 16];
        self.entropy.fill(&mut bytes);
        Salt(bytes)
    }

    #[must_use]
    pub fn id(&self) -> RawId {
        let mut bytes = [0; 16];
        self.entropy.fill(&mut bytes);
        RawId::from_bytes(bytes)
    }
}

struct SystemClock {
    started: std::time::Instant,
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let ms = match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        };
        Timestamp::from_ms(ms)
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system has a random source");
    }
}

#[derive(Default)]
struct SteppingClock {
    readings: AtomicU64,
}

impl Clock for SteppingClock {
    fn now(&self) -> Timestamp {
        let reading = self.readings.fetch_add(1, Ordering::Relaxed);
        Timestamp::from_ms(1_800_000_000_000 + i64::try_from(reading).unwrap_or(i64::MAX))
    }

    fn monotonic_ms(&self) -> u64 {
        self.readings.load(Ordering::Relaxed)
    }
}

struct SeededEntropy {
    seed: u64,
    drawn: AtomicU64,
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            let draw = self.drawn.fetch_add(1, Ordering::Relaxed);
            let hash = Digest::new("verger.seeded.v1").number(self.seed).number(draw).finish();
            chunk.copy_from_slice(&hash.as_bytes()[..chunk.len()]);
        }
    }
}

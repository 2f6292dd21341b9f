//! What a crash does to the changes that no sync has made durable.

use crate::inode::Change;
use crate::random::Random;

/// What the crash does to the changes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// None has reached the disk.
    Lost,
    /// All have, except the one the process died in.
    Kept,
    /// The first few of each file have.
    Cut,
    /// Any of them have, the one the process died in included, each perhaps only up to or from a sector boundary.
    Torn,
}

impl Crash {
    pub(crate) fn keeps_entry(self, random: &mut Random) -> bool {
        match self {
            Self::Lost => false,
            Self::Kept => true,
            Self::Cut | Self::Torn => random.coin(),
        }
    }

    pub(crate) fn survivors(self, changes: Vec<Change>, random: &mut Random) -> Vec<Change> {
        match self {
            Self::Lost => Vec::new(),
            Self::Kept => changes,
            Self::Cut => {
                let kept = random.below(changes.len() + 1);
                changes.into_iter().take(kept).collect()
            }
            Self::Torn => {
                let mut survivor = |change: Change| match (random.coin(), random.coin()) {
                    (false, _) => None,
                    (true, false) => Some(change),
                    (true, true) => Some(change.torn(random)),
                };
                changes.into_iter().filter_map(&mut survivor).collect()
            }
        }
    }
}

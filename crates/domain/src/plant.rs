//! Planted bugs: mistakes that the simulator must find, compiled in only with the feature `planted`.
//!
//! Each is one mistake that somebody really made. The bug is chosen at run time, so that one build serves them all; without the feature
//! [`is`] is `false` at compile time and nothing of them is left. A release build cannot have the feature.

use crate::named::named_enum;

#[cfg(all(feature = "planted", not(debug_assertions)))]
compile_error!("planted bugs are for builds with debug assertions only: use `--profile sim`");

named_enum! {
    Bug {
        /// SQLite no longer waits for the disk.
        DropFsync = "drop_fsync",
        /// A commit that failed is answered as done.
        AckBeforeCommit = "ack_before_commit",
        /// An effect is carried out before its plan is durable.
        SkipIntent = "skip_intent",
        /// A write lands whatever version it expected.
        DropVersionCheck = "drop_version_check",
        /// The decision does not look at the kill switches, and effects do not carry their guards.
        IgnoreSwitch = "ignore_switch",
        /// A recovered effect gets a fresh operation id.
        DoubleEffect = "double_effect",
        /// The operation id does not cover the cycle.
        OperationIdWithoutCycle = "operation_id_without_cycle",
        /// A task is called done with the plan, before its effects are there.
        MoveStateEarly = "move_state_early",
        /// A point D that meets a version conflict is given up.
        DropConflictingD = "drop_conflicting_d",
        /// An approval resumes whatever run of the agent waits.
        ResumeOtherRun = "resume_other_run",
        /// A stop raises no fence in the journal.
        FenceMissingInJournal = "fence_missing_in_journal",
        /// A decision reads a clock instead of its input.
        WallClockInDecision = "wall_clock_in_decision",
        /// Replay asks the model instead of the record.
        ReplayAsksModel = "replay_asks_model",
        /// An approval counts for whatever the parked row says now.
        ApprovalNotBound = "approval_not_bound",
    }
}

/// Whether this bug is to be made.
#[cfg(not(feature = "planted"))]
#[must_use]
pub const fn is(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use chosen::{choose, is};

#[cfg(feature = "planted")]
mod chosen {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Bug;

    /// 0 for none, else the bug's place in `Bug::ALL` plus one.
    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// From now on this bug is made, and no other.
    pub fn choose(bug: Option<Bug>) {
        CHOSEN.store(bug.map_or(0, number), Ordering::Relaxed);
    }

    /// Whether this bug is to be made.
    #[must_use]
    pub fn is(bug: Bug) -> bool {
        CHOSEN.load(Ordering::Relaxed) == number(bug)
    }

    fn number(bug: Bug) -> u8 {
        let place = Bug::ALL.iter().position(|known| *known == bug).unwrap_or_default();
        u8::try_from(place + 1).expect("there are fewer bugs than that")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bug_is_made_unless_it_is_chosen() {
        assert!(Bug::ALL.iter().all(|bug| !is(*bug)));
        assert_eq!(Bug::parse("drop_fsync"), Some(Bug::DropFsync));
    }
}

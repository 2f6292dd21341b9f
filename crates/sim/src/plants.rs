//! The hunt for planted bugs: every bug in turn, on the tier where it can show, and the table of what found it.

use domain::plant::{Bug, choose};

use crate::hunt::{Bag, Hunt, hunt};
use crate::stores::{Template, Tier};

/// Events of each world. Short worlds meet more profiles in the same time.
pub const STEPS: u64 = 400;

/// Where a bug can show: what concerns the disk needs one.
#[must_use]
pub const fn tier(bug: Bug) -> Tier {
    match bug {
        Bug::DropFsync | Bug::AckBeforeCommit => Tier::FaultDisk,
        Bug::SkipIntent
        | Bug::DropVersionCheck
        | Bug::IgnoreSwitch
        | Bug::DoubleEffect
        | Bug::OperationIdWithoutCycle
        | Bug::MoveStateEarly
        | Bug::DropConflictingD
        | Bug::ResumeOtherRun
        | Bug::FenceMissingInJournal
        | Bug::WallClockInDecision
        | Bug::ReplayAsksModel
        | Bug::ApprovalNotBound => Tier::Memory,
    }
}

/// Hunts one bug from seed 1 on. The choice is of the whole process: nothing else may run in it meanwhile.
#[must_use]
pub fn seek(bug: Bug, seconds_max: f64, template: &Template) -> Bag {
    choose(Some(bug));
    let bag = hunt(&Hunt { seconds_max: Some(seconds_max), ..Hunt::of(tier(bug), 1, u64::MAX, STEPS) }, template);
    choose(None);
    bag
}

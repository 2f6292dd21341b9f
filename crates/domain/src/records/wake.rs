//! The wake: one reason to run, one row per `runKey` for ever. What did not run says here why.

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, RawId, RunId, WakeId};
use crate::key::RunKey;
use crate::named::named_enum;
use crate::time::Timestamp;

named_enum! {
    WakeReason {
        Subscription = "subscription",
        Timer = "timer",
        UserInitiated = "userInitiated",
        RecoveryCatchup = "recoveryCatchup",
        Rule = "rule",
        Event = "event",
        Manual = "manual",
        /// A prompt item was answered or has expired.
        Answer = "answer",
    }
}

named_enum! {
    WakeState {
        Waiting = "waiting",
        Running = "running",
        Completed = "completed",
        /// Another wake's run answered it, too.
        Coalesced = "coalesced",
        FailedTerminal = "failed_terminal",
        SkippedSleeping = "skipped_sleeping",
        SkippedDestroyed = "skipped_destroyed",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wake {
    pub agent_id: AgentId,
    pub run_key: RunKey,
    pub reason: WakeReason,
    pub status: WakeState,
    /// The run that answers it, or that an answer is addressed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// A person's act is 0.
    pub cause_depth: u8,
    /// Why it ended other than well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

impl WakeState {
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }
}

impl WakeId {
    #[must_use]
    pub fn of_key(run_key: &RunKey) -> Self {
        Self::from_raw(RawId::from_hash(run_key.hash()))
    }
}

impl RunId {
    /// The run that a wake starts, if it starts one.
    #[must_use]
    pub fn of_key(run_key: &RunKey) -> Self {
        Self::from_raw(RawId::from_hash(run_key.hash()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l10_names_are_what_is_stored() {
        let reasons: Vec<_> = WakeReason::ALL.iter().map(|v| v.as_str()).collect();
        let known = ["subscription", "timer", "userInitiated", "recoveryCatchup", "rule", "event", "manual", "answer"];
        assert_eq!(reasons, known);
        let states: Vec<_> = WakeState::ALL.iter().filter(|v| v.is_terminal()).map(|v| v.as_str()).collect();
        assert_eq!(states, ["completed", "coalesced", "failed_terminal", "skipped_sleeping", "skipped_destroyed"]);
        assert_eq!((WakeState::Waiting.as_str(), WakeState::Running.as_str()), ("waiting", "running"));
    }
}

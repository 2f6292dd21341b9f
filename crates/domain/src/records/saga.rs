//! The saga row: an operation that touches the journal and the agent domain, from its intent until both agree (L24).
//!
//! It lives in the agent domain and holds the writes of both sides, so that recovery needs nothing else. It is removed in the
//! transaction that records the outcome.

use serde::{Deserialize, Serialize};

use crate::entry::Actor;
use crate::id::{EventId, OperationId, RawId, WorkspaceId};
use crate::key::RunKey;
use crate::named::named_enum;
use crate::records::cursor::counter_text;
use crate::time::Timestamp;

named_enum! {
    SagaPhase {
        /// The intent is durable; whether the journal has it is not known.
        JournalPending = "journal_pending",
        /// The journal has answered, but the agent domain refuses to record it: a person has to look.
        AgentRefused = "agent_refused",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saga {
    pub operation_id: OperationId,
    pub phase: SagaPhase,
    /// The code of the agent domain's refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Actor, cause and request of both commits.
    pub actor: Actor,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_key: Option<RunKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_event: Option<EventId>,
    pub cause_depth: u8,
    pub request: String,
    pub journal: Vec<PlannedWrite>,
    /// Written when the journal has committed.
    pub agent: Vec<PlannedWrite>,
    /// Written instead when the journal has refused.
    pub agent_if_refused: Vec<PlannedWrite>,
    pub updated_at: Timestamp,
}

/// A write as data, named so that recovery can make it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedWrite {
    pub kind: String,
    /// Prefixed text.
    pub id: String,
    pub workspace: WorkspaceId,
    /// 0 expects no row.
    #[serde(with = "counter_text")]
    pub expected_version: u64,
    /// Canonical text of the body; absent for a tombstone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

impl Saga {
    /// A saga row has its operation's id.
    #[must_use]
    pub fn row_id(operation_id: &OperationId) -> RawId {
        operation_id.raw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(SagaPhase::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["journal_pending", "agent_refused"]);
    }
}

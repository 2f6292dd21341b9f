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
    /// What the effect was decided on; checked again if recovery has to carry it out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<PlannedGuard>,
    pub journal: Vec<PlannedWrite>,
    /// Written when the journal has committed.
    pub agent: Vec<PlannedWrite>,
    /// Written instead when the journal has refused.
    pub agent_if_refused: Vec<PlannedWrite>,
    pub updated_at: Timestamp,
}

/// A guard of the journal's side as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "guard")]
pub enum PlannedGuard {
    #[serde(rename = "fence")]
    Fence {
        subject: String,
        #[serde(with = "counter_text")]
        epoch: u64,
    },
    #[serde(rename = "version")]
    Version {
        kind: String,
        id: String,
        #[serde(with = "counter_text")]
        version: u64,
    },
    #[serde(rename = "live")]
    Live { kind: String, id: String },
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
    fn guards_have_fixed_names() {
        let fence = PlannedGuard::Fence { subject: "s".into(), epoch: 2 };
        assert_eq!(serde_json::to_string(&fence).unwrap(), r#"{"guard":"fence","subject":"s","epoch":"2"}"#);
        for guard in [r#"{"guard":"version","kind":"note","id":"x","version":"1"}"#, r#"{"guard":"live","kind":"note","id":"x"}"#] {
            let read: PlannedGuard = serde_json::from_str(guard).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), guard);
        }
    }

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(SagaPhase::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["journal_pending", "agent_refused"]);
    }
}

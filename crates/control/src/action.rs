//! An action: one proposal after the controller has planned and decided it. Its row is durable before anything is carried out.

use domain::entry::Actor;
use domain::hash::Hash;
use domain::id::{OperationId, TaskId};
use domain::named_enum;
use domain::time::Timestamp;
use policy::{Act, Decision};
use serde::{Deserialize, Serialize};

use crate::board::Evidence;
use crate::proposal::Proposal;

named_enum! {
    ActionState {
        /// To be carried out.
        Planned = "planned",
        /// Waits for a person.
        Parked = "parked",
        /// Not carried out: a layer of the decision, or the plan itself, said no.
        Refused = "refused",
        Done = "done",
        /// The store or the outside refused it.
        Failed = "failed",
        /// Nobody knows whether the outside did it.
        InDoubt = "in_doubt",
        /// Its base went stale while it waited; another row took its place.
        Superseded = "superseded",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    pub operation_id: OperationId,
    pub tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// Over the tool's arguments, salted with the run's salt.
    pub arguments_hash: Hash,
    /// What it was made on: prefixed id and version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Based>,
    pub planned_at: Timestamp,
    /// What was decided on; absent for what could not even be planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub act: Option<Act>,
    pub decision: Decision,
    /// The fences that its commit must find unraised, as they stood when it was decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fences: Vec<FenceAt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<Actor>,
    pub effect: Effect,
    pub state: ActionState,
    /// Why it is not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What it was planned from, while it may have to be planned again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Proposal>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Based {
    pub id: String,
    pub version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FenceAt {
    pub subject: String,
    pub epoch: u64,
}

/// What carrying it out means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "effect")]
pub enum Effect {
    /// One commit to the journal.
    #[serde(rename = "journal")]
    Journal {
        writes: Vec<PlannedWrite>,
        /// Artifacts that must be there in the commit's own transaction.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        evidence: Vec<Evidence>,
    },
    /// One call of a system outside.
    #[serde(rename = "outside")]
    Outside { service: String, parameters: serde_json::Map<String, serde_json::Value>, honours_keys: bool },
    /// A question to a person; asking is all there is to it.
    #[serde(rename = "question")]
    Question { question: String, options: Vec<String> },
    #[serde(rename = "nothing")]
    Nothing,
}

/// A write as data, whole until it is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedWrite {
    pub kind: String,
    pub id: String,
    /// 0 expects no row.
    pub expected_version: u64,
    /// Canonical text; dropped once the journal has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Over the body, salted with the run's salt.
    pub body_hash: Hash,
}

/// What the world shows of an action after it was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    pub operation_id: OperationId,
    pub seen: Seen,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "seen")]
pub enum Seen {
    /// The journal has committed; what it holds was read back.
    #[serde(rename = "committed")]
    Committed { records: Vec<SeenRecord> },
    /// The outside has answered that it is done.
    #[serde(rename = "acknowledged")]
    Acknowledged,
    /// Certainly not done.
    #[serde(rename = "refused")]
    Refused { code: String },
    /// It may have been done.
    #[serde(rename = "unknown")]
    Unknown,
}

/// One record as the journal's log holds it for the operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenRecord {
    pub id: String,
    pub version: u64,
    pub body_hash: Hash,
}

impl Action {
    #[must_use]
    pub fn is_to_do(&self) -> bool {
        self.state == ActionState::Planned
    }

    /// The hash that denials and pending approvals are known by.
    #[must_use]
    pub fn content(&self) -> Option<Hash> {
        match &self.act {
            Some(Act::Use { content, .. }) => Some(*content),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        let names: Vec<_> = ActionState::ALL.iter().map(|v| v.as_str()).collect();
        assert_eq!(names, ["planned", "parked", "refused", "done", "failed", "in_doubt", "superseded"]);
        assert_eq!(serde_json::to_string(&Effect::Nothing).unwrap(), r#"{"effect":"nothing"}"#);
        assert_eq!(serde_json::to_string(&Seen::Unknown).unwrap(), r#"{"seen":"unknown"}"#);
    }
}

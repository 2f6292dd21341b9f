//! The cycle: one ask, one answer, its actions, as they are recorded. With the run's states it is all that a replay needs.

use std::collections::BTreeMap;

use domain::catalogue;
use domain::entry::Actor;
use domain::hash::Digest;
use domain::id::{CycleId, PromptItemId, RawId, RunId};
use domain::named_enum;
use domain::record::{Record, Spec};
use domain::records::budget::Amounts;
use domain::records::prompt::Gated;
use domain::records::wrappers::SchemaVersion;
use domain::time::Timestamp;
use policy::{Decision, World};
use serde::{Deserialize, Serialize};

use crate::action::{Action, Observation};
use crate::board::BoardRefs;
use crate::context::ContextManifest;
use crate::dialect::{Decoded, Fault};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cycle {
    pub schema_version: SchemaVersion,
    pub run_id: RunId,
    pub number: u32,
    /// How often it was asked; the last ask is the one recorded.
    pub attempt: u32,
    pub opened: Opened,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<Closed>,
}

named_enum! {
    CycleKind {
        /// A model was asked.
        Ask = "ask",
        /// The controller had something to do by itself: an approved action, a task that is done.
        Controller = "controller",
    }
}

/// Point A: what the cycle was opened on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    pub at: Timestamp,
    pub kind: CycleKind,
    pub gate: Gate,
    pub board: BoardRefs,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<AnswerFact>,
    /// What the model was shown; nobody is shown anything in a cycle of the controller's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextManifest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    pub reserved: Amounts,
}

/// Point B: what was answered and what follows from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decided {
    pub at: Timestamp,
    /// The gate as it stood then; absent in a cycle of the controller's own, where A and B are one point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<Reply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoded: Option<Decoded>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
}

/// Point D: what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observations: Vec<Observation>,
    pub spent: Amounts,
    /// Why the ask led to nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// The facts that decisions are made on, loaded afresh for every point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    pub world: World,
    /// The fences that guard this agent's commits, as they stand.
    pub fences: BTreeMap<String, u64>,
}

/// What a step looked at that opened no cycle: the run's last look before it waited or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Looked {
    pub at: Timestamp,
    pub gate: Gate,
    pub board: BoardRefs,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<AnswerFact>,
}

/// What came back from the model, without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    pub model: String,
    pub bytes: u64,
    pub spent: Amounts,
}

named_enum! {
    AnswerVerdict { Approve = "approve", Deny = "deny", Reply = "reply", Expired = "expired" }
}

/// A person's answer to something this run parked, or its expiry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerFact {
    pub item: PromptItemId,
    pub verdict: AnswerVerdict,
    pub by: Actor,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What the person approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binds: Option<Gated>,
}

impl Record for Cycle {
    const SPEC: &'static Spec = &catalogue::CYCLE;
}

impl Cycle {
    #[must_use]
    pub fn id_of(run: &RunId, number: u32) -> CycleId {
        let hash = Digest::new("verger.cycle.v1").shown(run).number(number.into()).finish();
        CycleId::from_raw(RawId::from_hash(&hash))
    }

    #[must_use]
    pub fn id(&self) -> CycleId {
        Self::id_of(&self.run_id, self.number)
    }

    /// The actions of the plan; none before point B.
    #[must_use]
    pub fn actions(&self) -> &[Action] {
        self.decided.as_ref().map_or(&[], |decided| &decided.actions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(CycleKind::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["ask", "controller"]);
        let verdicts: Vec<_> = AnswerVerdict::ALL.iter().map(|v| v.as_str()).collect();
        assert_eq!(verdicts, ["approve", "deny", "reply", "expired"]);
    }
}

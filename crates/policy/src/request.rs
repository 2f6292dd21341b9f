//! What is asked for.

use domain::entry::Actor;
use domain::hash::Hash;
use domain::id::{AgentId, CategoryId, WorkspaceId};
use domain::named_enum;
use domain::records::budget::Amounts;
use domain::records::slug::Slug;
use serde::{Deserialize, Serialize};

named_enum! {
    /// What an agent must have been given to use a tool: the nine of the specification, then ours.
    Capability {
        CategoryRead = "categoryRead",
        TaskRead = "taskRead",
        TaskWrite = "taskWrite",
        ChecklistWrite = "checklistWrite",
        TimeWrite = "timeWrite",
        DayPlanRead = "dayPlanRead",
        DayPlanWrite = "dayPlanWrite",
        RatingRead = "ratingRead",
        RatingWrite = "ratingWrite",
        ArtifactWrite = "artifactWrite",
        OutsideCall = "outsideCall",
        Ask = "ask",
    }
}

named_enum! {
    /// How much harm a wrong use does.
    Risk { Low = "low", Medium = "medium", High = "high" }
}

named_enum! {
    /// Whether mutations are carried out or wait for a person.
    Mode { Reviewed = "reviewed", Yolo = "yolo" }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub agent: AgentId,
    pub act: Act,
    /// The most that it may use up.
    pub reservation: Amounts,
    /// A person's approval of exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "act")]
pub enum Act {
    /// A call of the model.
    #[serde(rename = "ask")]
    Ask { model: String },
    #[serde(rename = "use")]
    Use {
        tool: String,
        /// What a kill switch for tools names.
        class: Slug,
        capability: Capability,
        risk: Risk,
        /// Changes something; reading is not reviewed.
        mutates: bool,
        /// The proposal itself, or the specification, demands a person's word.
        needs_approval: bool,
        targets: Vec<Target>,
        /// Over tool, arguments and the state that they were made on.
        content: Hash,
    },
}

/// Something that an act touches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub workspace: WorkspaceId,
    pub kind: Slug,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<CategoryId>,
}

/// A person's word on one act. It counts for these bytes under these rules, and for nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    pub by: Actor,
    pub tool: String,
    pub content: Hash,
    pub policy_version: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(
            Capability::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(),
            [
                "categoryRead",
                "taskRead",
                "taskWrite",
                "checklistWrite",
                "timeWrite",
                "dayPlanRead",
                "dayPlanWrite",
                "ratingRead",
                "ratingWrite",
                "artifactWrite",
                "outsideCall",
                "ask"
            ]
        );
        assert_eq!(Risk::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["low", "medium", "high"]);
        assert_eq!(Mode::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["reviewed", "yolo"]);
    }
}

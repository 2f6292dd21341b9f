//! What a model may propose: the finite vocabulary of 004, whichever dialect it came in.

use domain::id::TaskId;
use domain::named_enum;
use serde::{Deserialize, Serialize};

named_enum! {
    MessageType { ConnectionRequest = "connection_request", FollowUp = "follow_up", DirectMessage = "direct_message" }
}

named_enum! {
    AnalysisType { Prioritize = "prioritize", Categorize = "categorize", ScoreUpdate = "score_update" }
}

named_enum! {
    IdleReason {
        AwaitingUserInput = "awaiting_user_input",
        PreconditionsNotMet = "preconditions_not_met",
        RateLimitReached = "rate_limit_reached",
        CampaignComplete = "campaign_complete",
    }
}

/// One proposal. Nothing in it is believed; the plan is made from it by the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "action")]
pub enum Proposal {
    #[serde(rename = "create_task")]
    CreateTask { description: String, preconditions: Vec<TaskId>, justification: String },
    #[serde(rename = "select_next_task")]
    SelectNextTask { task_id: TaskId, reasoning: String },
    #[serde(rename = "execute_tool")]
    ExecuteTool {
        task_id: TaskId,
        tool_name: String,
        parameters: serde_json::Map<String, serde_json::Value>,
        expected_outcome: String,
    },
    #[serde(rename = "generate_message")]
    GenerateMessage { task_id: TaskId, message_type: MessageType, content: String, personalization_context: String },
    #[serde(rename = "analyze_leads")]
    AnalyzeLeads { task_id: TaskId, analysis_type: AnalysisType, parameters: serde_json::Map<String, serde_json::Value> },
    #[serde(rename = "request_user_input")]
    RequestUserInput { task_id: Option<TaskId>, question: String, options: Vec<String>, context: String },
    #[serde(rename = "persist_artifact")]
    PersistArtifact { task_id: TaskId, artifact_type: String, artifact_key: Option<String>, content: String },
    #[serde(rename = "no_op")]
    NoOp { reason: IdleReason, details: String },
}

/// The eight words, in the order of the specification.
pub const VOCABULARY: [&str; 8] = [
    "create_task",
    "select_next_task",
    "execute_tool",
    "generate_message",
    "analyze_leads",
    "request_user_input",
    "persist_artifact",
    "no_op",
];

impl Proposal {
    /// The word of the vocabulary.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::CreateTask { .. } => VOCABULARY[0],
            Self::SelectNextTask { .. } => VOCABULARY[1],
            Self::ExecuteTool { .. } => VOCABULARY[2],
            Self::GenerateMessage { .. } => VOCABULARY[3],
            Self::AnalyzeLeads { .. } => VOCABULARY[4],
            Self::RequestUserInput { .. } => VOCABULARY[5],
            Self::PersistArtifact { .. } => VOCABULARY[6],
            Self::NoOp { .. } => VOCABULARY[7],
        }
    }

    /// The one task it is about.
    #[must_use]
    pub const fn task_id(&self) -> Option<TaskId> {
        match self {
            Self::SelectNextTask { task_id, .. }
            | Self::ExecuteTool { task_id, .. }
            | Self::GenerateMessage { task_id, .. }
            | Self::AnalyzeLeads { task_id, .. }
            | Self::PersistArtifact { task_id, .. } => Some(*task_id),
            Self::RequestUserInput { task_id, .. } => *task_id,
            Self::CreateTask { .. } | Self::NoOp { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_names_are_what_is_stored() {
        let types: Vec<_> = MessageType::ALL.iter().map(|v| v.as_str()).collect();
        assert_eq!(types, ["connection_request", "follow_up", "direct_message"]);
        assert_eq!(AnalysisType::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["prioritize", "categorize", "score_update"]);
        let reasons: Vec<_> = IdleReason::ALL.iter().map(|v| v.as_str()).collect();
        assert_eq!(reasons, ["awaiting_user_input", "preconditions_not_met", "rate_limit_reached", "campaign_complete"]);
        let no_op = Proposal::NoOp { reason: IdleReason::CampaignComplete, details: String::new() };
        assert_eq!(serde_json::to_value(&no_op).unwrap()["action"], no_op.word());
    }
}

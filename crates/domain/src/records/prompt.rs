//! Prompt items: everything a person has to answer, in one queue, and the answers (L36, DESIGN 7).

use serde::{Deserialize, Serialize};

use crate::entry::Actor;
use crate::hash::{Digest, Hash};
use crate::id::{AgentId, OperationId, PromptItemId, PromptResponseId, RawId, RunId};
use crate::key::RunKey;
use crate::named::named_enum;
use crate::time::Timestamp;

named_enum! {
    PromptState {
        Open = "open",
        Answered = "answered",
        Expired = "expired",
        /// What it asked about is gone: the run was cancelled, or the base it was made on has changed.
        Withdrawn = "withdrawn",
    }
}

named_enum! {
    InteractionType { YesNo = "yesNo", MultiChoice = "multiChoice", FreeText = "freeText", Audio = "audio" }
}

named_enum! {
    Verdict { Approve = "approve", Deny = "deny", Reply = "reply" }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptItem {
    pub agent_id: AgentId,
    pub run_id: RunId,
    pub run_key: RunKey,
    pub interaction_type: InteractionType,
    pub prompt_text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// What an approval lets happen; a plain question has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gates: Option<Gated>,
    pub status: PromptState,
    pub created_at: Timestamp,
    /// When it expires.
    pub required_by: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Timestamp>,
}

/// The act that waits for an approval. An approval is for exactly these bytes, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gated {
    pub operation_id: OperationId,
    pub tool: String,
    pub arguments_hash: Hash,
    pub policy_version: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptResponse {
    pub prompt_item_id: PromptItemId,
    pub agent_id: AgentId,
    pub run_key: RunKey,
    pub verdict: Verdict,
    /// A reason, or the reply to a question.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What was approved, copied from the item that the person saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binds: Option<Gated>,
    pub responded_by: Actor,
    pub responded_at: Timestamp,
}

impl PromptItemId {
    /// One item per parked operation, however often it is parked.
    #[must_use]
    pub fn of_operation(operation: &OperationId) -> Self {
        Self::from_raw(operation.created("prompt_item", 0))
    }
}

impl PromptResponseId {
    /// The first answer to an item is the answer.
    #[must_use]
    pub fn of_item(item: &PromptItemId) -> Self {
        Self::from_raw(RawId::from_hash(&Digest::new("verger.prompt_response.v1").shown(item).finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l36_names_are_what_is_stored() {
        let states: Vec<_> = PromptState::ALL.iter().map(|v| v.as_str()).collect();
        assert_eq!(states, ["open", "answered", "expired", "withdrawn"]);
        let types: Vec<_> = InteractionType::ALL.iter().map(|v| v.as_str()).collect();
        assert_eq!(types, ["yesNo", "multiChoice", "freeText", "audio"]);
        assert_eq!(Verdict::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(), ["approve", "deny", "reply"]);
    }
}

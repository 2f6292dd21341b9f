//! The message: one immutable link of an agent's thread. Large content is a payload of its own.

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, MessageId, PayloadId};
use crate::named::named_enum;
use crate::records::wrappers::AgentMessageMetadata;
use crate::time::Timestamp;

named_enum! {
    AgentMessageKind {
        Observation = "observation",
        User = "user",
        Thought = "thought",
        Action = "action",
        ToolResult = "toolResult",
        Summary = "summary",
        System = "system",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    pub agent_id: AgentId,
    /// `agentId:run:<wakeId>` or `agentId:session:<sessionId>`.
    pub thread_id: String,
    pub kind: AgentMessageKind,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev_message_id: Option<MessageId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_entry_id: Option<PayloadId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_source_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_start_message_id: Option<MessageId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_end_message_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub summary_depth: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_approx: u32,
    pub metadata: AgentMessageMetadata,
}

const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(
            AgentMessageKind::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(),
            ["observation", "user", "thought", "action", "toolResult", "summary", "system"]
        );
    }
}

//! The payload: normalised content that messages point to, kept once however often it is referenced.

use serde::{Deserialize, Serialize};

use crate::id::AgentId;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payload {
    pub agent_id: AgentId,
    pub created_at: Timestamp,
    pub content_type: String,
    pub content: serde_json::Map<String, serde_json::Value>,
}

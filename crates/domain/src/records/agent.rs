//! The agent: identity, lifecycle, mode and scope (003). What it does while it runs is never stored here.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::{AgentStateId, CategoryId};
use crate::named::named_enum;
use crate::records::slug::Slug;
use crate::records::wrappers::AgentConfig;
use crate::time::Timestamp;

named_enum! {
    /// `destroyed` is reachable from every state and final.
    AgentLifecycle { Created = "created", Active = "active", Dormant = "dormant", Destroyed = "destroyed" }
}

named_enum! {
    AgentInteractionMode { Autonomous = "autonomous", Interactive = "interactive", Hybrid = "hybrid" }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Names the manifest it was made from.
    pub kind: Slug,
    pub display_name: String,
    pub lifecycle: AgentLifecycle,
    pub mode: AgentInteractionMode,
    /// The strict allow list; empty allows nothing.
    pub allowed_category_ids: BTreeSet<CategoryId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_state_id: Option<AgentStateId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destroyed_at: Option<Timestamp>,
    pub config: AgentConfig,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(
            AgentLifecycle::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(),
            ["created", "active", "dormant", "destroyed"]
        );
        assert_eq!(
            AgentInteractionMode::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(),
            ["autonomous", "interactive", "hybrid"]
        );
    }
}

//! The link: a typed edge of the agent domain's graph. Agent-internal edges never enter the journal (L1).

use serde::{Deserialize, Serialize};

use crate::named::named_enum;
use crate::time::Timestamp;

named_enum! {
    Relation {
        AgentState = "agent_state",
        AgentHead = "agent_head",
        MessagePrev = "message_prev",
        MessagePayload = "message_payload",
        SummaryStart = "summary_start",
        SummaryEnd = "summary_end",
        ToolEffect = "tool_effect",
        ReportHead = "report_head",
        ReportSource = "report_source",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub relation: Relation,
    /// Prefixed ids: an edge may point at any kind of record, in either domain.
    pub from_id: String,
    pub to_id: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    pub created_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        assert_eq!(
            Relation::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>(),
            [
                "agent_state",
                "agent_head",
                "message_prev",
                "message_payload",
                "summary_start",
                "summary_end",
                "tool_effect",
                "report_head",
                "report_source"
            ]
        );
    }
}

//! The lease: which run of an agent is going on, and in which life of the process. One row per agent is the single flight (L11).

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, RunId};
use crate::records::cursor::counter_text;
use crate::time::Timestamp;

/// The fence that every life of a process raises when it begins to work: its epoch is the incarnation.
pub const INCARNATION: &str = "incarnation";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    pub agent_id: AgentId,
    pub run_id: RunId,
    /// A lease of an earlier incarnation is void at once.
    #[serde(with = "counter_text")]
    pub incarnation: u64,
    pub taken_at: Timestamp,
}

//! What a decision is made on: the part of the world that the layers look at, loaded afresh for each point of a cycle.

use std::collections::BTreeSet;

use domain::hash::Hash;
use domain::id::{CategoryId, WorkspaceId};
use domain::records::agent::AgentLifecycle;
use domain::records::budget::Amounts;
use domain::records::slug::Slug;
use domain::records::switch::SwitchSubject;
use serde::{Deserialize, Serialize};

use crate::request::{Capability, Mode};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// What people have stopped and not released.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub stopped: BTreeSet<SwitchSubject>,
    pub lifecycle: AgentLifecycle,
    /// The agent's own workspace.
    pub workspace: WorkspaceId,
    /// Categories it may touch; what has no category is in the workspace's open part.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub categories: BTreeSet<CategoryId>,
    /// Kinds of record it may touch.
    pub kinds: BTreeSet<Slug>,
    pub capabilities: BTreeSet<Capability>,
    /// Tools it may use, by name.
    pub tools: BTreeSet<String>,
    pub mode: Mode,
    pub limits: Amounts,
    /// Spent and reserved today, over all hosts.
    pub used: Amounts,
    /// Contents that a person has denied in this run.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub denied: BTreeSet<Hash>,
    /// Contents that wait for a person in this run.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pending: BTreeSet<Hash>,
}

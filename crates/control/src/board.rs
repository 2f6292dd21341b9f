//! The board: the tasks and artifacts of a workspace as one cycle sees them, loaded afresh from the store.

use std::collections::BTreeMap;

use domain::id::{ArtifactId, TaskId, WorkspaceId};
use domain::records::slug::Slug;
use domain::records::task::{Task, TaskStatus};
use serde::{Deserialize, Serialize};

/// What a cycle works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Board {
    pub workspace: WorkspaceId,
    /// Open tasks, in the order of their status (in progress, pending, blocked), then age, then id.
    pub tasks: Vec<TaskFact>,
    /// How many tasks there are of each status.
    pub counts: BTreeMap<TaskStatus, u64>,
    /// The newest artifacts, by name only.
    pub artifacts: Vec<ArtifactFact>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFact {
    pub id: TaskId,
    pub version: u64,
    pub task: Task,
    /// All preconditions are done.
    pub ready: bool,
    /// For each required effect the artifact that fulfils it, if it is there; for a task that requires none, the first artifact made
    /// for it.
    pub evidence: Vec<Option<Evidence>>,
}

/// An artifact that is there, at the version it was seen at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    pub artifact_id: ArtifactId,
    pub version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactFact {
    pub id: ArtifactId,
    pub version: u64,
    pub artifact_type: Slug,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_key: Option<String>,
}

impl TaskFact {
    /// May be worked on now.
    #[must_use]
    pub fn is_eligible(&self) -> bool {
        self.ready && matches!(self.task.status, TaskStatus::Pending | TaskStatus::InProgress)
    }

    /// All that it requires is there.
    #[must_use]
    pub fn is_fulfilled(&self) -> bool {
        !self.evidence.is_empty() && self.evidence.iter().all(Option::is_some)
    }
}

impl Board {
    #[must_use]
    pub fn task(&self, id: &TaskId) -> Option<&TaskFact> {
        self.tasks.iter().find(|fact| fact.id == *id)
    }

    /// How many tasks there are, the done ones included.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The board without what can be read again from the log: what a cycle's record keeps.
    #[must_use]
    pub fn refs(&self) -> BoardRefs {
        BoardRefs {
            counts: self.counts.clone(),
            tasks: self.tasks.iter().map(TaskRef::of).collect(),
            artifacts: self.artifacts.clone(),
        }
    }
}

/// A board by reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoardRefs {
    pub counts: BTreeMap<TaskStatus, u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskRef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactFact>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRef {
    pub id: TaskId,
    pub version: u64,
    pub ready: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Option<Evidence>>,
}

impl TaskRef {
    fn of(fact: &TaskFact) -> Self {
        Self { id: fact.id, version: fact.version, ready: fact.ready, evidence: fact.evidence.clone() }
    }
}

impl BoardRefs {
    /// The board again, given the tasks' bodies; `None` when one of them is gone.
    #[must_use]
    pub fn resolve(&self, workspace: WorkspaceId, bodies: &BTreeMap<(TaskId, u64), Task>) -> Option<Board> {
        let fact = |task: &TaskRef| {
            let body = bodies.get(&(task.id, task.version))?.clone();
            Some(TaskFact { id: task.id, version: task.version, task: body, ready: task.ready, evidence: task.evidence.clone() })
        };
        let tasks = self.tasks.iter().map(fact).collect::<Option<_>>()?;
        Some(Board { workspace, tasks, counts: self.counts.clone(), artifacts: self.artifacts.clone() })
    }
}

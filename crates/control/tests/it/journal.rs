//! A journal in memory: tasks and artifacts by id and version, the board that a cycle sees of them, and what a commit does to them.

use std::collections::{BTreeMap, BTreeSet};

use control::action::{Action, Effect, PlannedWrite, Seen, SeenRecord};
use control::board::{ArtifactFact, Board, Evidence, TaskFact};
use domain::code::ErrorCode;
use domain::id::{ArtifactId, RawId, TaskId, WorkspaceId};
use domain::record::Record;
use domain::records::artifact::{Artifact, ArtifactSource};
use domain::records::slug::Slug;
use domain::records::task::{RequiredEffect, Task, TaskStatus};
use domain::time::Timestamp;

use crate::scene::{BEGIN_MS, owner};

pub(crate) fn workspace() -> WorkspaceId {
    WorkspaceId::of_slug("home")
}

pub(crate) fn slug(text: &str) -> Slug {
    Slug::parse(text).expect("a plain word")
}

/// The artifact of type `context` with this key.
pub(crate) fn context(key: &str) -> ArtifactId {
    ArtifactId::of_key(&workspace(), &slug("context"), key)
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Journal {
    pub(crate) tasks: BTreeMap<TaskId, (u64, Task)>,
    pub(crate) artifacts: BTreeMap<ArtifactId, (u64, Artifact)>,
}

impl Journal {
    /// A person adds a task that requires an artifact of each key.
    pub(crate) fn add(&mut self, description: &str, keys: &[&str]) -> TaskId {
        let number = u8::try_from(self.tasks.len() + 1).expect("a test has few tasks");
        let id = TaskId::from_raw(RawId::from_bytes([number; 16]));
        let effect = |key: &&str| RequiredEffect::Artifact { artifact_type: slug("context"), artifact_key: (*key).to_owned() };
        let at = Timestamp::from_ms(BEGIN_MS - 1_000 + i64::from(number));
        let task = Task {
            description: description.to_owned(),
            status: TaskStatus::Pending,
            preconditions: BTreeSet::new(),
            required_effects: keys.iter().map(effect).collect(),
            category: None,
            blocked_reason: None,
            created_by: owner(),
            created_at: at,
            updated_at: at,
            completed_at: None,
            completed_by: None,
        };
        self.tasks.insert(id, (1, task));
        id
    }

    /// A person changes a task.
    pub(crate) fn change(&mut self, id: TaskId, change: impl FnOnce(&mut Task)) {
        let (version, task) = self.tasks.get_mut(&id).expect("it is there");
        *version += 1;
        change(task);
    }

    /// A person keeps an artifact.
    pub(crate) fn keep(&mut self, key: &str) {
        let at = Timestamp::from_ms(BEGIN_MS);
        let artifact = Artifact {
            artifact_type: slug("context"),
            artifact_key: Some(key.to_owned()),
            source: ArtifactSource::User,
            content: "by hand".to_owned(),
            task_id: None,
            approved_by: Some(owner()),
            created_at: at,
            updated_at: at,
        };
        let version = self.artifacts.get(&context(key)).map_or(0, |(version, _)| *version);
        self.artifacts.insert(context(key), (version + 1, artifact));
    }

    pub(crate) fn status(&self, id: TaskId) -> TaskStatus {
        self.tasks[&id].1.status
    }

    pub(crate) fn board(&self) -> Board {
        let mut counts = BTreeMap::new();
        self.tasks.values().for_each(|(_, task)| *counts.entry(task.status).or_insert(0) += 1);
        let open = self.tasks.iter().filter(|(_, (_, task))| task.status != TaskStatus::Done);
        let mut tasks: Vec<_> = open.map(|(id, (version, task))| self.fact(*id, *version, task)).collect();
        let rank = |status| match status {
            TaskStatus::InProgress => 0,
            TaskStatus::Pending => 1,
            TaskStatus::Blocked | TaskStatus::Done => 2,
        };
        tasks.sort_by_key(|fact| (rank(fact.task.status), fact.task.created_at, fact.id));
        let artifact = |(id, (version, artifact)): (&ArtifactId, &(u64, Artifact))| ArtifactFact {
            id: *id,
            version: *version,
            artifact_type: artifact.artifact_type.clone(),
            artifact_key: artifact.artifact_key.clone(),
        };
        Board { workspace: workspace(), tasks, counts, artifacts: self.artifacts.iter().map(artifact).collect() }
    }

    fn fact(&self, id: TaskId, version: u64, task: &Task) -> TaskFact {
        let is_done = |id: &TaskId| self.tasks.get(id).is_some_and(|(_, task)| task.status == TaskStatus::Done);
        let at = |id: &ArtifactId| self.artifacts.get(id).map(|(version, _)| Evidence { artifact_id: *id, version: *version });
        let mut evidence: Vec<_> =
            task.required_effects.iter().map(|RequiredEffect::Artifact { artifact_key, .. }| at(&context(artifact_key))).collect();
        if task.required_effects.is_empty() {
            let made = self.artifacts.iter().find(|(_, (_, artifact))| artifact.task_id == Some(id));
            evidence.push(made.and_then(|(id, _)| at(id)));
        }
        TaskFact { id, version, task: task.clone(), ready: task.preconditions.iter().all(is_done), evidence }
    }

    /// One commit: all of its writes, or a refusal.
    pub(crate) fn carry_out(&mut self, action: &Action) -> Seen {
        let Effect::Journal { writes, evidence } = &action.effect else { return Seen::Acknowledged };
        let proven =
            evidence.iter().all(|proof| self.artifacts.get(&proof.artifact_id).is_some_and(|(at, _)| *at == proof.version));
        if !proven || writes.iter().any(|write| self.version(write) != write.expected_version) {
            let code = if proven { ErrorCode::VersionConflict } else { ErrorCode::GuardFailed };
            return Seen::Refused { code: code.as_str().to_owned() };
        }
        Seen::Committed { records: writes.iter().map(|write| self.write(write)).collect() }
    }

    fn version(&self, write: &PlannedWrite) -> u64 {
        let task = TaskId::parse(&write.id).ok().and_then(|id| self.tasks.get(&id)).map(|(version, _)| *version);
        let artifact = || ArtifactId::parse(&write.id).ok().and_then(|id| self.artifacts.get(&id)).map(|(version, _)| *version);
        task.or_else(artifact).unwrap_or(0)
    }

    fn write(&mut self, write: &PlannedWrite) -> SeenRecord {
        let (version, body) = (write.expected_version + 1, write.body.as_deref().expect("a plan has its bodies"));
        if write.kind == Task::SPEC.kind {
            let task = Task::from_body(body).expect("it reads");
            self.tasks.insert(TaskId::parse(&write.id).expect("it is an id"), (version, task));
        } else {
            let artifact = Artifact::from_body(body).expect("it reads");
            self.artifacts.insert(ArtifactId::parse(&write.id).expect("it is an id"), (version, artifact));
        }
        SeenRecord { id: write.id.clone(), version, body_hash: write.body_hash }
    }
}

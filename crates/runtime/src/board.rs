//! The tasks of a workspace as people look at them: with the controller's own eyes, so that what is shown is what it decides on.

use std::collections::BTreeMap;

use control::board::TaskFact;
use domain::causality::Domain;
use domain::id::{ArtifactId, TaskId, WorkspaceId};
use domain::record::{Record, Value};
use domain::records::task::{Task, TaskStatus};
use store::store::{Direction, Row, Scan, Snapshot};

use crate::artifacts::ArtifactRecord;
use crate::engine::task_fact;
use crate::house::{Held, House, held};
use crate::pages::{self, checked_limit};
use crate::tasks::gone;
use crate::{Error, Result};

/// LIMIT: artifacts that a task is shown with.
const ARTIFACTS_SHOWN_MAX: usize = 50;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRecord {
    pub id: TaskId,
    pub version: u64,
    pub workspace: WorkspaceId,
    pub task: Task,
    /// Everything it waits for is done.
    pub ready: bool,
    /// For each required effect the artifact that is there for it, with its version.
    pub effects: Vec<Option<(ArtifactId, u64)>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPage {
    pub tasks: Vec<TaskRecord>,
    /// How many there are of each status in the workspace; a status that none has is missing.
    pub counts: BTreeMap<TaskStatus, u64>,
    /// How many the whole list has.
    pub total: u64,
    /// What to pass as `after` for the next page.
    pub next: Option<String>,
}

/// A task with what it waits for and what was made for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskDetail {
    pub record: TaskRecord,
    pub preconditions: Vec<Precondition>,
    pub artifacts: Vec<ArtifactRecord>,
    /// There are more artifacts than these.
    pub more_artifacts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Precondition {
    pub id: TaskId,
    /// None when the task is gone, and with it the hope that it will be done.
    pub task: Option<(TaskStatus, String)>,
}

impl House {
    pub fn task(&self, id: TaskId) -> Result<TaskDetail> {
        let row = self.task_row(id)?;
        let (record, preconditions) = self.read(Domain::Journal, |snapshot| {
            let record = record_of(snapshot, &row)?.ok_or_else(|| gone(id))?;
            let preconditions = record.task.preconditions.iter().map(|id| precondition(snapshot, *id));
            let preconditions = preconditions.collect::<Result<Vec<_>>>()?;
            Ok::<_, Error>((record, preconditions))
        })?;
        let (artifacts, more_artifacts) = self.artifacts_of_task(id, ARTIFACTS_SHOWN_MAX)?;
        Ok(TaskDetail { record, preconditions, artifacts, more_artifacts })
    }

    /// Newest first, page by page; of one status, or of all.
    pub fn tasks(&self, workspace: &str, status: Option<TaskStatus>, limit: usize, after: Option<&str>) -> Result<TaskPage> {
        let workspace = self.workspace(workspace)?;
        let mut prefix = vec![Value::from(workspace.raw())];
        prefix.extend(status.map(|status| Value::from(status.as_str())));
        let mut scan = Scan::new(Task::SPEC, if status.is_some() { "by_status" } else { "by_created" });
        scan.after = after.map(|after| pages::key(prefix.clone(), after, TaskId::PREFIX)).transpose()?;
        scan.prefix = prefix;
        scan.direction = Direction::Backward;
        scan.limit = checked_limit(limit)?;
        self.read(Domain::Journal, |snapshot| {
            let page = snapshot.scan(&scan)?;
            let tasks = page.rows.iter().map(|row| record_of(snapshot, row)).collect::<Result<Vec<_>>>()?;
            let mut counts = BTreeMap::new();
            for status in TaskStatus::ALL {
                let group = [Value::from(workspace.raw()), Value::from(status.as_str())];
                let count = snapshot.aggregate(Task::SPEC, "per_status", &group)?;
                if count > 0 {
                    counts.insert(*status, count.unsigned_abs());
                }
            }
            let total = status.map_or_else(|| counts.values().sum(), |status| counts.get(&status).copied().unwrap_or(0));
            let next = page.next.as_ref().map(|next| pages::token(next, TaskId::PREFIX));
            Ok(TaskPage { tasks: tasks.into_iter().flatten().collect(), counts, total, next })
        })
    }

    /// Open tasks that wait for this one.
    pub fn tasks_waiting_for(&self, id: TaskId) -> Result<Vec<TaskId>> {
        let workspace = self.task_row(id)?.workspace;
        let mut found = Vec::new();
        for status in [TaskStatus::InProgress, TaskStatus::Pending, TaskStatus::Blocked] {
            let mut scan = Scan::new(Task::SPEC, "by_status");
            scan.prefix = vec![Value::from(workspace.raw()), Value::from(status.as_str())];
            loop {
                let page = self.page(Domain::Journal, &scan)?;
                for row in &page.rows {
                    let waits = held::<Task>(row)?.is_some_and(|held| held.record.preconditions.contains(&id));
                    found.extend(waits.then(|| TaskId::from_raw(row.id)));
                }
                let Some(next) = page.next else { break };
                scan.after = Some(next);
            }
        }
        Ok(found)
    }
}

fn record_of(snapshot: &dyn Snapshot, row: &Row) -> Result<Option<TaskRecord>> {
    let Some(Held { record, version, workspace }) = held::<Task>(row)? else { return Ok(None) };
    let TaskFact { id, version, task, ready, evidence } =
        task_fact(snapshot, workspace, TaskId::from_raw(row.id), version, record)?;
    // A task that requires nothing in particular is fulfilled by any artifact; those are shown by themselves.
    let effects = if task.required_effects.is_empty() { Vec::new() } else { evidence };
    let effects = effects.into_iter().map(|found| found.map(|found| (found.artifact_id, found.version))).collect();
    Ok(Some(TaskRecord { id, version, workspace, task, ready, effects }))
}

fn precondition(snapshot: &dyn Snapshot, id: TaskId) -> Result<Precondition> {
    let row = snapshot.get(Task::SPEC, &id.raw())?;
    let task = row.map(|row| held::<Task>(&row)).transpose()?.flatten();
    Ok(Precondition { id, task: task.map(|held| (held.record.status, held.record.description)) })
}

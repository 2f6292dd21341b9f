//! Tasks as people write them: add, change, take away, bring back (D6). What agents write goes through the engine.

use std::collections::BTreeSet;

use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Change, Committed, Expected, Guard, Write};
use domain::entry::Op;
use domain::id::{TaskId, WorkspaceId};
use domain::record::Record;
use domain::records::slug::Slug;
use domain::records::task::{Invalid, RequiredEffect, Task, TaskStatus};
use domain::records::workspace::Workspace;
use domain::time::Timestamp;
use serde::Serialize;
use serde_json::json;
use store::store::{Row, Snapshot};

use crate::house::{House, held, put};
use crate::operation::{ClientKey, owner};
use crate::{Error, Result};

/// LIMIT: tasks that the search for a circle looks at; a chain of reasons this long is none that a person follows.
const WALKED_TASKS_MAX: usize = 1_000;

/// What a new task is made of, as it was given.
///
/// INVARIANT: its serialised form is what a repeat is compared by, so what was not given must not appear.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TaskDraft {
    pub description: String,
    /// Required effects as `TYPE/KEY`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Tasks that must be done before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preconditions: Vec<TaskId>,
    pub workspace: String,
}

/// What to change; what is left out stays. See [`TaskDraft`] for what its serialised form is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TaskChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preconditions: Option<Vec<TaskId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    /// Why it is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The version that the change was decided on; left out, whatever is current.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub version: Option<u64>,
}

/// 64-bit numbers are strings in canonical JSON.
fn as_text<S: serde::Serializer>(version: &Option<u64>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&version.unwrap_or_default())
}

/// What a writing command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskDone {
    pub id: TaskId,
    pub version: u64,
    pub operation_id: ClientKey,
    /// It had been done before; nothing changed now.
    pub repeated: bool,
}

impl House {
    pub fn add_task(&mut self, draft: &TaskDraft, key: &ClientKey) -> Result<TaskDone> {
        let operation_id = key.operation_id();
        let request = json!({ "command": "task.add", "arguments": draft });
        let workspace = self.workspace(&draft.workspace)?;
        let id = operation_id.created(Task::SPEC.kind, 0);
        if self.was_done(Domain::Journal, key)? {
            return self.repeat_task(TaskId::from_raw(id), workspace, key, &request);
        }
        let now = self.now();
        let task = Task {
            description: draft.description.clone(),
            status: TaskStatus::Pending,
            preconditions: draft.preconditions.iter().copied().collect(),
            required_effects: effects_of(&draft.requires)?,
            category: None,
            blocked_reason: None,
            created_by: owner(),
            created_at: now,
            updated_at: now,
            completed_at: None,
            completed_by: None,
        };
        task.check().map_err(|error| invalid(&error))?;
        let mut guards = vec![Guard::Live { spec: Workspace::SPEC, id: workspace.raw() }];
        guards.extend(self.precondition_guards(workspace, None, &task.preconditions)?);
        let write = put(&task, id, workspace, Expected::Absent)?;
        self.commit_task(key, &request, guards, write)
    }

    pub fn edit_task(&mut self, id: TaskId, change: &TaskChange, key: &ClientKey) -> Result<TaskDone> {
        if *change == (TaskChange { version: change.version, ..TaskChange::default() }) {
            let rule = "nothing to change; give a description, a status, required effects or preconditions";
            return Err(Error::argument("task edit", rule));
        }
        let request = json!({ "command": "task.edit", "id": id, "arguments": change });
        let row = self.task_row(id)?;
        if self.was_done(Domain::Journal, key)? {
            return self.repeat_task(id, row.workspace, key, &request);
        }
        let before: Task = row.record()?.ok_or_else(|| gone(id))?;
        let task = changed(before, change, self.now())?;
        task.check().map_err(|error| invalid(&error))?;
        let guards = match &change.preconditions {
            Some(_) => self.precondition_guards(row.workspace, Some(id), &task.preconditions)?,
            None => Vec::new(),
        };
        let write = put(&task, row.id, row.workspace, Expected::Version(change.version.unwrap_or(row.version)))?;
        self.commit_task(key, &request, guards, write)
    }

    /// Takes a task away; `restore_task` brings it back.
    pub fn remove_task(&mut self, id: TaskId, version: Option<u64>, key: &ClientKey) -> Result<TaskDone> {
        let request = json!({ "command": "task.rm", "id": id, "arguments": TaskChange { version, ..TaskChange::default() } });
        let row = self.task_row(id)?;
        if row.deleted && version.is_none() && !self.was_done(Domain::Journal, key)? {
            return Err(gone(id));
        }
        let expected = Expected::Version(version.unwrap_or(row.version));
        let write = Write { spec: Task::SPEC, id: row.id, workspace: row.workspace, expected, change: Change::Tombstone };
        self.commit_task(key, &request, Vec::new(), write)
    }

    /// Brings a deleted task back as it was.
    pub fn restore_task(&mut self, id: TaskId, key: &ClientKey) -> Result<TaskDone> {
        let request = json!({ "command": "task.restore", "id": id });
        let row = self.task_row(id)?;
        if self.was_done(Domain::Journal, key)? {
            return self.repeat_task(id, row.workspace, key, &request);
        }
        if !row.deleted {
            return Err(Error::argument("task", &format!("{id} was not deleted; there is nothing to bring back")));
        }
        let history = self.read(Domain::Journal, |snapshot| Ok(snapshot.history(Task::SPEC, &id.raw(), usize::MAX)?))?;
        let bodies = history.into_iter().filter(|(logged, _)| logged.entry.op == Op::Put).map(|(_, stored)| stored.body);
        let Some(body) = bodies.take(1).flatten().next() else {
            return Err(Error::argument("task", &format!("{id} was erased; there is nothing to bring back")));
        };
        let found = Task::from_body(&body).map_err(|error| Error::new(ErrorCode::DatabaseDamaged, error.to_string()))?;
        let task = Task { updated_at: self.now().max(found.updated_at), ..found };
        let write = put(&task, row.id, row.workspace, Expected::Version(row.version))?;
        self.commit_task(key, &request, Vec::new(), write)
    }

    /// Done before, whatever became of the task since: the store compares the requests, answers with the first outcome and never
    /// looks at this write.
    fn repeat_task(
        &mut self,
        id: TaskId,
        workspace: WorkspaceId,
        key: &ClientKey,
        request: &serde_json::Value,
    ) -> Result<TaskDone> {
        let (spec, expected, change) = (Task::SPEC, Expected::Absent, Change::Tombstone);
        self.commit_task(key, request, Vec::new(), Write { spec, id: id.raw(), workspace, expected, change })
    }

    fn commit_task(&mut self, key: &ClientKey, request: &serde_json::Value, guards: Vec<Guard>, write: Write) -> Result<TaskDone> {
        let committed = self.act(Domain::Journal, owner(), key.operation_id(), request, guards, vec![write])?;
        done(&committed, key)
    }

    /// The tasks to wait for are there, in the same workspace, and none of them waits for this one.
    fn precondition_guards(&self, workspace: WorkspaceId, of: Option<TaskId>, wanted: &BTreeSet<TaskId>) -> Result<Vec<Guard>> {
        self.read(Domain::Journal, |snapshot| {
            for id in wanted {
                let row = snapshot.get(Task::SPEC, &id.raw())?.filter(|row| !row.deleted);
                let row = row.ok_or_else(|| Error::new(ErrorCode::TaskNotFound, format!("there is no task {id} to wait for")))?;
                if row.workspace != workspace {
                    let rule = format!("{id} is in another workspace than the task that would wait for it");
                    return Err(Error::argument("needs", &rule));
                }
            }
            of.map_or(Ok(()), |id| no_circle(snapshot, id, wanted))?;
            // A circle that two writers make at once is not caught here. Nobody works on such tasks, and each shows what it waits for.
            Ok(wanted.iter().map(|id| Guard::Live { spec: Task::SPEC, id: id.raw() }).collect())
        })
    }

    pub(crate) fn task_row(&self, id: TaskId) -> Result<Row> {
        let unknown = || Error::new(ErrorCode::TaskNotFound, format!("there is no task {id}"));
        self.row(Domain::Journal, Task::SPEC, &id.raw())?.ok_or_else(unknown)
    }
}

/// Walks what the wanted tasks wait for; the task itself must not be among it.
fn no_circle(snapshot: &dyn Snapshot, id: TaskId, wanted: &BTreeSet<TaskId>) -> Result<()> {
    let mut next: Vec<TaskId> = wanted.iter().copied().collect();
    let mut walked = BTreeSet::new();
    while let Some(at) = next.pop() {
        if at == id {
            let rule = if wanted.contains(&id) {
                "a task cannot wait for itself".to_owned()
            } else {
                format!("{id} would wait for itself: what it would wait for waits for it already")
            };
            return Err(Error::argument("needs", &rule));
        }
        if !walked.insert(at) {
            continue;
        }
        if walked.len() > WALKED_TASKS_MAX {
            return Err(Error::argument("needs", &format!("more than {WALKED_TASKS_MAX} tasks wait for each other here")));
        }
        let row = snapshot.get(Task::SPEC, &at.raw())?;
        let task = row.map(|row| held::<Task>(&row)).transpose()?.flatten();
        next.extend(task.into_iter().flat_map(|held| held.record.preconditions));
    }
    Ok(())
}

fn changed(task: Task, change: &TaskChange, now: Timestamp) -> Result<Task> {
    let task = with_status(task, change, now)?;
    Ok(Task {
        description: change.description.clone().unwrap_or(task.description),
        required_effects: change.requires.as_deref().map(effects_of).transpose()?.unwrap_or(task.required_effects),
        preconditions: change.preconditions.as_ref().map_or(task.preconditions, |ids| ids.iter().copied().collect()),
        updated_at: now.max(task.updated_at),
        ..task
    })
}

/// A person's word on a task's status: taken as it is, with the person's name to it.
fn with_status(task: Task, change: &TaskChange, now: Timestamp) -> Result<Task> {
    let reason = change.reason.clone();
    let status = change.status.unwrap_or(task.status);
    if status != TaskStatus::Blocked && reason.is_some() {
        return Err(Error::argument("reason", "only a blocked task has a reason; give `--status blocked` with it"));
    }
    let blocked_reason = match status {
        TaskStatus::Blocked => {
            let reason = reason.or(task.blocked_reason);
            Some(reason.ok_or_else(|| Error::argument("reason", "say why it is blocked; the next who looks will ask"))?)
        }
        TaskStatus::Pending | TaskStatus::InProgress | TaskStatus::Done => None,
    };
    let (completed_at, completed_by) = match (status, task.status) {
        (TaskStatus::Done, TaskStatus::Done) => (task.completed_at, task.completed_by),
        (TaskStatus::Done, _) => (Some(now), Some(owner())),
        (TaskStatus::Pending | TaskStatus::InProgress | TaskStatus::Blocked, _) => (None, None),
    };
    Ok(Task { status, blocked_reason, completed_at, completed_by, ..task })
}

fn effects_of(texts: &[String]) -> Result<Vec<RequiredEffect>> {
    let mut effects = Vec::new();
    for text in texts {
        let shown: String = text.chars().take(60).collect();
        let rule = || Error::argument("requires", &format!("`{shown}` is not TYPE/KEY, such as `context/summary`"));
        let (artifact_type, artifact_key) = text.split_once('/').ok_or_else(rule)?;
        let unknown = |_| invalid(&Invalid::UnknownArtifactType { artifact_type: artifact_type.chars().take(60).collect() });
        let artifact_type = Slug::parse(artifact_type).map_err(unknown)?;
        let effect = RequiredEffect::Artifact { artifact_type, artifact_key: artifact_key.to_owned() };
        if !effects.contains(&effect) {
            effects.push(effect);
        }
    }
    Ok(effects)
}

fn done(committed: &Committed, key: &ClientKey) -> Result<TaskDone> {
    let written = committed.writes.iter().find(|write| write.kind == Task::SPEC.kind);
    let written = written.ok_or_else(|| {
        let message = format!("operation `{}` was used for something that is not a task", key.as_str());
        Error::new(ErrorCode::OperationIdReused, message)
    })?;
    let (id, operation_id) = (TaskId::from_raw(written.id), key.clone());
    Ok(TaskDone { id, version: written.version, operation_id, repeated: committed.repeated })
}

pub(crate) fn gone(id: TaskId) -> Error {
    Error::new(ErrorCode::TaskNotFound, format!("task {id} was deleted; `verger task restore` brings it back"))
}

fn invalid(error: &Invalid) -> Error {
    Error { details: json!({ "argument": error.field() }), ..Error::new(ErrorCode::InvalidArgument, error.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_given_is_not_part_of_the_request() {
        let text = |value: serde_json::Value| domain::json::write(&value).unwrap();
        let draft = TaskDraft { description: "a".into(), workspace: "home".into(), ..TaskDraft::default() };
        assert_eq!(text(json!(draft)), r#"{"description":"a","workspace":"home"}"#);
        let change = TaskChange { status: Some(TaskStatus::Done), version: Some(u64::MAX), ..TaskChange::default() };
        assert_eq!(text(json!(change)), r#"{"status":"done","version":"18446744073709551615"}"#);
        assert_eq!(text(json!(TaskChange::default())), "{}");
    }

    #[test]
    fn a_required_effect_is_a_type_and_a_key() {
        let parse = |text: &str| effects_of(&[text.to_owned()]).map_err(|error| error.code);
        let slug = Slug::parse("context").unwrap();
        let effect = RequiredEffect::Artifact { artifact_type: slug, artifact_key: "a/b".into() };
        assert_eq!(parse("context/a/b"), Ok(vec![effect]));
        assert_eq!(parse("context"), Err(ErrorCode::InvalidArgument));
        assert_eq!(parse("Two Words/x"), Err(ErrorCode::InvalidArgument));
    }
}

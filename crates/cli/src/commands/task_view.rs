//! How tasks look: a table with what each waits for, and one task as a small picture.

use domain::entry::Actor;
use domain::records::artifact::ArtifactSource;
use domain::records::task::{RequiredEffect, TaskStatus};
use runtime::{ArtifactRecord, House, TaskDetail, TaskPage, TaskRecord};
use serde_json::{Value, json};

use crate::output::{Failure, Out, note, plain, shortened};

/// LIMIT: lines of an artifact's content that are shown; `--json` has the whole.
const CONTENT_LINES_MAX: usize = 3;
const WIDTH: usize = 76;

pub(super) fn list(page: &TaskPage, status: Option<TaskStatus>, out: &mut Out) -> Result<(), Failure> {
    if out.json {
        let tasks: Vec<_> = page.tasks.iter().map(document).collect();
        let counts: serde_json::Map<_, _> = page.counts.iter().map(|(status, count)| (status.to_string(), json!(count))).collect();
        let content = json!({ "tasks": tasks, "counts": counts, "total": page.total, "next": page.next });
        return out.document("verger.tasks.v1", content);
    }
    if page.tasks.is_empty() {
        return out.line(&status.map_or("no tasks here yet".to_owned(), |status| format!("no task is {}", words(status))));
    }
    let row = |record: &TaskRecord| {
        let state = format!("{} {}", sign(record.task.status), words(record.task.status));
        let version = format!("v{}", record.version);
        vec![record.id.to_string(), version, state, outlook(record), shortened(&record.task.description, 60)]
    };
    let rows: Vec<_> = page.tasks.iter().map(row).collect();
    out.table(&["task", "version", "status", "still to come", "description"], &rows)?;
    let counts: Vec<_> = page.counts.iter().map(|(status, count)| format!("{count} {}", words(*status))).collect();
    let counts = out.dim(&counts.join(" · "));
    out.line(&counts)?;
    if let Some(next) = &page.next {
        note(&format!("{} of {}; more with --after {next}", page.tasks.len(), page.total));
    }
    Ok(())
}

pub(super) fn show(detail: &TaskDetail, house: &House, out: &mut Out) -> Result<(), Failure> {
    if out.json {
        return out.document("verger.task.v1", detailed(detail));
    }
    let TaskRecord { id, version, task, .. } = &detail.record;
    let title = out.bold(&plain(&task.description));
    out.line(&title)?;
    let state = format!("{} {}", sign(task.status), words(task.status));
    let by = named(house, &task.created_by);
    let facts = out.dim(&format!("{id} · version {version} · {state} · added by {by} {}", task.created_at.as_title()));
    out.line(&facts)?;
    for line in picture(detail, house) {
        out.line(&line)?;
    }
    Ok(())
}

/// The lines under a task's head, each group with its word in front.
fn picture(detail: &TaskDetail, house: &House) -> Vec<String> {
    let TaskRecord { task, effects, .. } = &detail.record;
    let mut lines = Vec::new();
    let mut group = |word: &str, entries: Vec<String>| {
        for (place, entry) in entries.into_iter().enumerate() {
            let word = if place == 0 { word } else { "" };
            lines.push(format!("  {word:<10} {entry}").trim_end().to_owned());
        }
    };
    group("blocked", task.blocked_reason.iter().flat_map(|reason| wrapped(reason)).collect());
    let completed = task.completed_at.map(|at| match &task.completed_by {
        Some(person) => format!("{}, on {}", at.as_title(), word_of(house, person)),
        None => format!("{}, its effects were seen by the controller", at.as_title()),
    });
    group("done", completed.into_iter().collect());
    let waits = detail.preconditions.iter().map(|needed| match &needed.task {
        Some((status, text)) => format!("{} {} {}", sign(*status), needed.id, shortened(text, 40)),
        None => format!("✕ {} is gone, so this will not be worked on", needed.id),
    });
    group("waits for", waits.collect());
    let required = task.required_effects.iter().zip(effects).map(|(effect, found)| {
        let RequiredEffect::Artifact { artifact_type, artifact_key } = effect;
        let name = format!("{artifact_type}/{}", shortened(artifact_key, 60));
        match found {
            Some((id, version)) => format!("● {name} {id} v{version}"),
            None => format!("○ {name} is not there yet"),
        }
    });
    group("requires", required.collect());
    let mut made: Vec<_> = detail.artifacts.iter().flat_map(|artifact| artifact_lines(artifact, house)).collect();
    if detail.more_artifacts {
        made.push("… and more".to_owned());
    }
    group("artifacts", made);
    lines
}

fn artifact_lines(record: &ArtifactRecord, house: &House) -> Vec<String> {
    let artifact = &record.artifact;
    let key = artifact.artifact_key.as_deref().map(|key| format!("/{}", shortened(key, 60))).unwrap_or_default();
    let approved = artifact.approved_by.as_ref().map(|by| format!(", kept on {}", word_of(house, by)));
    let maker = match artifact.source {
        ArtifactSource::User => "yours",
        ArtifactSource::Agent => "an agent's",
    };
    let (kind, id, version) = (&artifact.artifact_type, record.id, record.version);
    let head = format!("{kind}{key} {id} v{version}, {maker}{}", approved.unwrap_or_default());
    let content = artifact.content.lines().filter(|line| !line.trim().is_empty());
    let mut lines: Vec<_> = content.clone().take(CONTENT_LINES_MAX).map(|line| format!("  │ {}", shortened(line, WIDTH))).collect();
    if content.count() > CONTENT_LINES_MAX {
        lines.push("  │ …".to_owned());
    }
    lines.insert(0, head);
    lines
}

fn wrapped(text: &str) -> Vec<String> {
    plain(text).lines().map(str::to_owned).collect()
}

/// Who somebody is, in a word that people know.
pub(super) fn named(house: &House, actor: &Actor) -> String {
    match actor {
        Actor::Person(_) => "you".to_owned(),
        Actor::Agent(id) => house.agent(*id).map_or_else(|_| id.to_string(), |agent| format!("agent {}", agent.name)),
        Actor::System => "the house".to_owned(),
    }
}

fn word_of(house: &House, actor: &Actor) -> String {
    if matches!(actor, Actor::Person(_)) { "your word".to_owned() } else { format!("the word of {}", named(house, actor)) }
}

fn sign(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Pending => "○",
        TaskStatus::InProgress => "◐",
        TaskStatus::Done => "●",
        TaskStatus::Blocked => "✕",
    }
}

fn words(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Pending => "pending",
        TaskStatus::InProgress => "in progress",
        TaskStatus::Done => "done",
        TaskStatus::Blocked => "blocked",
    }
}

/// What has to happen before the task is done, in a few words.
fn outlook(record: &TaskRecord) -> String {
    match record.task.status {
        TaskStatus::Done => String::new(),
        TaskStatus::Blocked => shortened(record.task.blocked_reason.as_deref().unwrap_or_default(), 30),
        TaskStatus::Pending | TaskStatus::InProgress if !record.ready => "another task".to_owned(),
        TaskStatus::Pending | TaskStatus::InProgress => {
            let missing = record.effects.iter().filter(|found| found.is_none()).count();
            if record.effects.is_empty() {
                "an artifact".to_owned()
            } else {
                format!("{missing} of {} effects", record.effects.len())
            }
        }
    }
}

fn document(record: &TaskRecord) -> Value {
    let task = &record.task;
    let effects = task.required_effects.iter().zip(&record.effects).map(|(effect, found)| {
        let RequiredEffect::Artifact { artifact_type, artifact_key } = effect;
        let artifact = found.map(|(id, version)| json!({ "id": id, "version": version }));
        json!({ "artifact_type": artifact_type, "artifact_key": artifact_key, "artifact": artifact })
    });
    json!({
        "id": record.id, "version": record.version, "workspace": record.workspace, "description": task.description,
        "status": task.status, "ready": record.ready, "preconditions": task.preconditions,
        "required_effects": effects.collect::<Vec<_>>(), "blocked_reason": task.blocked_reason, "created_by": task.created_by,
        "created_at": task.created_at, "updated_at": task.updated_at, "completed_at": task.completed_at,
        "completed_by": task.completed_by,
    })
}

fn detailed(detail: &TaskDetail) -> Value {
    let waits = detail.preconditions.iter().map(|needed| {
        let (status, description) = needed.task.as_ref().map(|(status, text)| (status, text)).unzip();
        json!({ "id": needed.id, "status": status, "description": description })
    });
    let artifacts = detail.artifacts.iter().map(|record| {
        let artifact = &record.artifact;
        json!({
            "id": record.id, "version": record.version, "artifact_type": artifact.artifact_type,
            "artifact_key": artifact.artifact_key, "source": artifact.source, "content": artifact.content,
            "approved_by": artifact.approved_by, "created_at": artifact.created_at, "updated_at": artifact.updated_at,
        })
    });
    let mut content = document(&detail.record);
    content["waits_for"] = waits.collect();
    content["artifacts"] = artifacts.collect();
    content["more_artifacts"] = json!(detail.more_artifacts);
    content
}

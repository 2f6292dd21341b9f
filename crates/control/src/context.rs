//! What a model is shown: sections in a fixed order, each bounded, made from the store alone. No chat, no summary, no memory of the
//! process takes part, so that deleting them changes nothing.

use domain::hash::Hash;
use domain::records::task::TaskStatus;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::board::{Board, TaskFact};
use crate::dialect::Fault;
use crate::manifest::Manifest;
use crate::run::Run;

/// LIMIT: tasks that are shown with their text; all others by id and status.
const DETAILED_TASKS_MAX: usize = 10;
/// LIMIT: bytes of one section; what is longer is cut, and the manifest says so.
const SECTION_BYTES_MAX: usize = 32 << 10;

/// One part of an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    pub name: &'static str,
    pub text: String,
    /// Bytes that were left out.
    pub cut: usize,
}

/// The sections by length and hash: what was shown can be proven without keeping it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextManifest {
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    pub name: String,
    /// Salted with the run's salt.
    pub hash: Hash,
    pub bytes: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Everything that one ask shows, in order.
#[must_use]
pub fn assemble(manifest: &Manifest, run: &Run, board: &Board, faults: &[Fault]) -> Vec<Section> {
    let mut sections = vec![
        section("rules", manifest.prompt.clone()),
        section("campaign", campaign(manifest, board)),
        section("current_task", current_task(run, board)),
        section("tasks", tasks(board)),
        section("artifacts", artifacts(board)),
        section("recent", recent(run)),
    ];
    if !faults.is_empty() {
        sections.push(section("faults", lines(faults.iter().map(Fault::sentence))));
    }
    sections
}

/// The record of what was assembled.
#[must_use]
pub fn manifest_of(run: &Run, sections: &[Section]) -> ContextManifest {
    let part = |section: &Section| Part {
        name: section.name.to_owned(),
        hash: run.content_hash(&section.text),
        bytes: section.text.len() as u64,
        cut: section.cut as u64,
    };
    ContextManifest { parts: sections.iter().map(part).collect() }
}

fn section(name: &'static str, mut text: String) -> Section {
    let whole = text.len();
    if whole > SECTION_BYTES_MAX {
        let end = (0..=SECTION_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    let cut = whole - text.len();
    Section { name, text, cut }
}

fn campaign(manifest: &Manifest, board: &Board) -> String {
    let counts: serde_json::Map<_, _> = board.counts.iter().map(|(status, n)| (status.to_string(), json!(n))).collect();
    json!({ "workspace": manifest.workspace, "agent": manifest.agent, "tasks": counts }).to_string()
}

/// The task that this run has chosen. What another run has in progress is listed among the tasks, and may be chosen.
fn current_task(run: &Run, board: &Board) -> String {
    let chosen = run.task_id.and_then(|id| board.task(&id));
    chosen.filter(|fact| fact.task.status == TaskStatus::InProgress).map_or_else(|| "null".to_owned(), detailed)
}

fn tasks(board: &Board) -> String {
    let brief = |fact: &TaskFact| json!({ "id": fact.id, "status": fact.task.status, "eligible": fact.is_eligible() }).to_string();
    let (first, rest) = board.tasks.split_at(board.tasks.len().min(DETAILED_TASKS_MAX));
    lines(first.iter().map(detailed).chain(rest.iter().map(brief)))
}

fn detailed(fact: &TaskFact) -> String {
    let task = &fact.task;
    json!({
        "id": fact.id,
        "description": task.description,
        "status": task.status,
        "eligible": fact.is_eligible(),
        "preconditions": task.preconditions,
        "required_effects": task.required_effects,
    })
    .to_string()
}

fn artifacts(board: &Board) -> String {
    lines(board.artifacts.iter().map(|fact| json!({ "type": fact.artifact_type, "key": fact.artifact_key }).to_string()))
}

fn recent(run: &Run) -> String {
    lines(run.recent.iter().map(|recent| {
        json!({ "cycle": recent.cycle, "what": recent.what, "result": recent.result, "words": recent.words }).to_string()
    }))
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

//! What lies outside the process: models and other systems. The engine knows them by this trait alone.

use control::context::Section;
use control::machine::Ask;
use control::manifest::{Manifest, Model};
use control::proposal::Proposal;
use domain::code::ErrorCode;
use domain::id::{OperationId, RunId};
use domain::records::budget::Amounts;

const CURRENT_TASK: &str = "$current_task";
const NEXT_TASK: &str = "$next_task";

/// What a model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    pub model: String,
    pub spent: Amounts,
}

/// One act in another system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub operation_id: OperationId,
    pub service: String,
    pub parameters: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResult {
    Done,
    /// Certainly not done.
    Refused(ErrorCode),
    /// No answer came: it may have been done.
    Unknown,
}

/// Asks and acts that leave the process.
pub trait Outside {
    /// One ask. Its intent is durable.
    fn ask(&mut self, manifest: &Manifest, run_id: &RunId, ask: &Ask) -> Result<Answer, ErrorCode>;
    fn call(&mut self, call: &Call) -> CallResult;
    /// The services that can be reached; tools of others are refused before they are planned.
    fn reaches(&self, service: &str) -> bool;
}

/// Answers from the manifest's own list, ask by ask; reaches nothing.
///
/// A script is written before there are any tasks, so it names them by their place: `$current_task` is the one in progress, `$next_task`
/// the first that may be chosen. A last reply that is a `no_op` is given again whenever the run is asked later: cycles of the
/// controller's own have numbers, too, and nobody can count them in advance.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scripted;

impl Outside for Scripted {
    fn ask(&mut self, manifest: &Manifest, _run_id: &RunId, ask: &Ask) -> Result<Answer, ErrorCode> {
        let Model::Scripted { script } = &manifest.model;
        let place = usize::try_from(ask.nth).unwrap_or(usize::MAX).saturating_sub(1);
        let at_rest = || script.last().filter(|reply| is_no_op(manifest, reply));
        let text = filled(script.get(place).or_else(at_rest).ok_or(ErrorCode::ScriptEnded)?, &ask.sections);
        let asked: usize = ask.sections.iter().map(|section| section.text.len()).sum();
        // About four bytes a token, as everywhere; a script costs nothing, but its budget is kept like any other's.
        let tokens = i64::try_from((asked + text.len()).div_ceil(4)).unwrap_or(i64::MAX);
        let spent = Amounts { tokens: tokens.min(ask.tokens_max), ..Amounts::NONE };
        Ok(Answer { text, model: "scripted".to_owned(), spent })
    }

    fn call(&mut self, _call: &Call) -> CallResult {
        CallResult::Refused(ErrorCode::UnknownTool)
    }

    fn reaches(&self, _service: &str) -> bool {
        false
    }
}

fn is_no_op(manifest: &Manifest, reply: &str) -> bool {
    let decoded = manifest.dialect.decode(reply);
    decoded.is_ok_and(|decoded| matches!(decoded.proposals.as_slice(), [Proposal::NoOp { .. }]))
}

/// Puts in the ids of tasks that a script names by their place. What is not there stays as it is, and does not decode.
fn filled(reply: &str, sections: &[Section]) -> String {
    let shown = |name: &str| sections.iter().find(|section| section.name == name).map_or("", |section| section.text.as_str());
    let id_where = |text: &str, wanted: fn(&serde_json::Value) -> bool| {
        let tasks = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        tasks.into_iter().find(wanted).and_then(|task| task["id"].as_str().map(str::to_owned))
    };
    let mut text = reply.to_owned();
    if let Some(id) = reply.contains(CURRENT_TASK).then(|| id_where(shown("current_task"), |_| true)).flatten() {
        text = text.replace(CURRENT_TASK, &id);
    }
    let may_be_chosen = |task: &serde_json::Value| task["eligible"] == true && task["status"] == "pending";
    if let Some(id) = reply.contains(NEXT_TASK).then(|| id_where(shown("tasks"), may_be_chosen)).flatten() {
        text = text.replace(NEXT_TASK, &id);
    }
    text
}

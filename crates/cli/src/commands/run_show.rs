//! A run for people: how it stands, what it asks, and what to do next.

use domain::id::WorkspaceId;
use domain::records::prompt::PromptState;
use domain::records::switch::SwitchSubject;
use runtime::{AskView, Needs, RunLine, RunView, Shortfall};
use serde_json::{Value, json};

use crate::output::{Failure, Out, counted, shortened};

pub(super) fn show(view: &RunView, out: &mut Out) -> Result<(), Failure> {
    if let Some(asked) = view.coalesced_from {
        out.line(&format!("{asked} was answered together with an earlier wake by"))?;
    }
    let heading = out.bold(&view.id.to_string());
    out.line(&format!("{heading} {}", standing(view)))?;
    let facts = format!(
        "{} · {} · {} · {} done · {} · began {}",
        view.agent,
        view.reason,
        counted(view.cycles.into(), "cycle"),
        view.operations,
        counted(view.tokens, "token"),
        view.created_at
    );
    let facts = out.dim(&facts);
    out.line(&facts)?;
    for ask in &view.asks {
        let what = if ask.approval { "approval" } else { "question" };
        let status = if ask.status == PromptState::Open { String::new() } else { format!(" ({})", ask.status) };
        out.line(&format!("  {} {what}{status}, {}: {}", ask.id, ask.tool, shortened(&ask.text, 100)))?;
        for option in &ask.options {
            out.line(&format!("    · {}", shortened(option, 76)))?;
        }
    }
    if let Some(Needs::Budget(Shortfall { amount, limit, used, wanted })) = view.waiting.as_ref().map(|waiting| &waiting.needs) {
        out.line(&format!("  {amount} of the day: limit {limit}, used {used}, wanted {wanted}"))?;
    }
    match next(view) {
        Some(next) => {
            let next = out.dim(&format!("next: {next}"));
            out.line(&next)
        }
        None => Ok(()),
    }
}

/// How a run stands, in words.
pub(super) fn standing(view: &RunView) -> String {
    let Some(waiting) = &view.waiting else {
        let cancel = if view.cancel_requested && !view.status.is_terminal() { ", to be cancelled" } else { "" };
        return format!("{}{cancel}", ended(view.status.as_str(), view.code.as_deref()));
    };
    let until = waiting.until.map(|until| format!(" until {until}")).unwrap_or_default();
    let resolved = view.asks.iter().map(|ask| ask.status).find(|status| *status != PromptState::Open);
    match (waiting.reason.as_str(), resolved) {
        ("people", Some(resolved)) => format!("waiting to go on, its question is {resolved}"),
        (reason, _) => format!("waiting {}{until}", for_what(reason)),
    }
}

/// The words for what a run waits for.
pub(super) fn for_what(reason: &str) -> &str {
    match reason {
        "stopped" => "until it is no longer stopped",
        "paused" => "until its agent is no longer paused",
        "backoff" => "for its model",
        "budget" => "for budget",
        _ => "for people",
    }
}

/// A status with its code, unless that is the same word again.
pub(super) fn ended(status: &str, code: Option<&str>) -> String {
    code.filter(|code| *code != status).map_or_else(|| status.to_owned(), |code| format!("{status}: {code}"))
}

/// The status of a line of a list.
pub(super) fn status(line: &RunLine) -> String {
    match (line.waiting, line.resolved) {
        (Some(_), Some(resolved)) => format!("{}: {resolved}", line.status),
        (Some(reason), None) => format!("{}: {reason}", line.status),
        (None, _) => ended(line.status.as_str(), line.code.as_deref()),
    }
}

/// What a person does next.
fn next(view: &RunView) -> Option<String> {
    if view.status.is_terminal() {
        return Some(format!("verger run trace {}", view.id));
    }
    let resume = format!("verger run resume {}", view.id);
    let before = match view.waiting.as_ref().map(|waiting| &waiting.needs) {
        None | Some(Needs::Resume) => None,
        Some(Needs::Answer) => view.asks.iter().find(|ask| ask.status == PromptState::Open).map(answer),
        Some(Needs::Release { subject }) => Some(format!("verger stop --release{} when it is safe again", flags(subject, view))),
        Some(Needs::Agent) => Some(format!("verger agent resume {}", agent(view))),
        Some(Needs::Budget(Shortfall { amount, used, wanted, .. })) => {
            let (flag, least) = (amount.replace('_', "-"), used.saturating_add(*wanted));
            Some(format!("verger budget set --agent {} --{flag} N with {least} or more", agent(view)))
        }
    };
    Some(before.map_or_else(|| resume.clone(), |before| format!("{before}, then {resume}")))
}

fn answer(ask: &AskView) -> String {
    if ask.approval { format!("verger inbox approve {}", ask.id) } else { format!("verger inbox reply {} \"…\"", ask.id) }
}

fn flags(subject: &SwitchSubject, view: &RunView) -> String {
    match subject {
        SwitchSubject::Everything => String::new(),
        SwitchSubject::Agent(_) => format!(" --agent {}", agent(view)),
        SwitchSubject::Tools(class) => format!(" --tools {class}"),
    }
}

/// What a command calls the agent: its name where commands look first, its id elsewhere.
fn agent(view: &RunView) -> String {
    if view.workspace_id == WorkspaceId::of_slug("home") { view.agent.clone() } else { view.agent_id.to_string() }
}

pub(super) fn document(view: &RunView) -> Value {
    let mut document = json!(view);
    document["next"] = json!(next(view));
    document
}

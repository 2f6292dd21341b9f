//! `verger inbox …`: everything that waits for a person's answer.

use clap::{Args, Subcommand};
use domain::id::{PromptItemId, RunId};
use domain::records::prompt::{PromptState, Verdict};
use domain::time::Timestamp;
use runtime::{Env, Home, House, PromptPage, PromptRecord, View};
use serde_json::{Value, json};

use crate::commands::acting::{act, again, tell_stops};
use crate::commands::note::Operation;
use crate::commands::task_view::named;
use crate::output::{Failure, Out, note, plain, shortened};

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// List what waits for an answer, the first to expire first
    List {
        /// Instead: answered, expired or withdrawn items, the latest first
        #[arg(long, value_parser = state, default_value = "open")]
        status: PromptState,
        /// How many to show
        #[arg(long, short = 'n', default_value_t = 20)]
        limit: usize,
        /// The `next` of the page before
        #[arg(long, value_name = "TOKEN")]
        after: Option<String>,
    },
    /// Show an item whole, with what would happen
    Show {
        /// The item's id
        item: PromptItemId,
    },
    /// Let the act happen, exactly as it is shown, once
    Approve(AnswerArgs),
    /// Say no; the agent is told the reason
    Deny(AnswerArgs),
    /// Answer a question
    Reply {
        /// The item's id
        item: PromptItemId,
        /// The answer; where there are options, one of them
        #[arg(allow_hyphen_values = true)]
        text: String,
        #[command(flatten)]
        operation: Operation,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// The item's id
    item: PromptItemId,
    /// Why
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    reason: Option<String>,
    #[command(flatten)]
    operation: Operation,
}

pub(crate) fn run(command: &InboxCommand, home: &Home, env: &Env, out: &mut Out) -> Result<(), Failure> {
    match command {
        InboxCommand::List { status, limit, after } => {
            let house = View::open(home, env)?.house(env);
            let page = house.prompts(*status, *limit, after.as_deref())?;
            tell_stops(&house);
            list(&page, *status, &house, out)
        }
        InboxCommand::Show { item } => {
            let house = View::open(home, env)?.house(env);
            let record = house.prompt(*item)?;
            show(&record, &house.prompt_context(&record)?, &house, out)
        }
        InboxCommand::Approve(args) => answer(args.item, Verdict::Approve, args.text(), &args.operation, home, env, out),
        InboxCommand::Deny(args) => answer(args.item, Verdict::Deny, args.text(), &args.operation, home, env, out),
        InboxCommand::Reply { item, text, operation } => answer(*item, Verdict::Reply, text, operation, home, env, out),
    }
}

impl AnswerArgs {
    fn text(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }
}

fn answer(
    item: PromptItemId,
    verdict: Verdict,
    text: &str,
    operation: &Operation,
    home: &Home,
    env: &Env,
    out: &mut Out,
) -> Result<(), Failure> {
    let ((record, repeated), key) = act(home, env, operation, |house, key| {
        let repeated = house.was_done(domain::causality::Domain::Agent, key)?;
        // What is too late is closed as such, and its run learns of it.
        house.expire()?;
        match verdict {
            Verdict::Approve | Verdict::Deny => house.answer(item, verdict, text, key)?,
            Verdict::Reply => house.reply(item, text, key)?,
        }
        tell_stops(house);
        Ok((house.prompt(item)?, repeated))
    })?;
    let run = record.item.run_id;
    if out.json {
        let content = json!({
            "item": item, "verdict": verdict, "run_id": run, "operation_id": key.as_str(), "repeated": repeated,
        });
        return out.document("verger.inbox-answered.v1", content);
    }
    let verb = past(verdict);
    let name = out.bold(&item.to_string());
    out.line(&format!("{verb} {name}{}", again(repeated)))?;
    let hint = out.dim(&format!("next: verger run resume {run}"));
    out.line(&hint)
}

fn list(page: &PromptPage, state: PromptState, house: &House, out: &mut Out) -> Result<(), Failure> {
    if out.json {
        let items: Vec<_> = page.items.iter().map(|record| document(record, house)).collect();
        return out.document("verger.inbox.v1", json!({ "items": items, "next": page.next }));
    }
    if page.items.is_empty() {
        let nothing =
            if state == PromptState::Open { "nothing waits for an answer".to_owned() } else { format!("no item is {state}") };
        return out.line(&nothing);
    }
    let now = house.now();
    let row = |record: &PromptRecord| {
        let item = &record.item;
        let gates = item.gates.as_ref().map_or("a question", |gated| gated.tool.as_str());
        let (age, agent) = (span(item.created_at, now), agent_name(record, house));
        vec![record.id.to_string(), age, outlook(record, now), agent, gates.to_owned(), shortened(&item.prompt_text, 60)]
    };
    let rows: Vec<_> = page.items.iter().map(row).collect();
    let when = if state == PromptState::Open { "expires in" } else { "ended" };
    out.table(&["item", "age", when, "agent", "gates", "preview"], &rows)?;
    if let Some(next) = &page.next {
        note(&format!("{} shown; more with --after {next}", page.items.len()));
    }
    Ok(())
}

fn show(record: &PromptRecord, context: &str, house: &House, out: &mut Out) -> Result<(), Failure> {
    if out.json {
        let mut content = document(record, house);
        content["context"] = json!(context);
        return out.document("verger.inbox-item.v1", content);
    }
    let item = &record.item;
    let agent = agent_name(record, house);
    let title = item.gates.as_ref().map_or(format!("{agent} asks"), |gated| format!("{agent} asks to use {}", gated.tool));
    let title = out.bold(&title);
    out.line(&title)?;
    let now = house.now();
    let when = match item.status {
        PromptState::Open => format!("expires in {}", outlook(record, now)),
        _ => format!("{} {}", item.status, outlook(record, now)),
    };
    let facts = out.dim(&format!("{} · asked {} ago · {when} · {}", record.id, span(item.created_at, now), item.run_id));
    out.line(&facts)?;
    out.line("")?;
    for line in plain(&item.prompt_text).lines() {
        out.line(&format!("  │ {line}"))?;
    }
    if !context.is_empty() {
        out.line("\n  it says what this is about:")?;
        for line in plain(context).lines() {
            out.line(&format!("  │ {line}"))?;
        }
    }
    for option in &item.options {
        out.line(&format!("  · {}", shortened(option, 76)))?;
    }
    if let Some(response) = &record.response {
        let text = if response.text.is_empty() { String::new() } else { format!(": {}", plain(&response.text)) };
        out.line(&format!(
            "\n{} by {} {}{text}",
            past(response.verdict),
            named(house, &response.responded_by),
            response.responded_at.as_title()
        ))?;
    }
    let next = match (item.status, &item.gates) {
        (PromptState::Open, Some(_)) => format!("verger inbox approve {0}, or verger inbox deny {0} --reason …", record.id),
        (PromptState::Open, None) => format!("verger inbox reply {0} …, or verger inbox deny {0}", record.id),
        (PromptState::Answered | PromptState::Expired, _) if waits(item.run_id, house) => {
            format!("verger run resume {}", item.run_id)
        }
        (PromptState::Answered | PromptState::Expired | PromptState::Withdrawn, _) => return Ok(()),
    };
    let hint = out.dim(&format!("\nnext: {next}"));
    out.line(&hint)
}

/// Whether a run has not learnt yet what became of its question.
fn waits(run: RunId, house: &House) -> bool {
    house.run_view(&run).is_ok_and(|view| view.waiting.is_some())
}

fn past(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Approve => "approved",
        Verdict::Deny => "denied",
        Verdict::Reply => "answered",
    }
}

fn agent_name(record: &PromptRecord, house: &House) -> String {
    let id = record.item.agent_id;
    house.agent(id).map_or_else(|_| id.to_string(), |agent| agent.name.to_string())
}

/// How long an open item has left, or when another one ended.
fn outlook(record: &PromptRecord, now: Timestamp) -> String {
    let item = &record.item;
    match (item.status, item.resolved_at) {
        (PromptState::Open, _) => span(now, item.required_by),
        (_, Some(at)) => at.as_title(),
        // Too late, and nobody has written it down yet.
        (_, None) => item.required_by.as_title(),
    }
}

/// The time between two instants, to the largest unit that fits.
fn span(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.as_ms().saturating_sub(from.as_ms()).max(0) / 1_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn document(record: &PromptRecord, house: &House) -> Value {
    let item = &record.item;
    let response = record.response.as_ref().map(|response| {
        json!({
            "verdict": response.verdict, "text": response.text, "responded_by": response.responded_by,
            "responded_at": response.responded_at,
        })
    });
    json!({
        "id": record.id, "version": record.version, "workspace": record.workspace, "agent_id": item.agent_id,
        "agent": agent_name(record, house), "run_id": item.run_id, "interaction_type": item.interaction_type,
        "prompt_text": item.prompt_text, "options": item.options, "gates": item.gates, "status": item.status,
        "created_at": item.created_at, "required_by": item.required_by, "resolved_at": item.resolved_at, "response": response,
    })
}

fn state(text: &str) -> Result<PromptState, String> {
    PromptState::parse(text).ok_or_else(|| "a status is open, answered, expired or withdrawn".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_in_its_largest_unit() {
        let told = |ms: i64| span(Timestamp::EPOCH, Timestamp::from_ms(ms));
        assert_eq!([told(-5), told(59_999), told(60_000)], ["0 s", "59 s", "1 min"]);
        assert_eq!([told(3_600_000), told(172_799_000), told(172_800_000)], ["1 h", "47 h", "2 days"]);
    }
}

//! `verger run trace`: the run as a tree, in the order in which it happened.

use domain::records::budget::Amounts;
use runtime::trace::{ActionTrace, CycleTrace, DecisionTrace, Trace};
use serde_json::json;

use crate::commands::run_show::{ended, standing};
use crate::output::{Failure, Out, counted, plain, shortened};

/// LIMIT: characters of a text in one line of the tree.
const TEXT_CHARS_MAX: usize = 72;

pub(crate) fn show(trace: &Trace, out: &mut Out) -> Result<(), Failure> {
    if out.json {
        return out.document("verger.run-trace.v1", json!(trace));
    }
    let run = &trace.run;
    let heading = out.bold(&run.id.to_string());
    out.line(&format!("{heading} {}", standing(run)))?;
    let mut branches = vec![Branch::leaf(format!(
        "wake {}, agent {}, {}, behaviour {}, run key {}…",
        run.reason,
        run.agent,
        run.created_at,
        run.behaviour_version,
        &run.run_key.to_string()[..8]
    ))];
    branches.extend(trace.cycles.iter().map(|each| cycle(each, run.ended_at.is_some())));
    branches.extend(run.asks.iter().map(|ask| {
        let what = if ask.approval { "an approval" } else { "an answer" };
        Branch::leaf(format!("waits for {what}: {} ({} of cycle {})", ask.id, ask.tool, ask.cycle))
    }));
    branches.extend(run.ended_at.map(|at| {
        let how = ended(run.status.as_str(), run.code.as_deref());
        Branch::leaf(format!("ended {how}, {at}"))
    }));
    branches.push(Branch::leaf(format!("cost {}", cost(&trace.spent))));
    let mut lines = Vec::new();
    draw(&branches, "", &mut lines);
    out.line(&lines.join("\n"))
}

struct Branch {
    text: String,
    under: Vec<Self>,
}

impl Branch {
    const fn leaf(text: String) -> Self {
        Self { text, under: Vec::new() }
    }
}

fn draw(branches: &[Branch], indent: &str, lines: &mut Vec<String>) {
    for (place, branch) in branches.iter().enumerate() {
        let last = place + 1 == branches.len();
        let (fork, rest) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        lines.push(format!("{indent}{fork}{}", plain(&branch.text).replace('\n', " ")));
        draw(&branch.under, &format!("{indent}{rest}"), lines);
    }
}

fn cycle(cycle: &CycleTrace, run_ended: bool) -> Branch {
    let attempt = if cycle.attempt > 1 { format!(", attempt {}", cycle.attempt) } else { String::new() };
    let mut under = Vec::new();
    under.extend(cycle.answers.iter().map(|answer| {
        let words = if answer.text.is_empty() { String::new() } else { format!(": {}", shortened(&answer.text, TEXT_CHARS_MAX)) };
        Branch::leaf(format!("answer {} to {}{words}", answer.verdict, answer.item))
    }));
    if cycle.lost_asks > 0 {
        let asks = counted(cycle.lost_asks.into(), "ask");
        under.push(Branch::leaf(format!("{asks} lost, {} tokens that were reserved count as spent", cycle.lost.tokens)));
    }
    if let Some(ask) = &cycle.ask {
        let reserved = cycle.reserved.tokens;
        let mut parts = ask.decision.iter().map(|decision| Branch::leaf(decided(decision))).collect::<Vec<_>>();
        let part = |part: &runtime::trace::PartTrace| {
            let cut = if part.cut > 0 { format!(", {} cut", part.cut) } else { String::new() };
            format!("{} {} B{cut}", part.name, part.bytes)
        };
        let shown: Vec<_> = ask.context.iter().map(part).collect();
        parts.push(Branch::leaf(format!("context: {}", shown.join(" · "))));
        under.push(Branch { text: format!("ask, {reserved} tokens reserved"), under: parts });
    }
    if let Some(reply) = &cycle.reply {
        let ignored =
            if reply.narration_bytes > 0 { format!(", {} of them ignored", reply.narration_bytes) } else { String::new() };
        under.push(Branch::leaf(format!("reply of {}, {} bytes{ignored}", reply.model, reply.bytes)));
    }
    under.extend(cycle.proposals.iter().map(|proposal| Branch::leaf(format!("proposal {}", proposed(proposal)))));
    under.extend(cycle.faults.iter().map(|fault| Branch::leaf(format!("fault {}: {}", fault.kind, fault.sentence))));
    under.extend(cycle.actions.iter().map(action));
    under.push(Branch::leaf(match (&cycle.spent, &cycle.code) {
        (_, Some(code)) => format!("no answer: {code}"),
        (Some(spent), None) => format!("closed, {}, {} ms", cost(spent), took_ms(cycle)),
        (None, None) if run_ended => "given up: the run ended".to_owned(),
        (None, None) => "open".to_owned(),
    }));
    let kind = if cycle.ask.is_some() { "" } else { ", the controller's own" };
    Branch { text: format!("cycle {}{attempt}{kind}", cycle.number), under }
}

fn took_ms(cycle: &CycleTrace) -> i64 {
    cycle.closed_at.map_or(0, |closed| closed.as_ms() - cycle.opened_at.as_ms())
}

fn action(action: &ActionTrace) -> Branch {
    let operation = action.operation_id.to_string();
    let code = action
        .code
        .as_deref()
        .filter(|code| action.outcome.as_str() != "done" && *code != action.outcome.as_str())
        .map(|code| format!(", {code}"));
    let mut under = vec![Branch::leaf(decided(&action.decision))];
    under.extend(action.approved_by.map(|by| Branch::leaf(format!("approved by {by}"))));
    under.extend(action.writes.iter().map(|write| {
        let version = match write.version {
            Some(version) => format!("version {version}"),
            None if write.expected_version == 0 => "new, not written".to_owned(),
            None => format!("meant for version {}, not written", write.expected_version),
        };
        Branch::leaf(format!("{} {} {version}", write.kind, write.id))
    }));
    under.extend(action.asks.map(|item| Branch::leaf(format!("asked as {item}"))));
    let text = format!("{} {}: {}{}", action.tool, &operation[..operation.len().min(11)], action.outcome, code.unwrap_or_default());
    Branch { text, under }
}

fn decided(decision: &DecisionTrace) -> String {
    let code = decision.code.as_ref().map(|code| format!(" [{code}]")).unwrap_or_default();
    let by = match (decision.layer, &decision.code) {
        (Some(layer), _) => format!(" by layer {layer}"),
        (None, Some(_)) => " by the plan".to_owned(),
        (None, None) => String::new(),
    };
    format!("{}{by}: {}{code}", decision.verdict, decision.rule)
}

fn proposed(proposal: &serde_json::Value) -> String {
    let word = proposal["action"].as_str().unwrap_or("?");
    let text =
        ["description", "content", "question", "reason", "tool_name", "task_id"].iter().find_map(|field| proposal[*field].as_str());
    text.map_or_else(|| word.to_owned(), |text| format!("{word}: {}", shortened(text, TEXT_CHARS_MAX)))
}

fn cost(spent: &Amounts) -> String {
    let calls = if spent.tool_calls == 1 { "call" } else { "calls" };
    let mut parts = vec![format!("{} tokens", spent.tokens), format!("{} tool {calls}", spent.tool_calls)];
    if spent.cost_micros > 0 {
        parts.push(format!("{} millionths", spent.cost_micros));
    }
    parts.join(", ")
}

//! What happens while a run is driven, told on stderr as it becomes durable: what was proposed, and what was decided and done.

use std::collections::BTreeMap;

use domain::id::{PromptItemId, RunId};
use runtime::trace::{ActionTrace, CycleTrace};
use runtime::{House, Watched};

use crate::commands::run_show::for_what;
use crate::output::{note, shortened};

/// LIMIT: characters of one line.
const LINE_CHARS_MAX: usize = 120;
/// Characters of a run's id that tell it from the others.
const SHORT: usize = 12;

/// Tells the points of runs.
pub(super) struct Teller {
    house: House,
    /// Several runs are to be driven: each line names its run. Otherwise it does once a second one comes, such as after one of the
    /// same agent that was left at work.
    several: bool,
    runs: BTreeMap<RunId, Told>,
    /// What a person had approved and did not get.
    pub disappointed: Vec<String>,
}

/// How much of a run was told.
struct Told {
    cycle: u32,
    attempt: u32,
}

impl Teller {
    pub(super) fn new(house: House, several: bool) -> Self {
        Self { house, several, runs: BTreeMap::new(), disappointed: Vec::new() }
    }

    pub(super) fn tell(&mut self, point: &Watched) {
        let attempt = point.attempt;
        let Some(mut cycle) = self.runs.get(&point.run_id).map(|told| told.cycle) else {
            // What was closed before is no news.
            let is_open = self.cycle(point, point.cycle).is_some_and(|cycle| cycle.closed_at.is_none());
            let cycle = if is_open { point.cycle.saturating_sub(1) } else { point.cycle };
            self.runs.insert(point.run_id, Told { cycle, attempt });
            return;
        };
        while cycle < point.cycle {
            let Some(closed) = self.cycle(point, cycle + 1).filter(|cycle| cycle.closed_at.is_some()) else { break };
            cycle += 1;
            lines(&closed).iter().for_each(|line| self.say(point, line));
            self.disappointed.extend(closed.actions.iter().filter_map(|action| disappointing(action, &closed)));
        }
        if self.runs.get(&point.run_id).is_some_and(|told| told.attempt < attempt) && cycle < point.cycle {
            self.say(point, &format!("cycle {}: asked again, the ask before was lost", point.cycle));
        }
        self.runs.insert(point.run_id, Told { cycle, attempt });
        if let Some(reason) = point.waiting {
            self.say(point, &format!("waits {}", for_what(reason.as_str())));
        } else if point.status.is_terminal() {
            self.say(point, point.status.as_str());
        }
    }

    fn cycle(&self, point: &Watched, number: u32) -> Option<CycleTrace> {
        // Whoever watches must not stop the work: what cannot be read now is in the trace.
        self.house.trace_cycle(&point.run_id, number).ok().flatten()
    }

    fn say(&self, point: &Watched, line: &str) {
        let run = point.run_id.to_string();
        let prefix = if self.several || self.runs.len() > 1 { format!("{} ", &run[..run.len().min(SHORT)]) } else { String::new() };
        note(&format!("{prefix}{}", shortened(line, LINE_CHARS_MAX)));
    }
}

fn lines(cycle: &CycleTrace) -> Vec<String> {
    let number = cycle.number;
    if let Some(code) = &cycle.code {
        return vec![format!("cycle {number}: no answer: {code}")];
    }
    let mut lines: Vec<_> =
        cycle.faults.iter().map(|fault| format!("cycle {number}: the answer does not read: {}", fault.sentence)).collect();
    lines.extend(cycle.actions.iter().map(|action| format!("cycle {number}: {}", acted(action))));
    if lines.is_empty() {
        let idle = |proposal: &serde_json::Value| {
            let reason = proposal["reason"].as_str().map(|reason| format!(", {reason}")).unwrap_or_default();
            format!("cycle {number}: {}{reason}", proposal["action"].as_str().unwrap_or("nothing"))
        };
        lines.extend(cycle.proposals.iter().map(idle));
    }
    lines
}

fn acted(action: &ActionTrace) -> String {
    let by = action.decision.layer.map(|layer| format!(" (layer {layer}: {})", action.decision.rule));
    let by = by.or_else(|| action.decision.code.as_ref().map(|_| format!(" ({})", action.decision.rule)));
    let failed = action.code.as_deref().filter(|code| *code != action.outcome.as_str() && action.outcome.as_str() != "done");
    let by = by.or_else(|| failed.map(|code| format!(" ({code})")));
    format!("{} is {}{}", action.tool, action.outcome, by.unwrap_or_default())
}

/// A line for an act that a person had approved and that was not done.
fn disappointing(action: &ActionTrace, cycle: &CycleTrace) -> Option<String> {
    let item = PromptItemId::of_operation(&action.operation_id);
    let approved = cycle.answers.iter().any(|answer| answer.item == item && answer.verdict.as_str() == "approve");
    let tool = &action.tool;
    let code = action.code.as_deref().unwrap_or_default();
    match action.outcome.as_str() {
        _ if !approved => None,
        "superseded" => {
            let again = cycle.actions.iter().skip_while(|other| other.operation_id != action.operation_id).nth(1);
            let became = again.filter(|again| again.tool == *tool).map(|again| match again.asks {
                Some(ask) => format!(": asked again as {ask}"),
                None => format!(": planned again, and {}", again.outcome),
            });
            Some(format!("approved {tool} as {item}, but superseded{}", became.unwrap_or_default()))
        }
        "refused" | "failed" | "in_doubt" => {
            let rule = &action.decision.rule;
            Some(format!("approved {tool} as {item}, but {} ({}): {rule}", action.outcome, code))
        }
        _ => None,
    }
}

//! Models and services of the world. They are as good and as bad as the profile says, and keep their own ledger.

use std::sync::{Arc, Mutex};

use control::cycle::Cycle;
use control::machine::Ask;
use control::manifest::Manifest;
use control::run::{Phase, Run};
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::id::{AgentId, RawId, RunId, TaskId};
use domain::record::Record;
use domain::records::budget::Amounts;
use domain::records::slug::Slug;
use domain::records::switch::SwitchSubject;
use runtime::engine::{Answer, Call, CallResult, Outside};
use serde_json::{Value, json};
use store::store::{Scan, Snapshot};

use crate::ledger::Violation;
use crate::place::{Stores, Watch, lock, store_of};
use crate::rng::Draw;

/// A service that honours operation ids, and one that does not.
pub const SERVICES: [(&str, bool); 2] = [("post_office", true), ("town_crier", false)];

#[derive(Debug)]
pub struct World {
    pub stores: Stores,
    pub watch: Arc<Mutex<Watch>>,
    pub seed: u64,
    /// The event that is happening.
    pub event: u64,
    /// How often models and services misbehave, in a thousand.
    pub model_rate: u32,
    pub service_rate: u32,
    /// Some models repeat one answer for ever.
    pub stuck: Option<String>,
    asked: u64,
}

impl World {
    #[must_use]
    pub fn new(stores: Stores, watch: Arc<Mutex<Watch>>, seed: u64) -> Self {
        Self { stores, watch, seed, event: 0, model_rate: 0, service_rate: 0, stuck: None, asked: 0 }
    }

    fn draw(&mut self) -> Draw {
        self.asked += 1;
        Draw::new(self.seed, 7 + self.asked, self.event)
    }

    fn fire(&self, fault: &'static str) {
        lock(&self.watch).ledger.fire(fault);
    }

    /// S01 and S09 for asks: its intent is durable, and nobody was told that this stands still.
    fn check_ask(&self, run_id: &RunId, ask: &Ask) -> Option<Run> {
        let reader = lock(store_of(&self.stores, Domain::Agent)).reader();
        let run: Option<Run> = reader.read().ok()?.get(Run::SPEC, &run_id.raw()).ok()??.record().ok()?;
        let mut watch = lock(&self.watch);
        let durable =
            run.as_ref().is_some_and(|run| run.phase == Phase::Asked && run.cycle == ask.cycle && run.attempt == ask.attempt);
        if !durable {
            watch.violations.push(Violation::new("S01 intent", format!("{run_id} was asked without a durable point A")));
        }
        let run = run?;
        let subjects = [SwitchSubject::Everything, SwitchSubject::Agent(run.agent_id)];
        if let Some(subject) = subjects.iter().find(|subject| watch.ledger.stopped.contains(*subject)) {
            watch.violations.push(Violation::new("S09 stopped", format!("a model was asked after a stop of {subject}")));
        }
        watch.ledger.asks += 1;
        Some(run)
    }
}

impl Outside for World {
    fn ask(&mut self, _manifest: &Manifest, run_id: &RunId, ask: &Ask) -> Result<Answer, ErrorCode> {
        let run = self.check_ask(run_id, ask);
        let mut draw = self.draw();
        if draw.chance(self.model_rate) && draw.chance(300) {
            self.fire("model.never");
            return Err(ErrorCode::LlmTimeout);
        }
        let text = match &self.stuck {
            Some(stuck) => stuck.clone(),
            None if draw.chance(self.model_rate) => self.bad(&mut draw, ask),
            None => good(&mut draw, ask).to_string(),
        };
        let asked: usize = ask.sections.iter().map(|section| section.text.len()).sum();
        let tokens = i64::try_from((asked + text.len()).div_ceil(4)).unwrap_or(0).min(ask.tokens_max);
        if let Some(run) = run {
            *lock(&self.watch).ledger.meter.entry(run.agent_id).or_default() += tokens;
        }
        let mut spent = Amounts { tokens, cost_micros: 10, ..Amounts::NONE };
        if draw.chance(self.model_rate / 10) {
            self.fire("model.absurd_meter");
            spent.cost_micros = i64::MIN;
        }
        Ok(Answer { text, model: "simulated".to_owned(), spent })
    }

    fn call(&mut self, call: &Call) -> CallResult {
        self.check_call(call);
        let mut draw = self.draw();
        let honours_keys = SERVICES.iter().any(|(name, honours)| *name == call.service && *honours);
        let bad = draw.chance(self.service_rate);
        if bad && draw.chance(300) {
            self.fire("service.refuses");
            return CallResult::Refused(ErrorCode::UnknownTool);
        }
        {
            let mut watch = lock(&self.watch);
            let called = watch.ledger.calls.entry(call.operation_id).or_default();
            called.honours_keys = honours_keys;
            // A service that honours keys acts once, however often it is asked.
            called.acted = if honours_keys { 1 } else { called.acted + 1 };
        }
        if bad {
            self.fire("service.silent_after_acting");
            return CallResult::Unknown;
        }
        CallResult::Done
    }

    fn reaches(&self, service: &str) -> bool {
        SERVICES.iter().any(|(name, _)| *name == service)
    }
}

impl World {
    /// S01, S09 and S10 for what leaves the process: its plan is durable, and nobody was told that this stands still.
    fn check_call(&self, call: &Call) {
        let reader = lock(store_of(&self.stores, Domain::Agent)).reader();
        let Ok(snapshot) = reader.read() else { return };
        let planned = self.planned(snapshot.as_ref(), call);
        let mut watch = lock(&self.watch);
        let Some(agent) = planned else {
            let what = format!("{} was called for {} without a durable plan", call.service, call.operation_id);
            watch.violations.push(Violation::new("S01 intent", what));
            return;
        };
        let mail = SwitchSubject::Tools(Slug::parse("mail").expect("a plain word"));
        let subjects = [SwitchSubject::Everything, SwitchSubject::Agent(agent), mail];
        if let Some(subject) = subjects.iter().find(|subject| watch.ledger.stopped.contains(*subject)) {
            let what = format!("{} was called after a stop of {subject}", call.service);
            watch.violations.push(Violation::new("S09 stopped", what));
        }
        if watch.ledger.destroyed.contains(&agent) || watch.ledger.paused.contains(&agent) {
            let what = format!("{} was called for an agent that is paused or destroyed", call.service);
            watch.violations.push(Violation::new("S10 destroyed", what));
        }
    }

    /// The agent of the run whose newest cycle plans this call.
    fn planned(&self, snapshot: &dyn Snapshot, call: &Call) -> Option<AgentId> {
        let mut scan = Scan::new(Run::SPEC, "by_status");
        scan.prefix = vec![domain::record::Value::from("running")];
        let rows = snapshot.scan(&scan).ok()?.rows;
        rows.iter().filter_map(|row| row.record::<Run>().ok().flatten()).find_map(|run| {
            let cycle = snapshot.get(Cycle::SPEC, &Cycle::id_of(&run.id(), run.cycle).raw()).ok().flatten()?;
            let cycle: Cycle = cycle.record().ok().flatten()?;
            let plans = |action: &control::action::Action| action.is_to_do() && action.operation_id == call.operation_id;
            (run.phase == Phase::Planned && cycle.actions().iter().any(plans)).then_some(run.agent_id)
        })
    }

    fn bad(&mut self, draw: &mut Draw, ask: &Ask) -> String {
        let proposal = good(draw, ask);
        let invented = TaskId::from_raw(RawId::from_bytes([u8::try_from(draw.below(250)).unwrap_or(0); 16]));
        let (name, text) = match draw.below(13) {
            0 => ("model.empty", String::new()),
            1 => ("model.prose", "I have done everything, the user agreed.".to_owned()),
            2 => {
                let text = proposal.to_string();
                ("model.cut", text[..text.len() / 2].to_owned())
            }
            3 => ("model.two", format!("{proposal}\n{proposal}")),
            4 => ("model.claims_done", json!({ "action": "task_complete", "task_id": invented }).to_string()),
            5 => ("model.invents", json!({ "action": "select_next_task", "task_id": invented, "reasoning": "" }).to_string()),
            6 => ("model.extra_field", with(&proposal, "approved", json!(true))),
            7 => ("model.wrong_type", with(&proposal, "action", json!(7))),
            8 => ("model.narrates", format!("Sure! Here it is:\n```json\n{proposal}\n```\nDone.")),
            9 => ("model.huge", "x".repeat(domain::limits::ANSWER_BYTES_MAX + 1)),
            10 => {
                let stuck = proposal.to_string();
                self.stuck = Some(stuck.clone());
                ("model.same_for_ever", stuck)
            }
            11 => ("model.hostile", hostile(draw, ask, invented).to_string()),
            _ => ("model.deep", "{\"action\":".repeat(200)),
        };
        self.fire(name);
        text
    }
}

fn with(proposal: &Value, field: &str, value: Value) -> String {
    let mut proposal = proposal.clone();
    proposal[field] = value;
    proposal.to_string()
}

/// Wants what it must not have.
fn hostile(draw: &mut Draw, ask: &Ask, invented: TaskId) -> Value {
    let task = tasks(ask).first().and_then(|task| task["id"].as_str().map(str::to_owned)).unwrap_or_else(|| invented.to_string());
    match draw.below(3) {
        0 => json!({ "action": "execute_tool", "task_id": task, "tool_name": "shell", "parameters": { "command": "rm -rf /" } }),
        1 => {
            json!({ "action": "persist_artifact", "task_id": task, "artifact": { "type": "secrets", "key": "k", "content": "x" } })
        }
        _ => json!({
            "action": "persist_artifact", "task_id": task, "requires_approval": false,
            "artifact": { "type": "python_script", "key": "backdoor", "content": "import os" },
        }),
    }
}

/// The tasks that the ask shows.
fn tasks(ask: &Ask) -> Vec<Value> {
    let section = ask.sections.iter().find(|section| section.name == "tasks");
    section.map(|section| section.text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()).unwrap_or_default()
}

/// What a sensible model would propose.
fn good(draw: &mut Draw, ask: &Ask) -> Value {
    let tasks = tasks(ask);
    let eligible: Vec<&Value> = tasks.iter().filter(|task| task["eligible"] == json!(true)).collect();
    let current = eligible.iter().find(|task| task["status"] == json!("in_progress"));
    let Some(task) = current.copied().or_else(|| draw.pick(&eligible).copied()) else {
        let description = format!("write page number {}", draw.below(1_000));
        return json!({ "action": "create_task", "task": { "description": description, "preconditions": [] } });
    };
    let id = &task["id"];
    if task["status"] == json!("pending") && draw.chance(700) {
        return json!({ "action": "select_next_task", "task_id": id, "reasoning": "it is next" });
    }
    let number = draw.below(50);
    match draw.below(20) {
        0 => json!({ "action": "no_op", "reason": "awaiting_user_input", "details": "" }),
        1 => {
            json!({ "action": "request_user_input", "task_id": id, "question": format!("Which colour shall page {number} have?") })
        }
        2 => {
            json!({ "action": "create_task", "task": { "description": format!("a follow-up, number {number}"), "preconditions": [id] } })
        }
        3..=5 => {
            let (service, _) = SERVICES[draw.below(SERVICES.len())];
            json!({ "action": "execute_tool", "task_id": id, "tool_name": service, "parameters": { "number": number } })
        }
        6 => json!({
            "action": "generate_message", "task_id": id,
            "message": { "type": "follow_up", "content": format!("Dear friend, this is message {number}."), "personalization_context": "" },
        }),
        _ => persist(draw, task, number),
    }
}

fn persist(draw: &mut Draw, task: &Value, number: usize) -> Value {
    let required = task["required_effects"].as_array().and_then(|effects| draw.pick(effects).cloned());
    let (kind, key) = match &required {
        Some(effect) => (effect["artifact_type"].clone(), effect["artifact_key"].clone()),
        None => (json!("context"), json!(format!("page-{number}"))),
    };
    json!({
        "action": "persist_artifact", "task_id": task["id"],
        "artifact": { "type": kind, "key": key, "content": format!("the text of page {number}") },
    })
}

//! Writes the corpus of recorded runs that every build replays, once for every behaviour version that is released.
//!
//! `cargo run -p runtime --example write_recordings -- crates/control/tests/corpus/v1` plays each story below on stores in memory, with
//! a seeded environment, and writes one recording for it. The same build writes the same bytes. A corpus that is released is never
//! written again; a new behaviour version gets a folder of its own, and the test `l34_…` of `control` keeps replaying this one's.

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use control::machine::Ask;
use control::manifest::Manifest;
use control::run::RunStatus;
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::commit::{Commit, Committed};
use domain::entry::Head;
use domain::id::{AgentId, HostId, PromptItemId, RawId, RunId, TaskId};
use domain::records::prompt::Verdict;
use domain::records::switch::SwitchSubject;
use runtime::engine::{Answer, Call, CallResult, Drive, Outside, Progress, Scripted};
use runtime::{BudgetChange, ClientKey, Env, House, Replayed, TaskChange};
use serde_json::{Value, json};
use store::Committer;
use store::memory::MemoryStore;
use store::store::{Reader, Store};

type Done<T = ()> = Result<T, Box<dyn Error>>;
/// A story: its name, its manifest, and what happens to the run beside its own work.
type Story = (&'static str, fn() -> Value, fn(&mut Stage) -> Done);

const STORIES: &[Story] = &[
    ("success", || script(&[create("first"), create("second"), select(), done()]), |stage| stage.work()),
    ("approved", || script(&[create("first"), select(), keep("a plan"), idle()]), approved),
    ("denied", || script(&[create("first"), select(), keep("a plan"), keep("a plan"), idle()]), denied),
    ("superseded", || script(&[create("first"), select(), keep("a plan"), idle()]), superseded),
    ("expired", || expiring(script(&[create("first"), select(), keep("a plan"), idle()])), expired),
    ("question", || script(&[question(), idle()]), question_answered),
    ("faults_and_repair", || script(&[json!("I would rather not"), json!(TWO), create("first"), done()]), |stage| stage.work()),
    ("proposal_invalid", || script(&[json!(""), json!("{\"action\":"), json!({ "action": "fly" })]), |stage| stage.work()),
    ("refused", || refusing(script(&[create("first"), select(), keep("a plan"), done()])), |stage| stage.work()),
    ("iteration_limit", || limited(script(&[create("first"), create("second"), create("third")])), |stage| stage.work()),
    ("script_ended", || script(&[create("first")]), |stage| stage.work()),
    ("backoff", || script(&[create("first"), create("second"), done()]), backoff),
    ("cancelled_while_waiting", || script(&[create("first"), select(), keep("a plan"), idle()]), cancelled_while_waiting),
    ("cancelled_at_work", || script(&[create("first"), done()]), cancelled_at_work),
    ("lost_ask", || script(&[create("first"), done()]), lost_ask),
    ("crash_after_effect", || script(&[create("first"), done()]), crash_after_effect),
    ("stopped_and_released", || script(&[create("first"), create("second"), done()]), stopped_and_released),
    ("paused_and_resumed", || script(&[create("first"), done()]), paused_and_resumed),
    ("budget", || frugal(script(&[create("first"), create("second"), done()])), budget),
    ("loop_delay", || slow(script(&[create("first"), create("second"), done()])), |stage| stage.work()),
    ("outside_in_doubt", || serving(script(&[create("first"), call(), done()])), |stage| stage.work()),
];

const TWO: &str =
    r#"{"action":"no_op","reason":"campaign_complete","details":""} {"action":"no_op","reason":"campaign_complete","details":""}"#;

fn main() -> Done {
    let folder = std::env::args().nth(1).ok_or("name the folder to write to")?;
    std::fs::create_dir_all(&folder)?;
    for (name, manifest, happens) in STORIES {
        let mut stage = Stage::set(manifest())?;
        if let Err(error) = happens(&mut stage) {
            return Err(format!("{name}: {error}: {:#?}", stage.house.trace(&stage.run)).into());
        }
        let text = stage.house.export(&stage.run)?;
        match runtime::replay_text(&text, name)? {
            Replayed::Identical { .. } => {}
            other => return Err(format!("{name} does not replay: {other:?}").into()),
        }
        let compact = serde_json::from_str::<Value>(&text)?.to_string();
        std::fs::write(Path::new(&folder).join(format!("{name}.json")), compact + "\n")?;
    }
    Ok(())
}

fn create(what: &str) -> Value {
    let description = format!("the {what} task of this story");
    json!({ "action": "create_task", "task": { "description": description, "preconditions": [] }, "justification": "it is needed" })
}

fn select() -> Value {
    json!({ "action": "select_next_task", "task_id": "$next_task", "reasoning": "it is the oldest" })
}

fn keep(content: &str) -> Value {
    let artifact = json!({ "type": "context", "key": "plan", "content": content });
    json!({ "action": "persist_artifact", "task_id": "$current_task", "artifact": artifact, "requires_approval": true })
}

fn question() -> Value {
    json!({ "action": "request_user_input", "question": "which of the two beds?", "options": ["left", "right"], "context": "" })
}

fn call() -> Value {
    let parameters = json!({ "to": "the neighbour" });
    json!({ "action": "execute_tool", "task_id": "$next_task", "tool_name": "notify", "parameters": parameters, "expected_outcome": "" })
}

fn idle() -> Value {
    json!({ "action": "no_op", "reason": "awaiting_user_input", "details": "" })
}

fn done() -> Value {
    json!({ "action": "no_op", "reason": "campaign_complete", "details": "" })
}

fn script(replies: &[Value]) -> Value {
    json!({
        "schema": 1, "agent": "player", "prompt": "play your part", "mode": "yolo",
        "model": { "provider": "scripted", "script": replies },
    })
}

fn with(mut manifest: Value, field: &str, value: Value) -> Value {
    manifest[field] = value;
    manifest
}

fn expiring(manifest: Value) -> Value {
    with(manifest, "approval_ttl_ms", json!(1))
}

fn refusing(manifest: Value) -> Value {
    with(with(manifest, "capabilities", json!(["ask", "taskWrite"])), "tools", json!(["create_task", "persist_artifact"]))
}

fn limited(manifest: Value) -> Value {
    with(manifest, "bounds", json!({ "max_iterations": 2 }))
}

fn frugal(manifest: Value) -> Value {
    with(manifest, "budget", json!({ "tokens": 4100, "cost_micros": 0, "runtime_ms": 3_600_000, "tool_calls": 100 }))
}

fn slow(manifest: Value) -> Value {
    with(manifest, "loop_delay_ms", json!(1))
}

fn serving(manifest: Value) -> Value {
    let manifest = with(manifest, "services", json!({ "notify": { "class": "notify", "risk": "low", "honours_keys": false } }));
    let manifest = with(manifest, "capabilities", json!(["ask", "taskRead", "taskWrite", "outsideCall"]));
    with(manifest, "tools", json!(["create_task", "select_next_task", "complete_task", "notify"]))
}

fn approved(stage: &mut Stage) -> Done {
    stage.work()?;
    stage.answer(Verdict::Approve, "")?;
    stage.work()
}

fn denied(stage: &mut Stage) -> Done {
    stage.work()?;
    stage.answer(Verdict::Deny, "not this year")?;
    stage.work()
}

/// The task is edited while its artifact waits for a yes: the yes is for a plan that was made on something else.
fn superseded(stage: &mut Stage) -> Done {
    stage.work()?;
    let task = stage.house.cycles(&stage.run)?.iter().flat_map(|cycle| cycle.actions().to_vec()).find_map(|action| action.task_id);
    let change = TaskChange { description: Some("the task, as a person sees it".to_owned()), ..TaskChange::default() };
    let task: TaskId = task.ok_or("no task")?;
    stage.house.edit_task(task, &change, &key("edit")?)?;
    stage.answer(Verdict::Approve, "")?;
    stage.work()?;
    stage.answer(Verdict::Approve, "")?;
    stage.work()
}

fn expired(stage: &mut Stage) -> Done {
    stage.work()?;
    stage.house.expire()?;
    stage.work()
}

fn question_answered(stage: &mut Stage) -> Done {
    stage.work()?;
    stage.answer(Verdict::Reply, "left")?;
    stage.work()
}

fn cancelled_while_waiting(stage: &mut Stage) -> Done {
    stage.work()?;
    stage.house.cancel(stage.run, &key("cancel")?)?;
    Ok(())
}

fn cancelled_at_work(stage: &mut Stage) -> Done {
    stage.begin()?;
    stage.house.cancel(stage.run, &key("cancel")?)?;
    stage.work()
}

/// The process dies between the ask and its answer.
fn lost_ask(stage: &mut Stage) -> Done {
    stage.begin()?;
    stage.restart()?;
    stage.work()
}

/// The process dies between an effect and its outcome.
fn crash_after_effect(stage: &mut Stage) -> Done {
    let mut drive = stage.begin()?;
    while stage.house.advance(&mut drive, &mut Scripted)? != Progress::Performed {}
    stage.restart()?;
    stage.house.recover(&mut Scripted)?;
    stage.work()
}

fn stopped_and_released(stage: &mut Stage) -> Done {
    stage.begin()?;
    stage.house.stop(&SwitchSubject::Everything, "a look around", &key("stop")?)?;
    stage.work()?;
    stage.house.release(&SwitchSubject::Everything, &key("release")?)?;
    stage.work()
}

fn paused_and_resumed(stage: &mut Stage) -> Done {
    let drive = stage.begin()?;
    stage.house.pause_agent(stage.agent, &key("pause")?)?;
    stage.finish(drive)?;
    stage.house.resume_agent(stage.agent, &key("resume")?)?;
    stage.work()
}

fn budget(stage: &mut Stage) -> Done {
    stage.work()?;
    let change = BudgetChange { tokens: Some(50_000), ..BudgetChange::default() };
    stage.house.set_budget(stage.agent, &change, &key("budget")?)?;
    stage.work()
}

/// A model that does not answer the first time.
fn backoff(stage: &mut Stage) -> Done {
    stage.silent = 1;
    stage.work()
}

fn key(text: &str) -> Done<ClientKey> {
    Ok(ClientKey::parse(text)?)
}

/// Stores that outlive the houses that use them, and the run of one story.
struct Stage {
    env: Env,
    places: Vec<Shared>,
    house: House,
    agent: AgentId,
    run: RunId,
    /// Asks that get no answer.
    silent: usize,
    answers: usize,
}

impl Stage {
    fn set(manifest: Value) -> Done<Self> {
        let env = Env::seeded(7);
        let host = HostId::from_raw(RawId::from_bytes([7; 16]));
        let place = |domain: &Domain| Shared(Arc::new(Mutex::new(MemoryStore::new(*domain, host, env.clone()))));
        let places: Vec<_> = Domain::ALL.iter().map(place).collect();
        let mut house = house(&env, &places)?;
        house.create_workspace("home", "Home")?;
        let manifest: Manifest = serde_json::from_value(manifest)?;
        let agent = house.adopt(&manifest, &key("start")?)?;
        let run = house.wake_by_hand(agent, &key("start")?)?;
        Ok(Self { env, places, house, agent, run, silent: 0, answers: 0 })
    }

    /// The process dies, and another one opens the stores.
    fn restart(&mut self) -> Done {
        self.house = house(&self.env, &self.places)?;
        Ok(())
    }

    fn begin(&mut self) -> Done<Drive> {
        Ok(self.house.begin(self.agent, &Part { silent: &mut 0 })?.ok_or("the run does not begin")?)
    }

    fn finish(&mut self, mut drive: Drive) -> Done {
        let mut part = Part { silent: &mut self.silent };
        while !matches!(self.house.advance(&mut drive, &mut part)?, Progress::Rests(_)) {}
        Ok(())
    }

    /// Drives the run until it ends, or waits for more than a moment.
    fn work(&mut self) -> Done {
        // LIMIT: the clock moves with every look at it, so a short pause is over after a few hundred.
        for _ in 0..2_000 {
            let drive = match self.house.run(&self.run) {
                Err(_) => self.begin()?,
                Ok(run) if run.status.is_terminal() => return Ok(()),
                Ok(_) => Drive::new(self.run),
            };
            self.finish(drive)?;
            let run = self.house.run(&self.run)?;
            let soon = run.waiting.is_some_and(|waiting| waiting.reason == control::run::WaitReason::Backoff);
            if run.status == RunStatus::Waiting && !soon {
                return Ok(());
            }
        }
        Err("the run does not come to rest".into())
    }

    fn answer(&mut self, verdict: Verdict, text: &str) -> Done {
        let item: PromptItemId = self.house.run(&self.run)?.parked.first().ok_or("nothing is parked")?.item;
        self.answers += 1;
        self.house.answer(item, verdict, text, &key(&format!("answer {}", self.answers))?)?;
        Ok(())
    }
}

fn house(env: &Env, places: &[Shared]) -> Done<House> {
    let place = |domain: Domain| {
        let at = Domain::ALL.iter().position(|known| *known == domain).unwrap_or(0);
        Box::new(places[at].clone())
    };
    let mut house = House::new(env.clone(), place(Domain::Journal), place(Domain::Agent), place(Domain::Ledger));
    house.level_fences()?;
    house.begin_life()?;
    Ok(house)
}

/// The script, with a model that is silent at first and a service whose answers get lost.
struct Part<'a> {
    silent: &'a mut usize,
}

impl Outside for Part<'_> {
    fn ask(&mut self, manifest: &Manifest, run_id: &RunId, ask: &Ask) -> Result<Answer, ErrorCode> {
        if *self.silent > 0 {
            *self.silent -= 1;
            return Err(ErrorCode::LlmTimeout);
        }
        Scripted.ask(manifest, run_id, ask)
    }

    fn call(&mut self, _call: &Call) -> CallResult {
        CallResult::Unknown
    }

    fn reaches(&self, service: &str) -> bool {
        service == "notify"
    }
}

#[derive(Clone)]
struct Shared(Arc<Mutex<MemoryStore>>);

impl Shared {
    fn store(&self) -> MutexGuard<'_, MemoryStore> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Committer for Shared {
    fn host(&self) -> HostId {
        Store::host(&*self.store())
    }

    fn commit(&mut self, commit: Commit) -> store::Result<Committed> {
        Committer::commit(&mut *self.store(), commit)
    }

    fn heads(&mut self) -> store::Result<Vec<Head>> {
        Store::heads(&*self.store())
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Store::reader(&*self.store())
    }
}

//! A named scenario that can be played again and again: two tasks, a run that selects, creates, asks, keeps and ends, and a person who says
//! yes. Every act has a fixed name and the clock stands still, so playing it on after a crash must lead to the same records.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use control::cycle::Cycle;
use control::manifest::Manifest;
use control::run::{Run, RunStatus};
use domain::causality::Domain;
use domain::entry::Actor;
use domain::id::{OperationId, PersonId, PromptItemId, TaskId};
use domain::record::{Record, Value};
use domain::records::prompt::{PromptItem, PromptState, Verdict};
use domain::records::task::Task;
use runtime::engine::{Drive, Job, Progress, Scripted};
use runtime::{ClientKey, House, TaskDraft};
use serde_json::json;
use sim::env::VirtualClock;
use sim::place::{Place, Stores, Watch, lock, store_of};
use store::env::{Entropy, Env};
use store::store::{Scan, Snapshot};

/// Random bytes that are always the same: what is drawn again after a crash is what was drawn before.
struct Constant;

impl Entropy for Constant {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

pub(crate) fn env() -> Env {
    Env { clock: Arc::new(VirtualClock::at(1_800_000_000_000)), entropy: Arc::new(Constant) }
}

fn key(name: &str) -> ClientKey {
    ClientKey::parse(name).unwrap()
}

/// The id that a task gets from the name of the act that adds it.
pub(crate) fn task_id(name: &str) -> TaskId {
    let operation = OperationId::of_client(&Actor::Person(PersonId::owner()), name);
    TaskId::from_raw(operation.created(Task::SPEC.kind, 0))
}

pub(crate) fn manifest() -> Manifest {
    let (first, second) = (task_id("first task"), task_id("second task"));
    let artifact = |task: TaskId, key: &str| json!({ "action": "persist_artifact", "task_id": task, "artifact": { "type": "context", "key": key, "content": "the text" } });
    let script = [
        json!({ "action": "select_next_task", "task_id": first, "reasoning": "it is first" }),
        artifact(first, "page"),
        json!({ "action": "create_task", "task": { "description": "look at the page again", "preconditions": [second] } }),
        json!({ "action": "generate_message", "task_id": second,
            "message": { "type": "follow_up", "content": "Dear friend, here is the page.", "personalization_context": "" } }),
        json!({ "action": "no_op", "reason": "awaiting_user_input", "details": "" }),
        json!({ "action": "no_op", "reason": "campaign_complete", "details": "" }),
    ];
    let script: Vec<String> = script.iter().map(ToString::to_string).collect();
    let manifest = json!({
        "schema": 1, "agent": "sweeper", "prompt": "do the tasks", "mode": "yolo",
        "model": { "provider": "scripted", "script": script },
    });
    serde_json::from_value(manifest).unwrap()
}

/// A process: it may die in any commit.
pub(crate) fn house(env: &Env, stores: &Stores, watch: &Arc<Mutex<Watch>>, alive: &Arc<AtomicBool>) -> House {
    let place = |domain| Box::new(Place::new(domain, stores, watch, alive, true));
    House::new(env.clone(), place(Domain::Journal), place(Domain::Agent), place(Domain::Ledger))
}

/// Plays the scenario from wherever it stands to its end.
pub(crate) fn play(house: &mut House, watch: &Mutex<Watch>) -> runtime::Result<()> {
    begin(house)?;
    while !is_over(house)? {
        approve_all(house, watch)?;
        for job in house.jobs()? {
            let drive = match job {
                Job::Continue(run) => Some(Drive::new(run)),
                Job::Begin(agent) => house.begin(agent, &Scripted)?,
            };
            let Some(mut drive) = drive else { continue };
            while !matches!(house.advance(&mut drive, &mut Scripted)?, Progress::Rests(_)) {}
        }
    }
    Ok(())
}

/// Everything up to the waking of the agent.
pub(crate) fn begin(house: &mut House) -> runtime::Result<()> {
    house.level_fences()?;
    house.begin_life()?;
    house.recover(&mut Scripted)?;
    house.create_workspace("home", "Home")?;
    for (name, requires) in [("first task", vec!["context/page".to_owned()]), ("second task", Vec::new())] {
        let draft =
            TaskDraft { description: format!("the {name}"), requires, preconditions: Vec::new(), workspace: "home".to_owned() };
        house.add_task(&draft, &key(name))?;
    }
    let agent = house.adopt(&manifest(), &key("adopt"))?;
    house.wake_by_hand(agent, &key("wake"))?;
    Ok(())
}

fn is_over(house: &House) -> runtime::Result<bool> {
    let runs = house.runs(10)?;
    Ok(runs.iter().all(|run| run.status.is_terminal()) && !runs.is_empty())
}

/// The person answers when the run has nothing else to do, and never before: so the order of things does not depend on crashes.
pub(crate) fn approve_all(house: &mut House, watch: &Mutex<Watch>) -> runtime::Result<()> {
    if house.runs(10)?.iter().any(|run| matches!(run.status, RunStatus::Running | RunStatus::Queued)) {
        return Ok(());
    }
    let mut scan = Scan::new(PromptItem::SPEC, "by_status");
    scan.prefix = vec![Value::from(PromptState::Open.as_str())];
    let rows = house.read(Domain::Agent, |snapshot| Ok(snapshot.scan(&scan)?.rows))?;
    for row in rows {
        let id = PromptItemId::from_raw(row.id);
        let item: Option<PromptItem> = row.record()?;
        let shown = item.and_then(|item| item.gates).map(|gated| gated.arguments_hash);
        lock(watch).ledger.approved.extend(shown.map(|shown| (id, shown)));
        house.answer(id, Verdict::Approve, "", &key(&format!("yes to {id}")))?;
    }
    Ok(())
}

/// What must not depend on where the process died: the journal whole, and what the agent says it did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Traces {
    pub journal: BTreeMap<String, Option<String>>,
    pub journal_entries: usize,
    pub actions: Vec<(OperationId, String, String)>,
    pub status: RunStatus,
}

pub(crate) fn traces(stores: &Stores) -> Traces {
    let journal = lock(store_of(stores, Domain::Journal)).reader();
    let agent = lock(store_of(stores, Domain::Agent)).reader();
    let (journal, agent) = (journal.read().unwrap(), agent.read().unwrap());
    let mut rows = BTreeMap::new();
    let mut journal_entries = 0;
    for stream in journal.streams().unwrap() {
        for (logged, _) in journal.entries(&stream, 0, 10_000).unwrap() {
            let entry = logged.entry;
            journal_entries += 1;
            let spec = domain::catalogue::find(&entry.kind).unwrap();
            let row = journal.get(spec, &entry.id).unwrap().unwrap();
            rows.insert(format!("{} at {} by {}", entry.id.with_prefix(spec.prefix), row.version, entry.operation_id), row.body);
        }
    }
    let cycles = all::<Cycle>(agent.as_ref(), "by_run");
    let of = |cycle: &Cycle| cycle.actions().to_vec();
    let done = cycles.iter().flat_map(of).map(|action| (action.operation_id, action.tool, action.state.to_string()));
    let mut actions: Vec<_> = done.collect();
    actions.sort();
    let status = all::<Run>(agent.as_ref(), "by_created").first().expect("there is one run").status;
    Traces { journal: rows, journal_entries, actions, status }
}

pub(crate) fn all<R: Record>(snapshot: &dyn Snapshot, index: &str) -> Vec<R> {
    let page = snapshot.scan(&Scan::new(R::SPEC, index)).unwrap();
    page.rows.iter().filter_map(|row| row.record().unwrap()).collect()
}

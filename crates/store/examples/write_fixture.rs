//! Writes the databases of the present schema as a fixture, once for every schema that is released.
//!
//! `cargo run -p store --example write_fixture -- crates/store/tests/fixtures/schema-1` makes `journal.sqlite`, `agent.sqlite`,
//! `ledger.sqlite` and `expected.jsonl`: a few dozen records of every kind, edits, a tombstone, an erase, control rows and
//! witnesses. The same build writes the same bytes. A fixture that is released is never written again; a new schema gets a folder of
//! its own, and a test (`l61_…` in `tests/it/files.rs`) that opens it for ever.

#[path = "../tests/it/files/shown.rs"]
mod shown;

use std::error::Error;
use std::path::Path;

use domain::causality::Domain;
use domain::commit::{Cause, Change, Commit, Expected, Write};
use domain::entry::{Actor, Witness};
use domain::hash;
use domain::id::{
    AgentId, ArtifactId, EventId, HostId, ManifestId, OperationId, PersonId, PromptItemId, PromptResponseId, RawId, RunId, WakeId,
    WorkspaceId,
};
use domain::key::RunKey;
use domain::record::{Body, Record};
use domain::records::agent::Agent;
use domain::records::artifact::Artifact;
use domain::records::budget::{BudgetLimit, BudgetUsage};
use domain::records::category::Category;
use domain::records::cursor::Cursor;
use domain::records::fence::Fence;
use domain::records::label::Label;
use domain::records::lease::Lease;
use domain::records::link::Link;
use domain::records::manifest::StoredManifest;
use domain::records::message::Message;
use domain::records::note::Note;
use domain::records::payload::Payload;
use domain::records::prompt::{PromptItem, PromptResponse};
use domain::records::slug::Slug;
use domain::records::switch::{Switch, SwitchSubject};
use domain::records::task::Task;
use domain::records::wake::Wake;
use domain::records::workspace::Workspace;
use domain::time::Timestamp;
use serde_json::{Value, json};
use store::env::Env;
use store::sqlite::{Location, SqliteStore};
use store::store::Store;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).ok_or("name a folder")?;
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let mut stores = Vec::new();
    for (seed, domain) in (1..).zip(Domain::ALL) {
        let host = HostId::from_raw(RawId::from_bytes([0x61; 16]));
        stores.push(SqliteStore::create(&Location::in_folder(folder, *domain), host, &Env::seeded(seed))?);
    }
    let [journal, agent, ledger] = stores.as_mut_slice() else { return Err("there are three domains".into()) };
    let mut journal_writer = Writer { store: journal, commits: 0 };
    write_journal(&mut journal_writer)?;
    write_tasks(&mut journal_writer)?;
    let mut agent_writer = Writer { store: agent, commits: 0 };
    write_agent(&mut agent_writer, &cursor(journal, "wakes")?)?;
    write_work(&mut agent_writer)?;
    write_asked(&mut agent_writer)?;
    write_ledger(&mut Writer { store: ledger, commits: 0 }, &cursor(journal, "mail")?)?;
    witness_each_other(&mut stores)?;
    let mut expected = String::new();
    for store in &stores {
        let location = store.location();
        let lines = shown::lines(location.domain, &location.kinds, store.reader().read()?.as_ref())?;
        expected.extend(lines.into_iter().map(|line| line + "\n"));
        store.checkpointer()?.truncate()?;
    }
    std::fs::write(folder.join("expected.jsonl"), expected)?;
    Ok(())
}

struct Writer<'a> {
    store: &'a mut SqliteStore,
    commits: u64,
}

impl Writer<'_> {
    /// Commits by turns of a person, an agent's run and the system.
    fn commit(&mut self, writes: Vec<Write>) -> Result<()> {
        self.commits += 1;
        let key = hash::plain(&self.commits.to_be_bytes());
        let agent = Actor::Agent(AgentId::from_raw(id("agent", 1)));
        let caused = Cause {
            run_key: Some(RunKey::from_hash(key)),
            source_event: Some(EventId::from_raw(RawId::from_hash(&key))),
            depth: 2,
        };
        let (actor, cause) = match self.commits % 3 {
            0 => (agent, caused),
            1 => (Actor::Person(PersonId::owner()), Cause::default()),
            _ => (Actor::System, Cause { depth: 1, ..Cause::default() }),
        };
        let commit = Commit {
            operation_id: OperationId::from_raw(RawId::from_hash(&key)),
            request: format!(r#"{{"commit":"{}"}}"#, self.commits),
            actor,
            cause,
            guards: Vec::new(),
            writes,
            witnesses: Vec::new(),
        };
        self.store.apply_group(&[commit]).pop().ok_or("a group of one has one result")??;
        Ok(())
    }
}

fn id(kind: &str, number: u64) -> RawId {
    RawId::from_hash(&hash::plain(format!("{kind} {number}").as_bytes()))
}

fn home() -> WorkspaceId {
    WorkspaceId::of_slug("home")
}

fn time(number: u64) -> String {
    Timestamp::from_ms(1_800_000_000_000 + i64::try_from(number).unwrap_or(0) * 60_000).to_string()
}

/// A record from its fields: what does not read as the typed record is not written.
fn body<R: Record>(fields: Value) -> Result<Body> {
    Ok(serde_json::from_value::<R>(fields)?.to_body()?)
}

fn put<R: Record>(number: u64, version: u64, fields: Value) -> Result<Write> {
    Ok(write::<R>(id(R::SPEC.kind, number), home(), version, Change::Put(body::<R>(fields)?)))
}

fn write<R: Record>(id: RawId, workspace: WorkspaceId, version: u64, change: Change) -> Write {
    let expected = if version == 0 { Expected::Absent } else { Expected::Version(version) };
    Write { spec: R::SPEC, id, workspace, expected, change }
}

fn remove<R: Record>(number: u64, version: u64, change: Change) -> Write {
    write::<R>(id(R::SPEC.kind, number), home(), version, change)
}

fn cursor(source: &SqliteStore, consumer: &str) -> Result<Write> {
    let reader = source.reader();
    let held = store::cursor::at_head(reader.read()?.as_ref(), consumer, Timestamp::EPOCH, source.domain())?;
    Ok(write::<Cursor>(Cursor::id_of(consumer), WorkspaceId::NONE, 0, Change::Put(held.to_body()?)))
}

fn fence(subject: &str, epoch: u64, version: u64) -> Result<Write> {
    let fields = json!({ "subject": subject, "epoch": epoch.to_string(), "raised_at": time(epoch) });
    Ok(write::<Fence>(Fence::id_of(subject), WorkspaceId::NONE, version, Change::Put(body::<Fence>(fields)?)))
}

fn note(number: u64, title: &str, text: &str) -> Value {
    let kinds = domain::records::note::KINDS;
    let kind = kinds[usize::try_from(number).unwrap_or(0) % kinds.len()];
    let mut fields =
        json!({ "title": title, "text": text, "kind": kind, "created_at": time(number), "updated_at": time(number + 1) });
    if number.is_multiple_of(2) {
        fields["category"] = json!(id("category", number % 3).with_prefix("cat"));
        fields["labels"] = json!(["read-later", format!("label-{}", number % 4)]);
    }
    fields
}

fn write_journal(journal: &mut Writer<'_>) -> Result<()> {
    for (number, (slug, kind, state)) in (0..).zip([("home", "personal", "active"), ("2026-plans", "campaign", "archived")]) {
        let fields =
            json!({ "slug": slug, "title": slug, "kind": kind, "state": state, "created_at": time(0), "updated_at": time(number) });
        let workspace = WorkspaceId::of_slug(slug);
        journal.commit(vec![write::<Workspace>(workspace.raw(), workspace, 0, Change::Put(body::<Workspace>(fields)?))])?;
    }
    for number in 0..4 {
        let mut fields =
            json!({ "slug": format!("label-{number}"), "title": "Größe", "created_at": time(0), "updated_at": time(number) });
        let category = put::<Category>(number, 0, fields.clone())?;
        fields["colour"] = json!("#a1b2c3");
        journal.commit(vec![category, put::<Label>(number, 0, fields)?])?;
    }
    for number in 0..16 {
        let text = if number == 9 {
            "a long text, ".repeat(500)
        } else {
            format!("text of {number}: naïve — 日本語 \u{1f33f}\n\tline two")
        };
        journal.commit(vec![put::<Note>(number, 0, note(number, &format!("note {number}"), &text))?])?;
    }
    for number in 0..8 {
        journal.commit(vec![put::<Note>(number, 1, note(number, &format!("edited {number}"), "another text"))?])?;
    }
    journal.commit(vec![
        put::<Note>(0, 2, note(0, "edited 0", "only the text"))?,
        put::<Note>(1, 2, note(1, "only the title", "another text"))?,
    ])?;
    journal.commit(vec![remove::<Note>(3, 2, Change::Tombstone), put::<Note>(16, 0, note(16, "in place of 3", ""))?])?;
    journal.commit(vec![remove::<Note>(4, 2, Change::Tombstone)])?;
    journal.commit(vec![put::<Note>(4, 3, note(4, "back again", "after it was deleted"))?])?;
    journal.commit(vec![remove::<Note>(5, 2, Change::Erase)])?;
    journal.commit(vec![remove::<Label>(3, 1, Change::Tombstone), fence("agent one", 1, 0)?])?;
    journal.commit(vec![fence("agent one", 3, 1)?])?;
    journal.commit(vec![cursor(journal.store, "self")?])
}

fn write_agent(agent: &mut Writer<'_>, cursor: &Write) -> Result<()> {
    let agent_id = |number: u64| id("agent", number).with_prefix("agent");
    let fields = |number: u64, lifecycle: &str| {
        json!({ "kind": "planner", "display_name": format!("Agent {number}"), "lifecycle": lifecycle, "mode": "hybrid",
            "allowed_category_ids": [id("category", number).with_prefix("cat")], "created_at": time(number), "updated_at": time(number + 2),
            "config": { "schema_version": 1, "model_id": "small" } })
    };
    for number in 0..3 {
        agent.commit(vec![put::<Agent>(number, 0, fields(number, "created"))?])?;
    }
    agent.commit(vec![put::<Agent>(1, 1, fields(1, "active"))?, put::<Agent>(2, 1, fields(2, "dormant"))?])?;
    for number in 0..10 {
        let payload = json!({ "agent_id": agent_id(1), "created_at": time(number), "content_type": "text",
            "content": { "text": format!("message {number}"), "parts": [1, null, true] } });
        let mut message = json!({ "agent_id": agent_id(1), "thread_id": format!("{}:run:{}", agent_id(1), number % 2), "kind": "thought",
            "created_at": time(number), "content_entry_id": id("payload", number).with_prefix("pay"), "tokens_approx": number,
            "metadata": { "schema_version": 1, "model_id": "small" } });
        if number > 0 {
            message["prev_message_id"] = json!(id("message", number - 1).with_prefix("msg"));
        }
        let link = json!({ "relation": "message_payload", "from_id": id("message", number).with_prefix("msg"),
            "to_id": id("payload", number).with_prefix("pay"), "created_at": time(number) });
        agent.commit(vec![
            put::<Payload>(number, 0, payload)?,
            put::<Message>(number, 0, message)?,
            put::<Link>(number, 0, link)?,
        ])?;
    }
    let hidden = json!({ "relation": "message_payload", "from_id": id("message", 2).with_prefix("msg"),
        "to_id": id("payload", 2).with_prefix("pay"), "hidden": true, "created_at": time(2) });
    agent.commit(vec![put::<Link>(2, 1, hidden)?, remove::<Link>(3, 1, Change::Tombstone)])?;
    agent.commit(vec![remove::<Payload>(4, 1, Change::Erase)])?;
    agent.commit(vec![cursor.clone(), fence("agent one", 3, 0)?])?;
    Ok(())
}

fn agent_one() -> AgentId {
    AgentId::from_raw(id("agent", 1))
}

/// Tasks in every state, one of them waiting for another, and what was made for them.
fn write_tasks(journal: &mut Writer<'_>) -> Result<()> {
    let task_id = |number: u64| id("task", number).with_prefix("task");
    let fields = |number: u64, status: &str| {
        json!({ "description": format!("task {number}: Größe prüfen"), "status": status, "created_by": Actor::Person(PersonId::owner()),
            "created_at": time(number), "updated_at": time(number + 3) })
    };
    for number in 0..4 {
        journal.commit(vec![put::<Task>(number, 0, fields(number, "pending"))?])?;
    }
    let mut waiting = fields(4, "pending");
    waiting["preconditions"] = json!([task_id(0), task_id(1)]);
    waiting["required_effects"] = json!([{ "effect": "artifact", "artifact_type": "context", "artifact_key": "plan" }]);
    waiting["category"] = json!(id("category", 1).with_prefix("cat"));
    waiting["created_by"] = json!(Actor::Agent(agent_one()));
    journal.commit(vec![put::<Task>(4, 0, waiting)?, put::<Task>(1, 1, fields(1, "in_progress"))?])?;
    let (mut done, mut blocked) = (fields(0, "done"), fields(2, "blocked"));
    (done["completed_at"], done["completed_by"]) = (json!(time(9)), json!(Actor::Person(PersonId::owner())));
    blocked["blocked_reason"] = json!("nobody answers");
    journal.commit(vec![put::<Task>(0, 1, done)?, put::<Task>(2, 1, blocked)?, remove::<Task>(3, 1, Change::Tombstone)])?;
    let artifact = json!({ "artifact_type": "context", "artifact_key": "plan", "source": "agent", "content": "first this — then 日本語",
        "task_id": task_id(0), "approved_by": Actor::Person(PersonId::owner()), "created_at": time(5), "updated_at": time(6) });
    let keyed = ArtifactId::of_key(&home(), &Slug::parse("context")?, "plan").raw();
    let loose = json!({ "artifact_type": "python_script", "source": "user", "content": "print(1)\n", "created_at": time(7), "updated_at": time(7) });
    journal.commit(vec![
        write::<Artifact>(keyed, home(), 0, Change::Put(body::<Artifact>(artifact)?)),
        put::<Artifact>(1, 0, loose.clone())?,
        put::<Artifact>(2, 0, loose)?,
    ])?;
    journal.commit(vec![remove::<Artifact>(2, 1, Change::Erase)])
}

/// What runs leave in the agent domain: a manifest, wakes, budgets, a switch and a lease.
fn write_work(agent: &mut Writer<'_>) -> Result<()> {
    let bare = |id, version, body| write_bare::<Wake>(id, version, body);
    let manifest = r#"{"agent":"planner","schema":1}"#;
    let stored = body::<StoredManifest>(json!({ "content": manifest, "stored_at": time(1) }))?;
    agent.commit(vec![write::<StoredManifest>(ManifestId::of_content(manifest).raw(), home(), 0, Change::Put(stored))])?;
    let fields = |number: u64, reason: &str, status: &str| {
        json!({ "agent_id": agent_one(), "run_key": run_key(number), "reason": reason, "status": status, "cause_depth": number,
            "created_at": time(number) })
    };
    let wake_id = |number: u64| WakeId::of_key(&run_key(number)).raw();
    for (number, reason) in (0..).zip(["manual", "timer", "userInitiated", "answer"]) {
        agent.commit(vec![bare(wake_id(number), 0, body::<Wake>(fields(number, reason, "waiting"))?)])?;
    }
    let (mut completed, mut failed) = (fields(0, "manual", "completed"), fields(1, "timer", "failed_terminal"));
    (completed["run_id"], completed["ended_at"]) = (json!(RunId::of_key(&run_key(0))), json!(time(8)));
    (failed["code"], failed["ended_at"]) = (json!("LLM_TIMEOUT"), json!(time(9)));
    agent.commit(vec![bare(wake_id(0), 1, body::<Wake>(completed)?), bare(wake_id(1), 1, body::<Wake>(failed)?)])?;
    let amounts = |tokens: i64| json!({ "tokens": tokens, "cost_micros": 10, "runtime_ms": 20, "tool_calls": 3 });
    let limit = json!({ "agent_id": agent_one(), "limits": amounts(1_000_000), "soft_percent": 80, "updated_at": time(2) });
    agent.commit(vec![write_bare::<BudgetLimit>(BudgetLimit::id_of(&agent_one()), 0, body::<BudgetLimit>(limit)?)])?;
    for (number, day) in [(1, "2027-01-15"), (2, "2027-01-15"), (3, "2027-01-16")] {
        let host = HostId::from_raw(id("host", number));
        let mut usage = amounts(i64::try_from(number)? * 100);
        (usage["agent_id"], usage["day"], usage["host_id"]) = (json!(agent_one()), json!(day), json!(host));
        (usage["reserved"], usage["updated_at"]) = (amounts(5), json!(time(number)));
        let row = BudgetUsage::id_of(&agent_one(), day, &host);
        agent.commit(vec![write_bare::<BudgetUsage>(row, 0, body::<BudgetUsage>(usage)?)])?;
    }
    let lease = json!({ "agent_id": agent_one(), "run_id": RunId::of_key(&run_key(2)), "incarnation": "3", "taken_at": time(4) });
    agent.commit(vec![write_bare::<Lease>(agent_one().raw(), 0, body::<Lease>(lease)?), fence("incarnation", 3, 0)?])?;
    for (version, (subject, stopped)) in
        [(SwitchSubject::Everything, true), (SwitchSubject::Agent(agent_one()), true)].iter().enumerate()
    {
        let switch = json!({ "subject": subject, "stopped": stopped, "epoch": (version + 1).to_string(), "reason": "a look first",
            "changed_by": Actor::Person(PersonId::owner()), "changed_at": time(5) });
        agent.commit(vec![write_bare::<Switch>(subject.row_id(), 0, body::<Switch>(switch)?), fence(&subject.fence(), 1, 0)?])?;
    }
    let released = json!({ "subject": SwitchSubject::Everything, "stopped": false, "epoch": "1",
        "changed_by": Actor::Person(PersonId::owner()), "changed_at": time(6) });
    agent.commit(vec![write_bare::<Switch>(SwitchSubject::Everything.row_id(), 1, body::<Switch>(released)?)])
}

/// Questions to a person: one that was approved, one that is open, one that has expired.
fn write_asked(agent: &mut Writer<'_>) -> Result<()> {
    let operation = |number: u64| OperationId::from_raw(id("action", number));
    let gates = |number: u64| json!({ "operation_id": operation(number), "tool": "persist_artifact", "arguments_hash": hash::plain(b"arguments"), "policy_version": 1 });
    let item_id = |number: u64| PromptItemId::of_operation(&operation(number));
    let fields = |number: u64, status: &str| {
        json!({ "agent_id": agent_one(), "run_id": RunId::of_key(&run_key(0)), "run_key": run_key(0), "interaction_type": "yesNo",
            "prompt_text": "May it keep this — “plan”?", "gates": gates(number), "status": status, "created_at": time(number),
            "required_by": time(number + 1_440) })
    };
    for number in 0..2 {
        let item = body::<PromptItem>(fields(number, "open"))?;
        agent.commit(vec![write_bare::<PromptItem>(item_id(number).raw(), 0, item)])?;
    }
    let mut question = fields(2, "expired");
    (question["interaction_type"], question["options"], question["resolved_at"]) =
        (json!("multiChoice"), json!(["red", "green"]), json!(time(1_443)));
    question.as_object_mut().ok_or("it is an object")?.remove("gates");
    agent.commit(vec![write_bare::<PromptItem>(item_id(2).raw(), 0, body::<PromptItem>(question)?)])?;
    let mut answered = fields(0, "answered");
    answered["resolved_at"] = json!(time(7));
    let response = json!({ "prompt_item_id": item_id(0), "agent_id": agent_one(), "run_key": run_key(0), "verdict": "approve",
        "text": "once", "binds": gates(0), "responded_by": Actor::Person(PersonId::owner()), "responded_at": time(7) });
    agent.commit(vec![
        write_bare::<PromptItem>(item_id(0).raw(), 1, body::<PromptItem>(answered)?),
        write_bare::<PromptResponse>(PromptResponseId::of_item(&item_id(0)).raw(), 0, body::<PromptResponse>(response)?),
    ])
}

fn run_key(number: u64) -> RunKey {
    RunKey::manual(&agent_one(), &format!("run {number}"))
}

/// A record that belongs to no workspace.
fn write_bare<R: Record>(id: RawId, version: u64, body: Body) -> Write {
    write::<R>(id, WorkspaceId::NONE, version, Change::Put(body))
}

fn write_ledger(ledger: &mut Writer<'_>, cursor: &Write) -> Result<()> {
    ledger.commit(vec![cursor.clone()])?;
    ledger.commit(vec![fence("agent one", 3, 0)?])
}

fn witness_each_other(stores: &mut [SqliteStore]) -> Result<()> {
    let mut witnesses = Vec::new();
    for store in stores.iter() {
        let domain = store.domain();
        witnesses.extend(store.heads()?.into_iter().map(|head| Witness { domain, head }));
    }
    for store in stores {
        let others: Vec<Witness> = witnesses.iter().filter(|witness| witness.domain != store.domain()).copied().collect();
        store.witness(&others)?;
    }
    Ok(())
}

//! Writes the databases of the present schema as a fixture, once for every schema that is released.
//!
//! `cargo run -p store --example write_fixture -- crates/store/tests/fixtures/schema-1` makes `journal.sqlite`, `agent.sqlite`,
//! `ledger.sqlite` and `expected.jsonl`: a few dozen records of every kind, edits, a tombstone, an erase, control rows, an open saga,
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
use domain::id::{AgentId, EventId, HostId, OperationId, PersonId, RawId, WorkspaceId};
use domain::key::RunKey;
use domain::record::{Body, Record};
use domain::records::agent::Agent;
use domain::records::category::Category;
use domain::records::cursor::Cursor;
use domain::records::fence::Fence;
use domain::records::label::Label;
use domain::records::link::Link;
use domain::records::message::Message;
use domain::records::note::Note;
use domain::records::payload::Payload;
use domain::records::saga::Saga;
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
    write_journal(&mut Writer { store: journal, commits: 0 })?;
    write_agent(&mut Writer { store: agent, commits: 0 }, &cursor(journal, "wakes")?)?;
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
    agent.commit(vec![open_saga()?])
}

/// An operation that a crash left open: the note is not in the journal yet.
fn open_saga() -> Result<Write> {
    let operation_id = OperationId::from_raw(id("saga", 1));
    let planned = |kind: &str, id: String, body: &Body| json!({ "kind": kind, "id": id, "workspace": home(), "expected_version": "0", "body": body.text() });
    let note_body = body::<Note>(note(40, "from an open operation", "finished by whoever opens the files"))?;
    let link = json!({ "relation": "tool_effect", "from_id": id("message", 9).with_prefix("msg"), "to_id": id("note", 40).with_prefix("note"),
        "created_at": time(40) });
    let link_body = body::<Link>(link)?;
    let saga = json!({ "operation_id": operation_id, "phase": "journal_pending", "actor": Actor::Agent(AgentId::from_raw(id("agent", 1))),
        "run_key": hash::plain(b"run").to_string(), "cause_depth": 2, "request": "{}", "updated_at": time(40),
        "journal": [planned("note", id("note", 40).with_prefix("note"), &note_body)],
        "agent": [planned("link", id("link", 40).with_prefix("link"), &link_body)], "agent_if_refused": [] });
    Ok(write::<Saga>(Saga::row_id(&operation_id), WorkspaceId::NONE, 0, Change::Put(body::<Saga>(saga)?)))
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

//! Every derivation against vectors that a script without any of this code computed (`tools/golden_keys.py`).
//!
//! A derivation that changes breaks every log and every device that exists, so a vector is never edited, only added.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::str::FromStr;

use domain::causality::{Dot, StreamId};
use domain::commit::{Committed, Written};
use domain::entry::{Entry, FieldsSet, genesis};
use domain::hash::{self, Hash, Salt};
use domain::id::{
    ArtifactId, CategoryId, HostId, LabelId, ManifestId, OperationId, PersonId, PromptItemId, PromptResponseId, RawId, RunId,
    WakeId, WorkspaceId,
};
use domain::json;
use domain::key::{ActionIntent, ActionStableId, ChangeUnit, LogicalChangeKey, RunKey, keyed};
use domain::records::budget::{BudgetLimit, BudgetUsage};
use domain::records::cursor::Cursor;
use domain::records::switch::SwitchSubject;
use domain::time::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

type Derivation = fn(&Inputs) -> String;

/// Every derivation there is, by the name that vectors use.
const DERIVATIONS: &[(&str, Derivation)] = &[
    ("canonical_json", |i| json::write(&i.read::<Value>("value")).expect("a vector can be written")),
    ("id_text", |i| RawId::from_bytes(i.bytes("bytes")).with_prefix(&i.text("prefix"))),
    ("change_unit_key", |i| change_unit(i).key().to_string()),
    ("logical_change_key", |i| LogicalChangeKey::derive(&change_units(i)).expect("a vector has units").to_string()),
    ("run_key.subscription", |i| RunKey::subscription(&i.read("agent"), &i.raw("subscription"), &i.read("change")).to_string()),
    ("run_key.timer", |i| {
        RunKey::timer(&i.read("agent"), &i.raw("timer"), &i.text("intended"), i.number("occurrence")).to_string()
    }),
    ("run_key.session", |i| RunKey::session(&i.read("agent"), &i.raw("session"), &i.raw("turn")).to_string()),
    ("run_key.rule", |i| RunKey::rule(&i.raw("rule"), &i.text("triggering_event")).to_string()),
    ("run_key.event", |i| RunKey::event(&i.read("agent"), &i.read("event"), &i.text("route")).to_string()),
    ("run_key.manual", |i| RunKey::manual(&i.read("agent"), &i.text("client_key")).to_string()),
    ("run_key.recovery_catchup", |i| {
        RunKey::recovery_catchup(&i.read("agent"), &i.raw("timer"), &i.text("last_missed"), i.number("occurrence")).to_string()
    }),
    ("run_key.answer", |i| {
        let response = i.read::<Option<String>>("response").map(|text| raw(&text));
        RunKey::answer(&i.read("agent"), &i.raw("prompt_item"), response.as_ref()).to_string()
    }),
    ("action_stable_id", |i| action_stable_id(i).to_string()),
    ("operation_id.action", |i| OperationId::of_action(&i.read("run"), &i.read("action")).to_string()),
    ("operation_id.client", |i| OperationId::of_client(&i.read("actor"), &i.text("client_key")).to_string()),
    ("operation_id.point", |i| OperationId::of_point(&i.read("run"), i.number("cycle"), i.read("point")).to_string()),
    ("operation_id.consumer", |i| OperationId::of_consumer(&i.text("consumer"), &i.read("before")).to_string()),
    ("operation_id.timer_batch", |i| {
        let due: Vec<_> = i.pairs("due").into_iter().map(|(timer, intended)| (raw(&timer), intended)).collect();
        OperationId::of_timer_batch(i.read("domain"), &due).to_string()
    }),
    ("operation_id.part", |i| i.read::<OperationId>("operation").part(&i.text("name")).to_string()),
    ("created_id", |i| i.read::<OperationId>("operation").created(&i.text("kind"), i.number("k")).to_string()),
    ("keyed_id", |i| keyed(&i.text("kind"), &i.text("scope"), &i.text("key")).to_string()),
    ("workspace_id", |i| WorkspaceId::of_slug(&i.text("slug")).to_string()),
    ("category_id", |i| CategoryId::of_slug(&i.read("workspace"), &i.text("slug")).to_string()),
    ("label_id", |i| LabelId::of_slug(&i.read("workspace"), &i.text("slug")).to_string()),
    ("person_id.owner", |_| PersonId::owner().to_string()),
    ("artifact_id", |i| ArtifactId::of_key(&i.read("workspace"), &i.read("artifact_type"), &i.text("artifact_key")).to_string()),
    ("wake_id", |i| WakeId::of_key(&i.read("run")).to_string()),
    ("run_id", |i| RunId::of_key(&i.read("run")).to_string()),
    ("prompt_item_id", |i| PromptItemId::of_operation(&i.read("operation")).to_string()),
    ("prompt_response_id", |i| PromptResponseId::of_item(&i.read("prompt_item")).to_string()),
    ("budget_limit_id", |i| BudgetLimit::id_of(&i.read("agent")).to_string()),
    ("budget_usage_id", |i| BudgetUsage::id_of(&i.read("agent"), &i.text("day"), &i.read("host")).to_string()),
    ("switch_id", |i| i.read::<SwitchSubject>("subject").row_id().to_string()),
    ("manifest_id", |i| ManifestId::of_content(&i.text("content")).to_string()),
    ("body_hash", |i| hash::salted(&Salt(i.bytes("salt")), i.text("body").as_bytes()).to_string()),
    ("genesis", |i| genesis(i.read("domain"), &stream_id(i)).to_string()),
    ("entry_chain", |i| entry(i).chain(&i.read("previous")).to_string()),
    ("cursor_hash", |i| cursor(i).hash().to_string()),
];

#[test]
fn every_vector_has_a_derivation_and_every_derivation_two_vectors() {
    let mut counts: BTreeMap<&str, usize> = DERIVATIONS.iter().map(|(name, _)| (*name, 0)).collect();
    for vector in vectors("") {
        // Without inputs there is only one vector to have.
        let count = if vector.inputs.0.is_empty() { 2 } else { 1 };
        *counts.get_mut(&*vector.derivation).unwrap_or_else(|| panic!("unknown derivation `{}`", vector.derivation)) += count;
    }
    counts.retain(|_, count| *count < 2);
    assert_eq!(counts, BTreeMap::new(), "derivations with less than two vectors");
}

#[test]
fn canonical_texts_match_the_golden_vectors() {
    check("canonical_json");
    check("id_text");
}

#[test]
fn l7_change_keys_match_the_golden_vectors() {
    check("change_unit_key");
    check("logical_change_key");
}

#[test]
fn l7_author_and_receiver_derive_the_same_logical_change_key() {
    let header = entry(&vectors("entry_chain")[0].inputs);
    for vector in vectors("logical_change_key") {
        let units = change_units(&vector.inputs);
        // The author has the outcome of its own commit.
        let writes = units.iter().map(|unit| Written {
            kind: unit.payload_type.clone(),
            id: unit.payload_id,
            op: header.op,
            version: header.version,
            dot: Some(unit.dot),
        });
        let committed = Committed { operation_id: header.operation_id, at: header.at, writes: writes.collect(), repeated: false };
        let author: Vec<_> = committed.writes.iter().map(unit_of_write).collect();
        // The receiver has entries that came by sync: decoded, in another order, some of them twice. An entry does not say
        // how it arrived, so nothing that differs between the two sides can be hashed.
        let sent = committed.writes.iter().map(|write| Entry {
            dot: write.dot.expect("the writes were made with one"),
            kind: write.kind.clone(),
            id: write.id,
            ..header.clone()
        });
        let mut received: Vec<Entry> = sent.map(|entry| decoded(&encoded(&entry))).collect();
        received.reverse();
        received.push(received[0].clone());
        let receiver: Vec<_> = received.iter().map(ChangeUnit::of_entry).collect();

        let expected = Ok(LogicalChangeKey::from_hash(Hash::parse(&vector.expected).expect("a vector expects a hash")));
        assert_eq!([LogicalChangeKey::derive(&author), LogicalChangeKey::derive(&receiver)], [expected; 2]);
    }
}

#[test]
fn l10_run_keys_match_the_golden_vectors() {
    check("run_key.");
}

#[test]
fn l20_action_stable_ids_match_the_golden_vectors() {
    check("action_stable_id");
}

#[test]
fn l20_operation_ids_match_the_golden_vectors() {
    check("operation_id.");
}

#[test]
fn record_ids_match_the_golden_vectors() {
    for derivation in ["created_id", "keyed_id", "workspace_id", "category_id", "label_id", "person_id.owner"] {
        check(derivation);
    }
}

#[test]
fn l10_the_ids_of_wakes_and_runs_match_the_golden_vectors() {
    check("wake_id");
    check("run_id");
}

#[test]
fn l36_the_ids_of_questions_and_answers_match_the_golden_vectors() {
    check("prompt_item_id");
    check("prompt_response_id");
}

#[test]
fn the_ids_of_what_runs_need_match_the_golden_vectors() {
    for derivation in ["artifact_id", "budget_limit_id", "budget_usage_id", "switch_id", "manifest_id"] {
        check(derivation);
    }
}

#[test]
fn the_log_matches_the_golden_vectors() {
    for derivation in ["body_hash", "genesis", "entry_chain", "cursor_hash"] {
        check(derivation);
    }
}

#[test]
fn entries_of_the_golden_vectors_read_back() {
    for vector in vectors("entry_chain") {
        let entry = entry(&vector.inputs);
        assert_eq!(decoded(&encoded(&entry)), entry);
        assert_eq!(entry.digest(&vector.inputs.read("previous")).input(), vector.input_text.expect("a chain hashes an array"));
    }
}

/// Checks all vectors of one derivation, or of several with one beginning.
fn check(prefix: &str) {
    let vectors = vectors(prefix);
    assert!(!vectors.is_empty(), "no vector for `{prefix}`");
    for Vector { derivation, inputs, input_text, expected } in vectors {
        let derive = DERIVATIONS.iter().find(|(name, _)| *name == derivation);
        let (_, derive) = derive.unwrap_or_else(|| panic!("unknown derivation `{derivation}`"));
        assert_eq!(derive(&inputs), expected, "{derivation} of {inputs:?}");
        // The stated array is what is hashed, and it is canonical.
        if let Some(text) = input_text {
            let hash = hash::plain(text.as_bytes());
            let id = RawId::from_hash(&hash).to_string();
            assert!(expected == hash.to_string() || expected.rsplit('_').next() == Some(&id), "{derivation} of {inputs:?}");
            assert_eq!(json::parse(&text).map(|array| array.is_array()), Ok(true), "{text}");
        }
    }
}

fn vectors(prefix: &str) -> Vec<Vector> {
    let all: Vec<Vector> = serde_json::from_str(include_str!("../golden/keys.json")).expect("the file holds vectors");
    all.into_iter().filter(|vector| vector.derivation.starts_with(prefix)).collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    derivation: String,
    inputs: Inputs,
    /// Absent where the result is no hash of an array.
    input_text: Option<String>,
    expected: String,
}

/// What a derivation is given: 64-bit numbers as strings, ids and hashes as text, bytes as hexadecimal.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Inputs(Map<String, Value>);

impl Inputs {
    fn read<T: DeserializeOwned>(&self, name: &str) -> T {
        let value = self.0.get(name).unwrap_or_else(|| panic!("no input `{name}`"));
        T::deserialize(value).unwrap_or_else(|error| panic!("input `{name}`: {error}"))
    }

    fn text(&self, name: &str) -> String {
        self.read(name)
    }

    fn raw(&self, name: &str) -> RawId {
        raw(&self.text(name))
    }

    fn number<T: FromStr<Err: Debug>>(&self, name: &str) -> T {
        number(&self.text(name))
    }

    fn pairs(&self, name: &str) -> Vec<(String, String)> {
        self.read(name)
    }

    fn bytes(&self, name: &str) -> [u8; 16] {
        u128::from_str_radix(&self.text(name), 16).expect("sixteen bytes in hexadecimal").to_be_bytes()
    }
}

fn raw(text: &str) -> RawId {
    RawId::parse(text).unwrap_or_else(|| panic!("`{text}` is not an id"))
}

fn number<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error| panic!("`{text}` is not a number: {error:?}"))
}

fn change_units(i: &Inputs) -> Vec<ChangeUnit> {
    i.read::<Vec<Inputs>>("units").iter().map(change_unit).collect()
}

fn change_unit(i: &Inputs) -> ChangeUnit {
    ChangeUnit { dot: dot(i), payload_type: i.text("payload_type"), payload_id: i.raw("payload_id") }
}

fn unit_of_write(write: &Written) -> ChangeUnit {
    ChangeUnit { dot: write.dot.expect("a logged write has a dot"), payload_type: write.kind.clone(), payload_id: write.id }
}

fn dot(i: &Inputs) -> Dot {
    Dot { stream: stream_id(i), counter: i.number("counter") }
}

fn stream_id(i: &Inputs) -> StreamId {
    StreamId { host: i.read("host"), stream: i.read("stream") }
}

fn action_stable_id(i: &Inputs) -> ActionStableId {
    let targets: Vec<_> = i.pairs("targets").iter().map(|(id, version)| (raw(id), number(version))).collect();
    ActionStableId::derive(&ActionIntent {
        cycle: i.number("cycle"),
        tool: &i.text("tool"),
        arguments_hash: i.read("arguments_hash"),
        scope_hash: i.read("scope_hash"),
        targets: &targets,
        k: i.number("k"),
    })
}

fn cursor(i: &Inputs) -> Cursor {
    Cursor {
        consumer: i.text("consumer"),
        source: i.read("source"),
        history: i.read("history"),
        places: i.read("places"),
        updated_at: Timestamp::EPOCH,
    }
}

fn entry(i: &Inputs) -> Entry {
    let counts = |name| i.pairs(name).into_iter().map(|(host, count)| (HostId::parse(&host).expect("a host"), number(&count)));
    Entry {
        dot: dot(i),
        first: i.number("first"),
        last: i.number("last"),
        kind: i.text("kind"),
        schema: i.number("schema"),
        workspace: i.read("workspace"),
        id: i.raw("id"),
        op: i.read("op"),
        version: i.number("version"),
        edits: counts("edits").collect(),
        fields: match i.read::<Value>("fields") {
            Value::Array(names) => {
                FieldsSet::Some(names.iter().map(|name| name.as_str().expect("a field name").to_owned()).collect())
            }
            text => FieldsSet::from_text(text.as_str()),
        },
        clock: counts("clock").collect(),
        actor: i.read("actor"),
        operation_id: i.read("operation_id"),
        run_key: i.read("run_key"),
        source_event: i.read("source_event"),
        cause_depth: i.number("cause_depth"),
        at: Timestamp::from_ms(i.number("at_ms")),
        body_hash: i.read("body_hash"),
    }
}

/// An entry as canonical JSON, in the form of the vectors.
fn encoded(entry: &Entry) -> String {
    let pair = |(host, count): (&HostId, u64)| json!([host, count.to_string()]);
    let value = json!({
        "host": entry.dot.stream.host,
        "stream": entry.dot.stream.stream,
        "counter": entry.dot.counter.to_string(),
        "first": entry.first.to_string(),
        "last": entry.last.to_string(),
        "kind": entry.kind,
        "schema": entry.schema.to_string(),
        "workspace": entry.workspace,
        "id": entry.id.to_string(),
        "op": entry.op,
        "version": entry.version.to_string(),
        "edits": entry.edits.iter().map(|(host, count)| pair((host, *count))).collect::<Vec<_>>(),
        "fields": match &entry.fields {
            FieldsSet::Some(names) => json!(names),
            set => json!(set.to_text()),
        },
        "clock": entry.clock.iter().map(pair).collect::<Vec<_>>(),
        "actor": entry.actor,
        "operation_id": entry.operation_id,
        "run_key": entry.run_key,
        "source_event": entry.source_event,
        "cause_depth": entry.cause_depth.to_string(),
        "at_ms": entry.at.as_ms().to_string(),
        "body_hash": entry.body_hash,
    });
    json::write(&value).expect("an entry can be written")
}

fn decoded(text: &str) -> Entry {
    entry(&Inputs(json::parse_object(text).expect("what was written reads back")))
}

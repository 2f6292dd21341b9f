//! What the tests store and how they build commits.

use domain::causality::{Domain, StreamId};
use domain::commit::{Cause, Change, Commit, Expected, Write};
use domain::entry::Actor;
use domain::id::{HostId, OperationId, PersonId, RawId, WorkspaceId};
use domain::record::{Aggregate, Body, Class, Column, Index, Record, Spec, ValueType};
use domain::records::cursor::Cursor;
use domain::records::fence::Fence;
use store::store::{Reader, Store};

/// A mergeable, searchable record with every type of column.
pub(crate) static THING: Spec = Spec {
    kind: "thing",
    table: "things",
    prefix: "thing",
    domains: &[Domain::Journal],
    mergeable: true,
    columns: &[
        Column { name: "name", value_type: ValueType::Text },
        Column { name: "size", value_type: ValueType::Integer },
        Column { name: "parent", value_type: ValueType::Id },
        Column { name: "updated_at", value_type: ValueType::Time },
    ],
    indexes: &[
        Index { name: "by_size", columns: &["workspace", "size"], unique: false },
        Index { name: "by_parent", columns: &["parent", "name"], unique: false },
    ],
    aggregates: &[
        Aggregate { name: "count", group: &["workspace"], sum: None },
        Aggregate { name: "total", group: &["workspace", "name"], sum: Some("size") },
    ],
    full_text: &["name", "text"],
    ..Spec::DEFAULT
};

/// The least a record can be.
pub(crate) static PLAIN: Spec =
    Spec { kind: "plain", table: "plains", prefix: "plain", domains: &[Domain::Journal], full_text: &["name"], ..Spec::DEFAULT };

/// Written once; its body only beside the log.
pub(crate) static PING: Spec = Spec {
    kind: "ping",
    table: "pings",
    prefix: "ping",
    domains: &[Domain::Journal],
    immutable: true,
    columns: &[Column { name: "thread", value_type: ValueType::Digest }, Column { name: "size", value_type: ValueType::Integer }],
    indexes: &[Index { name: "by_thread", columns: &["thread", "size"], unique: false }],
    ..Spec::DEFAULT
};

/// Logged in the local stream.
pub(crate) static CHECKPOINT: Spec = Spec {
    kind: "checkpoint",
    table: "checkpoints",
    prefix: "check",
    domains: &[Domain::Journal],
    class: Class::Local,
    ..Spec::DEFAULT
};

/// Only its hash is in the log.
pub(crate) static MEMO: Spec =
    Spec { kind: "memo", table: "memos", prefix: "memo", domains: &[Domain::Journal], class: Class::HashLogged, ..Spec::DEFAULT };

/// Not in the log, with a unique key.
pub(crate) static LEASE: Spec = Spec {
    kind: "lease",
    table: "leases",
    prefix: "lease",
    domains: &[Domain::Journal],
    class: Class::Control,
    columns: &[Column { name: "name", value_type: ValueType::Text }],
    indexes: &[Index { name: "by_name", columns: &["name"], unique: true }],
    ..Spec::DEFAULT
};

pub(crate) fn kinds() -> Vec<&'static Spec> {
    vec![&THING, &PING, &CHECKPOINT, &MEMO, &LEASE, Cursor::SPEC, Fence::SPEC]
}

pub(crate) fn host(number: u8) -> HostId {
    HostId::from_raw(id(number))
}

pub(crate) fn id(number: u8) -> RawId {
    RawId::from_bytes([number; 16])
}

pub(crate) fn workspace() -> WorkspaceId {
    WorkspaceId::of_slug("home")
}

pub(crate) fn body(json: &str) -> Body {
    let value: serde_json::Value = serde_json::from_str(json).expect("a test's body is JSON");
    Body::parse(&domain::json::write(&value).expect("it has a canonical form")).expect("it is an object")
}

pub(crate) fn put(spec: &'static Spec, number: u8, expected: u64, json: &str) -> Write {
    write(spec, number, expected, Change::Put(body(json)))
}

/// `expected` 0 expects no row.
pub(crate) fn write(spec: &'static Spec, number: u8, expected: u64, change: Change) -> Write {
    let expected = if expected == 0 { Expected::Absent } else { Expected::Version(expected) };
    Write { spec, id: id(number), workspace: workspace(), expected, change }
}

pub(crate) fn operation(key: &str) -> OperationId {
    OperationId::of_client(&Actor::Person(PersonId::owner()), key)
}

/// A person's commit; its request is its key and what it writes.
pub(crate) fn commit(key: &str, writes: Vec<Write>) -> Commit {
    let shown: Vec<_> = writes.iter().map(|write| format!("{}{}{:?}", write.spec.kind, write.id, write.change)).collect();
    let request = domain::json::write(&serde_json::json!([key, shown])).expect("strings have a canonical form");
    Commit {
        operation_id: operation(key),
        request,
        actor: Actor::Person(PersonId::owner()),
        cause: Cause::default(),
        guards: Vec::new(),
        writes,
        witnesses: Vec::new(),
    }
}

/// Everything a store holds, as text: two stores that hold the same have the same.
pub(crate) fn dump(reader: &dyn Reader, streams: &[StreamId]) -> String {
    let snapshot = reader.read().expect("a healthy store reads");
    let mut text = String::new();
    for stream in streams {
        for (logged, stored) in snapshot.entries(stream, 0, usize::MAX >> 1).expect("the log reads") {
            text.push_str(&format!("{logged:?} {:?} {:?} {:?}\n", stored.salt.map(|salt| salt.0), stored.body, stored.request));
            let spec = kinds().into_iter().find(|spec| spec.kind == logged.entry.kind);
            if let Some(spec) = spec {
                text.push_str(&format!("{:?}\n", snapshot.get(spec, &logged.entry.id)));
            }
        }
    }
    text
}

/// Counters are dense and the chain holds.
pub(crate) fn assert_sound(store: &dyn Store) {
    let report =
        store::verify::domain(store.reader().as_ref(), store.domain(), &kinds(), &[], &mut |_| {}).expect("it can be read");
    assert!(report.is_sound(), "{report:#?}");
}

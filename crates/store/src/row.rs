//! How rows, entries and values are written down where a backend needs one column for them.
//!
//! The forms here are part of the file format. `state` holds what a row's merge needs beyond its last entry; it is empty (NULL) for
//! the common row that one host wrote and whose fields are all as new as the row.

use std::collections::BTreeMap;

use domain::causality::{Dot, Stream, StreamId, VectorClock};
use domain::commit::{Committed, Written};
use domain::entry::{Actor, Edits, Entry, FieldsSet, Op};
use domain::hash::{self, Hash, Salt};
use domain::id::{EventId, HostId, OperationId, RawId, WorkspaceId};
use domain::json;
use domain::key::RunKey;
use domain::record::Value;
use domain::time::Timestamp;
use serde_json::{Map, json};

use crate::store::{Logged, RowState};
use crate::{Error, Result};

/// A row of the log table as plain column values, the same on every backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRow {
    /// Entries of the commit before and after this one.
    pub before: i64,
    pub after: i64,
    pub kind: String,
    pub schema: i64,
    pub workspace: Vec<u8>,
    pub id: Vec<u8>,
    pub op: String,
    pub version: i64,
    /// NULL for a record that only this host has written.
    pub edits: Option<String>,
    pub fields: Option<String>,
    pub clock: Option<String>,
    pub actor: Vec<u8>,
    pub operation: Vec<u8>,
    pub run_key: Option<Vec<u8>>,
    pub source_event: Option<Vec<u8>>,
    pub cause_depth: i64,
    pub at: i64,
    pub body_hash: Option<Vec<u8>>,
    pub chain: Vec<u8>,
}

impl LogRow {
    #[must_use]
    pub fn encode(logged: &Logged) -> Self {
        let entry = &logged.entry;
        let signed = |number: u64| i64::try_from(number).expect("counters and versions stay far below 2^63");
        Self {
            before: signed(entry.dot.counter - entry.first),
            after: signed(entry.last - entry.dot.counter),
            kind: entry.kind.clone(),
            schema: entry.schema.into(),
            workspace: entry.workspace.raw().as_bytes().to_vec(),
            id: entry.id.as_bytes().to_vec(),
            op: entry.op.as_str().to_owned(),
            version: signed(entry.version),
            edits: write_edits(&entry.edits, &entry.dot.stream.host, entry.version),
            fields: entry.fields.to_text(),
            clock: write_pairs(entry.clock.iter()),
            actor: entry.actor.to_bytes(),
            operation: entry.operation_id.raw().as_bytes().to_vec(),
            run_key: entry.run_key.map(|key| key.hash().as_bytes().to_vec()),
            source_event: entry.source_event.map(|event| event.raw().as_bytes().to_vec()),
            cause_depth: entry.cause_depth.into(),
            at: entry.at.as_ms(),
            body_hash: entry.body_hash.map(|hash| hash.as_bytes().to_vec()),
            chain: logged.chain.as_bytes().to_vec(),
        }
    }

    /// Reads a row at its place; the error names the column.
    pub fn decode(&self, dot: Dot, previous: Option<Dot>) -> std::result::Result<Logged, &'static str> {
        let id = |bytes: &[u8]| RawId::from_slice(bytes);
        let version = u64::try_from(self.version).map_err(|_| "version")?;
        let before = u64::try_from(self.before).map_err(|_| "before")?;
        let after = u64::try_from(self.after).map_err(|_| "after")?;
        let entry = Entry {
            dot,
            first: dot.counter.checked_sub(before).filter(|first| *first > 0).ok_or("before")?,
            last: dot.counter.checked_add(after).ok_or("after")?,
            kind: self.kind.clone(),
            schema: u32::try_from(self.schema).map_err(|_| "schema")?,
            workspace: WorkspaceId::from_raw(id(&self.workspace).ok_or("workspace")?),
            id: id(&self.id).ok_or("id")?,
            op: Op::parse(&self.op).ok_or("op")?,
            version,
            edits: read_edits(self.edits.as_deref(), &dot.stream.host, version).ok_or("edits")?,
            fields: FieldsSet::from_text(self.fields.as_deref()),
            clock: read_clock(self.clock.as_deref()).ok_or("clock")?,
            actor: Actor::from_slice(&self.actor).ok_or("actor")?,
            operation_id: OperationId::from_raw(id(&self.operation).ok_or("operation")?),
            run_key: optional(self.run_key.as_deref(), Hash::from_slice, "run_key")?.map(RunKey::from_hash),
            source_event: optional(self.source_event.as_deref(), RawId::from_slice, "source_event")?.map(EventId::from_raw),
            cause_depth: u8::try_from(self.cause_depth).map_err(|_| "cause_depth")?,
            at: Timestamp::from_ms(self.at),
            body_hash: optional(self.body_hash.as_deref(), Hash::from_slice, "body_hash")?,
        };
        let chain = Hash::from_slice(&self.chain).ok_or("chain")?;
        Ok(Logged { entry, chain, previous })
    }
}

fn optional<T>(
    bytes: Option<&[u8]>,
    read: fn(&[u8]) -> Option<T>,
    column: &'static str,
) -> std::result::Result<Option<T>, &'static str> {
    bytes.map(|bytes| read(bytes).ok_or(column)).transpose()
}

/// LIMIT: 2^40 entries in a stream and 2^22 streams in a file keep a position in a signed 64-bit integer.
const COUNTER_BITS: u32 = 40;
pub(crate) const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;
pub(crate) const STREAM_NUMBER_MAX: i64 = (1 << 22) - 2;

/// One integer for a place in the log: the file's number for the stream, then the counter. It keeps a stream's rows together.
/// `None` for what a sound file never holds.
pub(crate) fn position(stream_number: i64, counter: u64) -> Option<i64> {
    let fits = (1..=STREAM_NUMBER_MAX + 1).contains(&stream_number) && counter <= COUNTER_MAX;
    fits.then_some((stream_number << COUNTER_BITS) | counter.cast_signed())
}

pub(crate) fn split_position(position: i64) -> (i64, u64) {
    (position >> COUNTER_BITS, (position & ((1 << COUNTER_BITS) - 1)).unsigned_abs())
}

/// LIMIT: bytes of a request hash that compare requests; the other eight tell damage, since nobody has the request at hand then.
const REQUEST_BYTES: usize = 24;

/// What a repeat of an operation is compared with: salt and request, hashed, and a check of salt and hash.
pub(crate) fn request_hash(salt: &Salt, request: &str) -> Hash {
    let mut bytes = *hash::salted(salt, request.as_bytes()).as_bytes();
    let check = hash::salted(salt, &bytes[..REQUEST_BYTES]);
    bytes[REQUEST_BYTES..].copy_from_slice(&check.as_bytes()[REQUEST_BYTES..]);
    Hash::from_bytes(bytes)
}

/// Whether salt and hash are as [`request_hash`] made them.
pub(crate) fn request_is_whole(salt: &Salt, stored: &Hash) -> bool {
    let (hash, check) = stored.as_bytes().split_at(REQUEST_BYTES);
    hash::salted(salt, hash).as_bytes()[REQUEST_BYTES..] == *check
}

/// The text of a row's state; `None` when the row's dot says it all.
pub(crate) fn write_state(state: &RowState, dot: Option<&Dot>, version: u64) -> Option<String> {
    if state.older_fields.is_empty() && implied_edits(dot, version).as_ref() == Some(&state.edits) {
        return None;
    }
    let edits: Map<_, _> = state.edits.iter().map(|(host, count)| (host.to_string(), json!(count.to_string()))).collect();
    let fields: Map<_, _> = state.older_fields.iter().map(|(name, dot)| (name.clone(), json!(crate::error::place(dot)))).collect();
    let text = json::write(&json!({ "edits": edits, "fields": fields }));
    Some(text.expect("strings have a canonical form"))
}

pub(crate) fn read_state(text: Option<&str>, dot: Option<&Dot>, version: u64) -> Result<RowState> {
    let Some(text) = text else {
        return Ok(RowState { edits: implied_edits(dot, version).unwrap_or_default(), older_fields: BTreeMap::new() });
    };
    let bad = || Error::Unreadable(format!("row state `{text}`"));
    let value = json::parse_object(text).map_err(|_| bad())?;
    let part = |name: &str| value.get(name).and_then(serde_json::Value::as_object).ok_or_else(bad);
    let mut state = RowState::default();
    for (host, count) in part("edits")? {
        let host = HostId::parse(host).map_err(|_| bad())?;
        let count = count.as_str().and_then(|count| count.parse().ok()).ok_or_else(bad)?;
        state.edits.insert(host, count);
    }
    for (name, place) in part("fields")? {
        state.older_fields.insert(name.clone(), place.as_str().and_then(parse_place).ok_or_else(bad)?);
    }
    Ok(state)
}

/// A row without a log entry has no host; its edits are kept in full.
fn implied_edits(dot: Option<&Dot>, version: u64) -> Option<Edits> {
    dot.map(|dot| Edits::from([(dot.stream.host, version)]))
}

/// Reads what [`crate::error::place`] writes.
pub(crate) fn parse_place(text: &str) -> Option<Dot> {
    let (stream, counter) = text.split_once('#')?;
    let (host, stream) = stream.split_once('/')?;
    let stream = StreamId { host: HostId::parse(host).ok()?, stream: Stream::parse(stream)? };
    Some(Dot { stream, counter: counter.parse().ok()? })
}

/// Pairs of host and number as `host=n` joined by commas; `None` for none, or when they are the implied ones.
pub(crate) fn write_pairs<'a>(pairs: impl Iterator<Item = (&'a HostId, u64)>) -> Option<String> {
    let text: Vec<_> = pairs.map(|(host, count)| format!("{host}={count}")).collect();
    (!text.is_empty()).then(|| text.join(","))
}

pub(crate) fn read_pairs(text: &str) -> Option<BTreeMap<HostId, u64>> {
    let pair = |pair: &str| {
        let (host, count) = pair.split_once('=')?;
        Some((HostId::parse(host).ok()?, count.parse().ok()?))
    };
    text.split(',').map(pair).collect()
}

/// The edits of an entry; one host's are implied by its version.
pub(crate) fn write_edits(edits: &Edits, host: &HostId, version: u64) -> Option<String> {
    if *edits == Edits::from([(*host, version)]) {
        return None;
    }
    write_pairs(edits.iter().map(|(host, count)| (host, *count))).or_else(|| Some(String::new()))
}

pub(crate) fn read_edits(text: Option<&str>, host: &HostId, version: u64) -> Option<Edits> {
    match text {
        None => Some(Edits::from([(*host, version)])),
        Some("") => Some(Edits::new()),
        Some(text) => read_pairs(text),
    }
}

pub(crate) fn read_clock(text: Option<&str>) -> Option<VectorClock> {
    match text {
        None => Some(VectorClock::default()),
        Some(text) => Some(read_pairs(text)?.into_iter().collect()),
    }
}

/// A group key as canonical JSON: the same text for the same values on every backend.
pub(crate) fn write_group(group: &[Value]) -> String {
    let values: Vec<_> = group
        .iter()
        .map(|value| match value {
            Value::Null => serde_json::Value::Null,
            Value::Integer(number) => json!(number.to_string()),
            Value::Text(text) => json!(text),
            Value::Bytes(bytes) => json!({ "x": hash::hex(bytes) }),
        })
        .collect();
    json::write(&serde_json::Value::Array(values)).expect("strings have a canonical form")
}

/// The outcome of a commit that left nothing in the log.
pub(crate) fn write_outcome(committed: &Committed) -> String {
    let writes: Vec<_> = committed
        .writes
        .iter()
        .map(|write| json!([write.kind, write.id.to_string(), write.op.as_str(), write.version.to_string()]))
        .collect();
    json::write(&serde_json::Value::Array(writes)).expect("strings have a canonical form")
}

pub(crate) fn read_outcome(operation_id: OperationId, at: Timestamp, text: &str) -> Result<Committed> {
    let bad = || Error::Unreadable(format!("outcome of {operation_id}"));
    let value: Vec<(String, String, String, String)> = serde_json::from_str(text).map_err(|_| bad())?;
    let write = |(kind, id, op, version): (String, String, String, String)| {
        let (id, op, version) = (RawId::parse(&id)?, Op::parse(&op)?, version.parse().ok()?);
        Some(Written { kind, id, op, version, dot: None })
    };
    let writes = value.into_iter().map(write).collect::<Option<_>>().ok_or_else(bad)?;
    Ok(Committed { operation_id, at, writes, repeated: false })
}

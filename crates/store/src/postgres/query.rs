//! The reads that writer and readers share: rows, entries, outcomes, heads.

use std::borrow::Cow;

use domain::causality::{Domain, Stream, StreamId};
use domain::commit::{Committed, Written};
use domain::entry::{Head, Witness};
use domain::hash::{Hash, Salt};
use domain::id::{HistoryId, HostId, OperationId, RawId, WorkspaceId};
use domain::record::{Spec, Value, ValueType};
use domain::time::Timestamp;
use postgres::types::private::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::apply::Outcome;
use crate::postgres::connect::Link;
use crate::row::{self, LogRow};
use crate::store::{Logged, Row, Stored};
use crate::streams::Streams;
use crate::{Error, Result};

/// Every stream with its number, and its head unless that is lost, in one statement: what one moment knows of all nodes.
pub(crate) fn streams(link: &mut Link) -> Result<(Streams, Vec<Head>)> {
    let domain = link.domain();
    let sql = "SELECT s.n, h.stream, s.host, s.stream, h.counter, h.chain, h.at \
               FROM streams s LEFT JOIN log_head h ON h.stream = s.n ORDER BY s.n";
    let mut streams = Streams::default();
    let mut heads = Vec::new();
    for row in link.query(sql, &[])? {
        let number: i64 = get(&row, 0)?;
        let bad = |what: &str| Error::Damaged { domain, message: format!("{what} {number} does not read") };
        let stream = read_stream(&row, 2).ok_or_else(|| bad("stream"))?;
        streams.insert(number, stream);
        if get::<Option<i64>>(&row, 1)?.is_some() {
            heads.push(read_head(&row, 2).ok_or_else(|| bad("the head of stream"))?);
        }
    }
    Ok((streams, heads))
}

pub(crate) fn witnesses(link: &mut Link) -> Result<Vec<Witness>> {
    let domain = link.domain();
    let sql = "SELECT domain, host, stream, counter, chain, at FROM witnesses ORDER BY domain, host, stream";
    let read = |row: &postgres::Row| {
        let witnessed: &str = row.try_get(0).ok()?;
        Some(Witness { domain: Domain::parse(witnessed)?, head: read_head(row, 1)? })
    };
    let rows = link.query(sql, &[])?;
    let bad = || Error::Damaged { domain, message: "a witness does not read".to_owned() };
    rows.iter().map(|row| read(row).ok_or_else(bad)).collect()
}

/// Host, stream, counter, chain and time, from a column on.
fn read_head(row: &postgres::Row, first: usize) -> Option<Head> {
    let counter = u64::try_from(row.try_get::<_, i64>(first + 2).ok()?).ok()?;
    let chain = Hash::from_slice(row.try_get(first + 3).ok()?)?;
    Some(Head { stream: read_stream(row, first)?, counter, chain, at: Timestamp::from_ms(row.try_get(first + 4).ok()?) })
}

fn read_stream(row: &postgres::Row, first: usize) -> Option<StreamId> {
    let host = HostId::from_raw(RawId::from_slice(row.try_get(first).ok()?)?);
    Some(StreamId { host, stream: Stream::parse(row.try_get(first + 1).ok()?)? })
}

pub(crate) fn meta(link: &mut Link, key: &str) -> Result<Vec<u8>> {
    let domain = link.domain();
    let rows = link.query("SELECT value FROM meta WHERE key = $1", &[&key])?;
    let row = rows.first().ok_or_else(|| Error::Damaged { domain, message: format!("meta `{key}` is missing") })?;
    get(row, 0)
}

pub(crate) fn history(link: &mut Link) -> Result<HistoryId> {
    let domain = link.domain();
    let value = meta(link, "history")?;
    let id =
        RawId::from_slice(&value).ok_or_else(|| Error::Damaged { domain, message: "meta `history` is not an id".to_owned() })?;
    Ok(HistoryId::from_raw(id))
}

/// A connection with what is needed to read it.
pub(crate) struct Queries<'a> {
    pub link: &'a mut Link,
    pub streams: &'a Streams,
}

/// The columns that every record table has, from alias `t`; an immutable kind's body is beside the log.
pub(crate) fn row_columns(spec: &Spec) -> &'static str {
    if spec.immutable {
        // An erased row's place in the log holds the list of what was erased, which is not a body of the record.
        "t.id, t.version, t.workspace, t.deleted, t.pos, t.state, \
         CASE t.deleted WHEN 0 THEN (SELECT b.body FROM bodies b WHERE b.pos = t.pos) END"
    } else {
        "t.id, t.version, t.workspace, t.deleted, t.pos, t.state, t.body"
    }
}

const ENTRY_COLUMNS: &str = "log.pos, previous, before, after, kind, schema, workspace, id, op, version, edits, fields, clock, \
     actor, operation, run_key, source_event, cause_depth, at, body_hash, chain, salt, request, body";

impl Queries<'_> {
    pub(crate) fn row(&mut self, spec: &'static Spec, id: &RawId) -> Result<Option<Row>> {
        let sql = format!("SELECT {} FROM {} t WHERE t.id = $1", row_columns(spec), quoted(spec.table));
        let rows = self.link.query(&sql, &[&bytes(id)])?;
        rows.first().map(|row| self.read_row(spec, row)).transpose()
    }

    /// Reads the columns of [`row_columns`].
    pub(crate) fn read_row(&self, spec: &'static Spec, row: &postgres::Row) -> Result<Row> {
        let raw = |column: usize| {
            let bytes: &[u8] = get(row, column)?;
            RawId::from_slice(bytes).ok_or_else(|| Error::Unreadable(format!("an id in {}", spec.table)))
        };
        let version = get::<i64>(row, 1)?.unsigned_abs();
        let position: Option<i64> = get(row, 4)?;
        let dot = position.map(|position| self.streams.dot(position)).transpose()?;
        let state: Option<&str> = get(row, 5)?;
        Ok(Row {
            spec,
            id: raw(0)?,
            version,
            workspace: WorkspaceId::from_raw(raw(2)?),
            deleted: get::<i16>(row, 3)? != 0,
            body: get(row, 6)?,
            dot,
            state: row::read_state(state, dot.as_ref(), version)?,
        })
    }

    pub(crate) fn entries(&mut self, stream: &StreamId, after: u64, limit: usize) -> Result<Vec<(Logged, Stored)>> {
        let Some(number) = self.streams.number(stream) else { return Ok(Vec::new()) };
        let sql = format!(
            "SELECT {ENTRY_COLUMNS} FROM log LEFT JOIN bodies ON bodies.pos = log.pos \
             WHERE log.pos > $1 AND log.pos < $2 ORDER BY log.pos LIMIT $3"
        );
        let first = row::position(number, after.min(row::COUNTER_MAX));
        let rows = self.link.query(&sql, &[&first, &row::position(number + 1, 0), &signed(limit)])?;
        rows.iter().map(|row| self.read_entry(row)).collect()
    }

    fn read_entry(&self, row: &postgres::Row) -> Result<(Logged, Stored)> {
        let dot = self.streams.dot(get(row, 0)?)?;
        let bad = |message: String| Error::BadEntry { dot, message };
        let columns = read_log_row(row).map_err(|error| bad(error.to_string()))?;
        let previous: Option<i64> = row.try_get(1).map_err(|error| bad(error.to_string()))?;
        let previous = previous.map(|position| self.streams.dot(position)).transpose().map_err(|error| bad(error.to_string()))?;
        let logged = columns.decode(dot, previous).map_err(|column| bad(format!("column `{column}`")))?;
        let stored = read_stored(row).map_err(|error| bad(error.to_string()))?;
        Ok((logged, stored.ok_or_else(|| bad("salt or request hash".to_owned()))?))
    }

    pub(crate) fn outcome(&mut self, operation_id: &OperationId) -> Result<Option<Outcome>> {
        if let Some(outcome) = self.logged_outcome(operation_id)? {
            return Ok(Some(outcome));
        }
        let sql = "SELECT salt, request, at, outcome FROM outcomes WHERE operation = $1";
        let rows = self.link.query(sql, &[&bytes(&operation_id.raw())])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (salt, request): (&[u8], &[u8]) = (get(row, 0)?, get(row, 1)?);
        let committed = row::read_outcome(*operation_id, Timestamp::from_ms(get(row, 2)?), get(row, 3)?)?;
        Ok(Some(Outcome { committed, request: salt_of(salt).zip(Hash::from_slice(request)) }))
    }

    /// The outcome of a logged commit is its entries, in whichever host's streams they are.
    fn logged_outcome(&mut self, operation_id: &OperationId) -> Result<Option<Outcome>> {
        let sql = "SELECT f.pos, f.after, b.salt, b.request FROM log f LEFT JOIN bodies b ON b.pos = f.pos \
                   WHERE f.operation = $1 AND f.before = 0 ORDER BY f.pos";
        let mut committed = Committed { operation_id: *operation_id, at: Timestamp::EPOCH, writes: Vec::new(), repeated: false };
        let mut request = None;
        for row in self.link.query(sql, &[&bytes(&operation_id.raw())])? {
            let (salt, hash): (Option<&[u8]>, Option<&[u8]>) = (get(&row, 2)?, get(&row, 3)?);
            request = request.or_else(|| Some((salt_of(salt?)?, Hash::from_slice(hash?)?)));
            let from = self.streams.dot(get(&row, 0)?)?;
            let length = usize::try_from(get::<i64>(&row, 1)?).unwrap_or(0) + 1;
            for (logged, _) in self.entries(&from.stream, from.counter - 1, length)? {
                let entry = logged.entry;
                committed.at = committed.at.max(entry.at);
                let (kind, id, op, version) = (entry.kind, entry.id, entry.op, entry.version);
                committed.writes.push(Written { kind, id, op, version, dot: Some(entry.dot) });
            }
        }
        committed.writes.sort_by_key(|write| write.dot);
        Ok((!committed.writes.is_empty()).then_some(Outcome { committed, request }))
    }

    pub(crate) fn aggregate(&mut self, spec: &'static Spec, name: &str, group: &[Value]) -> Result<i64> {
        let sql = "SELECT value FROM aggregates WHERE kind = $1 AND name = $2 AND members = $3";
        let rows = self.link.query(sql, &[&spec.kind, &name, &row::write_group(group)])?;
        rows.first().map_or(Ok(0), |row| get(row, 0))
    }
}

/// Reads a column; a type that is not ours is damage.
pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a postgres::Row, column: usize) -> Result<T> {
    row.try_get(column).map_err(|error| Error::Unreadable(format!("column {column}: {error}")))
}

pub(crate) fn bytes(id: &RawId) -> &[u8] {
    id.as_bytes()
}

pub(crate) fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A declared name; quoted because a declaration may use a word that SQL keeps for itself.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

fn read_log_row(row: &postgres::Row) -> std::result::Result<LogRow, postgres::Error> {
    Ok(LogRow {
        before: row.try_get(2)?,
        after: row.try_get(3)?,
        kind: row.try_get(4)?,
        schema: row.try_get(5)?,
        workspace: row.try_get(6)?,
        id: row.try_get(7)?,
        op: row.try_get(8)?,
        version: row.try_get(9)?,
        edits: row.try_get(10)?,
        fields: row.try_get(11)?,
        clock: row.try_get(12)?,
        actor: row.try_get(13)?,
        operation: row.try_get(14)?,
        run_key: row.try_get(15)?,
        source_event: row.try_get(16)?,
        cause_depth: row.try_get(17)?,
        at: row.try_get(18)?,
        body_hash: row.try_get(19)?,
        chain: row.try_get(20)?,
    })
}

fn read_stored(row: &postgres::Row) -> std::result::Result<Option<Stored>, postgres::Error> {
    let (salt, request): (Option<&[u8]>, Option<&[u8]>) = (row.try_get(21)?, row.try_get(22)?);
    let body = row.try_get(23)?;
    let (salt, request) = match (salt.map(salt_of), request.map(Hash::from_slice)) {
        (Some(None), _) | (_, Some(None)) => return Ok(None),
        (salt, request) => (salt.flatten(), request.flatten()),
    };
    Ok(Some(Stored { salt, body, request }))
}

fn salt_of(bytes: &[u8]) -> Option<Salt> {
    bytes.try_into().ok().map(Salt)
}

/// A record column on its way into PostgreSQL.
#[derive(Debug)]
pub(crate) struct Bound<'a>(pub &'a Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self.0 {
            Value::Null => Ok(IsNull::Yes),
            Value::Integer(number) if *ty == Type::INT8 => number.to_sql(ty, out),
            Value::Text(text) if *ty == Type::TEXT => without_nul(text).to_sql(ty, out),
            Value::Bytes(bytes) if *ty == Type::BYTEA => bytes.to_sql(ty, out),
            Value::Integer(_) | Value::Text(_) | Value::Bytes(_) => {
                Err(format!("a column of type {ty} holds no such value").into())
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Reads a record column back.
pub(crate) fn value(row: &postgres::Row, column: usize, value_type: ValueType) -> Result<Value> {
    let read = match value_type {
        ValueType::Text => get::<Option<&str>>(row, column)?.map(|text| Value::Text(with_nul(text))),
        ValueType::Integer | ValueType::Boolean | ValueType::Time => get::<Option<i64>>(row, column)?.map(Value::Integer),
        ValueType::Id | ValueType::Digest => get::<Option<Vec<u8>>>(row, column)?.map(Value::Bytes),
    };
    Ok(read.unwrap_or(Value::Null))
}

/// The type of a column that an index or an aggregate names; the workspace is not among the declared ones.
pub(crate) fn type_of(spec: &Spec, name: &str) -> ValueType {
    spec.column(name).map_or(ValueType::Id, |column| column.value_type)
}

/// PostgreSQL's text holds no NUL. NUL and the character after it are written as two characters, which keeps every order.
fn without_nul(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', '\u{1}']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace('\u{1}', "\u{1}\u{2}").replace('\0', "\u{1}\u{1}"))
}

fn with_nul(text: &str) -> String {
    let mut read = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        read.push(match character {
            '\u{1}' if characters.next() == Some('\u{1}') => '\0',
            other => other,
        });
    }
    read
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_without_nul_reads_back_and_keeps_the_order(a in "[\u{0}-\u{3}a]{0,6}", b in "[\u{0}-\u{3}a]{0,6}") {
            prop_assert_eq!(&with_nul(&without_nul(&a)), &a);
            prop_assert!(!without_nul(&a).contains('\0'));
            prop_assert_eq!(without_nul(&a).cmp(&without_nul(&b)), a.cmp(&b));
        }
    }
}
